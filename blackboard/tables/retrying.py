"""A table for commands and programs, which tries again what a busy store has refused.

Azure throttles bursts before its target is reached. A request that it refuses as busy has changed
nothing, so it is made again, after the seconds that the store names. A worker asks the store
without this: its circuit breaker spares a store that is busy.
"""

from collections.abc import AsyncIterator, Sequence

from blackboard.clock import Clock
from blackboard.table import Busy, Etag, Op, Row, Table, just_after
from blackboard.tables.base import ForwardingTable

LONGEST = 10.0
"""Seconds from the first try of a request to the beginning of the last one."""


class RetryingTable(ForwardingTable):
    """A table whose requests wait while the store is busy. Raises Busy after `LONGEST`."""

    def __init__(self, table: Table, clock: Clock) -> None:
        super().__init__(table)
        self._clock = clock

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        last = self._last_try()
        while True:
            try:
                return await self.table.commit(partition, ops)
            except Busy as busy:
                await self._wait(busy, last)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        last_try = self._last_try()
        while True:
            try:
                async for row in self.table.scan(partition, first, last, limit):
                    yield row
                    first, limit = just_after(row.key), None if limit is None else limit - 1
                    last_try = self._last_try()
            except Busy as busy:
                await self._wait(busy, last_try)
            else:
                return

    def _last_try(self) -> float:
        return self._clock.monotonic() + LONGEST

    async def _wait(self, busy: Busy, last: float) -> None:
        if self._clock.monotonic() + busy.retry_after > last:
            raise busy
        await self._clock.sleep(busy.retry_after)
