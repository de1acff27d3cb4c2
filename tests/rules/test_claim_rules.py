"""Whether a worker takes an item: the rules of `rules/due.py`, case by case."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import VERSION, Lock, Token, replace
from blackboard.rules.due import (
    LONGEST_RENEWAL,
    Move,
    deadline,
    decide_lock,
    decide_token,
    is_stale,
    lease,
    may_take_over,
    renew_every,
    time_limit,
)
from blackboard.schedule.schedule import interval_of
from blackboard.schedule.times import LONGEST
from blackboard.spec import RunSettings, Spec, resolve

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MS = timedelta(milliseconds=1)
HOUR = timedelta(hours=1)
RESOLUTION = 0.001


def settings(**said: object) -> RunSettings:
    return resolve([Spec(**said)])  # type: ignore[arg-type]


def token(
    *,
    ready: datetime = NOON,
    slot: datetime | None = None,
    planned: datetime | None = None,
    item_type: str = "feed",
    attempt: int = 1,
    version: int = VERSION,
) -> Token:
    slot = slot or ready
    return Token(
        id="davis",
        type=item_type,
        spec="{}",
        fence=4,
        born=0,
        slot=slot,
        ready=ready,
        planned=planned or slot,
        attempt=attempt,
        runs=4,
        failures=0,
        once="",
        version=version,
    )


def lock(
    *,
    age: float = 0.0,
    stale_after: float = 3600.0,
    owner: str = "other",
    nonce: str = "n",
    item_type: str = "feed",
    version: int = VERSION,
) -> Lock:
    return Lock(
        id="davis",
        type=item_type,
        owner=owner,
        nonce=nonce,
        fence=5,
        born=0,
        slot=NOON,
        since=NOON,
        stale_after=stale_after,
        attempt=1,
        version=version,
        age=age,
    )


def decided(row: Token | Lock, *, run: RunSettings | None = None) -> Move:
    """What worker "me", which knows the type "feed", does about a row at noon."""
    if isinstance(row, Token):
        return decide_token(row, now=NOON, types={"feed"}, settings=run or settings(every="1h"))
    return decide_lock(row, owner="me", types={"feed"}, in_flight={"known"}, resolution=RESOLUTION)


ELMCITY: dict[str, tuple[Token | Lock, str]] = {
    "stop after start, within the interval": (token(ready=NOON + timedelta(minutes=20)), "leave"),
    "stop after start, beyond the interval": (token(ready=NOON - timedelta(minutes=20)), "run"),
    "stop before start, within the interval": (lock(age=2400.0), "leave"),
    "stop before start, beyond the interval": (lock(age=4800.0), "override"),
}


@pytest.mark.parametrize("case", ELMCITY)
def test_the_four_cases_of_abandonment_of_2009(case: str) -> None:
    row, move = ELMCITY[case]
    assert decided(row) is Move(move)


@pytest.mark.parametrize(
    ("ready", "move"), [(NOON - MS, "run"), (NOON, "run"), (NOON + MS, "leave")]
)
def test_a_token_may_be_taken_from_its_ready_time_on(ready: datetime, move: str) -> None:
    assert decided(token(ready=ready)) is Move(move)


@pytest.mark.parametrize(
    ("row", "move"),
    [
        (token(item_type="report"), "leave"),
        (token(version=VERSION + 1), "leave"),
        (lock(age=1e6, item_type="report"), "leave"),
        (lock(age=1e6, version=VERSION + 1), "leave"),
        (lock(owner="me", nonce="lost", version=VERSION + 1), "leave"),
    ],
)
def test_unknown_types_and_newer_rows_are_left_alone(row: Token | Lock, move: str) -> None:
    assert decided(row) is Move(move)


@pytest.mark.case("LR09")
@pytest.mark.parametrize(
    ("mine", "move"),
    [
        (lock(owner="me", nonce="known"), "leave"),
        (lock(owner="me", nonce="known", age=1e6), "leave"),
        (lock(owner="me", nonce="lost"), "adopt"),
        (lock(owner="me", nonce="lost", age=1e6), "adopt"),
        (lock(owner="me", nonce="lost", item_type="report"), "adopt"),
        (lock(owner="other", nonce="known"), "leave"),
    ],
)
def test_lr09_a_lock_of_mine_that_nothing_of_mine_knows_is_adopted(mine: Lock, move: str) -> None:
    assert decided(mine) is Move(move)


@pytest.mark.case("OV12")
@pytest.mark.parametrize(
    ("age", "stale"),
    [
        (59.0, False),
        (59.999, False),
        (60.0, False),
        (60.001, False),
        (60.002, True),
        (61.0, True),
        (float("inf"), True),
    ],
)
def test_ov12_a_lock_is_stale_when_its_age_exceeds_its_lease_by_more_than_the_resolution(
    age: float, *, stale: bool
) -> None:
    assert is_stale(lock(age=age, stale_after=60.0), resolution=0.001) is stale
    assert decided(lock(age=age, stale_after=60.0)) is (Move.OVERRIDE if stale else Move.LEAVE)


@pytest.mark.case("OV10")
def test_ov10_the_lease_is_the_one_the_lock_was_claimed_with() -> None:
    """Whatever the item says by now, of a longer or a shorter interval."""
    assert decided(lock(age=100.0, stale_after=3600.0)) is Move.LEAVE
    assert decided(lock(age=100.0, stale_after=60.0)) is Move.OVERRIDE


@pytest.mark.parametrize(
    ("late", "said", "more", "move"),
    [
        (timedelta(minutes=5), {"cron": "0 * * * *", "missed": "none"}, {}, "run"),
        (timedelta(minutes=5) + MS, {"cron": "0 * * * *", "missed": "none"}, {}, "skip"),
        (HOUR, {"cron": "0 * * * *", "missed": "one"}, {}, "run"),
        (HOUR, {"cron": "0 * * * *", "missed": "all"}, {}, "run"),
        (HOUR, {"rrule": "FREQ=DAILY", "missed": "none"}, {}, "skip"),
        (HOUR, {"at": "2026-11-21T11:00Z", "missed": "none"}, {}, "skip"),
        (HOUR, {"cron": "0 * * * *", "missed": "none", "missed_after": "2h"}, {}, "run"),
        # neither a retry nor what a person asked for, nor an `every` is missed
        (HOUR, {"cron": "0 * * * *", "missed": "none"}, {"attempt": 2}, "run"),
        (HOUR, {"cron": "0 * * * *", "missed": "none"}, {"planned": NOON + HOUR}, "run"),
        (HOUR, {"every": "1h", "missed": "none"}, {}, "run"),
        (HOUR, {"missed": "none"}, {}, "run"),
    ],
)
def test_a_missed_slot_is_passed_over_only_where_none_are_wanted(
    late: timedelta, said: dict[str, object], more: dict[str, object], move: str
) -> None:
    waiting = token(ready=NOON - late, **more)  # type: ignore[arg-type]
    assert decided(waiting, run=settings(**said)) is Move(move)


def test_a_slot_that_waited_for_its_jitter_or_was_put_back_is_late_from_its_ready_time_on() -> None:
    run = settings(cron="0 * * * *", missed="none")
    assert decided(token(slot=NOON - HOUR, ready=NOON - MS), run=run) is Move.RUN


@pytest.mark.parametrize(
    ("attempt", "retries", "more"),
    [
        (1, 0, True),
        (3, 0, True),
        (4, 0, False),
        (3, 1, True),
        (4, 1, False),
        (7, 7, True),
        (8, 7, False),
    ],
)
def test_a_run_is_taken_over_a_limited_number_of_times(
    attempt: int, retries: int, *, more: bool
) -> None:
    assert may_take_over(attempt, retries=retries) is more


@pytest.mark.parametrize(("attempt", "more"), [(1, True), (2, False), (3, False)])
def test_what_ended_its_worker_twice_waits_for_its_next_slot(attempt: int, *, more: bool) -> None:
    assert may_take_over(attempt, retries=9, stood_still=True) is more


FIVE_MINUTES = timedelta(minutes=5)
DAILY_UNTIL_TODAY = "DTSTART:20261119T030000\nRRULE:FREQ=DAILY;COUNT=3"


@pytest.mark.parametrize(
    ("said", "lease_is", "limit_is"),
    [
        ({"every": "8h"}, FIVE_MINUTES, timedelta(hours=8)),
        ({"every": "8h", "stale_after": "interval"}, timedelta(hours=8), timedelta(hours=8)),
        ({"every": "1s"}, timedelta(seconds=10), timedelta(minutes=1)),
        ({"every": "1s", "stale_after": "interval"}, timedelta(seconds=10), timedelta(minutes=1)),
        ({"every": "8h", "stale_after": "1h"}, HOUR, timedelta(hours=8)),
        ({"every": "8h", "stale_after": "3s"}, timedelta(seconds=3), timedelta(hours=8)),
        ({"every": "8h", "timeout": "1s"}, FIVE_MINUTES, timedelta(seconds=1)),
        ({"cron": "0 3 * * *"}, FIVE_MINUTES, timedelta(days=1)),
        ({"cron": "1 12 * * *"}, FIVE_MINUTES, timedelta(days=1)),
        ({"cron": "* * * * *"}, timedelta(minutes=1), timedelta(minutes=1)),
        ({"at": "2026-11-21T12:00Z"}, FIVE_MINUTES, HOUR),
        ({"at": "2026-11-21T12:00Z", "stale_after": "interval"}, HOUR, HOUR),
        (
            {"rrule": "FREQ=YEARLY;INTERVAL=20", "stale_after": "interval"},
            LONGEST,
            timedelta(days=7_304),  # over 2100, which is no leap year
        ),
        ({}, FIVE_MINUTES, HOUR),
    ],
)
def test_lease_and_time_limit_are_as_set_or_follow_from_the_interval(
    said: dict[str, object], lease_is: timedelta, limit_is: timedelta
) -> None:
    assert lease(settings(**said), NOON) == lease_is
    assert time_limit(settings(**said), NOON) == limit_is


def test_a_pump_has_no_time_limit_whatever_is_set() -> None:
    said = settings(every="1m", timeout="1s")
    assert time_limit(replace(said, endless=True), NOON) is None
    assert lease(replace(said, endless=True), NOON) == timedelta(minutes=1)


@pytest.mark.parametrize("said", [{"cron": "0 3 * * *"}, {"rrule": DAILY_UNTIL_TODAY}])
@pytest.mark.parametrize("before", [timedelta(seconds=13), timedelta(hours=7), timedelta(0)])
def test_a_run_that_comes_shortly_before_its_schedule_has_the_time_of_any_other(
    said: dict[str, object], before: timedelta
) -> None:
    """A first run, or one that was asked for; and the last one that there is."""
    slot = datetime(2026, 11, 21, 3, tzinfo=UTC) - before
    assert interval_of(settings(**said).schedule, slot) == timedelta(days=1)
    assert time_limit(settings(**said), slot) == timedelta(days=1)
    assert lease(settings(**said, stale_after="interval"), slot) == timedelta(days=1)


@pytest.mark.parametrize(
    ("stale_after", "seconds"), [(3.0, 1.0), (60.0, 20.0), (180.0, 60.0), (28_800.0, 60.0)]
)
def test_renewals_come_every_third_of_the_lease_and_at_least_every_minute(
    stale_after: float, seconds: float
) -> None:
    assert renew_every(stale_after) == seconds
    assert renew_every(stale_after) <= LONGEST_RENEWAL


def test_a_holder_stops_trusting_its_lock_before_anybody_may_take_it() -> None:
    for stale_after in (3.0, 10.0, 3600.0):
        until = deadline(100.0, stale_after)
        assert until == 100.0 + 0.8 * stale_after
        assert until < 100.0 + stale_after
        assert 2 * renew_every(stale_after) < until - 100.0, "a renewal may fail once"
