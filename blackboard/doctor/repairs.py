"""The one batch that puts an item's tokens right again. Pure.

    no item                           its tokens and its lock go, each by its own etag
    a lock that may be alive          it is kept, and the item says so; waiting tokens go
    a lock that is of an older fence  it goes, and the fence rises above it
    running, but no lock              the fence rises and the item waits again, due as it was
    waiting                           the token that the item names is there, and no other
    unlike its history                the fence rises to it; outcome and stop are the newest run's
    ahead of the clock                start and stop are now; what nothing explains is planned anew

A lock may be alive when it is of this life of the item and its fence is not below the item's; its
holder then releases it as if nothing had been, or it goes stale. Every batch states the etag of
the item as it was judged, and of each row that it deletes or replaces: if anything has moved, all
of it is refused. What is not understood is not touched: foreign rows, unreadable ones, those of a
newer version, and items in a wrong shard.

What an item is planned by, as far as its reader can say.
"""

from blackboard.doctor.diagnosis import Bounds, Case, differences, speaks_for
from blackboard.errors import BadInput
from blackboard.model import Item, Lock, State, replace
from blackboard.protocol.batches import PLANNED, insert_next
from blackboard.protocol.edits import settings_of
from blackboard.protocol.keys import item_key, lock_key, shard_of
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import columns_of
from blackboard.rules.next_run import Planning
from blackboard.rules.transitions import brought_back
from blackboard.schedule.schedule import parse_schedule
from blackboard.table import Delete, Merge, Op, Replace

MENDED = ("running", "owner", "fence", "start", "stop", "outcome", *PLANNED)


def repair_ops(case: Case, bounds: Bounds) -> list[Op]:
    """The batch, empty when there is nothing that it could put right."""
    if case.sealed:
        return []
    if case.item is None:
        return _without_item(case)
    if shard_of(case.id, bounds.shards) != case.shard:
        return []
    kept = case.lock if case.lock is not None and may_live(case.lock, case.item) else None
    after = _following(case.item, kept) if kept else _freed(case, case.item, bounds)
    ops = _token_ops(case, after)
    if case.lock is not None and kept is None:
        ops.append(Delete(lock_key(case.id), case.lock.etag))
    changed = {
        name: value
        for name, value in columns_of(after, *MENDED).items()
        if getattr(case.item, name) != getattr(after, name)
    }
    if not ops and not changed:
        return []
    return [Merge(item_key(case.id), changed, case.item.etag), *ops]


def may_live(lock: Lock, item: Item) -> bool:
    """Whether a lock's holder may still be at work, and would be right."""
    return item.state is not State.REMOVED and lock.born == item.born and lock.fence >= item.fence


def _following(item: Item, lock: Lock) -> Item:
    """The item as its lock has it."""
    if item.running and (item.fence, item.owner) == (lock.fence, lock.owner):
        return item
    return replace(item, running=True, owner=lock.owner, fence=lock.fence, start=lock.since)


def _freed(case: Case, item: Item, bounds: Bounds) -> Item:
    """The item without a lock, in the present. Whatever takes a lock away raises the fence above
    it.
    """
    fence = item.fence + item.running
    if case.lock is not None and case.lock.fence >= fence:
        fence = case.lock.fence + 1
    after = replace(item, running=False, fence=fence)
    run = case.newest
    if run is not None:
        after = replace(after, fence=max(fence, run.fence))
        if speaks_for(run, item):
            after = replace(after, outcome=run.outcome, stop=run.stop)
    if bounds.planning is None or item.state is State.REMOVED:
        return after
    return brought_back(after, bounds.planning, now=bounds.now)


def _token_ops(case: Case, after: Item) -> list[Op]:
    others = dict(case.tokens)
    ops: list[Op] = []
    if after.waits:
        named = insert_next(after)
        there = others.pop(named.key, None)
        if there is None:
            ops.append(named)
        elif there.born != after.born or differences(there, after):
            ops.append(Replace(named.key, named.data, there.etag))
    return ops + [Delete(key, token.etag) for key, token in others.items()]


def _without_item(case: Case) -> list[Op]:
    ops: list[Op] = [Delete(key, token.etag) for key, token in case.tokens.items()]
    if case.lock is not None:
        ops.append(Delete(lock_key(case.id), case.lock.etag))
    return ops


def planning_of(board: BoardTable, item: Item) -> Planning | None:
    """None where it cannot be computed. A schedule that the settings have by now may not be the one
    that the waiting token was planned by: the item's row has that.
    """
    try:
        settings = settings_of(board, item, item.spec)
        written = parse_schedule(item.schedule, item.timezone) if item.schedule else None
    except (BadInput, ValueError):
        return None
    schedules = [settings.schedule] if settings.schedule else []
    if written is not None and written not in schedules:
        schedules.append(written)
    return Planning(settings=settings, schedules=schedules)
