"""The batches of the protocol: what each verb writes, and on what condition.

    add       Insert item, Insert next; over a tombstone: Replace it (its etag), Insert next
    claim     Delete next (its etag), Insert lock, Merge item (ANY)
    renew     Merge lock (its etag)
    save      Merge item (its etag)
    release   Delete lock (its etag), Insert next if a token waits, Merge item (the etag it was
              built from), Insert run
    override  Replace lock (its etag), Merge item (its etag), Insert run
    free      Delete lock (its etag; ANY when a person frees it), Insert next if a token waits,
              Merge item (its etag), Insert run: an override that runs nothing, an unlock
    change    Merge item (its etag); the waiting token that the item names, if there is one, is
              replaced by the one it names now
    remove    Replace item by a tombstone (its etag; fence + 1), Delete its token
    late      Merge item (its etag), Replace run; or Insert run

These are those of `blackboard.protocol.batches`, and `test_same_batches.py` holds one against the
other. A column that decides nothing of the protocol is not modelled: when it started, what it
returned. A cancel is an unlock here.
"""

from tests.proof.model.conditions import Conditions
from tests.proof.model.rows import Item, Lock, Run, Token, item_key, lock_key, next_key
from tests.proof.model.store import ANY, Batch, Delete, Insert, Key, Merge, Op, Replace, merge
from tests.proof.model.world import UNREAD, Task


def run_key(item: int, run: Run, keep: Conditions) -> Key:
    """Without its condition, as if by the time it was written."""
    if keep.runkey:
        return "run", item, run.fence
    return "run", item, run.fence, run.outcome


def insert_next(number: int, item: Item) -> Insert:
    token = Token(item.spec, item.fence, item.born, item.slot, item.requests, item.checkpoint)
    return Insert(next_key(number, item.ready), token)


def insert_run(number: int, run: Run, keep: Conditions) -> Insert:
    return Insert(run_key(number, run, keep), run)


def lock_of(task: Task, owner: int) -> Lock:
    return Lock(owner, task.nonce, task.fence, task.born, task.slot)


# ---- workers


def claim(task: Task, owner: int) -> Batch:
    """The task has the fence that it wants, one above the token's."""
    return (
        Delete(next_key(task.item, task.ready), task.held),
        Insert(lock_key(task.item), lock_of(task, owner)),
        merge(item_key(task.item), ANY, running=True, fence=task.fence),
    )


def renew(task: Task) -> Batch:
    return (merge(lock_key(task.item), task.held),)


def save(task: Task, keep: Conditions) -> Batch:
    """The task has the checkpoint before it."""
    etag = task.known if keep.saved else ANY
    return (merge(item_key(task.item), etag, checkpoint=task.checkpoint + 1),)


def after_run(task: Task, *, only: bool) -> Item:
    """The item after a good run, as far as its holder knows the item."""
    slot, requests = next_slot(task)
    done = only and not slot
    return Item(
        state="done" if done else task.state,
        running=False,
        fence=task.fence,
        born=task.born,
        spec=task.spec,
        slot=slot,
        ready=task.fence,
        requests=requests,
        result_fence=task.fence,
    )


def next_slot(one: Task | Item) -> tuple[int, tuple[int, ...]]:
    """The first of the requests, or the schedule's next; and what waits behind it."""
    return (one.requests[0], one.requests[1:]) if one.requests else (0, ())


def release(task: Task, keep: Conditions, *, only: bool = False) -> Batch:
    after = after_run(task, only=only)
    ops: list[Op] = [Delete(lock_key(task.item), task.held)]
    if after.waits or not (keep.paused or after.state == "done"):
        ops.append(insert_next(task.item, after))
    emptied = {"checkpoint": 0} if task.checkpoint else {}
    ended = merge(
        item_key(task.item),
        task.known if keep.relcond else ANY,
        state=after.state,
        running=False,
        slot=after.slot,
        ready=after.ready,
        requests=after.requests,
        result_fence=after.result_fence,
        **emptied,
    )
    run = Run(task.fence, task.nonce, "ok")
    return (*ops, ended, insert_run(task.item, run, keep))


def override(task: Task, owner: int, keep: Conditions) -> Batch:
    """The task has the fence that it wants, one above the stale lock's."""
    return (
        Replace(lock_key(task.item), lock_of(task, owner), task.held),
        merge(item_key(task.item), task.known if keep.ovread else ANY, fence=task.fence),
        insert_run(task.item, Run(task.fence - 1, task.other, "abandoned"), keep),
    )


def freed(item: Item, keep: Conditions, *, ready: int, same: bool = False) -> Item:
    """The item after its lock was taken away and nothing is run: the same slot waits, or the next
    one.
    """
    slot, requests = (item.slot, item.requests) if same else next_slot(item)
    return item._replace(
        running=False,
        fence=item.fence + keep.bump,
        slot=slot,
        ready=ready,
        requests=requests,
    )


def free(
    number: int, item: Item, after: Item, run: Run, *, lock: int, etag: int, keep: Conditions
) -> Batch:
    """`lock` is the lock's etag, `etag` the item's."""
    ops: list[Op] = [Delete(lock_key(number), lock)]
    if after.waits:
        ops.append(insert_next(number, after))
    names: tuple[str, ...] = ("state", "running", "fence", "slot", "ready", "requests")
    if after.applied != item.applied:
        names = (*names, "applied")
    columns = tuple((name, getattr(after, name)) for name in names)
    return (*ops, Merge(item_key(number), columns, etag), insert_run(number, run, keep))


def late(task: Task, keep: Conditions) -> Batch:
    """The result goes into the item, and the history says that it came too late. Where it knows
    nothing of the run, or the item has a newer result (the task knows no etag then), the item gets
    nothing.
    """
    run = Run(task.fence, task.nonce, "superseded")
    key = run_key(task.item, run, keep)
    if task.row == UNREAD:
        return (Insert(key, run),)
    if task.known == UNREAD:
        return (Replace(key, run, task.row),)
    etag = task.known if keep.late else ANY
    return (
        merge(item_key(task.item), etag, result_fence=task.fence),
        Replace(key, run, task.row),
    )


def orphan(task: Task) -> Batch:
    """A lock that no item is run under; no verb of the protocol makes one."""
    return (Delete(lock_key(task.item), task.held),)


# ---- people


def add(number: int, item: Item, over: int) -> Batch:
    """`over` is the etag of a tombstone, or UNREAD."""
    key = item_key(number)
    first: Op = Insert(key, item) if over == UNREAD else Replace(key, item, over)
    return (first, insert_next(number, item)) if item.waits else (first,)


def change(number: int, before: Item, etag: int, after: Item) -> Batch:
    """Write what changed of an item; its waiting token follows. A lock is never touched."""
    columns = tuple(
        (name, new)
        for name, old, new in zip(Item._fields, before, after, strict=True)
        if old != new
    )
    ops: list[Op] = [Merge(item_key(number), columns, etag)]
    old = next_key(number, before.ready) if before.waits else None
    new = insert_next(number, after) if after.waits else None
    if old is not None and new is not None and old == new.key:
        return (*ops, Replace(old, new.data, ANY))
    if old is not None:
        ops.append(Delete(old, ANY))
    if new is not None:
        ops.append(new)
    return tuple(ops)


def tombstone_of(item: Item, keep: Conditions) -> Item:
    fence = item.fence + keep.bump
    return item._replace(
        state="removed",
        running=False,
        fence=fence,
        spec=0,
        requests=(),
        result_fence=0,
        checkpoint=0,
    )


def remove(number: int, item: Item, etag: int, request: int, keep: Conditions) -> Batch:
    key = item_key(number)
    tombstone = tombstone_of(item, keep)._replace(applied=(request, *item.applied))
    first: Op = Replace(key, tombstone, etag) if keep.tomb else Delete(key, etag)
    if item.running:
        run = Run(item.fence, 0, "cancelled")  # a person does not read whose it is
        return (first, Delete(lock_key(number), ANY), insert_run(number, run, keep))
    if item.state == "active":
        return (first, Delete(next_key(number, item.ready), ANY))
    return (first,)
