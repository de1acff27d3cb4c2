"""Which events are passed over because they are outside the window, and which never are."""

import pytest

from jobs.calendars import parser
from jobs.calendars.events import Vevent, read_vevent
from jobs.calendars.lines import read_calendar
from jobs.calendars.parser import are_outside
from tests.calendars.support import calendar, event, read, times, window

LONG_AGO = "20200901T180000Z"
CASES = {
    "an event that is over": ([event("e", "E", LONG_AGO)], True),
    "one that lasts until now": ([event("e", "E", LONG_AGO, "DTEND:20260901T180000Z")], False),
    "one that is over, by its duration": ([event("e", "E", LONG_AGO, "DURATION:P10D")], True),
    "one that lasts until now, by its duration": (
        [event("e", "E", "20260801T180000Z", "DURATION:P3W")],
        False,
    ),
    "one whose duration takes a closer look": (
        [event("e", "E", LONG_AGO, "DURATION:P99999999999D")],
        False,
    ),
    "one whose end takes a closer look": (
        [event("e", "E", "00010101T000000Z", "DTEND:99991231T000000Z")],
        False,
    ),
    "one to come after the window": ([event("e", "E", "20270901T180000Z")], True),
    "one without a date": ([event("e", "E", "20200231T180000Z")], False),
    "a series to come after the window": (
        [event("e", "E", "20270901T180000Z", "RRULE:FREQ=DAILY")],
        True,
    ),
    "a change that brings a later time into the window": (
        [
            event("e", "E", "20270901T180000Z", "RRULE:FREQ=DAILY"),
            event("e", "E", "20260901T180000Z", "RECURRENCE-ID:20270902T180000Z"),
        ],
        False,
    ),
    "a change that moves all later times of a series": (
        [
            event("e", "E", LONG_AGO, "RRULE:FREQ=DAILY;UNTIL=20201001T180000Z"),
            event("e", "E", LONG_AGO, "RECURRENCE-ID;RANGE=THISANDFUTURE:20200901T180000Z"),
        ],
        False,
    ),
    "a change that is over": (
        [
            event("e", "E", LONG_AGO, "RRULE:FREQ=DAILY;UNTIL=20201001T180000Z"),
            event("e", "E", LONG_AGO, "RECURRENCE-ID:20200901T180000Z"),
        ],
        True,
    ),
}
RULES = {
    "FREQ=WEEKLY": False,
    "FREQ=WEEKLY;UNTIL=20201231T000000Z": True,
    "FREQ=WEEKLY;UNTIL=20201231": True,
    "freq=weekly; until = 2020-12-31T00:00:00Z": True,
    "FREQ=WEEKLY;UNTIL=20260818T000000Z": True,
    "FREQ=WEEKLY;UNTIL=20260819T000000Z": False,
    "FREQ=WEEKLY;UNTIL=20300101": False,
    "FREQ=WEEKLY;UNTIL=never": False,
    "FREQ=WEEKLY;X-UNTIL=20201231": False,
    "FREQ=WEEKLY;UNTIL=20201231;UNTIL=20300101": False,
    "FREQ=DAILY;INTERVAL=0;COUNT=3000": False,
    "FREQ=DAILY;COUNT=10": True,
    "FREQ=DAILY;COUNT=9999": False,
    "FREQ=DAILY;COUNT=999999999": False,
    "FREQ=DAILY;COUNT=-1": False,
    "FREQ=DAILY;INTERVAL=300;COUNT=10": False,
    "FREQ=WEEKLY;BYDAY=MO,TU;COUNT=10;WKST=SU": True,
    "FREQ=WEEKLY;BYMONTH=2;COUNT=10": False,
    "FREQ=MONTHLY;COUNT=12": True,
    "FREQ=MONTHLY;BYMONTHDAY=31;COUNT=12": False,
    "FREQ=YEARLY;COUNT=3": True,
    "FREQ=YEARLY;COUNT=8": False,
    "FREQ=HOURLY;COUNT=3": False,
}


def outside(*events: str) -> bool:
    return are_outside(read_calendar(calendar(*events)).events, window())


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES)
def test_what_the_dates_of_events_say(events: list[str], *, expected: bool) -> None:
    assert outside(*events) is expected


@pytest.mark.parametrize(("rule", "expected"), RULES.items())
def test_a_series_is_over_where_its_rule_proves_it(rule: str, *, expected: bool) -> None:
    """The window begins on 2026-08-21, and two days before it are left for zones."""
    assert outside(event("e", "E", "20200914T180000Z", f"RRULE:{rule}")) is expected


@pytest.mark.parametrize("day", ["20200101", "20200128", "20200131"])
def test_a_month_may_be_without_the_day_on_which_a_series_begins(day: str) -> None:
    assert not outside(event("e", "E", day, "RRULE:FREQ=MONTHLY;COUNT=3"))


@pytest.mark.parametrize("line", ["RDATE:20260901T180000Z", "RRULE:FREQ=DAILY"])
def test_a_series_with_more_than_an_ended_rule_is_not_over(line: str) -> None:
    ended = "RRULE:FREQ=DAILY;UNTIL=20201001T180000Z"
    assert not outside(event("e", "E", LONG_AGO, ended, line))


def test_a_long_event_of_an_ended_series_is_in_the_window() -> None:
    rule = "RRULE:FREQ=WEEKLY;UNTIL=20260801T180000Z"
    found = read(calendar(event("e", "E", "20260725T180000Z", rule, "DURATION:P30D")))
    assert len(found.occurrences) == 2


def test_an_ended_series_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []

    def noted(block: object, number: int, *others: object, **more: object) -> Vevent:
        numbers.append(number)
        return read_vevent(block, number, *others, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(parser, "read_vevent", noted)
    old = [
        event(f"o{number}", "Old", LONG_AGO, "RRULE:FREQ=WEEKLY;UNTIL=20201231T000000Z")
        for number in range(20)
    ]
    found = read(calendar(*old, event("g", "Good")))
    assert (numbers, found.seen, found.skipped) == ([20], 21, 0)
    assert [title for title, _start, _end in times(found)] == ["Good"]
