"""Copies the log of a board's file (NAME-wal) into the file, beside the commits.

SQLite itself does this within a commit, which then waits for the disk; and while several processes
write, nearly each commit does, because the log is never copied to its end and grows. Here a thread
copies it, and no request waits for that. A long log is copied to its end under the write lock, so
that the next writer begins it anew.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import Thread

from blackboard.tables.sqlite_open import connect

GROWN = 4 << 20
"""Bytes by which the log grows between two checkpoints of a process."""
LONG = 64 << 20
"""Bytes of a log that is to be begun anew."""
WAIT = 0.1
"""Seconds that a checkpoint waits for readers and writers, at most, before it gives up."""
_OF_A_LONG_LOG = ("PASSIVE", "PASSIVE", "RESTART")
"""RESTART keeps others from writing: little is left to copy by then."""


class WalCheckpoints:
    """The checkpoints that one open file makes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = f"{path}-wal"
        self._copied = 0
        """The size of the log at the last checkpoint here. A log that is long when the file is
        opened is copied too: short commands beside a reader would else make it grow for ever."""
        self._thread: Thread | None = None
        self._connection: sqlite3.Connection | None = None
        """Made for the first checkpoint: most commands write too little for one."""

    def after_commit(self) -> None:
        """Begins a checkpoint if the log has grown, unless one goes on."""
        size = self._size()
        if size < self._copied:
            self._copied = 0  # the log was begun anew
        if size - self._copied < GROWN or (self._thread is not None and self._thread.is_alive()):
            return
        self._copied = size
        modes = _OF_A_LONG_LOG if size >= LONG else ("PASSIVE",)
        thread = Thread(target=self._copy, args=modes, name="sqlite-checkpoint", daemon=True)
        with suppress(RuntimeError):  # the system has no thread left
            thread.start()
            self._thread = thread

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def _copy(self, *modes: str) -> None:
        # As in SQLite a failure is no error of a commit: what is not copied now is copied later.
        with suppress(sqlite3.DatabaseError):
            if self._connection is None:
                self._connection = connect(self._path, WAIT)
            for mode in modes:
                self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()

    def _size(self) -> int:
        try:
            return os.stat(self._log).st_size  # noqa: PTH116 - quicker, for each commit
        except OSError:
            return 0
