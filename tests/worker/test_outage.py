"""A store that is away for five minutes, and many workers that live through it: on one loop, by a
clock that is turned by hand.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeVar

import pytest

from blackboard.assembly import WorkerSetup, assemble
from blackboard.board_worker import WorkerSettings
from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent, LockLost, StoreEvent
from blackboard.model import Lock, replace
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import LOCK
from blackboard.rules.breaker import SPACING
from blackboard.settings import Settings
from blackboard.spec import Spec
from blackboard.table import Busy, Etag, Op, Row, TableError, Unavailable, Unknown
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.worker.worker import Mode
from tests.support.boards import disagreements
from tests.support.clocks import ManualClock, TurnedWake
from tests.support.turns import settled
from tests.support.workers import HANDLERS, FakeRunner, board_on

Found = TypeVar("Found", bound=BoardEvent)

WORKERS, LONG_ITEMS, SHORT_ITEMS = 10, 12, 24
SLOTS = 8
CYCLE, AWAY, BACK_WITHIN = 10.0, 150.0, 30.0
STEP = 0.25
"""Seconds by which the clock is turned."""


@dataclass
class Outage:
    """Whether the store is away, and how requests end then: batches and pages."""

    batch: Callable[[], TableError] = Unavailable
    page: Callable[[], TableError] | None = Unavailable
    """None: pages are read as ever."""
    away: bool = False


class AwayTable(MemoryTable):
    """A table that notes when it was asked, and when it answered a walk."""

    def __init__(self, clock: ManualClock, contents: Contents, outage: Outage) -> None:
        super().__init__(clock, contents)
        self.clock = clock
        self.outage = outage
        self.asked: list[float] = []
        self.walked: list[float] = []

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        self._note(self.outage.batch)
        return await super().commit(partition, ops)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        self._note(self.outage.page)
        if first == LOCK:
            self.walked.append(self.clock.monotonic())
        async for row in super().scan(partition, first, last, limit):
            yield row

    def _note(self, trouble: Callable[[], TableError] | None) -> None:
        self.asked.append(self.clock.monotonic())
        if self.outage.away and trouble is not None:
            raise trouble()


@dataclass(kw_only=True)
class One:
    """A worker under way."""

    table: AwayTable
    inline: FakeRunner
    task: asyncio.Task[None]
    told: list[BoardEvent] = field(default_factory=list)

    def of(self, kind: type[Found]) -> list[Found]:
        return [event for event in self.told if isinstance(event, kind)]


@dataclass(kw_only=True)
class Town:
    """A board, its workers, and their clock."""

    clock: ManualClock
    contents: Contents
    outage: Outage
    board: BoardTable
    workers: list[One] = field(default_factory=list)

    async def turn(self, seconds: float) -> None:
        """Turn the clock on, a little at a time; all workers go on meanwhile."""
        for _ in range(round(seconds / STEP)):
            self.clock.advance(STEP)
            await settled()

    async def start(self, number: int) -> None:
        """A worker whose coroutines go on for ever; its plain functions end at once."""
        table = AwayTable(self.clock, self.contents, self.outage)
        events, inline = EventEmitter(f"worker-{number}"), FakeRunner()
        worker = assemble(
            await board_on(table, self.clock, Settings(), seed=number),
            WorkerSetup(
                settings=WorkerSettings(cycle=timedelta(seconds=CYCLE), slots=SLOTS),
                events=events,
                inline=inline,
                process=FakeRunner(at_once=True),
            ),
            handlers=HANDLERS,
            wake=TurnedWake(self.clock, every=CYCLE),
        )
        task = asyncio.get_running_loop().create_task(worker.work(Mode.FOREVER))
        one = One(table=table, inline=inline, task=task)
        events.subscribe(one.told.append)
        self.workers.append(one)

    async def add(self, item_id: str, item_type: str, *, every: str, stale_after: str) -> None:
        spec = Spec(every=every, stale_after=stale_after)
        await add(self.board, New(id=item_id, type=item_type, spec=spec))

    async def held(self) -> list[Counter[str]]:
        """How many locks of each type each worker has."""
        held: dict[str, Counter[str]] = defaultdict(Counter)
        async for found in self.board.walk(0, until=self.clock.now()):
            if isinstance(found, Lock):
                held[found.owner][found.type] += 1
        return list(held.values())

    async def stops(self, item_type: str) -> list[datetime]:
        return [
            item.stop
            async for item in self.board.items()
            if item.type == item_type and item.stop is not None
        ]


Story = Callable[[Town], Awaitable[None]]


async def town(outage: Outage, story: Story, *, lease: str) -> None:
    """Tell a story of a town where every worker holds a long run, some hold as many as they can,
    and short ones come round all the time. At the end the rows must agree with each other.
    """
    clock, contents = ManualClock(), Contents()
    board = await board_on(MemoryTable(clock, contents), clock, Settings())
    place = Town(clock=clock, contents=contents, outage=outage, board=board)
    for number in range(WORKERS):
        await place.add(f"one-{number}", "rare", every="12h", stale_after=lease)
    clock.advance(1)  # they are the most overdue: every worker takes one
    for number in range(LONG_ITEMS):
        await place.add(f"long-{number}", "feed", every="12h", stale_after=lease)
    for number in range(SHORT_ITEMS):
        await place.add(f"short-{number}", "plain", every="20s", stale_after="1m")
    try:
        for number in range(WORKERS):
            await place.start(number)
            await place.turn(STEP)
        await place.turn(60)
        await story(place)
    finally:
        for one in place.workers:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in place.workers), return_exceptions=True)
    assert await disagreements(board) == []


async def away(place: Town, seconds: float) -> tuple[float, float]:
    """The store goes away and comes back; when, in monotonic seconds."""
    gone = place.clock.monotonic()
    place.outage.away = True
    await place.turn(seconds)
    place.outage.away = False
    return gone, place.clock.monotonic()


TROUBLES = {
    "refuses": Outage(),
    "is silent": Outage(batch=Unknown),
    "says 503 without a time": Outage(batch=lambda: Busy(1.0), page=lambda: Busy(1.0)),
    "says 503, at once": Outage(batch=lambda: Busy(0.0), page=lambda: Busy(0.0)),
    "says 503, in an hour": Outage(batch=lambda: Busy(3600.0), page=lambda: Busy(3600.0)),
}


@pytest.mark.case("SO02", "SO06", "L1", on="memory")
@pytest.mark.parametrize("outage", TROUBLES.values(), ids=list(TROUBLES))
def test_workers_live_through_an_outage_and_bother_nobody(outage: Outage) -> None:
    """No worker asks more than once a second, or reports it more than once a minute. All are
    at work again soon after, one after the other; no run is lost whose lease outlasts the outage.
    """

    async def story(place: Town) -> None:
        assert all(len(one.inline.order) >= 1 for one in place.workers)
        gone, back = await away(place, AWAY)
        returned = place.clock.now()
        for one in place.workers:
            assert not one.task.done()
            noticed = min(when for when in one.table.asked if when > gone)
            asked = [when for when in one.table.asked if noticed + SPACING <= when < back]
            assert 20 <= len(asked) <= AWAY
            assert min(b - a for a, b in pairwise(asked)) >= SPACING
            warned = [event for event in one.of(StoreEvent) if event.level == logging.WARNING]
            assert 1 <= len(warned) <= 1 + AWAY / 60
            assert one.of(LockLost) == []
        await place.turn(BACK_WITHIN)
        firsts = [min(when for when in one.table.walked if when > back) for one in place.workers]
        assert max(firsts) - min(firsts) > WORKERS / 5
        within = [sum(first <= one < first + 1.0 for one in firsts) for first in firsts]
        assert max(within) <= WORKERS / 2, "in no second whatever"
        stops = await place.stops("plain")
        assert len(stops) == SHORT_ITEMS
        assert min(stops) > returned
        await place.turn(60)
        for one in place.workers:
            *_, last = one.of(StoreEvent)
            assert "is back after" in last.message
            assert one.of(LockLost) == []

    asyncio.run(town(replace(outage), story, lease="1h"))


@pytest.mark.case("SO02", on="memory")
def test_runs_whose_lease_ends_meanwhile_are_stopped_and_run_again() -> None:
    """By the holders of their locks: there was no other worker to take them."""

    async def story(place: Town) -> None:
        await away(place, AWAY)
        held = sum(len(one.of(LockLost)) for one in place.workers)
        assert held == WORKERS + LONG_ITEMS
        await place.turn(BACK_WITHIN + CYCLE)
        again = [item async for item in place.board.items() if item.type in {"rare", "feed"}]
        assert {item.running for item in again if item.type == "feed"} == {True}
        assert min(item.fence for item in again if item.running) >= 2
        # A worker runs one "rare" at a time; one whose slots are all taken by others, none.
        locks = await place.held()
        full = [types for types in locks if types.total() == SLOTS and not types["rare"]]
        assert sum(not item.running for item in again) == len(full) <= LONG_ITEMS // SLOTS
        assert {types["rare"] for types in locks if types not in full} == {1}

    asyncio.run(town(Outage(), story, lease="1m"))


def test_a_store_that_comes_and_goes_is_told_of_once_a_minute() -> None:
    async def story(place: Town) -> None:
        before = place.clock.monotonic()
        for _ in range(30):
            await away(place, 4)
            await place.turn(4)
        minutes = (place.clock.monotonic() - before) / 60
        for one in place.workers:
            assert len(one.of(StoreEvent)) <= 2 * (1 + minutes)

    asyncio.run(town(Outage(), story, lease="1h"))


@pytest.mark.case("NP02", on="memory")
def test_a_worker_that_reads_and_cannot_write_does_not_hammer() -> None:
    """Its batches have no answer, and each is settled by reading: all that takes its time too."""

    async def story(place: Town) -> None:
        gone, back = await away(place, 60)
        for one in place.workers:
            asked = [when for when in one.table.asked if gone + 5 < when < back]
            assert len(asked) <= 2 * (back - gone)
            assert one.of(LockLost) == []
        await place.turn(BACK_WITHIN)
        assert len(await place.stops("plain")) == SHORT_ITEMS

    asyncio.run(town(Outage(batch=Unknown, page=None), story, lease="1h"))
