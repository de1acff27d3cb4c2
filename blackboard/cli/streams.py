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
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, TextIO, cast

NOT_WRITTEN = 2
"""The exit code of a command whose output is lost."""
UNREAD = 128 + signal.SIGPIPE
"""The exit code of a command whose output goes to a pipe that nothing reads: as SIGPIPE ends other
programs. Python ignores that signal, which sockets may cause, too."""


def open_streams() -> tuple[TextIO, TextIO]:
    """Opens the streams that the caller has closed. What is written to stderr is discarded; what is
    written to stdout fails, as on a full disk: a command that cannot answer has not succeeded.
    Returns stdout and stderr: a handler may put others in their place. Those that a program has put
    there before are left as they are.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            flags = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            null = os.open(os.devnull, flags)
            stream = open(null, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is getattr(sys, f"__{name}__"):
            setattr(sys, name, _written_whole(getattr(sys, name)))
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
            wait_for_room(descriptor)


def wait_for_room(descriptor: int) -> None:
    """Waits until something can be written. Raises OSError. By `select`: the `poll` of macOS knows
    no devices, as terminals are.
    """
    select.select([], [descriptor], [])


class _Unbuffered(FileIO):
    """Takes each write whole: a TextIOWrapper drops what its raw stream does not take."""

    def write(self, data: Any) -> int:
        write_all(self.fileno(), data)
        return len(data)


class _Buffered(BufferedWriter):
    """Waits where its raw stream, a FileIO, has no room. The two count in C what is written: an
    interrupt between a write and its count would let bytes be written twice.
    """

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while True:
            try:
                super().write(left)
            except BlockingIOError as full:
                left = left[full.characters_written :]
                wait_for_room(self.fileno())
            else:
                return size

    def flush(self) -> None:
        while True:
            try:
                return super().flush()
            except BlockingIOError:
                wait_for_room(self.fileno())


def _written_whole(stream: TextIO) -> TextIO:
    """The same stream of Python's, through `_Buffered` or `_Unbuffered`."""
    assert isinstance(stream, TextIOWrapper)
    with suppress(OSError):  # it is tried again as Python ends
        stream.flush()
    is_buffered = isinstance(stream.buffer, BufferedWriter)
    raw: Any = (FileIO if is_buffered else _Unbuffered)(stream.fileno(), "w", closefd=False)
    raw.name = stream.name
    whole: Any = TextIOWrapper(
        _Buffered(raw) if is_buffered else raw,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    whole.mode = stream.mode
    return cast(TextIO, whole)
