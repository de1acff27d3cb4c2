"""Workers whose way to the store is long, one-sided, narrow, or closed for hours."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

from blackboard.events import LockLost
from blackboard.rules.breaker import LONGEST, SPACING
from tests.support.fleet import Fleet, Hired, Network, with_fleet

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

HOUR = 3600.0


def lost(*workers: Hired) -> list[str]:
    return [event.message for one in workers for event in one.of(LockLost)]


@pytest.mark.case("NP02", "S4")
@with_fleet
async def test_np02_a_holder_that_reads_and_cannot_write_stops_before_anybody_takes_its_lock(
    fleet: Fleet,
) -> None:
    await fleet.add("davis", every="4h", stale_after="30s", timeout="2h")
    one_sided = Network()
    ann = await fleet.hire("ann", network=one_sided, lasts=HOUR, cycle=10)
    ben = await fleet.hire("ben", lasts=10, cycle=10)
    (run,) = ann.runner.runs["davis"]
    one_sided.mute = True
    stopped = False
    while not ben.order:
        stopped = run.stopped is not None
        await fleet.turn(0.5, step=0.5)
    assert stopped
    assert "not answered" in run.lost
    one_sided.mute = False
    await fleet.turn(60)
    assert await fleet.outcomes() == [(1, "superseded"), (2, "ok")]
    assert (ann.order, ben.order) == (["davis"], ["davis"])


@pytest.mark.case("NP06", "S4")
@with_fleet
async def test_np06_requests_that_take_long_and_overtake_each_other_move_no_lock(
    fleet: Fleet,
) -> None:
    fleet.network.delays = (0.01, 0.5)
    ids = [f"item-{n}" for n in range(12)]
    for item_id in ids:
        await fleet.add(item_id, every="1m", stale_after="10s")
    workers = [await fleet.hire(f"worker-{n}", cycle=10, lasts=25) for n in range(3)]
    await fleet.turn(200, step=0.1)
    assert fleet.network.overtaken > 20
    assert lost(*workers) == []
    for item_id in ids:
        outcomes = await fleet.outcomes(item_id)
        assert outcomes == [(fence, "ok") for fence in range(1, len(outcomes) + 1)]
        assert len(outcomes) >= 3


@pytest.mark.case("SO02", "SO06", "S1", "L1")
@with_fleet
async def test_so02_workers_that_lost_their_store_for_hours_recover_each_item_once(
    fleet: Fleet,
) -> None:
    """Be it its holder, or who finds its lock stale. They knock once a second at the most, each,
    and come back one after the other.
    """
    count = 8
    for n in range(count):
        await fleet.add(f"long-{n}", every="12h", stale_after="1m", timeout="12h")
    workers = [await fleet.hire(f"worker-{n}", slots=2, lasts=6 * HOUR) for n in range(count)]
    await fleet.turn(10, step=0.5)
    began = sum(len(one.order) for one in workers)
    assert began == count
    gone = fleet.clock.monotonic()
    fleet.network.away = True
    await fleet.turn(2 * HOUR - 600, step=10)
    await fleet.turn(600, step=1)
    fleet.network.away = False
    back = fleet.clock.monotonic()
    await fleet.turn(120, step=0.5)
    for n in range(count):
        item = await fleet.item(f"long-{n}")
        assert (item.fence, item.running) == (2, True)
        ((fence, outcome),) = await fleet.outcomes(item.id)
        assert (fence, outcome in {"cancelled", "superseded"}) == (1, True)
    assert sum(len(one.order) for one in workers) == 2 * count
    firsts = []
    for n in range(count):
        knocks = [when for when, who in fleet.network.asked if who == f"worker-{n}"]
        away = [when for when in knocks if gone + LONGEST < when < back]
        assert min(b - a for a, b in pairwise(away)) >= SPACING
        firsts.append(min(when for when in knocks if when > back))
    assert max(firsts) - min(firsts) > 3
    assert max(Counter(round(first) for first in firsts).values()) <= count / 2 + 1


@pytest.mark.case("SR01", "L1")
@with_fleet
async def test_sr01_a_store_that_was_away_for_a_moment_costs_no_lock_and_no_run(
    fleet: Fleet,
) -> None:
    await fleet.add("long", every="12h", stale_after="1m", timeout="12h")
    ann = await fleet.hire("ann", slots=1, lasts=HOUR, cycle=10)
    await fleet.add("short", every="20s", stale_after="1m")
    ben = await fleet.hire("ben", cycle=10)
    await fleet.turn(60)
    fleet.network.away = True
    await fleet.turn(20)
    fleet.network.away = False
    back, returned = fleet.clock.monotonic(), fleet.clock.now()
    await fleet.turn(LONGEST + 10)
    for owner in ("ann", "ben"):
        assert [when for when, who in fleet.network.asked if who == owner and when >= back]
    runs = await fleet.history("short")
    assert runs[-1].start - returned <= timedelta(seconds=LONGEST + 10)
    assert {run.outcome for run in runs} == {"ok"}
    assert lost(ann, ben) == []
    assert ((await fleet.item("long")).fence, ann.order) == (1, ["long"])


@pytest.mark.case("TH04")
@with_fleet
async def test_th04_a_thousand_due_items_stay_below_what_a_partition_takes(
    fleet: Fleet, store: str
) -> None:
    """All of it is fewer requests than a partition takes in a second; and a store that is busy
    beyond two rows a second for each item is given the time it needs.
    """
    count = 1000 if store != "azurite" else 150  # the emulator needs a minute for all
    ids = await fleet.fill(count, every="8h")
    fleet.network.a_second = 2 * count
    fleet.network.delays = (0.005, 0.02)
    workers = [await fleet.hire(f"worker-{n}", slots=100, cycle=10) for n in range(4)]
    while len({one for worker in workers for one in worker.order}) < len(ids):
        await fleet.turn(0.5, step=0.05)
    await fleet.turn(30, step=0.5)
    assert Counter(one for worker in workers for one in worker.order) == Counter(ids)
    assert len(fleet.network.asked) < 2 * count
    assert fleet.network.busy < len(fleet.network.asked) / 4
    assert lost(*workers) == []
    assert [item.id async for item in fleet.other.items() if item.outcome != "ok"] == []
