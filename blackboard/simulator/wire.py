"""The store as one process of the simulated world sees it: the contract, over the network.

Its limits are those of Azure Table Storage, so that requests are counted as they would be billed.
Ages are as the store knew them when it served the page; `now` is the store's clock, as a client
knows it from the store's replies.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any

from blackboard.protocol.keys import ITEM, LOCK
from blackboard.simulator.host import Process
from blackboard.simulator.network import Network, Request
from blackboard.simulator.store import Sender, Store
from blackboard.table import Etag, Op, Requests, Row, Value, just_after
from blackboard.tables.base import AFTER_ALL, LARGEST_PAGE, MAX_VALUE, Pages, checked

BATCH_ROWS, BATCH_BYTES = 100, 1_310_720
"""As in `tables/azure.py`: rows of a batch, and its bytes with what they are wrapped in."""
FIRST_PAGE = 250


class Wire:
    """One process's way to the store. `sender` is who sends, as the oracles are told."""

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

    def sent_by(self, sender: Sender) -> "Wire":
        """The same way, for another task of the process."""
        rows = self._page_rows
        wire = Wire(self._network, self._store, self._process, sender, page_rows=rows)
        wire.requests = self.requests
        return wire

    def at_once(self) -> "Wire":
        """A way that takes no time and on which nothing goes wrong."""
        return _Short(self._network, self._store, self._process, Sender(name="world", verb="make"))

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = checked(partition, ops, max_rows=self.max_rows, max_bytes=self.max_bytes)
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
            served: list[float] = []

            def ask() -> list[Row]:
                served.append(self._store.timeline.now)
                return self._as_read(self._store.page(partition, start, end, count))

            rows: list[Row] = await self._asked(partition, ask, ())
            if start == LOCK:
                self._process.reads[partition] = served[0]
            self._reads(rows)
            return rows

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
        """What this version makes of the data of a batch."""
        return datas

    def _as_read(self, rows: list[Row]) -> list[Row]:
        """What this version makes of rows."""
        return rows

    def _reads(self, rows: Sequence[Row]) -> None:
        """Which life of an id a person's request is about: that which it reads first."""
        if self._sender.is_person and self._sender.born is None:
            items = [row.data for row in rows if row.key.startswith(ITEM)]
            self._sender.born = next((int(str(one.get("born", 0))) for one in items), None)

    async def now(self) -> datetime:
        return self._store.now()

    def age(self, row: Row) -> float:
        return float(row.stamp)

    async def close(self) -> None:
        """Nothing is open."""

    async def _asked(self, partition: str, ask: Callable[[], Any], ops: Sequence[Op]) -> Any:
        answer = asyncio.get_running_loop().create_future()
        name = self._sender.name
        self._network.send(
            Request(
                process=self._process,
                sender=name,
                partition=partition,
                ask=ask,
                ops=ops,
                answer=answer,
            )
        )
        return await answer


class _Short(Wire):
    async def _asked(self, partition: str, ask: Callable[[], Any], ops: Sequence[Op]) -> Any:  # noqa: ARG002
        return ask()
