"""A table for commands and programs, which tries again a request that has changed nothing.

Azure throttles bursts before its target is reached: a request that it refuses as busy is made again
after the seconds that the store names. One that had no answer, or met an error of the service, is
made again a few times, if it is sure that nothing was applied. A worker asks the store without
this: its circuit breaker spares a store that is busy or away.
"""

from collections.abc import AsyncIterator, Sequence
from math import inf

from blackboard.clock import Clock
from blackboard.table import Busy, Etag, Op, Row, Table, Unavailable, Unusable, just_after
from blackboard.tables.base import ForwardingTable

LONGEST = 10.0
"""Seconds from the first try of a request to the beginning of the last one."""
PAUSES = (0.5, 1.0)
"""Seconds before each further try of a request while the store is away."""


class Retries:
    """The tries of one request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begins the first try of another request."""
        self._last = self._clock.monotonic() + LONGEST
        self._pauses = iter(PAUSES)

    async def wait(self, refused: Busy | Unavailable) -> None:
        """Waits until the next try. Raises `refused` where it was the last."""
        if isinstance(refused, Unusable):
            raise refused
        pause = refused.retry_after if isinstance(refused, Busy) else next(self._pauses, inf)
        if self._clock.monotonic() + pause > self._last:
            raise refused
        await self._clock.sleep(pause)


class RetryingTable(ForwardingTable):
    """A table whose requests are made again while the store is busy, and a few times while it is
    away. Raises Busy or Unavailable after the last try.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        super().__init__(table)
        self._clock = clock

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        retries = Retries(self._clock)
        while True:
            try:
                return await self.table.commit(partition, ops)
            except (Busy, Unavailable) as refused:
                await retries.wait(refused)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        retries = Retries(self._clock)
        while True:
            try:
                async for row in self.table.scan(partition, first, last, limit):
                    yield row
                    first, limit = just_after(row.key), None if limit is None else limit - 1
                    retries.begin()
            except (Busy, Unavailable) as refused:
                await retries.wait(refused)
            else:
                return
