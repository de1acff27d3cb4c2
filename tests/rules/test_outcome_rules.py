"""What follows from the end of a run: `after_run` and `planned_after`, case by case."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import NEVER, Item, QueuedRun, State, replace
from blackboard.rules.next_run import (
    MILLISECOND,
    backoff,
    part_of_jitter,
    planned_after,
    serves,
    slot_asked_for,
)
from tests.support.plans import DAY, HOUR, HOURLY, MINUTE, NOON, after, running, settings

# ---- the next slot


@pytest.mark.parametrize(
    ("said", "made", "now", "slot"),
    [
        # every: from the last start, whoever asked for it
        ({"every": "8h"}, running(), NOON + MINUTE, NOON + 8 * HOUR),
        ({"every": "8h"}, running(start=NOON + HOUR), NOON + 2 * HOUR, NOON + 9 * HOUR),
        ({"every": "1h"}, running(), NOON + 3 * HOUR, NOON + HOUR),
        ({"every": "8h"}, running(planned=NOON + 2 * HOUR), NOON + MINUTE, NOON + 8 * HOUR),
        # cron and rrule: from the slot
        ({"cron": HOURLY}, running(start=NOON + MINUTE), NOON + 2 * MINUTE, NOON + HOUR),
        (
            {"rrule": "DTSTART:20261121T120000Z\nRRULE:FREQ=DAILY;COUNT=3"},
            running(),
            NOON + MINUTE,
            NOON + DAY,
        ),
        # a run before its slot (a first run at once) does not swallow the slot
        ({"cron": HOURLY}, running(slot=NOON - MINUTE), NOON - MINUTE, NOON),
    ],
)
def test_the_slot_after_a_run(
    said: dict[str, object], made: Item, now: datetime, slot: datetime
) -> None:
    plan = after(made, "ok", run=settings(**said), now=now)
    assert (plan.slot, plan.ready, plan.planned) == (slot, slot, slot)
    assert (plan.attempt, plan.failures) == (1, 0)
    assert plan.waits


LATE_START = running(start=NOON + 3 * HOUR + MINUTE)
LONG_RUN = running()


@pytest.mark.parametrize(
    ("missed", "limit", "made", "now", "slot"),
    [
        # three slots passed before the run started: one run covers them
        ("one", 100, LATE_START, NOON + 3 * HOUR + 2 * MINUTE, NOON + 4 * HOUR),
        ("all", 100, LATE_START, NOON + 3 * HOUR + 2 * MINUTE, NOON + HOUR),
        ("all", 2, LATE_START, NOON + 3 * HOUR + 2 * MINUTE, NOON + 2 * HOUR),
        ("all", 1, LATE_START, NOON + 3 * HOUR + 2 * MINUTE, NOON + 3 * HOUR),
        ("none", 100, LATE_START, NOON + 3 * HOUR + 2 * MINUTE, NOON + 4 * HOUR),
        # slots passed while it ran: one more run, each of them, or none
        ("one", 100, LONG_RUN, NOON + 3 * HOUR + MINUTE, NOON + HOUR),
        ("all", 100, LONG_RUN, NOON + 3 * HOUR + MINUTE, NOON + HOUR),
        ("none", 100, LONG_RUN, NOON + 3 * HOUR + MINUTE, NOON + 4 * HOUR),
        # nothing was missed: no policy makes a difference
        ("one", 100, LONG_RUN, NOON + MINUTE, NOON + HOUR),
        ("all", 100, LONG_RUN, NOON + MINUTE, NOON + HOUR),
        ("none", 100, LONG_RUN, NOON + MINUTE, NOON + HOUR),
    ],
)
def test_missed_slots(missed: str, limit: int, made: Item, now: datetime, slot: datetime) -> None:
    run = settings(cron=HOURLY, missed=missed, missed_limit=limit)
    assert planned_after(made, settings=run, now=now) == slot


@pytest.mark.case("CAL07")
def test_cal07_an_outage_of_72_hours_is_one_run() -> None:
    """Not zero, not 4,320."""
    run, up_again = settings(cron="* * * * *"), NOON + 3 * DAY
    made, starts = running(start=up_again), 0
    while made.slot <= up_again:
        starts += 1
        plan = after(made, "ok", run=run, now=up_again)
        made = running(slot=plan.slot, start=max(plan.slot, up_again))
    assert starts == 1


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_all_missed_slots_are_run_up_to_the_limit(limit: int) -> None:
    run, up_again = settings(cron=HOURLY, missed="all", missed_limit=limit), NOON + 10 * HOUR
    made, slots = running(start=up_again), list[datetime]()
    while made.slot <= up_again:
        slots.append(made.slot)
        plan = after(made, "ok", run=run, now=up_again)
        made = running(slot=plan.slot, start=up_again)
    caught_up = [NOON + n * HOUR for n in range(1, 11)][-limit:]
    assert slots == [NOON, *caught_up]


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_a_slot_that_waits_for_its_part_of_the_jitter_is_not_missed(limit: int) -> None:
    """However many come before it is their turn, each has its run; the limit is for those whose
    turn has passed.
    """
    run = settings(cron=HOURLY, missed="all", missed_limit=limit, jitter="10d")
    assert part_of_jitter("davis", run) > 6 * HOUR
    made, slots = running(), list[datetime]()
    for _ in range(9):
        turn = made.slot + part_of_jitter("davis", run)
        slots.append(made.slot)
        made = running(slot=after(made, "ok", run=run, now=turn + MINUTE).slot, start=turn)
    assert slots == [NOON + n * HOUR for n in range(9)]
    up_again = turn + 20 * HOUR + MINUTE
    passed = [NOON + n * HOUR for n in range(9, 29)]
    plan = after(running(slot=slots[-1], start=up_again), "ok", run=run, now=up_again)
    assert plan.slot == passed[-limit:][0]


# ---- once, and the end of a schedule


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"at": "2026-11-21T12:00Z"},
        {"rrule": "DTSTART:20261121T120000Z\nRRULE:FREQ=DAILY;COUNT=1"},
    ],
)
@pytest.mark.parametrize("outcome", ["ok", "failed", "timeout", "cancelled", "abandoned"])
def test_an_item_without_a_next_slot_is_done(said: dict[str, object], outcome: str) -> None:
    plan = after(running(), outcome, run=settings(**said))
    assert plan.state is State.DONE
    assert not plan.waits


def test_a_paused_item_keeps_its_next_slot_but_no_token() -> None:
    plan = after(running(state=State.PAUSED), "ok", run=settings(every="8h"))
    assert (plan.state, plan.slot) == (State.PAUSED, NOON + 8 * HOUR)
    assert not plan.waits


# ---- run now


ASKED = QueuedRun(name="a", slot=NOON + timedelta(seconds=30), once='{"x":1}')
NEXT = QueuedRun(name="b", slot=NOON + timedelta(seconds=40))


@pytest.mark.parametrize(
    ("said", "planned"),
    [
        ({"every": "8h"}, NOON + 8 * HOUR),
        ({"cron": HOURLY}, NOON + HOUR),
        ({"at": "2026-11-21T12:00Z"}, NEVER),
        ({}, NEVER),
    ],
)
@pytest.mark.parametrize("outcome", ["ok", "failed", "cancelled", "abandoned"])
def test_run_now_while_it_ran_is_the_next_run_whatever_the_outcome(
    said: dict[str, object], planned: datetime, outcome: str
) -> None:
    plan = after(running(), outcome, run=settings(**said), requests=(ASKED, NEXT))
    assert plan.requests == (NEXT,)
    assert plan.slot == ASKED.slot
    assert plan.ready == NOON + MINUTE
    assert plan.planned == planned
    assert (plan.attempt, plan.once, plan.state) == (1, ASKED.once, State.ACTIVE)


@pytest.mark.parametrize(
    ("said", "planned", "slot"),
    [
        ({"cron": HOURLY}, NOON + HOUR, NOON + HOUR),
        ({"cron": HOURLY, "missed": "none"}, NOON + HOUR, NOON + HOUR),
        ({"cron": HOURLY, "missed": "all"}, NOON + HOUR, NOON + HOUR),
        ({"rrule": "DTSTART:20261121T130000Z\nRRULE:FREQ=DAILY"}, NOON + HOUR, NOON + HOUR),
        ({"at": "2026-12-24T18:00Z"}, datetime(2026, 12, 24, 18, tzinfo=UTC), None),
        # the scheduled slot had come already: the run that was asked for covers it
        ({"cron": HOURLY}, NOON - HOUR, NOON + HOUR),
        ({"cron": HOURLY, "missed": "none"}, NOON - HOUR, NOON + HOUR),
        ({"cron": HOURLY, "missed": "all"}, NOON - HOUR, NOON - HOUR),
        # an every counts from the start that was asked for
        ({"every": "8h"}, NOON + HOUR, NOON + 30 * timedelta(seconds=1) + 8 * HOUR),
    ],
)
def test_a_run_that_was_asked_for_leaves_the_scheduled_slot_as_it_was(
    said: dict[str, object], planned: datetime, slot: datetime | None
) -> None:
    asked_for = running(slot=NOON + timedelta(seconds=30), planned=planned)
    plan = after(asked_for, "ok", run=settings(**said))
    assert plan.slot == plan.planned == (slot or planned)
    assert plan.waits


@pytest.mark.parametrize(
    ("said", "following"),
    [
        ({"every": "2h"}, NOON + 2 * HOUR + timedelta(seconds=30)),
        ({"cron": "0 * * * *"}, NOON + HOUR),
        ({"rrule": "DTSTART:20261121T120000Z\nRRULE:FREQ=HOURLY"}, NOON + HOUR),
        ({"cron": "0 * * * *", "missed": "all"}, NOON + HOUR),
        ({"at": "2026-12-24T18:00Z"}, datetime(2026, 12, 24, 18, tzinfo=UTC)),
    ],
)
def test_a_slot_of_an_earlier_schedule_is_planned_no_more_after_a_run_that_was_asked_for(
    said: dict[str, object], following: datetime
) -> None:
    """But the first time that a person has named is."""
    of_earlier = NOON + 100 * HOUR
    asked_for = running(slot=NOON + timedelta(seconds=30), planned=of_earlier)
    assert after(asked_for, "ok", run=settings(**said)).planned == following
    named = replace(asked_for, first=of_earlier)
    assert after(named, "ok", run=settings(**said)).planned == of_earlier


@pytest.mark.parametrize(
    ("said", "named", "start", "following"),
    [
        ({"every": "8h"}, NOON + HOUR, NOON, NOON + 8 * HOUR),
        ({"every": "8h"}, NOON + 9 * HOUR, NOON, NOON + 9 * HOUR),
        # no other slot is before the end of the schedule
        ({"every": "8h", "until": "2026-11-21T14:00Z"}, NOON + HOUR, NOON, NOON + HOUR),
        ({"every": "8h", "until": "2026-11-21T14:00Z"}, NOON + HOUR, NOON + HOUR, None),
    ],
)
def test_a_first_time_is_kept_by_an_every_if_it_is_later_than_its_next_slot(
    said: dict[str, object], named: datetime, start: datetime, following: datetime | None
) -> None:
    """Not one that has come when the run starts: that run covers it."""
    asked_for = replace(running(slot=NOON - MINUTE, planned=named, start=start), first=named)
    assert planned_after(asked_for, settings=settings(**said), now=start + MINUTE) == following


@pytest.mark.parametrize(
    ("missed", "following"), [("one", NOON), ("all", NOON), ("none", NOON + HOUR)]
)
def test_a_slot_that_comes_just_when_a_run_that_was_asked_for_ends_is_missed(
    missed: str, following: datetime
) -> None:
    asked_for = running(slot=NOON - MINUTE, planned=NOON, start=NOON - MINUTE)
    hourly = settings(cron=HOURLY, missed=missed)
    assert planned_after(asked_for, settings=hourly, now=NOON) == following


def test_a_run_that_was_asked_for_in_the_millisecond_that_is_planned_has_a_slot_of_its_own() -> (
    None
):
    planned = NOON + 8 * HOUR
    plan = after(
        running(), "ok", run=settings(every="8h"), requests=(QueuedRun(name="a", slot=planned),)
    )
    assert (plan.slot, plan.planned) == (planned - MILLISECOND, planned)


def test_a_run_that_was_asked_for_and_starts_at_the_scheduled_slot_covers_it() -> None:
    early = running(slot=NOON - MINUTE, planned=NOON, start=NOON)
    assert after(early, "ok", run=settings(cron=HOURLY)).slot == NOON + HOUR


@pytest.mark.parametrize("missed", ["one", "none", "all"])
@pytest.mark.parametrize("said", [{"at": "2026-11-20T12:00Z"}, {"cron": "0 12 * * *"}, {}])
def test_where_nothing_is_planned_only_what_the_schedule_has_comes_after_a_run_that_was_asked_for(
    said: dict[str, object], missed: str
) -> None:
    asked = NOON + timedelta(seconds=30)
    asked_for = running(slot=asked, planned=NEVER)
    plan = after(asked_for, "ok", run=settings(missed=missed, **said))
    assert (plan.state, plan.slot) == (
        (State.ACTIVE, NOON + DAY) if "cron" in said else (State.DONE, asked)
    )


def test_a_first_slot_that_was_missed_is_made_up_after_a_run_that_was_asked_for() -> None:
    """It is none that the schedule has, and the first of all that were missed."""
    first, asked = NOON - 2 * HOUR + 5 * MINUTE, NOON + 25 * MINUTE
    run = settings(cron=HOURLY, missed="all")
    plan = after(running(slot=asked, planned=first, start=asked), "ok", run=run)
    assert (plan.slot, plan.planned) == (first, first)


def test_a_slot_that_made_way_serves_what_was_asked_for() -> None:
    made_way = slot_asked_for(NOON, beside=NOON)
    assert made_way != NOON
    assert slot_asked_for(NOON, beside=NOON + HOUR) == NOON
    assert serves(made_way, NOON)
    assert serves(NOON, NOON)
    assert not serves(NOON + MILLISECOND, NOON)
    assert not serves(NOON - 2 * MILLISECOND, NOON)


def test_a_run_that_was_asked_for_of_a_done_item_leaves_it_done() -> None:
    asked_for = running(slot=NOON, planned=NOON - DAY)
    assert after(asked_for, "ok", run=settings(at="2026-11-20T12:00Z")).state is State.DONE
    assert after(asked_for, "ok", run=settings()).state is State.DONE


# ---- failures and retries


@pytest.mark.parametrize(
    ("outcome", "attempt", "retries", "again"),
    [
        ("failed", 1, 0, False),
        ("failed", 1, 1, True),
        ("failed", 2, 1, False),
        ("timeout", 2, 2, True),
        ("timeout", 3, 2, False),
        ("ok", 1, 3, False),
        ("cancelled", 1, 3, False),
        ("abandoned", 1, 3, False),
    ],
)
@pytest.mark.parametrize("said", [{"every": "8h"}, {"cron": "0 20 * * *"}])
def test_a_failure_is_retried_with_the_same_slot_while_retries_are_left(
    outcome: str, attempt: int, retries: int, *, again: bool, said: dict[str, object]
) -> None:
    made = running(attempt=attempt, once='{"x":1}')
    plan = after(made, outcome, run=settings(retries=retries, backoff="10s", **said))
    if again:
        wait = timedelta(seconds=5) * 2 ** (attempt - 1)
        assert (plan.slot, plan.planned, plan.attempt) == (NOON, NOON, attempt + 1)
        assert plan.ready == NOON + MINUTE + wait
        assert plan.once == made.once
    else:
        assert plan.slot == plan.ready == plan.planned == NOON + 8 * HOUR
        assert (plan.attempt, plan.once) == (1, "")


@pytest.mark.parametrize(
    ("outcome", "failures"),
    [("ok", 0), ("failed", 4), ("timeout", 4), ("abandoned", 4), ("cancelled", 3)],
)
def test_failures_in_a_row_are_counted_since_the_last_ok(outcome: str, failures: int) -> None:
    assert after(running(failures=3), outcome, run=settings(every="1h")).failures == failures


@pytest.mark.parametrize("attempt", [1, 2, 3, 9, 31, 10_000])
@pytest.mark.parametrize("base", [timedelta(milliseconds=1), timedelta(seconds=10), 30 * DAY])
def test_full_jitter_is_anything_up_to_the_doubled_base_and_an_hour_or_a_longer_base(
    attempt: int, base: timedelta
) -> None:
    longest = max(base, HOUR).total_seconds()
    ceiling = min(base.total_seconds() * 2 ** min(attempt - 1, 30), longest)
    assert backoff(attempt, base=base, fraction=0.0) == timedelta(0)
    assert backoff(attempt, base=base, fraction=0.25).total_seconds() == pytest.approx(
        ceiling / 4, abs=1e-5
    )
    assert backoff(attempt, base=base, fraction=0.999).total_seconds() < ceiling


def test_a_retry_is_ready_at_a_whole_millisecond() -> None:
    run = settings(every="8h", retries=1, backoff="10s")
    assert after(running(), "failed", run=run, fraction=1 / 3).ready.microsecond % 1000 == 0


# ---- shutdown


def test_a_run_cut_short_by_its_workers_shutdown_is_due_again_at_once() -> None:
    made = running(attempt=2, failures=1, once='{"x":1}')
    plan = after(made, "cancelled", run=settings(every="8h"), requeue=True)
    assert (plan.slot, plan.planned, plan.ready) == (NOON, NOON, NOON + MINUTE)
    assert (plan.attempt, plan.failures, plan.once) == (2, 1, made.once)


def test_a_run_that_a_person_cancelled_waits_for_the_next_slot() -> None:
    """Nobody has to say that it was no shutdown."""
    run = settings(every="8h")
    plan = after(running(), "cancelled", run=run)
    assert (plan.slot, plan.attempt) == (NOON + 8 * HOUR, 1)


def test_a_run_that_ended_well_during_a_shutdown_is_not_run_again() -> None:
    plan = after(running(), "ok", run=settings(every="8h"), requeue=True)
    assert plan.slot == NOON + 8 * HOUR
