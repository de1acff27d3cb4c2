"""A table in memory, for tests and simulations: the contract in its shortest form.

Several tables may share one `Shelf`, as several processes share one file. Nothing outlives the
process.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from blackboard.clock import Clock
from blackboard.table import Delete, Etag, Merge, Op, Requests, Row, Unavailable, Value
from blackboard.tables import checks
from blackboard.tables.pages import AFTER_ALL, Pages


class _Kept(NamedTuple):
    """A row, but for its key."""

    etag: Etag
    touched: float
    """The moment of its last writing."""
    data: dict[str, Value]
    """Never changed: a row that is written again is another."""


@dataclass(slots=True)
class _Part:
    """One partition: its rows, and their keys in order."""

    rows: dict[str, _Kept] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def put(self, key: str, kept: _Kept) -> None:
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = kept

    def drop(self, key: str) -> None:
        del self.rows[key]
        del self.keys[bisect_left(self.keys, key)]


@dataclass(slots=True)
class Shelf:
    """What is kept: partitions, and the counter that no etag comes from twice. It works at once,
    for whoever brings the moment; the table below makes a store of it.
    """

    parts: dict[str, _Part] = field(default_factory=dict)
    etag: int = 0

    def apply(
        self, partition: str, ops: Sequence[Op], datas: list[dict[str, Value]], *, moment: float
    ) -> list[Etag]:
        """Write a batch whose `datas` were checked. Raises Conflict or Refused."""
        part = self.parts.setdefault(partition, _Part())
        there = {op.key: part.rows[op.key].etag for op in ops if op.key in part.rows}
        if conflict := checks.first_conflict(ops, there):
            raise conflict
        for index, op in enumerate(ops):
            if isinstance(op, Merge):
                datas[index] = {**part.rows[op.key].data, **datas[index]}
                checks.check_merged(index, datas[index])
        self.etag += 1
        etag = str(self.etag)
        for op, data in zip(ops, datas, strict=True):
            if isinstance(op, Delete):
                part.drop(op.key)
            else:
                part.put(op.key, _Kept(etag, moment, data))
        return ["" if isinstance(op, Delete) else etag for op in ops]

    def row(self, partition: str, key: str) -> Row | None:
        part = self.parts.get(partition)
        if part is None or key not in part.rows:
            return None
        kept = part.rows[key]
        return Row(key, kept.etag, kept.data, kept.touched)

    def page(self, partition: str, first: str, end: str, count: int) -> Iterator[tuple[str, _Kept]]:
        """The first `count` rows from `first` on, before `end`, by their keys."""
        part = self.parts.get(partition, _Part())
        low, high = bisect_left(part.keys, first), bisect_left(part.keys, end)
        return ((key, part.rows[key]) for key in part.keys[low : min(high, low + count)])


class MemoryTable:
    """The contract over a shelf. Each request lets others go first once, so that tasks which race
    here race as they would over a wire.
    """

    max_rows = checks.MAX_ROWS
    max_bytes = checks.MAX_BYTES
    max_value = checks.MAX_VALUE
    resolution = 0.05

    def __init__(self, clock: Clock, shelf: Shelf | None = None) -> None:
        self._clock = clock
        self._shelf = shelf or Shelf()
        self._closed = False
        self.requests = Requests()

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = checks.checked(partition, ops)
        await self._request()
        if not ops:
            return []
        self.requests.commits += 1
        return self._shelf.apply(partition, ops, datas, moment=self._clock.monotonic())

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        end = AFTER_ALL if last is None else last

        async def fetch(start: str, count: int) -> list[Row]:
            await self._request()
            self.requests.pages += 1
            found = self._shelf.page(partition, start, end, count)
            return [Row(key, kept.etag, dict(kept.data), kept.touched) for key, kept in found]

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
