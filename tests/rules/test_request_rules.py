"""Requests for runs: who goes first, who joins whom, and what the end of a run does to the rest."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from blackboard.model import NEVER, Item, Outcome, QueuedRun, State, replace
from blackboard.rules.next_run import APART, MILLISECOND, slots_in_line
from blackboard.rules.transitions import (
    Requested,
    passed_over,
    replanned,
    requested,
    run_of,
    unlocked,
)
from tests.support.plans import DAY, HOUR, HOURLY, MINUTE, NOON, after, item, running, settings

MONDAY, TUESDAY = '{"date":"monday"}', '{"date":"tuesday"}'
WAITING = item(start=NOON - HOUR, slot=NOON + HOUR)
RUNNING = replace(item(start=NOON), running=True)
RETRIED = replace(item(start=NOON), attempt=2, ready=NOON + HOUR)
ASKED = QueuedRun(name="a", slot=NOON + MINUTE, once=MONDAY)
NEXT = QueuedRun(name="b", slot=NOON + 2 * MINUTE, once=TUESDAY)


def asked(before: Item, *onces: str, now: datetime = NOON) -> Requested:
    """After one request for each of some params, all in the same millisecond."""
    found = None
    for number, once in enumerate(onces):
        found = requested(before, name=f"r{number}", once=once, now=now)
        before = found.item
    assert found is not None
    return found


def line_of(before: Item) -> list[str]:
    """The params of the run in hand, and of what waits behind it."""
    return [before.once, *(one.once for one in before.requests)]


# ---- the schedule beside them


@pytest.mark.parametrize("missed", ["one", "all", "none"])
@pytest.mark.parametrize(
    ("now", "planned", "slot"),
    [
        (NOON + MINUTE, NOON + HOUR, NOON + HOUR),
        # The clock was corrected: noon has had its run.
        (NOON - MINUTE + MILLISECOND, NOON + HOUR, NOON + HOUR),
        (NOON - MINUTE, NOON + HOUR, NOON + HOUR),
        (NOON - MINUTE - MILLISECOND, NOON + HOUR, NOON),
        # It was wrong by hours.
        (NOON - MINUTE, NOON + 2 * HOUR, NOON),
        (NOON + MINUTE, NOON + 5 * HOUR, NOON + HOUR),
    ],
)
def test_no_slot_is_planned_again_beside_a_run_that_was_asked_for(
    missed: str, now: datetime, planned: datetime, slot: datetime
) -> None:
    hourly = settings(cron=HOURLY, missed=missed)
    made = running(slot=NOON - 2 * MINUTE, planned=planned, start=NOON - 2 * MINUTE)
    made = replace(made, schedule=hourly.text, timezone=hourly.timezone)
    assert after(made, "ok", run=hourly, now=now).planned == slot


@pytest.mark.parametrize(
    ("schedule", "timezone"), [("cron 0 13 * * *", "UTC"), (f"cron {HOURLY}", "Asia/Tokyo")]
)
def test_a_slot_of_an_earlier_schedule_is_planned_no_more(schedule: str, timezone: str) -> None:
    hourly, now = settings(cron=HOURLY), NOON - MINUTE
    assert (hourly.text, hourly.timezone) == (f"cron {HOURLY}", "UTC")
    made = running(slot=now - MINUTE, planned=NOON + HOUR, start=now - MINUTE)
    made = replace(made, schedule=schedule, timezone=timezone)
    assert after(made, "ok", run=hourly, now=now).planned == NOON


# ---- asking


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (WAITING, [MONDAY, TUESDAY]),
        (replace(WAITING, state=State.DONE), [MONDAY, TUESDAY]),
        (RUNNING, ["", MONDAY, TUESDAY]),
        (RETRIED, ["", MONDAY, TUESDAY]),
    ],
)
def test_each_request_with_params_has_a_run_of_its_own_in_the_order_of_asking(
    before: Item, line: list[str]
) -> None:
    found = asked(before, MONDAY, TUESDAY)
    assert line_of(found.item) == line
    assert found.ahead == len(line) - 1
    assert not found.joined


@pytest.mark.parametrize(
    ("before", "onces", "line", "joined"),
    [
        (WAITING, ["", ""], [""], True),
        (WAITING, [MONDAY, ""], [MONDAY, ""], False),
        (WAITING, ["", MONDAY, ""], ["", MONDAY, ""], False),
        (WAITING, [MONDAY, "", ""], [MONDAY, ""], True),
        (WAITING, [MONDAY, MONDAY], [MONDAY, MONDAY], False),
        (RUNNING, [""], ["", ""], False),
        (RUNNING, ["", ""], ["", ""], True),
        (RETRIED, [""], [""], True),
        (replace(RETRIED, once=MONDAY), [""], [MONDAY, ""], False),
    ],
)
def test_a_request_without_params_joins_one_without_params_that_has_not_started(
    before: Item, onces: list[str], line: list[str], *, joined: bool
) -> None:
    found = asked(before, *onces)
    assert line_of(found.item) == line
    assert found.joined is joined
    assert found.slot == slots_in_line(found.item)[-1]
    assert found.ahead == len(line) - 1


def test_a_retry_that_a_request_finds_is_due_at_once_and_stays_that_retry() -> None:
    for once in ("", MONDAY):
        found = asked(RETRIED, once).item
        assert (found.ready, found.slot, found.attempt) == (NOON, RETRIED.slot, 2)


def test_the_first_request_leaves_the_planned_slot_of_a_waiting_item() -> None:
    first = asked(WAITING, MONDAY)
    found = first.item
    assert first.slot == NOON
    assert (found.slot, found.ready, found.planned) == (NOON, NOON, WAITING.planned)
    done = asked(replace(WAITING, state=State.DONE), "").item
    assert (done.slot, done.planned, done.state) == (NOON, NEVER, State.ACTIVE)


@pytest.mark.parametrize("before", [WAITING, RUNNING, RETRIED])
def test_requests_of_one_millisecond_have_slots_that_cannot_be_taken_for_each_other(
    before: Item,
) -> None:
    slots = slots_in_line(asked(before, MONDAY, TUESDAY, MONDAY).item)
    steps = [later - earlier for earlier, later in pairwise(slots)]
    assert min(steps) >= APART


def test_a_request_waits_behind_those_that_a_shutdown_left_in_the_queue() -> None:
    put_back = replace(WAITING, requests=(ASKED, NEXT))
    assert line_of(asked(put_back, '{"3":3}').item) == ["", MONDAY, TUESDAY, '{"3":3}']


def test_a_request_that_waits_keeps_its_name() -> None:
    assert [one.name for one in asked(RUNNING, MONDAY, TUESDAY).item.requests] == ["r0", "r1"]


def test_a_slot_makes_way_for_the_one_that_is_planned() -> None:
    found = asked(replace(WAITING, slot=NOON, planned=NOON), "").item
    assert (found.slot, found.planned) == (NOON - MILLISECOND, NOON)


# ---- the end of the run in hand

QUEUE = (ASKED, NEXT)


@pytest.mark.parametrize("outcome", ["ok", "failed", "timeout", "abandoned", "cancelled"])
@pytest.mark.parametrize("said", [{"cron": HOURLY}, {"every": "1h"}, {}])
def test_the_next_request_outlasts_whatever_became_of_the_run_before(
    outcome: str, said: dict[str, str]
) -> None:
    made = running(once='{"other":1}')
    plan = after(made, outcome, run=settings(**said), requests=QUEUE)
    assert (plan.slot, plan.once, plan.ready, plan.attempt) == (
        ASKED.slot,
        MONDAY,
        NOON + MINUTE,
        1,
    )
    assert plan.requests == (NEXT,)
    last = after(running(slot=NEXT.slot, planned=NEVER), outcome, run=settings())
    assert (last.once, last.requests) == ("", ())


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
def test_the_retries_of_the_run_in_hand_come_before_the_requests(outcome: str) -> None:
    made = running(once=MONDAY, planned=NOON + HOUR)
    plan = after(made, outcome, run=settings(cron=HOURLY, retries=1), requests=QUEUE)
    assert (plan.slot, plan.attempt, plan.once) == (made.slot, 2, MONDAY)
    assert plan.requests == QUEUE


def test_what_a_shutdown_put_back_comes_before_the_requests() -> None:
    made = running(once=MONDAY, attempt=2, planned=NOON + HOUR)
    plan = after(made, "cancelled", run=settings(), requests=QUEUE, requeue=True)
    assert (plan.slot, plan.attempt, plan.once) == (made.slot, 2, MONDAY)
    assert plan.requests == QUEUE


def test_an_unlocked_run_is_due_at_once_with_all_that_it_had() -> None:
    before = replace(RUNNING, attempt=3, failures=2, once=MONDAY, requests=QUEUE)
    plan = unlocked(before, run_of(before, Outcome.ABANDONED, now=NOON + MINUTE))
    assert (plan.slot, plan.attempt, plan.once) == (before.slot, 3, MONDAY)
    assert (plan.ready, plan.requests) == (NOON + MINUTE, QUEUE)
    same = (plan.state, plan.planned, plan.failures)
    assert same == (before.state, before.planned, before.failures)


def test_a_paused_item_keeps_its_requests_for_the_day_it_is_resumed() -> None:
    plan = after(running(state=State.PAUSED), "ok", run=settings(), requests=QUEUE)
    assert (plan.state, plan.slot, plan.requests) == (State.PAUSED, ASKED.slot, (NEXT,))


def test_the_last_request_of_an_item_without_a_next_slot_leaves_it_done() -> None:
    made = running(slot=NEXT.slot, planned=NEVER, once=TUESDAY)
    assert after(made, "ok", run=settings()).state is State.DONE


@pytest.mark.parametrize("plan_of", [replanned, passed_over])
def test_no_request_is_lost_with_a_slot_that_is_given_up(plan_of: object) -> None:
    """One that a shutdown put back, before a request that came while it ran."""
    before = item(start=NOON - HOUR, requests=QUEUE)
    for said, planned in (({"at": "2026-11-21T11:00Z"}, NEVER), ({"cron": HOURLY}, NOON + HOUR)):
        plan = plan_of(before, settings=settings(**said), now=NOON)  # type: ignore[operator]
        assert (plan.state, plan.slot, plan.once) == (State.ACTIVE, ASKED.slot, MONDAY)
        assert (plan.planned, plan.ready, plan.requests) == (planned, NOON, (NEXT,))


# ---- what the schedule has of it


@pytest.mark.parametrize("said", [{}, {"every": "8h"}, {"cron": HOURLY}])
def test_a_run_that_is_asked_for_leaves_the_first_time_that_was_named(
    said: dict[str, object],
) -> None:
    named = NOON + 40 * DAY
    waiting = replace(item(slot=named), first=named)
    found = asked(waiting, MONDAY).item
    made = replace(found, running=True, start=NOON, stop=None, owner="me", fence=1)
    plan = after(made, "ok", run=settings(**said))
    assert (plan.slot, plan.planned, plan.state) == (named, named, State.ACTIVE)


def test_a_run_that_started_when_it_was_planned_leaves_nothing_without_a_schedule() -> None:
    made = running(slot=NOON - MILLISECOND, planned=NOON, start=NOON)
    assert after(made, "ok", run=settings()).state is State.DONE


@pytest.mark.parametrize(
    ("missed", "once", "slot"),
    [
        ("one", "", NOON + HOUR),
        ("one", MONDAY, NOON),
        ("all", "", NOON),
        ("all", MONDAY, NOON),
        ("none", "", NOON + HOUR),
        ("none", MONDAY, NOON + HOUR),
    ],
)
def test_a_run_with_params_of_its_own_covers_no_slot_of_the_schedule(
    missed: str, once: str, slot: datetime
) -> None:
    """The slot of noon had come when the run that was asked for started."""
    made = running(slot=NOON + timedelta(seconds=5), planned=NOON, once=once)
    plan = after(made, "ok", run=settings(cron=HOURLY, missed=missed))
    assert (plan.slot, plan.planned, plan.once) == (slot, slot, "")


@pytest.mark.parametrize("missed", ["one", "all", "none"])
@pytest.mark.parametrize("once", ["", MONDAY])
def test_without_a_schedule_a_run_that_was_due_is_covered_as_the_slot_of_an_at(
    missed: str, once: str
) -> None:
    """Such as that of a new item which nothing has run yet."""
    made = running(slot=NOON + timedelta(seconds=5), planned=NOON, once=once)
    plan, at = (
        after(made, "ok", run=settings(missed=missed, **said))
        for said in ({}, {"at": "2026-11-21T12:00Z"})
    )
    is_covered = missed == "none" or (missed == "one" and not once)
    assert (plan.state, plan.slot == plan.planned == NOON, plan.once) == (
        State.DONE if is_covered else State.ACTIVE,
        not is_covered,
        "",
    )
    assert (plan.state, plan.slot, plan.planned) == (at.state, at.slot, at.planned)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_params_of_one_run_do_not_stick(outcome: Outcome) -> None:
    made = running(slot=NOON + MINUTE, planned=NOON + HOUR, once=MONDAY)
    plan = after(made, outcome.value, run=settings(cron=HOURLY))
    assert (plan.slot, plan.once) == (NOON + HOUR, "")
