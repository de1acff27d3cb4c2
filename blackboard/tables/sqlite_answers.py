"""What SQLite's error codes mean to whoever asked: an answer of the contract while the table
works, a `StoreProblem` with its remedy while it is being opened.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blackboard.errors import StoreProblem
from blackboard.table import Busy, TableError, Unknown, Unusable

RETRY_AFTER = 1.0

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_TEXT = "Could not decode to UTF-8"
"""How Python says it; it goes on to quote the row, which is nobody's business."""
_MAY_HAVE_LANDED = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}
"""The commit stands in the log and could not be made safe: whether it is found there after a
crash, nobody knows.
"""

_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full; make room",
    sqlite3.SQLITE_READONLY: "it cannot be written; check its permissions and its file system",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the permissions of file and folder",
    sqlite3.SQLITE_IOERR: "the disk does not read or write it: it may be full, or failing",
}


@contextmanager
def answered(path: Path) -> Iterator[None]:
    """Turns errors of a request into answers of the contract."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise answer(error, path) from error


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns errors of opening a file into StoreProblem; a file that is only held into Busy."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise problem(error, path) from error


def answer(error: sqlite3.DatabaseError, path: Path) -> TableError:
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if extended & 0xFF in _BUSY:
        return Busy(RETRY_AFTER)
    if extended in _MAY_HAVE_LANDED:
        return Unknown(f"{path}: {error}")
    if extended & 0xFF in _DAMAGED:
        return damaged(path, str(error))
    if str(error).startswith(_NO_TEXT):
        return damaged(path, "a row of it is no text")
    remedy = _REMEDIES.get(extended & 0xFF, "")
    return Unusable(f"{path}: {error}" + (f" ({remedy})" if remedy else ""))


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
    if code in _BUSY:
        return Busy(RETRY_AFTER)
    remedy = _REMEDIES.get(code, "")
    return StoreProblem(f"{path}: {error}" + (f" ({remedy})" if remedy else ""))
