"""A worker whose store's clock jumps claims nothing until that is confirmed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blackboard.events import ClockJumped, TimesPutRight
from blackboard.rules.status import COUNTED_EVERY
from blackboard.sharing import coordinator
from blackboard.worker.steady_clock import CONFIRMED_AFTER
from tests.support.clocks import START
from tests.support.fleet import Fleet, with_fleet
from tests.support.wrong_rows import found

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

HOUR, YEARS, CYCLE = 3600.0, 3653 * 86_400.0, 30.0
AT_ONCE = timedelta(milliseconds=1)


@pytest.mark.cases_of_one_store("clocks are compared above the store")
@pytest.mark.parametrize(
    "said",
    [
        {"every": "8h"},
        {"cron": "0 3 * * *"},
        {"cron": "0 3 * * *", "missed": "none"},
        {"every": "8h", "retries": 9, "backoff": "1h"},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("jump", [YEARS, -YEARS])
@with_fleet
async def test_a_clock_that_is_wrong_for_a_moment_sets_nothing_back(
    fleet: Fleet, jump: float, said: dict[str, Any]
) -> None:
    for name in ("davis", "later"):
        await fleet.add(name, **said)
    ann = await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(3 * CYCLE - 3, step=1)
    assert sorted(ann.order) == ["davis", "later"]
    before = [await fleet.item(name) for name in ("davis", "later")]
    fleet.clock.jump(jump)
    await fleet.turn(CONFIRMED_AFTER - 2, step=1)
    fleet.clock.jump(-jump)
    assert ann.of(ClockJumped), "it looked meanwhile"
    await fleet.turn(4 * CYCLE, step=1)
    assert [await fleet.item(name) for name in ("davis", "later")] == before
    assert (await found(fleet.board)).findings == []


@with_fleet
async def test_a_jump_is_told_and_costs_a_look(fleet: Fleet) -> None:
    """As after a night in which the machine was suspended."""
    await fleet.add("davis", cron="0 10 * * *")
    await fleet.add("held", every="4h", stale_after="1m")
    ann = await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(CYCLE, step=1)
    fleet.clock.jump(24 * HOUR)
    morning = fleet.clock.now()
    await fleet.turn(2 * CYCLE + CONFIRMED_AFTER, step=1)
    runs = await fleet.history()
    assert [run.slot for run in runs[1:]] == [START + timedelta(hours=1)]
    assert runs[-1].start >= morning + timedelta(seconds=CONFIRMED_AFTER - 1)
    jumped, counts = ann.of(ClockJumped)
    assert jumped.message.startswith("the store's clock jumped ahead by 1d")
    assert "counts from now on" in counts.message


@pytest.mark.of_one_store("clocks are compared above the store")
@with_fleet
async def test_what_was_planned_while_the_clock_was_ahead_runs_minutes_after_it_is_right(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "RESIGNS_WITHIN", AT_ONCE)
    await fleet.add("davis", every="20s")
    await fleet.add("keene", cron="0 3 * * *", missed="none")
    ann = await fleet.hire("ann", cycle=CYCLE, coordinator=True)
    await fleet.turn(HOUR + CYCLE, step=30)
    fleet.clock.jump(24 * HOUR)
    await fleet.turn(CYCLE + CONFIRMED_AFTER, step=5)
    fleet.clock.jump(-24 * HOUR)
    back = fleet.clock.now()
    await fleet.turn(COUNTED_EVERY.total_seconds() + 2 * CYCLE + CONFIRMED_AFTER, step=5)
    anew = ann.of(TimesPutRight)
    assert [one.id for one in anew] == ["davis", "keene"]
    assert "(every 20s) explains: a clock was wrong; that is put right" in anew[0].message
    newest = (await fleet.history())[-1]
    assert back < newest.start <= fleet.clock.now()
    assert (await fleet.item("keene")).ready == datetime(2026, 11, 22, 3, tzinfo=UTC)
    assert (await found(fleet.board)).findings == []


@pytest.mark.of_one_store("clocks are compared above the store")
@with_fleet
async def test_a_clock_that_is_behind_for_a_while_makes_no_slot_run_twice(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "RESIGNS_WITHIN", AT_ONCE)
    await fleet.add("davis", cron="30 9 * * *")
    ann = await fleet.hire("ann", cycle=CYCLE, coordinator=True)
    await fleet.turn(2 * HOUR, step=30)
    before = await fleet.item("davis")
    assert (await fleet.history())[-1].slot == START + timedelta(minutes=30)
    for jump in (-2 * HOUR, 2 * HOUR):
        fleet.clock.jump(jump)
        await fleet.turn(2 * COUNTED_EVERY.total_seconds(), step=10)
        assert await fleet.item("davis") == before
    assert ann.of(TimesPutRight) == []
