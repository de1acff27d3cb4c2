"""The batches of the protocol, as data: what each verb writes, and on what condition.

    add       Insert item, Insert next; over a tombstone: Replace it (its etag), Insert next
    claim     Delete next (its etag), Insert lock, Merge item (ANY)
    renew     Merge lock (its etag)
    release   Delete lock (its etag), Insert next if a token waits, Merge item (the etag it was
              built from), Insert run
    override  Replace lock (its etag), Merge item (its etag), Insert run
    free      Delete lock (its etag; ANY when a person frees it), Insert next if a token waits,
              Merge item (its etag), Insert run: an override that runs nothing, an unlock, a cancel
    change    Merge item (its etag); the waiting token that the item names, if there is one, is
              replaced by the one it names now
    remove    Replace item by a tombstone (its etag; fence + 1), Delete its token
    late      Merge item (its etag), Insert or Replace run

Every batch but claim states the item's etag as it was read, and finds the token from the item.
A claim may pass over it: the token's own etag lets one claim happen at a time, and every change
of a waiting item makes its token anew. Leave out one condition and two tokens, a lost edit or a
fence that goes back follow within a few steps.
"""

from dataclasses import replace
from datetime import datetime

from blackboard.model import Claim, Item, Lock, Outcome, Run, State, Token
from blackboard.protocol.keys import item_key, lock_key, next_key, run_key
from blackboard.protocol.rows import columns_of, data_of
from blackboard.rules.outcomes import PLANNED, Plan
from blackboard.rules.transitions import planned
from blackboard.table import ANY, Data, Delete, Insert, Merge, Op, Replace


def token_of(item: Item) -> Token:
    """The waiting token, a projection of the item."""
    return Token(
        id=item.id,
        type=item.type,
        spec=item.spec,
        fence=item.fence,
        born=item.born,
        slot=item.slot,
        ready=item.ready,
        planned=item.planned,
        attempt=item.attempt,
        runs=item.runs,
        failures=item.failures,
        once=item.once,
        requests=item.requests,
        version=item.version,
    )


def held(item: Item) -> Claim:
    """A claim with all that the item says; its lock's part is for whoever holds the lock."""
    return Claim(
        id=item.id,
        type=item.type,
        spec=item.spec,
        once=item.once,
        state=item.state,
        requests=item.requests,
        fence=item.fence,
        born=item.born,
        slot=item.slot,
        ready=item.ready,
        planned=item.planned,
        attempt=item.attempt,
        runs=item.runs,
        failures=item.failures,
        owner=item.owner,
        nonce="",
        start=item.start or item.ready,
        stale_after=0.0,
        sent=0.0,
        lock_etag="",
        item_etag=item.etag,
        version=item.version,
    )


def freed(item: Item, plan: Plan, run: Run) -> Item:
    """The item after its lock was taken away and nothing is run: told as `run` has it."""
    return replace(
        planned(item, plan),
        stop=run.stop,
        running=False,
        outcome=run.outcome,
        fence=item.fence + 1,
        runs=item.runs + 1,
        error=run.error,
    )


def insert_next(item: Item) -> Insert:
    return Insert(next_key(item.ready, item.id), data_of(token_of(item)))


def add_ops(item: Item, *, over: Item | None) -> list[Op]:
    """`over` is the tombstone of an earlier life of the id."""
    data = data_of(item)
    first: Op = Insert(item_key(item.id), data)
    if over is not None:
        first = Replace(item_key(item.id), data, over.etag)
    return [first, insert_next(item)] if item.waits else [first]


def lock_of(claim: Claim) -> Lock:
    return Lock(
        id=claim.id,
        type=claim.type,
        owner=claim.owner,
        nonce=claim.nonce,
        fence=claim.fence,
        born=claim.born,
        slot=claim.slot,
        since=claim.start,
        stale_after=claim.stale_after,
        attempt=claim.attempt,
    )


def claim_ops(token: Token, claim: Claim, *, schedule: str, timezone: str) -> list[Op]:
    """Three operations; the answer's second etag is the lock's, the third the item's."""
    return [
        Delete(next_key(token.ready, token.id), token.etag),
        Insert(lock_key(token.id), data_of(lock_of(claim))),
        Merge(
            item_key(token.id),
            {
                "start": claim.start,
                "running": True,
                "owner": claim.owner,
                "fence": claim.fence,
                "schedule": schedule,
                "timezone": timezone,
            },
            ANY,
        ),
    ]


def override_ops(item: Item, lock: Lock, claim: Claim, run: Run) -> list[Op]:
    """Take a stale lock over; the first two etags are the lock's and the item's."""
    return [
        Replace(lock_key(item.id), data_of(lock_of(claim)), lock.etag),
        Merge(
            item_key(item.id),
            {
                "start": claim.start,
                "owner": claim.owner,
                "fence": claim.fence,
                "attempt": claim.attempt,
                "runs": claim.runs,
                "failures": claim.failures,
            },
            item.etag,
        ),
        Insert(run_key(item.id, run.fence), data_of(run)),
    ]


def release_ops(claim: Claim, after: Item, run: Run) -> list[Op]:
    """`after` is the item as it will be, with the etag of the one it was built from."""
    ops: list[Op] = [Delete(lock_key(claim.id), claim.lock_etag)]
    if after.waits:
        ops.append(insert_next(after))
    ended: tuple[str, ...] = (*PLANNED, "stop", "running", "outcome", "runs", "error")
    if run.outcome is Outcome.OK:
        ended = (*ended, "result", "result_fence")
    ops.append(Merge(item_key(claim.id), columns_of(after, *ended), claim.item_etag))
    ops.append(Insert(run_key(claim.id, claim.fence), data_of(run)))
    return ops


def free_ops(item: Item, lock_etag: str, after: Item, run: Run) -> list[Op]:
    """Take a lock from its holder and run nothing: the fence rises, so that the holder's result
    is known for late.
    """
    ops: list[Op] = [Delete(lock_key(item.id), lock_etag)]
    if after.waits:
        ops.append(insert_next(after))
    freed: tuple[str, ...] = (*PLANNED, "stop", "running", "outcome", "fence", "runs", "error")
    if after.applied != item.applied:
        freed = (*freed, "applied")
    ops.append(Merge(item_key(item.id), columns_of(after, *freed), item.etag))
    ops.append(Insert(run_key(item.id, run.fence), data_of(run)))
    return ops


def change_ops(before: Item, after: Item) -> list[Op]:
    """Write what changed of an item; its waiting token follows. A lock is never touched."""
    names = tuple(name for name in data_of(after) if name != "item")
    changed = {
        name: value
        for name, value in columns_of(after, *names).items()
        if getattr(before, name) != getattr(after, name)
    }
    ops: list[Op] = [Merge(item_key(before.id), changed, before.etag)]
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


def tombstone_of(item: Item, *, now: datetime) -> Item:
    """What is left of an item: a fence, higher than any before, for whoever adds the id again. So
    a run that is under way is known for late, and no two lives of an id are born with one fence.
    """
    return Item(
        id=item.id,
        type=item.type,
        state=State.REMOVED,
        spec="{}",
        fence=item.fence + 1,
        born=item.born,
        slot=item.slot,
        ready=item.ready,
        planned=item.planned,
        stop=now,
        applied=item.applied,
    )


def run_of(
    claim: Claim,
    outcome: Outcome,
    *,
    now: datetime,
    result: str = "",
    error: str = "",
    output: str = "",
    note: str = "",
) -> Run:
    """What the history says of a run that ended at `now`, in whatever way."""
    return Run(
        id=claim.id,
        type=claim.type,
        fence=claim.fence,
        attempt=claim.attempt,
        slot=claim.slot,
        start=claim.start,
        stop=now,
        lag=max((claim.start - claim.ready).total_seconds(), 0.0),
        outcome=outcome,
        worker=claim.owner,
        nonce=claim.nonce,
        result=result,
        error=error,
        output=output,
        note=note,
    )


def remove_ops(item: Item, tombstone: Item) -> list[Op]:
    ops: list[Op] = [Replace(item_key(item.id), data_of(tombstone), item.etag)]
    if item.running:
        assert tombstone.stop is not None
        removed = "its item was removed"
        run = run_of(held(item), Outcome.CANCELLED, now=tombstone.stop, error=removed)
        ops.append(Delete(lock_key(item.id), ANY))
        ops.append(Insert(run_key(item.id, run.fence), data_of(run)))
    elif item.state is State.ACTIVE:
        ops.append(Delete(next_key(item.ready, item.id), ANY))
    return ops


def late_ops(item: Item | None, run: Run, row: Run | None) -> list[Op]:
    """`item` is where the late result goes, None when only the history is told. `row` is what the
    history has for this fence. None: it was pruned long ago, and what the item says is newer.
    """
    key = run_key(run.id, run.fence)
    if row is None:
        return [Insert(key, data_of(run))]
    record = Replace(key, data_of(run), row.etag)
    if item is None:
        return [record]
    columns: Data = {"result": run.result, "result_fence": run.fence}
    return [Merge(item_key(item.id), columns, item.etag), record]
