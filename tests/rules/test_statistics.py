"""Items are counted by state, by type and by what calls for attention."""

from datetime import timedelta

import pytest

from blackboard.model import Outcome, State, replace
from blackboard.rules.status import CURRENT, MOST_TYPES, ItemStatus, counts_of, is_current
from tests.support.clocks import START
from tests.support.plans import item as an_item

MINUTE = timedelta(minutes=1)


def stands(*, stale: bool = False, overdue: bool = False, **said: object) -> ItemStatus:
    item = replace(an_item(start=START), **{"failures": 0, **said})  # type: ignore[arg-type]
    return ItemStatus(item, None, stale, overdue)


def test_each_item_has_one_state_and_may_be_several_things_besides() -> None:
    counted = counts_of(
        [
            stands(id="a", state=State.ACTIVE, running=False, overdue=True, failures=2),
            stands(id="b", state=State.ACTIVE, running=True, stale=True),
            stands(id="c", state=State.PAUSED, running=False, paused="{}"),
            stands(id="d", state=State.DONE, running=False, paused="{}"),
            stands(
                id="e",
                state=State.ACTIVE,
                running=False,
                failures=0,
                outcome=Outcome.OK,
                warnings=("late",),
            ),
        ],
        now=START,
    )
    assert (counted.items, counted.active, counted.paused, counted.done) == (5, 3, 1, 1)
    assert (counted.running, counted.stale, counted.overdue) == (1, 1, 1)
    assert (counted.failing, counted.warned) == (1, 1)


def test_the_earliest_is_of_those_that_wait() -> None:
    waits = stands(state=State.ACTIVE, running=False, ready=START + MINUTE)
    later = stands(state=State.ACTIVE, running=False, ready=START + 2 * MINUTE)
    runs = stands(state=State.ACTIVE, running=True, ready=START)
    paused = stands(state=State.PAUSED, running=False, ready=START)
    assert counts_of([later, runs, waits, paused], now=START).earliest == START + MINUTE
    assert counts_of([runs, paused], now=START).earliest is None


def test_types_are_counted_apart_the_most_frequent_first() -> None:
    some = [stands(id=f"{kind}{n}", type=kind) for kind in "abc" for n in range(ord(kind) - 96)]
    counted = counts_of(some, now=START)
    assert [(one.type, one.items) for one in counted.by_type] == [("c", 3), ("b", 2), ("a", 1)]
    assert counted.by_type[1].active == 2


def test_types_beyond_what_a_row_holds_are_in_the_totals_alone() -> None:
    rare = [stands(id=str(n), type=f"rare-{n:03}") for n in range(MOST_TYPES)]
    often = [stands(id=f"often-{n}", type="often") for n in range(2)]
    counted = counts_of([*rare, *often], now=START)
    assert len(counted.by_type) == MOST_TYPES
    assert (counted.by_type[0].type, counted.items) == ("often", MOST_TYPES + 2)
    assert sum(one.items for one in counted.by_type) == MOST_TYPES + 1


def test_nothing_is_counted_of_an_empty_board() -> None:
    counted = counts_of([], now=START)
    assert (counted.items, counted.by_type, counted.earliest) == (0, (), None)


@pytest.mark.parametrize(
    ("age", "current"),
    [
        (timedelta(0), True),
        (CURRENT, True),
        (CURRENT + timedelta(milliseconds=1), False),
        (-MINUTE, True),
        (-MINUTE - timedelta(milliseconds=1), False),
    ],
)
def test_counts_are_current_for_three_countings(age: timedelta, *, current: bool) -> None:
    """Those of the future were written under a clock that was wrong."""
    assert is_current(counts_of([], now=START), now=START + age) is current
