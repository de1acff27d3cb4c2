"""What SQLite needs of a process that is forked while a board's file is open in it.

SQLite notes in memory which locks its process has on a file and on the index of its log. A forked
process inherits these notes, but no locks: it would use the file without any, and the last other
process to close the file would remove the log under it. So a forked process takes the two locks
itself before it opens the file, and keeps them until its end. It inherits the memory of the index,
too: where the index was removed since, as the last process to close the file does, the file is
refused.

A fork in the middle of a request would leave the notes of that request in the forked process, for
ever: a write lock that nothing gives back, or a mutex. So a fork waits until no request is under
way here.
"""

import fcntl
import os
import select
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from blackboard.errors import StoreProblem
from blackboard.tables.sqlite_filesystem import unreachable

Identity = tuple[int, int]
"""Device and inode."""

_SHARED = (510, 0x40000002)
"""The bytes of the file that a process has locked as long as it uses the log: length and start."""
_IN_USE = (1, 128)
"""The byte of the index that it has locked then."""
_TRIES, _PAUSE = 100, 0.01

_open: dict[sqlite3.Connection, tuple[Identity, Identity]] = {}
"""The connections of this process: which file each has open, and which index."""
_inherited: dict[Identity, Identity] = {}
"""The files that were open when this process was forked, each with its index."""
_held: set[Identity] = set()
"""Those of which this process has taken the locks."""


def note_open(connection: sqlite3.Connection, path: Path) -> None:
    """Notes that this process has the file open by this connection."""
    with suppress(OSError):
        _open[connection] = (_identity(path), _identity(f"{path}-shm"))


def note_closed(connection: sqlite3.Connection) -> None:
    """Notes that the connection is closed."""
    _open.pop(connection, None)


def take_locks(path: Path) -> bool:
    """Takes the locks for a file that was open when this process was forked. Returns whether it has
    them, or needs none; False where another process is about to close the file. Raises StoreProblem
    where its index was removed since.
    """
    try:
        file = _identity(path)
        index = _inherited.get(file)
        if index is None or file in _held:
            return True
        if not _lock(path, *_SHARED):
            return False
    except OSError as error:
        raise StoreProblem(unreachable(path, error)) from None
    with suppress(OSError):  # it may be gone
        if _identity(f"{path}-shm") == index and _lock(Path(f"{path}-shm"), *_IN_USE):
            _held.add(file)
            return True
    raise StoreProblem(
        f"{path} was open when this process was forked, and was closed everywhere since: SQLite "
        "cannot open it in this process any more (fork before the board is opened, or while no "
        "board is open, or start another program instead)"
    )


def _lock(path: Path, length: int, start: int) -> bool:
    """Locks a part of a file for reading. The descriptor stays open: to close any of a file drops
    all locks of this process on it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    for _ in range(_TRIES):
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, length, start)
            return True
        select.select([], [], [], _PAUSE)
    return False


def _identity(file: str | Path) -> Identity:
    found = os.stat(file)  # noqa: PTH116
    return found.st_dev, found.st_ino


LONGEST_WAIT = 1.0
"""Seconds that a fork waits for one request. One that takes longer waits for other processes, and
has nothing locked meanwhile."""


class _Opening:
    lock = threading.Lock()


def opening() -> threading.Lock:
    """The lock that is held while a file is being opened."""
    return _Opening.lock


_guards = WeakSet[threading.Lock]()
_for_a_fork: list[threading.Lock] = []
"""Those that are held for the fork under way."""


def guard() -> threading.Lock:
    """A lock for the requests of one connection. Called while `opening` is held."""
    made = threading.Lock()
    _guards.add(made)
    return made


def _forks() -> None:
    """Waits for what is under way here, but not for long: the fork may be in an event loop."""
    if opening().acquire(timeout=LONGEST_WAIT):
        _for_a_fork.append(opening())
    _for_a_fork.extend(lock for lock in tuple(_guards) if lock.acquire(timeout=LONGEST_WAIT))


def _has_forked() -> None:
    while _for_a_fork:
        _for_a_fork.pop().release()


def _is_forked() -> None:
    _has_forked()
    _Opening.lock = threading.Lock()  # of a thread that is not here
    _guards.clear()
    _inherited.update(_open.values())
    _open.clear()
    _held.clear()


os.register_at_fork(before=_forks, after_in_parent=_has_forked, after_in_child=_is_forked)
