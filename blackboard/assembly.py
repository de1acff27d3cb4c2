"""Puts the parts of a worker together. (`run --here` puts together the few that one run needs.)

The parts take long to import: import this module where a worker is made. Those that few workers
need, or that need other packages, are imported with the first worker that has them.
"""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from blackboard.board_worker import BoardWorker, WorkerSettings
from blackboard.clock import Clock
from blackboard.emitter import EventEmitter
from blackboard.errors import BlackboardError
from blackboard.events import LoopStoodStill, WorkerStoodStill
from blackboard.handlers.handler import Handler
from blackboard.model import Ended
from blackboard.notify.settings import NotifyTable
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import mark_standstill
from blackboard.protocol.releases import Released
from blackboard.rules.breaker import Need
from blackboard.rules.shares import Balance
from blackboard.runners.inline import InlineRunner
from blackboard.runners.interpreter import executable
from blackboard.runners.loop import RunOfLoop
from blackboard.runners.loop_watch import LoopWatch
from blackboard.runners.process import ProcessRunner
from blackboard.runners.runner import Runner
from blackboard.settings import RedisTable, Settings
from blackboard.sharing.coordinator import Coordinator
from blackboard.sharing.partitions import MOST_PUMPS, GroupWorker
from blackboard.sharing.races import Races
from blackboard.stores import open_table
from blackboard.table import TableError
from blackboard.worker.claimer import Claimer
from blackboard.worker.heartbeat import Heartbeat, no_watchdog
from blackboard.worker.holdings import Holding, Holdings
from blackboard.worker.judge import Judge
from blackboard.worker.left_alone import LeftAlone
from blackboard.worker.membership import Membership, new_member, types_as_text
from blackboard.worker.missed_slots import MissedSlots
from blackboard.worker.paused_shards import PausedShards
from blackboard.worker.peers import Peers
from blackboard.worker.permits import Permits
from blackboard.worker.release_queue import ReleaseQueue
from blackboard.worker.running import Runs
from blackboard.worker.stale_locks import StaleLocks
from blackboard.worker.store_breaker import StoreBreaker
from blackboard.worker.wake import CycleWake, Wake
from blackboard.worker.walk import Walk
from blackboard.worker.worker import Worker

MARKING = 2.0
"""Seconds that a worker whose loop stands still has to record that on the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """What a worker works with, on any board: its name is that in `events`."""

    settings: WorkerSettings
    events: EventEmitter
    inline: Runner
    """Calls coroutines."""
    process: Runner
    """Calls plain functions."""
    job_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The tables `[jobs.TYPE]`."""
    watchdog: Callable[[float], None] | None = None
    """Called at each beat, with the moment, in monotonic seconds, before which the next one comes;
    None: nothing watches the loop."""


def new_worker(
    board: BoardTable,
    *,
    handlers: Mapping[str, Handler],
    settings: WorkerSettings,
    declared: Settings,
    events: EventEmitter,
    store: str,
    guards_loop: bool = False,
    check_loop: Callable[[], None] | None = None,
) -> BoardWorker:
    """A worker for a real process: it beats by the clock, calls coroutines on this loop and plain
    functions in child processes. It walks early when the workers of the store are woken. With
    `guards_loop` a loop that stands still for longer than a lease ends its process: for a process
    that does nothing else. `check_loop` raises BlackboardError where it may not work.
    """
    if guards_loop:
        executable()  # of the guard
    pumps = [handler for handler in handlers.values() if handler.pump is not None]
    for pump in pumps:
        board.resolve(pump.type, "{}")  # raises BadInput for settings that a group cannot have
    served = frozenset(pump.type for pump in pumps)

    def new_setup(traced: Callable[[Runner], Runner]) -> WorkerSetup:
        process = ProcessRunner(idle=settings.slots)
        return WorkerSetup(
            settings=settings,
            job_settings=declared.jobs,
            events=events,
            inline=traced(InlineRunner()),
            process=traced(process),
            watchdog=_watchdog(process, board, served, events, store) if guards_loop else None,
        )

    wake = CycleWake(settings.cycle.total_seconds(), board.chance)
    worker = assemble(
        board,
        new_setup(_traced(board.clock) if declared.worker.otel else _untraced),
        handlers={name: handler for name, handler in handlers.items() if handler.pump is None},
        wake=wake,
        notify=declared.notify,
    )
    groups = [
        group_worker(
            board.group(pump.type),
            new_setup(_untraced),  # with a guard of its own, which needs the group's heartbeat
            parent=board.name,
            pump=pump,
            races=_races(board, pump, declared.redis),
        )
        for pump in pumps
    ]
    return BoardWorker(
        worker, settings=settings, wake=wake, store=store, groups=groups, check_loop=check_loop
    )


def _untraced(runner: Runner) -> Runner:
    return runner


def _traced(clock: Clock) -> Callable[[Runner], Runner]:
    """Gives each run of a runner a span; pumps have none, because they do not end. Raises BadInput
    where that cannot be.
    """
    from blackboard.runners.tracing import TracingRunner, set_up

    set_up()
    return partial(TracingRunner, clock=clock)


def _watchdog(
    process: ProcessRunner,
    board: BoardTable,
    groups: Container[str],
    events: EventEmitter,
    store: str,
) -> Callable[[float], None]:
    """The watchdog of the loop. It passes each beat on to the guard, which ends this process when
    the next one does not come, and to a thread that reports, some time before that, which handler
    blocks the loop. All parts of a worker share the loop, so it may be a handler of another part: a
    pump of `groups`, whose lock is on the board of its group, or a handler of `board`.
    """

    async def mark(run: RunOfLoop) -> None:
        """Marks the lock through a new connection, because the loop of the worker's is blocked."""
        async with asyncio.timeout(MARKING):
            table = await open_table(store, board.clock)
            board_of_run = board.group(run.type) if run.type in groups else board
            try:
                await mark_standstill(board_of_run.using(table), run.id, run.fence)
            finally:
                await table.close()

    def report(run: RunOfLoop | None) -> None:
        if run is None:
            events.emit(WorkerStoodStill)
            return
        events.emit(LoopStoodStill, run.id, run.type, run.fence)
        with suppress(TableError, BlackboardError, TimeoutError):  # unmarked, it has more attempts
            asyncio.run(mark(run))

    watch = LoopWatch(board.clock, report)

    def beat(deadline: float) -> None:
        process.loop_turns(deadline)
        if math.isinf(deadline):
            watch.work_is_done()  # the guard ends with the child processes, before the loop
        else:
            watch.loop_turns(deadline)

    return beat


def _races(board: BoardTable, pump: Handler, declared: RedisTable) -> Races | None:
    """The races of a group of `board`, or None where its partitions are not raced for. The time at
    which the board was made keeps apart boards of one name in two stores. Raises BadInput where
    there is no Redis.
    """
    if pump.pump is None or pump.pump.balance is not Balance.GRAB:
        return None
    from blackboard.sharing.redis_bus import RedisBus, redis_url

    created = keys.moment_key(board.created) if board.created else ""
    open_bus = partial(
        RedisBus,
        redis_url(os.environ, declared.url),
        prefix=f"{declared.prefix}:{keys.group_board(board.name, pump.type)}:{created}",
        clock=board.clock,
        chance=board.chance,
    )
    return Races(open_bus=open_bus, times=declared.times())


class _Parts(NamedTuple):
    """The objects that every part of a worker that holds runs needs."""

    breaker: StoreBreaker
    board: BoardTable
    """For all requests but renewals, through the circuit breaker."""
    renewing: BoardTable
    """The same board, for renewals."""
    holdings: Holdings
    heartbeat: Heartbeat
    releases: ReleaseQueue
    runs: Runs


def _parts(
    board: BoardTable,
    setup: WorkerSetup,
    *,
    slots: int,
    handlers: Mapping[str, Handler],
    landed: Callable[[Mapping[str, Released]], Awaitable[None]],
    ended: Callable[[Holding, Ended], None] | None = None,
    slots_freed: Callable[[], None] = lambda: None,
    starts_again: Callable[[], None] = lambda: None,
) -> _Parts:
    """The parts. The callables are those of `Runs` and `ReleaseQueue`; a run that has `ended` is
    queued for its release where no `ended` is given.
    """
    events = setup.events
    breaker = StoreBreaker(board.clock, board.chance, events, board=board.name)
    holdings = Holdings(slots)
    board = board.of_worker()
    renewing = breaker.board(board, Need.RENEWAL)
    board = breaker.board(board, Need.OTHER)
    heartbeat = Heartbeat(
        board=renewing,
        saving=board,
        holdings=holdings,
        events=events,
        watchdog=setup.watchdog or no_watchdog,
    )
    releases = ReleaseQueue(
        board=board,
        events=events,
        holdings=holdings,
        retention=setup.settings.retention,
        landed=landed,
        slots_freed=slots_freed,
    )
    runs = Runs(
        board=board,
        handlers=handlers,
        settings=setup.job_settings,
        inline=setup.inline,
        process=setup.process,
        events=events,
        holdings=holdings,
        heartbeat=heartbeat,
        ended=ended or releases.add,
        starts_again=starts_again,
    )
    return _Parts(breaker, board, renewing, holdings, heartbeat, releases, runs)


def group_worker(
    board: BoardTable, setup: WorkerSetup, *, parent: str, pump: Handler, races: Races | None
) -> GroupWorker:
    """Assembles a worker's part in the group of a pump. `board` is the group's, `parent` the
    name of the board that it belongs to.
    """
    parts = _parts(
        board,
        setup,
        slots=MOST_PUMPS,
        handlers={pump.type: pump},
        ended=lambda held, ended: worker.ended(held, ended),
        landed=lambda batch: worker.landed(batch),
    )
    worker = GroupWorker(
        board=parts.board,
        parent=parent,
        handler=pump,
        owner=setup.events.worker,
        events=setup.events,
        holdings=parts.holdings,
        heartbeat=parts.heartbeat,
        releases=parts.releases,
        runs=parts.runs,
        steady=parts.breaker.steady,
        races=races,
    )
    return worker


def assemble(
    board: BoardTable,
    setup: WorkerSetup,
    *,
    handlers: Mapping[str, Handler],
    wake: Wake,
    notify: NotifyTable | None = None,
) -> Worker:
    """Assembles a worker on `board`. `handlers` are those of the types it takes."""
    settings, events, owner = setup.settings, setup.events, setup.events.worker
    parts = _parts(
        board,
        setup,
        slots=settings.slots,
        handlers=handlers,
        landed=lambda batch: worker.landed(batch),
        slots_freed=lambda: worker.fill_slots(),
        starts_again=wake.now,
    )
    board = parts.board
    notifier = None
    if notify is not None:
        from blackboard.notify.notifier import notifier_of

        notifier = notifier_of(notify, board=board, events=events, environ=os.environ)
        events.subscribe(notifier.on_event, "notify")
    coordinator = None
    if settings.coordinator and not keys.group_of(board.name):
        coordinator = Coordinator(
            board=board,
            owner=owner,
            events=events,
            retention=settings.retention,
            cycle=settings.cycle,
            steady=parts.breaker.steady,
        )
    permits = Permits(
        board=board, renewing=parts.renewing, owner=owner, holdings=parts.holdings, freed=wake.now
    )
    peers = Peers(owner, handlers)
    walk = _walk(
        parts,
        setup,
        handlers=handlers,
        peers=peers,
        permits=permits,
        wake=wake,
        overdue_after=notifier.overdue_after if notifier else None,
    )
    member = new_member(
        owner,
        now=board.clock.now(),
        types=types_as_text(handlers, limit=board.table.max_value),
        cycle=settings.cycle.total_seconds(),
        slots=settings.slots,
    )
    worker = Worker(
        board=board,
        events=events,
        wake=wake,
        holdings=parts.holdings,
        heartbeat=parts.heartbeat,
        releases=parts.releases,
        runs=parts.runs,
        walk=walk,
        permits=permits,
        membership=Membership(board, member, peers, events),
        notify=notifier.run if notifier else None,
        coordinate=coordinator.run if coordinator else None,
        steady=parts.breaker.steady,
        grace=settings.grace.total_seconds(),
    )
    return worker


def _walk(
    parts: _Parts,
    setup: WorkerSetup,
    *,
    handlers: Mapping[str, Handler],
    peers: Peers,
    permits: Permits,
    wake: Wake,
    overdue_after: timedelta | None,
) -> Walk:
    """The walk of a worker over its board, and what it needs alone."""
    board, events, owner = parts.board, setup.events, setup.events.worker
    left_alone = LeftAlone(events)
    claimer = Claimer(board=board, owner=owner, runs=parts.runs, permits=permits, events=events)
    judge = Judge(board=board, handlers=handlers, peers=peers, left_alone=left_alone)
    return Walk(
        board=board,
        runs=parts.runs,
        peers=peers,
        permits=permits,
        claimer=claimer,
        judge=judge,
        stale_locks=StaleLocks(
            board=board,
            owner=owner,
            handlers=handlers,
            holdings=parts.holdings,
            claimer=claimer,
            left_alone=left_alone,
        ),
        missed=MissedSlots(board=board, events=events, judge=judge, left_alone=left_alone),
        paused=PausedShards(board=board, events=events),
        heartbeat=parts.heartbeat,
        breaker=parts.breaker,
        events=events,
        wake=wake,
        cycle=setup.settings.cycle,
        overdue_after=overdue_after,
    )
