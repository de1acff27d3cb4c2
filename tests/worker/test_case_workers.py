"""Workers that die, come back, stop while something of theirs goes on, or were away for days."""

from datetime import timedelta

import pytest

from blackboard.events import LockLost
from blackboard.tables.azure_clock import TICK
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.release_queue import LAST_RELEASES
from tests.support.clocks import START
from tests.support.fleet import Fleet, with_fleet
from tests.support.workers import Workplace, until, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

LEASE, CYCLE = 30.0, 10.0
HOUR, DAY = 3600.0, 86_400.0


async def held(fleet: Fleet, owner: str = "ann") -> None:
    """A run under way, whose lock is renewed."""
    await fleet.add("davis", every="1d", stale_after=f"{LEASE:g}s", timeout="1d")
    await fleet.hire(owner, lasts=HOUR, cycle=CYCLE)
    await fleet.turn(45)
    assert (await fleet.lock()).owner == owner


@pytest.mark.case("KI01", "L1")
@with_fleet
async def test_ki01_a_killed_holder_has_a_successor_within_its_lease_and_two_cycles(
    fleet: Fleet,
) -> None:
    await held(fleet)
    ben = await fleet.hire("ben", cycle=CYCLE)
    died = fleet.clock.monotonic()
    await fleet.workers[0].dies()
    while not ben.order:
        assert fleet.clock.monotonic() - died <= LEASE + 2 * CYCLE
        await fleet.turn(0.5, step=0.5)
    assert await fleet.outcomes() == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("KI05", "S4")
@with_fleet
async def test_ki05_a_worker_that_comes_back_under_its_name_goes_on_with_what_it_had(
    fleet: Fleet,
) -> None:
    """Before its lease is over, and under the fence it had; no other worker runs it."""
    await held(fleet)
    ben = await fleet.hire("ben", cycle=CYCLE)
    await fleet.workers[0].dies()
    again = await fleet.hire("ann", lasts=60, cycle=CYCLE)
    assert again.order == ["davis"]
    await fleet.turn(90)
    assert await fleet.outcomes() == [(1, "ok")]
    assert ben.order == []


@pytest.mark.case("KI05", "S4")
@with_fleet
async def test_ki05_a_worker_that_comes_back_under_another_name_waits_as_all_do(
    fleet: Fleet,
) -> None:
    await held(fleet)
    seen, since = await fleet.lock(), fleet.clock.monotonic()
    await fleet.workers[0].dies()
    again = await fleet.hire("ann again", lasts=60, cycle=CYCLE)
    while not again.order:
        assert (await fleet.lock()).etag == seen.etag
        await fleet.turn(0.5, step=0.5)
    assert seen.age + fleet.clock.monotonic() - since > LEASE
    await fleet.turn(90)
    assert await fleet.outcomes() == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("KI09")
@with_fleet
async def test_ki09_a_worker_whose_heart_stops_ends_and_takes_nothing_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await held(fleet)
    (ann,) = fleet.workers

    def stops(_: Heartbeat) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as broken:
        broken.setattr(Heartbeat, "beat", stops)
        await fleet.turn(1)
        await fleet.add("another")
        await fleet.turn(CYCLE)
        assert ann.task.done()
        assert isinstance(ann.task.exception(), ExceptionGroup)
    assert ann.order == ["davis"]
    ben = await fleet.hire("ben", cycle=CYCLE)
    await fleet.turn(LEASE + 2 * CYCLE)
    assert ben.order == ["another", "davis"]


@pytest.mark.case("RR02", "S2")
@with_workers
async def test_rr02_what_can_not_be_stopped_within_the_grace_keeps_its_lock_and_others_wait(
    place: Workplace,
) -> None:
    """It may still be doing something. Its lock goes stale, as any that is not renewed."""
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
    await worker.ended()
    assert (await place.lock()).owner == "me"
    place.later(seconds=120 + 2 * TICK)
    await other.walk()
    (await other.run("davis")).end()
    assert await place.ended("davis", runs=2) == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("CAL07", "L1")
@with_fleet
async def test_cal07_after_three_days_without_workers_there_is_one_run_to_catch_up(
    fleet: Fleet,
) -> None:
    """Not none, and not 4,320."""
    await fleet.add("davis", cron="* * * * *")
    ann = await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(30)
    await ann.dies()
    fleet.clock.advance(3 * DAY)
    returned = fleet.clock.now()
    ben = await fleet.hire("ben", cycle=CYCLE)
    await fleet.turn(20)
    assert ben.order == ["davis"]
    first, second = await fleet.history()
    assert (first.slot, second.slot) == (START, START + timedelta(minutes=1))
    assert second.start - returned <= timedelta(seconds=CYCLE)
    await fleet.turn(120)
    assert ben.order == ["davis"] * 3
    assert not ben.of(LockLost)
