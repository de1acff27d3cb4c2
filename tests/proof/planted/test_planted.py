"""The simulator is tested: each planted bug is found, soon, and the honest product is not blamed.

How soon is told in worker-hours of simulated time, as a fleet would have had to work until the bug
did harm. A bug counts as found in a world in which the honest product does none. The short form of
the proof leaves out the bugs for which it would have to look longest; and where it measures nothing
it begins with the world that showed the bug before.
"""

from inspect import signature
from itertools import cycle, islice
from statistics import median

import pytest

from blackboard.simulator.scenario import VERBS
from tests.proof.figures import are_wanted, leave
from tests.proof.form import LONG
from tests.proof.planted.hunting import SHOWN, Find, ends_with, hunt, lasted
from tests.proof.planted.planted import PLANTED, THE_FOURTEEN
from tests.proof.planted.planting import Planted
from tests.proof.planted.scenarios import crowded_world

USUAL = 20.0
"""Worker-hours in which half of the bugs are found."""
HUNTS = 5 if LONG else 1
"""How often each bug is looked for, in other worlds each time."""
HUNTED = [bug for bug in PLANTED if LONG or not bug.seldom]
MEASURED = LONG or are_wanted()
"""Whether hunts begin at the first world, not at the one that showed the bug before."""
PARTS = 6 if LONG else 3
"""Of the bugs, each by a test: the tests of a run are shared out."""
EACH = -(-len(HUNTED) // PARTS)
"""Bugs of a part. Neighbours are hunted in the same worlds, which are run once without a bug."""
FAR = 100_000
"""Seeds from the first world of one hunt to that of the next."""
HONEST = 100.0 if LONG else 15.0
"""Worker-hours, besides the worlds in which a bug was found."""


def figures(found: dict[str, list[Find | None]]) -> dict[str, object]:
    told = [
        {
            "place": place,
            "bug": bug.name,
            "without": bug.without,
            "worker_hours": [one and one.worker_hours for one in found[bug.name]],
            "kinds": [one and one.kind for one in found[bug.name]],
        }
        for place, bug in enumerate(PLANTED)
        if bug.name in found
    ]
    return {"bugs": told}


def begins_at(bug: Planted) -> int:
    return 0 if MEASURED else SHOWN.get(bug.name, 0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_each_planted_bug_is_found_within_a_thousand_worker_hours_and_half_within_twenty(
    part: int,
) -> None:
    found = {
        bug.name: [hunt(bug, number * FAR + begins_at(bug)) for number in range(HUNTS)]
        for bug in HUNTED[part * EACH : (part + 1) * EACH]
    }
    leave(f"planted-{part}", figures(found))
    assert [name for name, finds in found.items() if None in finds] == []
    assert median(one.worker_hours for finds in found.values() for one in finds if one) <= USUAL


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(2))
def test_in_such_worlds_the_honest_product_does_no_harm(part: int) -> None:
    """Also in those where people ask for little else than what shows a bug."""
    wishes = cycle((VERBS, VERBS, *sorted({bug.verbs for bug in PLANTED if bug.verbs})))
    hours, seed = 0.0, part * FAR
    while hours < HONEST:
        world = crowded_world(seed, next(wishes))
        violation = ends_with(world)
        assert violation is None, f"seed {seed}: {violation}"
        hours, seed = hours + lasted(world), seed + 1


def test_the_worlds_that_showed_a_bug_are_named_after_one() -> None:
    assert set(SHOWN) <= {bug.name for bug in PLANTED}


def test_bugs_have_names_of_their_own_and_the_fourteen_conditions_come_first() -> None:
    words = (
        "etag bump itemcond relcond ovread editlock runkey late settle adopt paused once tomb saved"
    )
    assert [bug.name for bug in islice(PLANTED, 14)] == words.split()
    assert PLANTED[:14] == THE_FOURTEEN
    assert len({bug.name for bug in PLANTED}) == len(PLANTED) >= 30


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_what_stands_instead_is_called_as_what_it_replaces(bug: Planted) -> None:
    """Else it would raise at each call, and the bug would never be found."""
    for where, name, instead in bug.patches:
        honest = where[name] if isinstance(where, dict) else getattr(where, name)
        if not callable(honest) or not callable(instead) or isinstance(honest, type):
            continue
        told, given = signature(honest), signature(instead)
        for only_needed in (False, True):
            parameters = [
                one
                for one in told.parameters.values()
                if one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
                and not (only_needed and one.default is not one.empty)
            ]
            named = {one.name: one for one in parameters if one.kind is one.KEYWORD_ONLY}
            given.bind(*(one for one in parameters if one.name not in named), **named)
