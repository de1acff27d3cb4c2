"""Times as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.errors import BadInput
from blackboard.schedule.times import parse_moment

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
        ("soon", "'soon' is no time", "tomorrow 05:00"),
        ("", "'' is no time", "2026-11-21T09:00"),
        ("2026-02-30", "'2026-02-30' is no time", "in 2h"),
        ("tomorrow 25:00", "'tomorrow 25:00' is no time", "00:00 to 23:59"),
        ("9999-01-01", "is too far away", "2026-11-21T09:00"),
    ],
)
def test_what_is_no_time_is_refused_with_the_remedy(text: str, problem: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_moment(text, "UTC", "until", NOW)
    assert caught.value.field == "until"
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
