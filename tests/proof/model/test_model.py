"""The protocol, searched to the end of small bounds: nothing breaks; and with any of its conditions
left out, something does.

In the short form of the proof the searches of some seconds run; the long one adds those of minutes.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.proof.figures import leave
from tests.proof.form import LONG
from tests.proof.model import judges, runs
from tests.proof.model.cases import KEPT, LEFT_OUT, NIGHTLY, LeftOut
from tests.proof.model.conditions import ALL, Conditions, without
from tests.proof.model.operators import VERBS
from tests.proof.model.search import search, successors
from tests.proof.model.steps import Step, View, acknowledged, becomes
from tests.proof.model.symmetry import plain
from tests.proof.model.workers import STEPS
from tests.proof.model.world import Bounds, Task, World, beginning

SEARCHED = KEPT | NIGHTLY if LONG else KEPT
SMALL = {
    "lost": Bounds(lost=1),
    "dead": Bounds(kills=1, stale=True, fence=3),
    "asked": Bounds(workers=1, verbs=VERBS, requests=2),
    "saved": Bounds(saves=1, stale=True),
    "unlocked": Bounds(verbs=("unlock",), requests=1, lost=1),
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SEARCHED)
def test_nothing_breaks_in_any_world_that_can_be_reached(name: str) -> None:
    found = search(SEARCHED[name])
    figures = {"worlds": found.worlds, "steps": found.steps, "depth": found.depth}
    leave(f"kept-{[*SEARCHED].index(name):02}", {"bounds": name, **figures})
    assert found.broken is None, f"\n{found}"


@pytest.mark.parametrize(
    ("number", "left_out"), [*enumerate(LEFT_OUT)], ids=[one.condition for one in LEFT_OUT]
)
def test_with_a_condition_left_out_something_breaks(number: int, left_out: LeftOut) -> None:
    """And with it nothing does, in the same worlds."""
    condition, invariant, bounds = left_out
    found = search(bounds, without(condition))
    assert found.broken is not None, condition
    assert found.broken.invariant == invariant, f"\n{found}"
    breaks, steps = invariant.partition(":")[0], len(found.story)
    leave(f"left-out-{number:02}", {"condition": condition, "breaks": breaks, "steps": steps})
    assert search(bounds).broken is None


def test_every_condition_is_left_out_once() -> None:
    assert {one.condition for one in LEFT_OUT} == set(Conditions._fields)


def test_a_save_without_an_answer_that_counts_as_done_breaks_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run then goes on before what the one that was unlocked believes to be saved."""
    honest = runs.unsure

    def believes(view: View, worker: int, task: Task) -> Iterator[Step]:
        then = task._replace(step="run", checkpoint=task.checkpoint + 1)
        return iter([acknowledged(becomes(view, worker, task, then, "takes it for saved"), then)])

    bounds = Bounds(workers=1, saves=1, lost=1, verbs=("unlock",), requests=1, fence=3)
    assert STEPS["unsure"] is honest
    monkeypatch.setitem(STEPS, "unsure", believes)
    found = search(bounds)
    assert found.broken is not None
    assert found.broken.invariant == judges.START, f"\n{found}"
    monkeypatch.setitem(STEPS, "unsure", honest)
    assert search(bounds).broken is None


def test_a_story_is_told_step_by_step() -> None:
    """Workers that change places in the search keep their names in the story."""
    (case,) = [one for one in LEFT_OUT if one.condition == "once" and one.bounds.fence == 3]
    assert str(search(case.bounds, without(case.condition))) == UNLOCKED_TWICE


UNLOCKED_TWICE = """\
  1  rabbit sees the token of davis
  2  rabbit claims davis with fence 1
  3  somebody reads davis, for request 1 (unlock)
  4  request 1 (unlock) is sent: applied, and the answer is lost
  5  fox sees the token of davis
  6  fox claims davis with fence 3
  7  request 1 (unlock) reads again
  8  request 1 (unlock) is sent: done
     breaks COUNTS ONCE: a request is applied once, to the life and lock it was about:
     fence 1 was shown, 3 was unlocked"""


def test_all_that_can_be_done_is_done_in_some_world() -> None:
    """Or a search would find nothing for want of anything that happens. No lock is ever without its
    item: the deletion of such a lock is refused, and so never lands.
    """
    harm = Bounds(lost=1, stale=True, spent=True, renewals=1)
    asked = Bounds(workers=1, verbs=VERBS, requests=2, lost=1)
    saved = Bounds(workers=1, lost=1, saves=1)
    worlds = set().union(*(reached(bounds, plainly) for bounds in (harm, asked, saved)))
    steps = {task.step for one in worlds for tasks in one.workers for task in tasks}
    assert steps == {"claim", *STEPS}
    assert {request.verb for one in worlds for request in one.requests} == set(VERBS)
    in_flight = {flight.sender.verb for one in worlds for flight in one.flights}
    ours = {"claim", "renewal", "save", "release", "override", "free", "late"}
    assert in_flight == ours | set(VERBS)


@pytest.mark.parametrize("bounds", SMALL.values(), ids=SMALL.keys())
def test_plain_names_hide_no_world(bounds: Bounds) -> None:
    every = {plainly(world) for world in reached(bounds, lambda world: world)}
    assert every <= reached(bounds, plainly)


def reached(bounds: Bounds, name: Callable[[World], World]) -> set[World]:
    """All worlds, each in the names that `name` gives it."""
    first = name(beginning(bounds))
    worlds, ahead = {first}, [first]
    while ahead:
        for step in successors(ahead.pop(), bounds, ALL):
            world = name(step.world)
            if world not in worlds:
                worlds.add(world)
                ahead.append(world)
    return worlds


def plainly(world: World) -> World:
    return plain(world)[0]
