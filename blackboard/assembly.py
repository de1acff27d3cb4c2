"""A board and its workers, put together from arguments, the environment and the settings.

`Location` is which board is meant, and opens it. `WorkerSettings` is what a worker is asked for,
`BoardWorker` what a program holds of it, and `assemble` wires its parts; nothing else does. The
parts take long to import, and are imported when the first worker is made.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from blackboard import __version__
from blackboard.clock import Chance, SystemChance, SystemClock
from blackboard.errors import BadInput, MissingStore
from blackboard.events import Events, WorkerStarted, WorkerStopped
from blackboard.handlers import Handler, check_importable
from blackboard.model import Member
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.protocol.retention import Retention
from blackboard.schedule.durations import format_duration, parse_duration
from blackboard.settings import NO_GRACE, Settings, resolver
from blackboard.stores import open_table, resolve_path
from blackboard.table import Table, read

if TYPE_CHECKING:
    from blackboard.notify.settings import NotifyTable
    from blackboard.runner import Runner
    from blackboard.worker.heartbeat import Heartbeat
    from blackboard.worker.partitions import GroupWorker
    from blackboard.worker.release_queue import Releases
    from blackboard.worker.running import Holdings, Runs
    from blackboard.worker.store_breaker import StoreBreaker
    from blackboard.worker.wake import CycleWake, Wake
    from blackboard.worker.worker import Worker

DEFAULT_STORE = "blackboard.db"
DEFAULT_BOARD = "blackboard"
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

    @property
    def resolve(self) -> Resolve:
        """What a run of an item is run with, as far as the handlers of this process say."""
        return resolver(self.settings, self.handlers)

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
        table = await open_table(self.store, clock=SystemClock(), create=create)
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
            clock=SystemClock(),
            chance=SystemChance(),
            resolve=self.resolve,
        )

    async def made(self, table: Table, *, shards: int) -> BoardTable:
        """The board, made if it is not there. Raises BadInput when it has other shards."""
        return await BoardTable.create(
            table,
            name=self.name,
            shards=shards,
            clock=SystemClock(),
            chance=SystemChance(),
            resolve=self.resolve,
        )


def store_of(named: str | None, settings: Settings, folder: Path) -> str:
    """The named store, else BLACKBOARD_STORE, else `[board] store`, else blackboard.db here."""
    if named is None:
        named = os.environ.get("BLACKBOARD_STORE") or None
    if named is not None:
        return named
    declared = settings.board.store
    return DEFAULT_STORE if declared is None else resolve_path(declared, folder)


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
        ),
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
        groups: Sequence["GroupWorker"] = (),
    ) -> None:
        self.name = worker.events.worker
        """host:pid:boot nonce, as items and runs name it."""
        self.events = worker.events
        """What subscribers listen to."""
        self._worker = worker
        self._settings = settings
        self._wake = wake
        self._groups = groups
        self._is_working = False
        self._soon: asyncio.TimerHandle | None = None
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Asked once: no more claims, and grace for what runs. Asked again: no grace."""
        for one in self._groups:
            one.stop()
        self._worker.stop()

    def walk_soon(self) -> None:
        """Walk the board without waiting for the cycle: something on it was changed."""
        if self._is_working and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SHARED_WALK, self._walk_now)

    def _walk_now(self) -> None:
        self._soon = None
        self._wake.beat()

    async def work(self, until: Until = "stopped") -> None:
        """Work until then, or until `stop` is called. Partitions are served by a worker that works
        until it is stopped: they have no end. Raises TableError when the store cannot work, or the
        board is another by now.
        """
        from blackboard.worker.worker import Mode

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
        )
        self._is_working = True
        try:
            async with asyncio.TaskGroup() as beside:
                for one in groups.values():
                    beside.create_task(one.work())
                await worker.work(modes[until])
        except BaseExceptionGroup as problems:
            raise _first_of(problems) from None
        finally:
            self._is_working = False
            if self._soon is not None:
                self._soon.cancel()
        requests = worker.board.table.requests.by_kind
        runs = worker.releases.runs + sum(one.releases.runs for one in self._groups)
        events.emit(WorkerStopped, runs=runs, requests=requests)

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
    guards_loop: bool = False,
) -> BoardWorker:
    """A worker as every process has it: beats by the clock, coroutines on this loop, plain
    functions in child processes. With `guards_loop` a loop that stands still for longer than a
    lease ends its process: for a process that does nothing else.
    """
    from blackboard.runners.inline import InlineRunner
    from blackboard.runners.process import ProcessRunner
    from blackboard.worker.wake import CycleWake

    pumps = [one for one in handlers.values() if one.pump is not None]
    handlers = {name: one for name, one in handlers.items() if one.pump is None}
    process = ProcessRunner()
    wake = CycleWake(settings.cycle.total_seconds())
    worker = assemble(
        board,
        owner=events.worker,
        settings=settings,
        handlers=handlers,
        job_settings=declared.jobs,
        events=events,
        wake=wake,
        inline=InlineRunner(),
        process=process,
        turning=process.turning if guards_loop else None,
        notify=declared.notify,
    )
    groups = []
    for pump in pumps:
        process = ProcessRunner()  # with a guard of its own, which waits for this group's heartbeat
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
                turning=process.turning if guards_loop else None,
            )
        )
    return BoardWorker(worker, settings=settings, wake=wake, groups=groups)


class _Parts(NamedTuple):
    """What every part of a worker that holds runs consists of."""

    breaker: "StoreBreaker"
    board: BoardTable
    """Asked through the breaker, for all but renewals."""
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
    from blackboard.worker.release_queue import Releases
    from blackboard.worker.running import Calls, Holdings, Runs
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
    return _Parts(breaker, board, holdings, heartbeat, releases, runs)


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
) -> "GroupWorker":
    """A worker's part in the group of a pump, of its parts. `board` is the group's, `parent` the
    name of the board that it belongs to.
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
    walk = Walk(
        board=board,
        owner=owner,
        handlers=handlers,
        runs=parts.runs,
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
        membership=Membership(board, member),
        notify=notifier.run if notifier else None,
        steady=parts.breaker.steady,
        grace=settings.grace.total_seconds(),
    )
