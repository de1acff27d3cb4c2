"""How a partition of a group stands, case by case."""

from datetime import timedelta
from typing import Any

import pytest

from blackboard.model import Item, Lock, Outcome, State, replace
from blackboard.rules.groups import PartitionState, has_no_leader, judged
from blackboard.rules.status import ItemStatus, status_of
from tests.support.plans import HOUR, MINUTE, NOON, item

SECOND = timedelta(seconds=1)
LEASE = 30 * SECOND
FAILED: dict[str, Any] = {"outcome": Outcome.FAILED, "failures": 2}
RUNS = {"running": True, "owner": "ann", "start": NOON - HOUR}


def stands(item: Item, age: float | None = None) -> ItemStatus:
    """`age` is that of its lock, whose lease is 30 s; None: it has none."""
    lock = None
    if age is not None:
        lock = Lock(
            id=item.id,
            type=item.type,
            owner=item.owner,
            nonce="abc",
            fence=item.fence,
            born=item.born,
            slot=item.slot,
            since=NOON - HOUR,
            stale_after=30.0,
            attempt=1,
            age=age,
        )
    return status_of(item, lock, now=NOON, resolution=0.0)


def ended(ago: timedelta, *, took: timedelta = SECOND, **about: Any) -> dict[str, Any]:
    return {"start": NOON - ago - took, "stop": NOON - ago, **about}


CASES: dict[str, tuple[dict[str, Any], float | None, PartitionState, timedelta]] = {
    "it never ran": ({"ready": NOON}, None, PartitionState.MOVING, 0 * SECOND),
    "let go a moment ago": (ended(SECOND), None, PartitionState.MOVING, SECOND),
    "let go a lease ago": (ended(LEASE), None, PartitionState.MOVING, LEASE),
    "let go before that": (ended(MINUTE), None, PartitionState.UNOWNED, MINUTE),
    "held": (RUNS, 1.0, PartitionState.HELD, 0 * SECOND),
    "just stale": (RUNS, 40.0, PartitionState.MOVING, 10 * SECOND),
    "long stale": (RUNS, 90.0, PartitionState.UNOWNED, MINUTE),
    "of an earlier boot": (RUNS, float("inf"), PartitionState.UNOWNED, HOUR),
    "failed at once, twice": (ended(SECOND, **FAILED), None, PartitionState.FAILING, SECOND),
    "long ago": (ended(MINUTE, **FAILED), None, PartitionState.FAILING, MINUTE),
    "failed after a lease": (
        ended(SECOND, took=LEASE, **FAILED),
        None,
        PartitionState.MOVING,
        SECOND,
    ),
    "failed once": (
        ended(SECOND, outcome=Outcome.FAILED, failures=1),
        None,
        PartitionState.MOVING,
        SECOND,
    ),
    "fails and runs": ({**RUNS, **FAILED}, 1.0, PartitionState.HELD, 0 * SECOND),
    "let go in the future": (ended(-HOUR), None, PartitionState.SET_BACK, 0 * SECOND),
    "failed in the future": (ended(-HOUR, **FAILED), None, PartitionState.SET_BACK, 0 * SECOND),
    "done a moment ago": (
        {"state": State.DONE, **ended(SECOND)},
        None,
        PartitionState.MOVING,
        SECOND,
    ),
    "long done": ({"state": State.DONE, **ended(HOUR)}, None, PartitionState.UNOWNED, HOUR),
    "done and paused": (
        {"state": State.DONE, "paused": "{}", **ended(HOUR)},
        None,
        PartitionState.PAUSED,
        0 * SECOND,
    ),
    "paused": (
        {"state": State.PAUSED, "paused": "{}", **ended(HOUR, **FAILED)},
        None,
        PartitionState.PAUSED,
        0 * SECOND,
    ),
    "paused, and its owner died": (
        {"state": State.PAUSED, "paused": "{}", **RUNS},
        90.0,
        PartitionState.PAUSED,
        0 * SECOND,
    ),
    "paused while it runs": (
        {"state": State.PAUSED, "paused": "{}", **RUNS},
        1.0,
        PartitionState.HELD,
        0 * SECOND,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_partition_stands_in_one_way(name: str) -> None:
    about, age, state, free = CASES[name]
    found = judged(stands(replace(item(), **about), age), lease=LEASE, now=NOON, resumed=None)
    assert (found.state, found.free) == (state, free)


def test_a_pause_is_no_time_without_an_owner() -> None:
    waits = stands(replace(item(), **ended(HOUR)))
    found = judged(waits, lease=LEASE, now=NOON, resumed=NOON - SECOND)
    assert (found.state, found.free) == (PartitionState.MOVING, SECOND)


@pytest.mark.parametrize(
    ("name", "is_late"),
    [
        ("held", False),
        ("let go a lease ago", False),
        ("let go before that", True),
        ("just stale", False),
        ("long stale", True),
        ("let go in the future", True),
        ("long done", True),
        ("done and paused", False),
        ("paused", False),
    ],
)
def test_an_election_has_no_leader_after_a_lease_without_one(name: str, *, is_late: bool) -> None:
    about, age, *_ = CASES[name]
    one = stands(replace(item(), **about), age)
    assert has_no_leader(one, lease=LEASE, now=NOON, resumed=None) is is_late
