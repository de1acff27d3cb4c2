"""Workers that die, come back, stop while something of theirs goes on, or were away for days."""

import asyncio
from datetime import timedelta

import pytest

from blackboard.events import LockLost
from blackboard.model import Outcome
from blackboard.tables.azure_transport import TICK
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.worker import LAST_RELEASES
from tests.support.clocks import START
from tests.support.village import Village, in_a_village
from tests.support.working import Workplace, at_work, until

LEASE, CYCLE = 30.0, 10.0
HOUR, DAY = 3600.0, 86_400.0


async def held(village: Village, owner: str = "ann") -> None:
    """A run under way, whose lock is renewed."""
    await village.add("davis", every="1d", stale_after=f"{LEASE:g}s", timeout="1d")
    await village.hire(owner, lasts=HOUR, cycle=CYCLE)
    await village.turn(45)
    assert (await village.lock()).owner == owner


@pytest.mark.case("KI01", "L1")
@in_a_village
async def test_ki01_a_killed_holder_has_a_successor_within_its_lease_and_two_cycles(
    village: Village,
) -> None:
    await held(village)
    ben = await village.hire("ben", cycle=CYCLE)
    died = village.clock.monotonic()
    await village.workers[0].dies()
    while not ben.order:
        assert village.clock.monotonic() - died <= LEASE + 2 * CYCLE
        await village.turn(0.5, step=0.5)
    assert await village.outcomes() == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("KI05", "S4")
@in_a_village
async def test_ki05_a_worker_that_comes_back_under_its_name_goes_on_with_what_it_had(
    village: Village,
) -> None:
    """Before its lease is over, and under the fence it had; nobody else runs it."""
    await held(village)
    ben = await village.hire("ben", cycle=CYCLE)
    await village.workers[0].dies()
    again = await village.hire("ann", lasts=60, cycle=CYCLE)
    assert again.order == ["davis"]
    await village.turn(90)
    assert await village.outcomes() == [(1, "ok")]
    assert ben.order == []


@pytest.mark.case("KI05", "S4")
@in_a_village
async def test_ki05_a_worker_that_comes_back_under_another_name_waits_as_all_do(
    village: Village,
) -> None:
    await held(village)
    seen, since = await village.lock(), village.clock.monotonic()
    await village.workers[0].dies()
    again = await village.hire("ann again", lasts=60, cycle=CYCLE)
    while not again.order:
        assert (await village.lock()).etag == seen.etag
        await village.turn(0.5, step=0.5)
    assert seen.age + village.clock.monotonic() - since > LEASE
    await village.turn(90)
    assert await village.outcomes() == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("KI09")
@in_a_village
async def test_ki09_a_worker_whose_heart_stops_ends_and_takes_nothing_more(
    village: Village, monkeypatch: pytest.MonkeyPatch
) -> None:
    await held(village)
    (ann,) = village.workers

    def stops(_: Heartbeat) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as broken:
        broken.setattr(Heartbeat, "beat", stops)
        await village.turn(1)
        await village.add("another")
        await village.turn(CYCLE)
        assert ann.task.done()
        assert isinstance(ann.task.exception(), ExceptionGroup)
    assert ann.order == ["davis"]
    ben = await village.hire("ben", cycle=CYCLE)
    await village.turn(LEASE + 2 * CYCLE)
    assert ben.order == ["another", "davis"]


@pytest.mark.case("RR02", "S2")
@at_work
async def test_rr02_what_can_not_be_stopped_within_the_grace_keeps_its_lock_and_others_wait(
    place: Workplace,
) -> None:
    """It may still be doing something. Its lock goes stale, as any that nobody renews."""
    await place.add("davis", every="1h", stale_after="2m")
    worker = await place.worker(grace=timedelta(seconds=30))
    run = await worker.run("davis")
    run.deaf = True
    worker.worker.stop()
    for seconds in (30, LAST_RELEASES):
        await place.sleeps(seconds)
        place.later(seconds=seconds)
    await until(lambda: run.stopped, "it is told to stop")
    other = await place.worker(owner="other", board=place.other)
    assert (await place.lock()).owner == "me"
    await other.walk()
    assert other.order == []
    for _ in range(20):
        await asyncio.sleep(0)  # until nobody is left to let it go
    run.end(Outcome.CANCELLED)
    await worker.ended()
    assert (await place.lock()).owner == "me"
    place.later(seconds=120 + 2 * TICK)
    await other.walk()
    (await other.run("davis")).end()
    assert await place.ended("davis", runs=2) == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("CAL07", "L1")
@in_a_village
async def test_cal07_after_three_days_without_workers_there_is_one_run_to_catch_up(
    village: Village,
) -> None:
    """Not none, and not 4,320."""
    await village.add("davis", cron="* * * * *")
    ann = await village.hire("ann", cycle=CYCLE)
    await village.turn(30)
    await ann.dies()
    village.clock.advance(3 * DAY)
    returned = village.clock.now()
    ben = await village.hire("ben", cycle=CYCLE)
    await village.turn(20)
    assert ben.order == ["davis"]
    first, second = await village.history()
    assert (first.slot, second.slot) == (START, START + timedelta(minutes=1))
    assert second.start - returned <= timedelta(seconds=CYCLE)
    await village.turn(120)
    assert ben.order == ["davis"] * 3
    assert not ben.of(LockLost)
