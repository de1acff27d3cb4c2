"""What people do to items: add, edit, pause, resume, run now, remove.

Each reads the item and writes it with the etag it read, in one batch with the token that the item
names. A locked item's token is its lock, which only its holder or an overrider writes: so edit,
pause, resume and run now write the item alone, and the release obeys it.

A repeated request counts once. What is tried again after a lost race or a lost reply stays bound
to what was first read: an item removed and made anew meanwhile is another one, and a lock claimed
meanwhile another lock.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from blackboard.board import Board
from blackboard.errors import BadInput, BlackboardError
from blackboard.keys import item_key
from blackboard.model import NEVER, VERSION, Again, Item, Mark, State
from blackboard.rows import text_of
from blackboard.rules.outcomes import Plan, edited_plan, first_plan, slot_asked_for
from blackboard.schedules import Once, parse_schedule
from blackboard.spec import RunSettings, Spec, decode_spec, encode_spec, rewrite_spec
from blackboard.table import Conflict, Op, Unknown
from blackboard.verbs.batches import (
    add_ops,
    change_ops,
    planned,
    remove_ops,
    tombstone_of,
)

TRIES = 20
"""Readings of an item that keeps changing under one request."""
TRIGGERS = 8
"""Names of requests that an item remembers."""
ADDED = "add:"
"""How the names of requests to add it begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The item as it is now, and whether this request made it so."""

    item: Item
    changed: bool = True


class Missing(BadInput):
    """There is no such item."""

    def __init__(self, item_id: str) -> None:
        super().__init__("id", f"no item {item_id!r} on this board", "`blackboard show` lists them")


Build = Callable[[Item], tuple[list[Op], Item] | None]
"""From an item as read: the batch and the item it makes, or None when nothing is left to do."""


async def add(
    board: Board, *, item_id: str, item_type: str, spec: Spec, first: datetime | None = None
) -> Changed:
    """Add an item, due at once or at `first`. Raises BadInput when it is there already."""
    settings = board.resolve(item_type, encode_spec(spec))
    name = ADDED + board.chance.nonce()
    for _ in range(TRIES):
        old = await board.item(item_id)
        names = _triggers(old) if old else []
        if old is not None and name in names:
            return Changed(item=old)  # also when somebody has removed it since
        if old is not None and old.state is not State.REMOVED:
            raise BadInput("id", f"{item_id!r} is on this board already", "`blackboard edit`")
        plan = first_plan(item_id, settings=settings, first=first, now=await board.table.now())
        item = Item(
            id=item_id,
            type=item_type,
            state=plan.state,
            spec=encode_spec(spec),
            fence=old.fence if old else 0,
            born=old.fence if old else 0,
            slot=plan.slot,
            ready=plan.ready,
            planned=plan.planned,
            schedule=settings.text,
            timezone=settings.timezone,
            triggers=text_of([name, *filter(_is_addition, names)][:TRIGGERS]),
        )
        try:
            etags = await board.table.commit(board.partition(item_id), add_ops(item, over=old))
        except (Conflict, Unknown):
            continue
        return Changed(item=replace(item, etag=etags[0]))
    raise _restless(item_id)


async def edit(board: Board, item_id: str, change: Callable[[Spec, Item], Spec]) -> Changed:
    """Change what an item says about its runs. A new schedule counts from now; an `every` from
    the last start. A slot that is being retried, or was asked for, is kept.
    """

    def build(item: Item) -> tuple[list[Op], Item] | None:
        spec = rewrite_spec(item.spec, change(decode_spec(item.spec), item))
        settings = settings_of(board, item, spec)
        rescheduled = (settings.text, settings.timezone) != (item.schedule, item.timezone)
        if spec == item.spec and not rescheduled:
            return None
        after = replace(item, spec=spec, schedule=settings.text, timezone=settings.timezone)
        if rescheduled:
            had_time = decode_spec(item.spec).at is not None
            after = _rescheduled(after, settings=settings, had_time=had_time, now=now)
        return change_ops(item, after), after

    now = await board.table.now()
    return await change_item(board, item_id, build)


def settings_of(board: Board, item: Item, spec: str) -> RunSettings:
    """What `item` is run with when it says `spec`. A schedule that only a handler says, which need
    not be known here, is the one it was last run with.
    """
    settings = board.resolve(item.type, spec)
    elsewhere = not decode_spec(item.spec).has_schedule
    if settings.schedule is None and elsewhere and item.schedule:
        schedule = parse_schedule(item.schedule, item.timezone)
        return replace(settings, schedule=schedule, timezone=item.timezone)
    return settings


def _rescheduled(item: Item, *, settings: RunSettings, had_time: bool, now: datetime) -> Item:
    """The item under its new schedule. `had_time` tells that the old one was an `at`: otherwise an
    item that never ran keeps the first time it was given.
    """
    plan = edited_plan(item, settings=settings, now=now)
    has_time = isinstance(settings.schedule, Once)
    if item.state is State.DONE:
        return planned(item, plan)
    if item.slot != item.planned:
        return _beside_one_asked_for(item, plan)
    if item.running or item.attempt > 1:
        return item
    if item.start is None and not (had_time or has_time):
        return item
    return planned(item, plan)


def _beside_one_asked_for(item: Item, plan: Plan) -> Item:
    """A run that was asked for goes on waiting, or running. What is planned changes, and no more
    than a millisecond of its slot.
    """
    if plan.state is State.DONE:
        return replace(item, planned=NEVER)
    slot = item.slot if item.running else slot_asked_for(item.slot, beside=plan.planned)
    return replace(item, slot=slot, planned=plan.planned)


async def pause(board: Board, item_id: str, mark: Mark) -> Changed:
    """No run of the item starts until it is resumed; one that runs may finish."""

    def build(item: Item) -> tuple[list[Op], Item] | None:
        if item.state is not State.ACTIVE:
            return None
        after = replace(item, state=State.PAUSED, paused=text_of(mark))
        return change_ops(item, after), after

    return await change_item(board, item_id, build)


async def resume(board: Board, item_id: str, mark: Mark) -> Changed:
    """A slot that came while the item was paused is due at once."""

    def build(item: Item) -> tuple[list[Op], Item] | None:
        if not item.is_paused:
            return None
        after = replace(item, paused="", resumed=text_of(mark))
        if item.state is not State.DONE:
            ready = item.ready if item.running else max(item.ready, now)
            after = replace(after, state=State.ACTIVE, ready=ready)
        return change_ops(item, after), after

    now = await board.table.now()
    return await change_item(board, item_id, build)


async def run_now(
    board: Board, item_id: str, *, trigger: str = "", once: dict[str, object] | None = None
) -> Changed:
    """One run now, or when the running one has ended; `once` is laid over its params. The same
    `trigger` twice is one run. The schedule stays as it was. Raises BadInput for a trigger that is
    named as an addition.
    """
    if trigger.startswith(ADDED):
        raise BadInput("trigger", f"{trigger!r} is kept for additions", f"without {ADDED!r}")
    name = trigger or board.chance.nonce()
    now = await board.table.now()
    params = text_of(once) if once else ""

    def build(item: Item) -> tuple[list[Op], Item] | None:
        if name in _triggers(item):
            return None
        names = text_of([name, *_triggers(item)][:TRIGGERS])
        if item.is_paused:
            raise BlackboardError(f"{item_id} is paused: `blackboard resume {item_id}` first")
        if item.running:
            again = text_of(Again(slot=slot_asked_for(now, beside=item.slot), once=params))
            after = replace(item, again=again, triggers=names)
        else:
            beside = NEVER if item.state is State.DONE else item.planned
            after = replace(
                item,
                state=State.ACTIVE,
                slot=slot_asked_for(now, beside=beside),
                ready=now,
                planned=beside,
                attempt=1,
                once=params,
                triggers=names,
            )
        return change_ops(item, after), after

    return await change_item(board, item_id, build)


async def remove(board: Board, item_id: str) -> Changed:
    """Leave a tombstone; a run that is under way loses its lock. The history stays until its
    time is up.
    """
    now = await board.table.now()

    def build(item: Item) -> tuple[list[Op], Item] | None:
        tombstone = tombstone_of(item, now=now)
        return remove_ops(item, tombstone), tombstone

    return await change_item(board, item_id, build, gone_is_done=True)


async def change_item(
    board: Board, item_id: str, build: Build, *, gone_is_done: bool = False
) -> Changed:
    """Read, build, commit; again after a lost race or a lost reply, bound to the same item. An
    item that a newer version wrote is left alone.
    """
    first: Item | None = None
    doubtful = False
    for _ in range(TRIES):
        item = await board.item(item_id)
        if item is None or item.state is State.REMOVED or (first and item.born != first.born):
            if first is not None and gone_is_done:
                return Changed(item=first)
            raise Missing(item_id)
        if item.version > VERSION:
            raise BadInput(
                "id", f"{item_id!r} was written by a newer version", "upgrade blackboard"
            )
        first = first or item
        built = build(item)
        if built is None:
            return Changed(item=item, changed=doubtful)
        ops, after = built
        try:
            etags = await board.table.commit(board.partition(item_id), ops)
        except Conflict:
            continue
        except Unknown:
            doubtful = True
            continue
        written = [op.key for op in ops].index(item_key(item_id))
        return Changed(item=replace(after, etag=etags[written]))
    raise _restless(item_id)


def _is_addition(name: str) -> bool:
    """Whether a name is that of a request to add the item, which outlasts its removal: whoever is
    still in doubt about it may find another life of the id.
    """
    return name.startswith(ADDED)


def _triggers(item: Item) -> list[str]:
    return msgspec.json.decode(item.triggers, type=list[str]) if item.triggers else []


def _restless(item_id: str) -> BlackboardError:
    return BlackboardError(f"{item_id} changed {TRIES} times under this request: try again")
