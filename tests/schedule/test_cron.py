"""Debian cron: what an expression means, what it does when clocks are changed, what is refused."""

import importlib.util
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.errors import BadInput
from blackboard.schedule.cron import HORIZON, Cron, idle_steps, read_fields

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "cron"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared cron tables are not here")


def next_run(cron: Cron, after: datetime) -> datetime | None:
    return next(cron.runs(after), None)


def rows(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


FIELDS = [
    ("*/15 * * * *", "minutes", (0, 15, 30, 45)),
    ("5/20 * * * *", "minutes", (5, 25, 45)),
    ("10-30/10,7,7 * * * *", "minutes", (7, 10, 20, 30)),
    ("59 * * * *", "minutes", (59,)),
    ("*/90 * * * *", "minutes", (0,)),
    ("00 07 * * *", "hours", (7,)),
    ("* 0-23/8 * * *", "hours", (0, 8, 16)),
    ("* * 31,1-2 * *", "days", {1, 2, 31}),
    ("* * * jan,DEC *", "months", {1, 12}),
    ("* * * mar-may *", "months", {3, 4, 5}),
    ("* * * * 0", "weekdays", {0}),
    ("* * * * 7", "weekdays", {0}),
    ("* * * * 5-7", "weekdays", {5, 6, 0}),
    ("* * * * Sun-tue", "weekdays", {0, 1, 2}),
    ("* * * * mon-5", "weekdays", {1, 2, 3, 4, 5}),
    ("* * * * */2", "weekdays", {0, 2, 4, 6}),
    ("* * * * *", "follows_clock", True),
    ("0 */2 * * *", "follows_clock", True),
    ("*,5 3 * * *", "follows_clock", True),
    ("0-59 0-23 * * *", "follows_clock", False),
    ("0 0 */2 * 1", "day_and_weekday", True),
    ("0 0 1 * */3", "day_and_weekday", True),
    ("0 0 1-31 * 1", "day_and_weekday", False),
    ("0 0 1,* * 1", "day_and_weekday", False),
]


@pytest.mark.parametrize(("expression", "field", "expected"), FIELDS)
def test_fields_as_they_are_read(expression: str, field: str, expected: object) -> None:
    found = getattr(read_fields(expression), field)
    assert found == (frozenset(expected) if isinstance(expected, set) else expected)


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_names_stand_for_expressions(name: str, expression: str) -> None:
    assert read_fields(name) == read_fields(expression)


REFUSED = [
    ("", "0 fields", "write five"),
    ("* * * *", "4 fields", "write five"),
    ("0 0 3 * * *", "6 fields", "seconds"),
    ("TZ=UTC 0 3 * * *", "6 fields", "timezone"),
    ("@fortnightly", "is not the name of a schedule", "@weekly"),
    ("@reboot", "@reboot", "use every"),
    ("60 * * * *", "'60' is not a minute", "0-59"),
    ("* 24 * * *", "'24' is not an hour", "0-23"),
    ("* * 0 * *", "'0' is not a day of month", "1-31"),
    ("* * 32 * *", "'32'", "1-31"),
    ("* * * 13 *", "'13' is not a month", "1-12 or jan-dec"),
    ("* * * 0 *", "'0'", "jan-dec"),
    ("* * * * 8", "'8' is not a day of week", "0-7 or sun-sat"),
    ("* * * * foo", "'foo'", "sun-sat"),
    ("jan * * * *", "'jan'", "0-59"),
    ("* * * * monday", "cannot be read", "lists of these, or the names sun-sat"),
    ("* * ? * *", "cannot be read", "use * instead"),
    ("*/0 * * * *", "step of 0", "1 or more"),
    ("*/x * * * *", "cannot be read", "*/10"),
    ("1,,2 * * * *", "cannot be read", "leave out the comma beside which there is nothing"),
    ("1,2, * * * *", "cannot be read", "leave out the comma"),
    ("0 3 * * *;", "0 fields", "no semicolon at the end"),
    ("-5 * * * *", "cannot be read", "1-5"),
    ("5- * * * *", "cannot be read", "1-5"),
    ("*-5 * * * *", "cannot be read", "1-5"),
    ("1/2/3 * * * *", "cannot be read", "*/10"),
    ("? * * * *", "cannot be read", "Sunday is 0 here, and 1 in Quartz"),
    ("* * L * *", "cannot be read", "FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=...;BYMINUTE=..."),
    ("* * L-3 * *", "cannot be read", "FREQ=MONTHLY;BYMONTHDAY=-4;BYHOUR=...;BYMINUTE=..."),
    ("* * * * L", "'L' cannot be read as day of week", "write sat, the last day of a week"),
    ("* * * * 6#3", "cannot be read", "BYDAY=3SA;BYHOUR=...;BYMINUTE=... (as a number, Sunday"),
    ("1, 2 * * * *", "6 fields", "leave out the blanks beside commas"),
    ("daily", "1 field", "write @daily"),
    ("@300", "'@300' is not the name", "use every instead"),
    ("FREQ=DAILY", "1 field", "use rrule instead"),
    ("* * 1W * *", "cannot be read", "BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1;BYHOUR=...;BYMINUTE=..."),
    ("* * LW * *", "cannot be read", "BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=...;BYMINUTE=..."),
    ("* * 15W * *", "cannot be read", "neither cron nor rrule has the nearest weekday"),
    ("* * * * 1#2", "cannot be read", "FREQ=MONTHLY;BYDAY=2MO;BYHOUR=...;BYMINUTE=..."),
    ("mail * * * *", "cannot be read as minute", "use *, 5, 1-5"),
    ("5L * * * *", "cannot be read as minute", "use *, 5, 1-5"),
    ("0 LW * * *", "cannot be read as hour", "use *, 5, 1-5"),
    ("0 3 L 3 ?", "'L' cannot be read", "FREQ=MONTHLY;BYMONTH=3;BYMONTHDAY=-1;BYHOUR=3;BYMINUTE=0"),
    ("* * * * friL", "cannot be read", "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=...;BYMINUTE=..."),
    ("H * * * *", "cannot be read", "jitter"),
    ("H/15 * * * *", "cannot be read", "write a fixed number, or * before a step; jitter spreads"),
    ("H(0-29)/10 * * * *", "cannot be read", "jitter"),
    ("0~59 * * * *", "cannot be read", "jitter"),
    ("0 0 12 * * *", "6 fields", "leave out the seconds (first, Quartz) or the year (last, AWS)"),
    ("0 0 12 ? * 2", "6 fields", "use * instead of ?; as a number, Sunday is 0 here, and 1"),
    ("0 0 12 ? * 2 2026", "7 fields", "leave out the seconds (first, Quartz) or the year"),
    ("cron(0 3 * * ? *)", "6 fields", "what is in the parentheses, and leave out the year"),
    ("@every 1h", "2 fields", "use every instead"),
    ("@every_minute", "'@every_minute' is not the name of a schedule", "use every instead"),
    ("every 5 minutes", "3 fields", "use every instead"),
    ("rate(5 minutes)", "2 fields", "use every instead"),
    ("0 0 * * fri-mon", "runs backwards", "fri-sat,sun-mon"),
    ("٣ * * * *", "cannot be read", "use *"),
    ("9999999999 * * * *", "cannot be read", "use *"),
    ("1" * 5000 + " * * * *", "cannot be read", "use *"),
    ("* 22-3 * * *", "runs backwards", "22-23,0-3"),
    ("* * * * fri-sun", "runs backwards", "fri-7"),
    ("* * * * 5-0", "runs backwards", "write 5-7: Sunday is 7"),
    ("* * * * sat-mon", "runs backwards", "write sat,sun-mon"),
    ("50-0 * * * *", "runs backwards", "write 50-59,0"),
    ("* * * nov-feb *", "runs backwards", "nov-dec,jan-feb"),
    ("0 0 31 2 *", "never matches", "a day that the month has"),
    ("0 0 30 2 *", "never matches", "a day that the month has"),
    ("0 0 31 4,6,9,11 *", "never matches", "a day that the month has"),
    ("0 0 31 2 */2", "never matches", "a day that the month has"),
]


@pytest.mark.parametrize(("expression", "problem", "remedy"), REFUSED)
def test_refusals_name_the_field_and_a_remedy(expression: str, problem: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        Cron(expression)
    assert caught.value.field == "cron"
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert len(str(caught.value)) < 300


def test_a_minute_that_the_clock_of_the_zone_always_skips_is_refused() -> None:
    """The last Sunday of March from 02:00 to 03:00 has not been seen in Berlin since 1981."""
    Cron("* 2 25-31 3 */7", "America/New_York")
    with pytest.raises(BadInput, match="never matches"):
        Cron("* 2 25-31 3 */7", "Europe/Berlin")


def test_31_february_or_a_weekday_matches_on_the_weekday() -> None:
    assert next_run(Cron("0 0 31 2 1"), datetime(2026, 1, 1, tzinfo=UTC)) == datetime(
        2026, 2, 2, tzinfo=UTC
    )


@pytest.mark.case("CAL05")
def test_the_longest_wait_of_all_is_found() -> None:
    """29 February on a Sunday: 2088, then 2128, over the missing leap day of 2100."""
    cron = Cron("0 0 29 2 */7")
    found = list(islice(cron.runs(datetime(2070, 1, 1, tzinfo=UTC)), 2))
    assert [run.year for run in found] == [2088, 2128]
    assert found[1].year - found[0].year < HORIZON


ORDINARY = [
    ("0 3 * * *", "2026-05-04T03:00:00", "2026-05-05T03:00"),
    ("0 3 * * *", "2026-05-04T02:59:59.999", "2026-05-04T03:00"),
    ("* * * * *", "2026-05-04T02:59:00", "2026-05-04T03:00"),
    ("* * * * *", "2026-05-04T02:59:30", "2026-05-04T03:00"),
    ("59 23 31 12 *", "2026-12-31T23:59:00", "2027-12-31T23:59"),
    ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00"),
    ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00"),
    ("0 0 31 * *", "2026-03-31T00:00:00", "2026-05-31T00:00"),
    ("0 0 13 * 5", "2026-02-01T00:00:00", "2026-02-06T00:00"),  # day or weekday
    ("0 0 13 * 5", "2026-02-06T00:00:00", "2026-02-13T00:00"),
    ("0 0 */2 * 1", "2026-05-01T00:00:00", "2026-05-11T00:00"),  # odd day and Monday
    ("0 0 1 * */7", "2026-01-01T00:00:00", "2026-02-01T00:00"),  # first and Sunday
    ("0 12 * * 0", "2026-05-04T00:00:00", "2026-05-10T12:00"),
    ("0 12 * * 7", "2026-05-04T00:00:00", "2026-05-10T12:00"),
    ("*/20 9-10 * * *", "2026-05-04T10:40:00", "2026-05-05T09:00"),
    ("0 0 1 1 *", "2026-02-01T00:00:00", "2027-01-01T00:00"),
]


@pytest.mark.case("CAL05")
@pytest.mark.parametrize(("expression", "after", "expected"), ORDINARY)
def test_next_run_on_ordinary_days(expression: str, after: str, expected: str) -> None:
    found = next_run(Cron(expression), datetime.fromisoformat(after + "Z"))
    assert found == datetime.fromisoformat(expected + "Z")


CHANGES = """
# London and Dublin, whose summer time is the standard one: 01:00 -> 02:00, 02:00 -> 01:00
Europe/London 30 1 * * *
    2026-03-29T00:00+00:00 -> 03-29T02:00+01 03-30T01:30+01
    2026-10-25T00:00+01:00 -> 10-25T01:30+01 10-26T01:30+00
Europe/London 30 * * * *
    2026-03-29T00:00+00:00 -> 03-29T00:30+00 03-29T02:30+01
    2026-10-25T00:45+01:00 -> 10-25T01:30+01 10-25T01:30+00 10-25T02:30+00
Europe/Dublin 30 1 * * *
    2026-03-29T00:00+00:00 -> 03-29T02:00+01 03-30T01:30+01
    2026-10-25T00:00+01:00 -> 10-25T01:30+01 10-26T01:30+00
Europe/Dublin */30 1 * * *
    2026-10-25T01:30+01:00 -> 10-25T01:00+00 10-25T01:30+00
# Several times in one gap are one run; so is a time in it and the time right after it
Europe/Berlin 0,20,40 2,3 * * *
    2026-03-29T00:00+01:00 -> 03-29T03:00+02 03-29T03:20+02
# Asked right before the change, from an instant at which the clock shows no fixed time yet
Europe/Berlin 30 1,2 * * *
    2026-03-29T01:59:59.999999+01:00 -> 03-29T03:00+02 03-30T01:30+02
Europe/Berlin 0 2 29 3 *
    2026-03-01T00:00+01:00 -> 03-29T03:00+02 2027-03-29T02:00+02
Europe/Berlin * 2 * * *
    2026-03-28T02:59+01:00 -> 03-30T02:00+02 03-30T02:01+02
Europe/Berlin */30 2 * * *
    2026-03-28T02:30+01:00 -> 03-30T02:00+02 03-30T02:30+02
# Asked in the second showing, a fixed time has had its run
Europe/Berlin 30 2 * * *
    2026-10-25T02:10+01:00 -> 10-26T02:30+01
Europe/Berlin * * * * *
    2026-10-25T02:59+02:00 -> 10-25T02:00+01 10-25T02:01+01
Europe/Berlin 0 */2 * * *
    2026-10-25T01:00+02:00 -> 10-25T02:00+02 10-25T02:00+01
# Lord Howe: half an hour, 02:00 -> 02:30, 02:00 -> 01:30
Australia/Lord_Howe 15 2 * * *
    2026-10-04T00:00+10:30 -> 10-04T02:30+11 10-05T02:15+11
Australia/Lord_Howe 30 2 * * *
    2026-10-04T00:00+10:30 -> 10-04T02:30+11 10-05T02:30+11
Australia/Lord_Howe */15 2 * * *
    2026-10-04T00:00+10:30 -> 10-04T02:30+11 10-04T02:45+11
Australia/Lord_Howe 0 * * * *
    2026-10-04T00:59+10:30 -> 10-04T01:00+10:30 10-04T03:00+11
Australia/Lord_Howe 45 1 * * *
    2026-04-05T00:00+11:00 -> 04-05T01:45+11 04-06T01:45+10:30
Australia/Lord_Howe */15 * * * *
    2026-04-05T01:30+11:00 -> 04-05T01:45+11 04-05T01:30+10:30 04-05T01:45+10:30 04-05T02:00+10:30
# Santiago: at midnight, 00:00 -> 01:00, 24:00 -> 23:00
America/Santiago @daily
    2026-09-05T12:00-04:00 -> 09-06T01:00-03 09-07T00:00-03
America/Santiago 30 0 6 9 *
    2026-09-05T12:00-04:00 -> 09-06T01:00-03
America/Santiago */30 0-1 * * *
    2026-09-05T12:00-04:00 -> 09-06T01:00-03 09-06T01:30-03
America/Santiago @daily
    2026-04-04T12:00-03:00 -> 04-05T00:00-04 04-06T00:00-04
America/Santiago 30 23 * * *
    2026-04-04T12:00-03:00 -> 04-04T23:30-03 04-05T23:30-04
America/Santiago */30 23 * * *
    2026-04-04T12:00-03:00 -> 04-04T23:00-03 04-04T23:30-03 04-04T23:00-04 04-04T23:30-04
# Troll: two hours, 01:00 -> 03:00, 03:00 -> 01:00
Antarctica/Troll 30 1,2 * * *
    2026-03-29T00:00+00:00 -> 03-29T03:00+02 03-30T01:30+02
Antarctica/Troll 0 * * * *
    2026-03-29T00:00+00:00 -> 03-29T03:00+02 03-29T04:00+02
    2026-10-25T00:30+02:00 -> 10-25T01:00+02 10-25T02:00+02 10-25T01:00+00 10-25T02:00+00
Antarctica/Troll 0 1-2 * * *
    2026-10-25T00:30+02:00 -> 10-25T01:00+02 10-25T02:00+02 10-26T01:00+00
# Apia: 30 December 2011 did not exist
Pacific/Apia 0 9 * * *
    2011-12-28T12:00-10:00 -> 2011-12-29T09:00-10 2011-12-31T00:00+14 2011-12-31T09:00+14
Pacific/Apia 0 9 30 12 *
    2011-06-01T00:00-11:00 -> 2011-12-31T00:00+14 2012-12-30T09:00+14
Pacific/Apia 0 * * * *
    2011-12-29T22:30-10:00 -> 2011-12-29T23:00-10 2011-12-31T00:00+14
Pacific/Apia */30 9 30 12 *
    2011-06-01T00:00-11:00 -> 2012-12-30T09:00+14
# Kwajalein: in 1969 23 hours came again, in 1993 21 August did not come
Pacific/Kwajalein 0 */12 * * *
    1969-09-30T11:00+11:00 -> 1969-09-30T12:00+11 1969-09-30T12:00-12 1969-10-01T00:00-12
Pacific/Kwajalein 0 12 * * *
    1969-09-30T11:00+11:00 -> 1969-09-30T12:00+11 1969-10-01T12:00-12
Pacific/Kwajalein 0 12 21 8 *
    1993-08-01T00:00-12:00 -> 1993-08-22T00:00+12 1994-08-21T12:00+12
# Tehran: at midnight too, until 2022
Asia/Tehran 15 0 * * *
    2022-03-21T12:00+03:30 -> 2022-03-22T01:00+04:30 2022-03-23T00:15+04:30
Asia/Tehran 15 23 * * *
    2022-09-21T12:00+04:30 -> 2022-09-21T23:15+04:30 2022-09-22T23:15+03:30
Asia/Tehran 15 0 * * *
    2026-03-21T12:00+03:30 -> 03-22T00:15+03:30 03-23T00:15+03:30
# Casablanca: back for Ramadan, forward after it, five weeks apart
Africa/Casablanca 30 2 * * *
    2026-02-15T00:00+01:00 -> 02-15T02:30+01 02-16T02:30+00
Africa/Casablanca */30 2 * * *
    2026-02-15T02:00+01:00 -> 02-15T02:30+01 02-15T02:00+00
Africa/Casablanca 30 2 * * *
    2026-03-22T00:00+00:00 -> 03-22T03:00+01 03-23T02:30+01
# St. John's: one minute past midnight, so the repeated hour spans two days
America/St_Johns 59 23 * * *
    2006-10-28T12:00-02:30 -> 2006-10-28T23:59-02:30 2006-10-29T23:59-03:30
America/St_Johns * * * * *
    2006-10-28T23:58-02:30 -> 2006-10-28T23:59-02:30 2006-10-29T00:00-02:30 2006-10-28T23:01-03:30
America/St_Johns 0 * * * *
    2006-10-28T23:30-02:30 -> 2006-10-29T00:00-02:30 2006-10-29T00:00-03:30 2006-10-29T01:00-03:30
America/St_Johns 0 0 29 10 *
    2006-10-29T00:00-02:30 -> 2007-10-29T00:00-02:30
# Nuuk: 23:00 -> 00:00 of the next day
America/Nuuk 30 23 * * *
    2024-03-30T12:00-02:00 -> 2024-03-31T00:00-01 2024-03-31T23:30-01
America/Nuuk 30 23 30 3 *
    2024-03-30T12:00-02:00 -> 2024-03-31T00:00-01
# Havana: 00:00 -> 01:00, 01:00 -> 00:00
America/Havana 0 0 * * *
    2024-03-09T12:00-05:00 -> 03-10T01:00-04 03-11T00:00-04
    2024-11-02T12:00-04:00 -> 11-03T00:00-04 11-04T00:00-05
America/Havana 0 * * * *
    2024-11-02T23:30-04:00 -> 11-03T00:00-04 11-03T00:00-05
# Changes of standard time
America/Caracas 45 2 * * *
    2016-05-01T00:00-04:30 -> 2016-05-01T03:00-04 2016-05-02T02:45-04
Asia/Pyongyang 45 23 * * *
    2015-08-14T12:00+09:00 -> 2015-08-14T23:45+09 2015-08-15T23:45+08:30
    2018-05-04T12:00+08:30 -> 2018-05-05T00:00+09 2018-05-05T23:45+09
Asia/Kathmandu 10 0 * * *
    1985-12-31T12:00+05:30 -> 1986-01-01T00:15+05:45 1986-01-02T00:10+05:45
# Offsets with seconds: Liberia was 44 minutes 30 seconds behind until 1972
Africa/Monrovia 30 0 * * *
    1972-01-05T12:00-00:44:30 -> 1972-01-06T00:30-00:44:30 1972-01-07T00:44:30+00
Africa/Monrovia */15 0 * * *
    1972-01-06T12:00-00:44:30 -> 1972-01-07T00:45+00 1972-01-08T00:00+00
"""


def _change_cases() -> Iterator[tuple[str, str, str, list[str]]]:
    """Zone, expression, the moment to ask from, and the next runs in the zone's time. A run in the
    year of the moment is written without it.
    """
    zone = expression = ""
    for line in CHANGES.strip().splitlines():
        if line.startswith(" "):
            after, expected = line.split("->")
            year = after.strip()[:4]
            full = [run if run[4] == "-" else f"{year}-{run}" for run in expected.split()]
            yield zone, expression, after.strip(), full
        elif not line.startswith("#"):
            zone, expression = line.split(" ", 1)


@pytest.mark.case("CAL01")
@pytest.mark.parametrize(("zone", "expression", "after", "expected"), list(_change_cases()))
def test_runs_when_clocks_are_changed(
    zone: str, expression: str, after: str, expected: list[str]
) -> None:
    found = islice(Cron(expression, zone).runs(datetime.fromisoformat(after)), len(expected))
    assert list(found) == [datetime.fromisoformat(run).astimezone(UTC) for run in expected]


@needs_data
def test_the_table_of_the_brute_force_oracle() -> None:
    """569 seeded windows around changes in ten zones."""
    wrong = []
    for row in rows("debian_oracle_cases.jsonl"):
        end = datetime.fromisoformat(row["end"])
        found = []
        for run in Cron(row["expr"], row["zone"]).runs(datetime.fromisoformat(row["start"])):
            if run >= end:
                break
            found.append(run.isoformat())
        if found[:40] != row["expect"] or len(found) != row["n"]:
            wrong.append((row["expr"], row["zone"], found[:3]))
    assert wrong == []


@needs_data
def test_the_table_of_cronsim() -> None:
    """All its rows of five fields, forward."""
    checked = 0
    for row in rows("cronsim_dst.jsonl"):
        if len(row["expr"].split()) == 5 and not row["reverse"]:
            zone = ZoneInfo(row["zone"])
            start = datetime.fromisoformat(row["start"]).replace(tzinfo=zone)
            found = islice(Cron(row["expr"], row["zone"]).runs(start), len(row["expect"]))
            assert [run.astimezone(zone).isoformat() for run in found] == row["expect"]
            checked += 1
    assert checked == 31


NOT_DEBIAN = {
    # robfig reads day of month AND-wise only after a bare *; in Debian */5 starts with * too.
    ("Mon Jul 9 23:35 2012", "0 0 0 */5 Apr,Aug,Oct Mon"): "2012-08-06T00:00:00+00:00",
    # A fixed time in a gap is skipped there; Debian runs it right after the gap.
    ("2012-03-11T00:00:00-0500", "TZ=America/New_York 0 30 2 11 Mar ?"): "2012-03-11T03:00-04:00",
    ("2012-03-11T00:00:00-0500", "TZ=America/New_York 0 0 2 * * ?"): "2012-03-11T03:00:00-04:00",
    # A fixed time shown twice runs twice there; in Debian once.
    ("2012-11-04T01:45:00-0400", "TZ=America/New_York 0 30 1 04 Nov ?"): "2013-11-04T01:30-05:00",
    ("2012-11-04T01:00:00-0400", "TZ=America/New_York 0 0 1 * * ?"): "2012-11-05T01:00:00-05:00",
    ("TZ=America/New_York 2012-11-04T01:00:00-0400", "0 0 1 * * ?"): "2012-11-05T01:00:00-05:00",
}  # fmt: skip
"""Rows of robfig_next.jsonl that contradict Debian cron, with what Debian says."""


@needs_data
def test_the_table_of_robfig() -> None:
    """Its rows have six fields and `?`, which Debian does not know: a first field of 0 is left out,
    `?` read as `*`; five rows with other seconds have no counterpart.
    """
    contradictions, unlike = set(), 0
    for row in rows("robfig_next.jsonl"):
        zone, time = "UTC", row["time"]
        spec = row["spec"].removeprefix("CRON_")
        for text in (spec, time):
            if text.startswith("TZ="):
                zone = text[3:].split()[0]
        seconds, *fields = spec.removeprefix(f"TZ={zone} ").split()
        if seconds != "0":
            unlike += 1
            continue
        expression = " ".join(fields).replace("?", "*")
        if not row["expected"]:
            with pytest.raises(BadInput, match="never matches"):
                Cron(expression, zone)
            continue
        found = next_run(Cron(expression, zone), _robfig_time(time.removeprefix(f"TZ={zone} ")))
        assert found is not None
        if (time, row["spec"]) in NOT_DEBIAN:
            contradictions.add((time, row["spec"]))
            assert found == datetime.fromisoformat(NOT_DEBIAN[time, row["spec"]])
        else:
            assert found == _robfig_time(row["expected"]), row
    assert contradictions == set(NOT_DEBIAN)
    assert unlike == 6


def _robfig_time(text: str) -> datetime:
    if text[0].isdigit():
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    _, month, day, clock, year = text.split()
    clock += ":00" if clock.count(":") == 1 else ""
    return datetime.strptime(f"{month} {day} {clock} {year}+0000", "%b %d %H:%M:%S %Y%z")


CHANGE_DAYS = [
    ("Australia/Lord_Howe", (2026, 4, 4)),
    ("Australia/Lord_Howe", (2026, 10, 3)),
    ("America/Santiago", (2026, 9, 6)),
    ("America/Santiago", (2026, 4, 5)),
    ("Africa/Casablanca", (2026, 2, 15)),
    ("Africa/Casablanca", (2026, 3, 22)),
    ("Asia/Tehran", (2021, 3, 21)),
    ("Asia/Tehran", (2021, 9, 21)),
    ("Antarctica/Troll", (2026, 3, 29)),
    ("Antarctica/Troll", (2026, 10, 25)),
    ("America/Caracas", (2016, 5, 1)),
    ("America/Caracas", (2007, 12, 9)),
    ("Asia/Pyongyang", (2018, 5, 4)),
    ("Asia/Pyongyang", (2015, 8, 14)),
    ("America/St_Johns", (2006, 10, 29)),
    ("America/St_Johns", (2006, 4, 2)),
    ("Europe/London", (2026, 3, 29)),
    ("America/Havana", (2026, 11, 1)),
    ("Pacific/Apia", (2011, 12, 30)),
    ("Pacific/Kwajalein", (1993, 8, 21)),
    ("Asia/Kathmandu", (1985, 12, 31)),
    ("America/Asuncion", (2023, 10, 1)),
    ("Asia/Beirut", (2026, 3, 29)),
]


def _midnight(day: tuple[int, int, int]) -> datetime:
    year, month, day_of_month = day
    return datetime(year, month, day_of_month, tzinfo=UTC)


def _random_field(chance: random.Random, low: int, high: int) -> str:
    kind = chance.random()
    if kind < 0.3:
        return "*"
    if kind < 0.45:
        return f"*/{chance.choice([2, 3, 5, 7, 10, 15, 20])}"
    if kind < 0.6:
        first = chance.randint(low, high)
        step = f"/{chance.choice([2, 3, 5])}" if chance.random() < 0.4 else ""
        return f"{first}-{chance.randint(first, high)}{step}"
    return ",".join(str(chance.randint(low, high)) for _ in range(chance.choice([1, 1, 2, 3])))


@needs_data
@pytest.mark.parametrize(("zone", "day"), CHANGE_DAYS)
def test_random_expressions_agree_with_a_minute_by_minute_reading(
    zone: str, day: tuple[int, int, int]
) -> None:
    """Seeded; forty hours around each change."""
    path = DATA / "debian_cron_oracle.py"
    found = importlib.util.spec_from_file_location("debian_cron_oracle", path)
    assert found is not None
    assert found.loader is not None
    oracle = importlib.util.module_from_spec(found)
    found.loader.exec_module(oracle)
    chance = random.Random(f"{zone} {day}")
    for _ in range(6):
        start = _midnight(day) - timedelta(minutes=chance.randint(360, 1500))
        end = start + timedelta(hours=40)
        hours = ["*", "0", "1", "2", "3", "0-4", "1,2", "*/2", "23", "0,12"]
        fields = [
            chance.choice([_random_field(chance, 0, 59), "0", "30", "*/15", "0,30"]),
            chance.choice([*hours, _random_field(chance, 0, 23)]),
            chance.choice(["*", "*", "*", _random_field(chance, 1, 31)]),
            "*",
            chance.choice(["*", "*", "*", _random_field(chance, 0, 7)]),
        ]
        expression = " ".join(fields)
        expected = oracle.occurrences(expression, zone, start, end)
        actual = []
        for run in Cron(expression, zone).runs(start):
            if run >= end:
                break
            actual.append(run)
        assert actual == expected, (expression, start)


expressions = st.builds(
    lambda *fields: " ".join(fields),
    st.sampled_from(["*", "0", "30", "*/7", "59", "0,15", "1-5"]),
    st.sampled_from(["*", "0", "2", "23", "*/2", "1-3", "0,12"]),
    st.sampled_from(["*", "1", "29", "31", "*/2", "13,14"]),
    st.sampled_from(["*", "1", "3", "10-12", "*/3"]),
    st.sampled_from(["*", "0", "1-5", "7", "*/2"]),
)
zones = st.sampled_from(sorted({zone for zone, _ in CHANGE_DAYS} | {"UTC", "Africa/Monrovia"}))
moments = st.integers(-(10**6), 3 * 10**9).map(lambda second: datetime.fromtimestamp(second, UTC))
near_changes = st.builds(
    lambda day, seconds: _midnight(day) + timedelta(seconds=seconds),
    st.sampled_from([day for _, day in CHANGE_DAYS]),
    st.integers(-100_000, 100_000),
)


@settings(max_examples=150, deadline=None)
@given(expressions, zones, moments | near_changes, st.floats(0, 1))
def test_the_next_run_is_later_and_is_the_next_from_every_moment_before_it(
    expression: str, zone: str, after: datetime, share: float
) -> None:
    cron = Cron(expression, zone)
    run = next_run(cron, after)
    assert run is not None
    assert run > after
    assert run.tzinfo is UTC
    between = after + (run - after) * share
    if between < run:
        assert next_run(cron, between) == run


@settings(max_examples=100, deadline=None)
@given(expressions, zones, moments | near_changes, st.timedeltas(timedelta(0), timedelta(days=3)))
def test_a_later_question_never_has_an_earlier_answer(
    expression: str, zone: str, after: datetime, later: timedelta
) -> None:
    cron = Cron(expression, zone)
    first, second = next_run(cron, after), next_run(cron, after + later)
    assert first is not None
    assert second is not None
    assert first <= second


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/90 * * * *", "*/90 matches the minute 0 alone"),
        ("5 6,20/8 * * *", "20/8 matches the hour 20 alone"),
        ("0 0 * Jan-Mar/3 *", "Jan-Mar/3 matches the month 1 alone"),
        ("*/45 */5 * * *", ""),
        ("@daily", ""),
    ],
)
def test_a_step_beyond_its_field_is_pointed_out(expression: str, words: str) -> None:
    assert idle_steps(expression) == words


def test_a_refusal_has_names_as_they_were_written() -> None:
    with pytest.raises(BadInput, match="'MON' is not a minute"):
        Cron("MON 3 * * *")
    assert read_fields("0 3 * JAN Mon-FRI") == read_fields("0 3 * jan mon-fri")
