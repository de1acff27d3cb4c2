"""Thousands of worker-hours in which everything goes wrong, without a violation."""

import json
import os
from pathlib import Path

import pytest

from tests.simulator.worlds import Totals, run_apart

WORKER_HOURS = float(os.environ.get("BLACKBOARD_WORKER_HOURS", "5000"))
PARTS = 10
FAR = 1_000_000
"""Seeds between two parts: no world is run twice."""


def record(name: str, totals: Totals) -> None:
    """The figures, for whoever asked for them."""
    if folder := os.environ.get("BLACKBOARD_FIGURES"):
        Path(folder, f"{name}.json").write_text(json.dumps(totals.plain(), indent=1) + "\n")


@pytest.mark.case(
    "S1", "S2", "S3", "S4", "L1", "L2", "CS06", "PP02", "SO02", "KI05", "NP02", on="memory"
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_goes_wrong_every_promise_holds(part: int) -> None:
    totals = run_apart(part * FAR, WORKER_HOURS / PARTS)
    record(f"worlds-{part}", totals)
    assert totals.violations == []
    assert totals.troubles["killed"] > 100
    assert totals.troubles["paused"] > 100
    assert totals.overrides > 100
    assert totals.late > 10


def test_where_nothing_goes_wrong_no_two_handlers_overlap() -> None:
    totals = run_apart(0, 250, faults=False)
    record("calm", totals)
    assert totals.violations == []
    assert totals.handled > 1000
    assert (totals.overlaps, totals.overlapped, totals.overrides) == (0, 0.0, 0)
