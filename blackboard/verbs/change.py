"""What people do to items: add, edit, pause, resume, run now, remove.

Each reads the item and writes it with the etag it read, in one batch with the token that the item
names. A locked item's token is its lock, which only its holder or an overrider writes: so edit,
pause, resume and run now write the item alone, and the release obeys it. Each counts once, however
often it is sent: `verbs/once.py`.

A `run now` is never dropped: what cannot be run next queues, and a queue that is full refuses it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from blackboard.board import Board
from blackboard.errors import BadInput, BlackboardError
from blackboard.model import Item, Mark, State
from blackboard.rows import text_of
from blackboard.rules.applied import ADDED, LONGEST_NAME, additions, is_applied
from blackboard.rules.outcomes import first_plan
from blackboard.rules.requests import LONGEST_QUEUE, Requested, requested, requests_of
from blackboard.rules.transitions import paused, rescheduled, resumed
from blackboard.schedules import parse_schedule
from blackboard.spec import RunSettings, Spec, decode_spec, encode_spec, rewrite_spec
from blackboard.table import Conflict, Unknown, units
from blackboard.verbs.batches import add_ops, change_ops, remove_ops, tombstone_of
from blackboard.verbs.once import (
    TRIES,
    Changed,
    change_item,
    check_in_time,
    remembered,
    restless,
)


async def add(
    board: Board, *, item_id: str, item_type: str, spec: Spec, first: datetime | None = None
) -> Changed:
    """Add an item, due at once or at `first`. Raises BadInput when it is there already."""
    settings = board.resolve(item_type, encode_spec(spec))
    name = ADDED + board.chance.nonce()
    began = await board.table.now()
    doubtful = False
    for _ in range(TRIES):
        old = await board.item(item_id)
        if old is not None and is_applied(old, name):
            return Changed(item=old)  # also when it was removed since
        now = await board.table.now()
        if doubtful:
            check_in_time(item_id, first=began, now=now)
        if old is not None and old.state is not State.REMOVED:
            raise BadInput("id", f"{item_id!r} is on this board already", "`blackboard edit`")
        plan = first_plan(item_id, settings=settings, first=first, now=now)
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
            first=plan.planned if first else None,
            schedule=settings.text,
            timezone=settings.timezone,
            applied=remembered(item_id, additions(old), name, now=began),
        )
        try:
            etags = await board.table.commit(board.partition(item_id), add_ops(item, over=old))
        except Conflict:
            continue
        except Unknown:
            doubtful = True
            continue
        return Changed(item=replace(item, etag=etags[0]))
    raise restless(item_id)


async def edit(board: Board, item_id: str, change: Callable[[Spec, Item], Spec]) -> Changed:
    """Change what an item says about its runs. A new schedule counts from now; an `every` from
    the last start. A slot that is being retried, or was asked for, is kept.
    """

    def build(item: Item, now: datetime) -> Item | None:
        spec = rewrite_spec(item.spec, change(decode_spec(item.spec), item))
        settings = settings_of(board, item, spec)
        is_other = (settings.text, settings.timezone) != (item.schedule, item.timezone)
        if spec == item.spec and not is_other:
            return None
        after = replace(item, spec=spec, schedule=settings.text, timezone=settings.timezone)
        if is_other:
            had_time = decode_spec(item.spec).at is not None
            after = rescheduled(after, settings=settings, had_time=had_time, now=now)
        return after

    return await change_item(board, item_id, build, write=change_ops)


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


async def pause(board: Board, item_id: str, mark: Mark) -> Changed:
    """No run of the item starts until it is resumed; one that runs may finish."""
    by = text_of(mark)
    return await change_item(board, item_id, lambda item, _: paused(item, by), write=change_ops)


async def resume(board: Board, item_id: str, mark: Mark) -> Changed:
    """A slot that came while the item was paused is due at once."""
    by = text_of(mark)

    def build(item: Item, now: datetime) -> Item | None:
        return resumed(item, by, now=now)

    return await change_item(board, item_id, build, write=change_ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Changed):
    """The item as it is now, and the run that was asked for."""

    slot: datetime
    ahead: int = 0
    """Runs that come before it, the running one included."""
    joined: bool = False
    """Whether the run was asked for before, or is a retry: one run is for both."""


async def run_now(
    board: Board, item_id: str, *, trigger: str = "", once: Mapping[str, object] | None = None
) -> Asked:
    """One run now, or in its turn behind what runs and what was asked for before; `once` is laid
    over its params. The same `trigger` twice is one run. The schedule stays as it was.

    Raises BadInput for a trigger that is named as an addition, BlackboardError when the item is
    paused, or has no room for one more request.
    """
    if trigger.startswith(ADDED):
        raise BadInput("trigger", f"{trigger!r} is kept for additions", f"without {ADDED!r}")
    if len(trigger) > LONGEST_NAME:
        raise BadInput(
            "trigger",
            f"{trigger[:LONGEST_NAME]!r}... has {len(trigger):,} characters",
            f"{LONGEST_NAME} at the most",
        )
    name = trigger or board.chance.nonce()
    params = text_of(once) if once else ""
    made: Requested | None = None

    def build(item: Item, now: datetime) -> Item:
        nonlocal made
        if item.is_paused:
            raise BlackboardError(f"{item_id} is paused: `blackboard resume {item_id}` first")
        made = requested(item, name=name, once=params, now=now)
        _check_room(made.item, limit=board.table.max_value)
        return made.item

    done = await change_item(board, item_id, build, write=change_ops, name=name)
    if made is None:  # it was applied by an earlier call
        return _asked_before(done.item, name)
    return Asked(
        item=done.item,
        changed=done.changed,
        slot=made.slot,
        ahead=made.ahead,
        joined=made.joined,
    )


def _asked_before(item: Item, name: str) -> Asked:
    """What became of a request that an earlier call has made."""
    for ahead, one in enumerate(requests_of(item), 1):
        if one.name == name:
            return Asked(item=item, changed=False, slot=one.slot, ahead=ahead, joined=True)
    return Asked(item=item, changed=False, slot=item.slot, joined=True)


def _check_room(item: Item, *, limit: int) -> None:
    """Refuse a request that the item's queue has no room for."""
    waiting = len(requests_of(item))
    size = units(item.requests)
    if waiting > LONGEST_QUEUE or size > limit:
        problem = (
            f"{waiting - 1} runs wait already, the most there may be"
            if waiting > LONGEST_QUEUE
            else f"the requests that wait would take {size:,} characters of {limit:,}"
        )
        raise BlackboardError(
            f"{item.id} cannot be asked to run once more: {problem}. Ask again when some have run "
            "(`blackboard why` counts them)"
        )


async def remove(board: Board, item_id: str) -> Changed:
    """Leave a tombstone; a run that is under way loses its lock. The history stays until its
    time is up.
    """

    def build(item: Item, now: datetime) -> Item:
        return tombstone_of(item, now=now)

    return await change_item(board, item_id, build, write=remove_ops, gone_is_done=True)
