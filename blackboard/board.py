"""The front door: opens a board, and has its verbs. `assembly.py` puts its workers together.

    async with blackboard.open("app.db", handlers=[feed], create=True) as board:
        await board.add("toronto", "feed", params={"url": "https://..."}, cron="0 6 * * *")
        async with board.worker(slots=8):
            await serve()

`Board` has the verbs; `blocking.py` offers the same ones to programs without an event loop.

A verb that is given `by` or a reason is what a person did, and is recorded as an action, in a row
of its own. Without both it is what a program does, which may be a million items: nothing is
recorded, so the verb costs what it has to.

What is shown are the records of `records.py`, never rows. What cannot be done is raised: BadInput
for what a caller wrote, another BlackboardError where the answer is no, and TableError where the
store does not answer. Nothing was changed then, unless the message says that this is not certain.
A change that is cancelled goes on to its end, with its record; its caller waits for that for
`CALLER_WAITS` at the most.
"""

import asyncio
import getpass
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial, wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast
from weakref import WeakSet

from msgspec import UNSET

from blackboard import inputs
from blackboard import settings as settings_file
from blackboard.board_worker import BoardWorker, handlers_taken, identity, worker_settings
from blackboard.display.item_queries import select
from blackboard.display.run_queries import RunQuery, items_with_history, newest_runs
from blackboard.emitter import EventEmitter, Subscriber, Subscription, log_event
from blackboard.errors import BadInput, BadRow, BlackboardError, BoardClosed, OfOneProcess
from blackboard.handlers.handler import as_text, check_type
from blackboard.handlers.params import written
from blackboard.handlers.registry import importing, load, registry_of
from blackboard.location import Location, name_of, store_of
from blackboard.model import Item, Mark, Via
from blackboard.patterns import state_in
from blackboard.phrases import quoted, some
from blackboard.protocol import actions, additions, edits, members
from blackboard.protocol.actions import changed_fields, param_names, record_action
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import check_board_name
from blackboard.protocol.planning import settings_of
from blackboard.protocol.rename import rename
from blackboard.protocol.status import read_status
from blackboard.records import (
    AnnouncedWorker,
    AskedRun,
    BoardAction,
    BoardItem,
    BoardRun,
    action_record,
    item_record,
    run_record,
    worker_record,
)
from blackboard.rules.status import status_of
from blackboard.rules.upcoming import upcoming
from blackboard.settings import Settings
from blackboard.spec import RunOptions, Spec, check_count, check_params, encode_spec, plain
from blackboard.table import TableError
from blackboard.tasks import finishing, in_thread
from blackboard.verbs import VERBS
from blackboard.why import explained, read_one

if TYPE_CHECKING:
    from blackboard.sharing.election import Election, Kind
    from blackboard.web.app import WebPages

P = ParamSpec("P")
Answer = TypeVar("Answer")
_log = logging.getLogger("blackboard")

CALLER_WAITS = 2.0
"""Seconds for which a caller that is cancelled waits for its change. The caller may be a handler,
whose `stop_timeout` is longer."""
MOST_TIMES = 10_000
"""Times that `next` computes."""


@inputs.checked
@asynccontextmanager
async def open_board(
    store: str | os.PathLike[str] | None = None,
    *,
    handlers: Iterable[str | os.PathLike[str] | Callable[..., Any]] = (),
    settings: str | os.PathLike[str] | None = None,
    name: str | None = None,
    create: bool = False,
    shards: int = 1,
) -> AsyncIterator["Board"]:
    """Open a board: `async with blackboard.open("app.db", handlers=[feed]) as board`.

    `store` is a path or a store URL; without one BLACKBOARD_STORE counts, then `[board] store` of
    the settings, then blackboard.db beside the settings file, or in the current folder where there
    is none. `handlers` are functions marked with `@handler`, or what `--jobs` takes: folders,
    files, modules, shipped names. Without any, those of `[board] jobs` are loaded. Their defaults
    count for the items that are added here, so a program that only adds items names them too.
    `settings` is the path of a settings file; without one there are none. `name` is the board's.
    With `create` a missing store and board are made, the board with `shards` shards.

    Raises BadInput for what cannot be used, MissingStore or another StoreProblem for a store that
    cannot be opened, TableError for one that does not answer, BlackboardError where no loop of
    asyncio runs. The board belongs to the loop that opens it.
    """
    if importing.get():
        raise BadInput(
            "open",
            "a child process imports this file to call a handler in it, and not to run the program",
            'start the program below `if __name__ == "__main__":`',
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise BlackboardError(NO_LOOP) from None
    if name is not None:
        check_board_name(name)
    declared, folder = Settings(), settings_file.current_folder()
    if settings is not None:
        declared, folder = settings_file.find(os.fspath(settings), folder=folder)
    location = Location(
        settings=declared,
        folder=folder,
        store=store_of(None if store is None else os.fspath(store), declared, folder),
        name=name_of(name, declared),
        cwd=settings_file.current_folder(),
        handlers=registry_of(handlers) or load(declared.board.jobs, folder),
    )
    async with AsyncExitStack() as stack:
        # At the end of a loop asyncio closes all generators that are open at the same time: of
        # several, one inside the other, the store would be closed before its board.
        yield await _entered(stack, location, create=create, shards=shards)


@asynccontextmanager
async def opened(
    location: Location, *, create: bool = False, shards: int = 1
) -> AsyncIterator["Board"]:
    """The board of a location, open until the end of the block."""
    async with AsyncExitStack() as stack:
        yield await _entered(stack, location, create=create, shards=shards)


async def _entered(
    stack: AsyncExitStack, location: Location, *, create: bool, shards: int
) -> "Board":
    """The board of a location, open until `stack` is closed."""
    table = await location.enter(stack, create=create, shards=shards)
    board = Board(table, location)
    board._verbs.check_loop()  # noqa: SLF001 - it opens and closes boards
    stack.push_async_callback(board._close)  # noqa: SLF001
    return board


# ---- the verbs


NAMED = 3
"""Items that one error names."""
OTHER_LOOP = (
    "this board belongs to another event loop: call it there, by "
    "`asyncio.run_coroutine_threadsafe`, or open it with `blackboard.open_blocking`, whose verbs "
    "any thread may call"
)
NO_LOOP = (
    "`blackboard.open` needs an event loop of asyncio: without one, or with trio, use "
    "`blackboard.open_blocking`, in a thread"
)


class _Verbs:
    """Those of a board that are under way, on the one loop that it is used on: `with verbs:`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number = 0
        self._are_refused = False
        self._all_done = asyncio.Event()

    def check_loop(self) -> None:
        """The first loop that asks is the board's. Raises BlackboardError on another one, and
        RuntimeError where none runs.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise BlackboardError(OTHER_LOOP)

    def __enter__(self) -> None:
        self.check_loop()
        if self._are_refused:
            raise BoardClosed
        self._number += 1

    def __exit__(self, *_: object) -> None:
        self._number -= 1
        if self._are_refused and not self._number:
            self._all_done.set()

    def hold(self, task: "asyncio.Future[Any]") -> None:
        """A task is under way until it has ended, whether or not its caller still waits for it."""
        self._number += 1
        task.add_done_callback(self.__exit__)

    async def end(self) -> None:
        """Refuse others, and wait for those under way."""
        self._are_refused = True
        if self._number:
            await self._all_done.wait()


def _verb(method: Callable[P, Answer]) -> Callable[P, Answer]:
    """A method of a board: its arguments are checked, a closed board refuses it, and a board that
    closes waits for it; for an iteration only while its next element is read. What is made, such as
    a worker, is refused as soon as the board begins to close. All are refused on another loop.
    """
    call: Any = inputs.checked(method)

    @wraps(method)
    async def awaited(self: "Board", *args: Any, **options: Any) -> Any:
        with self._verbs:
            return await call(self, *args, **options)

    async def each(self: "Board", elements: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
        async with aclosing(elements):
            while True:
                with self._verbs:
                    element = await anext(elements, elements)
                if element is elements:
                    return
                yield element

    @wraps(method)
    def iterated(self: "Board", *args: Any, **options: Any) -> Any:
        return each(self, call(self, *args, **options))

    @wraps(method)
    def called(self: "Board", *args: Any, **options: Any) -> Any:
        with suppress(RuntimeError):  # no loop runs in this thread
            self._verbs.check_loop()
        if self._is_closing:
            raise BoardClosed
        return call(self, *args, **options)

    is_iterated, is_awaited = isasyncgenfunction(method), iscoroutinefunction(method)
    verb = iterated if is_iterated else awaited if is_awaited else called
    return cast(Callable[P, Answer], verb)


def _change(method: Callable[P, Answer]) -> Callable[P, Answer]:
    """A verb that changes the board. Once it has begun it goes on to its end: a cancellation does
    not come between the change, its record and the wake of the workers. Where its caller is
    cancelled, the error of the change is logged.
    """
    call: Any = inputs.checked(method)

    @wraps(method)
    async def finished(self: "Board", *args: Any, **options: Any) -> Any:
        with self._verbs:
            work = asyncio.ensure_future(call(self, *args, **options))
            self._verbs.hold(work)
        try:
            return await finishing(work, within=CALLER_WAITS)
        except asyncio.CancelledError:
            # Not the params of many items, which may be long, and secret.
            ids = [named for named in args[:1] if isinstance(named, str)]
            called = " of ".join([method.__name__, *ids])
            work.add_done_callback(partial(_log_failure, called))
            raise

    return cast(Callable[P, Answer], finished)


def _log_failure(called: str, work: "asyncio.Future[Any]") -> None:
    if not work.cancelled() and (problem := work.exception()):
        _log.warning("%s, whose caller was cancelled, failed: %s", called, problem)


class Board(OfOneProcess):
    """A board that is open. Belongs to one event loop; made by `blackboard.open`."""

    def __init__(
        self, table: BoardTable, location: Location, *, via: Via | None = "python"
    ) -> None:
        """`via` is what calls its verbs, for the record of actions. None: they record nothing,
        since their caller records one action for many items.
        """
        self.name = table.name
        self._table = table
        self._verbs = _Verbs()
        self._is_closing = False
        self._location = location
        self._via = via
        self._subscriptions: list[Subscription] = []
        self._workers: WeakSet[BoardWorker] = WeakSet()
        self._elections: WeakSet[Election] = WeakSet()
        self._pages: list[WebPages] = []

    @property
    def store(self) -> str:
        """What `--store` takes."""
        return self._location.store

    # ---- reading

    @_verb
    async def item(self, item_id: str) -> BoardItem:
        """An item. Raises Missing when there is none."""
        return await self._shown(await self._table.found(inputs.check_id(item_id)))

    @_verb
    async def items(
        self,
        pattern: str = "*",
        *,
        type: str | None = None,  # noqa: A002 - what everything else calls it
        state: str | None = None,
    ) -> AsyncGenerator[BoardItem]:
        """Items in the order of their ids: those that a pattern means, of a type, in a state:
        active, paused, done, running, overdue, failed, stale or waiting. A pattern is what commands
        take: an id, a glob of ids, `tag:NAME`, `owner:NAME`, `type:NAME` or `state:NAME`. Items are
        read when the first is asked for.
        """
        inputs.check_id(pattern)
        if state is not None:
            inputs.check_state(state)
        try:
            meant = await select(self._table, [pattern])
        except BadInput:  # it means no item
            if named := state_in(pattern):
                inputs.check_state(named)
            meant = []
        chosen = [item for item in meant if type in {None, item.type}]
        status = await read_status(self._table, chosen)
        for status_of_item in status.statuses:
            if state is None or status_of_item.has(state):
                yield item_record(status_of_item, self._table.labels(status_of_item.item))

    @_verb
    async def runs(
        self,
        item_id: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[BoardRun]:
        """The history of an item, or of all items, newest first, at most `limit` runs; those that
        stopped `since` then, and `until` then. History outlives its item. Raises Missing when there
        never was such an item. Those of all items, or of a time, are all read before the first is
        returned.
        """
        _check_limit(limit)
        query = RunQuery(since=_aware(since, "since"), until=_aware(until, "until"))
        ids = [] if item_id is None else [item_id]
        items = await items_with_history(self._table, ids, exact=True)
        if item_id is not None and not query.selects:
            async for run in self._table.runs(item_id, limit=limit):
                yield run_record(run)
        elif limit != 0:
            most = sys.maxsize if limit is None else limit
            for _, run in (await newest_runs(self._table, items, query, limit=most))[0]:
                yield run_record(run)

    @_verb
    async def next(self, item_id: str, *, count: int = 5) -> list[datetime]:
        """The next times of an item, at most `count`, the earliest first: when its pending run is
        ready, and then by its schedule. Raises BadInput where its schedule is not known here.
        """
        check_count("count", count, most=MOST_TIMES)
        item = await self._table.found(inputs.check_id(item_id))
        settings = settings_of(self._table, item, item.spec)
        times = upcoming(item, settings, now=await self._table.table.now())
        return await in_thread(lambda: [*islice(times, count)])

    @_verb
    async def why(self, item_id: str) -> str:
        """Why an item runs or does not, what happens next and what would change that: lines."""
        item = await self._table.found(inputs.check_id(item_id))
        _, explanation = await explained(self._table, item, await members.workers(self._table))
        return explanation.text

    @_verb
    async def workers(self) -> list[AnnouncedWorker]:
        """The workers that have announced themselves, the longest running first."""
        return [worker_record(member) for member in await members.busy_workers(self._table)]

    @_verb
    async def actions(self, *, limit: int = 100) -> list[BoardAction]:
        """What people did, the newest first, at most `limit` actions: what was done by command, on
        the pages, and by verbs that were given `by` or a reason. One action may be for many items.
        """
        _check_limit(limit)
        return [action_record(action) for action in await actions.actions(self._table, limit=limit)]

    # ---- changing

    @_change
    async def add(
        self,
        item_id: str,
        item_type: str,
        *,
        params: Any = None,
        first: str | datetime | None = None,
        **options: Unpack[RunOptions],
    ) -> BoardItem:
        """Add an item of a type. An `every` is due at once, any other schedule at its next time,
        unless `first` says "now", "next" by its schedule, or a time; text without an offset is in
        the item's zone. `params` are a dict, or an instance of a dataclass or a Struct of msgspec,
        such as the class that the type declares. Raises BadInput when the id is on the board
        already, for the type of a pump, and on the board of a group or of elections, which has what
        programs name.
        """
        now = await self._table.table.now()
        new = self._new(item_id, item_type, params, first=first, options=options, now=now)
        done = await additions.add(self._table, new)
        return await self._after_change(done.item)

    @_change
    async def add_many(
        self,
        params: Mapping[str, Any],
        item_type: str,
        *,
        first: str | datetime | None = None,
        **options: Unpack[RunOptions],
    ) -> list[str]:
        """Add those of many items of one type that are not on the board yet, many in a batch.
        `params` has the params of each by its id, or None; `first` and the options are those of
        all. Returns the ids of those that were added; the others stay as they are. Raises as `add`
        before anything is added, and BlackboardError when all others were added but some could not.
        """
        now = await self._table.table.now()
        new, added = list[additions.New](), list[str]()
        for item_id, own in params.items():
            new.append(self._new(item_id, item_type, own, first=first, options=options, now=now))
            await asyncio.sleep(0)  # they may be very many, and a worker lives on this loop
        left = await additions.add_missing(
            self._table, new, on_added=lambda batch: added.extend(item.id for item in batch)
        )
        self._wake_workers()
        if left:
            named = some([f"{item_id}: {why}" for item_id, why in left.items()], NAMED)
            raise BlackboardError(f"{len(left)} of {len(new)} items were not added: {named}")
        return added

    def _new(
        self,
        item_id: str,
        item_type: str,
        params: Any,
        *,
        first: str | datetime | None,
        options: RunOptions,
        now: datetime,
    ) -> additions.New:
        """An item to be added. Raises BadInput."""
        item_id = inputs.check_new_id(inputs.argument("id", item_id, str))
        check_type(item_type)
        params = inputs.argument("params", {} if params is None else written(params), Mapping)
        spec = inputs.changed(Spec(), _as_texts(options), params=params)
        inputs.check_size(spec, limit=self._table.table.max_value)
        self._location.check_params(item_type, spec.params)
        settings = self._table.resolve(item_type, encode_spec(spec))
        when = inputs.first_of(as_text(first), settings, now)
        return additions.New(id=item_id, type=item_type, spec=spec, first=when)

    @_change
    async def edit(
        self,
        item_id: str,
        *,
        params: Mapping[str, Any] | None = None,
        unset: Sequence[str] = (),
        item_type: str | None = None,
        first: str | datetime | None = None,
        checkpoint: Any = UNSET,
        reason: str = "",
        by: str = "",
        **options: Unpack[RunOptions],
    ) -> BoardItem:
        """Change how an item is run: `params` are laid over its own, those named in `unset` are
        taken away. A new schedule counts from now. `first` moves the first run of an item that
        never ran. Its next run goes on at `checkpoint`; None: it begins anew. `by` is who does it.
        Raises StillRuns for another type or a checkpoint while it runs, and BadInput where nothing
        is to be changed.
        """
        _check_record(by, reason)
        changes, limit = _as_texts(options), self._table.table.max_value
        params = written(params)
        given = params, unset, item_type, first, changes
        if checkpoint is UNSET and not any(given):
            raise BadInput("edit", "nothing is changed", "give an option, `params` or `unset`")
        if item_type is not None:
            check_type(item_type)
        text = None if checkpoint is UNSET else inputs.checkpoint_text(checkpoint, limit=limit)

        def new(spec: Spec, item: Item) -> Spec:
            for key in unset:
                if key not in spec.params:
                    raise BadInput("unset", f"there is no {quoted(key)} in the params")
            kept = {key: value for key, value in spec.params.items() if key not in unset}
            after = inputs.changed(spec, changes, params={**kept, **(params or {})})
            inputs.check_size(after, limit=limit)
            if params or unset or item_type:  # else its params are as they were
                self._location.check_params(item_type or item.type, after.params)
            return after

        named, now = as_text(first), await self._table.table.now()
        done = await edits.edit(
            self._table,
            inputs.check_id(item_id),
            new,
            item_type=item_type,
            checkpoint=text,
            first=None if named is None else lambda settings: inputs.first_of(named, settings, now),
        )
        if done.changed and done.before is not None:
            names = changed_fields(done.before, done.item)
            await self._record("edit", item_id, by=by, reason=reason, detail=", ".join(names))
        return await self._after_change(done.item)

    @_change
    async def run(
        self,
        item_id: str,
        *,
        params: Mapping[str, Any] | None = None,
        trigger: str = "",
        reason: str = "",
        by: str = "",
    ) -> AskedRun:
        """Make an item due now, or once more when it is running; `params` are laid over its own for
        this one run. The schedule stays as it is. The same `trigger` twice is one run: while that
        waits, for ten minutes, and until 64 other requests to change the item have come. `by` is
        who does it. Raises BlackboardError when the item is paused, or too many runs wait.
        """
        _check_record(by, reason)
        once = dict(written(params) or {})
        check_params(once)
        once = plain(once)
        inputs.check_params_size(once, limit=self._table.table.max_value)
        asked = await edits.run_now(
            self._table, inputs.check_id(item_id), trigger=trigger, once=once
        )
        self._wake_workers()
        if asked.changed:
            names = ", ".join(param_names(once))
            await self._record("run", item_id, by=by, reason=reason, detail=names)
        return AskedRun(
            id=item_id,
            due=asked.slot,
            ahead=asked.ahead,
            joined=asked.joined,
            changed=asked.changed,
        )

    @_change
    async def pause(self, item_id: str, *, reason: str = "", by: str = "") -> BoardItem:
        """Start no more runs until the item is resumed. A run that has started may finish. `by` is
        who does it; user@host if none is given. Raises BlackboardError when the item is done.
        """
        return await self._act("pause", item_id, reason=reason, by=by)

    @_change
    async def resume(self, item_id: str, *, reason: str = "", by: str = "") -> BoardItem:
        """Undo a pause. A slot that came meanwhile is due at once, unless `missed` is "none"."""
        return await self._act("resume", item_id, reason=reason, by=by)

    @_change
    async def cancel(
        self, item_id: str, *, fence: int | None = None, reason: str = "", by: str = ""
    ) -> BoardItem:
        """End the running run of an item, or only the run with this fence: the item waits for its
        next slot. The handler is stopped when its worker renews the lock. Raises BlackboardError
        when there is no such run.
        """
        return await self._act("cancel", item_id, fence=fence, reason=reason, by=by)

    @_change
    async def unlock(
        self, item_id: str, *, fence: int | None = None, reason: str = "", by: str = ""
    ) -> BoardItem:
        """Take the lock of a running item from its holder, or only the lock with this fence: the
        item is due again at once. Raises BlackboardError when there is no such lock.
        """
        return await self._act("unlock", item_id, fence=fence, reason=reason, by=by)

    @_change
    async def ack(
        self, item_id: str, *, fence: int | None = None, reason: str = "", by: str = ""
    ) -> BoardItem:
        """Acknowledge that the last run of an item failed, or only the run with this fence: `check`
        passes over it until the item runs again. `by` is who does it. Raises BlackboardError when
        it has not failed, runs, or has run since.
        """
        return await self._act("ack", item_id, fence=fence, reason=reason, by=by)

    @_change
    async def rename(
        self, item_id: str, new_id: str, *, reason: str = "", by: str = ""
    ) -> BoardItem:
        """Give an item another id. Its history stays with the old one. A rename that was
        interrupted is finished when it is asked for again. `by` is who does it. Raises BadInput
        when the new id is taken, or the same, and for a partition or an election, BlackboardError
        when the item runs.
        """
        mark = await mark_now(self._table, reason, by=by)
        inputs.check_id(item_id)
        inputs.check_new_id(new_id, "new_id")
        done = await rename(self._table, item_id, new_id, mark)
        if done.changed:
            await self._record("rename", item_id, by=by, reason=reason, detail=f"to {new_id}")
        return await self._after_change(done.item)

    @_change
    async def remove(self, item_id: str, *, reason: str = "", by: str = "") -> None:
        """Remove an item. What runs loses its lock and is stopped; the history stays until its time
        is up. `by` is who does it.
        """
        _check_record(by, reason)
        if (await edits.remove(self._table, inputs.check_id(item_id))).changed:
            await self._record("remove", item_id, by=by, reason=reason)

    # ---- working

    @_verb
    def worker(
        self,
        *,
        slots: int | None = None,
        cycle: str | float | timedelta | None = None,
        types: Sequence[str] | None = None,
        grace: str | float | timedelta | None = None,
    ) -> "BoardWorker":
        """A worker with the handlers of this board, to be entered: `async with board.worker():`.

        `slots` is how many runs it holds at a time, `cycle` the time between two walks, `grace`
        what runs may take to finish when it is to stop; else as `[worker]` says (8, 60 s, 30 s).
        Durations are text, timedelta, or seconds. `types` are the types it takes; None: all.

        Raises BadInput when there is no handler, or one that a child process could not import, and
        for a list of types that is empty.
        """
        from blackboard.assembly import new_worker

        settings = worker_settings(
            self._location.settings, slots=slots, cycle=cycle, types=types, grace=grace
        )
        handlers = handlers_taken(self._location.handlers, settings.types)
        if not handlers:
            raise BadInput("handlers", "there are none", "open the board with handlers=[...]")
        events = EventEmitter(identity(self._table.chance))
        events.subscribe(log_event, "the log")
        events.subscriptions += self._subscriptions
        worker = new_worker(
            self._table,
            handlers=handlers,
            settings=settings,
            declared=self._location.settings,
            events=events,
            store=self._location.url,
            check_loop=self._verbs.check_loop,
        )
        self._workers.add(worker)
        return worker

    @_verb
    def election(
        self,
        name: str,
        *,
        kind: "Kind" = "mutex",
        lease: str | float | timedelta = "15s",
        rank: int = 0,
        preempt: bool = True,
    ) -> "Election":
        """A candidate in an election, to be entered: `async with board.election("report") as
        leader: await leader.won()`. One of all candidates of that name on this board leads, in any
        process on any host.

        `kind` is how it is found: "mutex", the first that gets the lock; "bully", the highest
        `rank` that answers; "ring", the highest of a list that goes around. A leader that is gone
        without a word is replaced after `lease`, 3 s to 1 h. With `preempt` a bully of a higher
        rank takes the lead from one of a lower rank.

        Raises BadInput for what cannot be used, and when the block is entered for a kind or a lease
        that is not that of the other candidates.
        """
        from blackboard.protocol.leaders import name_of_program
        from blackboard.sharing.election import Election

        inputs.check_looks("name", inputs.check_text("name", name))
        election = Election(
            self._table,
            name=name_of_program(name),
            owner=identity(self._table.chance),
            kind=kind,
            lease=lease,
            rank=rank,
            preempt=preempt,
            check_loop=self._verbs.check_loop,
        )
        self._elections.add(election)
        return election

    @_verb
    def web(
        self,
        *,
        operator: bool = False,
        token: str = "",
        user_header: str = "",
        proxies: Sequence[str] = (),
        hosts: Sequence[str] | None = None,
        secret: str = "",
    ) -> "WebPages":
        """The pages of this board, an ASGI application: `app.mount("/jobs", board.web())`. Needs
        the extra `web`.

        Who may see them is for the application around them to decide, unless `token` is what a
        visitor has to know, or `user_header` names the visitor where a request comes from one of
        `proxies`, addresses such as "10.0.0.0/24". With `operator` visitors may also run, pause,
        edit, rename and remove items. `hosts` are the names that they are served under; None: any.
        `secret` signs forms and sessions: where several processes serve the pages they need the
        same, unless there is a token.

        Raises BadInput for what cannot be used, and where the extra is not installed.
        """
        remedy = "pip install 'blackboard-scheduler[web]'"
        try:
            from blackboard.web.access import access_of
            from blackboard.web.app import web_app
        except ImportError as missing:
            raise BadInput("web", f"the pages need {missing.name}", remedy) from None
        except BadInput as missing:  # the remedy of metrics would not be enough
            raise BadInput("web", missing.problem, remedy) from None
        access = access_of(
            operator=operator,
            token=token,
            user_header=user_header,
            proxies=proxies,
            hosts=hosts,
            user=_user_here(),
        )
        pages = web_app(
            self._table,
            self._recording("web"),
            unrecorded=self._recording(None),
            store=self._location.store,
            settings=self._location.settings,
            access=access,
            secret=secret,
        )
        self._pages.append(pages)
        return pages

    @_verb
    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` with the events of the workers of this board that are made here: the
        classes of `blackboard.events`. It is called on the event loop and must not block. What it
        raises is isolated from the worker and from other subscribers, and counted. Returns a
        function that ends this. Raises BadInput for what cannot be called, and for an `async def`.
        """
        if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
            remedy = "give a plain function; it may create a task"
            raise BadInput("callback", f"{quoted(callback)} is a coroutine function", remedy)
        subscription = Subscription(callback)
        self._subscriptions.append(subscription)
        for worker in self._workers:
            worker.events.subscriptions.append(subscription)

        def end() -> None:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                for worker in self._workers:
                    worker.events.subscriptions.remove(subscription)

        return end

    # ---- helpers

    def _recording(self, via: Via | None) -> "Board":
        """This board, with the same workers and verbs under way, called by `via`."""
        board = Board(self._table, self._location, via=via)
        board._workers, board._verbs = self._workers, self._verbs
        return board

    async def _close(self) -> None:
        """Workers that still work are stopped, and put back what they run; leaders resign; changes
        of many items that were begun on the pages begin no other item after a while, and end.
        Handlers may call verbs until then; at last the verbs under way are finished, and others
        refused. All that is done before the table is closed, at a cancellation, too.
        """
        self._is_closing = True

        async def ended() -> list[BaseException | None]:
            ends = [
                *(worker._close() for worker in self._workers),  # noqa: SLF001 - it ends with its board
                *(election.end() for election in self._elections),
                *(pages.close() for pages in self._pages),
            ]
            results = await asyncio.gather(*ends, return_exceptions=True)
            await self._verbs.end()
            return results

        for result in await finishing(ended()):
            if result is not None:
                raise result

    async def _act(
        self, verb: str, item_id: str, *, reason: str, by: str, fence: int | None = None
    ) -> BoardItem:
        """Do one of `VERBS`. Raises BlackboardError where its answer is no."""
        if fence is not None:
            inputs.check_whole("fence", fence)
        item = await self._table.found(inputs.check_id(item_id))
        mark = await mark_now(self._table, reason, by=by)
        answer = await VERBS[verb](self._table, item, mark, fence)
        if answer.no:
            raise BlackboardError(f"{item_id} {answer.words}")
        if answer.changed:
            await self._record(verb, item_id, by=by, reason=reason)
        return await self._after_change(answer.item)

    async def _after_change(self, item: Item) -> BoardItem:
        """An item that was changed here: workers that were made here walk without waiting. It is
        done: where the store does not answer, or the lock is damaged, that is left out.
        """
        self._wake_workers()
        try:
            return await self._shown(item)
        except (TableError, BadRow):
            board = self._table
            now, resolution = board.clock.now(), board.table.resolution
            return item_record(
                status_of(item, None, now=now, resolution=resolution), board.labels(item)
            )

    async def _record(
        self, verb: str, item_id: str, *, by: str, reason: str = "", detail: str = ""
    ) -> None:
        """Record what a person did. It is done: a store that does not take the record is logged."""
        if self._via is None or not (by or reason):
            return
        try:
            await record_action(
                self._table,
                by=operator(by),
                verb=verb,
                ids=[item_id],
                reason=reason,
                detail=detail,
                via=self._via,
            )
        except TableError as trouble:
            _log.warning("%s of %s is done, and not recorded: %s", verb, item_id, trouble)

    def _wake_workers(self) -> None:
        for worker in self._workers:
            worker._walk_soon()  # noqa: SLF001 - it works for its board
        self._location.wake_workers()

    async def _shown(self, item: Item) -> BoardItem:
        return item_record((await read_one(self._table, item))[0], self._table.labels(item))


def _check_limit(limit: int | None) -> None:
    if limit is not None and inputs.check_whole("limit", limit) < 0:
        raise BadInput("limit", f"{limit} is too few", "0 or more")


def _aware(moment: datetime | None, name: str) -> datetime | None:
    if moment is not None and moment.utcoffset() is None:
        raise BadInput(name, f"{moment} has no offset", "give an aware datetime")
    return moment


def _check_record(by: str, reason: str) -> None:
    """Raises BadInput for words that are too long, or no UTF-8."""
    inputs.check_text("by", by)
    inputs.check_text("reason", reason)


async def mark_now(board: BoardTable, reason: str, *, by: str = "") -> Mark:
    """Who does something now, for the record: `by`, or the user of this process and its host.
    Raises BadInput for words that are too long, or no UTF-8.
    """
    inputs.check_text("reason", reason)
    return Mark(by=operator(by), at=await board.table.now(), reason=reason)


def operator(by: str = "") -> str:
    """Who does something: `by`, or the user of this process and its host. Raises BadInput."""
    inputs.check_text("by", by)
    return by or _user_here()


def _user_here() -> str:
    """The user of this process and its host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    name = f"{user}@{socket.gethostname()}"
    return name.encode(errors="backslashreplace").decode()  # a row has UTF-8 text alone


def _as_texts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, as a spec has them. Raises TypeError for one that is none, as
    Python does, and BadInput for a value of another kind.
    """
    kinds = RunOptions.__annotations__
    for name in options:
        if name not in kinds:
            raise TypeError(f"{name!r} is not an option of an item ({', '.join(kinds)})")
    return {
        name: as_text(inputs.argument(name, value, kinds[name]), name)
        for name, value in options.items()
        if value is not None
    }
