"""How an item stands."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import Item, Lock, Outcome, State, replace
from blackboard.rules.status import STATES, ItemStatus, status_of

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
RESOLUTION = 0.01
ITEM = Item(
    id="davis", type="feed", state=State.ACTIVE, spec="{}", slot=NOW, ready=NOW, planned=NOW
)
LOCK = Lock(
    id="davis",
    type="feed",
    owner="host:1:a",
    nonce="n",
    fence=3,
    born=0,
    slot=NOW,
    since=NOW,
    stale_after=30.0,
    attempt=1,
    age=12.0,
)


def stands(lock: Lock | None = None, **item: object) -> ItemStatus:
    changed = replace(ITEM, **item)  # type: ignore[arg-type]
    return status_of(changed, lock, now=NOW, resolution=RESOLUTION)


def words(one: ItemStatus) -> set[str]:
    return {state for state in STATES if one.has(state)}


@pytest.mark.parametrize(
    ("item", "lock", "expected"),
    [
        ({}, None, "active waiting"),
        ({"ready": NOW + timedelta(hours=7)}, None, "active waiting"),
        ({"ready": NOW - timedelta(minutes=1)}, None, "active waiting"),
        ({"ready": NOW - timedelta(minutes=1, seconds=1)}, None, "active waiting overdue"),
        ({"failures": 2, "outcome": Outcome.FAILED}, None, "active waiting failed"),
        ({"state": State.PAUSED, "ready": NOW - timedelta(days=9)}, None, "paused"),
        ({"state": State.DONE}, None, "done"),
        ({"running": True, "fence": 3}, LOCK, "active running"),
        ({"running": True, "fence": 3, "state": State.PAUSED}, LOCK, "paused running"),
        ({"running": True, "fence": 3}, replace(LOCK, age=30.01), "active running"),
        ({"running": True, "fence": 3}, replace(LOCK, age=30.02), "active running stale"),
        ({"running": True, "fence": 4}, replace(LOCK, age=99.0), "active running"),
        ({"running": True, "fence": 3}, None, "active running"),
        ({"running": False, "fence": 3}, replace(LOCK, age=99.0), "active waiting"),
    ],
)
def test_what_may_be_said_of_an_item(
    item: dict[str, object], lock: Lock | None, expected: str
) -> None:
    assert words(stands(lock, **item)) == set(expected.split())


def test_what_counts_as_overdue_can_be_chosen() -> None:
    late = replace(ITEM, ready=NOW - timedelta(minutes=5))
    chosen = [
        status_of(
            late, None, now=NOW, resolution=RESOLUTION, overdue_after=timedelta(minutes=minutes)
        ).overdue
        for minutes in (4, 6)
    ]
    assert chosen == [True, False]
