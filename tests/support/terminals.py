"""How a test starts the command on a terminal of its own, and reads what it writes there."""

import os
import pty
import select
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

from tests.support.patience import patience

PATIENCE = patience(60.0)
"""Seconds that a test waits for what must come."""


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
def terminal(
    *args: str,
    folder: Path,
    size: tuple[int, int] = (12, 80),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Terminal]:
    """`blackboard ARGS` on a terminal of so many rows and columns."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    names = ("PATH", "HOME", "BLACKBOARD_STORE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "blackboard", *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
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
