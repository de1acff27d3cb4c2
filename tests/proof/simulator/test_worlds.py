"""Thousands of worker-hours in which everything goes wrong, without a violation; and hundreds in
which nothing does.

400 and 150 worker-hours; in the long form of the proof 100,000 and 10,000, or as many as
`BLACKBOARD_WORKER_HOURS` says, and a tenth of that. Figures are left in `worlds-<part>.json` and
`calm-<part>.json`.
"""

import os

import pytest

from tests.proof.figures import leave
from tests.proof.form import LONG
from tests.proof.simulator.worlds import run_apart, seeds

WORKER_HOURS = float(os.environ.get("BLACKBOARD_WORKER_HOURS") or (100_000 if LONG else 400))
CALM = WORKER_HOURS / 10 if LONG else 150.0
PARTS = max(3, int(WORKER_HOURS / 300)) | 1
"""An odd number: every eighth world is of one kind, and each part is to have some of all."""
CALM_PARTS = max(1, int(CALM / 1_000))


@pytest.mark.case(
    "S1", "S2", "S3", "S4", "L1", "L2", "CS06", "PP02", "SO02", "KI05", "NP02", on="memory"
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_goes_wrong_every_promise_holds(part: int) -> None:
    chosen = seeds(WORKER_HOURS)[part::PARTS]
    totals = run_apart(chosen)
    leave(f"worlds-{part:03}", totals.plain())
    assert totals.worlds == len(chosen)
    assert totals.violations == []
    assert totals.troubles["killed"] > 100
    assert totals.troubles["paused"] > 100
    assert totals.overrides > 100
    assert totals.late > 1
    assert totals.saves > 300


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(CALM_PARTS))
def test_where_nothing_goes_wrong_no_two_handlers_overlap(part: int) -> None:
    totals = run_apart(seeds(CALM, faults=False)[part::CALM_PARTS], faults=False)
    leave(f"calm-{part:03}", totals.plain())
    assert totals.violations == []
    assert totals.handled > 3 * CALM / CALM_PARTS
    assert totals.saves > CALM / CALM_PARTS
    assert (totals.overlaps, totals.overlapped, totals.overrides) == (0, 0.0, 0)


def test_worlds_make_up_the_worker_hours_that_were_asked_for() -> None:
    chosen = seeds(20.0)
    assert chosen == list(range(len(chosen)))
    assert run_apart(chosen).worker_hours >= 20.0 > run_apart(chosen[:-1]).worker_hours
