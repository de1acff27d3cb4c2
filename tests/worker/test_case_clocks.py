"""Wall clocks that are wrong, of one worker, of all of them or of the store; and that are set."""

from datetime import timedelta

import pytest

from blackboard.events import LockLost
from tests.support.clocks import START
from tests.support.village import Askew, Village, in_a_village

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 365.25 * 86_400.0
TO_1970 = -START.timestamp()
CYCLE = 60.0
STEP = 5.0
EVERY = timedelta(minutes=10)


async def life(village: Village, first: float, second: float) -> None:
    """Two workers whose walls are askew by so many seconds, one after the other; an item that is
    run every ten minutes, and one whose holder died.
    """
    await village.add("davis", cron="*/10 * * * *")
    await village.add("held", every="4h", stale_after="1m")
    began = village.clock.now()
    await village.claimed("held", board=village.other, owner="dead")
    ann = await village.hire("ann", skew=first, cycle=CYCLE)
    await village.turn(0.5 * HOUR, step=STEP)
    await ann.dies()
    ben = await village.hire("ben", skew=second, cycle=CYCLE)
    await village.turn(0.5 * HOUR, step=STEP)
    runs = await village.history()
    assert [run.worker for run in runs] == ["ann"] * 4 + ["ben"] * 3
    assert [run.slot for run in runs[1:]] == [began + n * EVERY for n in range(1, 7)]
    for run in runs:
        assert run.outcome == "ok"
        assert timedelta(0) <= run.start - run.slot <= timedelta(seconds=CYCLE)
    gone, again = await village.history("held")
    assert (gone.outcome, again.outcome, again.worker) == ("abandoned", "ok", "ann")
    assert MINUTE < (gone.stop - gone.start).total_seconds() <= MINUTE + 2 * CYCLE
    assert not ann.of(LockLost) + ben.of(LockLost)


@pytest.mark.case("CS02")
@pytest.mark.parametrize("skew", [10 * YEAR, -10 * YEAR, TO_1970], ids=["+10", "-10", "1970"])
@in_a_village
async def test_cs02_a_worker_that_is_years_wrong_works_as_the_others(
    village: Village, skew: float
) -> None:
    await life(village, 0.0, skew)


@pytest.mark.case("CS02")
@pytest.mark.parametrize("begins", [10 * YEAR, -10 * YEAR, TO_1970], ids=["+10", "-10", "1970"])
@in_a_village
async def test_cs02_a_host_that_is_years_wrong_is_as_good_as_any(
    village: Village, begins: float
) -> None:
    assert village.clock.now() == START + timedelta(seconds=begins)
    await life(village, 0.0, 0.0)


@pytest.mark.case("CS04")
@pytest.mark.parametrize("apart", [DAY, -DAY], ids=["ahead", "behind"])
@in_a_village
async def test_cs04_a_store_whose_clock_nobody_else_has_decides_what_is_due(
    village: Village, apart: float
) -> None:
    await life(village, apart, apart + 7 * MINUTE)


@pytest.mark.case("CS06")
@in_a_village
async def test_cs06_nodes_that_differ_by_more_than_a_run_takes_run_each_slot_once(
    village: Village, store: str
) -> None:
    """Where the store's time is that of the host, each of the two has a time of its own."""
    await village.add("davis", cron="0 * * * *")
    ahead = Askew(village.clock, 10 * MINUTE)
    clocks = {"ann": village.clock, "ben": ahead if store != "azurite" else village.clock}
    for owner, clock in clocks.items():
        table = await village.open_table(clock)
        skew = 10 * MINUTE if owner == "ben" else 0.0
        await village.hire(owner, skew=skew, table=table, lasts=MINUTE)
    await village.turn(3.5 * HOUR, step=2 * STEP)
    runs = await village.history()
    assert [run.slot for run in runs] == [START + timedelta(hours=n) for n in range(4)]
    assert {run.outcome for run in runs} == {"ok"}
    assert {run.stop - run.start > timedelta(seconds=MINUTE - STEP) for run in runs} == {True}


@pytest.mark.case("CJ03")
@in_a_village
async def test_cj03_what_was_due_is_run_when_a_clock_that_went_back_returns(
    village: Village,
) -> None:
    """One cycle later where it is a reply that tells of the store's clock."""
    await village.add("davis", cron="0 * * * *")
    await village.hire("ann", cycle=CYCLE)
    await village.turn(10 * MINUTE, step=STEP)
    village.clock.jump(-DAY)
    await village.turn(2 * HOUR, step=STEP)
    assert [run.slot for run in await village.history()] == [START]
    village.clock.jump(DAY)
    back = village.clock.now()
    await village.turn(2 * CYCLE + STEP, step=STEP)
    _, caught_up = await village.history()
    assert caught_up.slot == START + timedelta(hours=1)
    assert back <= caught_up.start + timedelta(seconds=1)
    await village.turn(HOUR, step=STEP)
    assert (await village.history())[-1].slot == START + timedelta(hours=3)


@pytest.mark.case("CJ05")
@pytest.mark.parametrize("by", [-1.5, -0.4, 0.4, 1.5], ids=str)
@in_a_village
async def test_cj05_a_clock_that_is_set_a_little_while_all_wait_costs_no_run(
    village: Village, by: float
) -> None:
    await village.add("davis", cron="*/10 * * * *")
    await village.hire("ann", cycle=CYCLE)
    for _ in range(3):
        await village.turn(9 * MINUTE + 30, step=STEP)
        village.clock.jump(by)
        await village.turn(30, step=0.5)
    await village.turn(CYCLE, step=0.5)
    runs = await village.history()
    assert [run.slot for run in runs] == [START + n * EVERY for n in range(4)]
    assert all(run.start >= run.slot for run in runs)


@pytest.mark.case("CJ05")
@pytest.mark.parametrize("drift", [1 / DAY, -1 / DAY], ids=["inserted", "left out"])
@in_a_village
async def test_cj05_a_leap_second_that_is_smeared_over_a_day_costs_no_run_and_no_lock(
    village: Village, drift: float
) -> None:
    await village.add("long", every="4h", stale_after="30s", timeout="4h")
    ben = await village.hire("ben", slots=1, lasts=2 * HOUR, cycle=CYCLE)
    await village.add("davis", cron="*/10 * * * *")
    ann = await village.hire("ann", cycle=CYCLE)
    await village.turn(0.6 * HOUR, drift=drift)
    runs = await village.history()
    assert [run.slot for run in runs] == [START + n * EVERY for n in range(4)]
    assert all(run.start >= run.slot for run in runs)
    assert (ben.order, ann.order) == (["long"], ["davis"] * 4)
    assert not ann.of(LockLost) + ben.of(LockLost)
