"""The batch that repairs an item and its tokens, from their rows alone. Pure.

`diagnosis.py` says what is wrong. The repair is one batch:

    no item                           its tokens and its lock are deleted, each by its own etag
    a lock that may be alive          it is kept, the item runs by it; waiting tokens are deleted
    a lock that is of an older fence  it is deleted, and the fence rises above it
    a lock that cannot be read        it is deleted as soon as no worker can hold it
    running, but no lock              the fence rises and the item waits again, due as it was
    waiting                           its token is the one that the item names, and no other; one
                                      that cannot be read is written anew
    unlike its history                the fence rises to it; outcome and stop are the newest run's
    ahead of the clock                start and stop are now; what nothing explains is planned anew

A lock may be alive when it is of this life of the item and its fence is not below the item's; its
holder then releases it as usual, or it goes stale. Every batch states the etag of the item as it
was judged, and of each row that it deletes or replaces: if one of them has changed, the whole batch
is refused. Foreign rows, items in a wrong shard and rows of a newer version are left alone, and so
is an item that has a lock or a token of a newer version. A row that cannot be read keeps the others
of its item from repair only if it is the item itself, or a lock that may be held.
"""

from blackboard.doctor import diagnosis
from blackboard.model import Item, Lock, State, one_more, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import changed_columns, insert_next
from blackboard.protocol.keys import item_key, lock_key
from blackboard.rules.transitions import brought_back
from blackboard.table import Delete, Merge, Op, Replace


def repair_ops(case: diagnosis.Case, bounds: diagnosis.Bounds) -> list[Op]:
    """The batch that repairs a case; empty when nothing can be repaired."""
    if case.is_sealed:
        return []
    if case.item is None:
        return _without_item(case)
    if diagnosis.is_astray(case, bounds) or diagnosis.may_be_held(case, bounds):
        return []
    kept = case.lock if case.lock is not None and may_live(case.lock, case.item) else None
    after = _following(case.item, kept) if kept else _freed(case, case.item, bounds)
    ops = _token_ops(case, after)
    if case.lock is not None and kept is None:
        ops.append(Delete(lock_key(case.id), case.lock.etag))
    if case.bad_lock is not None:
        ops.append(Delete(lock_key(case.id), case.bad_lock.etag))
    changed = changed_columns(case.item, after)
    if not ops and not changed:
        return []
    return [Merge(item_key(case.id), changed, case.item.etag), *ops]


def may_live(lock: Lock, item: Item) -> bool:
    """Whether the holder of a lock may still be at work, and under a valid fence."""
    is_of_it = lock.born == item.born and lock.fence >= item.fence
    return item.state is not State.REMOVED and is_of_it and diagnosis.has_lease(lock)


def _following(item: Item, lock: Lock) -> Item:
    """The item as it should be beside a lock that is kept."""
    if item.running and (item.fence, item.owner) == (lock.fence, lock.owner):
        return item
    return replace(item, running=True, owner=lock.owner, fence=lock.fence, start=lock.since)


def _freed(case: diagnosis.Case, item: Item, bounds: diagnosis.Bounds) -> Item:
    """The item without a lock, planned by the present time. Its fence rises above that of the lock
    that is taken away.
    """
    fence = one_more(item.fence) if item.running else item.fence
    if case.lock is not None and case.lock.fence >= fence:
        fence = one_more(case.lock.fence)
    after = replace(item, running=False, fence=max(fence, case.highest))
    run = case.newest
    if run is not None and diagnosis.speaks_for(run, case, item):
        after = replace(after, outcome=run.outcome, stop=run.stop)
    if bounds.planning is None or item.state is State.REMOVED:
        return after
    return brought_back(after, bounds.planning, now=bounds.now)


def _token_ops(case: diagnosis.Case, after: Item) -> list[Op]:
    others = dict(case.etags)
    ops: list[Op] = []
    if after.waits:
        named = insert_next(after)
        etag, token = others.pop(named.key, None), case.tokens.get(named.key)
        if etag is None:
            ops.append(named)
        elif token is None or token.born != after.born or diagnosis.differences(token, after):
            ops.append(Replace(named.key, named.data, etag))
    return ops + [Delete(key, etag) for key, etag in others.items()]


def _without_item(case: diagnosis.Case) -> list[Op]:
    ops: list[Op] = [Delete(key, etag) for key, etag in case.etags.items()]
    if (lock := case.lock or case.bad_lock) is not None:
        ops.append(Delete(f"{keys.LOCK}{case.part}", lock.etag))
    return ops
