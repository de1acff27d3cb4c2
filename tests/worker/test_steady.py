"""A worker whose store's clock jumps claims nothing until that is confirmed."""

from datetime import timedelta
from typing import Any

import pytest

from blackboard.events import ClockJumped
from blackboard.worker.store_breaker import CONFIRMED_AFTER
from tests.support.ailments import found
from tests.support.clocks import START
from tests.support.village import Village, in_a_village

HOUR, YEARS, CYCLE = 3600.0, 3653 * 86_400.0, 30.0


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
@in_a_village
async def test_a_clock_that_is_wrong_for_a_moment_sets_nothing_back(
    village: Village, jump: float, said: dict[str, Any]
) -> None:
    for name in ("davis", "later"):
        await village.add(name, **said)
    ann = await village.hire("ann", cycle=CYCLE)
    await village.turn(3 * CYCLE - 3, step=1)
    assert sorted(ann.order) == ["davis", "later"]
    before = [await village.item(name) for name in ("davis", "later")]
    village.clock.jump(jump)
    await village.turn(CONFIRMED_AFTER - 2, step=1)
    village.clock.jump(-jump)
    assert ann.of(ClockJumped), "it looked meanwhile"
    await village.turn(4 * CYCLE, step=1)
    assert [await village.item(name) for name in ("davis", "later")] == before
    assert (await found(village.board)).findings == []


@in_a_village
async def test_a_jump_is_told_and_costs_a_look(village: Village) -> None:
    """As after a night in which the machine was suspended."""
    await village.add("davis", cron="0 10 * * *")
    await village.add("held", every="4h", stale_after="1m")
    ann = await village.hire("ann", cycle=CYCLE)
    await village.turn(CYCLE, step=1)
    village.clock.jump(24 * HOUR)
    morning = village.clock.now()
    await village.turn(2 * CYCLE + CONFIRMED_AFTER, step=1)
    runs = await village.history()
    assert [run.slot for run in runs[1:]] == [START + timedelta(hours=1)]
    assert runs[-1].start >= morning + timedelta(seconds=CONFIRMED_AFTER - 1)
    jumped, counts = ann.of(ClockJumped)
    assert jumped.message.startswith("the store's clock jumped ahead by 1d")
    assert "counts from now on" in counts.message
