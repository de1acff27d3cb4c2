"""The store of a world, in memory, and its clients: the contract of a store, over the network.

Each batch that is applied is passed to all watchers, with the rows before and after, so that
invariants are checked at every single write.

The limits are those of Azure Table Storage, so that requests are counted as they would be billed.
The age of a row is that at the moment when its page was served; `now` is the store's clock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from blackboard.model import VERSION, whole_milliseconds
from blackboard.protocol.keys import ITEM, LOCK, NEXT, item_key
from blackboard.protocol.rows import version_of
from blackboard.simulator.network import Network, StoreRequest
from blackboard.simulator.processes import WORLD_START, Process, Timeline
from blackboard.table import Delete, Etag, Op, Requests, Row, Value, just_after
from blackboard.tables.base import AFTER_ALL, LARGEST_PAGE, MAX_VALUE, Pages, checked
from blackboard.tables.memory import Contents

PREPARED = 60.0
"""Seconds from preparing a batch to sending it, at most: the store was away, or the process was
stopped. The invariants allow for a store clock that was set in this time.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Sender:
    """The sender of a batch: a worker, or one request of an operator."""

    name: str
    """The owner text of a worker, or the name of an operator."""
    verb: str = ""
    """The request of an operator; "" for a worker."""
    fence: int = 0
    """The fence that the request names."""
    applied: int = 0
    """Batches of this sender that were applied."""
    born: int | None = None
    """The `born` of the item that an operator's request read first."""
    newer: bool = False
    """Whether it is a program of a newer version."""

    @property
    def is_person(self) -> bool:
        return self.verb != ""


class AppliedBatch(Struct, frozen=True, kw_only=True):
    sender: Sender
    partition: str
    ops: Sequence[Op]
    before: Mapping[str, Row]
    """The rows that it touched, as they were. `stamp` is the moment when they were written."""
    after: Mapping[str, Row]
    moment: float
    """Seconds since the world began; ages are differences of moments."""
    sent: float
    """The moment when it was sent."""
    now: datetime
    """The time on the store's clock."""
    latest: datetime
    """The latest time of this clock since the batch may have been prepared."""


class StoreClock:
    """The clock of the store. It may be set, as any wall clock; the ages of rows do not jump."""

    def __init__(self, timeline: Timeline, rate: float = 1.0) -> None:
        self._timeline = timeline
        self._rate = rate
        self._offsets = [(0.0, 0.0)]
        """Moments, and by how many seconds the clock is ahead from each of them on."""
        self._moment, self._now = 0.0, WORLD_START
        """The last answer: many requests ask in the same moment."""

    def now(self) -> datetime:
        if self._moment != self._timeline.now:
            self._moment = self._timeline.now
            self._now = self._at(self._moment, self._offsets[-1][1])
        return self._now

    def jump(self, seconds: float) -> None:
        self._offsets.append((self._timeline.now, self._offsets[-1][1] + seconds))
        self._moment = -1.0

    def latest(self, since: float) -> datetime:
        """The latest time that it showed since a moment."""
        latest = self.now()
        ends = [moment for moment, _ in self._offsets[1:]]
        for (_, ahead), end in zip(self._offsets, ends, strict=False):
            if end >= since:
                latest = max(latest, self._at(end, ahead))
        return latest

    def _at(self, moment: float, ahead: float) -> datetime:
        return whole_milliseconds(WORLD_START + timedelta(seconds=moment * self._rate + ahead))


@dataclass(slots=True, kw_only=True)
class Store:
    timeline: Timeline
    clock: StoreClock
    on_written: Callable[[AppliedBatch], None]
    contents: Contents = field(default_factory=Contents)

    def now(self) -> datetime:
        return self.clock.now()

    def commit(
        self,
        sender: Sender,
        partition: str,
        ops: Sequence[Op],
        datas: list[dict[str, Value]],
        *,
        sent: float,
    ) -> list[Etag]:
        before = self._rows(partition, ops)
        moment = self.timeline.now
        etags = self.contents.apply(partition, ops, datas, moment=moment)
        sender.applied += 1
        batch = AppliedBatch(
            sender=sender,
            partition=partition,
            ops=ops,
            before=before,
            after=self._rows(partition, ops),
            moment=moment,
            sent=sent,
            now=self.now(),
            latest=self.clock.latest(sent - PREPARED),
        )
        self.on_written(batch)
        return etags

    def page(self, partition: str, first: str, end: str, count: int) -> list[Row]:
        """The rows as they are now; `stamp` is the age, in seconds."""
        moment, rows = self.timeline.now, self.contents.page(partition, first, end, count)
        return [Row(key, kept.etag, kept.data, moment - kept.touched) for key, kept in rows]

    def _rows(self, partition: str, ops: Sequence[Op]) -> dict[str, Row]:
        rows = ((op.key, self.contents.row(partition, op.key)) for op in ops)
        return {key: row for key, row in rows if row is not None}


BATCH_ROWS, BATCH_BYTES = 100, 1_310_720
"""As in `tables/azure.py`: rows of a batch, and its bytes with their envelope."""
FIRST_PAGE = 250


class StoreClient:
    """The store as one task of a process uses it."""

    max_rows = BATCH_ROWS
    max_bytes = BATCH_BYTES
    max_value = MAX_VALUE
    resolution = 0.5

    def __init__(
        self,
        network: Network,
        store: Store,
        process: Process,
        sender: Sender,
        *,
        page_rows: int = LARGEST_PAGE,
    ) -> None:
        self.requests = Requests()
        self._page_rows = page_rows
        self._network = network
        self._store = store
        self._process = process
        self._sender = sender

    def as_sender(self, sender: Sender) -> "StoreClient":
        """A client for another task of the process."""
        rows = self._page_rows
        client = StoreClient(self._network, self._store, self._process, sender, page_rows=rows)
        client.requests = self.requests
        return client

    def direct(self) -> "StoreClient":
        """A client that takes no time and meets no faults."""
        return _DirectClient(
            self._network, self._store, self._process, Sender(name="world", verb="make")
        )

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = list(checked(partition, ops, max_rows=self.max_rows, max_bytes=self.max_bytes))
        if not ops:
            return []
        self.requests.commits += 1
        sent = self._store.timeline.now

        def ask() -> list[Etag]:
            written = self._as_written(partition, ops, datas)
            return self._store.commit(self._sender, partition, ops, written, sent=sent)

        etags: list[Etag] = await self._asked(partition, ask, ops)
        return etags

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        end = AFTER_ALL if last is None else last

        async def page(start: str, count: int) -> list[Row]:
            self.requests.pages += 1

            def ask() -> tuple[float, list[Row]]:
                rows = self._store.page(partition, start, end, count)
                return self._store.timeline.now, self._as_read(rows)

            served, rows = await self._asked(partition, ask, ())
            if start == LOCK:
                self._process.reads[partition] = served
            self._note_life(rows)
            return list(rows)

        async def fetch(start: str, count: int) -> list[Row]:
            rows: list[Row] = []
            while len(rows) < count:
                asked = min(self._page_rows, count - len(rows))
                more = await page(just_after(rows[-1].key) if rows else start, asked)
                rows += more
                if len(more) < asked:
                    break
            return rows

        return Pages(fetch, first=first, limit=limit, first_page=FIRST_PAGE)

    def _as_written(
        self,
        partition: str,  # noqa: ARG002 - for other versions
        ops: Sequence[Op],  # noqa: ARG002
        datas: list[dict[str, Value]],
    ) -> list[dict[str, Value]]:
        """The data of a batch, as this version writes them."""
        return datas

    def _as_read(self, rows: list[Row]) -> list[Row]:
        """Rows, as this version reads them."""
        return rows

    def _note_life(self, rows: Sequence[Row]) -> None:
        """Notes the `born` of the first item that an operator's request reads."""
        if self._sender.is_person and self._sender.born is None:
            items = [row.data for row in rows if row.key.startswith(ITEM)]
            self._sender.born = next((int(str(row.get("born", 0))) for row in items), None)

    async def now(self) -> datetime:
        return self._store.now()

    def age(self, row: Row) -> float:
        return float(row.stamp)

    async def close(self) -> None:
        """Does nothing: nothing is open."""

    async def _asked(self, partition: str, ask: Callable[[], Any], ops: Sequence[Op]) -> Any:
        request = StoreRequest(
            process=self._process,
            sender=self._sender.name,
            partition=partition,
            ask=ask,
            ops=ops,
            answer=asyncio.get_running_loop().create_future(),
        )
        self._network.send(request)
        return await request.answer


class _DirectClient(StoreClient):
    async def _asked(self, partition: str, ask: Callable[[], Any], ops: Sequence[Op]) -> Any:  # noqa: ARG002
        return ask()


# ---- a newer version: this program, behind a client that changes rows on their way

NEWER = VERSION + 1
MORE = ("flavour", "weight", "crates", "ripe")
"""Columns that only the newer version has."""


def more(count: int) -> dict[str, Value]:
    """Values for the columns in `MORE`, different ones for each `count`."""
    return {"flavour": f"f{count}", "weight": count + 0.5, "crates": count, "ripe": count % 2 == 0}


class NewerClient(StoreClient):
    """The client of a newer worker. It writes more columns, and the version of the item; it
    reads rows of the newer version as its own.
    """

    def _as_written(
        self, partition: str, ops: Sequence[Op], datas: list[dict[str, Value]]
    ) -> list[dict[str, Value]]:
        count = self._store.contents.etag
        for op, data in zip(ops, datas, strict=True):
            if isinstance(op, Delete):
                continue
            data.update(more(count))
            item = data.get("item")
            if op.key.startswith((ITEM, LOCK, NEXT)) and "version" in data and item is not None:
                row = self._store.contents.row(partition, item_key(str(item)))
                data["version"] = VERSION if row is None else version_of(row.data)
        return datas

    def _as_read(self, rows: list[Row]) -> list[Row]:
        return [
            Row(row.key, row.etag, {**row.data, "version": VERSION}, row.stamp)
            if version_of(row.data) == NEWER
            else row
            for row in rows
        ]
