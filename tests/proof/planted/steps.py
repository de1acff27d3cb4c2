"""Requests to a table, step by step: one before each and one after, and what may go wrong. Every
batch that is applied is judged by the invariants of the simulator.
"""

import types
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from blackboard.simulator.changes import AppliedChange, Shadows
from blackboard.simulator.invariants.requests import RequestedRuns
from blackboard.simulator.invariants.rows import History, Locks, check_whole
from blackboard.simulator.invariants.runs import Checkpoints
from blackboard.simulator.store import AppliedBatch, Sender
from blackboard.table import (
    Busy,
    Conflict,
    Delete,
    Etag,
    Insert,
    Merge,
    Op,
    Replace,
    Row,
    Unknown,
)
from blackboard.tables.base import ForwardingTable
from blackboard.tables.memory import Contents, MemoryTable
from tests.support.boards import settings_of
from tests.support.clocks import ManualClock

Answer = TypeVar("Answer")
PARTITION = "town"
DOES = {Insert: "inserts", Merge: "merges", Replace: "replaces", Delete: "deletes"}


@types.coroutine
def step() -> Generator[None, None, None]:
    """The turn of another actor."""
    yield


def at_once(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("Answer", end.value)
    raise AssertionError("it waits")


class StepClock(ManualClock):
    """Waiting is a step: the world turns the clock."""

    async def sleep(self, seconds: float) -> None:
        await step()


class StillTable(MemoryTable):
    """The memory store, without its own turns for others: the world gives them."""

    async def _request(self) -> None:
        return


@dataclass(slots=True, kw_only=True, eq=False)
class Doing(Sender):
    """One task of a worker, or one request of a person."""

    task: str
    """walk, run, or what the person asked for."""


def _said(op: Op) -> str:
    family = op.key.partition(":")[0]
    if isinstance(op, Merge) and set(op.data) == {"checkpoint"}:
        return "saves"
    return "writes an item" if family == "item" else f"{DOES[type(op)]} a {family}"


class StepTable(ForwardingTable):
    """The store as all actors see it."""

    def __init__(self, clock: ManualClock, fate: Callable[[], str]) -> None:
        self.contents = Contents()
        super().__init__(StillTable(clock, self.contents))
        self.clock, self.fate = clock, fate
        self.sender = Doing(name="nobody", task="nothing")
        """Whose turn it is."""
        self.in_flight: list[tuple[Doing, tuple[Op, ...]]] = []
        self.seen: Counter[str] = Counter()
        """What was applied, by whom: "run deletes a lock"."""
        self.shadows = Shadows()
        self.checkpoints = Checkpoints()
        self.invariants: list[Callable[[AppliedChange], None]] = [
            check_whole,
            Locks(),
            self.checkpoints,
            History(lambda item: settings_of(item.type, item.spec)),
            RequestedRuns(),
        ]

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        await step()
        sender, fate = self.sender, self.fate()
        if fate == "late":
            self.in_flight.append((sender, tuple(ops)))
        if fate in {"late", "never"}:
            await step()
            raise Unknown
        if fate == "busy":
            raise Busy(1.0)
        etags = await self.apply(sender, ops)
        await step()
        if fate == "lost":
            raise Unknown
        return etags

    async def apply(self, sender: Doing, ops: Sequence[Op]) -> list[Etag]:
        before = self._touched(ops)
        etags = await self.table.commit(PARTITION, ops)
        sender.applied += 1
        self.seen.update(f"{sender.task} {what}" for what in map(_said, ops))
        batch = AppliedBatch(
            sender=sender,
            partition=PARTITION,
            ops=ops,
            before=before,
            after=self._touched(ops),
            moment=self.clock.monotonic(),
            sent=self.clock.monotonic(),
            now=self.clock.now(),
            latest=self.clock.now(),
        )
        for change in self.shadows.changes(batch):
            for check in self.invariants:
                check(change)
        return etags

    def land(self, number: int) -> None:
        """A batch whose sender gave it up lands after all."""
        sender, ops = self.in_flight.pop(number)
        try:
            at_once(self.apply(sender, ops))
        except Conflict:
            return

    def _touched(self, ops: Sequence[Op]) -> dict[str, Row]:
        rows = (self.contents.row(PARTITION, op.key) for op in ops)
        return {row.key: row for row in rows if row is not None}

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        await step()
        async for row in self.table.scan(partition, first, last, limit):
            yield row
        await step()
