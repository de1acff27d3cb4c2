"""The log of a worker: one line for each event, as text on a terminal and as JSON elsewhere.

**A stream that is not read.** A terminal that was halted by Ctrl-S, `worker 2>&1 | less`, or a log
driver that blocks would hold up a thread that writes: the loop, with all renewals. So while a
worker works its `sys.stderr` is one that never waits (`unblocked_stderr`). A pipe is opened once
more, for writes that do not wait: up to `PIPE_BUF` bytes it takes all or nothing. What it does not
take, and all that goes to terminals and sockets, waits for a thread. (O_NONBLOCK on the descriptor
itself would count for all processes that share it, such as the shell. `poll` is no answer either:
another process may take the room before the write.)

Not promised: that a file never waits. A disk that hangs holds up the worker's store as well.
"""

import codecs
import errno
import io
import json
import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Literal, TextIO

import msgspec

from blackboard.cli.streams import write_all
from blackboard.clock import Clock
from blackboard.display.escaping import shown_json
from blackboard.emitter import Subscriber
from blackboard.events import BoardEvent
from blackboard.phrases import iso
from blackboard.runners.output import staying_alive

LogForm = Literal["auto", "text", "json"]

MOST_WAITING: Final = 4 * 1024 * 1024
"""The most bytes that wait for a stream. Lines beyond are lost."""
END_WITHIN: Final = 2.0
"""The most seconds to wait at the end until all lines are written."""


def subscriber(
    clock: Clock, *, level: int, stream: TextIO | None = None, form: LogForm = "auto"
) -> Subscriber:
    """Writes every event of at least `level` to `stream`, stderr if none is given. The form "auto"
    is text on a terminal and JSON elsewhere. Raises OSError when a line cannot be written, or an
    earlier one could not; the next one that can be written begins on a line of its own.
    """
    stream = stream or sys.stderr
    is_whole = isinstance(getattr(stream, "buffer", None), Unblocked)
    if form == "text" or (form == "auto" and stream.isatty()):
        from blackboard.cli.render import event_line  # noqa: PLC0415 - rich is slow to import

        line = event_line(stream)
    else:
        line = json_line if _takes_all(stream) else ascii_json_line
    is_torn = False

    def write(event: BoardEvent) -> None:
        nonlocal is_torn
        if event.level < level:
            return
        text = line(event, clock.now())
        was_torn, is_torn = is_torn, not is_whole
        stream.write("\n" * was_torn + text)
        stream.flush()
        is_torn = False

    return write


class Unblocked(io.RawIOBase):
    """Takes bytes for a pipe, a terminal or a socket, from any thread, and never waits. Each write
    is written whole and in its order. It raises OSError, ENOBUFS, when too much waits, and once for
    each earlier one that turned out to be lost.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._without_waiting = _opened_again(descriptor)
        self._process = os.getpid()
        # A write may be interrupted, while it holds the lock, by a finalizer that writes a warning.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._size = 0
        """Bytes that wait, and those that the thread writes now."""
        self._lost: deque[OSError] = deque()
        threading.Thread(target=self._write_on, name="stderr", daemon=True).start()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: bytes) -> int:  # type: ignore[override] # what a TextIOWrapper writes
        if os.getpid() != self._process:  # a fork has no thread
            write_all(self._descriptor, data)
            return len(data)
        with self._changed:
            if self._size or not self._has_written(data):
                if self._size + len(data) > MOST_WAITING:
                    raise OSError(errno.ENOBUFS, "the stream takes no more lines")
                self._waiting.append(bytes(data))
                self._size += len(data)
                self._changed.notify_all()
            if self._lost:
                raise self._lost.popleft()
        return len(data)

    def _has_written(self, data: bytes) -> bool:
        if self._without_waiting is None or len(data) > select.PIPE_BUF:
            return False
        try:
            os.write(self._without_waiting, data)
        except BlockingIOError:
            return False
        return True

    def is_through(self, seconds: float) -> bool:
        """Waits at most so long until all is written. Returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._size, seconds)

    def _write_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                lines = [self._waiting.popleft()]
                size = len(lines[0])
                # As many as a pipe takes in one piece: a thread may wait before each write.
                while self._waiting and size + len(self._waiting[0]) <= select.PIPE_BUF:
                    lines.append(self._waiting.popleft())
                    size += len(lines[-1])
            problem = None
            try:
                write_all(self._descriptor, b"".join(lines))
            except OSError as found:
                problem = found
            with self._changed:
                self._size -= size
                if problem is not None:
                    self._lost.extend([problem] * len(lines))
                self._changed.notify_all()


def _opened_again(descriptor: int) -> int | None:
    """A pipe, opened once more for writes that do not wait; None where that is not possible."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return None
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # not Linux, or the pipe belongs to another user
        return None


@contextmanager
def unblocked_stderr() -> Iterator[None]:
    """Makes writes to `sys.stderr` wait for no reader. At the end, what is left is written, if that
    takes no longer than `END_WITHIN`; else stderr stays as it is, and bytes that still wait when
    the process ends are lost.
    """
    original = sys.stderr
    if not _may_wait(original):
        yield
        return
    unblocked = Unblocked(original.fileno())
    sys.stderr = staying_alive(
        io.TextIOWrapper(
            unblocked,  # type: ignore[type-var] # it is written to only
            encoding=original.encoding,
            errors=original.errors,
            line_buffering=True,
        )
    )
    try:
        yield
    finally:
        if unblocked.is_through(END_WITHIN):
            sys.stderr = original


def _may_wait(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()
    except (AttributeError, OSError, ValueError):  # no descriptor, or none that is open
        return False


def _takes_all(stream: TextIO) -> bool:
    """Whether any character can be written to it: else a line might be no valid JSON."""
    try:
        return codecs.lookup(stream.encoding).name == "utf-8"
    except (AttributeError, LookupError, TypeError):  # a stream that a program has made
        return True


def ascii_json_line(event: BoardEvent, at: datetime) -> str:
    """The same as `json_line`, in ASCII, for a stream that takes no other characters."""
    line = json_line(event, at)
    return line if line.isascii() else json.dumps(json.loads(line)) + "\n"


def json_line(event: BoardEvent, at: datetime) -> str:
    """An event as one line of JSON. What concerns a run names its item, type, fence and worker."""
    return shown_json(msgspec.json.encode({"time": iso(at), **event.line()}).decode()) + "\n"
