"""All steps that workers can make next: each continues its present task, walks, or dies."""

from collections.abc import Callable, Iterator

from tests.proof.model import runs, walks
from tests.proof.model.steps import Step, View
from tests.proof.model.symmetry import owned
from tests.proof.model.walks import WALKING
from tests.proof.model.world import NOBODY, Task

STEPS: dict[str, Callable[[View, int, Task], Iterator[Step]]] = {
    "look": walks.look,
    "override": walks.override,
    "take": walks.take,
    "free": walks.free,
    "adopt": walks.adopt,
    "sweep": walks.sweep,
    "run": runs.run,
    "renew": runs.renew,
    "touch": runs.touch,
    "save": runs.save,
    "unsure": runs.unsure,
    "settle": runs.settle,
    "reread": runs.reread,
    "release": runs.release,
    "clear": runs.clear,
    "told": runs.told,
    "late": runs.late,
    "row": runs.row,
    "tell": runs.tell,
}


def moves(view: View) -> Iterator[Step]:
    for worker, tasks in enumerate(view.world.workers):
        if not any(task.step in WALKING for task in tasks):
            yield from walks.walk(view, worker)
        claims = tuple(task for task in tasks if task.step == "claim")
        if claims:
            yield from walks.claim(view, worker, claims)
        for task in tasks:
            if task.step != "claim":
                yield from STEPS[task.step](view, worker, task)


def kills(view: View) -> Iterator[Step]:
    """A worker that is about something dies, and another takes its place and knows nothing."""
    world = view.world
    if not world.left.kills:
        return
    left = world.left._replace(kills=world.left.kills - 1)
    for worker, tasks in enumerate(world.workers):
        if tasks:
            workers = (*world.workers[:worker], (), *world.workers[worker + 1 :])
            after = owned(world, {worker: NOBODY})._replace(workers=workers, left=left)
            yield Step(after, "is killed, and started anew", worker, faultless=False)
