"""Times that only a wrong clock explains: what is said of them, and what is planned instead."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import NEVER, Item, State, replace
from blackboard.rules.next_run import LONGEST_AFTER, TOLERANCE, is_ahead
from blackboard.rules.transitions import brought_back
from blackboard.rules.wrong_clock import (
    LONGEST_WAIT,
    Planning,
    is_set_back,
    problem_of_times,
    still_to_come,
)
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec, encode_spec
from tests.board.test_settings import handler
from tests.support.plans import DAY, HOUR, NOON, after, item, running, settings
from tests.support.wrong_rows import break_rules

YEARS = timedelta(days=3653)
Said = dict[str, object]
EVERY: Said = {"every": "8h"}
DAILY: Said = {"cron": "0 3 * * *"}
RULE: Said = {"rrule": "FREQ=WEEKLY;BYDAY=MO"}
SECOND = timedelta(seconds=1)


def planning(**said: object) -> Planning:
    by = settings(**said)
    return Planning(settings=by, written=by.schedule)


def test_a_minute_is_nobodys_fault() -> None:
    assert [is_ahead(NOON + by, now=NOON) for by in (TOLERANCE, TOLERANCE + SECOND)] == [
        False,
        True,
    ]
    assert not is_ahead(None, now=NOON)


# --- what explains a time

RAN: Said = {"start": NOON - HOUR, "stop": NOON - HOUR}
NEVER_RAN: Said = {"start": None, "stop": None, "schedule": "every 8h"}
THREE = datetime(2026, 11, 22, 3, tzinfo=UTC)
EXPLAINED: dict[str, tuple[Said, Said]] = {
    "the next of an every": (EVERY, {"slot": NOON + 7 * HOUR}),
    "an every that started just now": (EVERY, {"slot": NOON + 8 * HOUR}),
    "the next of a cron": (DAILY, {"slot": THREE}),
    "a cron, by the old rules of its zone": (DAILY, {"slot": THREE + HOUR}),
    "a cron with jitter": (DAILY, {"slot": THREE, "ready": THREE + 5 * HOUR}),
    "overdue": (DAILY, {"slot": NOON - DAY}),
    "the next of a rule": (RULE, {"slot": datetime(2026, 11, 23, tzinfo=UTC)}),
    "a time that was named": (
        {"at": "2030-01-01T00:00Z"},
        {"slot": datetime(2030, 1, 1, tzinfo=UTC)},
    ),
    "an every that opens after its interval": (
        {"every": "1h", "blackout": "12:30-23:00"},
        {"slot": NOON + 11 * HOUR},
    ),
    "an every that a window met before the clock was nudged": (
        {"every": "1h", "blackout": "13:01-23:00"},
        {"slot": NOON + 11 * HOUR, "start": NOON + TOLERANCE},
    ),
    "a cron that ran before the clock was nudged": (
        {"cron": "1 12 * * *"},
        {"slot": NOON + DAY + TOLERANCE, "start": NOON + TOLERANCE},
    ),
    "a retry": (DAILY, {"slot": NOON - HOUR, "attempt": 3, "ready": NOON + HOUR}),
    "a retry that its handler asked for": (
        {"rrule": "FREQ=YEARLY;INTERVAL=3"},
        {"slot": NOON - HOUR, "attempt": 2, "ready": NOON - HOUR + LONGEST_AFTER},
    ),
    "asked for": (DAILY, {"slot": NOON, "ready": NOON, "planned": THREE}),
    "asked for, and nothing planned": ({}, {"slot": NOON, "ready": NOON, "planned": NEVER}),
    "never ran, at the slot of a schedule that it had": (
        {"every": "1h"},
        {**NEVER_RAN, "slot": NOON + DAY, "schedule": ""},
    ),
    "never ran, at the first time that was named": (
        EVERY,
        {**NEVER_RAN, "slot": NOON + YEARS, "first": NOON + YEARS},
    ),
    "never ran, and waits for the end of its windows after that": (
        {**EVERY, "blackout": "2026-12-01..2026-12-24"},
        {
            **NEVER_RAN,
            "slot": datetime(2026, 12, 25, tzinfo=UTC),
            "first": datetime(2026, 12, 2, tzinfo=UTC),
        },
    ),
    "never ran, and waits for its first jitter": (
        EVERY,
        {**NEVER_RAN, "slot": NOON - HOUR, "ready": NOON + 5 * HOUR},
    ),
    "never ran, and its one time has moved with a calendar": (
        {"at": "2026-12-24T18:00Z"},
        {
            **NEVER_RAN,
            "slot": datetime(2026, 12, 27, tzinfo=UTC),
            "schedule": "at 2026-12-24T18:00:00+00:00",
        },
    ),
    "never ran, and has no schedule any more": ({}, {**NEVER_RAN, "slot": NOON + YEARS}),
    "done before a first time that was named": (
        {**EVERY, "until": "2026-12-01"},
        {
            **NEVER_RAN,
            "slot": NOON + 30 * DAY,
            "first": NOON + 30 * DAY,
            "state": State.DONE,
            "schedule": "every 8h (until 2026-12-01)",
        },
    ),
    "done with a time that has passed": (
        {"at": "2026-11-21T11:00Z"},
        {"slot": NOON - HOUR, "state": State.DONE, "schedule": "at 2026-11-21T11:00:00+00:00"},
    ),
    "done without a schedule, and its type has one by now": (
        EVERY,
        {"slot": NOON - HOUR, "state": State.DONE},
    ),
    "removed": (EVERY, {"slot": NOON + YEARS, "state": State.REMOVED, "start": NOON + YEARS}),
    "no schedule that is known": ({}, {"slot": NOON + 20 * DAY}),
    "a retry that is due, whenever the run before it ended": (
        EVERY,
        {"slot": NOON - HOUR, "attempt": 2, "stop": NOON - 20 * YEARS},
    ),
    "a retry that is due just now, whenever the run before it ended": (
        EVERY,
        {"slot": NOON - HOUR, "attempt": 2, "stop": NOON - 20 * YEARS, "ready": NOON},
    ),
}
UNEXPLAINED: dict[str, tuple[Said, Said]] = {
    "an every": (EVERY, {"slot": NOON + 9 * HOUR}),
    "an every that never ran": (EVERY, {**NEVER_RAN, "slot": NOON + HOUR}),
    "a cron that never ran": (DAILY, {**NEVER_RAN, "slot": THREE + DAY}),
    "a first jitter": (EVERY, {**NEVER_RAN, "slot": NOON, "ready": NOON + YEARS}),
    "asked for, and never ran": (EVERY, {**NEVER_RAN, "slot": NOON + YEARS, "planned": NOON}),
    "later than the first time that was named": (
        EVERY,
        {**NEVER_RAN, "slot": NOON + YEARS, "first": NOON + DAY},
    ),
    "an every, ready alone": (EVERY, {"slot": NOON, "ready": NOON + 9 * HOUR}),
    "a cron": (DAILY, {"slot": THREE + DAY}),
    "a cron, ready alone": (DAILY, {"slot": THREE, "ready": NOON + YEARS}),
    "a rule": (RULE, {"slot": NOON + YEARS}),
    "a rule that is over": (
        {"rrule": "DTSTART:20200101T000000Z\nRRULE:FREQ=DAILY;COUNT=3"},
        {"slot": NOON + YEARS},
    ),
    "paused": (EVERY, {"slot": NOON + YEARS, "state": State.PAUSED}),
    "a retry": (DAILY, {"slot": NOON - HOUR, "attempt": 3, "ready": NOON + YEARS}),
    "a retry of a run that ended ahead": (
        DAILY,
        {"slot": NOON - HOUR, "attempt": 3, "stop": NOON + HOUR, "ready": NOON + HOUR},
    ),
    "asked for": (DAILY, {"slot": NOON + YEARS, "planned": THREE}),
    "asked for, and planned for ever": (DAILY, {"slot": NOON, "planned": NOON + YEARS}),
    "later than the time that was named": (
        {"at": "2026-11-25T11:00Z"},
        {"slot": datetime(2026, 11, 25, 12, tzinfo=UTC)},
    ),
}


def made(said: Said) -> Item:
    said = {**RAN, **said}
    slot = said["slot"]
    return replace(item(), **{"ready": slot, "planned": slot, **said})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_a_clock_that_is_right_explains_is_left_alone(name: str) -> None:
    schedule, said = EXPLAINED[name]
    one, by = made(said), planning(**schedule)
    by = by if one.schedule else replace(by, written=None)
    assert problem_of_times(one, by, now=NOON) == ""
    assert one.state is State.REMOVED or brought_back(one, by, now=NOON) == one


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_what_nothing_explains_is_told_and_brought_back(name: str) -> None:
    schedule, said = UNEXPLAINED[name]
    one, by = made(said), planning(**schedule)
    assert "later than its schedule" in problem_of_times(one, by, now=NOON)
    back = brought_back(one, by, now=NOON)
    assert problem_of_times(back, by, now=NOON) == ""
    assert back.ready <= NOON + 8 * DAY or not back.waits
    assert back.once == one.once or back.slot == back.planned
    assert (back.state is State.DONE) is (name == "a rule that is over")


@pytest.mark.parametrize("name", ["a cron", "a rule", "an every"])
def test_a_first_time_that_was_named_explains_no_other_time(name: str) -> None:
    schedule, said = UNEXPLAINED[name]
    by = planning(**schedule)
    one = made({**said, "first": said["slot"]})
    other = made({**said, "first": NOON + 2 * YEARS})
    assert problem_of_times(one, by, now=NOON) == ""
    assert "later than its schedule" in problem_of_times(other, by, now=NOON)


LONG: dict[str, Said] = {
    "a retry": {"slot": NOON - HOUR, "attempt": 3, "ready": NOON + 400 * DAY},
    "a jitter": {"slot": THREE, "ready": THREE + 3 * DAY},
}


@pytest.mark.parametrize("name", LONG)
def test_a_wait_that_only_a_handler_explains_is_not_judged_without_it(name: str) -> None:
    """Unless the run before it says that the clock was wrong."""
    spec = encode_spec(Spec(cron="0 3 * * *"))
    schedule = settings(**DAILY).schedule
    assert schedule is not None
    patient = replace(handler(), spec=Spec(backoff="500d", jitter="4d"))
    told = {}
    for known, handlers in {
        "nothing": {},
        "the handler": {"t": patient},
        "another": {"t": replace(patient, spec=Spec())},
    }.items():
        by = Planning(settings=resolver(Settings(), handlers)("t", spec), written=schedule)
        told[known] = problem_of_times(made(LONG[name]), by, now=NOON) != ""
        for moment in ("start", "stop"):
            wrong = made({**LONG[name], moment: NOON + YEARS})
            assert is_set_back(wrong, by, now=NOON) is (known != "the handler")
    assert told == {"nothing": False, "the handler": False, "another": True}


EARLY = {
    "a time that was named": {"at": "2026-12-24T18:00Z"},
    "a rule that ends": {"rrule": "FREQ=DAILY;UNTIL=20261231T000000Z"},
}


@pytest.mark.parametrize("name", EARLY)
@pytest.mark.parametrize("ran", [NOON + YEARS, None])
@pytest.mark.parametrize("paused", ["", "{}"])
def test_what_is_done_before_its_time_waits_for_it_again(
    name: str, paused: str, ran: datetime | None
) -> None:
    """Under a clock that was ahead its last slot had come, and was run or passed over."""
    by = planning(**EARLY[name])
    said = {"slot": NOON - HOUR, "state": State.DONE, "schedule": by.settings.text}
    one = made({**said, "start": ran, "stop": ran, "paused": paused})
    assert "is done, but is due 2026-" in problem_of_times(one, by, now=NOON)
    back = brought_back(one, by, now=NOON)
    assert problem_of_times(back, by, now=NOON) == ""
    assert back.state is (State.PAUSED if paused else State.ACTIVE)
    assert NOON < back.ready == back.slot == back.planned <= datetime(2027, 1, 1, tzinfo=UTC)


def test_what_is_done_stays_done_when_a_minute_is_all_that_is_wrong() -> None:
    by = planning(at="2026-11-21T12:00:30Z")
    said = {"slot": NOON - HOUR, "state": State.DONE, "schedule": by.settings.text}
    assert still_to_come(made(said), by, now=NOON) is None
    assert still_to_come(made(said), by, now=NOON - HOUR) == NOON + SECOND * 30


@pytest.mark.parametrize(
    ("ran", "coming"), [(NOON - HOUR, NOON + TOLERANCE + 8 * HOUR), (None, NOON + DAY + 8 * HOUR)]
)
def test_a_first_time_is_waited_for_by_an_every_that_never_ran(
    ran: datetime | None, coming: datetime
) -> None:
    by = planning(**EVERY)
    one = replace(item(state=State.DONE, start=ran), first=NOON + DAY, schedule=by.settings.text)
    assert still_to_come(one, by, now=NOON) == coming


@pytest.mark.parametrize(
    ("schedule", "said", "longest"),
    [
        (EVERY, {"slot": NOON - HOUR}, TOLERANCE),
        (DAILY, {"slot": NOON, "planned": THREE}, TOLERANCE),
        (DAILY, {"slot": NOON - HOUR, "attempt": 2, "stop": NOON}, LONGEST_AFTER),
        (
            {**DAILY, "backoff": "400d"},
            {"slot": NOON - HOUR, "attempt": 2, "stop": NOON},
            400 * DAY,
        ),
        (DAILY, {"slot": NOON - HOUR}, LONGEST_WAIT),
    ],
    ids=["every", "asked for", "a retry", "a long backoff", "a jitter"],
)
def test_how_long_after_its_slot_a_token_may_be_ready(
    schedule: Said, said: Said, longest: timedelta
) -> None:
    by = planning(**schedule)
    assert not is_set_back(made({**said, "ready": NOON + longest}), by, now=NOON)
    assert is_set_back(made({**said, "ready": NOON + longest + SECOND}), by, now=NOON)


def test_an_every_that_opens_after_its_interval_is_planned_anew_for_then() -> None:
    closed = planning(every="1h", blackout="12:30-23:00")
    lost = made({"slot": NOON + YEARS, "start": NOON})
    assert brought_back(lost, closed, now=NOON).slot == NOON + 11 * HOUR


@pytest.mark.parametrize("start", [NOON - HOUR, NOON])
def test_an_every_is_planned_anew_from_a_start_that_is_to_be_trusted(start: datetime) -> None:
    lost = made({"slot": NOON + YEARS, "start": start})
    assert brought_back(lost, planning(**EVERY), now=NOON).slot == start + 8 * HOUR
    wrong = replace(lost, start=NOON + TOLERANCE + SECOND)
    assert brought_back(wrong, planning(**EVERY), now=NOON).slot == NOON


def test_a_run_that_was_put_back_under_a_clock_that_was_ahead_is_due_at_once() -> None:
    by, far = planning(**EVERY), NOON + YEARS
    waits = made({"slot": NOON, "ready": far, "once": "{}", "put_back": True})
    assert brought_back(waits, by, now=NOON) == replace(waits, ready=NOON)
    for lost in (made({"slot": far, "put_back": True}), made({"slot": far, "attempt": 2})):
        back = brought_back(lost, by, now=NOON)
        assert (back.slot, back.attempt, back.put_back) == (NOON + 7 * HOUR, 1, False)
    over = planning(cron="0 3 * * *", until="2026-11-20")
    ended = brought_back(made({"slot": far, "put_back": True}), over, now=NOON)
    assert (ended.state, ended.put_back) == (State.DONE, False)


def test_a_schedule_that_cannot_be_computed_says_nothing_of_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by = planning(rrule="FREQ=DAILY")
    waits = made({"slot": NOON, "schedule": "rrule FREQ=DAILY"})
    break_rules(monkeypatch)
    assert problem_of_times(waits, by, now=NOON) == ""


def test_what_is_told_of_a_wrong_clock() -> None:
    later = "2036-11-21 12:00:00Z"
    by, far = planning(**EVERY), NOON + YEARS
    waits = made({"slot": NOON, "ready": far, "schedule": "every 8h"})
    due = f"is due {later}, later than its schedule"
    assert problem_of_times(waits, by, now=NOON) == f"{due} (every 8h) explains: a clock was wrong"
    unnamed = replace(waits, schedule="")
    assert problem_of_times(unnamed, by, now=NOON) == f"{due} explains: a clock was wrong"
    future = "which is in the future: a clock was wrong"
    for said, moments in (
        ({"start": far}, f"started {later}"),
        ({"stop": far}, f"stopped {later}"),
        ({"start": far, "stop": far}, f"started {later} and stopped {later}"),
    ):
        one = made({"slot": NOON, **said})
        assert problem_of_times(one, by, now=NOON) == f"says that it {moments}, {future}"


def test_either_schedule_may_explain_a_time() -> None:
    """The settings have another one by now, and the token is of before."""
    old, new = settings(every="30d").schedule, settings(every="1h").schedule
    assert old is not None
    assert new is not None
    one = made({"slot": NOON + 20 * DAY})
    both = Planning(settings=settings(every="1h"), written=old)
    assert not is_set_back(one, both, now=NOON)
    assert is_set_back(one, planning(every="1h"), now=NOON)
    daily = settings(**DAILY).schedule
    assert daily is not None
    both = Planning(settings=settings(every="1h"), written=daily)
    assert not is_set_back(made({"slot": THREE, "ready": THREE + HOUR}), both, now=NOON)


@pytest.mark.parametrize(("schedule", "within"), [(EVERY, 8 * HOUR), (DAILY, DAY)])
@pytest.mark.parametrize("missed", ["one", "all", "none"])
@pytest.mark.parametrize("asked", [False, True])
def test_a_run_that_began_in_the_future_does_not_set_its_item_back(
    schedule: Said, within: timedelta, missed: str, *, asked: bool
) -> None:
    """The clock was put right while it ran."""
    slot = NOON + YEARS
    began = running(slot=slot, planned=slot + DAY if asked else slot, start=slot)
    run = settings(**schedule, missed=missed)
    plan = after(began, "ok", run=run, now=NOON)
    assert plan.ready <= NOON + within or asked
