"""Recurrence rules: the runs they stand for, next to what dateutil alone says, and refusals."""

from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice, product, takewhile
from typing import Any

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.errors import BadInput
from blackboard.schedule.expansion import MOST_SKIPS, Expansion, expansion
from blackboard.schedule.rrule import ANCHOR, RRule, idle_exclusions, read_parts

SIXTY = ",".join(map(str, range(60)))

RUNS = """
# Without DTSTART: from Monday, 3 January 2000, at midnight
UTC FREQ=DAILY
    2026-05-04T13:07Z -> 2026-05-05T00:00Z 2026-05-06T00:00Z
UTC RRULE:FREQ=WEEKLY
    2026-05-04T13:07Z -> 2026-05-11T00:00Z 2026-05-18T00:00Z
UTC FREQ=WEEKLY;INTERVAL=2
    2026-05-04T13:07Z -> 2026-05-18T00:00Z 2026-06-01T00:00Z
UTC freq=weekly;byday=mo,fr;byhour=9;byminute=30;
    2026-05-04T09:30Z -> 2026-05-08T09:30Z 2026-05-11T09:30Z
UTC FREQ=MONTHLY
    2026-05-04T00:00Z -> 2026-06-03T00:00Z
UTC FREQ=YEARLY
    2026-05-04T00:00Z -> 2027-01-03T00:00Z
UTC FREQ=MONTHLY;BYDAY=-1FR
    2026-05-04T00:00Z -> 2026-05-29T00:00Z 2026-06-26T00:00Z
UTC FREQ=MONTHLY;BYSETPOS=-1;BYDAY=MO,TU,WE,TH,FR
    2026-05-04T00:00Z -> 2026-05-29T00:00Z 2026-06-30T00:00Z
UTC FREQ=MONTHLY;BYMONTHDAY=31
    2026-05-31T00:00Z -> 2026-07-31T00:00Z
UTC FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29
    2096-03-01T00:00Z -> 2104-02-29T00:00Z
# Weekdays with and without numbers: the days of both
UTC FREQ=MONTHLY;BYDAY=MO,1MO
    2026-05-04T00:00Z -> 2026-05-11T00:00Z 2026-05-18T00:00Z
UTC FREQ=MONTHLY;BYDAY=TU,2SU
    2026-05-04T13:07Z -> 2026-05-05T00:00Z 2026-05-10T00:00Z 2026-05-12T00:00Z
UTC FREQ=YEARLY;BYDAY=MO,-1SU
    2026-12-20T00:00Z -> 2026-12-21T00:00Z 2026-12-27T00:00Z 2026-12-28T00:00Z
UTC FREQ=YEARLY;BYMONTH=5;BYDAY=1FR,MO
    2026-05-25T13:07Z -> 2027-05-03T00:00Z 2027-05-07T00:00Z
UTC FREQ=MONTHLY;BYDAY=1MO,FR;BYSETPOS=-1
    2026-05-04T13:07Z -> 2026-05-29T00:00Z 2026-06-26T00:00Z
# A week counts positions from its first day on, also that of DTSTART (libical, icalrecur_test.txt)
UTC DTSTART:20240102T120000\\nRRULE:FREQ=WEEKLY;BYDAY=MO,TU,SU,SA,TH;BYSETPOS=3,2;COUNT=4
    2024-01-01T00:00Z -> 2024-01-02T12:00Z 2024-01-04T12:00Z 2024-01-09T12:00Z 2024-01-11T12:00Z end
UTC DTSTART:20241023T120000\\nRRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1,3;COUNT=3
    2024-10-22T00:00Z -> 2024-10-23T12:00Z 2024-10-28T12:00Z 2024-10-30T12:00Z end
UTC DTSTART:20241024T120000\\nRRULE:FREQ=WEEKLY;INTERVAL=2;WKST=TH;BYDAY=WE,TH;BYSETPOS=2
    2024-10-22T00:00Z -> 2024-10-30T12:00Z 2024-11-13T12:00Z
# A week of the year without a day is one day of it: that of the start (libical)
UTC DTSTART:20130101T000000\\nRRULE:FREQ=YEARLY;BYWEEKNO=1,2
    2012-12-31T00:00Z -> 2013-01-01T00:00Z 2013-01-08T00:00Z 2013-12-31T00:00Z 2014-01-07T00:00Z
UTC FREQ=YEARLY;BYWEEKNO=20
    2026-05-04T13:07Z -> 2026-05-11T00:00Z 2027-05-17T00:00Z
UTC FREQ=YEARLY;BYWEEKNO=20;BYDAY=TU
    2026-05-04T13:07Z -> 2026-05-12T00:00Z 2027-05-18T00:00Z
# The last week of a year has days of the next, and the first one of the year before: 2021 has 52
# weeks, up to 2 January 2022, and 2026 has 53
UTC FREQ=YEARLY;BYWEEKNO=52;BYDAY=SA
    2021-12-31T00:00Z -> 2022-01-01T00:00Z 2022-12-31T00:00Z 2023-12-30T00:00Z
UTC FREQ=YEARLY;BYWEEKNO=53;BYDAY=SU
    2021-01-03T00:00Z -> 2027-01-03T00:00Z 2033-01-02T00:00Z 2038-01-03T00:00Z 2044-01-03T00:00Z
UTC FREQ=YEARLY;BYWEEKNO=-52;BYDAY=MO
    2024-06-01T00:00Z -> 2024-12-30T00:00Z 2026-01-05T00:00Z 2027-01-04T00:00Z
UTC FREQ=HOURLY;BYWEEKNO=53;BYHOUR=9;BYDAY=SU
    2021-01-04T00:00Z -> 2027-01-03T09:00Z 2033-01-02T09:00Z
UTC FREQ=YEARLY;BYWEEKNO=52;BYDAY=SA,SU;WKST=SU
    2026-12-20T00:00Z -> 2026-12-27T00:00Z 2027-01-02T00:00Z 2027-12-26T00:00Z
# Short periods, years after DTSTART
UTC FREQ=SECONDLY;INTERVAL=7
    2026-05-04T13:07:22.5Z -> 2026-05-04T13:07:23Z 2026-05-04T13:07:30Z
UTC FREQ=MINUTELY
    2026-05-04T13:07:22Z -> 2026-05-04T13:08Z
UTC DTSTART:19700101T000000\\nFREQ=SECONDLY
    2026-05-04T13:07:22Z -> 2026-05-04T13:07:23Z
UTC FREQ=HOURLY;BYDAY=MO;BYMINUTE=5,10
    2026-05-04T22:10Z -> 2026-05-04T23:05Z 2026-05-04T23:10Z 2026-05-11T00:05Z
UTC FREQ=HOURLY;BYMINUTE=0,20,40;BYSETPOS=-1
    2026-05-04T22:50Z -> 2026-05-04T23:40Z 2026-05-05T00:40Z
UTC FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=29;BYHOUR=12;BYMINUTE=0;BYSECOND=0
    2026-05-04T13:07Z -> 2028-02-29T12:00Z 2032-02-29T12:00Z
# Days of the month that some months and years do not have
UTC DTSTART:20240229T090000\\nRRULE:FREQ=YEARLY
    2026-05-04T00:00Z -> 2028-02-29T09:00Z 2032-02-29T09:00Z
UTC DTSTART:20240131T090000\\nRRULE:FREQ=MONTHLY
    2026-05-04T00:00Z -> 2026-05-31T09:00Z 2026-07-31T09:00Z
# COUNT counts from DTSTART
UTC DTSTART:20260504T090000\\nRRULE:FREQ=DAILY;COUNT=3
    2020-01-01T00:00Z -> 2026-05-04T09:00Z 2026-05-05T09:00Z 2026-05-06T09:00Z end
    2026-05-05T09:00Z -> 2026-05-06T09:00Z end
    2026-05-06T09:00Z -> end
# UNTIL is in, with Z or in the zone
Europe/Berlin DTSTART:20260504T090000\\nRRULE:FREQ=DAILY;UNTIL=20260505T090000
    2026-05-01T00:00Z -> 2026-05-04T07:00Z 2026-05-05T07:00Z end
Europe/Berlin DTSTART:20260504T090000\\nRRULE:FREQ=DAILY;UNTIL=20260505T070000Z
    2026-05-01T00:00Z -> 2026-05-04T07:00Z 2026-05-05T07:00Z end
Europe/Berlin DTSTART:20260504T090000\\nRRULE:FREQ=DAILY;UNTIL=20260505T065959Z
    2026-05-01T00:00Z -> 2026-05-04T07:00Z end
UTC FREQ=DAILY;UNTIL=20260505
    2026-05-03T00:00Z -> 2026-05-04T00:00Z 2026-05-05T00:00Z end
# A date alone is that day, whole, in the zone
Europe/Berlin FREQ=DAILY;BYHOUR=9,23;UNTIL=20260505
    2026-05-04T12:00Z -> 2026-05-04T21:00Z 2026-05-05T07:00Z 2026-05-05T21:00Z end
Europe/Berlin DTSTART:20260504T220000Z\\nRRULE:FREQ=DAILY;UNTIL=20260505
    2026-05-01T00:00Z -> 2026-05-04T22:00Z 2026-05-05T22:00Z end
Europe/Berlin FREQ=DAILY;BYHOUR=0,9,23\\nEXDATE;VALUE=DATE:20260505,20260506
    2026-05-04T12:00Z -> 2026-05-04T21:00Z 2026-05-06T22:00Z 2026-05-07T07:00Z
UTC FREQ=SECONDLY\\nEXDATE:20260505
    2026-05-04T23:59:58Z -> 2026-05-04T23:59:59Z 2026-05-06T00:00Z
America/Havana FREQ=MINUTELY;INTERVAL=30\\nEXDATE:20261031
    2026-10-31T03:45Z -> 2026-11-01T04:00Z 2026-11-01T04:30Z
# RDATE, EXDATE, several rules
UTC DTSTART:20260101T090000\\nRDATE:20270101T000000Z,20280101
    2025-01-01T00:00Z -> 2026-01-01T09:00Z 2027-01-01T00:00Z 2028-01-01T09:00Z end
UTC RDATE:20270101T000000
    2025-01-01T00:00Z -> 2027-01-01T00:00Z end
UTC DTSTART:20260504T090000\\nFREQ=DAILY\\nEXDATE:20260505T090000Z,20260506T090000
    2026-05-04T09:00Z -> 2026-05-07T09:00Z
UTC FREQ=DAILY\\nEXDATE;VALUE=DATE:20260505
    2026-05-04T09:00Z -> 2026-05-06T00:00Z
UTC FREQ=DAILY\\nFREQ=WEEKLY;BYDAY=TU;BYHOUR=0,12\\nRDATE:20260505T060000
    2026-05-04T09:00Z -> 2026-05-05T00:00Z 2026-05-05T06:00Z 2026-05-05T12:00Z 2026-05-06T00:00Z
# Wall time: 09:00 stays 09:00, unless DTSTART is in UTC
Europe/Berlin DTSTART:20260101T090000\\nRRULE:FREQ=DAILY
    2026-03-28T00:00Z -> 2026-03-28T08:00Z 2026-03-29T07:00Z
Europe/Berlin DTSTART;TZID=Europe/Berlin:20260101T090000\\nRRULE:FREQ=DAILY
    2026-03-28T00:00Z -> 2026-03-28T08:00Z 2026-03-29T07:00Z
Europe/Berlin DTSTART:20260101T090000Z\\nRRULE:FREQ=DAILY
    2026-03-28T00:00Z -> 2026-03-28T09:00Z 2026-03-29T09:00Z
# A gap: once, right after it. A time shown twice: once, the first time
Europe/Berlin FREQ=DAILY;BYHOUR=2;BYMINUTE=0,30
    2026-03-28T12:00Z -> 2026-03-29T01:00Z 2026-03-30T00:00Z 2026-03-30T00:30Z
    2026-10-24T12:00Z -> 2026-10-25T00:00Z 2026-10-25T00:30Z 2026-10-26T01:00Z
    2026-10-25T01:10Z -> 2026-10-26T01:00Z
America/Santiago FREQ=DAILY
    2026-09-05T12:00Z -> 2026-09-06T04:00Z 2026-09-07T03:00Z
Australia/Lord_Howe FREQ=DAILY;BYHOUR=2;BYMINUTE=15
    2026-10-03T12:00Z -> 2026-10-03T15:30Z 2026-10-04T15:15Z
Pacific/Apia FREQ=DAILY;BYHOUR=9
    2011-12-29T12:00Z -> 2011-12-29T19:00Z 2011-12-30T10:00Z 2011-12-30T19:00Z
Europe/Berlin FREQ=HOURLY
    2026-10-24T23:30Z -> 2026-10-25T00:00Z 2026-10-25T02:00Z
# An RDATE in UTC may be the second showing
Europe/Berlin DTSTART:20261025T023000\\nRDATE:20261025T013000Z
    2026-10-01T00:00Z -> 2026-10-25T00:30Z 2026-10-25T01:30Z end
"""


def _cases() -> list[tuple[str, str, str, list[str]]]:
    """Zone, text, the moment to ask from, and the next runs; `end` when there are no more."""
    cases = []
    zone = text = ""
    for line in RUNS.strip().splitlines():
        if line.startswith(" "):
            after, expected = line.split("->")
            cases.append((zone, text, after.strip(), expected.split()))
        elif not line.startswith("#"):
            zone, text = line.split(" ", 1)
    return cases


@pytest.mark.case("CAL01", "CAL05")
@pytest.mark.parametrize(("zone", "text", "after", "expected"), _cases())
def test_runs(zone: str, text: str, after: str, expected: list[str]) -> None:
    runs = RRule(text, zone).runs(datetime.fromisoformat(after))
    for word in expected:
        wanted = None if word == "end" else datetime.fromisoformat(word)
        assert next(runs, None) == wanted


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("RRULE:FREQ=DAILY", "FREQ=DAILY"),
        ("  freq=daily  ", "FREQ=DAILY"),
        ("DTSTART:20260101T000000\nFREQ=DAILY", r"DTSTART:20260101T000000\nRRULE:FREQ=DAILY"),
        ("\n DTSTART:20260101\r\n  RRULE:FREQ=DAILY\n", r"DTSTART:20260101\nRRULE:FREQ=DAILY"),
        (
            "FREQ=DAILY\nEXDATE:20260101T0\n 00000,20260102T000000",
            r"RRULE:FREQ=DAILY\nEXDATE:20260101T000000,20260102T000000",
        ),
        (
            'DTSTART;TZID="Europe/Berlin":20260101T000000\nFREQ=DAILY',
            r"DTSTART;TZID=Europe/Berlin:20260101T000000\nRRULE:FREQ=DAILY",
        ),
        (
            "dtstart;tzid=Europe/Berlin:20260101t000000\nfreq=daily",
            r"DTSTART;tzid=Europe/Berlin:20260101T000000\nRRULE:FREQ=DAILY",
        ),
    ],
)
def test_a_text_is_kept_on_one_canonical_line(text: str, canonical: str) -> None:
    rule = RRule(text, "Europe/Berlin")
    assert rule.text == f"rrule {canonical}"
    assert RRule(rule.rule, "Europe/Berlin") == rule


IDLE = [
    ("FREQ=DAILY", "Europe/Berlin", []),
    ("DTSTART:20261201T090000\nFREQ=DAILY\nEXDATE:20261202T090000,20261203", "UTC", []),
    ("DTSTART:20261201T090000\nFREQ=DAILY\nEXDATE:20261202T093000", "UTC", ["20261202T093000"]),
    ("DTSTART:20261201T090000\nFREQ=DAILY\nEXDATE:20261130", "UTC", ["20261130"]),
    ("FREQ=WEEKLY\nEXDATE:20261207T000000Z", "Europe/Berlin", ["20261207T000000Z"]),
    ("FREQ=WEEKLY\nEXDATE:20261207T010000Z", None, []),
    ("DTSTART;TZID=Europe/Berlin:20261201T090000\nFREQ=DAILY\nEXDATE:20261202T080000Z", None, []),
]


@pytest.mark.parametrize(("text", "zone", "idle"), IDLE)
def test_an_exclusion_that_is_no_time_of_the_rule_is_idle(
    text: str, zone: str | None, idle: list[str]
) -> None:
    assert idle_exclusions(text, zone) == idle


NEVER = [
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31",
    "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=31",
    "FREQ=WEEKLY;BYMONTH=2;BYMONTHDAY=31",
    "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31",
    "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=31",
    "FREQ=DAILY;INTERVAL=7;BYDAY=TU",  # counts from a Monday
    "FREQ=HOURLY;INTERVAL=168;BYDAY=TU",
    "FREQ=HOURLY;INTERVAL=1000000;BYMONTH=1;BYMONTHDAY=1",
    "DTSTART:20010101T000000\nRRULE:FREQ=YEARLY;INTERVAL=2;BYMONTH=2;BYMONTHDAY=29",
    "FREQ=DAILY;BYSETPOS=2",
    "FREQ=DAILY;UNTIL=19990101T000000Z",
    "DTSTART:20260101T090000\nRRULE:FREQ=DAILY;COUNT=1\nEXDATE:20260101T090000",
    "EXDATE:20260101T090000",
]


@pytest.mark.parametrize("text", NEVER)
def test_a_text_without_any_run_is_refused_in_bounded_time(text: str) -> None:
    with pytest.raises(BadInput, match="no run at all") as caught:
        RRule(text)
    assert caught.value.field == "rrule"


REFUSED = [
    ("", "is not part of a rule", "RFC 5545"),
    ("soon", "is not part of a rule", "RFC 5545"),
    ("INTERVAL=2", "FREQ= is not known", "DAILY"),
    ("FREQ=FORTNIGHTLY", "FREQ=FORTNIGHTLY is not known", "WEEKLY"),
    ("FREQ=DAILY;BYEASTER=0", "'BYEASTER' is not part", "RFC 5545"),
    ("FREQ=DAILY;FREQ=DAILY", "FREQ occurs twice", "keep one"),
    ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0 is out of bounds", "1 to 1000000"),
    ("FREQ=DAILY;INTERVAL=-1", "out of bounds", "1 to 1000000"),
    ("FREQ=DAILY;INTERVAL=two", "out of bounds", "1 to 1000000"),
    ("FREQ=DAILY;INTERVAL=1,2", "out of bounds", "1 to 1000000"),
    ("FREQ=DAILY;BYHOUR=24", "BYHOUR=24 is out of bounds", "0 to 23"),
    ("FREQ=DAILY;BYHOUR=", "BYHOUR= is out of bounds", "0 to 23"),
    ("FREQ=DAILY;BYSECOND=60", "out of bounds", "0 to 59"),
    ("FREQ=DAILY;BYMONTH=13", "out of bounds", "1 to 12"),
    ("FREQ=MONTHLY;BYMONTHDAY=0", "out of bounds", "not 0"),
    ("FREQ=MONTHLY;BYMONTHDAY=32", "out of bounds", "-31 to 31"),
    ("FREQ=MONTHLY;BYDAY=MOO", "BYDAY=MOO cannot be read", "use MO"),
    ("FREQ=MONTHLY;BYDAY=", "BYDAY= cannot be read", "use MO"),
    ("FREQ=DAILY;BYDAY=1MO", "BYDAY=1MO cannot be read with FREQ=DAILY", "MONTHLY"),
    ("FREQ=MONTHLY;BYDAY=1TU,8TU", "no month has 8TU", "BY parts"),
    ("FREQ=YEARLY;BYMONTH=2;BYDAY=-6MO", "no month has -6MO", "BY parts"),
    ("FREQ=YEARLY;BYDAY=54MO", "no year has 54MO", "BY parts"),
    ("FREQ=WEEKLY;WKST=XX", "WKST=XX is not a weekday", "MO"),
    ("FREQ=DAILY;COUNT=3", "COUNT has nothing to count from", "DTSTART"),
    ("DTSTART:20260101\nFREQ=DAILY;COUNT=0", "COUNT=0", "1 to 10000"),
    ("DTSTART:20260101\nFREQ=DAILY;COUNT=10001", "COUNT=10001", "1 to 10000"),
    ("DTSTART:20260101\nFREQ=DAILY;COUNT=2;UNTIL=20270101", "exclude each other", "leave one"),
    ("DTSTART:20260101\nDTSTART:20270101\nFREQ=DAILY", "more than one DTSTART", "leave one"),
    ("DTSTART:20260101,20270101\nFREQ=DAILY", "more than one DTSTART", "leave one"),
    ("DTSTART:tomorrow\nFREQ=DAILY", "'TOMORROW' is not a time", "20261231T235900"),
    ("DTSTART:20260230\nFREQ=DAILY", "'20260230' does not exist", "20261231T235900"),
    ("DTSTART:00010101\nFREQ=DAILY", "'00010101' is too far away", "20261231T235900"),
    ("DTSTART;VALUE=PERIOD:20260101\nFREQ=DAILY", "'VALUE=PERIOD' of DTSTART", "leave it out"),
    ("DTSTART;TZID=Asia/Tokyo:20260101\nFREQ=DAILY", "in 'Asia/Tokyo', the item in 'UTC'", "Tokyo"),
    ("EXRULE:FREQ=DAILY\nFREQ=DAILY", "'EXRULE' is not known", "EXDATE"),
    ("FREQ=HOURLY;INTERVAL=24;BYHOUR=5", "contradicts itself", "BY parts"),
    ("FREQ=MINUTELY;INTERVAL=1440;BYHOUR=5", "contradicts itself", "INTERVAL"),
    ("FREQ=MINUTELY;BYSETPOS=2", "BYSETPOS is beyond the 1 times", "smaller"),
    (f"FREQ=YEARLY;BYDAY=MO;BYSETPOS={','.join(map(str, range(1, 40)))}", "39 positions", "31"),
    (
        f"FREQ=DAILY;BYHOUR=0,1;BYMINUTE={SIXTY};BYSECOND={SIXTY}",
        "7200 times in one period",
        "shorter FREQ",
    ),
    ("\n".join(["FREQ=DAILY"] * 6), "6 rules are too many", "at most 5"),
    ("FREQ=DAILY\nEXDATE:" + ",".join(["20260101"] * 4000), "characters are too many", "20000"),
]


@pytest.mark.parametrize(("text", "problem", "remedy"), REFUSED)
def test_refusals_name_the_field_and_a_remedy(text: str, problem: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        RRule(text)
    assert caught.value.field == "rrule"
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert len(str(caught.value)) < 300


def test_a_search_below_a_day_goes_on_as_long_as_it_finds_something() -> None:
    """More Mondays than it may leap in vain: the count starts again with every hit."""
    found = list(
        islice(
            RRule("FREQ=HOURLY;BYDAY=MO;BYHOUR=5").runs(datetime(2026, 1, 1, tzinfo=UTC)),
            MOST_SKIPS + 9,
        )
    )
    assert found[-1] - found[0] == timedelta(weeks=MOST_SKIPS + 8)


def test_the_far_future_is_the_same_calendar() -> None:
    runs = RRule("FREQ=MONTHLY;BYDAY=1MO").runs(datetime(8999, 12, 1, tzinfo=UTC))
    assert next(runs).isoformat() == "8999-12-02T00:00:00+00:00"


@cache
def weeks_of(year: int, *, begins: int) -> list[date]:
    """The first days of its weeks: those that have four days of it or more, as RFC 5545 says."""
    days = [date(year, 1, 4) + timedelta(days=n) for n in range(-6, 366)]
    middle = timedelta(days=3)
    return [day for day in days if day.weekday() == begins and (day + middle).year == year]


def is_of_week(day: date, number: int, *, begins: int) -> bool:
    first = day - timedelta(days=(day.weekday() - begins) % 7)
    weeks = weeks_of((first + timedelta(days=3)).year, begins=begins)
    return abs(number) <= len(weeks) and weeks[number - (number > 0)] == first


@pytest.mark.parametrize("frequency", ["YEARLY", "MONTHLY", "WEEKLY"])
@pytest.mark.parametrize("number", [1, 52, 53, -1, -53])
@pytest.mark.parametrize(("positions", "begins"), [("1", "MO"), ("-1,2", "SU"), ("3,-3", "TH")])
def test_positions_are_counted_among_the_days_of_the_weeks(
    frequency: str, number: int, positions: str, begins: str
) -> None:
    """Day by day, with two times on each."""
    start, end = datetime(2008, 3, 5, 9, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
    week_start = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"].index(begins)
    rule = RRule(
        f"DTSTART:20080305T090000\nRRULE:FREQ={frequency};BYWEEKNO={number};WKST={begins}"
        f";BYDAY=MO,TU,WE,SA,SU;BYHOUR=17,9;BYSETPOS={positions}"
    )
    periods: dict[Any, list[datetime]] = {}
    for n, hour in product(range((end - start).days + 400), (9, 17)):
        moment = datetime(2007, 12, 24, hour, tzinfo=UTC) + timedelta(days=n)
        if is_of_week(moment.date(), number, begins=week_start) and moment.weekday() not in {3, 4}:
            week = (moment - timedelta(days=(moment.weekday() - week_start) % 7)).date()
            period = {"YEARLY": moment.year, "MONTHLY": (moment.year, moment.month)}
            periods.setdefault(period.get(frequency, week), []).append(moment)
    expected = {
        moments[place - (place > 0)]
        for moments in periods.values()
        for place in map(int, positions.split(","))
        if abs(place) <= len(moments)
    }
    found = [*takewhile(end.__gt__, rule.runs(start - timedelta(days=9)))]
    assert found == sorted(moment for moment in expected if start <= moment < end)


def test_to_find_a_position_the_days_of_a_period_are_made_and_not_all_their_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[datetime] = []
    is_in_weeks = Expansion._is_in_weeks

    def counted(self: Expansion, wall: datetime) -> bool:
        seen.append(wall)
        return is_in_weeks(self, wall)

    monkeypatch.setattr(Expansion, "_is_in_weeks", counted)
    weeks, hours, minutes = (",".join(map(str, range(n))) for n in (54, 24, 15))
    rule = RRule(
        f"FREQ=YEARLY;BYWEEKNO={weeks[2:]};BYDAY=MO,TU,WE,TH,FR,SA,SU;BYHOUR={hours}"
        f";BYMINUTE={minutes};BYSETPOS=-1,-361"
    )
    seen.clear()
    found = [*islice(rule.runs(datetime(2026, 3, 5, tzinfo=UTC)), 2)]
    assert found == [datetime(2026, 12, day, 23, 14, tzinfo=UTC) for day in (30, 31)]
    assert 0 < len(seen) < 1000


@pytest.mark.parametrize("frequency", ["YEARLY", "MONTHLY"])
def test_to_find_a_time_the_days_of_a_period_are_made_and_not_all_their_times(
    frequency: str,
) -> None:
    hours, minutes = (",".join(map(str, range(n))) for n in (24, 60))
    text = f"FREQ={frequency};BYDAY=MO,TU,WE,TH,FR,SA,SU;BYHOUR={hours};BYMINUTE={minutes}"
    found = [*islice(RRule(text).runs(datetime(2026, 12, 31, 23, 58, 30, tzinfo=UTC)), 2)]
    assert found == [datetime(2026, 12, 31, 23, 59, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)]
    days = islice(expansion(read_parts(text), ANCHOR).rule, 3)
    assert [*days] == [ANCHOR + timedelta(days=n) for n in range(3)]


frequencies = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"]


@st.composite
def rules(draw: Any) -> str:
    """Rules of every frequency, most of them with runs."""
    frequency = draw(st.sampled_from(frequencies))
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(st.integers(1, 5))}"]
    options = {
        "BYMONTH": ["1", "2,3", "12"],
        "BYMONTHDAY": ["1", "29,-1", "31"],
        "BYDAY": ["MO", "SA,SU"] + (["2MO", "-1FR"] if frequency in frequencies[:2] else []),
        "BYHOUR": ["3", "9,17"],
        "BYMINUTE": ["0,30"],
        "WKST": ["SU"],
    }
    for name, values in options.items():
        if draw(st.integers(0, 3)) == 0:
            parts.append(f"{name}={draw(st.sampled_from(values))}")
    return ";".join(parts)


@settings(max_examples=100, deadline=None)
@given(rules(), st.integers(0, 400 * 86400), st.integers(0, 900 * 86400))
def test_moving_a_rule_forward_changes_none_of_its_runs(text: str, start: int, later: int) -> None:
    """dateutil, stepping all the way from DTSTART, says the same."""
    begin = datetime(2023, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
    after = begin + timedelta(seconds=later // (60 if "MINUTELY" in text else 1))
    full = f"DTSTART:{begin:%Y%m%dT%H%M%S}\nRRULE:{text}"
    try:
        rule = RRule(full)
    except BadInput as refused:
        assert "no run at all" in refused.problem or "contradicts" in refused.problem  # noqa: PT017
        return
    found = [run.replace(tzinfo=None) for run in islice(rule.runs(after), 4)]
    plain = rrulestr(full)
    assert found == list(islice(plain.xafter(after.replace(tzinfo=None)), 4))
