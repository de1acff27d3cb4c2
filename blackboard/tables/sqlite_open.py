"""Makes and opens a board's file, and translates SQLite's error codes.

A new file is filled under another name and linked into place when it is complete: of several
processes that make the same board one wins, and none ever sees half a file. Only SQLite itself
opens an existing file: closing any other descriptor of it would drop the locks that this process
holds on it.

An error code becomes an answer of the contract while the table works, and a `StoreProblem` with its
remedy while it is being opened.
"""

import os
import select
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct

from blackboard.errors import MissingStore, StoreProblem
from blackboard.table import Busy, TableError, Unknown, Unusable
from blackboard.tables.sqlite_filesystem import (
    FRESH,
    SIDE_FILES,
    Mount,
    check_left_behind,
    check_names,
    check_place,
    mount_table,
    unreachable,
)
from blackboard.tables.sqlite_forks import note_open, take_locks

RETRY_AFTER = 1.0

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
NO_TEXT = "Could not decode to UTF-8"
"""The beginning of Python's message; its rest quotes the row, which must not be repeated."""
_MAY_HAVE_LANDED = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}
"""The commit is in the log and could not be flushed: it may be lost in a crash."""
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
"""A full quota is one of the latter two."""

_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full; make room",
    sqlite3.SQLITE_READONLY: "it cannot be written; check its permissions and its file system",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the permissions of file and folder, and "
    "how many files may be open (`ulimit -n`)",
    sqlite3.SQLITE_IOERR: "the disk does not read or write it: it may be full, or failing; or a "
    "file beside it (-wal, -shm) was removed while workers use it: stop all, then start them again",
}


def is_busy(error: sqlite3.DatabaseError) -> bool:
    """Whether another process uses the file."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _BUSY


def lacks_room(error: Exception) -> bool:
    """Whether a request has failed because a file could not grow."""
    return getattr(error.__cause__, "sqlite_errorcode", None) in _NO_ROOM


@contextmanager
def translated(path: Path, *, opening: bool = False) -> Iterator[None]:
    """Turns errors of a request into answers of the contract; those of `opening` a file into
    StoreProblem, or Busy for one that is locked.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise (problem if opening else answer)(error, path) from error


def answer(error: sqlite3.DatabaseError, path: Path) -> TableError:
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if is_busy(error):
        return Busy(RETRY_AFTER, writer_of(path))
    if extended in _MAY_HAVE_LANDED:
        return Unknown(f"{path}: {error}")
    if extended & 0xFF in _DAMAGED:
        return damaged(path, str(error))
    if str(error).startswith(NO_TEXT):
        return damaged(path, "a row of it is no text")
    remedy = _REMEDIES.get(extended & 0xFF, "")
    return Unusable(f"{path}: {error}" + (f" ({remedy})" if remedy else ""))


_WRITE_LOCK = 120
"""The byte of `NAME-shm` that the one process which may write has locked."""


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


def damaged(path: Path, how: str) -> Unusable:
    return Unusable(f"{path} is damaged: {how} (stop all workers and restore a copy)")


def problem(error: sqlite3.DatabaseError, path: Path) -> StoreProblem | Busy:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return StoreProblem(
            f"{path} is not a board: {error} (name another file, or restore a copy of this one)"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreProblem(f"{path} is damaged: {error} (restore a copy)")
    if is_busy(error):
        return Busy(RETRY_AFTER, writer_of(path))
    remedy = _REMEDIES.get(code, "")
    return StoreProblem(f"{path}: {error}" + (f" ({remedy})" if remedy else ""))


APPLICATION = 0x424C4B42
"""`BLKB` in the header: distinguishes a board from another program's file."""
SCHEMA = 1
_CACHE = 32_768
"""KiB of pages kept in memory, at most."""
_RESERVE = 256 << 10
"""Bytes that the log keeps when it is begun anew, so that there is room for it on a full disk."""
_LOOKS, _PAUSE = 20, 0.01
"""How often other processes are looked at, and the seconds between."""
_NO_WAL = b"\x01\x01"
"""The versions in the header of a file that has never had a log."""

_MAKE = """
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE rows (
    part TEXT NOT NULL,
    key TEXT NOT NULL,
    etag INTEGER NOT NULL,
    boot TEXT NOT NULL,
    touched REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (part, key)
) WITHOUT ROWID;
CREATE TABLE revision (etag INTEGER NOT NULL);
INSERT INTO revision VALUES (0);
PRAGMA application_id = 0x424C4B42;
PRAGMA user_version = 1;
COMMIT;
"""


class Opening(Struct, frozen=True, kw_only=True):
    """How a file is opened."""

    create: bool = False
    """Make it if it is missing."""
    full: bool = False
    """PRAGMA synchronous = FULL rather than NORMAL."""
    wait: float = 5.0
    """Seconds to wait for another process's write before Busy is raised."""
    trusted: bool = False
    """Accept a file system of any kind: see `sqlite_filesystem.py`."""
    mounts: Sequence[Mount] | None = None
    """The mount table; None is this host's."""
    boot: str = ""
    """The name of the boot for stamps; "" is this one."""


def open_file(path: Path, opening: Opening) -> sqlite3.Connection:
    """A connection to the board at `path` (absolute, resolved).

    Raises MissingStore or another StoreProblem, or Busy when another program holds the file.
    """
    mounts = mount_table() if opening.mounts is None else opening.mounts
    check_place(path, mounts, trusted=opening.trusted)
    if not _is_there(path):
        if not opening.create:
            raise MissingStore(f"no board at {path} (make one with `blackboard init`)")
        check_left_behind(path)
        _make(path)
    check_names(path, mounts)
    _check_access(path)
    _check_users(path)
    _check_log(path)
    if not take_locks(path):
        raise Busy(RETRY_AFTER, writer_of(path))
    with translated(path, opening=True):
        connection = connect(path, opening.wait)
    try:
        with translated(path, opening=True):
            _examine(connection, path)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            _check_revision(connection, path)
            _check_users(path)
            connection.execute(f"PRAGMA synchronous = {'FULL' if opening.full else 'NORMAL'}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `sqlite_checkpoints.py`
            connection.execute(f"PRAGMA journal_size_limit = {_RESERVE}")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
    except BaseException:
        connection.close()
        raise
    note_open(connection, path)
    return connection


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """A connection to an existing file. It waits for other processes for `wait` seconds. Until it
    is closed it stays open, to the end of its process.
    """
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,  # used by one thread after another
    )
    # Python closes a connection that is no longer used, and all of them when it ends; the last to
    # close makes SQLite copy and remove the log, and only `SqliteFile.close` looks whether it may.
    # SQLite holds this function, and the function the connection, until `close` is called.
    connection.create_function("itself", 0, lambda: connection.total_changes)
    return connection


def _is_there(path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreProblem(f"no folder {path.parent} (make it first)") from None
        return False
    except OSError as error:
        raise StoreProblem(unreachable(path, error)) from None
    if not S_ISREG(found.st_mode):
        what = "a folder" if path.is_dir() else "a device, a pipe or a socket"
        raise StoreProblem(f"{path} is {what} (name a file for the board)")
    if not found.st_size:
        raise StoreProblem(f"{path} is empty, not a board (remove it, then `blackboard init`)")
    return True


def _make(path: Path) -> None:
    try:
        handle, name = tempfile.mkstemp(prefix=FRESH, dir=path.parent)  # for its owner alone
    except OSError as error:
        raise StoreProblem(
            f"no board can be made in {path.parent}: {error.strerror} "
            "(check owner, permissions and mount, or name another place with --store)"
        ) from None
    os.close(handle)
    fresh = Path(name)
    try:
        with (
            translated(path, opening=True),
            closing(sqlite3.connect(fresh, isolation_level=None)) as connection,
        ):
            connection.executescript(_MAKE)
            # Closing would do this too, but without an error when it fails.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        with suppress(FileExistsError):  # another process was faster: its board is as good
            path.hardlink_to(fresh)
    except OSError as error:
        raise StoreProblem(f"no board can be made at {path}: {error.strerror}") from None
    finally:
        for suffix in ("", *SIDE_FILES):
            with suppress(OSError):  # a file that is left there does no harm
                Path(name + suffix).unlink(missing_ok=True)


def _check_access(path: Path) -> None:
    beside = (Path(f"{path}{end}") for end in SIDE_FILES)
    for what in (path, path.parent, *beside):
        if _is_closed(what):
            raise StoreProblem(
                f"{what} cannot be written (a board's file, those beside it and its folder must be "
                "writable for all that read it: check owner, permissions and mount; a new board is "
                "its owner's alone, and `chmod g+rw` of the file, and g+rwxs of the folder, let a "
                "group share it)"
            )


def _is_closed(name: Path) -> bool:
    """Whether there is something that may not be read and written. Other processes may make a file
    meanwhile, or remove it.
    """
    effective = os.access in os.supports_effective_ids
    before = _inode(name)
    may = os.access(name, os.R_OK | os.W_OK, effective_ids=effective)
    return not may and before is not None and before == _inode(name)


def _inode(name: Path) -> int | None:
    with suppress(OSError):
        return name.stat().st_ino
    return None


def _examine(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreProblem(f"{path} is the file of another program (name another file)")
    if schema > SCHEMA:
        raise StoreProblem(
            f"{path} was written by a newer version: its schema is {schema}, this version reads "
            f"{SCHEMA} (update blackboard-scheduler)"
        )


def _check_users(path: Path) -> None:
    """Raises StoreProblem where a process, this one or another of the same user, uses this file
    with another log, or another file with the log of this one: the index of the log (`NAME-shm`)
    was removed, or the file was renamed or replaced. Linux alone shows this.
    """
    said = ""
    for _ in range(_LOOKS):
        with suppress(OSError):
            said = _other_use(path)
        if not said:
            return
        # A process that begins or ends has one of both for a moment.
        select.select([], [], [], _PAUSE)
    raise StoreProblem(said)


def _other_use(path: Path) -> str:
    """Which process has the file locked and not its index, or the index and not the file."""
    index = f"{path}-shm"
    uses, has_index = _lockers(path), _lockers(index)
    for pid in has_index - uses:
        if _identity(index) in _open_files(pid).values():
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
        if logs and f"{path}-wal" not in files and _identity(path) in files.values():
            return (
                f"{path} had another name when process {pid} opened it, and what was written last "
                f"is in the log beside that name (give it back the name that belongs to "
                f"{' or '.join(logs)}, and stop all processes that use it before you rename it)"
            )
    return ""


def _lockers(file: str | Path) -> set[str]:
    """The processes that have locks on a file; none where there is no such file."""
    return {pid for _, pid, *_ in _locks_of(file)} if os.path.exists(file) else set()  # noqa: PTH110


def _open_files(pid: str) -> dict[str, tuple[int, int]]:
    """The open files of a process: names, and which files they are."""
    found = {}
    with suppress(OSError):  # it has ended, or is another user's
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - quicker
            with suppress(OSError):  # closed by now
                place = f"/proc/{pid}/fd/{number}"
                name = os.readlink(place)  # noqa: PTH115
                if name.startswith("/"):
                    found[name] = _identity(place)
    return found


def _identity(file: str | Path) -> tuple[int, int]:
    found = os.stat(file)  # noqa: PTH116
    return found.st_dev, found.st_ino


def _check_log(path: Path) -> None:
    """Raises StoreProblem for a copy of `VACUUM INTO`, not opened yet, beside the log of the file
    that had its name: SQLite would write the log's content over the copy.
    """
    log = Path(f"{path}-wal")
    with suppress(OSError):
        if not log.stat().st_size or _lockers(path):
            return
        # It stays open: to close it would drop the locks that another thread may take meanwhile.
        header = os.pread(os.open(path, os.O_RDONLY), 20, 0)
        if header[18:] == _NO_WAL:
            raise StoreProblem(
                f"{log} is left of another file, and would damage the one that is here now, a copy "
                f"(remove {log} and {path}-shm)"
            )


def _check_revision(connection: sqlite3.Connection, path: Path) -> None:
    """A copy made by `VACUUM INTO` is not in WAL mode before it is opened here. This first read
    creates its -wal and -shm files.
    """
    if connection.execute("SELECT count(*) FROM revision").fetchone() != (1,):
        raise StoreProblem(f"{path} is damaged: it has lost its revision (restore a copy)")
