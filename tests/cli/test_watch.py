"""`blackboard show` on a real terminal: colours, and a table that is kept up to date."""

import signal
from collections.abc import Awaitable, Callable

import pytest

from blackboard.cli import output, render, show
from blackboard.cli.show import ItemQuery, Pictures
from blackboard.display.layout import text_of
from blackboard.protocol.reading import BoardTable
from tests.cli.command_line import CommandLine, blackboard
from tests.support.faults import Fault, FaultyTable
from tests.support.terminals import terminal

__all__ = ["blackboard"]

LEAVE_OTHER_SCREEN = "\x1b[?1049l"
ENTER_OTHER_SCREEN = "\x1b[?1049h"


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
