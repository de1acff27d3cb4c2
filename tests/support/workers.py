"""Workers in a test: the test advances their clock, wakes them, and ends their handlers.

`@with_workers` runs an async test beside workers on a fresh board of every store. At the end all
workers are stopped, and the rows must agree with each other.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from blackboard.assembly import WorkerSetup, assemble
from blackboard.board_worker import WorkerSettings
from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent
from blackboard.handlers.handler import Handler, Source, handler, handlers_of
from blackboard.model import ANNOUNCE_EVERY, Ended, Outcome, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.retention import Retention
from blackboard.protocol.rows import data_of
from blackboard.runners.runner import Execution, HandlerCall, Reporter
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec
from blackboard.table import ANY, Conflict, ConflictKind, Delete, Etag, Insert, Merge, Op, Row
from blackboard.worker.membership import ANNOUNCE_SOON
from blackboard.worker.peers import FIRST, Peers
from blackboard.worker.wake import Wake
from blackboard.worker.worker import Mode, Worker
from tests.support.boards import Scene, Test, disagreements, on_each_store
from tests.support.clocks import ManualClock, SeededChance
from tests.support.faults import FaultyTable
from tests.support.patience import patience
from tests.support.stores import OpenTable
from tests.support.turns import one_turn

Found = TypeVar("Found", bound=BoardEvent)

SINGLY, IN_BULK = 2.2, 0.085
"""The most requests of a run, for runs one by one, and for many at a time."""
PATIENCE = patience(30.0)
"""Seconds to wait for a condition before a test fails."""


@handler("feed", retries=0)
async def _feed(item: Any, ctx: Any) -> None:
    """A coroutine."""


@handler("plain")
def _plain(item: Any, ctx: Any) -> None:
    """A plain function."""


@handler("rare", slots=1)
async def _rare(item: Any, ctx: Any) -> None:
    """One at a time in a worker."""


@handler("fenced", fenced=True)
async def _fenced(item: Any, ctx: Any) -> None:
    """Of a type that drops late results."""


@handler("scarce", concurrency=2)
async def _scarce(item: Any, ctx: Any) -> None:
    """Two at a time on the board."""


@handler("polite", key="host")
async def _polite(item: Any, ctx: Any) -> None:
    """One at a time for each host."""


_ALL = (_feed, _plain, _rare, _fenced, _scarce, _polite)
HANDLERS: Mapping[str, Handler] = {one.type: one for each in _ALL for one in handlers_of(each)}


async def until(condition: Callable[[], object], what: str) -> None:
    """Let other tasks run until a condition holds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await one_turn()
    except TimeoutError:
        raise AssertionError(f"it did not happen: {what}") from None


class HandWake(Wake):
    """A wake that the test controls, and that keeps the seconds for which it was asked."""

    def __init__(self) -> None:
        super().__init__(math.inf)
        self.wishes: list[float] = []
        self.waiting = False
        self.rounds = 0
        self.running = False

    def start(self) -> None:
        self.running = True

    def within(self, seconds: float) -> None:
        self.wishes.append(seconds)

    async def wait(self) -> bool:
        self.rounds += 1
        self.waiting = True
        await self._event.wait()
        self._event.clear()
        self.waiting = False
        beaten, self._beaten = self._beaten, False
        return beaten

    def stop(self) -> None:
        self.running = False


@dataclass
class FakeRun:
    """A handler that was called, and ends when the test ends it, or when it is stopped."""

    call: HandlerCall
    report: Reporter
    deadlines: list[float]
    lost: str = ""
    asked_to_end: str = ""
    stopped: Ended | None = None
    deaf: bool = False
    """Whether it goes on when it is stopped."""
    ended: asyncio.Future[Ended] = field(default_factory=asyncio.Future)

    async def wait(self) -> Ended:
        return await asyncio.shield(self.ended)

    def when_ended(self, call: Callable[[Ended], None]) -> None:
        self.ended.add_done_callback(lambda ended: call(ended.result()))

    def extend(self, deadline: float) -> None:
        self.deadlines.append(deadline)

    def lose(self, reason: str) -> None:
        self.lost = reason

    def ask_to_end(self, reason: str) -> None:
        self.asked_to_end = reason

    def stop(self, outcome: Outcome, reason: str) -> None:
        if self.stopped is None and not self.ended.done():
            self.stopped = Ended(outcome=outcome, error=reason)
            if not self.deaf:
                self.ended.set_result(self.stopped)

    def end(self, outcome: Outcome = Outcome.OK, *, error: str = "", **answer: Any) -> None:
        self.ended.set_result(Ended(outcome=outcome, error=error, **answer))

    def not_begun(self, error: str) -> None:
        self.ended.set_result(Ended(outcome=Outcome.FAILED, error=error, begun=False))


class FakeRunner:
    """A runner that calls no handlers."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self.runs: dict[str, list[FakeRun]] = defaultdict(list)
        self.order: list[str] = []
        self.starts = True
        """Whether a try to start a process succeeds."""
        self.tries = 0
        """How often it was tried."""

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:
        report.called()
        run = FakeRun(call, report, [deadline])
        self.runs[call.item.id].append(run)
        self.order.append(call.item.id)
        if self.at_once:
            run.end()
        return run

    async def can_start(self, source: Source) -> bool:
        self.tries += 1
        return self.starts

    async def close(self) -> None:
        for run in self.all():
            run.deaf = False
            run.stop(Outcome.CANCELLED, "the worker ended")
            if not run.ended.done():
                run.end(Outcome.CANCELLED)

    def all(self) -> list[FakeRun]:
        return [run for runs in self.runs.values() for run in runs]


class FaultyShards(FaultyTable):
    """A table without faults for membership rows: these are written and read independently, so a
    script counts only the requests to the board.
    """

    looks_at_members = 0
    """How often the membership rows were read."""

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if partition.endswith("-workers"):
            return await self.table.commit(partition, ops)
        return await super().commit(partition, ops)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        if partition.endswith("-workers"):
            self.looks_at_members += 1
            rows = self.table.scan(partition, first, last, limit)
        else:
            rows = super().scan(partition, first, last, limit)
        async for row in rows:
            yield row


@dataclass(kw_only=True)
class WorkerScene:
    """A worker that runs, with its events and its handlers."""

    worker: Worker
    wake: HandWake
    inline: FakeRunner
    process: FakeRunner
    told: list[BoardEvent]
    turned: list[float]
    task: asyncio.Task[None]

    @property
    def order(self) -> list[str]:
        """The items whose coroutines were called, in this order."""
        return self.inline.order

    async def run(self, item_id: str, number: int = 0) -> FakeRun:
        """The run of an item, once its handler is called."""
        runners = (self.inline, self.process)

        def found() -> list[FakeRun]:
            return [run for runner in runners for run in runner.runs.get(item_id, [])]

        await until(lambda: len(found()) > number, f"run {number} of {item_id}")
        return found()[number]

    async def walk(self) -> None:
        """Make the worker walk over all shards, as at the next beat; wait for the end."""
        await self._woken(self.wake.beat)

    async def looks_again(self) -> None:
        """Wake the worker between two beats; wait for the end of what it does."""
        await self._woken(self.wake.now)

    async def _woken(self, wake: Callable[[], None]) -> None:
        await until(lambda: self.wake.waiting or self.task.done(), "the walk before")
        before = self.wake.rounds
        wake()
        await until(lambda: self.is_idle(before) or self.task.done(), "a walk")

    def is_idle(self, before: int = 0) -> bool:
        return self.wake.waiting and self.wake.rounds > before and not self.wake._event.is_set()

    def of(self, kind: type[Found]) -> list[Found]:
        return [event for event in self.told if isinstance(event, kind)]

    async def tells(self, kind: type[Found], times: int = 1) -> Found:
        await until(lambda: len(self.of(kind)) >= times, f"the event {kind.__name__}")
        return self.of(kind)[times - 1]

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.task), PATIENCE)

    async def stop(self) -> None:
        while not self.task.done():
            self.worker.stop()
            await self.inline.close()
            await self.process.close()
            await one_turn()
        await self.task


@dataclass(kw_only=True)
class Workplace(Scene):
    """A board, and workers that share it."""

    open_table: OpenTable
    settings: Settings
    workers: list[WorkerScene] = field(default_factory=list)
    tables: list[Any] = field(default_factory=list)

    async def board_of_its_own(self) -> BoardTable:
        """The board, opened as by one more process."""
        table = await self.open_table(self.clock)
        self.tables.append(table)
        return await board_on(table, self.clock, self.settings, seed=len(self.tables) + 2)

    async def worker(
        self,
        mode: Mode = Mode.FOREVER,
        *,
        owner: str = "me",
        board: BoardTable | None = None,
        handlers: Mapping[str, Handler] = HANDLERS,
        at_once: bool = False,
        **settings: Any,
    ) -> WorkerScene:
        """Starts a worker on the board with faults, and waits for its first walk."""
        told: list[BoardEvent] = []
        turned: list[float] = []
        events = EventEmitter(owner)
        events.subscribe(told.append)
        inline, process = FakeRunner(at_once=at_once), FakeRunner(at_once=at_once)
        wake = HandWake()
        worker = assemble(
            board or self.board,
            WorkerSetup(
                settings=WorkerSettings(**settings),
                job_settings=self.settings.jobs,
                events=events,
                inline=inline,
                process=process,
                watchdog=turned.append,
            ),
            handlers=handlers,
            wake=wake,
        )
        task = asyncio.get_running_loop().create_task(worker.work(mode))
        made = WorkerScene(
            worker=worker,
            wake=wake,
            inline=inline,
            process=process,
            told=told,
            turned=turned,
            task=task,
        )
        self.workers.append(made)
        busy = mode is not Mode.FOREVER
        await until(
            lambda: made.is_idle() or task.done() or (busy and (inline.order or process.order)),
            "the first walk",
        )
        return made

    async def sleeps(self, seconds: float) -> None:
        """Wait until a task has begun to sleep for so long, since the clock was last turned."""

        def found() -> bool:
            return any(abs(asked - seconds) < 1e-6 for asked in self.clock.begun())

        await until(found, f"something sleeps for {seconds:g} s")

    async def announced(self) -> None:
        """Let a worker that was just started announce itself again: next in a minute."""
        for seconds in ANNOUNCE_SOON:
            await self.sleeps(seconds)
            self.later(seconds=seconds)
        await self.sleeps(ANNOUNCE_EVERY)

    async def ended(self, item_id: str, *, runs: int = 1) -> list[tuple[int, str]]:
        """The outcomes of an item, once there are so many."""
        async with asyncio.timeout(PATIENCE):
            while len(found := await self.outcomes(item_id)) < runs:
                await one_turn()
        return found


async def board_on(table: Any, clock: ManualClock, settings: Settings, **about: Any) -> BoardTable:
    return await BoardTable.create(
        table,
        name="town",
        shards=about.get("shards", 1),
        clock=clock,
        chance=SeededChance(about.get("seed", 1)),
        resolve=resolver(settings, HANDLERS),
    )


def with_workers(test: Test) -> Callable[..., None]:
    """Run an async test at a fresh workplace of each store. A parameter `shards` is the number of
    the board's shards.
    """

    async def told(open_table: OpenTable, **arguments: Any) -> None:
        clock, settings = ManualClock(), Settings()
        table, another = await open_table(clock), await open_table(clock)
        faulty = FaultyShards(table)
        shards = arguments.get("shards", 1)
        place = Workplace(
            table=faulty,
            clock=clock,
            board=await board_on(faulty, clock, settings, seed=1, shards=shards),
            other=await board_on(another, clock, settings, seed=2, shards=shards),
            open_table=open_table,
            settings=settings,
        )
        try:
            await test(place, **arguments)
            for one in place.workers:
                await one.stop()
            assert faulty.quiet, "not everything that was scripted has happened"
            assert await disagreements(place.other) == []
        finally:
            for one in place.workers:
                one.task.cancel()
            await asyncio.gather(*(one.task for one in place.workers), return_exceptions=True)
            for opened in (table, another, *place.tables):
                await opened.close()

    return on_each_store(told, test)


@asynccontextmanager
async def beside_a_stray_token(place: Workplace) -> AsyncIterator[None]:
    """Adds an item with `missed = none` and a missed slot, and a second token for that slot: it
    fits no item, and no worker can skip it.
    """
    await place.add("davis", cron="0 * * * *", missed="none")
    place.later(hours=1)
    token = await place.token()
    stray = replace(token, ready=token.ready - timedelta(minutes=1))
    partition, key = place.other.partition("davis"), keys.next_key(stray.ready, "davis")
    await place.other.table.commit(partition, [Insert(key, data_of(stray))])
    place.later(hours=1, minutes=10)
    yield
    await place.other.table.commit(partition, [Delete(key, ANY)])


@asynccontextmanager
async def beside_an_odd_lock(place: Workplace) -> AsyncIterator[None]:
    """Adds a lock of a dead holder that no worker can override: its item refuses changes."""
    await place.add("odd", every="1h", stale_after="3s")
    await place.claimed("odd", board=place.other, owner="dead")
    place.later(seconds=10)
    with taking_no_change(place, "odd"):
        yield


@contextmanager
def taking_no_change(place: Workplace, item_id: str) -> Iterator[None]:
    """Refuses each change of an item, as if its row had another etag than workers expect."""
    commit = place.table.commit

    async def refusing(partition: str, ops: Sequence[Op]) -> list[Etag]:
        for index, op in enumerate(ops):
            if isinstance(op, Merge) and op.key == keys.item_key(item_id):
                raise Conflict(index, ConflictKind.CHANGED)
        return await commit(partition, ops)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place.table, "commit", refusing)
        yield


async def add_later(
    place: Workplace, item_id: str, seconds: float, item_type: str = "feed"
) -> None:
    """Adds an item that is due in so many seconds."""
    first = place.clock.now() + timedelta(seconds=seconds)
    await add(place.other, New(id=item_id, type=item_type, spec=Spec(every="1h"), first=first))


def ids_of_shard(board: BoardTable, number: int, *, among: int = 100) -> list[str]:
    ids = (f"item-{n}" for n in range(among))
    return [one for one in ids if keys.shard_of(one, board.shards) == number]


def ids_by_turn(peers: Peers, token: Token, count: int) -> tuple[list[str], list[str]]:
    """So many ids of items of which another worker is the first to take such a token, and as many
    of which the worker with these peers is.
    """
    theirs, own = list[str](), list[str]()
    for number in range(8 * count + 50):
        item_id = f"{token.type}-{number}"
        is_first = peers.turn(replace(token, id=item_id)) is FIRST
        (own if is_first else theirs).append(item_id)
    return theirs[:count], own[:count]


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


KEEP_ALL = Retention(runs=10_000)
