"""The processes that use a board's file: others, and those that are forked from this one.

**Others** are seen where Linux shows them (proc(5)). Elsewhere nothing is known of them: then no
file is refused, and no writer is named.

**A forked process.** SQLite notes in memory which locks its process has on a file and on the index
of its log. A forked process inherits these notes, but no locks: it would use the file without any,
and the last other process to close the file would remove the log under it. So a forked process
takes the two locks itself before it opens the file, and keeps them until its end. It inherits the
memory of the index, too: where the index was removed since, as the last process to close the file
does, the file is refused.

A fork in the middle of a request would leave the notes of that request in the forked process, for
ever: a write lock that nothing gives back, or a mutex. So a fork waits until no request is under
way here. One that waits for other processes is not waited for.
"""

import fcntl
import os
import select
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from weakref import WeakSet

from blackboard.errors import StoreProblem
from blackboard.tables.sqlite_filesystem import Identity, identity, unreachable

_LOOKS, _PAUSE = 20, 0.01
"""How often other processes are looked at, and the seconds between."""
_WRITE_LOCK = 120
"""The byte of `NAME-shm` that the one process which may write has locked."""
_SHARED = (510, 0x40000002)
"""The bytes of the file that a process has locked as long as it uses the log: length and start."""
_IN_USE = (1, 128)
"""The byte of `NAME-shm` that it has locked then."""
_TRIES = 100
"""How often it is tried to lock them."""


# ---- others


def writer_of(path: Path) -> str:
    """Which other process may write the file now, in words; "" where that is not known. A process
    that is stopped in the middle of a write keeps all others from writing until it goes on or ends.
    """
    with suppress(OSError, ValueError, IndexError):  # not Linux, or it is over by now
        for kind, pid, _, first, last in _locks_of(f"{path}-shm"):
            writes = kind == "WRITE" and int(first) <= _WRITE_LOCK <= int(last)
            if writes and pid != str(os.getpid()):
                return _described(int(pid))
    return ""


def _locks_of(file: str | Path) -> Iterator[list[str]]:
    """The locks on a file: kind, process, device and inode, first and last byte (proc(5))."""
    inode = os.stat(file).st_ino  # noqa: PTH116 - opening it would drop our own locks
    for line in Path("/proc/locks").read_text("ascii").splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[5].rpartition(":")[2] == str(inode):
            yield fields[3:]


def _described(pid: int) -> str:
    """Describes a process that holds the lock, by its name alone: its command line may hold
    secrets.
    """
    if pid <= 0:
        return "a process of another container writes to it"
    about = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    name, _, rest = about.partition("(")[2].rpartition(") ")
    if rest.startswith(("T", "t")):
        return (
            f"process {pid} ({name}) was stopped while it wrote, and keeps all others from writing "
            f"(let it go on with `kill -CONT {pid}`, or end it)"
        )
    return f"process {pid} ({name}) writes to it"


def check_users(path: Path) -> None:
    """Raises StoreProblem where a process, this one or another of the same user, uses this file
    with another log, or another file with the log of this one: the index of the log (`NAME-shm`)
    was removed, or the file was renamed or replaced. Linux alone shows this.
    """
    problem = ""
    for _ in range(_LOOKS):
        with suppress(OSError):
            problem = _other_use(path)
        if not problem:
            return
        # A process that begins or ends has one of both for a moment.
        select.select([], [], [], _PAUSE)
    raise StoreProblem(problem)


def _other_use(path: Path) -> str:
    """Which process has the file locked and not its index, or the index and not the file."""
    index = f"{path}-shm"
    uses, has_index = _lockers(path), _lockers(index)
    for pid in has_index - uses:
        if identity(index) in _open_files(pid).values():
            return (
                f"process {pid} uses the log of {path}, {path}-wal, for another file, which was "
                f"here before; it would damage this one (stop that process, remove {path}-wal and "
                f"{index}, then try again)"
            )
    for pid in uses - has_index:
        files = _open_files(pid)
        if f"{index} (deleted)" in files:
            return (
                f"{index} was removed, and process {pid} still uses it; what is written now "
                "would be lost (stop that process, then try again)"
            )
        # A program may use the file alone, without an index (PRAGMA locking_mode = EXCLUSIVE).
        logs = [
            name
            for name in files
            if name.endswith("-shm") and name.removesuffix("-shm") not in files
        ]
        if logs and f"{path}-wal" not in files and identity(path) in files.values():
            return (
                f"{path} had another name when process {pid} opened it, and what was written last "
                f"is in the log beside that name (give it back the name that belongs to "
                f"{' or '.join(logs)}, and stop all processes that use it before you rename it)"
            )
    return ""


def has_users(path: Path) -> bool:
    """Whether any process has locks on the file."""
    return bool(_lockers(path))


def _lockers(file: str | Path) -> set[str]:
    """The processes that have locks on a file; none where there is no such file."""
    return {pid for _, pid, *_ in _locks_of(file)} if os.path.exists(file) else set()  # noqa: PTH110


def _open_files(pid: str) -> dict[str, Identity]:
    """The open files of a process: names, and which files they are."""
    files = {}
    with suppress(OSError):  # it has ended, or is another user's
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - quicker
            with suppress(OSError):  # closed by now
                place = f"/proc/{pid}/fd/{number}"
                name = os.readlink(place)  # noqa: PTH115
                if name.startswith("/"):
                    files[name] = identity(place)
    return files


# ---- forks of this process


class _OpenFile(NamedTuple):
    file: Identity
    log_index: Identity
    """`NAME-shm`."""


class Forks:
    """The files that this process has open or has inherited, and what a fork waits for."""

    def __init__(self) -> None:
        self._forking = Lock()
        """Held while the process is forked, and while a guard is made."""
        self._guards = WeakSet[Lock]()
        self._held: list[Lock] = []
        """The guards that are held for the fork under way."""
        self._open: dict[sqlite3.Connection, _OpenFile] = {}
        self._inherited: dict[Identity, Identity] = {}
        """The files that were open when this process was forked, each with its index."""
        self._locked: set[Identity] = set()
        """Those of which this process has taken the locks. Their descriptors stay open."""

    def guard(self) -> Lock:
        """A lock to be held while a connection to a file is made or used. Must not be asked for
        while another one is held.
        """
        with self._forking:
            guard = Lock()
            self._guards.add(guard)
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
            "SQLite cannot open it in this process any more (fork before the board is opened, or "
            "while no board is open, or start another program instead)"
        )

    # ---- called at each fork

    def before(self) -> None:
        """Waits for the requests that are under way."""
        self._forking.acquire()
        self._held = list(self._guards)
        for guard in self._held:
            guard.acquire()

    def after(self) -> None:
        """Lets the requests go on."""
        for guard in self._held:
            guard.release()
        self._held = []
        self._forking.release()

    def after_in_child(self) -> None:
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
