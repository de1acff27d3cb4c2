"""A table that loses replies, applies batches late, and is busy or away: by script or by seed.

It keeps the contract of a table: Busy and Unavailable apply nothing; Unknown may have applied the
batch, may apply it at any later moment (`land`), or never.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum

from blackboard.clock import Chance
from blackboard.table import (
    Busy,
    Conflict,
    Etag,
    Op,
    Refused,
    Row,
    Table,
    Unavailable,
    Unknown,
)
from blackboard.tables.base import ForwardingTable


class Fault(StrEnum):
    """What happens to one request."""

    NONE = "none"
    LOST = "lost"
    """Applied, and the reply lost."""
    LATE = "late"
    """No reply; `land` applies it."""
    NEVER = "never"
    """No reply, and it is never applied."""
    TWICE = "twice"
    """What is between sends it twice, and returns the second reply; no fault for a read."""
    BUSY = "busy"
    AWAY = "away"
    REFUSED = "refused"


RETRY_AFTER = 2.0
Action = Callable[[], Awaitable[object]]


class FaultyTable(ForwardingTable):
    """Any store, with faults by a script or a seed."""

    def __init__(self, table: Table, *, chance: Chance | None = None, rate: float = 0.0) -> None:
        super().__init__(table)
        self.batches: list[tuple[Op, ...]] = []
        """Everything that was sent, in order."""
        self.partitions: set[str] = set()
        """The partitions that were written or read."""
        self.in_flight: list[tuple[str, tuple[Op, ...]]] = []
        self._chance = chance
        self._rate = rate
        self._commits: deque[Fault | Action] = deque()
        self._reads: deque[Fault | Action] = deque()

    def script(self, *faults: Fault | Action) -> None:
        """Sets the faults of the next commits, one after the other. An action is done just before a
        commit, which then succeeds.
        """
        self._commits.extend(faults)

    def script_reads(self, *faults: Fault | Action) -> None:
        """The same for the next scans; only with the faults BUSY and AWAY."""
        self._reads.extend(faults)

    @property
    def quiet(self) -> bool:
        """Whether everything that was scripted has happened."""
        return not self._commits and not self._reads

    async def land(self) -> list[bool]:
        """Applies all batches in flight; returns for each whether it was applied."""
        landed = []
        while self.in_flight:
            landed.append(await self.land_one())
        return landed

    async def land_one(self, number: int = 0) -> bool:
        partition, ops = self.in_flight.pop(number)
        try:
            await self.table.commit(partition, ops)
        except (Conflict, Refused):
            return False
        return True

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        self.partitions.add(partition)
        self.batches.append(tuple(ops))
        match await self._next(self._commits):
            case Fault.LOST:
                await self.table.commit(partition, ops)
                raise Unknown
            case Fault.TWICE:
                await self.table.commit(partition, ops)
            case Fault.LATE:
                self.in_flight.append((partition, tuple(ops)))
                raise Unknown
            case Fault.NEVER:
                raise Unknown
            case Fault.REFUSED:
                raise Refused(0, "too large for this store")
            case fault:
                _raise(fault)
        return await self.table.commit(partition, ops)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        self.partitions.add(partition)
        _raise(await self._next(self._reads))
        async for row in self.table.scan(partition, first, last, limit):
            yield row

    async def _next(self, script: "deque[Fault | Action]") -> Fault:
        if script:
            step = script.popleft()
            if isinstance(step, Fault):
                return step
            await step()
        elif script is self._commits and self._chance and self._chance.fraction() < self._rate:
            kinds = (Fault.LOST, Fault.LATE, Fault.NEVER, Fault.BUSY)
            return kinds[int(self._chance.fraction() * len(kinds))]
        return Fault.NONE


def _raise(fault: Fault) -> None:
    if fault is Fault.BUSY:
        raise Busy(RETRY_AFTER)
    if fault is Fault.AWAY:
        raise Unavailable
