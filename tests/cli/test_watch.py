"""`blackboard show` on a real terminal: colours, and a table that is kept up to date."""

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path

import pytest

from blackboard.cli import output, render, show
from blackboard.cli.show import ItemQuery, Pictures
from blackboard.display.layout import text_of
from blackboard.protocol.reading import BoardTable
from tests.cli.command_line import CommandLine, blackboard
from tests.support.faults import Fault, FaultyTable
from tests.support.patience import patience

__all__ = ["blackboard"]

PATIENCE = patience(60.0)
"""Seconds that a test waits for what must come."""
LEAVE_OTHER_SCREEN = "\x1b[?1049l"
ENTER_OTHER_SCREEN = "\x1b[?1049h"


class Terminal:
    """A process on a terminal of its own, and all that it wrote there."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.text = ""
        self._master = master
        self._until = time.monotonic() + PATIENCE

    def wait_for(self, text: str) -> None:
        """Read until `text` was written since the last wait; what came before it is forgotten."""
        while text not in self.text:
            assert time.monotonic() < self._until, f"no {text!r} in {self.text[-2000:]!r}"
            assert self._read(), f"it ended without {text!r}: {self.text[-2000:]!r}"
        self.text = self.text.partition(text)[2]

    def end(self) -> int:
        """The exit code, when the process has ended by itself; what it wrote last is in `text`."""
        while self._read():
            assert time.monotonic() < self._until, "it does not end"
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        if select.select([self._master], [], [], 0.2)[0]:
            with suppress(OSError):  # a terminal that nobody has open any more
                found = os.read(self._master, 65_536)
                self.text += found.decode(errors="replace")
                return bool(found)
            return False
        return True


@contextmanager
def terminal(*args: str, folder: Path, size: tuple[int, int] = (12, 80)) -> Iterator[Terminal]:
    """`blackboard ARGS` on a terminal of so many rows and columns."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    names = ("PATH", "HOME", "BLACKBOARD_STORE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    environment = kept | {"TERM": "xterm-256color"}
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "blackboard", *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=environment | {"PYTHONPATH": str(root)},
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "keene", "--type", "calendars", "--every", "8h")
    blackboard("pause", "keene")
    return blackboard


def test_the_table_follows_the_board_and_leaves_the_screen_as_it_was(towns: CommandLine) -> None:
    with terminal("show", "--watch", "0.1", folder=towns.folder) as screen:
        screen.wait_for(ENTER_OTHER_SCREEN)
        screen.wait_for("davis")
        screen.wait_for("2 items, 1 paused, next now")
        towns("add", "montclair", "--type", "calendars", "--every", "8h")
        screen.wait_for("montclair")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 0
        assert LEAVE_OTHER_SCREEN in screen.text
        assert "Traceback" not in screen.text
        assert "Aborted" not in screen.text


def test_a_long_table_is_cut_to_the_height_and_says_so(towns: CommandLine) -> None:
    towns("add", *(f"town-{n:02}" for n in range(20)), "--type", "calendars", "--every", "8h")
    with terminal("show", "--watch", folder=towns.folder, size=(10, 80)) as screen:
        screen.wait_for("town-03")
        screen.wait_for("... and 16 more")
        screen.wait_for("22 items")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 0


def test_colours_are_for_terminals(towns: CommandLine) -> None:
    with terminal("show", folder=towns.folder) as screen:
        assert screen.end() == 0
    assert "\x1b[90mkeene" in screen.text
    assert "\x1b[" not in towns("show").out


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_declined(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.colour()
    monkeypatch.setenv(name, value)
    assert not output.colour()
    assert "\x1b[" not in towns("show").out


def test_a_store_that_is_busy_is_told_in_the_picture(towns: CommandLine) -> None:
    async def frames(board: BoardTable) -> list[str]:
        table = FaultyTable(board.table)
        table.script_reads(Fault.BUSY, Fault.AWAY)
        pictures = Pictures(board=board.asked_through(table), query=ItemQuery(), absolute=False)
        frame = show.or_trouble(pictures.frame)
        drawn = [await frame(80, 4) for _ in range(3)]
        return [text_of(lines[0], colour=False) for lines in drawn]

    busy, away, well = towns.on_board(frames)
    assert busy.startswith("store: the store is busy")
    assert away == "store: it cannot be reached"
    assert well.startswith("id ")


def test_the_watch_ends_well_when_it_is_interrupted(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(
        frame: render.Frame, *, sleep: Callable[[float], Awaitable[None]], every: float
    ) -> None:
        assert await frame(80, 24)
        assert (sleep, every) == (sleep, 0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setattr(render, "watch", interrupted)
    assert towns("show", "--watch", "500ms").code == 0
