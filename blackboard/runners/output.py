"""What a handler printed, as the row of its run can hold it: the last bytes.

Coroutines share the worker's stdout and stderr, so these are routed by context while any coroutine
handler runs: what a run's own task prints, and tasks and threads that it starts, goes to the run's
tail; everything else goes where it always went. Writes that bypass `sys.stdout` (file descriptors,
C code) are the worker's own; child processes have pipes for them.
"""

import sys
from collections import deque
from contextvars import ContextVar
from io import RawIOBase
from typing import Any, TextIO, TypeVar, cast

from blackboard.phrases import LONGEST_OUTPUT


class Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._whole = True

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > LONGEST_OUTPUT:
            del self._data[:-LONGEST_OUTPUT]
            self._whole = False

    def text(self) -> str:
        """Its text, with undecodable bytes replaced; never begins inside a character."""
        data = bytes(self._data)
        if not self._whole:
            data = data.lstrip(bytes(range(0x80, 0xC0)))
        return data.decode("utf-8", "replace")


Stream = TypeVar("Stream")
_tail: ContextVar[Tail | None] = ContextVar("tail", default=None)
_captures = 0
_alive: deque[object] = deque(maxlen=16)


def staying_alive(stream: Stream) -> Stream:
    """Keeps a reference to a stream that replaces `sys.stdout`. A thread may still print to it when
    it is replaced itself, and `print` holds no reference to its stream: Python would crash.
    """
    _alive.append(stream)
    return stream


class BytesOf(RawIOBase):
    """Writes bytes, as UTF-8, to a stream that replaces `sys.stdout`. What wraps the buffer of a
    stream anew closes that buffer at its end: handlers get this in the place of the process's.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._stream is not None:
            self._stream.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)


class Substitute:
    """A stream in the place of the process's, which stays open whatever a handler does with it."""

    def __init__(self, original: TextIO | None) -> None:
        self.original = original
        """None in a process that was started without this stream."""

    def write(self, text: str) -> int:
        if self.original is not None:
            self.original.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Does nothing: others go on to print to the stream."""

    @property
    def buffer(self) -> BytesOf:
        return BytesOf(self)

    def detach(self) -> BytesOf:
        return self.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class _Routed(Substitute):
    def write(self, text: str) -> int:
        tail = _tail.get()
        if tail is None:
            return super().write(text)
        tail.add(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        if _tail.get() is None and self.original is not None:
            self.original.flush()

    @property
    def buffer(self) -> BytesOf:
        """Past the routes: what wraps it may be flushed while another run goes on."""
        return BytesOf(self.original)


def _routed(stream: TextIO | None) -> "_Routed":
    """The one that routes a stream; made if there is none yet."""
    routed = (each for each in _alive if isinstance(each, _Routed) and each.original is stream)
    return next(routed, None) or staying_alive(_Routed(stream))


def capture(tail: Tail) -> None:
    """Sends what is printed in this context from now on to `tail`, while streams are routed."""
    _tail.set(tail)


def route() -> None:
    """Routes stdout and stderr, until `unroute` was called as often."""
    global _captures  # noqa: PLW0603 - sys.stdout is global, and so is its routing
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _Routed):
            setattr(sys, name, cast(TextIO, _routed(stream)))
    _captures += 1


def unroute() -> None:
    global _captures  # noqa: PLW0603 - as above
    _captures -= 1
    if _captures == 0:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Routed):
                setattr(sys, name, stream.original)
