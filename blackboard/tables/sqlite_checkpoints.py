"""Copies the log of a board's file (NAME-wal) into the file, beside the commits.

SQLite itself does this within a commit, which then waits for the disk; and while several processes
write, nearly each commit does, because the log is never copied to its end and grows. Here a thread
copies it, and no request waits for that. A long log is copied to its end under the write lock, so
that the next writer begins it anew. The same is done where a disk is full.
"""

import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread

from blackboard.tables.sqlite_forks import forks
from blackboard.tables.sqlite_open import connect, log_size

GROWN = 4 << 20
"""Bytes by which the log grows between two checkpoints of a process."""
LONG = 64 << 20
"""Bytes of a log that is to be begun anew."""
TOO_LONG = 256 << 20
"""Bytes of a log that something keeps from being begun anew."""
LITTLE = 256 << 10
"""Bytes that a disk is to have left besides what the log needs to be copied; the least by which
the log grows between two checkpoints."""
WAIT = 0.1
"""Seconds that a checkpoint waits for readers and writers, at most, before it gives up."""
_OF_A_LONG_LOG = ("PASSIVE", "PASSIVE", "RESTART")
"""RESTART keeps others from writing: little is left to copy by then."""


class WalCheckpoints:
    """The checkpoints that one open file makes."""

    def __init__(self, path: Path, may_copy: Callable[[], bool]) -> None:
        self._path = path
        self._may_copy = may_copy
        self._log = f"{path}-wal"
        self._folder = path.absolute().parent
        self._copied = 0
        """The size of the log at the last checkpoint here. A log that is long when the file is
        opened is copied too: short commands beside a reader would else make it grow for ever."""
        self._thread: Thread | None = None
        self._guard = forks.guard(path)

    def after_commit(self) -> None:
        """Begins a checkpoint if the log has grown, unless one goes on: where the disk may be full
        before the log is as long as elsewhere, the file could not grow then.
        """
        size = log_size(self._path)
        if size < self._copied:
            self._copied = 0  # the log was begun anew
        grown = size - self._copied
        if grown < LITTLE or (grown < GROWN and self._free() >= size + GROWN):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._copied = size
        modes = _OF_A_LONG_LOG if size >= LONG else ("PASSIVE",)
        thread = Thread(target=self._copy, args=modes, name="sqlite-checkpoint", daemon=True)
        with suppress(RuntimeError):  # the system has no thread left
            thread.start()
            self._thread = thread

    def make_room(self) -> None:
        """Copies the log to its end, if possible: then the next writer begins it anew, for which a
        full disk has room.
        """
        self.wait()
        self._copy("RESTART")

    @property
    def trouble(self) -> str:
        """Why writes may fail: the disk is full, or the log is too long; "": they do not."""
        size, free = log_size(self._path), self._free()
        if free < size + LITTLE:
            return (
                f"the disk of {self._folder} has {free / 1e6:.1f} MB left, and the log {self._log} "
                f"needs {size / 1e6:.1f} MB to be copied into the file (make room)"
            )
        if size < TOO_LONG:
            return ""
        return (
            f"{self._log} has {size >> 20} MB: a process that reads the file in one long "
            "transaction keeps it from being begun anew, or did (end such a process; the log is "
            f"begun anew once {GROWN >> 20} MB more are written)"
        )

    def wait(self) -> None:
        """Waits for a checkpoint that goes on."""
        if self._thread is not None:
            self._thread.join()

    def _copy(self, *modes: str) -> None:
        # As in SQLite a failure is no error of a commit: what is not copied now is copied later.
        with (
            self._guard,
            suppress(sqlite3.DatabaseError),
            closing(connect(self._path, WAIT)) as connection,
        ):
            for mode in modes:
                if self._may_copy():
                    connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()

    def _free(self) -> float:
        """Bytes that the disk has left; infinite, where that is not known."""
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return math.inf
