"""`blackboard bench` with sizes for tests: all that it does, and a small part of how often."""

from datetime import timedelta

import pytest

from blackboard import bench

SLOTS = (1, 3)


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {
        "SLOTS": SLOTS,
        "FEWEST": 20,
        "MOST": 60,
        "MOST_BATCHES": 2,
        "MANY_ITEMS": 50,
        "LAG_RATE": 20,
        "LAG_CYCLE": timedelta(seconds=0.2),
    }.items():
        monkeypatch.setattr(bench, name, size)
