"""Random walks over the real code: whatever happens, in whatever order, the board stays whole.

Then bugs are planted, one at a time, each of which leaves out a condition of the protocol, and the
walks find each: an invariant that a broken board satisfies is worth nothing.
"""

from collections import Counter
from typing import Any

import pytest

from blackboard.simulator.invariants import Violation
from tests.proof.planted.planted import PLANTED
from tests.proof.planted.planting import Planted
from tests.proof.planted.random_walk import VERBS, World

STEPS = 400
WALKS = 150
ENOUGH = 2000
"""Walks in which a planted bug must show."""


def walk(seed: int, **world: Any) -> World:
    made = World(seed, **world)
    try:
        made.go(STEPS)
        made.drain()
    finally:
        made.close()
    return made


RARE = {"walk replaces a lock", "walk merges a lock", "run replaces a run", "walk deletes a lock"}
OFTEN = {"walk inserts a lock", "run deletes a lock", "run merges a lock", "run saves"}
ASKED = {
    f"{verb} writes an item" for verb in ("add", "edit", "pause", "resume", "remove", "run_now")
}
TAKEN = {f"{verb} deletes a lock" for verb in ("unlock", "cancel", "remove")}


@pytest.mark.case("S1", "S2", "S3", "S4", "L1", "L2", on="memory")
@pytest.mark.parametrize("part", range(3))
def test_the_board_stays_whole_whatever_happens(part: int) -> None:
    """And once faults stop, every active item is run again. In the first part alone every verb of
    the protocol is applied many times, among them the rare ones.
    """
    seen = Counter[str]()
    for seed in range(part * WALKS, (part + 1) * WALKS):
        try:
            seen += walk(seed).table.seen
        except Violation as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem
    for shape in RARE | OFTEN | ASKED | TAKEN if part == 0 else ():
        assert seen[shape] >= (3 if shape in RARE | TAKEN else 50), shape


def test_a_walk_is_the_same_every_time() -> None:
    assert walk(7).table.seen == walk(7).table.seen


def found_by_walking(bug: Planted) -> Violation:
    """The first violation that tells of the bug."""
    for seed in range(ENOUGH):
        try:
            walk(seed, verbs=bug.verbs or VERBS)
        except Violation as problem:
            if problem.kind in bug.kinds:
                return problem
    raise AssertionError(f"{ENOUGH} walks have found nothing")


@pytest.mark.parametrize("bug", [bug for bug in PLANTED if bug.walks], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Planted) -> None:
    with bug.in_place():
        assert found_by_walking(bug)
