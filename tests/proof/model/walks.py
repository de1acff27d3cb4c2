"""A worker's walk: it claims what waits, takes over what is stale, adopts what is its own.

    claim     send it; no answer: `look`
    look      read the lock: my nonce is in it, `run`; it is not, give up
    override  read the item of a stale lock: it runs under its fence, `take`, or `free` it if
              nothing is to be run; it does not, `sweep`
    take      send the override; no answer: `look`
    free      send an override that runs nothing
    adopt     read the item of an own lock that no task knows: it runs under its fence, `renew`
              and run; it does not, `sweep`
    sweep     delete a lock that no item is run under

A walk is at one thing at a time. A lost race is no error: the next walk sees what is there.
"""

from collections.abc import Iterator

from tests.proof.model import batches
from tests.proof.model.rows import Item, Lock, Run
from tests.proof.model.steps import (
    Step,
    View,
    answered,
    as_read,
    becomes,
    hold,
    holds,
    item_of,
    my_lock,
    name,
    send,
    started,
)
from tests.proof.model.store import GONE, Row
from tests.proof.model.world import UNREAD, Sender, Task

WALKING = frozenset({"claim", "look", "override", "take", "free", "adopt", "renew", "sweep"})


def walk(view: View, worker: int) -> Iterator[Step]:
    """It sees waiting tokens, stale locks of others, and locks of its own."""
    world, bounds = view.world, view.bounds
    free_slots = bounds.slots - len(world.workers[worker])
    seen: list[Task] = []
    for key, row in world.rows:
        if key[0] == "next" and free_slots > 0 and row.data.fence < bounds.fence:
            seen.append(_wanted(key[1], key[2], row))
        elif key[0] == "lock":
            yield from _look_at_lock(view, worker, key[1], row)
    if bounds.together and free_slots > 1 and len(seen) > 1:
        yield Step(hold(world, worker, (), *seen[:free_slots]), "sees all tokens", worker)
        return
    for task in seen:
        yield Step(hold(world, worker, (), task), f"sees the token of {name(task)}", worker)


def _wanted(number: int, ready: int, row: Row) -> Task:
    token = row.data
    return Task(
        "claim",
        number,
        fence=token.fence + 1,
        born=token.born,
        spec=token.spec,
        slot=token.slot,
        requests=token.requests,
        checkpoint=token.checkpoint,
        ready=ready,
        held=row.etag,
    )


def _look_at_lock(view: View, worker: int, number: int, row: Row) -> Iterator[Step]:
    lock: Lock = row.data
    tasks = view.world.workers[worker]
    task = Task("adopt", number, lock.fence, lock.born, 0, 0, held=row.etag, nonce=lock.nonce)
    if lock.owner == worker:
        if view.keep.adopt and all(one.nonce != lock.nonce for one in tasks):
            told = f"finds its own lock of {name(task)}, which no task of it knows"
            yield Step(hold(view.world, worker, (), task), told, worker)
    elif view.bounds.stale and lock.fence < view.bounds.fence and len(tasks) < view.bounds.slots:
        task = task._replace(step="override", fence=lock.fence + 1, nonce=0, other=lock.nonce)
        told = f"finds the lock of {name(task)} stale, with fence {lock.fence}"
        yield Step(hold(view.world, worker, (), task), told, worker, faultless=False)


def claim(view: View, worker: int, claims: tuple[Task, ...]) -> Iterator[Step]:
    """All that the walk has chosen, in one batch."""
    numbered = enumerate(claims, start=view.world.nonces + 1)
    made = [task._replace(nonce=nonce) for nonce, task in numbered]
    batch = tuple(op for task in made for op in batches.claim(task, worker))
    told = "claims " + " and ".join(f"{name(one)} with fence {one.fence}" for one in made)
    for answer in send(view, batch, Sender("claim", worker), nonces=len(made)):
        runs: list[Task] = []
        if answer.kind == "done":
            pairs = zip(made, answer.etags[1::3], answer.etags[2::3], strict=True)
            runs = [one._replace(step="run", held=lock, known=item) for one, lock, item in pairs]
        elif answer.kind == "lost":
            runs = [_doubtful(view, one) for one in made]
        world = hold(answer.world, worker, claims, *runs)
        step = Step(world, told + answer.told, worker, answer.faultless)
        yield started(step, *(one.nonce for one in made))


def _doubtful(view: View, task: Task) -> Task:
    """A claim or an override that had no answer."""
    step = "look" if view.keep.settle else "run"
    return task._replace(step=step, held=GONE, known=UNREAD)


def look(view: View, worker: int, task: Task) -> Iterator[Step]:
    lock, told = my_lock(view, task), f"reads the lock of {name(task)}: my nonce"
    if lock is None:
        yield becomes(view, worker, task, None, f"{told} is not in it, gives up")
    else:
        run = task._replace(step="run", held=lock.etag)
        yield started(becomes(view, worker, task, run, f"{told}, it is mine"), run.nonce)


def override(view: View, worker: int, task: Task) -> Iterator[Step]:
    row, told = item_of(view, task), f"reads {name(task)}"
    if not holds(row, task.fence - 1):
        then = task._replace(step="sweep")
        yield becomes(view, worker, task, then, f"{told}: it does not run under that lock")
        return
    read = as_read(task, row)
    is_active = read.state == "active" or not view.keep.paused
    if is_active:
        then = read._replace(step="take")
        yield becomes(view, worker, task, then, f"{told}: to be taken over")
    if view.bounds.spent or not is_active:
        then = read._replace(step="free")
        yield becomes(view, worker, task, then, f"{told}: nothing is to be run")


def take(view: View, worker: int, task: Task) -> Iterator[Step]:
    taken = task._replace(nonce=view.world.nonces + 1)
    batch = batches.override(taken, worker, view.keep)
    told = f"overrides the lock of {name(task)}, fence {task.fence}"
    for answer in send(view, batch, Sender("override", worker), nonces=1):
        if answer.kind == "refused":
            yield answered(answer, worker, task, None, told)
            continue
        run = _doubtful(view, taken)
        if answer.kind == "done":
            held, known, _ = answer.etags
            run = taken._replace(step="run", held=held, known=known)
        yield started(answered(answer, worker, task, run, told), run.nonce)


def free(view: View, worker: int, task: Task) -> Iterator[Step]:
    before = Item(
        task.state,
        running=True,
        fence=task.fence - 1,
        born=task.born,
        spec=task.spec,
        slot=task.slot,
        ready=0,
        requests=task.requests,
        checkpoint=task.checkpoint,
    )
    run = Run(before.fence, task.other, "abandoned")
    # A paused item has its run again when it is resumed, unless its attempts are used up.
    is_paused = task.state == "paused"
    for same in {is_paused, is_paused and not view.bounds.spent}:
        after = batches.freed(before, view.keep, ready=before.fence, same=same)
        if view.bounds.only and not task.requests and not same:
            after = after._replace(state="done")
        batch = batches.free(
            task.item, before, after, run, lock=task.held, etag=task.known, keep=view.keep
        )
        for answer in send(view, batch, Sender("free", worker)):
            yield answered(answer, worker, task, None, f"frees {name(task)} and runs nothing")


def adopt(view: View, worker: int, task: Task) -> Iterator[Step]:
    row, told = item_of(view, task), f"reads {name(task)}"
    if holds(row, task.fence):
        then = as_read(task, row)._replace(step="renew")
        yield becomes(view, worker, task, then, f"{told}: it runs under this lock")
    else:
        then = task._replace(step="sweep")
        yield becomes(view, worker, task, then, f"{told}: it does not run under this lock")


def sweep(view: View, worker: int, task: Task) -> Iterator[Step]:
    told = f"deletes the lock of {name(task)}, as no item is run under it"
    for answer in send(view, batches.orphan(task), Sender("sweep", worker)):
        yield answered(answer, worker, task, None, told)
