"""The front door: opens a board, has its verbs, and puts workers together. Nothing else does.

    async with blackboard.open("app.db", handlers=[feed], create=True) as board:
        await board.add("toronto", "feed", params={"url": "https://..."}, cron="0 6 * * *")
        async with board.worker(slots=8):
            await serve()

`Board` has the verbs; `blocking.py` offers the same ones to programs without an event loop. Which
board is meant is said in `location.py`. `assemble` makes a worker of its parts, which take long to
import and are imported when the first worker is made. The command line stands on all three.

What is shown are the records of `records.py`, never rows. What cannot be done is raised: BadInput
for what a caller wrote, another BlackboardError where the answer is no, and TableError where the
store does not answer. Nothing was changed then, unless the message says that this is not certain.
"""

import asyncio
import getpass
import logging
import math
import os
import socket
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack
from weakref import WeakSet

from blackboard import __version__
from blackboard import settings as settings_file
from blackboard.clock import Chance
from blackboard.errors import BadInput, BlackboardError
from blackboard.events import BoardEvent, Event, Events, Kind, Subscriber, board_event
from blackboard.handlers import (
    Handler,
    Registry,
    as_text,
    check_importable,
    handlers_of,
    importing,
    load,
)
from blackboard.inputs import changed, check_id, check_params_size, check_size, check_type, first_of
from blackboard.location import Location, name_of, store_of
from blackboard.model import Item, Mark, Member, State
from blackboard.protocol import edits
from blackboard.protocol.edits import Missing
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.retention import Retention
from blackboard.records import (
    AnnouncedWorker,
    AskedRun,
    BoardItem,
    BoardRun,
    item_record,
    run_record,
)
from blackboard.rules.status import STATES, status_of
from blackboard.schedule.durations import format_duration, parse_duration
from blackboard.settings import NO_GRACE, Settings
from blackboard.spec import RunSettings, Spec, check_params, encode_spec
from blackboard.status import read_status

if TYPE_CHECKING:
    from blackboard.notify.settings import NotifyTable
    from blackboard.runner import Runner
    from blackboard.runners.inline import InlineRunner
    from blackboard.worker.membership import Sighting
    from blackboard.worker.wake import CycleWake, Wake
    from blackboard.worker.worker import Worker

SHARED_WALK = 0.2
"""Seconds from a change through a board until its workers walk. Other changes share the walk."""
_log = logging.getLogger("blackboard")


@asynccontextmanager
async def open_board(
    store: str | os.PathLike[str] | None = None,
    *,
    handlers: Iterable[str | Callable[..., Any]] = (),
    settings: str | os.PathLike[str] | None = None,
    name: str | None = None,
    create: bool = False,
    shards: int = 1,
) -> AsyncIterator["Board"]:
    """Open a board: `async with blackboard.open("app.db", handlers=[feed]) as board`.

    `store` is a path or a store URL; without one BLACKBOARD_STORE counts, then `[board] store` of
    the settings, then blackboard.db in the current folder. `handlers` are functions marked with
    `@handler`, or what `--jobs` takes: folders, files, modules, shipped names. Without any, those
    of `[board] jobs` are loaded. Their defaults count for the items that are added here, so a
    program that only adds items names them too. `settings` is the path of a settings file; without
    one there are none. `name` is the board's. With `create` a missing store and board are made, the
    board with `shards` shards.

    Raises BadInput for what cannot be used, MissingStore or another StoreProblem for a store that
    cannot be opened, TableError for one that does not answer.
    """
    location = _location(store, handlers=handlers, settings=settings, name=name)
    async with location.open(create=create, shards=shards) as table:
        yield Board(table, location)


def _location(
    store: str | os.PathLike[str] | None,
    *,
    handlers: Iterable[str | Callable[..., Any]],
    settings: str | os.PathLike[str] | None,
    name: str | None,
) -> Location:
    if importing.get():
        raise BadInput(
            "open",
            "a child process imports this file to call a handler in it, and not to run the program",
            'start the program below `if __name__ == "__main__":`',
        )
    found, folder = Settings(), Path.cwd()
    if settings is not None:
        found, folder = settings_file.find(os.fspath(settings), folder=folder)
    return Location(
        settings=found,
        folder=folder,
        store=store_of(None if store is None else os.fspath(store), found, folder),
        name=name_of(name, found),
        handlers=registry_of(handlers) or load(found.board.jobs, folder),
    )


def registry_of(handlers: Iterable[str | Callable[..., Any]]) -> Registry:
    """Handlers by type, from functions and from what `--jobs` takes. Raises BadInput."""
    if isinstance(handlers, str):
        raise BadInput("handlers", f"{handlers!r} is text", "a list, such as [feed, 'jobs']")
    here = Path.cwd()
    return Registry(
        found
        for one in handlers
        for found in (load([one], here).values() if isinstance(one, str) else handlers_of(one))
    )


# ---- the verbs


class RunOptions(TypedDict, total=False):
    """How an item is run. What is left out is as `[types.TYPE]` or the type's `@handler` says.
    Durations are text such as "90s" or "1d12h", or timedelta. In an edit, "" takes back what the
    item says.
    """

    every: str | timedelta
    """From start to start. One of every, cron, rrule and at is the schedule."""
    cron: str
    """As in crontab: "0 3 * * *", "@daily"."""
    rrule: str
    """RFC 5545: "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9"."""
    at: str | datetime
    """Once."""
    timezone: str
    """An IANA name; "UTC" if none is given."""
    timeout: str | timedelta
    """A run may take so long; the interval if none is given."""
    stale_after: str | timedelta
    """A lock that is untouched for so long is overridden."""
    retries: int | Literal[""]
    """After a failure."""
    backoff: str | timedelta
    """Before the first retry, at the most."""
    jitter: str | timedelta
    """Spreads starts over so long."""
    missed: Literal["one", "all", "none", ""]
    """What becomes of slots that no worker could serve."""
    missed_limit: int | Literal[""]
    """With all: so many at the most."""
    missed_after: str | timedelta
    """With none: so late is missed."""


class Board:
    """A board that is open. Belongs to one event loop; made by `blackboard.open`."""

    def __init__(self, table: BoardTable, location: Location) -> None:
        self._table = table
        self._location = location
        self._subscribers: list[Subscriber] = []
        self._workers: WeakSet[BoardWorker] = WeakSet()

    @property
    def store(self) -> str:
        """What `--store` takes."""
        return self._location.store

    @property
    def name(self) -> str:
        return self._table.name

    # ---- reading

    async def item(self, item_id: str) -> BoardItem:
        """An item. Raises Missing when there is none."""
        return await self._shown(await self._found(item_id))

    async def items(
        self,
        pattern: str = "*",
        *,
        type: str | None = None,  # noqa: A002 - what everything else calls it
        state: str | None = None,
    ) -> AsyncIterator[BoardItem]:
        """Items in the order of their ids: those whose id matches a glob, of a type, in a state:
        active, paused, done, running, overdue, failed, stale or waiting. They are read when the
        first is asked for.
        """
        if state is not None and state not in STATES:
            raise BadInput("state", f"{state!r} is none", f"one of {', '.join(STATES)}")
        found = [
            item
            async for item in self._table.items()
            if fnmatchcase(item.id, pattern) and type in {None, item.type}
        ]
        status = await read_status(self._table, found)
        for one in status.statuses:
            if state is None or one.has(state):
                yield item_record(one)

    async def runs(self, item_id: str, *, limit: int | None = None) -> AsyncIterator[BoardRun]:
        """The history of an item, newest first, at most `limit` runs. History outlives its item.
        Raises Missing when there never was such an item.
        """
        if await self._table.item(check_id(item_id)) is None:
            raise Missing(item_id)
        async for run in self._table.runs(item_id, limit=limit):
            yield run_record(run)

    async def why(self, item_id: str) -> str:
        """Why an item runs or does not, and what happens next, in one paragraph."""
        from blackboard.why import Circumstances, explain
        from blackboard.worker.membership import takers, workers

        item = await self._found(item_id)
        lock = await self._table.lock(item.id) if item.running else None
        present = await workers(self._table)
        now, resolution = await self._table.table.now(), self._table.table.resolution
        circumstances = Circumstances(
            now=now,
            resolution=resolution,
            settings=settings_or_none(self._table, item),
            takers=len(takers(present, item.type)),
        )
        return explain(status_of(item, lock, now=now, resolution=resolution), circumstances).text

    async def workers(self) -> list[AnnouncedWorker]:
        """The workers that have announced themselves, the longest running first."""
        from blackboard.worker.membership import workers

        return [worker_record(one) for one in await workers(self._table)]

    # ---- changing

    async def add(
        self,
        item_id: str,
        item_type: str,
        *,
        params: Mapping[str, Any] | None = None,
        first: str | datetime | None = None,
        **options: Unpack[RunOptions],
    ) -> BoardItem:
        """Add an item of a type. It is due at once, or at `first`: "now", "next" by its schedule,
        or a time; text without an offset is in the item's zone. Raises BadInput when the id is on
        the board already.
        """
        check_id(item_id)
        check_type(item_type)
        spec = changed(Spec(), _texts(options), params=params or {})
        check_size(spec, limit=self._table.table.max_value)
        settings = self._table.resolve(item_type, encode_spec(spec))
        when = first_of(as_text(first), settings, await self._table.table.now())
        done = await edits.add(
            self._table, item_id=item_id, item_type=item_type, spec=spec, first=when
        )
        return await self._changed(done.item)

    async def edit(
        self,
        item_id: str,
        *,
        params: Mapping[str, Any] | None = None,
        unset: Sequence[str] = (),
        **options: Unpack[RunOptions],
    ) -> BoardItem:
        """Change how an item is run: `params` are laid over its own, those named in `unset` are
        taken away. A new schedule counts from now.
        """
        said, limit = _texts(options), self._table.table.max_value

        def new(spec: Spec, _: Item) -> Spec:
            for key in unset:
                if key not in spec.params:
                    raise BadInput("unset", f"there is no {key!r} in the params")
            kept = {key: value for key, value in spec.params.items() if key not in unset}
            after = changed(spec, said, params={**kept, **(params or {})})
            check_size(after, limit=limit)
            return after

        return await self._changed((await edits.edit(self._table, check_id(item_id), new)).item)

    async def run(
        self, item_id: str, *, params: Mapping[str, Any] | None = None, trigger: str = ""
    ) -> AskedRun:
        """Make an item due now, or once more when it is running; `params` are laid over its own for
        this one run. The schedule stays as it is. The same `trigger` twice is one run. Raises
        BlackboardError when the item is paused, or too many runs wait.
        """
        once = dict(params or {})
        check_params(once)
        check_params_size(once, limit=self._table.table.max_value)
        asked = await edits.run_now(self._table, check_id(item_id), trigger=trigger, once=once)
        self._wake_workers()
        return AskedRun(id=item_id, due=asked.slot, ahead=asked.ahead, joined=asked.joined)

    async def pause(self, item_id: str, *, reason: str = "", by: str = "") -> BoardItem:
        """Start no more runs until the item is resumed. What runs may finish. `by` is who does it;
        user@host if none is given. Raises BlackboardError when the item is done.
        """
        mark = await mark_now(self._table, reason, by=by)
        done = await edits.pause(self._table, check_id(item_id), mark)
        if not done.item.is_paused:
            raise BlackboardError(f"{item_id} is {done.item.state.value}: nothing is to be paused")
        return await self._shown(done.item)

    async def resume(self, item_id: str, *, reason: str = "", by: str = "") -> BoardItem:
        """Undo a pause. A slot that came meanwhile is due at once."""
        mark = await mark_now(self._table, reason, by=by)
        return await self._changed((await edits.resume(self._table, check_id(item_id), mark)).item)

    async def cancel(self, item_id: str, *, reason: str = "", by: str = "") -> BoardItem:
        """End the running run of an item, which waits for its next slot. The handler is stopped
        when its worker renews the lock. Raises BlackboardError when the item does not run.
        """
        item = await self._found(item_id)
        if not item.running:
            raise BlackboardError(f"{item_id} does not run")
        mark = await mark_now(self._table, reason, by=by)
        done = await edits.cancel(self._table, item_id, mark, fence=item.fence)
        if not done.changed:
            problem = "had ended, or been taken over, before it could be cancelled"
            raise BlackboardError(f"{item_id} {problem}")
        return await self._changed(done.item)

    async def unlock(
        self, item_id: str, *, fence: int | None = None, reason: str = "", by: str = ""
    ) -> BoardItem:
        """Take the lock of a running item from its holder, or only the lock with this fence: the
        item is due again at once. Raises BlackboardError when there is no such lock.
        """
        await self._found(item_id)
        lock = await self._table.lock(item_id)
        if lock is None or fence not in {None, lock.fence}:
            which = "" if fence is None else f" with fence {fence}"
            raise BlackboardError(f"{item_id} is not locked{which}")
        mark = await mark_now(self._table, reason, by=by)
        done = await edits.unlock(self._table, item_id, mark, fence=lock.fence)
        if not done.changed:
            raise BlackboardError(f"{item_id} is not locked with fence {lock.fence} any more")
        return await self._changed(done.item)

    async def remove(self, item_id: str) -> None:
        """Remove an item. What runs loses its lock and is stopped; the history stays until its time
        is up.
        """
        await edits.remove(self._table, check_id(item_id))

    # ---- working

    def worker(
        self,
        *,
        slots: int | None = None,
        cycle: str | timedelta | None = None,
        types: Sequence[str] = (),
        grace: str | timedelta | None = None,
    ) -> "BoardWorker":
        """A worker with the handlers of this board, to be entered: `async with board.worker():`.

        `slots` is how many runs it holds at a time, `cycle` the time between two walks, `grace`
        what runs may take to finish when it is to stop; else as `[worker]` says (8, 60 s, 30 s).
        `types` are the types it takes, all if none are given.

        Raises BadInput when there is no handler, or one that a child process could not import.
        """
        settings = worker_settings(
            self._location.settings, slots=slots, cycle=cycle, types=types, grace=grace
        )
        handlers = handlers_taken(self._location.handlers, settings.types)
        if not handlers:
            raise BadInput("handlers", "there are none", "open the board with handlers=[...]")
        events = Events(identity(self._table.chance))
        events.subscribe(log_event, "the log")
        for one in self._subscribers:
            events.subscribe(one)
        worker = new_worker(
            self._table,
            handlers=handlers,
            settings=settings,
            declared=self._location.settings,
            events=events,
        )
        self._workers.add(worker)
        return worker

    def subscribe(self, callback: Callable[[BoardEvent], None]) -> None:
        """Call `callback` with the events of the workers of this board that are made here: the
        classes of `blackboard.events`. It is called on the event loop and must not block. What it
        raises is isolated from the worker and from other subscribers, and counted.
        """

        @wraps(callback)
        def heard(event: Event) -> None:
            found = board_event(event)
            if found is not None:
                callback(found)

        self._subscribers.append(heard)
        for worker in self._workers:
            worker.events.subscribe(heard)

    # ---- helpers

    async def _found(self, item_id: str) -> Item:
        item = await self._table.item(check_id(item_id))
        if item is None or item.state is State.REMOVED:
            raise Missing(item_id)
        return item

    async def _changed(self, item: Item) -> BoardItem:
        """An item that was changed here: workers that were made here walk without waiting."""
        self._wake_workers()
        return await self._shown(item)

    def _wake_workers(self) -> None:
        for worker in self._workers:
            worker.walk_soon()

    async def _shown(self, item: Item) -> BoardItem:
        lock = await self._table.lock(item.id) if item.running else None
        now, resolution = await self._table.table.now(), self._table.table.resolution
        return item_record(status_of(item, lock, now=now, resolution=resolution))


def worker_record(one: "Sighting") -> AnnouncedWorker:
    """A worker as it announced itself, and how long ago that was."""
    member = one.member
    return AnnouncedWorker(
        name=member.owner,
        started=member.started,
        seen=member.seen,
        age=round(one.age, 3) if math.isfinite(one.age) else None,
        alive=not one.lost,
        slots=member.slots,
        running=member.running,
        types=tuple(name for name in member.types.split(",") if name),
        cycle=member.cycle,
        version=member.release,
    )


def settings_or_none(board: BoardTable, item: Item) -> RunSettings | None:
    """What an item is run with; None when that cannot be computed here."""
    try:
        return board.resolve(item.type, item.spec)
    except (BadInput, ValueError):
        return None


async def mark_now(board: BoardTable, reason: str, *, by: str = "") -> Mark:
    """Who does something now, for the record: `by`, or the user of this process and its host."""
    who = by or f"{_user()}@{socket.gethostname()}"
    return Mark(by=who, at=await board.table.now(), reason=reason)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a spec has them. Raises TypeError for one that is none, as Python does."""
    for name in options:
        if name not in RunOptions.__annotations__:
            options_there = ", ".join(RunOptions.__annotations__)
            raise TypeError(f"{name!r} is no option of an item ({options_there})")
    return {name: as_text(value) for name, value in options.items() if value is not None}


def log_event(event: Event) -> None:
    """Log an event as the library does, to the logger `blackboard`."""
    about = " ".join(part for part in (event.kind.value, event.item) if part)
    _log.log(event.level, "%s: %s", about, event.message)


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
    """What was said, else what the settings declare. Raises BadInput."""
    table = declared.worker
    if slots is not None and (type(slots) is not int or slots < 1):
        raise BadInput("slots", f"{slots!r} is not a number of runs", "1 or more")
    return WorkerSettings(
        cycle=_duration(cycle or table.cycle, "cycle"),
        slots=slots or table.slots,
        types=tuple(types) or tuple(table.types),
        grace=_duration(table.grace if grace is None else grace, "grace", least=timedelta(0)),
        retention=Retention(
            runs=declared.board.history,
            age=parse_duration(declared.board.history_age, "history_age"),
        ),
    )


def _duration(value: str | timedelta, name: str, *, least: timedelta | None = None) -> timedelta:
    """A duration; one that may be none at all can be said as 0."""
    if least is not None and value in {*NO_GRACE, timedelta(0)}:
        return timedelta(0)
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
            known = ", ".join(sorted(handlers)) or "none"
            raise BadInput("types", f"no handler for {one!r}", f"there are handlers for: {known}")
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
        inline: "InlineRunner",
    ) -> None:
        self.name = worker.events.worker
        """host:pid:boot nonce, as items and runs name it."""
        self.events = worker.events
        """What subscribers listen to."""
        self._worker = worker
        self._about = f"{settings.slots} slots, every {settings.cycle.total_seconds():g} s"
        self._wake = wake
        self._inline = inline
        self._is_working = False
        self._soon: asyncio.TimerHandle | None = None
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None

    @property
    def abandoned(self) -> int:
        """Coroutine handlers that swallowed their cancellation and may still run."""
        return self._inline.abandoned

    def stop(self) -> None:
        """Asked once: no more claims, and grace for what runs. Asked again: no grace."""
        self._worker.stop()

    def walk_soon(self) -> None:
        """Walk the board without waiting for the cycle: something on it was changed."""
        if self._is_working and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SHARED_WALK, self._walk_now)

    def _walk_now(self) -> None:
        self._soon = None
        self._wake.beat()

    async def work(self, until: Until = "stopped") -> None:
        """Work until then, or until `stop` is called. Raises TableError when the store cannot work,
        or the board is another by now.
        """
        from blackboard.worker.worker import Mode

        modes = {"stopped": Mode.FOREVER, "idle": Mode.UNTIL_IDLE, "once": Mode.ONCE}
        if until not in modes:
            raise BadInput("until", f"{until!r} is none", f"one of {', '.join(modes)}")
        events, worker = self.events, self._worker
        types = ", ".join(sorted(worker.runs.calls.handlers))
        events.emit(Kind.STARTED, f"{self._about}, types {types}")
        self._is_working = True
        try:
            await worker.work(modes[until])
        finally:
            self._is_working = False
            if self._soon is not None:
                self._soon.cancel()
        requests = worker.board.table.requests.by_kind
        events.emit(Kind.STOPPED, data={"runs": worker.releases.runs, "requests": requests})

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

    inline, process = InlineRunner(), ProcessRunner()
    wake = CycleWake(settings.cycle.total_seconds())
    worker = assemble(
        board,
        owner=events.worker,
        settings=settings,
        handlers=handlers,
        job_settings=declared.jobs,
        events=events,
        wake=wake,
        inline=inline,
        process=process,
        turning=process.turning if guards_loop else lambda _: None,
        notify=declared.notify,
    )
    return BoardWorker(worker, settings=settings, wake=wake, inline=inline)


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
    turning: Callable[[float], None] = lambda _: None,
    notify: "NotifyTable | None" = None,
) -> "Worker":
    """A worker on `board`, of its parts. `handlers` are those of the types it takes."""
    from blackboard.rules.breaker import Need
    from blackboard.worker.heartbeat import Heartbeat
    from blackboard.worker.holdings import Holdings
    from blackboard.worker.membership import Membership
    from blackboard.worker.release_queue import Releases
    from blackboard.worker.running import Calls, Runs
    from blackboard.worker.store_breaker import StoreBreaker
    from blackboard.worker.walk import Walk
    from blackboard.worker.worker import Worker

    breaker = StoreBreaker(board.clock, board.chance, events)
    renewing = breaker.board(board, Need.RENEWAL)
    board = breaker.board(board, Need.OTHER)
    notifier = None
    if notify is not None:
        from blackboard.notify.notifier import notifier_of

        notifier = notifier_of(notify, board=board, events=events, environ=os.environ)
    if notifier is not None:
        events.subscribe(notifier.heard, "notify")
    holdings = Holdings(settings.slots)
    heartbeat = Heartbeat(board=renewing, holdings=holdings, events=events, turning=turning)
    releases = Releases(board=board, events=events, holdings=holdings, retention=settings.retention)
    calls = Calls(
        handlers=handlers,
        settings=job_settings,
        inline=inline,
        process=process,
        events=events,
        clock=board.clock,
        limit=board.table.max_value,
    )
    runs = Runs(
        holdings=holdings,
        calls=calls,
        releases=releases,
        heartbeat=heartbeat,
        events=events,
        shards=board.shards,
    )
    walk = Walk(
        board=board,
        owner=owner,
        handlers=handlers,
        runs=runs,
        heartbeat=heartbeat,
        breaker=breaker,
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
        holdings=holdings,
        heartbeat=heartbeat,
        releases=releases,
        runs=runs,
        walk=walk,
        membership=Membership(board, member),
        notify=notifier.run if notifier else None,
        steady=breaker.steady,
        grace=settings.grace.total_seconds(),
    )
