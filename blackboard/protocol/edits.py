"""What operators do to items that are there: edit, pause, resume, run, unlock, cancel, remove.

Each reads the item and writes it with the etag it read, in one batch with the token that the item
names. A locked item's token is its lock, which only its holder or an overrider writes: so edit,
pause, resume and run then write the item alone, and the release obeys it. A request for a run is
never dropped: one that cannot be run next is queued, and one that finds the queue full is refused.

Unlock and cancel take a lock from its holder. Both are about the lock that was shown, by its fence,
and do nothing to another. The fence rises, so that the holder's result is found to be late; the
holder stops its handler at its next renewal or walk.

Each counts once, whatever reply gets lost. A request that is tried again after a lost race or a
lost reply stays bound to the item and lock that were first read: an item removed and made anew
meanwhile is another one, and a lock claimed meanwhile another lock. And it carries a name, which
the item remembers: a pause that was applied is not applied again over a resume that came after it.
`rules/applied.py` says how long a name is remembered, and why that is long enough.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from operator import attrgetter

from msgspec import Struct

from blackboard.errors import (
    BadInput,
    BadRow,
    BeingRenamed,
    BlackboardError,
    Missing,
    StillRuns,
    Unchangeable,
)
from blackboard.model import (
    Acknowledgement,
    Applied,
    Item,
    Lock,
    Mark,
    Outcome,
    Run,
    State,
    replace,
    whole_milliseconds,
)
from blackboard.protocol import keys
from blackboard.protocol.batches import change_ops, free_ops, remove_ops, removed_run_op
from blackboard.protocol.board_table import BoardTable, known_fence, readings
from blackboard.protocol.groups import check_held, check_no_params, check_no_pump
from blackboard.protocol.planning import planning_of, settings_of, spec_of
from blackboard.protocol.rename_marks import as_copy, as_old, check_no_copy, is_copy_of
from blackboard.protocol.rows import check_version, data_of, readable, text_of, version_of
from blackboard.rules.applied import (
    LONGEST_NAME,
    OWN,
    REMEMBERED,
    RETRIED_FOR,
    is_applied,
    may_retry,
    remembering,
)
from blackboard.rules.transitions import (
    LONGEST_QUEUE,
    ItemEvent,
    Requested,
    applies,
    brought_back,
    first_moved,
    freed,
    paused,
    removed,
    requested,
    rescheduled,
    resumed,
    run_of,
    unlocked,
)
from blackboard.rules.wrong_clock import problem_of_times
from blackboard.schedule.times import format_duration
from blackboard.spec import OF_ITS_SCHEDULE, RunSettings, Spec, rewrite_spec
from blackboard.table import ANY, Conflict, Delete, Op, Replace, Unknown, read, units

READINGS = 20
"""How often one request reads an item that keeps changing, at the most."""
AT_ONCE = 3
"""The first of these readings, which have no pause before them. By the pauses before the others,
many requests for one item take turns."""
SHORTEST, LONGEST = 0.01, 0.1
"""Such a pause is the longer, the longer the last try took, and the more there were: up to so many
seconds for each, so that the pauses take some ten seconds together, at the most twenty.
"""
UNANSWERED = 3
"""How many tries of one request may have no answer."""
PAUSE = 1.0
"""Seconds before the reading after a try without an answer, for each that there was."""


class Tries:
    """The tries of one request for an item: again where it met another change, and a few times
    where the store did not say whether it was applied.
    """

    def __init__(self, board: BoardTable, item_id: str) -> None:
        self.unanswered: Unknown | None = None
        """The last try without an answer, which may have been applied."""
        self._board = board
        self._item_id = item_id
        self._made = self._lost = 0
        self._pause = 0.0
        self._begun = board.clock.monotonic()
        """When the last try began."""

    async def begin(self) -> None:
        """Begins the next try, after its pause. Raises as `check` after too many."""
        if self._made == READINGS:
            raise self._uncertain()
        pause, self._pause = self._pause, 0.0
        if self._made >= AT_ONCE:
            took = self._board.clock.monotonic() - self._begun
            most = self._made * min(max(took, SHORTEST), LONGEST)
            pause = pause or self._board.chance.fraction() * most
        if pause:
            await self._board.clock.sleep(pause)
        self._made += 1
        self._begun = self._board.clock.monotonic()

    def check(self) -> None:
        """Before a batch is sent: whether it may be. Raises Unknown if the last one had no answer,
        else BlackboardError.
        """
        if self._lost == UNANSWERED:
            raise self._uncertain()

    def lost(self, unanswered: Unknown) -> None:
        """Counts a try that had no answer."""
        self.unanswered = unanswered
        self._lost += 1
        self._pause = self._lost * PAUSE

    def _uncertain(self) -> Exception:
        doubt = f"it is not certain that {self._item_id} was changed"
        remedy = "look at it, and try again"
        if self.unanswered is not None:
            return Unknown(f"{doubt}: {str(self.unanswered) or 'no answer'}; {remedy}")
        return BlackboardError(f"{doubt}: {READINGS} tries met other changes; {remedy}")


class Changed(Struct, frozen=True, kw_only=True):
    """The item as it is now, and whether this request made it so."""

    item: Item
    before: Item | None = None
    """The item as the request found it; None: it was added, or an earlier call has applied the
    request."""
    changed: bool = True


Build = Callable[[Item, datetime], Item | None]
"""From an item as read and the store's time, makes the new item; None: there is nothing to do."""
Write = Callable[[Item, Item], list[Op]]
"""Makes the batch, from the item before and after."""


async def change_item(
    board: BoardTable,
    item_id: str,
    build: Build,
    *,
    write: Write,
    name: str = "",
    is_shared: bool = False,
    gone_is_done: bool = False,
    also_copy: bool = False,
) -> Changed:
    """Applies one change to an item. `name` is drawn where none is given; `is_shared`: another call
    may have used it. An item that a newer version wrote is left alone, and so is the copy of a
    rename that is not done, unless `also_copy`. Raises Missing, BeingRenamed, and BlackboardError
    or Unknown when it is uncertain whether the change was applied.
    """
    name = name or board.chance.nonce()
    began = await board.table.now()
    first: Item | None = None
    sent: Item | None = None
    tries = Tries(board, item_id)
    while True:
        await tries.begin()
        item = await board.item(item_id)
        if item is None or item.state is State.REMOVED or (first and item.born != first.born):
            if first is None or not gone_is_done:
                raise Missing(item_id)
            # Found without a doubt, it is a batch that was sent twice on its way to the store.
            changed = tries.unanswered is not None or bool(item and is_applied(item, name))
            return Changed(item=first, before=first, changed=changed)
        check_version(item)
        if not also_copy:
            check_no_copy(item)
        first = first or item
        if is_applied(item, name):
            changed = tries.unanswered is not None or not is_shared
            return Changed(item=item, before=sent, changed=changed)
        if tries.unanswered is not None:
            tries.check()
            check_in_time(item_id, first=began, now=await board.table.now())
        after = build(item, began)
        if after is None:
            return Changed(item=item, before=item, changed=False)
        after = replace(after, applied=remembered(board, after, name, now=began))
        sent = item
        try:
            etags = await board.commit(item_id, write(item, after))
        except Conflict:
            continue
        except Unknown as unanswered:
            tries.lost(unanswered)
            continue
        return Changed(item=replace(after, etag=etags[keys.item_key(item_id)]), before=item)


def remembered(board: BoardTable, item: Item, name: str, *, now: datetime) -> tuple[Applied, ...]:
    """The names of an item and one more. Raises BlackboardError when there is no room for it."""
    names = remembering(item, name, now=now)
    if names is None or units(text_of(names)) > board.table.max_value:
        times = f"{len(item.applied)} times within {format_duration(REMEMBERED)}"
        raise BlackboardError(f"{item.id} was changed {times}: try again in some minutes")
    return names


def check_in_time(item_id: str, *, first: datetime, now: datetime) -> None:
    """Refuses to try again a request that may have been applied and forgotten."""
    if not may_retry(first=first, now=now):
        raise BlackboardError(
            f"the store did not say within {format_duration(RETRIED_FOR)} whether {item_id} was "
            "changed: look at it, and ask again if it was not"
        )


async def edit(
    board: BoardTable,
    item_id: str,
    change: Callable[[Spec, Item], Spec],
    *,
    item_type: str | None = None,
    checkpoint: str | None = None,
    first: Callable[[RunSettings], datetime | None] | None = None,
    declared_by: str | None = None,
) -> Changed:
    """Changes the spec of an item. A new schedule counts from now; an `every` from the last start.
    A slot that is being retried, or was asked for, is kept. `checkpoint` is JSON where its next run
    is to go on; "": it begins anew; None: it stays, unless the item gets another type, or a run
    that was asked for with params of its own comes next. `first` names the first time of an item
    that never ran. Raises StillRuns for a new type or a checkpoint while the item runs, BadInput
    for a first time of an item that ran.
    """
    when = attrgetter(*OF_ITS_SCHEDULE)

    def build(item: Item, now: datetime) -> Item | None:
        before = spec_of(item)
        after = change(before, item)
        check_held(board.name, after, item_type=item_type, before=before)
        spec = rewrite_spec(item.spec, after)
        check_ended(item, item_type=item_type, checkpoint=checkpoint)
        edited, planned = replace(item, spec=spec), item
        if declared_by is not None:
            edited = replace(edited, declared_by=declared_by)
        of_type = item_type or item.type
        has_other_type = of_type != item.type
        if has_other_type:
            edited = replace(edited, type=of_type, checkpoint="")
            planned = replace(item, type=of_type, schedule="")  # its own is of the type before
        is_needed = bool(first) or has_other_type or when(before) != when(after)
        settings = _settings_if(board, planned, spec, needed=is_needed)
        if settings is not None:
            if has_other_type:
                check_no_pump(board.name, of_type, settings)
            named = first(settings) if first else None
            edited = _planned_by(settings, edited, first=named, now=now)
        if checkpoint is not None:
            edited = replace(edited, checkpoint=checkpoint)
        return None if edited == item else edited

    return await change_item(board, item_id, build, write=change_ops)


def _planned_by(
    settings: RunSettings, item: Item, *, first: datetime | None, now: datetime
) -> Item:
    """An edited item under the schedule of its settings, where its row has another one, and with
    the `first` time that was named. Raises BadInput where one was, and the item has run.
    """
    if first is not None:
        check_never_ran(item)
    has_other = (settings.text, settings.timezone) != (item.schedule, item.timezone)
    after = rescheduled(item, settings=settings, now=now) if has_other else item
    if first is None or (not has_other and whole_milliseconds(first) == item.first == item.planned):
        return after
    return first_moved(after, first, settings=settings, now=now)


def _settings_if(board: BoardTable, item: Item, spec: str, *, needed: bool) -> RunSettings | None:
    """As `settings_of`; where they are not needed, because the schedule stays as it is, None for
    those that cannot be computed here.
    """
    try:
        return settings_of(board, item, spec)
    except BadInput:
        if needed:
            raise
        return None


def check_ended(item: Item, *, item_type: str | None, checkpoint: str | None) -> None:
    """Raises StillRuns for an edit of an item that has to wait for the end of its run."""
    if item.running and item_type not in {None, item.type}:
        raise StillRuns(item.id, "type")
    if item.running and checkpoint is not None:
        raise StillRuns(item.id, "checkpoint")


def check_never_ran(item: Item) -> None:
    """Raises BadInput for an item that has run."""
    if item.start is not None:
        remedy = "`run` it, or give it another schedule"
        raise BadInput("first", f"{item.id} has run already", remedy)


async def bring_back(board: BoardTable, item_id: str) -> Changed:
    """Puts the times of an item right that only a wrong clock explains, and plans it anew where it
    waits because of them. One that runs is left alone.
    """

    def build(item: Item, now: datetime) -> Item | None:
        planning = planning_of(board, item)
        if planning is None or item.running or not problem_of_times(item, planning, now=now):
            return None
        return brought_back(item, planning, now=now)

    return await change_item(board, item_id, build, write=change_ops)


async def pause(board: BoardTable, item_id: str, mark: Mark) -> Changed:
    """Pauses an item: no run of it starts until it is resumed; one that runs may finish. The pause
    of a rename, which would end with the rename, is replaced.
    """
    by = text_of(mark)

    def build(item: Item, _: datetime) -> Item | None:
        if applies(ItemEvent.PAUSE, item):
            return paused(item, by)
        return replace(item, paused=by) if as_old(item) else None

    return await change_item(board, item_id, build, write=change_ops)


async def resume(board: BoardTable, item_id: str, mark: Mark) -> Changed:
    """Resumes an item. A slot that came while it was paused is due at once, unless the item has
    `missed = "none"`.
    """
    by = text_of(mark)

    def build(item: Item, now: datetime) -> Item | None:
        if not applies(ItemEvent.RESUME, item):
            return None
        planning = planning_of(board, item)
        return resumed(item, by, settings=planning.settings if planning else None, now=now)

    return await change_item(board, item_id, build, write=change_ops)


async def acknowledge(board: BoardTable, item_id: str, mark: Mark, *, fence: int) -> Changed:
    """Notes that a person has seen that the item's last run, with this fence, failed. Raises
    Unchangeable where it did not fail, or another run has begun.
    """
    text = text_of(Acknowledgement(by=mark.by, at=mark.at, reason=mark.reason, fence=fence))

    def build(item: Item, _: datetime) -> Item | None:
        if item.failures and item.running:
            words = "runs: its outcome ends the alarm or renews it; then `ack` it"
            raise Unchangeable(item_id, words)
        if item.fence != fence:
            since = f"has run since run {fence}: look at how it ended"
            words = since if fence < item.fence else f"has no run {fence}: its last is {item.fence}"
            raise Unchangeable(item_id, words)
        if not item.failures:
            raise Unchangeable(item_id, "has not failed")
        return None if item.is_acknowledged else replace(item, acknowledged=text)

    return await change_item(board, item_id, build, write=change_ops)


def check_trigger(trigger: str) -> None:
    """Raises BadInput for what cannot be the name of a request."""
    for kept in OWN:
        if trigger.startswith(kept):
            problem = f"{trigger[:LONGEST_NAME]!r} begins as the names that blackboard gives"
            raise BadInput("trigger", problem, f"without {kept!r}")
    if len(trigger) > LONGEST_NAME:
        raise BadInput(
            "trigger",
            f"{trigger[:LONGEST_NAME]!r}... has {len(trigger):,} characters",
            f"{LONGEST_NAME} at the most",
        )


async def run_now(
    board: BoardTable, item_id: str, *, trigger: str = "", once: Mapping[str, object] | None = None
) -> Requested:
    """Requests one run now, or in its turn behind the one that runs and earlier requests; `once` is
    laid over its params. The same `trigger` twice is one run, as long as the item remembers it
    (`rules/applied.py`). The schedule stays as it was.

    Raises BadInput for a trigger that is named as an addition or a rename, Unchangeable when the
    item is paused, or has no room for one more request.
    """
    check_trigger(trigger)
    if once:
        check_no_params(board.name)
    name = trigger or board.chance.nonce()
    params = text_of(once) if once else ""
    made: Requested | None = None

    def build(item: Item, now: datetime) -> Item:
        nonlocal made
        if item.is_paused:
            raise Unchangeable(item_id, "is paused: `resume` it first")
        made = requested(item, name=name, once=params, now=now)
        _check_room(made.item, limit=board.table.max_value)
        return made.item

    done = await change_item(
        board, item_id, build, write=change_ops, name=name, is_shared=bool(trigger)
    )
    if made is None or not done.changed:  # another call has applied it
        return _requested_before(done.item, name)
    return replace(made, item=done.item, changed=done.changed)


def _requested_before(item: Item, name: str) -> Requested:
    """The state of a request that an earlier call has made."""
    for ahead, request in enumerate(item.requests, 1):
        if request.name == name:
            return Requested(item=item, changed=False, slot=request.slot, ahead=ahead, joined=True)
    slot = next((request.at for request in item.applied if request.name == name), item.slot)
    return Requested(item=item, changed=False, slot=slot, joined=True)


def _check_room(item: Item, *, limit: int) -> None:
    """Refuses a request that the item's queue has no room for."""
    waiting, size = len(item.requests), units(str(data_of(item)["requests"]))
    if waiting > LONGEST_QUEUE:
        problem = f"{waiting - 1} runs wait already, the most there may be"
    elif size > limit:
        problem = f"the requests that wait would take {size:,} characters of {limit:,}"
    else:
        return
    words = f"cannot be asked to run once more: {problem}. Ask again when some have run"
    raise Unchangeable(item.id, f"{words} (`why` counts them)")


async def remove(board: BoardTable, item_id: str, *, declared_by: str | None = None) -> Changed:
    """Removes an item, and leaves a tombstone; a run that is under way loses its lock. The history
    stays until its retention is over. Where `declared_by` is given, an item of another file or
    owner counts as missing, and BadRow is raised for one whose row cannot be read; else it is
    removed as `_remove_damaged` says. Raises BeingRenamed for the copy of a rename that is not
    done, unless the old item was resumed.
    """

    def build(item: Item, now: datetime) -> Item:
        if declared_by not in {None, item.declared_by}:
            raise Missing(item_id)
        # A run that was claimed since the request began ends no earlier than it started.
        return removed(item, now=max(now, item.start or now))

    change = partial(change_item, board, item_id, build, write=remove_ops, gone_is_done=True)
    try:
        return await change()
    except BeingRenamed:
        if not await _is_undone(board, item_id):
            raise
    except BadRow:
        if declared_by is not None:
            raise  # whose it is cannot be read
        return await _remove_damaged(board, item_id)
    return await change(also_copy=True)


async def _remove_damaged(board: BoardTable, item_id: str) -> Changed:
    """Writes a tombstone over the row of an item that cannot be read, and deletes its lock and its
    tokens. The fence of the tombstone is above each that these rows, the history and the floor of
    the board have. The run of a lock that can be read is written into the history. Raises
    BlackboardError where one of the rows changes meanwhile.
    """
    table, partition = board.table, board.partition(item_id)
    item = await board.stand_in(item_id)
    if item is None:
        raise Missing(item_id)
    tokens = table.scan(partition, keys.NEXT, keys.end_of(keys.NEXT))
    rows = [row async for row in tokens if row.key.endswith(f":{keys.encode_id(item_id)}")]
    between = keys.runs_range(item_id)
    reading = readings(table, partition, between, lambda row: keys.fence_in(row.key), limit=1)
    newest = [fence async for fence in reading]
    fences = [item.fence, await board.floor(), *newest]
    lock = await read(table, partition, keys.lock_key(item_id))  # at last: its holder may renew it
    rows += [lock] if lock is not None else []
    # The version of the item may be what is damaged, and its token has it, too.
    versions = [item.version, *(version_of(row.data) for row in rows)]
    check_version(replace(item, version=max(versions)))
    fences += map(known_fence, rows)
    now = await table.now()
    tombstone = removed(replace(item, fence=max(fences)), now=now)
    ops: list[Op] = [Replace(keys.item_key(item_id), data_of(tombstone), item.etag)]
    ops += [Delete(row.key, row.etag) for row in rows]
    held = readable(Lock, lock) if lock is not None else None
    if held is not None and held.id == item_id and held.fence > max(newest, default=0):
        running = replace(
            item,
            type=held.type,
            owner=held.owner,
            fence=held.fence,
            attempt=held.attempt,
            slot=held.slot,
            ready=held.since,
            start=held.since,
        )
        ops.append(removed_run_op(running, now=max(now, held.since)))
    try:
        await table.commit(partition, ops)
    except Conflict:
        raise BlackboardError(
            f"{item_id} was changed meanwhile: look at it, and try again"
        ) from None
    return Changed(item=tombstone)


async def _is_undone(board: BoardTable, item_id: str) -> bool:
    """Whether the item that a copy is of was resumed: so the copy is not the only one."""
    copy = await board.item(item_id)
    renaming = as_copy(copy) if copy is not None else None
    if copy is None or renaming is None:
        return False
    old = await board.item(renaming.old_id)
    return old is not None and old.state is State.ACTIVE and is_copy_of(copy, old)


async def unlock(board: BoardTable, item_id: str, mark: Mark, *, fence: int) -> Changed:
    """Takes the lock with this fence from its holder: the item is due again at once, with the slot
    it had. Does nothing when the lock is another one by now.
    """
    return await _take_lock(
        board, item_id, mark, fence=fence, outcome=Outcome.ABANDONED, end=unlocked
    )


async def cancel(board: BoardTable, item_id: str, mark: Mark, *, fence: int) -> Changed:
    """Ends the run with this fence: its holder stops the handler at its next renewal or walk, and
    the item waits for its next slot. A partition or an election is due at once.
    """
    is_held = bool(keys.group_of(board.name))

    def end(item: Item, run: Run) -> Item:
        settings = settings_of(board, item, item.spec)
        return freed(item, run, settings=settings, requeue=is_held)

    return await _take_lock(board, item_id, mark, fence=fence, outcome=Outcome.CANCELLED, end=end)


async def _take_lock(
    board: BoardTable,
    item_id: str,
    mark: Mark,
    *,
    fence: int,
    outcome: Outcome,
    end: Callable[[Item, Run], Item],
) -> Changed:
    """Takes the lock with this fence from its holder; `end` makes the item that is written, from
    the item and its ended run.
    """

    def run(item: Item, now: datetime) -> Run:
        verb = "unlocked" if outcome is Outcome.ABANDONED else "cancelled"
        error = f"{verb} by {mark.by}" + (f": {mark.reason}" if mark.reason else "")
        return run_of(item, outcome, now=now, error=error, note=text_of(mark))

    def build(item: Item, now: datetime) -> Item | None:
        if not item.running or item.fence != fence:
            return None
        return end(item, run(item, now))

    def write(item: Item, after: Item) -> list[Op]:
        assert after.stop is not None
        return free_ops(item, ANY, after, run(item, after.stop))

    return await change_item(board, item_id, build, write=write)
