"""Making and opening a board's file, and what is refused.

A new file is filled under another name and linked into place when it is whole: of several
processes that make the same board one wins, and none ever sees half a file. Nothing here opens
an existing file but SQLite itself: closing any other descriptor of it would drop the locks that
this process holds on it.
"""

import os
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from stat import S_ISREG

from blackboard.errors import MissingStore, StoreProblem
from blackboard.tables.mounts import Mount
from blackboard.tables.sqlite_answers import explained
from blackboard.tables.sqlite_place import (
    FRESH,
    SIDE_FILES,
    check_left_behind,
    check_names,
    check_place,
)

APPLICATION = 0x424C4B42
"""`BLKB` in the header: how a board is told from another program's file."""
SCHEMA = 1
_CACHE = 32_768
"""KiB of pages kept in memory, at most."""

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
CREATE TABLE counter (etag INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
PRAGMA application_id = 0x424C4B42;
PRAGMA user_version = 1;
COMMIT;
"""


def open_file(
    path: Path, *, create: bool, full: bool, wait: float, mounts: Sequence[Mount], trusted: bool
) -> sqlite3.Connection:
    """A connection to the board at `path` (absolute, resolved), made first if it is missing and
    `create` says so. `wait` is how long another's write is waited for, in seconds; `trusted` that
    the file system is good whatever its kind.

    Raises MissingStore or another StoreProblem, or Busy when another program holds the file.
    """
    check_place(path, mounts, trusted=trusted)
    if not _is_there(path):
        if not create:
            raise MissingStore(f"no board at {path} (make one with `blackboard init`)")
        check_left_behind(path)
        _make(path)
    check_names(path, mounts)
    _check_access(path)
    with explained(path):
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=wait, isolation_level=None
        )
    try:
        with explained(path):
            _examine(connection, path)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_there(path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreProblem(f"no folder {path.parent} (make it first)") from None
        return False
    except OSError as error:
        raise StoreProblem(f"{path} cannot be reached: {error.strerror}") from None
    if not S_ISREG(found.st_mode):
        raise StoreProblem(f"{path} is not a file (name the board's file, not its folder)")
    if not found.st_size:
        raise StoreProblem(f"{path} is empty, not a board (remove it, then `blackboard init`)")
    return True


def _make(path: Path) -> None:
    try:
        handle, name = tempfile.mkstemp(prefix=FRESH, dir=path.parent)
    except OSError as error:
        raise StoreProblem(
            f"no board can be made in {path.parent}: {error.strerror} "
            "(check owner, permissions and mount, or name another place with --store)"
        ) from None
    os.close(handle)
    fresh = Path(name)
    try:
        with explained(path), closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.executescript(_MAKE)
            # Else closing it would do so, and say nothing when it fails.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        with suppress(FileExistsError):  # another process was faster: its board is as good
            path.hardlink_to(fresh)
    except OSError as error:
        raise StoreProblem(f"no board can be made at {path}: {error.strerror}") from None
    finally:
        for suffix in ("", *SIDE_FILES):
            with suppress(OSError):  # what is left there is nobody's, and does no harm
                Path(name + suffix).unlink(missing_ok=True)


def _check_access(path: Path) -> None:
    effective = os.access in os.supports_effective_ids
    for what in (path, path.parent):
        if not os.access(what, os.R_OK | os.W_OK, effective_ids=effective):
            raise StoreProblem(
                f"{what} cannot be written (a board's file and its folder must be writable for "
                "all that read it: check owner, permissions and mount)"
            )


def _examine(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreProblem(f"{path} is the file of another program (name another file)")
    if schema > SCHEMA:
        raise StoreProblem(
            f"{path} was written by a newer version: its schema is {schema}, this version knows "
            f"{SCHEMA} (update blackboard-scheduler)"
        )
    if connection.execute("SELECT count(*) FROM counter").fetchone() != (1,):
        raise StoreProblem(f"{path} is damaged: it has lost its counter (restore a copy)")
