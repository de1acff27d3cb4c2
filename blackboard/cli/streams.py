"""The standard streams of a command: they are there, and what is written to them is written whole.

Python drops the rest of a write of which a disk takes only a part, where `PYTHONUNBUFFERED` is set
as in a container; and it fails on a pipe that another program has made non-blocking, as ssh does
with the streams that it shares with its caller. Here the first is an error, and the second waits.

Imports here are cheap: `blackboard --help` loads this module.
"""

import os
import select
import signal
import sys
from io import BufferedWriter, RawIOBase, TextIOWrapper
from typing import Any, TextIO

NOT_WRITTEN = 2
"""The exit code of a command whose output is lost."""
UNREAD = 128 + signal.SIGPIPE
"""The exit code of a command whose output goes to a pipe that nothing reads: as SIGPIPE ends other
programs. Python ignores that signal, which sockets may cause, too."""


def open_streams() -> tuple[TextIO, TextIO]:
    """Opens the streams that the caller has closed. What is written to stderr is discarded; what is
    written to stdout fails, as on a full disk: a command that cannot answer has not succeeded.
    Returns stdout and stderr: a handler may put others in their place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            flags = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            null = os.open(os.devnull, flags)
            stream = open(null, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    sys.stdout, sys.stderr = _written_whole(sys.stdout), _written_whole(sys.stderr)
    return sys.stdout, sys.stderr


def flushed(code: int, streams: tuple[TextIO, TextIO]) -> int:
    """Writes what is left of the output; the exit code, not 0 where that fails. What cannot
    be written is not tried again as Python ends. Stderr still has what it did not take, such as
    lines of a log: they are lost, and do not count. A stream that jobs have put in the place of one
    may have the output; one that they have closed, or detached from its buffer, has nothing left.
    """
    out, err = streams
    for now, stream in ((sys.stdout, out), (sys.stderr, err)):
        for each in (now, stream) if isinstance(now, TextIOWrapper) else (stream,):
            try:
                each.flush()
            except OSError as problem:
                if stream is out:
                    code = code or (UNREAD if isinstance(problem, BrokenPipeError) else NOT_WRITTEN)
                os.dup2(os.open(os.devnull, os.O_WRONLY), each.fileno())
            except ValueError:
                continue
    return code


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Writes all of it. Waits where the descriptor is that of a pipe without room, even if another
    program has made it non-blocking. Raises OSError.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            waits = select.poll()
            waits.register(descriptor, select.POLLOUT)
            waits.poll()


class _Descriptor(RawIOBase):
    """Takes each write whole. Does not close the descriptor, which is the process's."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.name = name

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        write_all(self._descriptor, data)
        return len(data)


def _written_whole(stream: TextIO) -> TextIO:
    """The same stream, through a `_Descriptor`."""
    assert isinstance(stream, TextIOWrapper)
    raw: Any = _Descriptor(stream.fileno(), stream.name)
    is_buffered = isinstance(stream.buffer, BufferedWriter)
    return TextIOWrapper(
        BufferedWriter(raw) if is_buffered else raw,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
