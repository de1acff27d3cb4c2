"""What handlers print: the last of it is kept with the run.

Coroutines share the worker's stdout and stderr, so these are routed by context while any
coroutine handler runs: what a run's own task prints, and tasks and threads that it starts, goes
to the run's tail; everything else goes where it always went. Writes that bypass `sys.stdout`
(file descriptors, C code) are the worker's own; child processes have pipes for those.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TextIO, cast

from blackboard.phrases import LONGEST_OUTPUT

KEPT: Final = LONGEST_OUTPUT


class Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._whole = True

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > KEPT:
            del self._data[:-KEPT]
            self._whole = False

    def text(self) -> str:
        """What was kept, undecodable bytes replaced; never begins inside a character."""
        data = bytes(self._data)
        if not self._whole:
            data = data.lstrip(bytes(range(0x80, 0xC0)))
        return data.decode("utf-8", "replace")


_tail: ContextVar[Tail | None] = ContextVar("tail", default=None)
_captures = 0


class _Routed:
    def __init__(self, original: TextIO) -> None:
        self.original = original

    def write(self, text: str) -> int:
        tail = _tail.get()
        if tail is None:
            return self.original.write(text)
        tail.add(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Nothing: the stream is the worker's, and all runs print to it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


@contextmanager
def captured(tail: Tail) -> Iterator[None]:
    """What is printed in this context goes to `tail`."""
    global _captures  # noqa: PLW0603 - sys.stdout is global, and so is who routes it
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _Routed):
            setattr(sys, name, cast(TextIO, _Routed(stream)))
    _captures += 1
    mine = _tail.set(tail)
    try:
        yield
    finally:
        _tail.reset(mine)
        _captures -= 1
        if _captures == 0:
            _restore()


def _restore() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, _Routed):
            setattr(sys, name, stream.original)
