"""A failure is reduced to its necessary parts, and keeps its trace."""

from datetime import timedelta
from typing import Any

import pytest

from blackboard.model import replace
from blackboard.protocol import batches, releases
from blackboard.simulator.scenario import (
    ALL,
    Fault,
    Scenario,
    draw_plan,
    synthetic,
)
from blackboard.simulator.shrinking import Failure, Shrinker, failure_of
from blackboard.table import ANY, Insert, Op
from tests.support.simulated_elections import SimulatedElection
from tests.support.simulated_groups import SimulatedGroup


@pytest.fixture
def blind_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that do not look whether the item is still the one they were built from."""

    def blind(*given: Any) -> list[Op]:
        return [
            op
            if isinstance(op, Insert) or not op.key.startswith("item:")
            else replace(op, etag=ANY)
            for op in batches.release_ops(*given)
        ]

    monkeypatch.setattr(releases, "release_ops", blind)


def first_failure() -> Failure:
    for seed in range(100):
        scenario = Scenario(
            seed=seed,
            items=synthetic(8, every=timedelta(minutes=1)),
            workers=3,
            hours=0.5,
            faults=ALL,
            trouble_every=10.0,
        )
        if found := failure_of(scenario):
            return found
    raise AssertionError("a hundred worlds have found nothing")


@pytest.mark.usefixtures("blind_releases")
def test_a_failure_shrinks_to_what_it_takes() -> None:
    failure = first_failure()
    assert len(failure.plan.injections) > 20
    told: list[Failure] = []
    shrinker = Shrinker(failure, report=told.append)
    smallest = shrinker.shrink()
    assert smallest.violation.kind == failure.violation.kind
    assert told[-1] is smallest
    assert len(smallest.plan.injections) <= len(failure.plan.injections) / 5
    assert smallest.size <= failure.size / 4
    again = failure_of(smallest.scenario, smallest.plan)
    assert again is not None
    assert str(again.violation) == str(smallest.violation)


@pytest.mark.usefixtures("blind_releases")
def test_a_failure_given_back_is_the_same_failure() -> None:
    failure = first_failure()
    again = failure_of(failure.scenario, failure.plan)
    assert again is not None
    assert (str(again.violation), again.story) == (str(failure.violation), failure.story)


def test_a_world_in_which_all_is_well_is_no_failure() -> None:
    scenario = Scenario(seed=1, items=synthetic(3, every=timedelta(minutes=5)), workers=1)
    assert failure_of(scenario) is None


def test_a_plan_fits_a_scenario_that_others_are_left_out_of() -> None:
    """A fault of an item, worker or group that is left out strikes another one, or none."""
    scenario = Scenario(
        seed=1,
        items=synthetic(20, every=timedelta(minutes=1)),
        workers=5,
        hours=0.5,
        faults=ALL,
        trouble_every=5.0,
        shared=(SimulatedGroup(name="clicks", partitions=4), SimulatedElection(name="nightly")),
    )
    plan = draw_plan(scenario)
    assert {one.fault for one in plan.injections} >= {Fault.KILL, Fault.SHARD, Fault.EDIT}
    assert max(one.target for one in plan.injections if one.fault is Fault.VERSIONS) >= 2
    smaller = replace(scenario, items=scenario.items[:2], workers=1, shared=())
    assert failure_of(smaller, plan) is None
