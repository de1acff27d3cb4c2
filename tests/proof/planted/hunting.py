"""Hunts for planted bugs: one world after the other, until one shows the bug.

    python -m tests.proof.planted.hunting    looks for the first world of each bug: names and seeds

A bug counts as found in a world in which the honest product does no harm.
"""

import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import NamedTuple

from blackboard.simulator.invariants import Violation
from blackboard.simulator.scenario import VERBS, Scenario
from blackboard.simulator.world import World
from tests.proof.planted.planted import PLANTED
from tests.proof.planted.planting import Planted
from tests.proof.planted.scenarios import crowded_world

MOST = 1_000.0
"""Worker-hours in which each bug is found."""
SHOWN = {
    "late": 100,
    "settle": 842,
    "adopt": 8,
    "paused": 1,
    "once": 5,
    "blind free": 1,
    "blind removal": 1,
    "blind claim": 15,
    "blind late result": 18,
    "born twice": 33,
    "one name": 2,
    "early override": 2,
    "blind release": 1,
    "no nonce": 3,
    "renew by id": 1,
    "sent again whole": 1,
    "rounding": 2,
    "deadline": 7,
    "late over fenced": 11,
    "own missed": 6,
    "again dropped": 1,
    "first again": 2,
    "slot kept": 5,
    "old slot": 16,
    "old pause": 1,
    "silent save": 1,
    "save from memory": 6,
    "old result": 1,
    "late failure": 8,
    "two minutes later": 1,
    "jitter twice": 67,
    "not put off": 1,
    "untrusted": 5,
    "never stopped": 1,
    "claims on": 11,
    "full type": 4,
    "stale and forgotten": 4,
    "past its deadline": 403,
    "permit shared": 1,
    "permit lost": 3,
    "permit trusted": 6,
}
"""The seed of the first world that shows a bug, where it is not 0, as of the last time that it was
looked for. The product has changed since, so a world may show its bug no more: then a hunt that
begins there goes on in the next ones. A seed that is out of date costs time, and finds no less.
"""


class Find(NamedTuple):
    worker_hours: float
    """From the first world of the hunt until the bug was found."""
    kind: str
    """Of the violation that told."""
    seed: int


def hunt(bug: Planted, first: int) -> Find | None:
    """None: it was not found. A violation of another kind than those of the bug is passed over."""
    hours, verbs = 0.0, bug.verbs or VERBS
    for seed in count(first):
        if hours > MOST:
            return None
        with bug.in_place():
            world = crowded_world(seed, verbs, bug.draw)
            violation = ends_with(world)
        hours += lasted(world)
        if violation is not None and violation.kind in bug.kinds:
            honest = without_bugs(seed, verbs, bug.draw)
            assert honest is None, f"seed {seed}, without any bug: {honest}"
            return Find(round(hours, 3), violation.kind, seed)
    return None


@cache
def without_bugs(seed: int, verbs: tuple[str, ...], draw: Callable[[int], Scenario]) -> str | None:
    """How the honest product breaks in a world; None: not at all. Many bugs show in the same."""
    violation = ends_with(crowded_world(seed, verbs, draw))
    return None if violation is None else str(violation)


def ends_with(world: World) -> Violation | None:
    """How it ends; None: well."""
    try:
        world.run()
    except Violation as violation:
        return violation
    return None


def lasted(world: World) -> float:
    """Worker-hours of a world in which things went wrong."""
    return world.scenario.workers * min(world.timeline.now / 3600.0, world.scenario.hours)


def main() -> None:
    for bug in PLANTED:
        find = hunt(bug, 0)
        if find is not None and find.seed:
            sys.stdout.write(f'    "{bug.name}": {find.seed},\n')
            sys.stdout.flush()


if __name__ == "__main__":
    main()
