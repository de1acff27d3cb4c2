"""The batches of the protocol, as data: what each verb writes, and on what condition.

    add       Insert item, Insert next; over a tombstone: Replace it (its etag), Insert next
    claim     Delete next (its etag), Insert lock, Merge item (ANY)
    renew     Merge lock (its etag)
    save      Merge item (its etag)
    release   Delete lock (its etag), Insert next if a token waits, Merge item (the etag it was
              built from), Insert run
    override  Replace lock (its etag), Merge item (its etag), Insert run
    free      Delete lock (its etag; ANY when an operator frees it), Insert next if a token waits,
              Merge item (its etag), Insert run: an override that runs nothing, an unlock, a cancel
    change    Merge item (its etag); the waiting token that the item names, if there is one, is
              replaced by the one it names now
    remove    Replace item by a tombstone (its etag; fence + 1), Delete its token
    late      Merge item (its etag), Insert or Replace run

Every batch but claim states the item's etag as it was read, and computes the token's key from the
item. A claim does not need the item's etag: the token's own etag lets only one claim succeed, and
every change of a waiting item writes its token anew. Without any one of these conditions, two
tokens, a lost edit or a falling fence follow within a few steps.

The rows of an item may contradict each other, as on a store that was set back to an older state.
Then a batch may find a token or a row of the history in its way that no worker can have written
under the stated etags. The item decides (`overwriting`): such a row does not keep an item from
being released.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from blackboard.model import Item, Lock, Outcome, Run, State, Token, Work
from blackboard.protocol.keys import NEXT, RUN, item_key, lock_key, next_key, run_key
from blackboard.protocol.rows import columns_of, data_of
from blackboard.rules.transitions import run_of
from blackboard.table import ANY, Conflict, ConflictKind, Data, Delete, Insert, Merge, Op, Replace

PLANNED = (
    "state",
    "slot",
    "ready",
    "planned",
    "attempt",
    "put_back",
    "failures",
    "once",
    "requests",
)
"""The columns of an item that decide what it waits for."""
CLAIMED = ("start", "running", "put_back", "owner", "fence", "schedule", "timezone")
OVERRIDDEN = ("start", "owner", "fence", "attempt", "runs", "failures")
RELEASED = (*PLANNED, "stop", "running", "outcome", "runs", "error")
GOOD = ("result", "result_fence")
"""The columns that the release of a good run writes in addition."""
FREED = (*RELEASED, "fence")


def token_of(item: Item) -> Token:
    """The waiting token, a projection of the item."""
    return Token(**_work(item))


def item_of(token: Token) -> Item:
    """The item, as far as its waiting token repeats it."""
    return Item(state=State.ACTIVE, **_work(token))


_WORK = tuple(name for name in Work.__struct_fields__ if name != "etag")
_values = attrgetter(*_WORK)


def _work(work: Work) -> dict[str, Any]:
    """The fields that an item and its token have in common."""
    return dict(zip(_WORK, _values(work), strict=True))


_FIELDS = tuple(name for name in Item.__struct_fields__ if name not in {"id", "etag"})


def lock_of(item: Item, *, nonce: str, stale_after: float) -> Lock:
    """The lock of a run that has just begun."""
    assert item.start is not None
    return Lock(
        id=item.id,
        type=item.type,
        owner=item.owner,
        nonce=nonce,
        fence=item.fence,
        born=item.born,
        slot=item.slot,
        since=item.start,
        stale_after=stale_after,
        attempt=item.attempt,
    )


def insert_next(item: Item) -> Insert:
    return Insert(next_key(item.ready, item.id), data_of(item, kind=Token))


def add_ops(item: Item, *, over: Item | None) -> list[Op]:
    """Adds an item. `over` is the tombstone of an earlier life of the id."""
    data = data_of(item)
    first: Op = Insert(item_key(item.id), data)
    if over is not None:
        first = Replace(item_key(item.id), data, over.etag)
    return [first, insert_next(item)] if item.waits else [first]


def claim_ops(token: Token, item: Item, lock: Lock) -> list[Op]:
    """Claims an item. Three operations; of the etags returned by `commit`, the second is the
    lock's, the third the item's.
    """
    return [
        Delete(next_key(token.ready, token.id), token.etag),
        Insert(lock_key(token.id), data_of(lock)),
        Merge(item_key(token.id), columns_of(item, *CLAIMED), ANY),
    ]


def override_ops(before: Item, stale: Lock, item: Item, lock: Lock, run: Run) -> list[Op]:
    """Overrides a stale lock; `item` and `lock` are as they will be. The first two etags returned
    by `commit` are the lock's and the item's.
    """
    return [
        Replace(lock_key(item.id), data_of(lock), stale.etag),
        Merge(item_key(item.id), columns_of(item, *OVERRIDDEN), before.etag),
        Insert(run_key(item.id, run.fence), data_of(run)),
    ]


def release_ops(item: Item, lock_etag: str, after: Item, run: Run) -> list[Op]:
    """Releases an item. `after` is the item as it will be."""
    good = GOOD if run.outcome is Outcome.OK and not run.is_skipped else ()
    return _end_ops(item, lock_etag, after, run, columns=RELEASED + good)


def free_ops(item: Item, lock_etag: str, after: Item, run: Run) -> list[Op]:
    """Takes a lock from its holder; nothing is run."""
    return _end_ops(item, lock_etag, after, run, columns=FREED)


def _end_ops(
    item: Item, lock_etag: str, after: Item, run: Run, *, columns: tuple[str, ...]
) -> list[Op]:
    ops: list[Op] = [Delete(lock_key(item.id), lock_etag)]
    if after.waits:
        ops.append(insert_next(after))
    written = columns_of(after, *columns, *_changed(item, after))
    ops.append(Merge(item_key(item.id), written, item.etag))
    ops.append(Insert(run_key(item.id, run.fence), data_of(run)))
    return ops


def _changed(before: Item, after: Item) -> tuple[str, ...]:
    """The other columns that the end of a run has changed. Whether `warnings` has changed is seen
    from `warned`, their count: an item built from a token has only the latter.
    """
    names = tuple(
        name
        for name in ("applied", "checkpoint", "warned")
        if getattr(before, name) != getattr(after, name)
    )
    return (*names, "warnings") if "warned" in names else names


def save_ops(before: Item, after: Item) -> list[Op]:
    """Writes the checkpoint of a run that goes on."""
    return [Merge(item_key(before.id), columns_of(after, "checkpoint"), before.etag)]


def changed_columns(before: Item, after: Item) -> Data:
    """The columns in which an item has changed: what a Merge writes."""
    names = [name for name in _FIELDS if getattr(before, name) != getattr(after, name)]
    return columns_of(after, *names)


def change_ops(before: Item, after: Item) -> list[Op]:
    """Writes what has changed of an item, and its waiting token anew. A lock is never touched."""
    ops: list[Op] = [Merge(item_key(before.id), changed_columns(before, after), before.etag)]
    old = next_key(before.ready, before.id) if before.waits else None
    new = insert_next(after) if after.waits else None
    if old is not None and new is not None and old == new.key:
        ops.append(Replace(old, new.data, ANY))
        return ops
    if old is not None:
        ops.append(Delete(old, ANY))
    if new is not None:
        ops.append(new)
    return ops


def remove_ops(item: Item, tombstone: Item) -> list[Op]:
    ops: list[Op] = [Replace(item_key(item.id), data_of(tombstone), item.etag)]
    if item.running:
        assert tombstone.stop is not None
        ops.append(Delete(lock_key(item.id), ANY))
        ops.append(removed_run_op(item, now=tombstone.stop))
    elif item.state is State.ACTIVE:
        ops.append(Delete(next_key(item.ready, item.id), ANY))
    return ops


def removed_run_op(item: Item, *, now: datetime) -> Insert:
    """Writes the run that ends because its item is removed."""
    run = run_of(item, Outcome.CANCELLED, now=now, error="its item was removed")
    return Insert(run_key(item.id, run.fence), data_of(run))


def overwriting(ops: Sequence[Op], lost: Conflict) -> list[Op] | None:
    """The batch to send after a conflict, where the rows of an item contradict each other. The
    item, whose etag the batch states, decides: a token or a run is written over a row in its way,
    and a row that is missing need not be deleted. None: there is no such contradiction, but a row
    has changed.
    """
    op, before, after = ops[lost.index], ops[: lost.index], ops[lost.index + 1 :]
    match op, lost.kind:
        case Insert(key, data), ConflictKind.EXISTS if key.startswith((RUN, NEXT)):
            return [*before, Replace(key, data, ANY), *after]
        case Replace(key, data, "*"), ConflictKind.MISSING if key.startswith((RUN, NEXT)):
            return [*before, Insert(key, data), *after]
        case Delete(_, "*"), ConflictKind.MISSING:
            return [*before, *after]
        case _:
            return None


def late_ops(item: Item | None, run: Run, row: Run | None) -> list[Op]:
    """Records a late run. `item` takes its result; None: only the history is written. `row` is the
    row of this fence in the history; None: it was pruned long ago, and the item's result is newer.
    """
    key = run_key(run.id, run.fence)
    if row is None:
        return [Insert(key, data_of(run))]
    record = Replace(key, data_of(run), row.etag)
    if item is None:
        return [record]
    columns: Data = {"result": run.result, "result_fence": run.fence}
    return [Merge(item_key(item.id), columns, item.etag), record]
