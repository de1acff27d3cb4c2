"""Wall clocks that are wrong, of one worker, of all of them or of the store; and that are set."""

from datetime import timedelta

import pytest

from blackboard.events import LockLost
from blackboard.protocol.members import workers
from tests.support.clocks import START
from tests.support.fleet import Fleet, SkewedClock, with_fleet

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 365.25 * 86_400.0
TO_1970 = -START.timestamp()
CYCLE = 60.0
STEP = 5.0
EVERY = timedelta(minutes=10)


async def life(fleet: Fleet, first: float, second: float) -> None:
    """Two workers, one after the other, whose wall clocks are wrong by so many seconds; an item
    that runs every ten minutes, and one whose holder died.
    """
    await fleet.add("davis", cron="*/10 * * * *")
    await fleet.add("held", every="4h", stale_after="1m")
    began = fleet.clock.now()
    await fleet.claimed("held", board=fleet.other, owner="dead")
    ann = await fleet.hire("ann", skew=first, cycle=CYCLE)
    await fleet.turn(0.5 * HOUR, step=STEP)
    await ann.dies()
    ben = await fleet.hire("ben", skew=second, cycle=CYCLE)
    await fleet.turn(0.5 * HOUR, step=STEP)
    started = {one.owner: one.started for one in await workers(fleet.other)}
    assert began <= started["ben"] <= fleet.clock.now()
    runs = await fleet.history()
    assert [run.worker for run in runs] == ["ann"] * 4 + ["ben"] * 3
    assert [run.slot for run in runs[1:]] == [began + n * EVERY for n in range(1, 7)]
    for run in runs:
        assert run.outcome == "ok"
        assert timedelta(0) <= run.start - run.slot <= timedelta(seconds=CYCLE)
    gone, again = await fleet.history("held")
    assert (gone.outcome, again.outcome, again.worker) == ("abandoned", "ok", "ann")
    assert MINUTE < (gone.stop - gone.start).total_seconds() <= MINUTE + 2 * CYCLE
    assert not ann.of(LockLost) + ben.of(LockLost)


@pytest.mark.cases_of_one_store("clocks are compared above the store")
@pytest.mark.case("CS02")
@pytest.mark.parametrize("skew", [10 * YEAR, -10 * YEAR, TO_1970], ids=["+10", "-10", "1970"])
@with_fleet
async def test_cs02_a_worker_that_is_years_wrong_works_as_the_others(
    fleet: Fleet, skew: float
) -> None:
    await life(fleet, 0.0, skew)


@pytest.mark.cases_of_one_store("clocks are compared above the store")
@pytest.mark.case("CS02")
@pytest.mark.parametrize("begins", [10 * YEAR, -10 * YEAR, TO_1970], ids=["+10", "-10", "1970"])
@with_fleet
async def test_cs02_a_host_that_is_years_wrong_is_as_good_as_any(
    fleet: Fleet, begins: float
) -> None:
    assert fleet.clock.now() == START + timedelta(seconds=begins)
    await life(fleet, 0.0, 0.0)


@pytest.mark.case("CS04")
@pytest.mark.parametrize("apart", [DAY, -DAY], ids=["ahead", "behind"])
@with_fleet
async def test_cs04_a_store_whose_clock_nobody_else_has_decides_what_is_due(
    fleet: Fleet, apart: float
) -> None:
    await life(fleet, apart, apart + 7 * MINUTE)


@pytest.mark.case("CS06")
@with_fleet
async def test_cs06_nodes_that_differ_by_more_than_a_run_takes_run_each_slot_once(
    fleet: Fleet, store: str
) -> None:
    """Where the store's time is that of the host, each of the two has a time of its own."""
    await fleet.add("davis", cron="0 * * * *")
    ahead = SkewedClock(fleet.clock, 10 * MINUTE)
    clocks = {"ann": fleet.clock, "ben": ahead if store != "azurite" else fleet.clock}
    for owner, clock in clocks.items():
        table = await fleet.open_table(clock)
        skew = 10 * MINUTE if owner == "ben" else 0.0
        await fleet.hire(owner, skew=skew, table=table, lasts=MINUTE)
    await fleet.turn(3.5 * HOUR, step=2 * STEP)
    runs = await fleet.history()
    assert [run.slot for run in runs] == [START + timedelta(hours=n) for n in range(4)]
    assert {run.outcome for run in runs} == {"ok"}
    assert {run.stop - run.start > timedelta(seconds=MINUTE - STEP) for run in runs} == {True}


@pytest.mark.case("CJ03")
@with_fleet
async def test_cj03_what_was_due_is_run_when_a_clock_that_went_back_returns(
    fleet: Fleet,
) -> None:
    """One cycle later where it is a reply that tells of the store's clock."""
    await fleet.add("davis", cron="0 * * * *")
    await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(10 * MINUTE, step=STEP)
    fleet.clock.jump(-DAY)
    await fleet.turn(2 * HOUR, step=STEP)
    assert [run.slot for run in await fleet.history()] == [START]
    fleet.clock.jump(DAY)
    back = fleet.clock.now()
    await fleet.turn(2 * CYCLE + STEP, step=STEP)
    _, caught_up = await fleet.history()
    assert caught_up.slot == START + timedelta(hours=1)
    assert back <= caught_up.start + timedelta(seconds=1)
    await fleet.turn(HOUR, step=STEP)
    assert (await fleet.history())[-1].slot == START + timedelta(hours=3)


@pytest.mark.cases_of_one_store("clocks are compared above the store")
@pytest.mark.case("CJ05")
@pytest.mark.parametrize("by", [-1.5, -0.4, 0.4, 1.5], ids=str)
@with_fleet
async def test_cj05_a_clock_that_is_set_a_little_while_all_wait_costs_no_run(
    fleet: Fleet, by: float
) -> None:
    await fleet.add("davis", cron="*/10 * * * *")
    await fleet.hire("ann", cycle=CYCLE)
    for _ in range(3):
        await fleet.turn(9 * MINUTE + 30, step=STEP)
        fleet.clock.jump(by)
        await fleet.turn(30, step=0.5)
    await fleet.turn(CYCLE, step=0.5)
    runs = await fleet.history()
    assert [run.slot for run in runs] == [START + n * EVERY for n in range(4)]
    assert all(run.start >= run.slot for run in runs)


@pytest.mark.cases_of_one_store("clocks are compared above the store")
@pytest.mark.case("CJ05")
@pytest.mark.parametrize("drift", [1 / DAY, -1 / DAY], ids=["inserted", "left out"])
@with_fleet
async def test_cj05_a_leap_second_that_is_smeared_over_a_day_costs_no_run_and_no_lock(
    fleet: Fleet, drift: float
) -> None:
    await fleet.add("long", every="4h", stale_after="30s", timeout="4h")
    ben = await fleet.hire("ben", slots=1, lasts=2 * HOUR, cycle=CYCLE)
    await fleet.add("davis", cron="*/10 * * * *")
    ann = await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(0.6 * HOUR, drift=drift)
    runs = await fleet.history()
    assert [run.slot for run in runs] == [START + n * EVERY for n in range(4)]
    assert all(run.start >= run.slot for run in runs)
    assert (ben.order, ann.order) == (["long"], ["davis"] * 4)
    assert not ann.of(LockLost) + ben.of(LockLost)
