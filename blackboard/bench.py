"""Measures how fast a store is for boards: one worker on a scratch board, and a reference.

A store that is a file gets another file beside it, any other a board of another name; both are
deleted at the end. Nothing else is read or written. Handlers do nothing, so the measurements are of
everything around them. The number of runs depends on the speed of the store, so that each
measurement takes some seconds.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from statistics import quantiles
from typing import Any

from blackboard.assembly import WorkerSetup, assemble
from blackboard.bench_handlers import coroutine, function
from blackboard.board_worker import WorkerSettings, identity
from blackboard.clock import Clock, SystemChance, SystemClock, processor
from blackboard.emitter import EventEmitter
from blackboard.errors import BlackboardError
from blackboard.events import BoardEvent, RunEnded
from blackboard.handlers.registry import registry_of
from blackboard.model import Item, Outcome, State, Token, replace
from blackboard.protocol.batches import add_ops, claim_ops, lock_of, release_ops
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import (
    meta_partition,
    notices_partition,
    permits_partition,
    workers_partition,
)
from blackboard.records import BoardRun
from blackboard.rules.transitions import claimed, released, run_of
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec, encode_spec
from blackboard.stores import beside, open_table, remove_file
from blackboard.table import ANY, Busy, Delete, Op, Table, TableError, Unavailable, Unusable
from blackboard.tables.retrying import RetryingTable
from blackboard.worker.wake import CycleWake
from blackboard.worker.worker import Mode, Worker

SLOTS = (8, 100)
STEPS = 4 + len(SLOTS)
"""How often `measure` calls `progress`."""
SECONDS = 4.0
"""About how many seconds one measurement takes by default."""
FEWEST, MOST = 100, 20_000
"""The fewest and the most runs of one measurement."""
MOST_BATCHES = 40
"""Full batches of claims, and of releases, that are prepared to be written with no worker."""
LAG_RATE = 100
"""Items that become ready in a second."""
LAG_CYCLE = timedelta(seconds=1)
FEW_ITEMS, MANY_ITEMS = 10, 5_000
STRIDE = 7_919
"""A prime: items that are due one after the other have ids that are so far apart."""
LONGEST_WAIT = 120.0
"""Seconds until a measurement that does not end is given up, and the deletion at the end."""
PAUSE = 1.0
"""Seconds before the deletion at the end is tried again."""
FEEDS = [f"https://example.org/feed-{number}.ics" for number in range(3)]
SPEC = Spec(every="8h", params={"feeds": FEEDS, "out": "out"})


HANDLERS = registry_of([coroutine, function])
RESOLVE = resolver(Settings(), HANDLERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measured value and, in the same unit, `beside`, a reference value."""

    name: str
    value: float
    unit: str
    beside: float
    reference: str
    """The name of the reference."""

    @property
    def ratio(self) -> float:
        return self.value / self.beside


async def measure(
    store: str, progress: Callable[[str], None], *, seconds: float = SECONDS
) -> AsyncIterator[Measurement]:
    """Yields measurements, each of which takes about `seconds`. `progress` is called with the name
    of the next one. Raises what opening the store raises; Unavailable for a store
    that is too slow, BlackboardError for a run that fails.
    """
    clock, chance = SystemClock(), SystemChance()
    name = f"bench_{chance.nonce()[:8]}"
    async with scratch_table(store, name, clock) as table:
        scratch = Scratch(table, name, clock)
        progress("the rows of runs, without a worker")
        alone = await scratch.rows_alone(seconds)
        in_runs = partial(
            Measurement, unit="runs/s", beside=alone.rate, reference="the same rows, no worker"
        )
        runs = min(max(int(alone.rate * seconds / 2), FEWEST), MOST)
        for slots in SLOTS:
            progress(f"{runs:,} runs of a coroutine, {slots} slots")
            measured = await scratch.worked_off(runs, coroutine, slots=slots)
            yield in_runs(name=f"coroutines, {slots} slots", value=measured.rate)
        yield Measurement(
            name=f"requests of a run, {SLOTS[-1]} slots",
            value=measured.requests / runs,
            unit="requests",
            beside=2.0,
            reference="a claim and a release each",
        )
        yield Measurement(
            name="CPU for the rows of a run",
            value=1000 * alone.cpu,
            unit="ms",
            beside=1000 * measured.cpu,
            reference=f"a run of a coroutine, {SLOTS[-1]} slots",
        )
        few = max(runs // 4, FEWEST)
        for slots in SLOTS:
            progress(f"{few:,} runs of a plain function, {slots} slots")
            measured = await scratch.worked_off(few, function, slots=slots, warm=few // 10)
            yield in_runs(name=f"plain functions, {slots} slots", value=measured.rate)
        progress(f"a look at {MANY_ITEMS:,} items of which none is due")
        yield Measurement(
            name=f"an idle look, {MANY_ITEMS:,} items",
            value=1000 * await scratch.idle_look(MANY_ITEMS),
            unit="ms",
            beside=1000 * await scratch.idle_look(FEW_ITEMS),
            reference=f"{FEW_ITEMS} items",
        )
        due = LAG_RATE * math.ceil(seconds)
        progress(f"{due} items due one by one, {LAG_RATE} a second")
        lags = await scratch.lags(due)
        cycle = 1000 * LAG_CYCLE.total_seconds()
        for percent in (50, 99):
            yield Measurement(
                name=f"from due to started, p{percent}",
                value=1000 * lags[percent - 1],
                unit="ms",
                beside=cycle,
                reference="the cycle of the worker",
            )


@asynccontextmanager
async def scratch_table(store: str, name: str, clock: Clock) -> AsyncIterator[Table]:
    """A table on the same store, whose rows are deleted at the end. So many requests may make the
    store busy: all but those of the worker are made again then.
    """
    file = beside(store, f"{name}.db")
    try:
        opened = await open_table(file or store, clock, create=file is not None)
        table = opened if file is not None else RetryingTable(opened, clock)
        try:
            yield table
        finally:
            try:
                if file is None:
                    await _delete_at_last(table, name, clock)
            finally:
                await table.close()
    finally:
        if file is not None:
            remove_file(file)


async def _write(table: Table, partition: str, ops: Sequence[Op]) -> None:
    """Writes operations in full batches."""
    for start in range(0, len(ops), table.max_rows):
        await table.commit(partition, ops[start : start + table.max_rows])


async def _delete(table: Table, name: str) -> None:
    """Deletes all rows of the boards that were made here. Raises Unavailable if some are left."""
    others = (meta_partition, notices_partition, permits_partition, workers_partition)
    try:
        for partition in (name, *(name_of(name) for name_of in others)):
            ops: list[Op] = [Delete(row.key, ANY) async for row in table.scan(partition)]
            await _write(table, partition, ops)
    except TableError as trouble:
        problem = f"rows of the scratch board {name!r} are left in the table"
        raise Unavailable(f"{problem}: {trouble}") from trouble


async def _delete_at_last(table: Table, name: str, clock: Clock) -> None:
    """Deletes them as well where the store is busy or away for less than `LONGEST_WAIT`."""
    until = clock.monotonic() + LONGEST_WAIT
    while True:
        try:
            return await _delete(table, name)
        except Unavailable as left:
            trouble = left.__cause__
            passes = isinstance(trouble, Busy | Unavailable) and not isinstance(trouble, Unusable)
            if not passes or clock.monotonic() > until:
                raise
        await clock.sleep(PAUSE)


@dataclass(frozen=True, slots=True)
class Worked:
    """The speed and the cost of the runs on a board."""

    rate: float
    """Runs in a second."""
    requests: int
    cpu: float
    """Seconds of CPU of this process for one run."""


class Scratch:
    """A board that is made anew for each measurement."""

    def __init__(self, table: Table, name: str, clock: Clock) -> None:
        self._table = table
        self._name = name
        self._clock = clock

    async def rows_alone(self, seconds: float) -> Worked:
        """Writes the rows of runs in full batches, with no worker."""
        size = self._table.max_rows // 4  # a release has four rows
        board = await self._filled(size * MOST_BATCHES, coroutine)
        batches = await batches_of(board, size)
        before, cpu = replace(self._table.requests), processor()
        begun, done = self._clock.monotonic(), 0
        for claims, releases in batches:
            for ops in (claims, releases):
                await self._table.commit(board.partition(""), ops)
            done += size
            if self._clock.monotonic() - begun > seconds:
                break
        rate = done / (self._clock.monotonic() - begun)
        spent = self._table.requests.since(before).total
        return Worked(rate, spent, (processor() - cpu) / done)

    async def worked_off(
        self, items: int, handler: Callable[..., Any], *, slots: int, warm: int = 0
    ) -> Worked:
        """Runs so many due items with one worker. The rate leaves out the first `warm` runs, in
        which the worker starts its child processes.
        """
        board = await self._filled(items, handler)
        before, cpu = replace(self._table.requests), processor()
        moments = [self._clock.monotonic()]
        moments += [moment for moment, _ in await self._work(board, slots=slots, runs=items)]
        spent = self._table.requests.since(before).total
        cpu = (processor() - cpu) / items
        return Worked((items - warm) / (moments[-1] - moments[warm]), spent, cpu)

    async def idle_look(self, items: int) -> float:
        """The fewest seconds that a worker takes to find that nothing is due."""
        board = await self._filled(items, coroutine, due_in=timedelta(hours=8))
        taken = []
        for _ in range(5):
            begun = self._clock.monotonic()
            now = await board.table.now()
            async for _ in board.read_shard(0, until=now + LAG_CYCLE):
                pass
            taken.append(self._clock.monotonic() - begun)
        return min(taken)

    async def lags(self, items: int) -> list[float]:
        """Seconds from ready to start: 99 percentiles, for items that become ready one by one."""
        each = timedelta(seconds=1) / LAG_RATE
        board = await self._filled(items, coroutine, due_in=LAG_CYCLE, apart=each)
        runs = await self._work(board, slots=SLOTS[-1], runs=items)
        return quantiles((run.lag for _, run in runs), n=100)

    async def _work(
        self, board: BoardTable, *, slots: int, runs: int
    ) -> list[tuple[float, BoardRun]]:
        """Runs a worker until so many runs have ended: these, and when each has ended."""
        worker = worker_on(board, slots=slots, cycle=LAG_CYCLE)
        ended: list[tuple[float, BoardRun]] = []

        def note(event: BoardEvent) -> None:
            if isinstance(event, RunEnded):
                ended.append((self._clock.monotonic(), event.run))
                if event.run.outcome is not Outcome.OK or len(ended) == runs:
                    worker.stop()

        worker.events.subscribe(note)
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                await worker.work(Mode.FOREVER)
        except TimeoutError:
            late = f"{runs - len(ended):,} of {runs:,} runs were left after {LONGEST_WAIT:g} s"
            raise Unavailable(f"{late}: this store is too slow to measure") from None
        for _, run in ended:
            if run.outcome is not Outcome.OK:
                problem = run.error or run.outcome.value
                raise BlackboardError(f"a run of the measurement failed: {problem}")
        return ended

    async def _filled(
        self,
        items: int,
        handler: Callable[..., Any],
        *,
        due_in: timedelta = timedelta(0),
        apart: timedelta = timedelta(0),
    ) -> BoardTable:
        await _delete(self._table, self._name)
        return await filled_board(
            self._table,
            self._name,
            items,
            item_type=next(each.type for each in HANDLERS.values() if each.function is handler),
            due_in=due_in,
            apart=apart,
        )


async def filled_board(
    table: Table,
    name: str,
    items: int,
    *,
    item_type: str,
    due_in: timedelta = timedelta(0),
    apart: timedelta = timedelta(0),
) -> BoardTable:
    """A board of one shard with so many items: the first is due so long from now, each other one a
    little later. As on any board, they are due in another order than that of their ids.
    """
    clock, chance = SystemClock(), SystemChance()
    board = await BoardTable.create(
        table, name=name, shards=1, clock=clock, chance=chance, resolve=RESOLVE
    )
    now, spec = await table.now(), encode_spec(SPEC)
    ops: list[Op] = []
    for number in range(items):
        turn = number * STRIDE % items
        ready = now + due_in + turn * apart
        if not due_in:
            ready -= timedelta(milliseconds=items - turn)
        item = Item(
            id=f"town-{number:06d}",
            type=item_type,
            state=State.ACTIVE,
            spec=spec,
            slot=ready,
            ready=ready,
            planned=ready,
            schedule="every 8h",
        )
        ops += add_ops(item, over=None)
    await _write(table, board.partition(""), ops)
    return board


def worker_on(board: BoardTable, *, slots: int, cycle: timedelta = timedelta(seconds=60)) -> Worker:
    """A worker as the command line makes one."""
    process = ProcessRunner(idle=slots)
    return assemble(
        board,
        WorkerSetup(
            settings=WorkerSettings(slots=slots, cycle=cycle),
            events=EventEmitter(identity(board.chance)),
            inline=InlineRunner(),
            process=process,
            watchdog=process.loop_turns,
        ),
        handlers=HANDLERS,
        wake=CycleWake(cycle.total_seconds(), board.chance),
    )


Batches = Sequence[tuple[Sequence[Op], Sequence[Op]]]
"""Claims, and the releases of the same runs."""


async def batches_of(board: BoardTable, size: int) -> Batches:
    """The batches of a worker, with ANY for the etags that it would get from the store."""
    now = await board.table.now()
    tokens = [token async for token in board.read_shard(0, until=now) if isinstance(token, Token)]
    items = {item.id: item async for item in board.items()}
    batches = []
    for start in range(0, len(tokens), size):
        claims: list[Op] = []
        releases: list[Op] = []
        for token in tokens[start : start + size]:
            written, released = _run_of(board, token, items[token.id], now)
            claims += written
            releases += released
        batches.append((claims, releases))
    return batches


def _run_of(
    board: BoardTable, token: Token, item: Item, now: datetime
) -> tuple[list[Op], list[Op]]:
    settings = board.resolve(item.type, item.spec)
    held = claimed(item, settings=settings, owner="host:1:00000000", now=now)
    lock = lock_of(held, nonce="0" * 32, stale_after=28_800.0)
    run = run_of(held, Outcome.OK, now=now, nonce=lock.nonce, result='{"ok":1}')
    after = released(held, run, settings=settings, fraction=0.0)
    return claim_ops(token, held, lock), release_ops(replace(held, etag=ANY), ANY, after, run)
