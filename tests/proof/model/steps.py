"""One step in a world: a reading, or a batch and what may become of it.

Reading, and sending what was built from it, are two steps: anything may come between. A batch that
is sent is answered; or it is applied and the answer is lost; or it is in flight, and lands at any
later moment or never.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.proof.model.conditions import Conditions
from tests.proof.model.judges import HELD, START, judge
from tests.proof.model.rows import Item, item_key, lock_key
from tests.proof.model.store import Applied, Batch, Key, Refused, Row, commit
from tests.proof.model.world import NAMES, NOBODY, Bounds, Broken, Flight, Sender, Task, World


class View(NamedTuple):
    """A world as it is looked at by who takes a step in it."""

    world: World
    rows: dict[Key, Row]
    bounds: Bounds
    keep: Conditions


class Step(NamedTuple):
    """What happens, and the world after it."""

    world: World
    told: str
    worker: int = NOBODY
    """Who took it; NOBODY: a person, or chance."""
    faultless: bool = True
    """Whether it comes by itself, sooner or later: no fault, no lease that runs out, nothing new
    that is asked for."""


class Answer(NamedTuple):
    """To a batch: done, refused or lost."""

    kind: str
    world: World
    told: str
    etags: tuple[int, ...] = ()

    @property
    def faultless(self) -> bool:
        return self.kind != "lost"


def send(view: View, batch: Batch, sender: Sender, *, nonces: int = 0) -> Iterator[Answer]:
    """All that may become of a batch; `nonces` were drawn for it."""
    world = view.world
    world = world._replace(nonces=world.nonces + nonces)
    answer = commit(view.rows, batch, drawn=world.etags, anew=not view.keep.etag)
    lost = world.left._replace(lost=world.left.lost - 1)
    if isinstance(answer, Applied):
        after = _applied(view, world, batch, sender, answer)
        yield Answer("done", after, "", answer.etags)
        if world.left.lost:
            yield Answer("lost", after._replace(left=lost), ": applied, and the answer is lost")
    else:
        yield Answer("refused", world, ": refused")
    if world.left.lost and not (isinstance(answer, Refused) and answer.for_ever):
        flights = (*world.flights, Flight(sender, batch))
        yield Answer("lost", world._replace(flights=flights, left=lost), ": no answer, in flight")


def landings(view: View) -> Iterator[Step]:
    """Of batches in flight. One that would be refused may as well never land."""
    world = view.world
    for number, (sender, batch) in enumerate(world.flights):
        answer = commit(view.rows, batch, drawn=world.etags, anew=not view.keep.etag)
        if isinstance(answer, Applied):
            flights = world.flights[:number] + world.flights[number + 1 :]
            after = _applied(view, world._replace(flights=flights), batch, sender, answer)
            yield Step(after, f"the {sender.verb} in flight lands", faultless=False)


def _applied(view: View, world: World, batch: Batch, sender: Sender, answer: Applied) -> World:
    past, broken = judge(view.rows, answer.rows, batch, sender, world.past)
    rows = tuple(sorted(answer.rows.items()))
    return world._replace(rows=rows, etags=answer.drawn, past=past, broken=broken)


# ---- what a worker is about


def hold(world: World, worker: int, old: tuple[Task, ...], *new: Task) -> World:
    """The world after tasks of a worker became others, or were dropped."""
    tasks = tuple(sorted([task for task in world.workers[worker] if task not in old] + [*new]))
    workers = (*world.workers[:worker], tasks, *world.workers[worker + 1 :])
    return world._replace(workers=workers)


def becomes(view: View, worker: int, task: Task, then: Task | None, told: str) -> Step:
    """A task goes on after a reading, or ends."""
    new = () if then is None else (then,)
    return Step(hold(view.world, worker, (task,), *new), told, worker)


def answered(answer: Answer, worker: int, task: Task, then: Task | None, told: str) -> Step:
    """A task goes on after an answer, or ends."""
    new = () if then is None else (then,)
    world = hold(answer.world, worker, (task,), *new)
    return Step(world, told + answer.told, worker, answer.faultless)


def started(step: Step, *nonces: int) -> Step:
    """A step with which handlers may start: of those that run now, under these nonces."""
    locks = {row.data.nonce for key, row in step.world.rows if key[0] == "lock"}
    tasks = step.world.workers[step.worker]
    now = [task for task in tasks if task.step == "run" and task.nonce in nonces]
    broken = step.world.broken
    for task in now if broken is None else ():
        saved = step.world.past.saved[task.item]
        if task.nonce not in locks:
            broken = Broken(HELD, "a handler was started, and its lock is not there")
        elif task.checkpoint < saved:
            broken = Broken(START, f"it goes on at {task.checkpoint}, and {saved} was acknowledged")
    return step if broken is None else step._replace(world=step.world._replace(broken=broken))


def acknowledged(step: Step, task: Task) -> Step:
    """A step with which a task learns that its checkpoint is saved."""
    past = step.world.past
    saved = (*past.saved[: task.item], task.checkpoint, *past.saved[task.item + 1 :])
    return step._replace(world=step.world._replace(past=past._replace(saved=saved)))


# ---- reading


def name(task: Task) -> str:
    """Of its item."""
    return NAMES[task.item]


def holds(row: Row | None, fence: int) -> bool:
    """Whether an item says that it is run under the lock with this fence."""
    return row is not None and row.data.running and row.data.fence == fence


def item_of(view: View, task: Task) -> Row | None:
    return view.rows.get(item_key(task.item))


def my_lock(view: View, task: Task) -> Row | None:
    """The lock, if the nonce in it is the task's."""
    row = view.rows.get(lock_key(task.item))
    return row if row and row.data.nonce == task.nonce else None


def history_of(view: View, task: Task) -> Row | None:
    """What the history says of the task's fence."""
    return view.rows.get(("run", task.item, task.fence))


def as_read(task: Task, row: Row | None) -> Task:
    """The task, with all that the item says."""
    assert row is not None
    item: Item = row.data
    return task._replace(
        state=item.state,
        spec=item.spec,
        born=item.born,
        slot=item.slot,
        requests=item.requests,
        checkpoint=item.checkpoint,
        known=row.etag,
    )
