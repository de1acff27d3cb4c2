"""A worker whose store's clock jumps claims nothing until that is confirmed."""

from datetime import timedelta
from typing import Any

import pytest

from blackboard.events import ClockJumped
from blackboard.worker.steady_clock import CONFIRMED_AFTER
from tests.support.clocks import START
from tests.support.fleet import Fleet, with_fleet
from tests.support.wrong_rows import found

HOUR, YEARS, CYCLE = 3600.0, 3653 * 86_400.0, 30.0


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
