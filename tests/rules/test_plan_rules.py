"""When an item is due first, passed over or edited, and what a late finisher may say."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import Item, Outcome, State, replace
from blackboard.rules.next_run import phase
from blackboard.rules.transitions import LateMove, added, late_move, passed_over, replanned
from blackboard.spec import RunSettings
from tests.support.plans import DAY, HOUR, HOURLY, MINUTE, NOON, after, item, running, settings

# ---- the first slot, jitter


def new_item(run: RunSettings, *, first: datetime | None = None) -> Item:
    return added("davis", "feed", "{}", before=None, settings=run, first=first, now=NOON)


@pytest.mark.parametrize(
    ("said", "first", "slot"),
    [
        ({"every": "8h"}, None, NOON),
        ({"cron": HOURLY}, None, NOON + timedelta(hours=1)),
        ({"rrule": "FREQ=DAILY;BYHOUR=3;BYMINUTE=0;BYSECOND=0"}, None, NOON + timedelta(hours=15)),
        ({"cron": HOURLY}, NOON, NOON),
        ({}, None, NOON),
        ({"every": "8h"}, NOON + DAY, NOON + DAY),
        ({"at": "2026-12-24T18:00Z"}, None, datetime(2026, 12, 24, 18, tzinfo=UTC)),
        ({"at": "2026-12-24T18:00Z"}, NOON + DAY, NOON + DAY),
        (
            {"at": "2026-12-24T18:00:00.123456Z"},
            None,
            datetime(2026, 12, 24, 18, 0, 0, 123_000, UTC),
        ),
        ({"cron": HOURLY}, NOON + timedelta(microseconds=1500), NOON + timedelta(milliseconds=1)),
    ],
)
def test_an_every_is_due_at_once_and_others_at_their_next_time_unless_one_is_given(
    said: dict[str, object], first: datetime | None, slot: datetime
) -> None:
    new = new_item(settings(**said), first=first)
    assert (new.slot, new.ready, new.planned) == (slot, slot, slot)
    assert (new.state, new.attempt, new.failures) == (State.ACTIVE, 1, 0)
    assert new.first == (slot if first else None)


def test_the_slot_of_an_at_is_in_utc_whatever_its_zone() -> None:
    run = settings(at="2026-12-24T18:00", timezone="Europe/Berlin")
    plan = new_item(run)
    assert plan.slot == datetime(2026, 12, 24, 17, tzinfo=UTC)
    assert plan.slot.tzinfo is UTC


def test_jitter_delays_the_token_and_not_the_slot_by_the_items_own_part() -> None:
    run = settings(cron=HOURLY, jitter="10m")
    wait = timedelta(minutes=10) * phase("davis")
    assert timedelta(0) < wait < timedelta(minutes=10)
    plan = after(running(), "ok", run=run)
    assert plan.slot == NOON + HOUR
    assert timedelta(0) <= plan.slot + wait - plan.ready < timedelta(milliseconds=1)
    first = new_item(run)
    assert first.ready - first.slot == plan.ready - plan.slot


@pytest.mark.parametrize("missed", ["one", "all", "none"])
@pytest.mark.parametrize("jitter", ["10m", "59m", "3h"])
def test_a_run_that_waited_for_its_jitter_covers_no_slot_but_its_own(
    missed: str, jitter: str
) -> None:
    run = settings(cron="*/5 * * * *", jitter=jitter, missed=missed)
    first = new_item(run)
    ended = after(running(slot=first.slot, start=first.ready), "ok", run=run, now=first.ready)
    assert ended.slot - first.slot == ended.ready - first.ready == 5 * MINUTE


def test_a_late_run_covers_the_slots_whose_jitter_has_passed() -> None:
    run = settings(cron=HOURLY, jitter="59m")
    wait = timedelta(minutes=59) * phase("davis")
    for late, hours in ((-MINUTE, 2), (MINUTE, 3)):
        start = NOON + 2 * HOUR + wait + late
        assert after(running(start=start), "ok", run=run, now=start).slot == NOON + hours * HOUR


@pytest.mark.parametrize(("window", "waits"), [(0.0, False), (0.9, False), (1.1, True)])
def test_an_item_whose_jitter_ends_in_a_time_without_runs_runs_at_its_slot(
    *, window: float, waits: bool
) -> None:
    """Else it was passed over at each such slot, and said nowhere. `window` is when that begins, in
    parts of the item's wait.
    """
    wait = timedelta(hours=12) * phase("davis")
    begins = (NOON + HOUR + max(window * wait, timedelta(minutes=1))).strftime("%H:%M")
    run = settings(cron="0 13 * * *", jitter="12h", blackout=f"{begins}-12:59")
    plan = after(running(), "ok", run=run)
    assert plan.slot == NOON + HOUR
    assert (plan.ready > plan.slot) == waits


def test_an_every_is_spread_by_its_first_run_and_keeps_that_phase() -> None:
    run = settings(every="1h", jitter="10m")
    first = new_item(run)
    assert first.ready > first.slot
    started = running(slot=first.slot, start=first.ready)
    ended = after(started, "ok", run=run, now=first.ready)
    assert ended.ready == first.ready + HOUR


# ---- passed over, edited


@pytest.mark.parametrize(
    ("said", "slot"),
    [
        ({"cron": HOURLY}, NOON),
        ({"cron": "57 * * * *"}, NOON - 3 * MINUTE),
        ({"cron": "55 * * * *"}, NOON - 5 * MINUTE),
        ({"cron": "54 * * * *"}, NOON + 54 * MINUTE),
        ({"cron": "54 * * * *", "missed_after": "10m"}, NOON - 6 * MINUTE),
        ({"at": "2026-11-21T11:00Z"}, None),
        ({}, None),
    ],
)
def test_a_slot_that_is_passed_over_gives_way_to_the_first_that_is_not_missed(
    said: dict[str, object], slot: datetime | None
) -> None:
    waiting = item(slot=NOON - 2 * HOUR)
    plan = passed_over(waiting, settings=settings(**said), now=NOON)
    assert plan.slot == plan.planned == (slot or waiting.slot)
    assert plan.state is (State.DONE if slot is None else State.ACTIVE)
    assert (plan.attempt, plan.failures) == (1, waiting.failures)


@pytest.mark.parametrize("jitter", ["1s", "10m", "59m", "3h"])
def test_passing_over_a_missed_slot_with_jitter_skips_none_that_is_not_missed(jitter: str) -> None:
    run = settings(cron=HOURLY, jitter=jitter, missed="none")
    waiting = item(start=NOON - 5 * HOUR, slot=NOON - 4 * HOUR)
    wait = timedelta(seconds=int(run.jitter.total_seconds())) * phase("davis")
    for minutes in (1, 30, 59):
        now = NOON + timedelta(minutes=minutes)
        plan = passed_over(waiting, settings=run, now=now)
        hours = (NOON + number * HOUR for number in range(-3, 3))
        first = next(one for one in hours if now - (one + wait) <= run.missed_after)
        assert plan.slot == plan.planned == first
        assert timedelta(0) <= plan.slot + wait - plan.ready < timedelta(milliseconds=1)


RAN = item(start=NOON - 10 * HOUR)
NEW = item()
DONE = item(start=NOON - 10 * HOUR, state=State.DONE)
PAUSED = item(start=NOON - 10 * HOUR, state=State.PAUSED)
WAITING = item(start=NOON - 10 * HOUR, slot=NOON + 2 * HOUR)
HAD_A_TIME = item(slot=NOON + DAY)


@pytest.mark.parametrize(
    ("edited", "said", "state", "slot"),
    [
        (RAN, {"every": "12h"}, "active", NOON + 2 * HOUR),
        (RAN, {"every": "8h"}, "active", NOON - 2 * HOUR),
        (RAN, {"cron": HOURLY}, "active", NOON + HOUR),
        (RAN, {"at": "2026-11-21T13:00Z"}, "active", NOON + HOUR),
        (RAN, {"at": "2026-11-21T11:00Z"}, "done", NOON),
        (RAN, {}, "active", NOON),
        (NEW, {"every": "12h"}, "active", NOON),
        (NEW, {"at": "2026-11-21T11:00Z"}, "active", NOON - HOUR),
        (NEW, {}, "active", NOON),
        (WAITING, {}, "active", NOON + 2 * HOUR),
        (HAD_A_TIME, {}, "active", NOON),
        (DONE, {"every": "12h"}, "active", NOON + 2 * HOUR),
        (DONE, {"cron": HOURLY}, "active", NOON + HOUR),
        (DONE, {"at": "2026-11-21T13:00Z"}, "active", NOON + HOUR),
        (DONE, {"at": "2026-11-21T12:00Z"}, "done", NOON),
        (DONE, {}, "done", NOON),
        (PAUSED, {"cron": HOURLY}, "paused", NOON + HOUR),
    ],
)
def test_a_new_schedule_counts_from_now_and_an_every_from_the_last_start(
    edited: Item, said: dict[str, object], state: str, slot: datetime
) -> None:
    plan = replanned(edited, settings=settings(**said), now=NOON)
    assert (plan.state, plan.slot, plan.planned) == (State(state), slot, slot)


def test_an_edit_that_waited_for_its_store_asks_for_no_slot_that_was_run_meanwhile() -> None:
    """It was asked for before the hour, and written after the hour's run."""
    ran = replace(RAN, start=NOON + timedelta(seconds=2))
    asked_at = NOON - timedelta(seconds=5)
    plan = replanned(ran, settings=settings(cron=HOURLY), now=asked_at)
    assert plan.slot == NOON + HOUR


@pytest.mark.parametrize(
    ("edited", "said", "delayed"),
    [
        (NEW, {"every": "8h"}, True),
        (RAN, {"every": "8h"}, False),
        (NEW, {"cron": HOURLY}, True),
        (RAN, {"cron": HOURLY}, True),
    ],
)
def test_an_edited_item_keeps_its_jitter_but_an_every_that_ran_has_its_phase(
    edited: Item, said: dict[str, object], *, delayed: bool
) -> None:
    plan = replanned(edited, settings=settings(jitter="10m", **said), now=NOON)
    wait = timedelta(minutes=10) * phase("davis") if delayed else timedelta(0)
    assert timedelta(0) <= plan.slot + wait - plan.ready < timedelta(milliseconds=1)


# ---- late finishers


@pytest.mark.parametrize(
    ("found", "outcome", "fenced", "move"),
    [
        (item(), "ok", False, "merge"),
        (item(), "ok", True, "record"),
        (item(), "failed", False, "record"),
        (item(), "timeout", False, "record"),
        (item(), "cancelled", False, "record"),
        (item(state=State.PAUSED), "ok", False, "merge"),
        (item(state=State.DONE), "ok", False, "merge"),
        (None, "ok", False, "drop"),
        (item(state=State.REMOVED), "ok", False, "drop"),
        (item(born=4), "ok", False, "merge"),
        (item(born=5), "ok", False, "drop"),
        (item(born=6), "ok", False, "drop"),
        (item(born=6), "failed", True, "drop"),
    ],
)
def test_what_a_late_finisher_may_still_say(
    found: Item | None, outcome: str, *, fenced: bool, move: str
) -> None:
    assert late_move(found, fence=5, outcome=Outcome(outcome), fenced=fenced) is LateMove(move)


@pytest.mark.parametrize(
    ("result_fence", "move"), [(0, "merge"), (4, "merge"), (5, "merge"), (6, "record")]
)
def test_a_late_result_goes_over_older_ones_alone(result_fence: int, move: str) -> None:
    """And over itself, when it is sent again."""
    found = replace(item(), result_fence=result_fence)
    assert late_move(found, fence=5, outcome=Outcome.OK, fenced=False) is LateMove(move)


def test_the_part_of_the_jitter_that_an_item_waits_is_its_own_for_ever() -> None:
    assert [phase(one) for one in ("davis", "a\ud800")] == [0.8290714380972339, 0.2715936559432208]
