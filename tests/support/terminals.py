"""Starting the command on a terminal of its own, and reading what it writes there."""

import codecs
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.patience import patience

PATIENCE = patience(60.0)
"""Seconds to wait for output before a test fails."""


SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")


class Display:
    """The contents of a terminal: as much of one as `blackboard.cli.terminal` needs."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.row = 1
        self.column = 0
        self.is_other = False
        """Whether it shows the alternate screen."""
        self._left = ""

    def write(self, text: str) -> None:
        text = self._left + text
        begun = text.rfind("\x1b")
        self._left = ""
        if begun >= 0 and not SEQUENCE.match(text, begun):
            text, self._left = text[:begun], text[begun:]
        place = 0
        for found in SEQUENCE.finditer(text):
            self._put(text[place : found.start()])
            self._obey(found[1], found[2])
            place = found.end()
        self._put(text[place:])

    def _put(self, text: str) -> None:
        for one in text:
            if one == "\r":
                self.column = 0
            elif one == "\n":
                self.row += 1
            else:
                line = self.lines.get(self.row, "").ljust(self.column)
                self.lines[self.row] = line[: self.column] + one + line[self.column + 1 :]
                self.column += 1

    def _obey(self, numbers: str, what: str) -> None:
        match what, numbers:
            case "H", _:
                row, _, column = numbers.partition(";")
                self.row, self.column = int(row or 1), int(column or 1) - 1
            case "K", _:
                self.lines[self.row] = self.lines.get(self.row, "")[: self.column]
            case "J", "2":
                self.lines = {}
            case "h" | "l", "?1049":
                self.is_other, self.lines = what == "h", {}

    @property
    def text(self) -> str:
        last = max(self.lines, default=0)
        return "\n".join(self.lines.get(row, "").rstrip() for row in range(1, last + 1))


class Terminal:
    """A process on a terminal of its own, and all that it wrote there."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.text = ""
        self.all = ""
        """All that it wrote so far."""
        self.display = Display()
        self._master = master
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._until = time.monotonic() + PATIENCE

    def press(self, *keys: str) -> None:
        """Type keys, each as a terminal sends it."""
        for key in keys:
            os.write(self._master, key.encode())

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # the process has no controlling terminal

    def modes(self) -> list[Any]:
        """The modes of the terminal, such as whether keys are echoed."""
        return termios.tcgetattr(self._master)

    def wait_to_see(self, *texts: str, gone: str = "") -> str:
        """Read until the terminal shows all of these texts, and not `gone`; returns its text."""
        while not all(one in self.display.text for one in texts) or (
            gone and gone in self.display.text
        ):
            assert time.monotonic() < self._until, f"no {texts} in\n{self.display.text}"
            assert self._read(), f"it ended without {texts}:\n{self.display.text}"
        return self.display.text

    def wait_for(self, text: str) -> None:
        """Read until `text` was written since the last wait; what came before it is forgotten."""
        while text not in self.text:
            assert time.monotonic() < self._until, f"no {text!r} in {self.text[-2000:]!r}"
            assert self._read(), f"it ended without {text!r}: {self.text[-2000:]!r}"
        self.text = self.text.partition(text)[2]

    def end(self) -> int:
        """Wait until the process ends by itself; the exit code. `text` has its last output."""
        while self._read():
            assert time.monotonic() < self._until, "it does not end"
        return self.process.wait(PATIENCE)

    def hang_up(self) -> None:
        """Close the window."""
        os.dup2(os.open(os.devnull, os.O_RDWR), self._master)

    def _read(self) -> bool:
        if select.select([self._master], [], [], 0.2)[0]:
            with suppress(OSError):  # a terminal that no process has open any more
                found = os.read(self._master, 65_536)
                text = self._decoder.decode(found)
                self.text += text
                self.all += text
                self.display.write(text)
                return bool(found)
            return False
        return True


@contextmanager
def terminal(
    *args: str,
    folder: Path,
    size: tuple[int, int] = (12, 80),
    environment: Mapping[str, str] = MappingProxyType({}),
    errors: int | None = None,
) -> Iterator[Terminal]:
    """`blackboard ARGS` on a terminal of so many rows and columns, or with another place for what
    it writes to stderr.
    """
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    names = ("PATH", "HOME", "BLACKBOARD_STORE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "blackboard", *args],
        stdin=slave,
        stdout=slave,
        stderr=slave if errors is None else errors,
        cwd=folder,
        env={**kept, "TERM": "xterm-256color", "PYTHONPATH": str(root), **environment},
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
