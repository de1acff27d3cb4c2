"""Schedules: how they are made and written, the next slot, the slots missed, and refusals."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, timezone
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.errors import BadInput
from blackboard.schedule import schedule as schedules
from blackboard.schedule.limits import limits
from blackboard.schedule.schedule import (
    ALONE,
    Cron,
    Every,
    Once,
    RRule,
    Schedule,
    due_between,
    interval_of,
    make_schedule,
    next_due,
    parse_schedule,
    slots_after,
)
from blackboard.schedule.zones import first_shown, showings
from tests.support.wrong_rows import break_rules

EIGHT_HOURS = Every(timedelta(hours=8))
ONCE_A_DAY = Every(timedelta(hours=8), limits=limits(blackout="00:00-23:00"))
"""Its windows put off each slot."""
NOON = Once(datetime(2026, 5, 4, 12, tzinfo=UTC))
NIGHTLY = Cron("0 3 * * *", "Europe/Berlin")
MINUTELY = Cron("* * * * *")
WEEKLY = RRule("FREQ=WEEKLY;BYDAY=MO", "Europe/Berlin")
SWALLOWED = Cron("* 2 8-14 3 */7", "America/New_York")
THRICE = RRule("DTSTART:20260504T090000\nRRULE:FREQ=DAILY;COUNT=3")
SINGLE = RRule("DTSTART:20260504T090000\nRRULE:FREQ=DAILY;COUNT=1")
MANY = RRule("DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY;COUNT=10000")
OFFICE = Cron("0 9,17 * * 1-5")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


MADE: list[tuple[dict[str, Any], Schedule, str]] = [
    ({"every": "8h"}, EIGHT_HOURS, "every 8h"),
    (
        {"every": "8h", "zone": "Europe/Berlin"},
        Every(EIGHT_HOURS.interval, "Europe/Berlin"),
        "every 8h",
    ),
    ({"every": timedelta(hours=36)}, Every(timedelta(hours=36)), "every 1d12h"),
    ({"cron": " 0  3 * * * ", "zone": "Europe/Berlin"}, NIGHTLY, "cron 0 3 * * *"),
    ({"cron": "@daily"}, Cron("@daily"), "cron @daily"),
    ({"rrule": "freq=weekly;byday=mo", "zone": "Europe/Berlin"}, WEEKLY, f"rrule {WEEKLY.rule}"),
    ({"at": "2026-05-04T12:00Z"}, NOON, "at 2026-05-04T12:00:00+00:00"),
    ({"at": "2026-05-04 14:00+02:00"}, NOON, "at 2026-05-04T12:00:00+00:00"),
    ({"at": datetime(2026, 5, 4, 12, 0, 0, 999, tzinfo=UTC)}, NOON, "at 2026-05-04T12:00:00+00:00"),
    (
        {"at": "2026-11-21T09:00", "zone": "Europe/Berlin"},
        Once(utc("2026-11-21T08:00+00:00"), "Europe/Berlin"),
        "at 2026-11-21T09:00:00+01:00",
    ),
    (
        {"at": "2026-11-21", "zone": "Europe/Berlin"},
        Once(utc("2026-11-20T23:00+00:00"), "Europe/Berlin"),
        "at 2026-11-21T00:00:00+01:00",
    ),
    (  # in a gap: right after it
        {"at": "2026-03-29T02:30", "zone": "Europe/Berlin"},
        Once(utc("2026-03-29T01:00+00:00"), "Europe/Berlin"),
        "at 2026-03-29T03:00:00+02:00",
    ),
    (  # shown twice: the first time, unless the offset says otherwise
        {"at": "2026-10-25T02:30", "zone": "Europe/Berlin"},
        Once(utc("2026-10-25T00:30+00:00"), "Europe/Berlin"),
        "at 2026-10-25T02:30:00+02:00",
    ),
    (
        {"at": "2026-10-25T02:30+01:00", "zone": "Europe/Berlin"},
        Once(utc("2026-10-25T01:30+00:00"), "Europe/Berlin"),
        "at 2026-10-25T02:30:00+01:00",
    ),
]


@pytest.mark.parametrize(("settings", "schedule", "text"), MADE)
def test_a_schedule_has_one_text_that_is_read_back(
    settings: dict[str, Any], schedule: Schedule, text: str
) -> None:
    made = make_schedule(**settings)
    assert made == schedule
    assert made is not None
    assert made.text == text
    assert "\n" not in text
    assert parse_schedule(text, made.zone) == made


def test_no_setting_is_no_schedule() -> None:
    assert make_schedule(zone="Europe/Berlin") is None


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"every": "8h", "cron": "* * * * *"}, "cron", "not every and cron"),
    ({"cron": "@daily", "at": "2026-05-04", "rrule": "FREQ=DAILY"}, "at", "cron and rrule and at"),
    ({"every": 90}, "every", "write 90s"),
    ({"every": ""}, "every", "write it like"),
    ({"cron": "* * * *"}, "cron", "write five"),
    ({"cron": 5}, "cron", "write it in quotes"),
    ({"rrule": "FREQ=DAILY;INTERVAL=0"}, "rrule", "INTERVAL"),
    ({"rrule": ["FREQ=DAILY"]}, "rrule", "write it in quotes"),
    ({"at": "tomorrow"}, "at", "write 2026-11-21T09:00"),
    ({"at": "2026-02-30"}, "at", "write 2026-11-21T09:00"),
    ({"at": 20260504}, "at", "write it in quotes"),
    ({"at": "0001-01-01T00:00+14:00"}, "at", "too far away"),
    ({"at": "9999-12-31T23:59-14:00"}, "at", "too far away"),
    ({"every": "8h", "zone": "Europe/Berln"}, "timezone", "did you mean Europe/Berlin"),
    ({"zone": "Nowhere/Atall"}, "timezone", "write an IANA name"),
    ({"every": "8h", "zone": 1}, "timezone", "write it in quotes"),
]


@pytest.mark.parametrize(("settings", "field", "words"), REFUSED)
def test_refusals_name_the_field_and_a_remedy(
    settings: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        make_schedule(**settings)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.remedy


WRITE_A_TIME = "write 2026-11-21T09:00, with +01:00 or Z at the end unless it is in the item's zone"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"every": "8h", "cron": "@daily"},
            "cron: an item has one schedule, not every and cron (keep one of them)",
        ),
        ({"cron": 5}, "cron: 5 is not text (write it in quotes)"),
        ({"at": "x" * 61}, f"at: '{'x' * 60}' is not a time ({WRITE_A_TIME})"),
        ({"at": "1601-12-31"}, f"at: '1601-12-31' is too far away ({WRITE_A_TIME})"),
    ],
)
def test_a_refusal_shows_what_was_written_and_what_to_write(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        make_schedule(**settings)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("at", "allowed"),
    [("1601-12-31", False), ("1602-01-01", True), ("8999-12-31", True), ("9000-01-01", False)],
)
def test_an_at_is_between_the_years_1602_and_9000(at: str, *, allowed: bool) -> None:
    if allowed:
        assert make_schedule(at=at) == Once(utc(at + "T00:00+00:00"))
    else:
        with pytest.raises(BadInput, match="too far away"):
            make_schedule(at=at)


@pytest.mark.parametrize(
    ("zone", "at", "allowed"),
    [
        ("Europe/Berlin", "8999-12-31T23:59-12:00", False),
        ("Etc/GMT+12", "8999-12-31T23:59-12:00", True),
        ("UTC", "1602-01-01T00:00+14:00", False),
        ("Europe/Berlin", "1602-01-01", True),
    ],
)
def test_an_at_lies_between_these_years_where_its_row_has_it(
    zone: str, at: str, *, allowed: bool
) -> None:
    if not allowed:
        with pytest.raises(BadInput, match="too far away"):
            make_schedule(at=at, zone=zone)
        return
    schedule = make_schedule(at=at, zone=zone)
    assert schedule is not None
    assert parse_schedule(schedule.text, zone) == schedule


def test_an_at_may_be_a_datetime_of_its_zone() -> None:
    noon = datetime(2026, 7, 1, 12)  # noqa: DTZ001 - wall time
    assert make_schedule(at=noon, zone="Europe/Berlin") == Once(
        utc("2026-07-01T10:00+00:00"), "Europe/Berlin"
    )
    bounds = limits(runs=1, zone="Europe/Berlin")
    limited = make_schedule(at=noon, zone="Europe/Berlin", limits=bounds)
    assert limited == Once(utc("2026-07-01T10:00+00:00"), "Europe/Berlin", bounds)
    with pytest.raises(BadInput) as caught:
        make_schedule(at=noon.replace(year=9000))
    assert caught.value.field == "at"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "schedule"),
        ("hourly", "schedule"),
        ("manual x", "schedule"),
        ("every", "every"),
        ("cron 0 0 31 2 *", "cron"),
        ("rrule FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31", "rrule"),
        ("at noon", "at"),
    ],
)
def test_a_text_of_no_schedule_is_refused(text: str, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_schedule(text)
    assert caught.value.field == field


def test_a_text_of_no_known_kind_is_shown_in_part_with_the_kinds_there_are() -> None:
    with pytest.raises(BadInput) as caught:
        parse_schedule("x" * 61)
    shown = f"'{'x' * 60}' is of no known kind (every, cron, rrule or at)"
    assert str(caught.value) == f"schedule: {shown}"


def test_a_text_is_read_without_the_blanks_around_it_and_in_utc_by_default() -> None:
    assert parse_schedule(" at 2026-05-04T12:00\n") == NOON


@pytest.mark.parametrize(
    "zone", ["UTC", "EST5EDT", "Etc/GMT+5", "America/Indiana/Indianapolis", "Asia/Calcutta"]
)
def test_every_name_of_the_tz_database_is_a_zone(zone: str) -> None:
    assert Every(timedelta(hours=1), zone).zone == zone


@pytest.mark.parametrize(
    ("zone", "remedy"),
    [
        ("", "write an IANA name"),
        ("../../etc/passwd", "write an IANA name"),
        ("/etc/localtime", "write an IANA name"),
        ("Europe/../Europe/Berlin", "write an IANA name"),
        ("America", "write an IANA name"),
        ("localtime", "write an IANA name"),
        ("right/UTC", "write an IANA name"),
        ("posix/Europe/Berlin", "Europe/Berlin"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("new york", "did you mean America/New_York?"),
        ("UTC ", "did you mean UTC?"),
        ("GMT+2", "write Etc/GMT-2, which is 2 hours east of Greenwich"),
        ("UTC-05:00", "write Etc/GMT+5, which is 5 hours west of Greenwich"),
        ("+02:00", "write Etc/GMT-2"),
        ("UTC+1", "write Etc/GMT-1, which is 1 hour east of Greenwich"),
        ("GMT+05:30", "write an IANA name"),
        ("GMT+15", "write an IANA name"),
        ("UTC+0", "did you mean UTC"),
        ("Europe/Berlin\0", "Europe/Berlin"),
        ("\ud800", "write an IANA name"),
        ("x" * 10_000, "write an IANA name"),
    ],
)
def test_an_unknown_zone_is_refused_with_names_like_it(zone: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        Every(timedelta(hours=1), zone)
    assert caught.value.field == "timezone"
    assert remedy in caught.value.remedy
    assert len(str(caught.value)) < 300


def test_a_schedule_made_directly_is_checked_too() -> None:
    with pytest.raises(BadInput, match=r"^every: "):
        Every(timedelta(0))
    with pytest.raises(BadInput, match="timezone"):
        Once(datetime(2026, 5, 4, tzinfo=UTC), "Mars/Base")
    with pytest.raises(ValueError, match="aware"):
        Once(datetime(2026, 5, 4))  # noqa: DTZ001


NEXT = [
    (EIGHT_HOURS, "2026-05-04T03:07+00:00", "2026-05-04T11:07+00:00"),
    (Every(timedelta(days=1), "Europe/Berlin"), "2026-03-28T12:00+01:00", "2026-03-29T13:00+02:00"),
    (NOON, "2026-05-04T11:59+00:00", "2026-05-04T12:00+00:00"),
    (NOON, "2026-05-04T12:00+00:00", None),
    (NIGHTLY, "2026-05-04T03:00+02:00", "2026-05-05T03:00+02:00"),
    (WEEKLY, "2026-05-04T00:00+02:00", "2026-05-11T00:00+02:00"),
    (THRICE, "2026-05-05T09:00+00:00", "2026-05-06T09:00+00:00"),
    (THRICE, "2026-05-06T09:00+00:00", None),
    # New York moved its gap into this hour in 2007
    (SWALLOWED, "2006-03-12T02:58-05:00", "2006-03-12T02:59-05:00"),
    (SWALLOWED, "2006-03-12T02:59-05:00", None),
    # The ends of the calendar
    (ONCE_A_DAY, "9999-12-31T20:00+00:00", None),
    (Every(timedelta(days=1)), "8999-12-31T23:59+00:00", "9000-01-01T23:59+00:00"),
    (Every(timedelta(days=1)), "9000-01-01T00:00+00:00", None),
    (NIGHTLY, "0001-01-01T00:00+00:00", "1601-01-01T03:00:00+00:53:28"),
    (WEEKLY, "0001-01-01T00:00+00:00", "2000-01-03T00:00+01:00"),
    (NIGHTLY, "8999-12-31T23:59+00:00", "9000-01-01T02:00+00:00"),
    (NIGHTLY, "9000-01-01T00:00+00:00", None),
    (WEEKLY, "8999-12-31T23:59+00:00", "9000-01-05T23:00+00:00"),
    (WEEKLY, "9000-01-01T00:00+00:00", None),
    (NIGHTLY, "9999-12-31T23:59+00:00", None),
    (WEEKLY, "9999-12-31T23:59+00:00", None),
    (NOON, "9999-12-31T23:59+00:00", None),
]


@pytest.mark.parametrize(("schedule", "after", "expected"), NEXT)
def test_the_next_slot_is_later_and_in_utc(
    schedule: Schedule, after: str, expected: str | None
) -> None:
    found = next_due(schedule, datetime.fromisoformat(after))
    assert found == (expected and utc(expected))
    assert found is None or found.tzinfo is UTC


@pytest.mark.parametrize(("schedule", "after"), [one[:2] for one in NEXT])
def test_all_slots_are_one_after_the_other(schedule: Schedule, after: str) -> None:
    every, slot = list[datetime](), next_due(schedule, datetime.fromisoformat(after))
    while slot is not None and len(every) < 20:
        every.append(slot)
        slot = next_due(schedule, slot)
    assert [*islice(slots_after(schedule, datetime.fromisoformat(after)), 20)] == every


def test_a_time_without_an_offset_is_refused() -> None:
    """It would be read in the zone of whatever host this is."""
    with pytest.raises(ValueError, match="aware"):
        next_due(MINUTELY, datetime(2026, 5, 4))  # noqa: DTZ001


def test_two_showings_of_one_wall_time_are_told_apart() -> None:
    """Python compares times of one zone by their walls alone."""
    second = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert Once(second, "Europe/Berlin").text == "at 2026-10-25T02:30:00+01:00"
    assert next_due(Once(second), second.replace(fold=0)) == utc("2026-10-25T01:30+00:00")
    slots = due_between(Cron("*/30 * * * *"), second.replace(fold=0), second, 9)
    assert slots == [utc("2026-10-25T01:00+00:00"), utc("2026-10-25T01:30+00:00")]


BETWEEN = [
    # schedule, after, until, limit, slots
    (MINUTELY, "2026-05-04T12:00", "2026-05-04T12:03", 9, "12:01 12:02 12:03"),
    (MINUTELY, "2026-05-04T12:00", "2026-05-04T12:03", 2, "12:02 12:03"),
    (MINUTELY, "2006-05-04T12:00", "2026-05-04T12:03", 3, "12:01 12:02 12:03"),
    (MINUTELY, "2026-05-04T12:00", "2026-05-04T12:03", 0, ""),
    (MINUTELY, "2026-05-04T12:03", "2026-05-04T12:00", 9, ""),
    (MINUTELY, "2026-05-04T12:00", "2026-05-04T12:00", 9, ""),
    (Cron("*/20 1 4 5 *"), "1996-05-04T12:00", "2026-12-31T00:00", 2, "01:20 01:40"),
    (Cron("0 0 4 5 *"), "2026-05-04T00:00", "2027-05-03T00:00", 2, ""),
    (RRule("FREQ=SECONDLY"), "1996-05-04T12:00", "2026-05-04T00:00:01", 2, "00:00 00:00:01"),
    (Cron("0 0 4 5 *"), "1601-05-04T00:00", "8999-12-31T00:00", 2, "00:00 00:00"),
    (THRICE, "2000-01-01T00:00", "2026-05-04T12:00", 5, "09:00"),
    (NOON, "2026-05-04T11:00", "2026-05-04T12:00", 9, "12:00"),
    (NOON, "2026-05-04T11:00", "2026-05-04T13:00", 1, "12:00"),
    (NOON, "2026-05-04T12:00", "2026-05-04T13:00", 9, ""),
    (NOON, "2026-05-04T10:00", "2026-05-04T11:00", 9, ""),
]


@pytest.mark.parametrize(("schedule", "after", "until", "limit", "times"), BETWEEN)
def test_the_last_slots_of_a_time(
    schedule: Cron | RRule | Once, after: str, until: str, limit: int, times: str
) -> None:
    found = due_between(schedule, utc(after + "+00:00"), utc(until + "+00:00"), limit)
    assert [slot.time() for slot in found] == [time.fromisoformat(text) for text in times.split()]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([NIGHTLY, WEEKLY, THRICE, Cron("*/7 1-3 * * *", "Europe/Berlin"), NOON]),
    st.integers(0, 400 * 86400),
    st.integers(0, 20 * 86400),
    st.integers(1, 12),
)
def test_the_last_slots_are_the_end_of_all_slots(
    schedule: Cron | RRule | Once, start: int, length: int, limit: int
) -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
    until = after + timedelta(seconds=length)
    every, slot = [], next_due(schedule, after)
    while slot is not None and slot <= until:
        every.append(slot)
        slot = next_due(schedule, slot)
    assert due_between(schedule, after, until, limit) == every[-limit:]


@pytest.mark.parametrize(
    ("schedule", "slot", "expected"),
    [
        (EIGHT_HOURS, "2026-05-04T03:07+00:00", timedelta(hours=8)),
        (ONCE_A_DAY, "2026-05-04T03:07+00:00", timedelta(hours=8)),
        (NIGHTLY, "2026-05-04T03:00+02:00", timedelta(days=1)),
        (NIGHTLY, "2026-05-04T02:59:47+02:00", timedelta(days=1)),
        (NIGHTLY, "2026-03-27T12:00+01:00", timedelta(hours=23)),
        (NIGHTLY, "2026-03-29T12:00+02:00", timedelta(days=1)),
        (OFFICE, "2026-05-08T09:00+00:00", timedelta(hours=8)),
        (OFFICE, "2026-05-08T17:00+00:00", timedelta(hours=8)),
        (WEEKLY, "2026-05-03T23:59:59+02:00", timedelta(weeks=1)),
        (WEEKLY, "2026-05-04T00:00+02:00", timedelta(weeks=1)),
        # the end of a schedule, and after it
        (THRICE, "2026-05-03T09:00+00:00", timedelta(days=1)),
        (THRICE, "2026-05-05T08:59:47+00:00", timedelta(days=1)),
        (THRICE, "2026-05-05T09:00+00:00", timedelta(days=1)),
        (THRICE, "2026-05-06T09:00+00:00", timedelta(days=1)),
        (THRICE, "2026-09-06T09:00+00:00", timedelta(days=1)),
        (MANY, "2026-12-31T23:59:59+00:00", timedelta(minutes=1)),
        (SINGLE, "2026-05-04T09:00+00:00", ALONE),
        (SWALLOWED, "2006-03-12T02:59-05:00", timedelta(minutes=1)),
        (NOON, "2026-05-04T09:00+00:00", ALONE),
        (NIGHTLY, "9000-01-01T02:00+00:00", timedelta(days=1)),
    ],
)
def test_the_interval_is_the_schedules_own_wherever_it_is_asked_for(
    schedule: Schedule, slot: str, expected: timedelta
) -> None:
    assert interval_of(schedule, datetime.fromisoformat(slot)) == expected


def test_an_interval_is_computed_once_for_all_runs_of_a_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[datetime] = []

    def counted(one: Schedule, after: datetime) -> Iterator[datetime]:
        read.append(after)
        return slots_after(one, after)

    monkeypatch.setattr(schedules, "slots_after", counted)
    for _ in range(3):
        assert interval_of(Cron("1 2 3 * *"), utc("2026-05-04T09:00+00:00")) == timedelta(days=30)
    assert len(read) == 1


wall_times = st.integers(0, 10**9).map(
    lambda second: (datetime(1995, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).replace(
        tzinfo=None
    )
)
zone_names = st.sampled_from(
    ["Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"]
)


@settings(max_examples=200, deadline=None)
@given(wall_times, zone_names, st.timedeltas(timedelta(0), timedelta(days=2)))
def test_later_wall_times_are_never_first_shown_earlier(
    wall: datetime, name: str, later: timedelta
) -> None:
    zone = ZoneInfo(name)
    first = first_shown(wall, zone)
    assert first <= first_shown(wall + later, zone)
    assert all(
        shown.astimezone(zone).replace(tzinfo=None, fold=0) == wall
        for shown in showings(wall, zone)
    )
    assert first in showings(wall, zone) or not showings(wall, zone)


def test_zones_of_many_changes_never_change_twice_within_three_days() -> None:
    """What reading one change at a time rests on; seen by asking each zone twice a day."""
    for name in ("Africa/Casablanca", "Africa/Cairo", "Europe/Lisbon", "America/Godthab"):
        zone, last, offset = ZoneInfo(name), None, None
        for half in range(60 * 365 * 2):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + half * timedelta(hours=12)
            now = moment.astimezone(zone).utcoffset()
            if offset is not None and now != offset:
                assert last is None or moment - last > timedelta(days=3)
                last = moment
            offset = now


def test_importing_schedules_does_not_import_dateutil() -> None:
    """A command that only shows the board must not wait for it."""
    code = "import sys, blackboard.schedule.schedule; sys.exit('dateutil' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_fixed_offset_is_as_good_as_a_zone_to_ask_with() -> None:
    asked = datetime(2026, 5, 4, 3, tzinfo=timezone(timedelta(hours=2)))
    assert next_due(NIGHTLY, asked) == utc("2026-05-05T01:00+00:00")


def test_slots_end_with_the_first_that_is_in_the_year_9000() -> None:
    slots = slots_after(MINUTELY, utc("8999-12-31T23:58:30+00:00"))
    assert [*slots] == [utc("8999-12-31T23:59+00:00"), utc("9000-01-01T00:00+00:00")]


@pytest.mark.parametrize("blackout", [None, "sat-sun, 8999-12-31..9999-12-31"])
def test_those_of_an_interval_end_there_too(blackout: str | None) -> None:
    every = Every(timedelta(days=3652, hours=10), limits=limits(blackout=blackout))
    *_, last = slots_after(every, utc("2026-05-04T12:00+00:00"))
    assert last.year in range(8979, 9011)
    assert next_due(every, utc("9000-01-01T00:00+00:00")) is None
    daily = slots_after(Every(timedelta(days=1)), utc("8999-12-31T00:00+00:00"))
    assert [*daily] == [utc("9000-01-01T00:00+00:00")]


def test_whatever_a_library_raises_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RRule("FREQ=DAILY")
    break_rules(monkeypatch)
    with pytest.raises(BadInput) as caught:
        next_due(rule, utc("2026-05-04T12:00+00:00"))
    assert str(caught.value) == (
        "schedule: the times of 'rrule FREQ=DAILY' cannot be computed: "
        "IndexError('list index out of range') (use another one)"
    )


def test_the_last_of_very_many_slots_are_found_without_reading_many_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = 0

    def counted(self: Cron, after: datetime) -> Iterator[datetime]:
        nonlocal read
        for run in runs(self, after):
            read += 1
            yield run

    runs = Cron.runs
    monkeypatch.setattr(Cron, "runs", counted)
    until = utc("2026-05-04T12:00+00:00")
    assert len(due_between(MINUTELY, until - timedelta(days=3660), until, 1_000)) == 1_000
    assert read < 4_000
