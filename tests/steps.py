"""Requests to a table, step by step: one before each and one after, and what may go wrong."""

import types
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

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
from blackboard.tables.memory import MemoryTable
from tests.clocks import ManualClock
from tests.oracle import Oracle, Sender

Answer = TypeVar("Answer")
PARTITION = "town"
DOES = {Insert: "inserts", Merge: "merges", Replace: "replaces", Delete: "deletes"}


@types.coroutine
def step() -> Generator[None, None, None]:
    """Somebody else's turn."""
    yield


def at_once(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer of a coroutine that waits for nobody."""
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


def _said(op: Op) -> str:
    family = op.key.partition(":")[0]
    return "writes an item" if family == "item" else f"{DOES[type(op)]} a {family}"


async def _rows(table: StillTable) -> dict[str, Row]:
    return {row.key: row async for row in table.scan(PARTITION)}


class StepTable:
    """The store as everybody in the world sees it."""

    def __init__(self, store: StillTable, oracle: Oracle, fate: Callable[[], str]) -> None:
        self.store, self.oracle, self.fate = store, oracle, fate
        self.sender = Sender(verb="nobody")
        """Whose turn it is."""
        self.in_flight: list[tuple[Sender, tuple[Op, ...]]] = []
        self.seen: Counter[str] = Counter()
        """What was applied, by whom: "run deletes a lock"."""
        self.max_rows = store.max_rows
        self.max_bytes = store.max_bytes
        self.max_value = store.max_value
        self.resolution = store.resolution
        self.requests = store.requests

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

    async def apply(self, sender: Sender, ops: Sequence[Op]) -> list[Etag]:
        before = self.rows()
        etags = await self.store.commit(PARTITION, ops)
        self.seen.update(f"{sender.verb} {what}" for what in map(_said, ops))
        self.oracle.check(sender, ops, before, self.rows())
        return etags

    def land(self, number: int) -> None:
        """A batch whose sender gave it up lands after all."""
        sender, ops = self.in_flight.pop(number)
        try:
            at_once(self.apply(sender, ops))
        except Conflict:
            return

    def rows(self) -> dict[str, Row]:
        return at_once(_rows(self.store))

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        await step()
        async for row in self.store.scan(partition, first, last, limit):
            yield row
        await step()

    async def now(self) -> datetime:
        return await self.store.now()

    def age(self, row: Row) -> float:
        return self.store.age(row)

    async def close(self) -> None:
        await self.store.close()
