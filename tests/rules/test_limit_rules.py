"""Ends, numbers of runs and windows, in the rules: what is planned, and what a worker takes."""

from datetime import datetime, timedelta

import pytest

from blackboard.model import NEVER, Outcome, QueuedRun, State, Token, replace
from blackboard.protocol.batches import token_of
from blackboard.rules.due import Move, decide_token
from blackboard.rules.next_run import first_slot, is_exhausted, planned_after
from blackboard.rules.transitions import passed_over, put_off, released, rescheduled, run_of
from blackboard.rules.upcoming import upcoming
from blackboard.rules.wrong_clock import Planning, is_set_back, slot_brought_back, still_to_come
from blackboard.schedule.schedule import parse_schedule
from blackboard.spec import RunSettings
from tests.support.plans import DAY, HOUR, MINUTE, NOON, item, running, settings

HOURLY = {"cron": "0 * * * *"}


def planned(said: dict[str, object], *, runs: int = 0, start: datetime = NOON) -> datetime | None:
    ran = replace(running(start=start), runs=runs)
    return planned_after(ran, settings=settings(**said), now=start + MINUTE)


def test_after_max_runs_there_is_no_slot() -> None:
    """The run that ends counts."""
    three = {**HOURLY, "max_runs": 3}
    assert planned(three, runs=1) == NOON + HOUR
    assert planned(three, runs=2) is None
    assert planned({"every": "1h", "max_runs": 3}, runs=2) is None
    schedule = settings(**three).schedule
    assert schedule is not None
    assert [is_exhausted(schedule, runs) for runs in (2, 3, 4)] == [False, True, True]


def test_a_retry_is_no_slot() -> None:
    once = settings(**HOURLY, max_runs=1, retries=1)
    before = running(start=NOON)
    failed = run_of(before, Outcome.FAILED, now=NOON + MINUTE)
    after = released(before, failed, settings=once, fraction=0.5)
    assert (after.state, after.attempt) == (State.ACTIVE, 2)
    again = replace(after, running=True)
    last = released(again, run_of(again, Outcome.OK, now=NOON), settings=once, fraction=0.5)
    assert last.state is State.DONE


def test_until_is_the_last_slot() -> None:
    assert planned({**HOURLY, "until": "2026-11-21T13:00Z"}) == NOON + HOUR
    assert planned({**HOURLY, "until": "2026-11-21T12:59Z"}) is None
    assert planned({"every": "2h", "until": "2026-11-21"}, start=NOON + 9 * HOUR) == (
        NOON + 11 * HOUR
    )
    assert planned({"every": "3h", "until": "2026-11-21"}, start=NOON + 9 * HOUR) is None


def test_an_edit_of_a_limit_replans() -> None:
    done = replace(item(state=State.DONE, start=NOON), runs=3, schedule="cron 0 * * * * (3 runs)")
    more, same = settings(**HOURLY, max_runs=9), settings(**HOURLY, max_runs=3)
    assert rescheduled(done, settings=more, now=NOON).slot == NOON + HOUR
    assert rescheduled(done, settings=same, now=NOON).state is State.DONE


@pytest.mark.parametrize(("runs", "coming"), [(3, None), (2, NOON + HOUR)])
def test_one_that_has_run_enough_is_rightly_done(runs: int, coming: datetime | None) -> None:
    limited = settings(**HOURLY, max_runs=3)
    assert limited.schedule is not None
    done = replace(item(state=State.DONE, start=NOON), runs=runs, schedule=limited.text)
    planning = Planning(settings=limited, written=parse_schedule(limited.text))
    assert still_to_come(done, planning, now=NOON) == coming


def closed(**more: object) -> RunSettings:
    return settings(blackout="12:00-14:00", **more)


def test_the_first_slot_is_in_no_window() -> None:
    assert first_slot(closed(every="3h"), first=None, now=NOON) == NOON + 2 * HOUR
    assert first_slot(closed(every="3h"), first=NOON, now=NOON) == NOON, "a person said so"
    assert first_slot(closed(**HOURLY), first=None, now=NOON) == NOON + 2 * HOUR
    edited = rescheduled(item(), settings=closed(every="3h"), now=NOON)
    assert edited.slot == NOON + 2 * HOUR


def test_an_at_in_a_window_is_due_when_that_ends() -> None:
    """Whatever the item had before."""
    at, end = closed(at="2026-11-21T13:00Z", missed="none"), NOON + 2 * HOUR
    assert first_slot(at, first=None, now=NOON - DAY) == end
    assert rescheduled(item(), settings=at, now=NOON).slot == end
    for before in (running(start=NOON), running(start=NOON, planned=end)):
        ended = run_of(before, Outcome.OK, now=NOON + MINUTE)
        after = released(before, ended, settings=at, fraction=0.5)
        assert (after.state, after.slot, after.ready) == (State.ACTIVE, end, end)
    last = running(start=end)
    ended = run_of(last, Outcome.OK, now=end)
    assert released(last, ended, settings=at, fraction=0.5).state is State.DONE


WAITING = item(slot=NOON - MINUTE)
"""Ready a minute before a window, which ends after two hours."""


def test_what_is_done_about_an_item_in_a_window() -> None:
    def move(token: Token, said: RunSettings) -> Move:
        return decide_token(token, now=NOON + MINUTE, types={"feed"}, settings=said)

    token = token_of(WAITING)
    assert move(token, closed(**HOURLY)) is Move.PUT_OFF
    assert move(token, closed(**HOURLY, missed="all")) is Move.PUT_OFF
    assert move(token, closed(**HOURLY, missed="none")) is Move.SKIP
    assert move(token, closed(every="5h", missed="none")) is Move.PUT_OFF
    assert move(token, settings(**HOURLY)) is Move.RUN
    assert move(token, settings(**HOURLY, missed="none")) is Move.RUN
    assert move(replace(token, attempt=2), closed(**HOURLY)) is Move.RUN
    asked = replace(token, planned=NOON + HOUR)
    assert move(asked, closed(**HOURLY)) is Move.RUN
    assert move(asked, closed(**HOURLY, missed="none")) is Move.RUN


@pytest.mark.parametrize(
    "said", [HOURLY, HOURLY | {"missed": "all"}, {"every": "5h"}, {"at": "2026-11-21T11:59"}]
)
def test_a_slot_that_a_window_puts_off_is_run_when_it_ends(said: dict[str, object]) -> None:
    """Also one beyond the end of the schedule, as any that is late."""
    for more in ({}, {"until": "2026-11-21T13:00Z"}):
        after = put_off(WAITING, settings=closed(**said, **more), now=NOON + MINUTE)
        assert after == replace(WAITING, ready=NOON + 2 * HOUR)


def test_a_slot_in_windows_that_are_newer_than_it_is_left_out() -> None:
    """As of a calendar that was changed, and of which no item was told."""
    in_window = replace(WAITING, slot=NOON + HOUR, planned=NOON + HOUR, ready=NOON + HOUR)
    for said, slot in ((HOURLY, NOON + 2 * HOUR), ({"every": "5h"}, in_window.slot)):
        after = put_off(in_window, settings=closed(**said), now=NOON + HOUR)
        assert (after.slot, after.planned, after.ready) == (slot, slot, NOON + 2 * HOUR)
    named = replace(in_window, first=in_window.slot)
    after = put_off(named, settings=closed(**HOURLY), now=NOON + HOUR)
    assert (after.slot, after.ready) == (named.slot, NOON + 2 * HOUR)
    asked = QueuedRun(slot=NOON + MINUTE, once="", name="1")
    retried = replace(in_window, attempt=2, requests=(asked,))
    after = put_off(retried, settings=closed(**HOURLY), now=NOON + HOUR)
    assert (after.slot, after.ready, after.planned) == (asked.slot, NOON + HOUR, NOON + 2 * HOUR)


def test_what_windows_put_off_comes_spread_over_its_jitter() -> None:
    said = closed(**HOURLY, jitter="10m")
    after = put_off(WAITING, settings=said, now=NOON)
    part = after.ready - (NOON + 2 * HOUR)
    assert timedelta(0) < part < 10 * MINUTE
    assert next(upcoming(WAITING, said, now=NOON)) == after.ready
    every = put_off(WAITING, settings=closed(every="5h", jitter="10m"), now=NOON)
    assert every.ready == NOON + 2 * HOUR, "it keeps its phase by itself"


def test_a_run_that_was_asked_for_does_not_wait_for_the_end_of_a_window() -> None:
    """It came while a run went on that a shutdown has put back."""
    first, second = (
        QueuedRun(slot=NOON + at * MINUTE, once=once, name=str(at))
        for at, once in ((1, "{}"), (2, ""))
    )
    before = replace(WAITING, requests=(first, second))
    after = put_off(before, settings=closed(**HOURLY), now=NOON + 3 * MINUTE)
    assert (after.slot, after.once, after.requests) == (first.slot, "{}", (second,))
    assert (after.ready, after.planned) == (NOON + 3 * MINUTE, WAITING.slot)


def test_a_run_that_is_put_back_after_an_edit_does_not_wait_for_the_end_of_a_window() -> None:
    """It is for none of the slots of the new schedule, as one that was asked for."""
    edited = rescheduled(running(), settings=closed(**HOURLY), now=NOON + MINUTE)
    stopped = run_of(edited, Outcome.CANCELLED, now=NOON + 2 * MINUTE)
    again = released(edited, stopped, settings=closed(**HOURLY), fraction=0.5, requeue=True)
    assert again.planned == NOON + 2 * HOUR
    move = decide_token(
        token_of(again), now=stopped.stop, types={"feed"}, settings=closed(**HOURLY)
    )
    assert move is Move.RUN


@pytest.mark.parametrize("said", [HOURLY, {"every": "5h"}])
def test_a_window_without_an_end_ends_an_item(said: dict[str, object]) -> None:
    ever = settings(**said, blackout="mon-sun")
    assert decide_token(token_of(WAITING), now=NOON, types={"feed"}, settings=ever) is Move.PUT_OFF
    assert put_off(WAITING, settings=ever, now=NOON) == replace(WAITING, state=State.DONE)
    assert [*upcoming(WAITING, ever, now=NOON)] == []
    asked = replace(WAITING, requests=(QueuedRun(slot=NOON, once="", name="1"),))
    after = put_off(asked, settings=ever, now=NOON)
    assert (after.state, after.slot, after.planned) == (State.ACTIVE, NOON, NEVER)


def test_a_missed_slot_gives_way_to_the_first_after_the_window() -> None:
    after = passed_over(WAITING, settings=closed(**HOURLY), now=NOON)
    assert (after.slot, after.ready) == (NOON + 2 * HOUR, NOON + 2 * HOUR)


def test_what_a_window_puts_off_is_not_set_back() -> None:
    """A slot may wait for longer than any jitter."""
    for said in ({"every": "1h"}, HOURLY):
        weekend = settings(**said, blackout="fri-mon")
        assert weekend.schedule is not None
        planning = Planning(settings=weekend, written=weekend.schedule)
        ran = replace(WAITING, start=NOON - DAY, schedule=weekend.text)
        waits = put_off(ran, settings=weekend, now=NOON)
        assert waits.ready == NOON + 60 * HOUR
        assert not is_set_back(waits, planning, now=NOON + MINUTE)
        assert is_set_back(replace(waits, ready=waits.ready + 2 * DAY), planning, now=NOON)
    unknown = Planning(settings=settings(), written=None)
    assert not is_set_back(replace(WAITING, start=NOON - DAY), unknown, now=NOON)


def test_what_waits_for_the_end_of_windows_is_not_set_back() -> None:
    """An `every` may wait for longer than its interval."""
    weekend = settings(every="1h", blackout="sat-sun")
    assert weekend.schedule is not None
    planning = Planning(settings=weekend, written=weekend.schedule)
    monday = NOON + 36 * HOUR
    waits = replace(item(start=NOON - DAY, slot=monday), schedule=weekend.text)
    assert slot_brought_back(waits, planning, now=NOON + MINUTE) == monday
    later = replace(waits, slot=monday + 9 * DAY, ready=monday, planned=monday + 9 * DAY)
    assert slot_brought_back(later, planning, now=NOON + MINUTE) != monday + 9 * DAY


def test_a_run_that_was_asked_for_does_not_end_the_count_early() -> None:
    asked = replace(running(start=NOON, slot=NOON, planned=NOON + HOUR), runs=1)
    said = settings(**HOURLY, max_runs=3)
    assert planned_after(asked, settings=said, now=NOON + timedelta(minutes=1)) == NOON + HOUR


@pytest.mark.parametrize("until", ["2020-01-01", "2026-11-21T13:00Z"])
def test_an_end_brings_no_first_time_forward(until: str) -> None:
    """That of an item which never ran, and is not due yet."""
    new = replace(item(slot=NOON + 5 * HOUR), schedule="every 1h", first=NOON + 5 * HOUR)
    after = rescheduled(new, settings=settings(every="1h", until=until), now=NOON)
    assert after.state is State.DONE
    again = rescheduled(after, settings=settings(every="1h"), now=NOON)
    assert (again.state, again.ready) == (State.ACTIVE, NOON + 5 * HOUR)


def test_an_end_before_the_one_time_leaves_none() -> None:
    at = {"at": "2026-12-24T18:00Z"}
    before = rescheduled(item(), settings=settings(**at), now=NOON)
    assert before.state is State.ACTIVE
    ended = settings(**at, until="2026-12-01")
    assert rescheduled(before, settings=ended, now=NOON).state is State.DONE
