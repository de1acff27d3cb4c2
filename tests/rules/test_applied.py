"""The names of what operators asked for: how long an item remembers them."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import Applied
from blackboard.rules.applied import (
    ALWAYS,
    MOST,
    REMEMBERED,
    RETRIED_FOR,
    additions,
    is_applied,
    may_retry,
    remembering,
    requests_of,
)
from blackboard.rules.next_run import MILLISECOND
from tests.support.plans import item

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def names(count: int, *, age: timedelta) -> tuple[Applied, ...]:
    return tuple(Applied(name=f"n{n}", at=NOON - age) for n in range(count))


@pytest.mark.parametrize(
    ("before", "age", "kept"),
    [
        (3, timedelta(days=1), 4),
        (ALWAYS, timedelta(days=1), ALWAYS),
        (MOST, timedelta(days=1), ALWAYS),
        (MOST - 1, REMEMBERED, MOST),
        (MOST - 1, REMEMBERED + SECOND, ALWAYS),
        (MOST, REMEMBERED, None),
        (MOST, timedelta(seconds=-1), None),
        (MOST - 1, -REMEMBERED, MOST),
        (MOST, -REMEMBERED - SECOND, ALWAYS),
    ],
)
def test_the_latest_names_and_all_young_ones_are_remembered(
    before: int, age: timedelta, kept: int | None
) -> None:
    """What a clock that was ahead named is as old as it is ahead."""
    found = remembering(item(applied=names(before, age=age)), "mine", now=NOON)
    if kept is None:
        assert found is None
        return
    assert found is not None
    assert (len(found), found[0]) == (kept, Applied(name="mine", at=NOON))


def test_the_name_of_the_run_in_hand_is_remembered() -> None:
    """Its slot is the time of the request, or a millisecond earlier."""
    asked = Applied(name="mine", at=NOON - timedelta(days=1))
    others = names(ALWAYS, age=timedelta(hours=1))
    for slot, kept in ((asked.at, True), (asked.at - MILLISECOND, True), (NOON, False)):
        one = item(slot=slot, applied=(*others, asked))
        assert (asked in (remembering(one, "another", now=NOON) or ())) is kept


def test_a_sender_gives_up_well_before_its_name_may_be_forgotten() -> None:
    assert RETRIED_FOR * 2 <= REMEMBERED
    for sign in (1, -1):  # of a clock that goes on, or is put back
        assert may_retry(first=NOON, now=NOON + sign * RETRIED_FOR)
        assert not may_retry(first=NOON, now=NOON + sign * (RETRIED_FOR + SECOND))


def test_a_name_is_applied_to_the_item_that_holds_it() -> None:
    one = item(applied=names(2, age=SECOND))
    assert is_applied(one, "n0")
    assert is_applied(one, "n1")
    assert not is_applied(one, "mine")
    assert not is_applied(item(applied=names(1, age=SECOND)), "n1")


def test_nothing_is_remembered_of_an_item_that_is_not_there() -> None:
    assert additions(None) == ()
    kept = (Applied(name="add:1", at=NOON), Applied(name="x", at=NOON))
    assert [one.name for one in additions(item(applied=kept))] == ["add:1"]


def test_a_renamed_item_keeps_the_names_of_no_addition_and_no_rename() -> None:
    names = ("add:1", "rename:1", "renamed:1", "x", "added")
    one = item(applied=tuple(Applied(name=name, at=NOON) for name in names))
    assert [kept.name for kept in requests_of(one)] == ["x", "added"]
