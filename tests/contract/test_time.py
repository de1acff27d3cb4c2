"""The store's clocks: `now` for what is due, `age` for what is stale."""

from datetime import timedelta

import pytest

from blackboard.table import ANY, Insert, Merge, Replace, Table, read
from tests.support.clocks import START, ManualClock
from tests.support.stores import Run

P = "town"


def age(table: Table, run: Run, key: str = "a") -> float:
    row = run(read(table, P, key))
    assert row is not None
    return table.age(row)


def near(table: Table, seconds: float) -> object:
    return pytest.approx(seconds, abs=table.resolution)


def test_now_is_the_wall_clock_in_whole_milliseconds(
    table: Table, run: Run, clock: ManualClock
) -> None:
    clock.advance(1.23456)
    assert run(table.now()) == START + timedelta(milliseconds=1234)


def test_a_row_ages_with_time_and_not_by_being_read(
    table: Table, run: Run, clock: ManualClock
) -> None:
    run(table.commit(P, [Insert("a", {"n": 1})]))
    assert age(table, run) == near(table, 0)
    clock.advance(90)
    assert age(table, run) == near(table, 90)
    assert age(table, run) == near(table, 90)


@pytest.mark.parametrize("op", [Merge("a", {"n": 2}, ANY), Replace("a", {"n": 2}, ANY)])
def test_a_write_starts_the_age_again(
    table: Table, run: Run, clock: ManualClock, op: Merge | Replace
) -> None:
    run(table.commit(P, [Insert("a", {"n": 1}), Insert("b", {"n": 1})]))
    clock.advance(90)
    run(table.commit(P, [op]))
    clock.advance(10)
    assert age(table, run, "a") == near(table, 10)
    assert age(table, run, "b") == near(table, 100)


@pytest.mark.case("CJ01")
@pytest.mark.parametrize("hours", [24, -24, -24 * 3653])
def test_cj01_setting_the_wall_clock_ages_nothing(
    table: Table, run: Run, clock: ManualClock, hours: int
) -> None:
    run(table.commit(P, [Insert("a", {"n": 1})]))
    clock.jump(hours * 3600)
    assert age(table, run) == near(table, 0)
    clock.advance(30)
    assert age(table, run) == near(table, 30)
    assert run(table.now()) == START + timedelta(hours=hours, seconds=30)
