"""A board's file as one thread uses it: batches, pages, and nothing of asyncio.

A batch first reads the etags of all rows it names, under the write lock, and judges them; then
it writes. So a lost race is told exactly and has written nothing, whatever the order of the
operations.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from blackboard.table import Delete, Etag, Insert, Merge, Op, Replace, Row, Unusable, Value
from blackboard.tables import checks, rowtext
from blackboard.tables.sqlite_ages import Stamp
from blackboard.tables.sqlite_answers import answered, damaged
from blackboard.tables.sqlite_place import names_problem

_ETAGS = """
SELECT key, etag FROM rows WHERE part = ? AND key IN (SELECT value FROM json_each(?))
"""
_DATA = """
SELECT key, data FROM rows WHERE part = ? AND key IN (SELECT value FROM json_each(?))
"""
_PAGE = """
SELECT key, etag, boot, touched, data FROM rows
WHERE part = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?
"""


class SqliteFile:
    """An open file. `stamp` is asked under the write lock: a stamp taken before would be as old
    as the wait for it.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, stamp: Callable[[], Stamp]
    ) -> None:
        self._path = path
        self._connection = connection
        self._stamp = stamp
        self._open = {
            name: _found(name) for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm"))
        }

    def apply(
        self, partition: str, ops: Sequence[Op], datas: Sequence[dict[str, Value]]
    ) -> list[Etag]:
        """The batch, all or nothing. Raises what `Table.commit` does."""
        with self._request(), self._transaction():
            found = dict(self._lookup(_ETAGS, partition, [op.key for op in ops]))
            there = {key: str(etag) for key, etag in found.items()}
            if conflict := checks.first_conflict(ops, there):
                raise conflict
            texts = self._texts(partition, ops, datas)
            etag, stamp = self._next_etag(), self._stamp()
            self._connection.executemany(
                "DELETE FROM rows WHERE part = ? AND key = ?",
                [(partition, op.key) for op in ops if isinstance(op, Delete)],
            )
            self._connection.executemany(
                "REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (partition, key, etag, stamp.boot, stamp.touched, text)
                    for key, text in texts.items()
                ],
            )
        return ["" if isinstance(op, Delete) else str(etag) for op in ops]

    def page(self, partition: str, first: str, last: str, count: int) -> list[Row]:
        """Up to `count` rows with `first` <= key < `last`."""
        with self._request():
            found = self._connection.execute(_PAGE, (partition, first, last, count)).fetchall()
        return [
            Row(key, str(etag), self._decoded(key, text), self._moment(key, boot, touched))
            for key, etag, boot, touched, text in found
        ]

    def integrity(self) -> list[str]:
        """What SQLite finds wrong with the file; nothing when it is whole."""
        try:
            with self._request():
                found = [line for (line,) in self._connection.execute("PRAGMA integrity_check")]
        except Unusable as worse:
            return [str(worse)]
        return [] if found == ["ok"] else found

    def close(self) -> None:
        self._connection.close()

    def _texts(
        self, partition: str, ops: Sequence[Op], datas: Sequence[dict[str, Value]]
    ) -> dict[str, str]:
        """What each key will hold."""
        merges = [op.key for op in ops if isinstance(op, Merge)]
        before = dict(self._lookup(_DATA, partition, merges)) if merges else {}
        texts: dict[str, str] = {}
        for index, (op, data) in enumerate(zip(ops, datas, strict=True)):
            if isinstance(op, Insert | Replace):
                texts[op.key] = rowtext.encode(data)
            elif isinstance(op, Merge):
                texts[op.key] = text = self._merged(op.key, before[op.key], data)
                if len(text) > checks.SURELY_FITS:
                    checks.check_merged(index, rowtext.decode(text))
        return texts

    def _lookup(self, query: str, partition: str, keys: Sequence[str]) -> list[Any]:
        return self._connection.execute(
            query, (partition, msgspec.json.encode(keys).decode())
        ).fetchall()

    def _next_etag(self) -> int:
        self._connection.execute("UPDATE counter SET etag = etag + 1")
        (etag,) = self._connection.execute("SELECT etag FROM counter").fetchone()
        return int(etag)

    def _merged(self, key: str, text: str, data: dict[str, Value]) -> str:
        try:
            return rowtext.merged(text, data)
        except ValueError as error:
            raise damaged(self._path, f"row {key}: {error}") from None

    def _decoded(self, key: str, text: str) -> dict[str, Value]:
        try:
            return rowtext.decode(text)
        except ValueError as error:
            raise damaged(self._path, f"row {key}: {error}") from None

    def _moment(self, key: str, boot: Any, touched: Any) -> Stamp:
        if not isinstance(boot, str) or not isinstance(touched, int | float):
            raise damaged(self._path, f"row {key}: {boot!r} and {touched!r} are no moment")
        return Stamp(boot, touched)

    @contextmanager
    def _request(self) -> Iterator[None]:
        self._check_names()
        with answered(self._path):
            yield

    def _check_names(self) -> None:
        """Raises Unusable once what is open is not what others would open: a file that was removed
        can still be written, for no one to read.
        """
        linked = False
        for name, opened in self._open.items():
            found = _found(name)
            if found.id != opened.id:
                raise Unusable(
                    f"{name} was removed or replaced while it was open; what is written now would "
                    "be lost (stop all processes that use it, then start them again)"
                )
            linked |= found.links > 1
        if linked and (problem := names_problem(self._path)):
            raise Unusable(problem)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite has often rolled back by itself; a rollback that fails leaves nothing
            # behind either, for what was not committed is not read.
            with suppress(sqlite3.OperationalError):
                self._connection.execute("ROLLBACK")
            raise


@dataclass(frozen=True, slots=True)
class _Found:
    """Which file is at a path."""

    id: tuple[int, int]
    links: int


def _found(name: Path) -> _Found:
    try:
        found = name.stat()
    except OSError:
        return _Found((0, 0), 0)
    return _Found((found.st_dev, found.st_ino), found.st_nlink)
