"""Makes and opens a board's file, and translates SQLite's error codes.

A new file is filled under another name and linked into place when it is complete: of several
processes that make the same board one wins, and none ever sees half a file. Only SQLite itself
opens an existing file: closing any other descriptor of it would drop the locks that this process
holds on it.

An error code becomes an answer of the contract while the table works, and a `StoreProblem` with its
remedy while it is being opened.
"""

import os
import resource
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from urllib.parse import quote

from msgspec import Struct

from blackboard.errors import MissingStore, StoreProblem
from blackboard.table import Busy, TableError, Unknown, Unusable
from blackboard.tables.sqlite_filesystem import (
    FRESH,
    SIDE_FILES,
    Identity,
    Mount,
    check_left_behind,
    check_names,
    check_place,
    identity,
    mount_table,
    unreachable,
)
from blackboard.tables.sqlite_forks import forks
from blackboard.tables.sqlite_users import check_users, has_users, writer_of

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
    return _code_of(error) & 0xFF in _BUSY


def _code_of(error: sqlite3.DatabaseError) -> int:
    """The extended code; its last byte is the code itself."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)


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
        raise answer(error, path, opening=opening) from error


def answer(
    error: sqlite3.DatabaseError, path: Path, *, opening: bool = False
) -> TableError | StoreProblem:
    extended = _code_of(error)
    kind: type[StoreProblem | Unusable] = StoreProblem if opening else Unusable
    if is_busy(error):
        return Busy(RETRY_AFTER, writer_of(path))
    if extended in _MAY_HAVE_LANDED and not opening:
        return Unknown(f"{path}: {error}")
    if extended & 0xFF == sqlite3.SQLITE_NOTADB and opening:
        remedy = "name another file, or restore a copy of this one"
        return kind(f"{path} is not a board: {error} ({remedy})")
    is_no_text = str(error).startswith(NO_TEXT)
    if is_no_text or extended & 0xFF in _DAMAGED:
        how = "a row of it is no text" if is_no_text else str(error)
        return kind(f"{path} is damaged: {how} (stop all workers and restore a copy)")
    return kind(_with_remedy(error, path))


def _with_remedy(error: sqlite3.DatabaseError, path: Path) -> str:
    extended = _code_of(error)
    remedy = _why_no_room() if extended in _NO_ROOM - {sqlite3.SQLITE_FULL} else ""
    remedy = remedy or _REMEDIES.get(extended & 0xFF, "")
    return f"{path}: {error}" + (f" ({remedy})" if remedy else "")


def _why_no_room() -> str:
    """Why a file cannot grow, where SQLite does not call the disk full."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most != resource.RLIM_INFINITY:
        return f"no file of this process may grow beyond {most:,} bytes (`ulimit -f`)"
    return "it cannot grow: the quota of its user, or the disk, may be full; or the disk is failing"


APPLICATION = 0x424C4B42
"""`BLKB` in the header: distinguishes a board from another program's file."""
SCHEMA = 1
_CACHE = 32_768
"""KiB of pages kept in memory, at most."""
_RESERVE = 256 << 10
"""Bytes that the log keeps when it is begun anew, so that there is room for it on a full disk."""
_NO_WAL = b"\x01\x01"
"""The versions in the header of a file that has never had a log."""

# Rows have some hundred bytes. Where they lie in the index itself (WITHOUT ROWID), few fit a page,
# and each batch writes more pages: a worker whose items are due in any order is slower by a sixth.
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
);
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
    check_users(path)
    _check_log(path)
    if not forks.take_locks(path):
        raise Busy(RETRY_AFTER, writer_of(path))
    with translated(path, opening=True):
        connection = connect(path, opening.wait)
    try:
        with translated(path, opening=True):
            _examine(connection, path)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            _check_revision(connection, path)
            check_users(path)
            connection.execute(f"PRAGMA synchronous = {'FULL' if opening.full else 'NORMAL'}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `sqlite_checkpoints.py`
            connection.execute(f"PRAGMA journal_size_limit = {_RESERVE}")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
    except BaseException:
        connection.close()
        raise
    forks.note_open(connection, path)
    return connection


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """A connection to an existing file. It waits for other processes for `wait` seconds. Until it
    is closed it stays open, to the end of its process.
    """
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=rw",  # `as_uri` loads an HTTP client
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
        status = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreProblem(f"no folder {path.parent} (make it first)") from None
        return False
    except OSError as error:
        raise StoreProblem(unreachable(path, error)) from None
    if not S_ISREG(status.st_mode):
        kind = "a folder" if path.is_dir() else "a device, a pipe or a socket"
        raise StoreProblem(f"{path} is {kind} (name a file for the board)")
    if not status.st_size:
        if log_size(path):
            raise StoreProblem(
                f"{path} is empty, and its log {path}-wal is not: it was emptied while it was in "
                "use (stop all processes that use it, then restore a copy)"
            )
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
    for name in (path, path.parent, *beside):
        if _is_closed(name):
            raise StoreProblem(
                f"{name} cannot be written (a board's file, those beside it and its folder must be "
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
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        names = {name for (name,) in connection.execute(tables)}
        if not application and not schema and {"rows", "revision"} <= names:
            raise StoreProblem(
                f"{path} has the tables of a board, but not its marks in the header, as a copy by "
                f"`.dump` or `.clone` (to make it a board: `sqlite3 FILE "
                f'"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}"`)'
            )
        raise StoreProblem(f"{path} is the file of another program (name another file)")
    if schema > SCHEMA:
        raise StoreProblem(
            f"{path} was written by a newer version: its schema is {schema}, this version reads "
            f"{SCHEMA} (update blackboard-scheduler)"
        )


def _check_log(path: Path) -> None:
    """Raises StoreProblem for a copy of `VACUUM INTO`, not opened yet, beside the log of the file
    that had its name: SQLite would write the log's content over the copy.
    """
    log = Path(f"{path}-wal")
    with suppress(OSError):
        if not log_size(path) or has_users(path):
            return
        if _header(path)[18:] == _NO_WAL:
            raise StoreProblem(
                f"{log} is left of another file, and would damage the one that is here now, a copy "
                f"(remove {log} and {path}-shm)"
            )


def log_size(path: Path) -> int:
    """The size of a file's log in bytes; 0 where there is none."""
    try:
        return os.stat(f"{path}-wal").st_size  # noqa: PTH116 - quicker, for each commit
    except OSError:
        return 0


_descriptors: dict[Identity, int] = {}
"""Of files whose headers were read. They stay open: to close one would drop the locks that another
thread may have taken meanwhile."""


def _header(path: Path) -> bytes:
    """The first bytes of a file."""
    file = identity(path)
    if file not in _descriptors:
        _descriptors[file] = os.open(path, os.O_RDONLY)
    return os.pread(_descriptors[file], 20, 0)


def _check_revision(connection: sqlite3.Connection, path: Path) -> None:
    """A copy made by `VACUUM INTO` is not in WAL mode before it is opened here. This first read
    creates its -wal and -shm files.
    """
    if connection.execute("SELECT count(*) FROM revision").fetchone() != (1,):
        raise StoreProblem(f"{path} is damaged: it has lost its revision (restore a copy)")
