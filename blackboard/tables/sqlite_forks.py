"""What SQLite needs of a process that is forked while a board's file is open in it.

SQLite notes in memory which locks its process has on a file and on the index of its log. A forked
process inherits these notes, but no locks: it would use the file without any, and the last other
process to close the file would remove the log under it. So a forked process takes the two locks
itself before it opens the file, and keeps them until its end. It inherits the memory of the index,
too: where the index was removed since, as the last process to close the file does, the file is
refused.

A fork in the middle of a request would leave the notes of that request in the forked process, for
ever: a write lock that nothing gives back, or a mutex. So a fork waits until no request is under
way here. It waits a second at the most, because it may be in an event loop: the forked process
refuses a file whose request takes longer.
"""

import fcntl
import os
import select
import sqlite3
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from blackboard.errors import StoreProblem
from blackboard.tables.sqlite_filesystem import Identity, identity, unreachable

LONGEST_WAIT = 1.0
"""Seconds that a fork waits for a request. One that waits for other processes is not waited for."""
_SHARED = (510, 0x40000002)
"""The bytes of the file that a process has locked as long as it uses the log: length and start."""
_IN_USE = (1, 128)
"""The byte of the index that it has locked then."""
_TRIES, _PAUSE = 100, 0.01
_REMEDY = (
    "fork before the board is opened, or while no board is open, or start another program instead"
)


class _OpenFile(NamedTuple):
    file: Identity
    log_index: Identity
    """`NAME-shm`."""


class Forks:
    """The files that this process has open or has inherited, and what a fork waits for."""

    def __init__(self) -> None:
        self._forking = Lock()
        """Held while the process is forked, and while a guard is made."""
        self._guards = WeakKeyDictionary[Lock, Path]()
        """The guards of requests, each with its file."""
        self._waited_for: list[Lock] = []
        """Those that are held for the fork under way."""
        self._busy: set[Path] = set()
        """Files with a request for which the fork under way did not wait until its end."""
        self._open: dict[sqlite3.Connection, _OpenFile] = {}
        self._inherited: dict[Identity, Identity] = {}
        """The files that were open when this process was forked, each with its index."""
        self._spoiled: set[Path] = set()
        """Those that had a request under way then."""
        self._locked: set[Identity] = set()
        """Those of which this process has taken the locks. Their descriptors stay open."""

    def guard(self, path: Path) -> Lock:
        """A lock to be held while a connection to the file is made or used."""
        with self._forking:
            guard = Lock()
            self._guards[guard] = path
            return guard

    def note_open(self, connection: sqlite3.Connection, path: Path) -> None:
        """Notes that this process has the file open by this connection."""
        with suppress(OSError):
            self._open[connection] = _OpenFile(identity(path), identity(f"{path}-shm"))

    def note_closed(self, connection: sqlite3.Connection) -> None:
        self._open.pop(connection, None)

    def take_locks(self, path: Path) -> bool:
        """Takes the locks for a file that was open when this process was forked. Returns whether it
        has them, or needs none; False where another process is about to close the file. Raises
        StoreProblem where SQLite cannot open it here any more.
        """
        if path in self._spoiled:
            problem = "this process was forked in the middle of a request to it"
            raise StoreProblem(f"{path} cannot be opened: {problem} ({_REMEDY})")
        try:
            file = identity(path)
        except OSError as error:
            raise StoreProblem(unreachable(path, error)) from None
        index = self._inherited.get(file)
        if index is None or file in self._locked:
            return True
        with suppress(OSError):  # the index may be gone
            if identity(f"{path}-shm") == index:
                if not _lock_both(path, index):
                    return False
                self._locked.add(file)
                return True
        raise StoreProblem(
            f"{path} was open when this process was forked, and was closed everywhere since: "
            f"SQLite cannot open it in this process any more ({_REMEDY})"
        )

    # ---- called at each fork

    def before(self) -> None:
        """Waits for the requests that are under way."""
        self._forking.acquire()
        longest = LONGEST_WAIT
        for guard, path in tuple(self._guards.items()):
            if guard.acquire(timeout=longest):
                self._waited_for.append(guard)
            else:
                longest = 0.0
                self._busy.add(path)

    def after(self) -> None:
        """Lets the requests go on."""
        for guard in self._waited_for:
            guard.release()
        self._waited_for, self._busy = [], set()
        self._forking.release()

    def after_in_child(self) -> None:
        self._spoiled |= self._busy
        self._guards.clear()
        self._inherited |= {opened.file: opened.log_index for opened in self._open.values()}
        self._open.clear()
        self._locked.clear()
        self.after()


def _lock_both(path: Path, index: Identity) -> bool:
    """Locks a file and its index, unless another process is about to close the file."""
    with ExitStack() as descriptors:
        for name, place in ((path, _SHARED), (f"{path}-shm", _IN_USE)):
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            # That drops all locks of this process on the file: it has no others.
            descriptors.callback(os.close, descriptor)
            if not _lock(descriptor, *place):
                return False
        if identity(f"{path}-shm") == index:
            descriptors.pop_all()
            return True
    return False


def _lock(descriptor: int, length: int, start: int) -> bool:
    """Locks a part of a file for reading."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, length, start)
            return True
        select.select([], [], [], _PAUSE)
    return False


forks = Forks()
os.register_at_fork(
    before=forks.before, after_in_parent=forks.after, after_in_child=forks.after_in_child
)
