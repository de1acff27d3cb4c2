"""Durations and times as people write them: what is read, what is refused and with which remedy."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.errors import BadInput
from blackboard.schedule.times import LONGEST, format_duration, parse_duration, parse_moment

READ = [
    ("8h", timedelta(hours=8)),
    ("90s", timedelta(seconds=90)),
    ("1d12h", timedelta(days=1, hours=12)),
    ("1w", timedelta(weeks=1)),
    ("500ms", timedelta(milliseconds=500)),
    ("5m", timedelta(minutes=5)),
    ("1w2d3h4m5s6ms", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5, milliseconds=6)),
    ("  1h 30m ", timedelta(hours=1, minutes=30)),
    ("10 s", timedelta(seconds=10)),
    ("0h5m", timedelta(minutes=5)),
    ("05m", timedelta(minutes=5)),
    ("3653d", LONGEST),
    (timedelta(minutes=2), timedelta(minutes=2)),
    ("1.5h", timedelta(hours=1, minutes=30)),
    ("0.25s", timedelta(milliseconds=250)),
    ("8 hours", timedelta(hours=8)),
    ("1 hour 30 minutes", timedelta(hours=1, minutes=30)),
    ("2 weeks 1 day", timedelta(weeks=2, days=1)),
    ("10mins 5secs", timedelta(minutes=10, seconds=5)),
    ("1hr", timedelta(hours=1)),
    ("20 milliseconds", timedelta(milliseconds=20)),
]

REFUSED: list[tuple[Any, str, str]] = [
    ("90", "no unit", "write 90s"),
    (90, "no unit", "write 90s"),
    (1.5, "no unit", "1.5s for seconds"),
    ("0", "no unit", "write it like"),
    (0, "no unit", "write it like"),
    ("1.5", "no unit", "1.5s for seconds"),
    (-3, "no unit", "write it like"),
    (float("nan"), "no unit", "write it like"),
    (True, "no unit", "write it like"),
    (None, "no unit", "write it like"),
    ("", "not a duration", "write it like"),
    ("h", "not a duration", "write it like"),
    ("soon", "not a duration", "write it like"),
    ("1.h", "not a duration", "write it like"),
    (".5h", "not a duration", "write it like"),
    ("0.0005h", "not a duration", "write it like"),
    ("0.001ms", "finer than a millisecond", "whole milliseconds"),
    ("3 months", "not a duration", "write it like"),
    ("1hour30", "not a duration", "write it like"),
    ("-5m", "not a duration", "write it like"),
    ("30m1h", "not a duration", "write it like"),
    ("1h1h", "not a duration", "write it like"),
    ("1y", "not a duration", "write it like"),
    ("8H", "not a duration", "write it like"),
    ("1 2h", "not a duration", "write it like"),
    ("١h", "not a duration", "write it like"),
    ("9" * 5000 + "s", "not a duration", "write it like"),
    ("1w" + " " * 5000 + "x", "not a duration", "write it like"),
    ("0s", "not longer than nothing", "write it like"),
    (timedelta(0), "not longer than nothing", "write it like"),
    (timedelta(seconds=-1), "not longer than nothing", "write it like"),
    ("3654d", "longer than ten years", "3653d at the most"),
    ("999999999999w", "longer than ten years", "3653d at the most"),
    (timedelta(microseconds=1500), "finer than a millisecond", "whole milliseconds"),
]


@pytest.mark.parametrize(("text", "duration"), READ)
def test_durations_that_are_read(text: str | timedelta, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(("value", "problem", "remedy"), REFUSED)
def test_refusals_name_the_field_and_a_remedy(value: Any, problem: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_duration(value, "timeout")
    assert caught.value.field == "timeout"
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=1, hours=12), "1d12h"),
        (timedelta(weeks=2), "2w"),
        (timedelta(days=8), "8d"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(milliseconds=1), "1ms"),
        (timedelta(0), "0s"),
        (timedelta(microseconds=999), "0s"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_durations_as_they_are_written(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.integers(1, LONGEST // timedelta(milliseconds=1)))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


# ---- times

NOW = datetime(2026, 3, 28, 23, 30, 5, 250_000, tzinfo=UTC)
"""In Berlin it is half past midnight of the 29th, whose clocks go from 02:00 to 03:00."""
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "zone", "moment"),
    [
        ("now", BERLIN, "2026-03-28T23:30:05.250"),
        ("in 2h", BERLIN, "2026-03-29T01:30:05.250"),
        ("1.5h", "UTC", "2026-03-29T01:00:05.250"),
        ("In 2 Days", "UTC", "2026-03-30T23:30:05.250"),
        ("90m ago", "UTC", "2026-03-28T22:00:05.250"),
        ("today", BERLIN, "2026-03-28T23:00"),
        ("today", "UTC", "2026-03-28T00:00"),
        ("tomorrow", BERLIN, "2026-03-29T22:00"),
        ("yesterday 7:05", BERLIN, "2026-03-28T06:05"),
        ("Tomorrow at 05:00", BERLIN, "2026-03-30T03:00"),
        ("today 02:30", BERLIN, "2026-03-29T01:00"),
        ("2026-11-21T09:00", BERLIN, "2026-11-21T08:00"),
        ("2026-11-21 09:00:01.5", BERLIN, "2026-11-21T08:00:01.500"),
        ("2026-11-21", "UTC", "2026-11-21T00:00"),
        ("2026-11-21T09:00-08:00", BERLIN, "2026-11-21T17:00"),
        ("2026-11-21t09:00", BERLIN, "2026-11-21T08:00"),
        ("20261121T0900Z", BERLIN, "2026-11-21T09:00"),
        ("2026-W47-6", BERLIN, "2026-11-20T23:00"),
        ("8999-12-31T23:59-12:00", "Etc/GMT+12", "9000-01-01T11:59"),
    ],
)
def test_a_time_is_what_people_mean_by_it(text: str, zone: str, moment: str) -> None:
    assert parse_moment(text, zone, "at", NOW) == datetime.fromisoformat(f"{moment}+00:00")


def test_a_bare_duration_leads_into_the_past_where_that_is_meant() -> None:
    ago = [parse_moment(text, "UTC", "since", NOW, is_past=True) for text in ("1d", "1 day ago")]
    assert ago == [NOW - timedelta(days=1)] * 2
    ahead = parse_moment("in 1d", "UTC", "until", NOW, is_past=True)
    assert ahead == NOW + timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("soon", "'soon' is not a time", "tomorrow 05:00"),
        ("", "'' is not a time", "2026-11-21T09:00"),
        ("2026-02-30", "'2026-02-30' is not a time", "in 2h"),
        ("tomorrow 25:00", "'tomorrow 25:00' is not a time", "00:00 to 23:59"),
        ("9999-01-01", "is too far away", "2026-11-21T09:00"),
        ("8999-12-31T23:59-12:00", "'8999-12-31T23:59-12:00' is too far away", "in 2h"),
        ("1602-01-01T00:00+14:00", "'1602-01-01T00:00+14:00' is too far away", "in 2h"),
        ("2026-W47", "'2026-W47' is not a time", "2026-11-21T09:00"),
        ("2026-11-21-05:00", "'2026-11-21-05:00' is not a time", "2026-11-21T09:00"),
        ("20261121+0100", "'20261121+0100' is not a time", "2026-11-21T09:00"),
        ("2026-11-21x09:00", "'2026-11-21x09:00' is not a time", "2026-11-21T09:00"),
        ("tomorrow \N{FULLWIDTH DIGIT FIVE}:00", "is not a time", "tomorrow 05:00"),
        ("in 5000d", "'5000d' is longer than ten years", "3653d at the most"),
        ("999999999999w ago", "'999999999999w' is longer than ten years", "3653d at the most"),
        ("in 0s", "'0s' is not longer than nothing", "8h"),
        ("in 2h ago", "'in 2h ago' is not a time", "2h ago"),
    ],
)
def test_what_is_no_time_is_refused_with_the_remedy(text: str, problem: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_moment(text, "UTC", "until", NOW)
    assert caught.value.field == "until"
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
