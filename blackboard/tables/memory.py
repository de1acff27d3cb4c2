"""A table in memory, for tests and simulations: the contract in its shortest form.

Several tables may share one `Contents`, as several processes share one file. The contents end with
the process.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from blackboard.clock import Clock
from blackboard.table import Delete, Etag, Merge, Op, Requests, Row, Unavailable, Value
from blackboard.tables.base import (
    AFTER_ALL,
    MAX_BYTES,
    MAX_ROWS,
    MAX_VALUE,
    Pages,
    check_merged,
    checked,
    first_conflict,
)


class _Version(NamedTuple):
    """A row without its key."""

    etag: Etag
    touched: float
    """When it was written: monotonic seconds."""
    data: dict[str, Value]
    """Never changed: each write makes another version."""


@dataclass(slots=True)
class _Part:
    """One partition: its rows, and their keys in order."""

    rows: dict[str, _Version] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def put(self, key: str, version: _Version) -> None:
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = version

    def drop(self, key: str) -> None:
        del self.rows[key]
        del self.keys[bisect_left(self.keys, key)]


@dataclass(slots=True)
class Contents:
    """The partitions, and the counter that etags come from. Synchronous, and without a clock: the
    caller passes the time.
    """

    parts: dict[str, _Part] = field(default_factory=dict)
    etag: int = 0

    def apply(
        self, partition: str, ops: Sequence[Op], datas: list[dict[str, Value]], *, moment: float
    ) -> list[Etag]:
        """Writes a batch whose `datas` were checked. Raises Conflict or Refused."""
        part = self.parts.setdefault(partition, _Part())
        etags = {op.key: part.rows[op.key].etag for op in ops if op.key in part.rows}
        if conflict := first_conflict(ops, etags):
            raise conflict
        for index, op in enumerate(ops):
            if isinstance(op, Merge):
                datas[index] = {**part.rows[op.key].data, **datas[index]}
                check_merged(index, datas[index])
        self.etag += 1
        etag = str(self.etag)
        for op, data in zip(ops, datas, strict=True):
            if isinstance(op, Delete):
                part.drop(op.key)
            else:
                part.put(op.key, _Version(etag, moment, data))
        return ["" if isinstance(op, Delete) else etag for op in ops]

    def row(self, partition: str, key: str) -> Row | None:
        part = self.parts.get(partition)
        if part is None or key not in part.rows:
            return None
        version = part.rows[key]
        return Row(key, version.etag, version.data, version.touched)

    def page(
        self, partition: str, first: str, end: str, count: int
    ) -> Iterator[tuple[str, _Version]]:
        """The first `count` rows from `first` on, before `end`, by their keys."""
        part = self.parts.get(partition, _Part())
        low, high = bisect_left(part.keys, first), bisect_left(part.keys, end)
        return ((key, part.rows[key]) for key in part.keys[low : min(high, low + count)])


class MemoryTable:
    """A store over `Contents`. Each request yields to the event loop once, so that tasks race here
    as they would over a network.
    """

    max_rows = MAX_ROWS
    max_bytes = MAX_BYTES
    max_value = MAX_VALUE
    resolution = 0.05

    def __init__(self, clock: Clock, contents: Contents | None = None) -> None:
        self._clock = clock
        self._contents = contents or Contents()
        self._closed = False
        self.requests = Requests()

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = list(checked(partition, ops))
        await self._request()
        if not ops:
            return []
        self.requests.commits += 1
        return self._contents.apply(partition, ops, datas, moment=self._clock.monotonic())

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        end = AFTER_ALL if last is None else last

        async def fetch(start: str, count: int) -> list[Row]:
            await self._request()
            self.requests.pages += 1
            versions = self._contents.page(partition, start, end, count)
            return [
                Row(key, version.etag, dict(version.data), version.touched)
                for key, version in versions
            ]

        return Pages(fetch, first=first, limit=limit)

    async def now(self) -> datetime:
        await self._request()
        return self._clock.now()

    def age(self, row: Row) -> float:
        return max(0.0, self._clock.monotonic() - float(row.stamp))

    async def close(self) -> None:
        self._closed = True

    async def _request(self) -> None:
        await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("the table is closed")
