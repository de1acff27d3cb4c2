"""A board and workers that run by themselves on a clock that the test advances, over a network.

`@with_fleet` runs an async test on a fresh board of every store. A request reaches its store
through a network that may delay it, lose batches, or let nothing through; the clock stands still
while a store works. At the end the rows must agree with each other.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from unittest.mock import patch

from blackboard.assembly import WorkerSetup, assemble
from blackboard.board_worker import WorkerSettings
from blackboard.clock import Clock
from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent
from blackboard.model import Run
from blackboard.runners.runner import Execution, HandlerCall, Reporter
from blackboard.settings import Settings
from blackboard.table import Busy, Etag, Op, Row, Table, Unavailable, Unknown
from blackboard.tables.base import ForwardingTable
from blackboard.worker import release_queue
from blackboard.worker.worker import Mode
from tests.support.boards import Scene, Test, disagreements, on_each_store
from tests.support.clocks import START, ManualClock, TurnedWake
from tests.support.faults import FaultyTable
from tests.support.stores import OpenTable
from tests.support.turns import settled
from tests.support.workers import HANDLERS, FakeRun, FakeRunner, board_on

Found = TypeVar("Found", bound=BoardEvent)


class SkewedClock:
    """A clock whose wall clock is wrong by some seconds, at the same rate as another clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._by = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self._clock.now() + self._by

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


@dataclass(kw_only=True)
class Network:
    """The network between some workers and their store."""

    away: bool = False
    """Whether no request comes through."""
    mute: bool = False
    """Whether no batch comes through; reads do."""
    refusing: float = 0.0
    """The part of the requests that the store refuses as busy."""
    delays: tuple[float, float] | None = None
    """The least and the most seconds of one way."""
    a_second: int = 0
    """Rows that the store writes in a second before it is busy; 0: no limit."""
    asked: list[tuple[float, str]] = field(default_factory=list)
    """Requests: the moment of each, in monotonic seconds, and its worker."""
    busy: int = 0
    """How often the store was busy."""
    written: dict[int, int] = field(default_factory=dict)
    """Rows that were written, by second."""
    overtaken: int = 0
    """Requests that arrived after one that was sent later."""
    latest: int = 0
    """The number of the last sent request that has arrived."""
    chance: random.Random = field(default_factory=lambda: random.Random(20090615))


class Inside:
    """The requests that a store is processing."""

    def __init__(self) -> None:
        self._count = 0
        self.none = asyncio.Event()
        self.none.set()

    def __enter__(self) -> None:
        self._count += 1
        self.none.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self.none.set()


class NetworkTable(ForwardingTable):
    """A table behind a network."""

    def __init__(self, table: Table, network: Network, *, clock: Clock, owner: str) -> None:
        super().__init__(table)
        self._sky = network
        self._clock = clock
        self._owner = owner
        self.inside = Inside()
        self.alive = True
        """Whether the process that uses it is alive."""

    async def kill(self, worker: asyncio.Task[None]) -> None:
        """Ends the worker that uses it as SIGKILL does: it sends no more requests, and puts nothing
        back.
        """
        self.alive = False
        with patch.object(release_queue, "LAST_RELEASE", 0.0):
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        await self._there()
        if self._sky.mute:
            raise Unknown
        self._count(len(ops))
        with self.inside:
            etags = await self.table.commit(partition, ops)
        await self._takes_time()
        return etags

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        await self._there()
        with self.inside:
            rows = [row async for row in self.table.scan(partition, first, last, limit)]
        await self._takes_time()
        for row in rows:
            yield row

    async def _there(self) -> None:
        self._sky.asked.append((self._clock.monotonic(), self._owner))
        number = len(self._sky.asked)
        if self.alive:
            await self._takes_time()
        if self._sky.away or not self.alive:
            raise Unavailable
        if self._sky.refusing and self._sky.chance.random() < self._sky.refusing:
            raise Busy(1.0)
        self._sky.overtaken += number < self._sky.latest
        self._sky.latest = max(number, self._sky.latest)

    async def _takes_time(self) -> None:
        if self._sky.delays is not None:
            await self._clock.sleep(self._sky.chance.uniform(*self._sky.delays))

    def _count(self, rows: int) -> None:
        second = int(self._clock.monotonic())
        written = self._sky.written.get(second, 0) + rows
        if self._sky.a_second and written > self._sky.a_second:
            self._sky.busy += 1
            raise Busy(1.0)
        self._sky.written[second] = written


class TimedRunner(FakeRunner):
    """Calls no handlers; its runs end `ok` after some seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__(at_once=not seconds)
        self._clock = clock
        self._seconds = seconds
        self._ends: set[asyncio.Task[None]] = set()

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:
        execution = super().start(call, report, deadline)
        if self._seconds:
            run = self.runs[call.item.id][-1]
            self._ends.add(asyncio.get_running_loop().create_task(self._end(run)))
        return execution

    async def _end(self, run: FakeRun) -> None:
        await self._clock.sleep(self._seconds)
        if not run.ended.done():
            run.end()


@dataclass(kw_only=True)
class Hired:
    """A worker under way."""

    runner: FakeRunner
    table: NetworkTable
    task: asyncio.Task[None]
    told: list[BoardEvent]

    @property
    def order(self) -> list[str]:
        """The items that it ran, in this order."""
        return self.runner.order

    def of(self, kind: type[Found]) -> list[Found]:
        return [event for event in self.told if isinstance(event, kind)]

    async def dies(self) -> None:
        await self.table.kill(self.task)


@dataclass(kw_only=True)
class Fleet(Scene):
    """A board, and workers that share it."""

    open_table: OpenTable
    network: Network
    workers: list[Hired] = field(default_factory=list)
    tables: list[NetworkTable] = field(default_factory=list)

    async def hire(
        self,
        owner: str,
        *,
        cycle: float = 60.0,
        slots: int = 8,
        lasts: float = 0.0,
        network: Network | None = None,
        skew: float = 0.0,
        table: Table | None = None,
        coordinator: bool = False,
    ) -> Hired:
        """Starts a worker whose handlers take `lasts` seconds, and whose wall clock is wrong by
        `skew` seconds. Its table uses the store's clock.
        """
        clock = SkewedClock(self.clock, skew)
        own = table or await self.open_table(self.clock)
        under = NetworkTable(own, network or self.network, clock=self.clock, owner=owner)
        self.tables.append(under)
        board = await board_on(own, clock, Settings(), seed=len(self.tables) + 2)  # type: ignore[arg-type]
        told: list[BoardEvent] = []
        events = EventEmitter(owner)
        events.subscribe(told.append)
        runner = TimedRunner(self.clock, lasts)
        worker = assemble(
            board.using(under),
            WorkerSetup(
                settings=WorkerSettings(
                    cycle=timedelta(seconds=cycle), slots=slots, coordinator=coordinator
                ),
                events=events,
                inline=runner,
                process=runner,
            ),
            handlers=HANDLERS,
            wake=TurnedWake(self.clock, every=cycle),
        )
        task = asyncio.get_running_loop().create_task(worker.work(Mode.FOREVER))
        self.workers.append(Hired(runner=runner, table=under, task=task, told=told))
        await self.settle()
        return self.workers[-1]

    async def turn(self, seconds: float, *, step: float = 1.0, drift: float = 0.0) -> None:
        """Advance the clock by steps; after each that ends a sleep all tasks run until they wait.
        `drift` is the number of seconds that the wall clock gains in a second.
        """
        await self.settle()
        for _ in range(round(seconds / step)):
            has_ended_some = self.clock.advance(step)
            self.clock.jump(step * drift)
            if has_ended_some:
                await self.settle()

    async def settle(self) -> None:
        """Wait until all tasks wait for the clock."""
        await settled()
        while busy := [table for table in self.tables if not table.inside.none.is_set()]:
            await busy[0].inside.none.wait()
            await settled()

    async def history(self, item_id: str = "davis") -> list[Run]:
        """The runs of an item, the oldest first."""
        return (await self.runs(item_id))[::-1]

    async def close(self) -> None:
        for one in self.workers:
            await one.dies()
        for table in self.tables:
            await table.close()


def with_fleet(test: Test) -> Callable[..., None]:
    """Run an async test with a fresh fleet on each store. A parameter `begins` is the number of
    seconds by which all clocks, also the store's, are wrong from the beginning.
    """

    async def told(open_table: OpenTable, **arguments: Any) -> None:
        clock = ManualClock(START + timedelta(seconds=arguments.get("begins", 0.0)))
        table = await open_table(clock)
        board = await board_on(table, clock, Settings())
        fleet = Fleet(
            table=FaultyTable(table),
            clock=clock,
            board=board,
            other=board,
            open_table=open_table,
            network=Network(),
        )
        try:
            await test(fleet, **arguments)
            await fleet.close()
            assert await disagreements(board) == []
        finally:
            await fleet.close()
            await table.close()

    return on_each_store(told, test)
