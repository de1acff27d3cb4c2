"""A board's file as one thread uses it: batches and pages, without asyncio.

Batches that wait at the same time share a transaction. They are first written without reading
(`sqlite_writes.py`). Where a row is not as expected nothing is written by that, and each batch
reads the rows that it names before it writes. So a lost race is reported exactly and has written
nothing, whatever the order of the operations, and a refused batch leaves the others alone.

The data of a row is JSON text that a person can read. A time is written as a list of one text: data
is flat, so nothing else is a list, and a text that only looks like a time stays a text.

A row whose data is no such text was damaged. It is read as a row without data: a reader that
expects a record refuses this one row, and a merge is answered CHANGED.
"""

import os
import select
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from blackboard.table import (
    Busy,
    Conflict,
    ConflictKind,
    Delete,
    Etag,
    Insert,
    Merge,
    Op,
    Refused,
    Replace,
    Replaced,
    Row,
    Unknown,
    Unusable,
    Value,
)
from blackboard.tables.base import SURELY_FITS, check_merged, first_conflict
from blackboard.tables.sqlite_checkpoints import WalCheckpoints
from blackboard.tables.sqlite_filesystem import names_problem, unreachable
from blackboard.tables.sqlite_forks import forks
from blackboard.tables.sqlite_open import (
    NO_TEXT,
    Opening,
    is_busy,
    lacks_room,
    open_file,
    translated,
)
from blackboard.tables.sqlite_writes import set_up, statement, write_of

T = TypeVar("T")
_POLL = 0.001
"""Seconds between two tries to use a file that others keep busy."""
_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder(dict[str, Any]).decode


def in_file(moment: datetime) -> list[datetime]:
    """A time as a row's data has it."""
    return [moment]


def encode_row(data: Mapping[str, Any]) -> str:
    """The text of a row; `data` has plain values and times `in_file`."""
    return _to_json(data).decode()


def decode_row(text: str | bytes) -> dict[str, Value]:
    """The data of a row; empty for a text that was not written here. A list that is no time stays
    one: no column is a list, so readers refuse it.
    """
    try:
        data = _read(text)
    except ValueError:
        return {}
    for name, value in data.items():
        if type(value) is list:
            data[name] = _time(value)
    return data


def merge_row(text: str | bytes, over: str) -> str:
    """The text of a row after the data in `over` is laid over that in `text`. Raises ValueError for
    a text that was not written here.
    """
    return _to_json({**_read(text), **_read(over)}).decode()


def _read(text: str | bytes) -> dict[str, Any]:
    try:
        return _from_json(text)
    except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _time(marked: list[Any]) -> Any:
    try:
        return datetime.fromisoformat(*marked)
    except (TypeError, ValueError):
        return marked


_NOT_JSON = "malformed JSON"
"""What SQLite says of the text of a damaged row."""
_ETAGS = """
SELECT key, etag FROM rows WHERE part = ? AND key IN (SELECT value FROM json_each(?))
"""
_DATA = """
SELECT key, CAST(data AS BLOB) FROM rows WHERE part = ? AND key IN (SELECT value FROM json_each(?))
"""
_PAGE = """
SELECT key, etag, boot, touched, data FROM rows
WHERE part = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?
"""


_PAGE_AS_BYTES = _PAGE.replace(
    "boot, touched, data", "CAST(boot AS BLOB), touched, CAST(data AS BLOB)"
)
"""For a page with a row whose text cannot be decoded."""


class Stamp(Struct, frozen=True):
    """When a row was written: seconds on the monotonic clock of one boot."""

    boot: str
    touched: float


UNKNOWN = Stamp("", 0.0)
"""The stamp of a row whose own cannot be read: its age is the time for which it was seen."""


class Batch(Struct, frozen=True):
    """What one `Table.commit` writes."""

    partition: str
    ops: Sequence[Op]
    texts: Sequence[str]
    """The data of each, as `encode_row` returns it: other processes do not wait for that."""


Answer = list[Etag] | Exception
"""What a `Table.commit` returns or raises."""


class SqliteFile:
    """An open file. `wait`: seconds that a request waits for other processes. `stamp` is called
    under the write lock: a stamp taken before would be as old as the wait for the lock.
    """

    @classmethod
    def open(cls, path: Path, opening: Opening, *, stamp: Callable[[], Stamp]) -> Self:
        """Opens a file. Raises what `open_file` raises."""
        guard = forks.guard(path)
        with guard:
            connection = open_file(path, opening)
            return cls(path, connection, wait=opening.wait, stamp=stamp, guard=guard)

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        wait: float,
        stamp: Callable[[], Stamp],
        guard: Lock,
    ) -> None:
        """`guard`: held while the connection is used."""
        self._path = path
        self._connection = connection
        self._tries = round(wait / _POLL)
        self._stamp = stamp
        self._log = Path(f"{path}-wal")
        self._guard = guard
        self._checkpoints = WalCheckpoints(path, self._may_copy)
        connection.execute("PRAGMA busy_timeout = 0")
        set_up(connection)
        self._open = {name: _status_of(name) for name in (path, self._log, Path(f"{path}-shm"))}

    def apply(self, batches: Sequence[Batch]) -> list[Answer]:
        """Applies batches in one transaction, and returns the answer to each. Each is all or
        nothing by itself: where an error of the file ends the transaction, each is applied alone.
        """
        answers = self._applied(batches)
        self._checkpoints.after_commit()
        return answers

    def _applied(self, batches: Sequence[Batch], *, again: bool = True) -> list[Answer]:
        try:
            with self._request():
                return self._at_once(batches) or self._by_reading(batches)
        except (Busy, Unknown) as error:
            return [error] * len(batches)
        except Exception as error:  # noqa: BLE001 - it is raised by the commit
            if again and lacks_room(error):
                self._checkpoints.make_room()
                return self._applied(batches, again=False)
            if len(batches) == 1:
                return [error]
        return [answer for batch in batches for answer in self._applied([batch], again=again)]

    def _at_once(self, batches: Sequence[Batch]) -> list[Answer] | None:
        """Writes the batches without reading. None when one does not find what it expects, or a
        merged row may break a limit or is damaged, or they have more values than one statement
        takes (999 before SQLite 3.32); then nothing is written.
        """
        etags = [_new_etag() for _ in batches]
        writes = [
            write_of(op, batch.partition, etag, text)
            for batch, etag in zip(batches, etags, strict=True)
            for op, text in zip(batch.ops, batch.texts, strict=True)
        ]
        query, values = statement(writes, etags[-1])
        if len(values) + 2 > self._connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER):
            return None

        def write() -> None:
            stamp = self._stamp()
            self._connection.execute(query, (stamp.boot, stamp.touched, *values))

        try:
            self._patiently(write)
        except sqlite3.IntegrityError:
            return None
        except sqlite3.OperationalError as error:
            if str(error) != _NOT_JSON:
                raise
            return None
        return list(map(_etags, batches, etags))

    def _by_reading(self, batches: Sequence[Batch]) -> list[Answer]:
        """Writes the batches, each if the rows that it names are as it expects."""
        with self._transaction():
            answers = list(map(self._written, batches))
            if not any(isinstance(answer, list) for answer in answers):
                self._connection.execute("ROLLBACK")  # there is nothing to write
            return answers

    def _written(self, batch: Batch) -> Answer:
        """Writes a batch. What is returned as an error was found before anything was written."""
        try:
            texts = self._checked(batch)
        except (Conflict, Refused) as error:
            return error
        etag, stamp = _new_etag(), self._stamp()
        self._connection.execute("UPDATE revision SET etag = ?", (etag,))
        self._connection.executemany(
            "DELETE FROM rows WHERE part = ? AND key = ?",
            [(batch.partition, op.key) for op in batch.ops if isinstance(op, Delete)],
        )
        self._connection.executemany(
            "REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?)",
            [
                (batch.partition, key, etag, stamp.boot, stamp.touched, text)
                for key, text in texts.items()
            ],
        )
        return _etags(batch, etag)

    def _checked(self, batch: Batch) -> dict[str, str]:
        """The new text of each row that is written. Raises Conflict or Refused."""
        etags = dict(self._lookup(_ETAGS, batch.partition, [op.key for op in batch.ops]))
        if conflict := first_conflict(batch.ops, {key: str(etag) for key, etag in etags.items()}):
            raise conflict
        merges = [op.key for op in batch.ops if isinstance(op, Merge)]
        before = dict(self._lookup(_DATA, batch.partition, merges)) if merges else {}
        texts: dict[str, str] = {}
        for index, op in enumerate(batch.ops):
            if isinstance(op, Insert | Replace):
                texts[op.key] = batch.texts[index]
            elif isinstance(op, Merge):
                try:
                    texts[op.key] = text = merge_row(before[op.key], batch.texts[index])
                except ValueError:
                    raise Conflict(index, ConflictKind.CHANGED) from None
                if len(text) > SURELY_FITS:
                    check_merged(index, decode_row(text))
        return texts

    def page(self, partition: str, first: str, last: str, count: int) -> list[Row]:
        """Up to `count` rows with `first` <= key < `last`."""
        with self._request():
            try:
                rows = self._fetched(_PAGE, partition, first, last, count)
            except sqlite3.OperationalError as error:
                if not str(error).startswith(NO_TEXT):
                    raise
                rows = self._fetched(_PAGE_AS_BYTES, partition, first, last, count)
        return [
            Row(key, str(etag), decode_row(text), _moment(boot, touched))
            for key, etag, boot, touched, text in rows
        ]

    @property
    def trouble(self) -> str:
        """What keeps the file from being as it should; "": nothing."""
        return self._checkpoints.trouble

    def revision(self) -> int:
        """A number that changes with each write, of any process."""
        with self._request():
            ((etag,),) = self._fetched("SELECT etag FROM revision")
            return int(etag)

    def integrity(self) -> list[str]:
        """What SQLite finds wrong with the file; nothing when it is whole."""
        try:
            with self._request():
                lines = [line for (line,) in self._fetched("PRAGMA integrity_check")]
        except Unusable as worse:
            return [str(worse)]
        return [] if lines == ["ok"] else lines

    def close(self) -> None:
        """Closes the file. SQLite copies the log then, and removes it and its index, if no other
        process has the file open. Where that would use an index that others do not use, the file
        stays open: at the end of the process the system frees its locks, and nothing is written.
        """
        self._checkpoints.wait()
        with self._guard:
            if self._may_copy():
                self._connection.close()
                forks.note_closed(self._connection)

    def _may_copy(self) -> bool:
        """Whether the log may be copied by the index that is open here: others use the same, and
        have written no other log. (They make an empty one when they cannot find this one.)
        """
        return all(
            (status := _status_of(name)).id == opened.id or (name is self._log and not status.size)
            for name, opened in self._open.items()
        )

    def _lookup(self, query: str, partition: str, keys: Sequence[str]) -> list[Any]:
        return self._fetched(query, partition, msgspec.json.encode(keys).decode())

    def _fetched(self, query: str, *values: str | int) -> list[Any]:
        return self._patiently(lambda: self._connection.execute(query, values).fetchall())

    def _patiently(self, call: Callable[[], T]) -> T:
        """Calls again while other processes keep the file busy. SQLite would sleep for up to 100 ms
        each time, while others take the lock.
        """
        tries_left = self._tries
        while True:
            self._check_names()
            try:
                return call()
            except sqlite3.OperationalError as error:
                if not tries_left or not is_busy(error):
                    raise
            tries_left -= 1
            self._guard.release()  # nothing is locked now
            select.select([], [], [], _POLL)  # of no clock, which may be set meanwhile
            self._guard.acquire()

    @contextmanager
    def _request(self) -> Iterator[None]:
        with self._guard, translated(self._path):
            yield

    def _check_names(self) -> None:
        """Raises Replaced once the open file is not the one that others would open, or was emptied:
        a removed file can still be written, but not read by others. Raises Unusable while the path
        cannot be looked at.
        """
        linked = False
        for name, opened in self._open.items():
            status = _status_of(name)
            if status.hidden:
                raise Unusable(status.hidden)
            if status.id != opened.id:
                raise Replaced(
                    f"{name} was removed or replaced while it was open; what is written now would "
                    "be lost (stop all processes that use it, then start them again)"
                )
            if name is self._path and not status.size:
                raise Replaced(
                    f"{name} was emptied while it was open; what is written now would be lost "
                    "(stop all processes that use it, then restore a copy)"
                )
            linked |= status.links > 1
        if linked and (problem := names_problem(self._path)):
            raise Unusable(problem)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
        try:
            yield
            if self._connection.in_transaction:
                self._check_names()  # it may have waited long for others
                self._connection.execute("COMMIT")
        except BaseException:
            # SQLite has often rolled back by itself; a rollback that fails leaves nothing
            # behind either, for what was not committed is not read.
            with suppress(sqlite3.DatabaseError):
                self._connection.execute("ROLLBACK")
            raise


def _moment(boot: Any, touched: Any) -> Stamp:
    if isinstance(boot, bytes):
        boot = boot.decode("utf-8", "replace")
    known = isinstance(boot, str) and isinstance(touched, int | float)
    return Stamp(boot, touched) if known else UNKNOWN


def _new_etag() -> int:
    """One of 2^62, by chance: it was never used, in no copy of the file either."""
    return int.from_bytes(os.urandom(8)) >> 2


def _etags(batch: Batch, etag: int) -> list[Etag]:
    text = str(etag)
    return ["" if isinstance(op, Delete) else text for op in batch.ops]


class _FileStatus(Struct, frozen=True):
    """The identity of the file at a path."""

    id: tuple[int, int]
    links: int
    size: int
    hidden: str = ""
    """Why it cannot be said what is at the path; "": it can."""


def _status_of(name: Path) -> _FileStatus:
    try:
        status = os.stat(name)  # noqa: PTH116 - a third of the time of Path.stat, for each request
    except (FileNotFoundError, NotADirectoryError):
        return _FileStatus((0, 0), 0, 0)
    except OSError as error:
        return _FileStatus((0, 0), 0, 0, unreachable(name, error))
    return _FileStatus((status.st_dev, status.st_ino), status.st_nlink, status.st_size)
