"""A board and its workers, put together from arguments, the environment and the settings.

`Location` is which board is meant, and opens it. `WorkerSettings` is what a worker is asked for,
`BoardWorker` what a program holds of it, and `assemble` wires its parts; nothing else does. The
parts take long to import, and are imported when the first worker is made.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from blackboard import __version__
from blackboard.clock import Chance, Clock, SystemChance, SystemClock
from blackboard.errors import BadInput, BlackboardError, MissingStore
from blackboard.events import (
    Events,
    JobsChanged,
    LoopStoodStill,
    WorkerStarted,
    WorkerStopped,
)
from blackboard.handlers.code import changed
from blackboard.handlers.handler import Handler
from blackboard.handlers.registry import check_importable
from blackboard.model import Member, Via
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.protocol.retention import Retention
from blackboard.rules.grab import Times
from blackboard.rules.shares import Balance
from blackboard.schedule.times import format_duration, parse_duration
from blackboard.settings import NO_GRACE, RedisTable, Settings, resolver
from blackboard.stores import open_table, resolve_path, when_woken
from blackboard.table import Table, TableError, read

if TYPE_CHECKING:
    from blackboard.bus import OpenBus
    from blackboard.notify.settings import NotifyTable
    from blackboard.runner import Runner
    from blackboard.runners.inline import RunOfLoop
    from blackboard.runners.process import ProcessRunner
    from blackboard.worker.heartbeat import Heartbeat
    from blackboard.worker.holdings import Holdings
    from blackboard.worker.partitions import GroupWorker
    from blackboard.worker.release_queue import Releases
    from blackboard.worker.running import Runs
    from blackboard.worker.store_breaker import StoreBreaker
    from blackboard.worker.wake import CycleWake, Wake
    from blackboard.worker.worker import Worker

DEFAULT_STORE = "blackboard.db"
DEFAULT_BOARD = "blackboard"
MARKING = 2.0
"""Seconds that a worker whose loop stands still has to write that down."""
SHARED_WALK = 0.2
"""Seconds from a change through a board until its workers walk. Other changes share the walk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Which board is meant, and what its runs are run with."""

    settings: Settings
    folder: Path
    """Where relative paths of the settings start from."""
    store: str
    name: str
    handlers: Mapping[str, Handler] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    via: Via | None = "python"
    """Through what the verbs of the board are called, for the record of actions. None: they record
    nothing, since their caller records one action for many items."""

    @property
    def resolve(self) -> Resolve:
        """What a run of an item is run with, as far as the handlers of this process say."""
        return resolver(self.settings, self.handlers)

    def check_params(self, item_type: str, params: Mapping[str, Any]) -> None:
        """Refuses params that the type's handler does not take, as far as it declares them and is
        at hand. Raises BadInput naming the field.
        """
        handler = self.handlers.get(item_type)
        if handler is not None and handler.params is not None:
            handler.params.check(params)

    @asynccontextmanager
    async def open(
        self, *, create: bool = False, shards: int = 1, on_made: Callable[[], None] = lambda: None
    ) -> AsyncIterator[BoardTable]:
        """The board, opened, with the shards that it has. With `create`, a board that is not there
        is made first, and `on_made` called.
        """
        async with self.table(create=create) as table:
            if create and not await is_there(table, self.name):
                board = await self.made(table, shards=shards)
                on_made()
                yield board
            else:
                yield await self.opened(table)

    @asynccontextmanager
    async def table(self, *, create: bool = False) -> AsyncIterator[Table]:
        """The store, opened; with `create` it is made first where it is not there."""
        keys.check_board_name(self.name)
        table = await open_table(self.store, clock=self.clock, create=create)
        try:
            yield table
        finally:
            await table.close()

    async def has_board(self) -> bool:
        """Whether the board is there. Raises StoreProblem when it could not be made either."""
        try:
            async with self.table() as table:
                return await is_there(table, self.name)
        except MissingStore:
            return False

    async def opened(self, table: Table) -> BoardTable:
        """The board, which must be there."""
        return await BoardTable.open(
            table,
            name=self.name,
            clock=self.clock,
            chance=SystemChance(),
            resolve=self.resolve,
        )

    async def made(self, table: Table, *, shards: int) -> BoardTable:
        """The board, made if it is not there. Raises BadInput when it has other shards."""
        return await BoardTable.create(
            table,
            name=self.name,
            shards=shards,
            clock=self.clock,
            chance=SystemChance(),
            resolve=self.resolve,
        )


def store_of(named: str | None, settings: Settings, folder: Path) -> str:
    """The named store, else BLACKBOARD_STORE, else `[board] store`, else blackboard.db beside the
    settings.
    """
    if named is None:
        named = os.environ.get("BLACKBOARD_STORE") or None
    if named is not None:
        return named
    declared = settings.board.store
    if declared is None and folder == Path.cwd():
        return DEFAULT_STORE
    return resolve_path(declared or DEFAULT_STORE, folder)


def name_of(named: str | None, settings: Settings) -> str:
    """The given name, else `[board] name`, else blackboard."""
    return named or settings.board.name or DEFAULT_BOARD


async def is_there(table: Table, name: str) -> bool:
    """Whether the store has a board of that name."""
    return await read(table, keys.meta_partition(name), keys.BOARD_KEY) is not None


# ---- workers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`[worker]`, and what of `[board]` concerns a worker."""

    cycle: timedelta = timedelta(seconds=60)
    slots: int = 8
    types: tuple[str, ...] = ()
    """The types to take; none: all that have a handler."""
    grace: timedelta = timedelta(seconds=30)
    retention: Retention = field(default_factory=Retention)
    coordinator: bool = False
    """Whether it takes part in coordinating the board."""


def worker_settings(
    declared: Settings,
    *,
    slots: int | None = None,
    cycle: str | timedelta | None = None,
    types: Sequence[str] = (),
    grace: str | timedelta | None = None,
) -> WorkerSettings:
    """What is given here, else what the settings declare. Raises BadInput."""
    table = declared.worker
    if slots is not None and (type(slots) is not int or slots < 1):
        raise BadInput("slots", f"{slots!r} is not a number of runs", "1 or more")
    grace = table.grace if grace is None else grace
    return WorkerSettings(
        cycle=_duration(cycle or table.cycle, "cycle"),
        slots=slots or table.slots,
        types=tuple(types) or tuple(table.types),
        grace=timedelta(0) if grace in {*NO_GRACE, timedelta(0)} else _duration(grace, "grace"),
        retention=Retention(
            runs=declared.board.history,
            age=parse_duration(declared.board.history_age, "history_age"),
            tombstones=parse_duration(declared.board.tombstones, "tombstones"),
        ),
        coordinator=declared.board.coordinator,
    )


def _duration(value: str | timedelta, name: str) -> timedelta:
    return parse_duration(format_duration(value) if isinstance(value, timedelta) else value, name)


def identity(chance: Chance) -> str:
    """host:pid:boot nonce. The nonce tells two workers apart whose host and pid are the same."""
    return f"{socket.gethostname()}:{os.getpid()}:{chance.nonce()[:8]}"


def handlers_taken(handlers: Mapping[str, Handler], types: Sequence[str]) -> dict[str, Handler]:
    """The handlers of the types a worker takes. Raises BadInput for a type that has none, and for a
    handler that a child process could not import.
    """
    for one in types:
        if one not in handlers:
            names = ", ".join(sorted(handlers)) or "none"
            raise BadInput("types", f"no handler for {one!r}", f"there are handlers for: {names}")
    taken = {name: found for name, found in handlers.items() if not types or name in types}
    for found in taken.values():
        check_importable(found)
    return taken


Until = Literal["stopped", "idle", "once"]
"""When a worker is done: when it is stopped; when nothing is due and nothing runs; after one walk
and the runs that it started."""


class BoardWorker:
    """A worker of a board, which works once.

        async with board.worker(slots=8):      it works beside what is inside, and is stopped after
            await serve()
        await board.worker().work("idle")      it works here, until nothing is due and nothing runs

    A worker that is stopped claims nothing more, gives what runs its grace, then cancels it and
    puts it back: due again at once. When the worker fails, what is inside is cancelled, and its
    error is raised at the end of the block.
    """

    def __init__(
        self,
        worker: "Worker",
        *,
        settings: WorkerSettings,
        wake: "CycleWake",
        store: str,
        groups: Sequence["GroupWorker"] = (),
    ) -> None:
        self.name = worker.events.worker
        """host:pid:boot nonce, as items and runs name it."""
        self.events = worker.events
        """What subscribers listen to."""
        self._worker = worker
        self._settings = settings
        self._wake = wake
        self._store = store
        self._groups = groups
        self._is_working = False
        self._ended = asyncio.Event()
        self._is_over = False
        """Its board is closed."""
        self._soon: asyncio.TimerHandle | None = None
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Asked once: no more claims, and grace for what runs. Asked again: no grace."""
        for one in self._groups:
            one.stop()
        self._worker.stop()

    async def end(self) -> None:
        """Stop it without grace, and wait for its end. It does not begin to work any more."""
        self._is_over = True
        if self._is_working:
            self.stop()
            self.stop()
            await self._ended.wait()

    def walk_soon(self) -> None:
        """Walk the board without waiting for the cycle: something on it was changed."""
        if self._is_working and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SHARED_WALK, self._walk_now)

    def _walk_now(self) -> None:
        """Walk, and ask for the locks that are held: one of them may have been cancelled."""
        self._soon = None
        self._wake.beat()
        self._worker.heartbeat.ask(*self._worker.holdings)

    async def work(self, until: Until = "stopped") -> None:
        """Work until then, or until `stop` is called. Partitions are served by a worker that works
        until it is stopped: they have no end. Raises TableError when the store cannot work, or the
        board is another by now.
        """
        from blackboard.worker.worker import Mode

        if self._is_over:
            raise BlackboardError("its board is closed: work inside the block of `blackboard.open`")
        modes = {"stopped": Mode.FOREVER, "idle": Mode.UNTIL_IDLE, "once": Mode.ONCE}
        if until not in modes:
            raise BadInput("until", f"{until!r} is none", f"one of {', '.join(modes)}")
        events, worker = self.events, self._worker
        groups = {one.handler.type: one for one in self._groups if until == "stopped"}
        events.emit(
            WorkerStarted,
            slots=self._settings.slots,
            cycle=self._settings.cycle.total_seconds(),
            types=tuple(sorted([*worker.runs.calls.handlers, *groups])),
            groups=tuple(sorted(groups)),
        )
        self._is_working = True
        try:
            with when_woken(self._store, self.walk_soon):
                async with asyncio.TaskGroup() as beside:
                    for one in groups.values():
                        beside.create_task(one.work())
                    watch = beside.create_task(self._watch_jobs())
                    await worker.work(modes[until])
                    watch.cancel()
        except BaseExceptionGroup as problems:
            raise _first_of(problems) from None
        finally:
            self._is_working = False
            self._ended.set()
            if self._soon is not None:
                self._soon.cancel()
        requests = worker.board.table.requests.by_kind
        runs = worker.releases.runs + sum(one.releases.runs for one in self._groups)
        events.emit(WorkerStopped, runs=runs, requests=requests)

    async def _watch_jobs(self) -> None:
        """Emit an event when files of the jobs have changed. They are looked at once a cycle."""
        reported: list[str] = []
        while True:
            await self._worker.board.clock.sleep(self._settings.cycle.total_seconds())
            files = changed()
            if files and files != reported:
                self.events.emit(JobsChanged, files=tuple(files))
            reported = files

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._task = self._group.create_task(self.work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the worker and wait for it; a cancellation meanwhile ends it without grace."""
        assert self._task is not None
        cancelled = problem if isinstance(problem, asyncio.CancelledError) else None
        if not self._task.done():
            self.stop()
            try:
                await asyncio.wait([self._task])
            except asyncio.CancelledError as another:
                cancelled = another
        try:
            await self._group.__aexit__(
                type(cancelled) if cancelled else None, cancelled, traceback
            )
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None


def _first_of(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    """What was raised first, out of all groups around it."""
    first = problems.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def new_worker(
    board: BoardTable,
    *,
    handlers: Mapping[str, Handler],
    settings: WorkerSettings,
    declared: Settings,
    events: Events,
    store: str,
    guards_loop: bool = False,
) -> BoardWorker:
    """A worker as every process has it: beats by the clock, coroutines on this loop, plain
    functions in child processes. It walks early when the workers of the store are woken. With
    `guards_loop` a loop that stands still for longer than a lease ends its process: for a process
    that does nothing else.
    """
    from blackboard.runners.inline import InlineRunner
    from blackboard.runners.process import ProcessRunner
    from blackboard.worker.wake import CycleWake

    traced = _traced(board.clock) if declared.worker.otel else _untraced
    pumps = [one for one in handlers.values() if one.pump is not None]
    handlers = {name: one for name, one in handlers.items() if one.pump is None}
    process = ProcessRunner(idle=settings.slots)
    wake = CycleWake(settings.cycle.total_seconds())
    worker = assemble(
        board,
        owner=events.worker,
        settings=settings,
        handlers=handlers,
        job_settings=declared.jobs,
        events=events,
        wake=wake,
        inline=traced(InlineRunner()),
        process=traced(process),
        turning=_watched(process, board, events, store) if guards_loop else None,
        notify=declared.notify,
    )
    groups = []
    for pump in pumps:
        # With a guard of its own, which waits for this group's heartbeat.
        process = ProcessRunner(idle=settings.slots)
        groups.append(
            group_worker(
                board.group(pump.type),
                parent=board.name,
                pump=pump,
                owner=events.worker,
                settings=settings,
                job_settings=declared.jobs,
                events=events,
                inline=InlineRunner(),
                process=process,
                turning=_watched(process, board, events, store) if guards_loop else None,
                open_bus=_redis(board.group(pump.type), pump, declared.redis),
                times=declared.redis.times(),
            )
        )
    return BoardWorker(worker, settings=settings, wake=wake, store=store, groups=groups)


def _untraced(runner: "Runner") -> "Runner":
    return runner


def _traced(clock: Clock) -> "Callable[[Runner], Runner]":
    """Gives each run of a runner a span; pumps have none, because they do not end. Raises BadInput
    where that cannot be.
    """
    from blackboard.runners.tracing import TracingRunner, set_up

    set_up()
    return partial(TracingRunner, clock=clock)


def _watched(
    process: "ProcessRunner", board: BoardTable, events: Events, store: str
) -> Callable[[float], None]:
    """Reports that the loop turns: to the guard, which ends this process when it does not, and to
    a thread that tells before in whose handler it stands still.
    """
    from blackboard.protocol.claims import mark_standstill
    from blackboard.runners.standstill import LoopWatch

    async def mark(run: "RunOfLoop") -> None:
        """Through a connection of its own: the loop of the worker's stands still."""
        async with asyncio.timeout(MARKING):
            table = await open_table(store, board.clock)
            try:
                await mark_standstill(board.asked_through(table), run.id, run.fence)
            finally:
                await table.close()

    def report(run: "RunOfLoop") -> None:
        events.emit(LoopStoodStill, run.id, run.type, run.fence)
        with suppress(TableError, BlackboardError, TimeoutError):  # the item has more attempts then
            asyncio.run(mark(run))

    watch = LoopWatch(board.clock, report)

    def turning(deadline: float) -> None:
        process.turning(deadline)
        watch.turning(deadline)

    return turning


def _redis(board: BoardTable, pump: Handler, declared: RedisTable) -> "OpenBus | None":
    """The bus of a group whose partitions are raced for. Raises BadInput where there is none."""
    if pump.pump is None or pump.pump.balance is not Balance.GRAB:
        return None
    from blackboard.worker.redis_bus import RedisBus, redis_url

    return partial(
        RedisBus,
        redis_url(os.environ, declared.url),
        prefix=f"{declared.prefix}:{board.name}",
        clock=board.clock,
        chance=board.chance,
    )


class _Parts(NamedTuple):
    """What every part of a worker that holds runs consists of."""

    breaker: "StoreBreaker"
    board: BoardTable
    """Asked through the breaker, for all but renewals."""
    renewing: BoardTable
    """The same, asked for renewals."""
    holdings: "Holdings"
    heartbeat: "Heartbeat"
    releases: "Releases"
    runs: "Runs"


def _parts(
    board: BoardTable,
    *,
    slots: int,
    handlers: Mapping[str, Handler],
    settings: WorkerSettings,
    job_settings: Mapping[str, Mapping[str, Any]],
    events: Events,
    inline: "Runner",
    process: "Runner",
    turning: Callable[[float], None] | None,
) -> _Parts:
    from blackboard.rules.breaker import Need
    from blackboard.worker.heartbeat import Heartbeat, unwatched
    from blackboard.worker.holdings import Holdings
    from blackboard.worker.release_queue import Releases
    from blackboard.worker.running import Calls, Runs
    from blackboard.worker.store_breaker import StoreBreaker

    breaker = StoreBreaker(board.clock, board.chance, events)
    renewing = breaker.board(board, Need.RENEWAL)
    board = breaker.board(board, Need.OTHER)
    holdings = Holdings(slots)
    heartbeat = Heartbeat(
        board=renewing, holdings=holdings, events=events, turning=turning or unwatched
    )
    releases = Releases(board=board, events=events, holdings=holdings, retention=settings.retention)
    calls = Calls(
        handlers=handlers,
        settings=job_settings,
        inline=inline,
        process=process,
        events=events,
        clock=board.clock,
        save=heartbeat.save,
        limit=board.table.max_value,
    )
    runs = Runs(
        holdings=holdings,
        calls=calls,
        events=events,
        shards=board.shards,
        started=heartbeat.beat,  # a watchdog has to allow for the new leases before they run
        ended=releases.add,
    )
    return _Parts(breaker, board, renewing, holdings, heartbeat, releases, runs)


def group_worker(
    board: BoardTable,
    *,
    parent: str,
    pump: Handler,
    owner: str,
    settings: WorkerSettings,
    job_settings: Mapping[str, Mapping[str, Any]],
    events: Events,
    inline: "Runner",
    process: "Runner",
    turning: Callable[[float], None] | None = None,
    open_bus: "OpenBus | None" = None,
    times: Times | None = None,
) -> "GroupWorker":
    """A worker's part in the group of a pump, of its parts. `board` is the group's, `parent` the
    name of the board that it belongs to; `open_bus` and `times` are for partitions that are raced
    for.
    """
    from blackboard.worker.partitions import MOST_PUMPS, GroupWorker

    parts = _parts(
        board,
        slots=MOST_PUMPS,
        handlers={pump.type: pump},
        settings=settings,
        job_settings=job_settings,
        events=events,
        inline=inline,
        process=process,
        turning=turning,
    )
    assert pump.pump is not None
    now = board.clock.now()
    member = Member(
        owner=owner,
        started=now,
        seen=now,
        slots=1,
        running=0,
        release=__version__,
        types=pump.type,
        cycle=pump.pump.lease.total_seconds() / 3,
    )
    return GroupWorker(
        board=parts.board,
        parent=parent,
        handler=pump,
        member=member,
        events=events,
        holdings=parts.holdings,
        heartbeat=parts.heartbeat,
        releases=parts.releases,
        runs=parts.runs,
        steady=parts.breaker.steady,
        open_bus=open_bus,
        times=times or Times(),
    )


def assemble(
    board: BoardTable,
    *,
    owner: str,
    settings: WorkerSettings,
    handlers: Mapping[str, Handler],
    job_settings: Mapping[str, Mapping[str, Any]],
    events: Events,
    wake: "Wake",
    inline: "Runner",
    process: "Runner",
    turning: Callable[[float], None] | None = None,
    notify: "NotifyTable | None" = None,
) -> "Worker":
    """A worker on `board`, of its parts. `handlers` are those of the types it takes."""
    from blackboard.worker.membership import Membership
    from blackboard.worker.peers import Peers
    from blackboard.worker.permits import Permits
    from blackboard.worker.walk import Walk
    from blackboard.worker.worker import Worker

    parts = _parts(
        board,
        slots=settings.slots,
        handlers=handlers,
        settings=settings,
        job_settings=job_settings,
        events=events,
        inline=inline,
        process=process,
        turning=turning,
    )
    board = parts.board
    notifier = None
    if notify is not None:
        from blackboard.notify.notifier import notifier_of

        notifier = notifier_of(notify, board=board, events=events, environ=os.environ)
    if notifier is not None:
        events.subscribe(notifier.heard, "notify")
    coordinator = None
    if settings.coordinator and keys.has_elections(board.name):
        from blackboard.worker.coordinator import Coordinator, HouseRules

        rules = HouseRules(retention=settings.retention, cycle=settings.cycle)
        coordinator = Coordinator(board=board, owner=owner, events=events, rules=rules)
    permits = Permits(
        board=board,
        renewing=parts.renewing,
        owner=owner,
        holdings=parts.holdings,
        freed=wake.now,
    )
    peers = Peers(owner, handlers)
    walk = Walk(
        board=board,
        owner=owner,
        handlers=handlers,
        runs=parts.runs,
        peers=peers,
        permits=permits,
        heartbeat=parts.heartbeat,
        breaker=parts.breaker,
        events=events,
        wake=wake,
        cycle=settings.cycle,
        overdue_after=notifier.overdue_after if notifier else None,
    )
    now = board.clock.now()
    member = Member(
        owner=owner,
        started=now,
        seen=now,
        slots=settings.slots,
        running=0,
        release=__version__,
        types=",".join(sorted(handlers)),
        cycle=settings.cycle.total_seconds(),
    )
    return Worker(
        board=board,
        events=events,
        wake=wake,
        holdings=parts.holdings,
        heartbeat=parts.heartbeat,
        releases=parts.releases,
        runs=parts.runs,
        walk=walk,
        permits=permits,
        membership=Membership(board, member, peers),
        notify=notifier.run if notifier else None,
        coordinate=coordinator.run if coordinator else None,
        steady=parts.breaker.steady,
        grace=settings.grace.total_seconds(),
    )
