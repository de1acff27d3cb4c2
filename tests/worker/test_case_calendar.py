"""Days of 23 and 25 hours, and days, months and weeks that not every month or year has."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from blackboard.errors import BadInput
from blackboard.schedule.schedule import Cron, Every, RRule, Schedule, next_due

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def day(zone: str, text: str) -> tuple[datetime, datetime]:
    """When a local day begins, and when the next one does."""
    begins = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
    ends = begins + timedelta(days=1)
    return begins.astimezone(UTC), ends.astimezone(UTC)


def slots(schedule: Schedule, begins: datetime, ends: datetime) -> list[datetime]:
    """All slots of a time, its begin among them."""
    found, after = [], begins - timedelta(milliseconds=1)
    while (slot := next_due(schedule, after)) is not None and slot < ends:
        found.append(slot)
        after = slot
    return found


DAYS = [
    (BERLIN, "2026-03-29", 23),
    (BERLIN, "2026-03-30", 24),
    (BERLIN, "2026-10-25", 25),
    (NEW_YORK, "2026-03-08", 23),
    (NEW_YORK, "2026-11-01", 25),
]


@pytest.mark.case("CAL03")
@pytest.mark.parametrize(("zone", "text", "hours"), DAYS)
def test_cal03_an_hourly_item_has_as_many_runs_as_its_day_has_hours(
    zone: str, text: str, hours: int
) -> None:
    found = slots(Cron("0 * * * *", zone), *day(zone, text))
    assert len(found) == hours
    assert {b - a for a, b in pairwise(found)} == {timedelta(hours=1)}


@pytest.mark.case("CAL03")
@pytest.mark.parametrize(("zone", "text", "hours"), DAYS)
@pytest.mark.parametrize("how", ["every", "rrule"])
def test_cal03_what_runs_every_15_seconds_is_never_silent_for_an_hour(
    zone: str, text: str, hours: int, how: str
) -> None:
    """The wall of a rule shows an hour twice in autumn, and its times are those of the wall."""
    fifteen = timedelta(seconds=15)
    if how == "every":
        found = slots(Every(fifteen, zone), *day(zone, text))
        assert {b - a for a, b in pairwise(found)} == {fifteen}
        assert len(found) == hours * 240
    else:
        begins, ends = day(zone, text)
        rule = RRule("DTSTART:20260101T000000Z\nRRULE:FREQ=SECONDLY;INTERVAL=15", zone)
        runs = list(takewhile(lambda slot: slot < ends, rule.runs(begins - fifteen)))
        assert {b - a for a, b in pairwise(runs)} == {fifteen}
        assert len(runs) == hours * 240


@pytest.mark.case("CAL03")
@pytest.mark.parametrize(("zone", "text", "hours"), DAYS)
def test_cal03_what_runs_every_minute_runs_in_every_minute_of_the_day(
    zone: str, text: str, hours: int
) -> None:
    assert len(slots(Cron("* * * * *", zone), *day(zone, text))) == hours * 60


CALENDAR = [
    # 29 February, also over a century that has none
    (Cron("0 12 29 2 *"), "2027-01-01", "2028-02-29 2032-02-29"),
    (Cron("0 12 29 2 *"), "2096-03-01", "2104-02-29"),
    (RRule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYHOUR=12"), "2096-03-01", "2104-02-29"),
    (Cron("0 12 28 2 *"), "2100-01-01", "2100-02-28 2101-02-28"),
    (Cron("0 12 1 3 *"), "2100-02-28", "2100-03-01"),
    # the last day, the last working day, the day before the last
    (RRule("FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=12"), "2028-02-01", "2028-02-29 2028-03-31"),
    (RRule("FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=12"), "2100-02-01", "2100-02-28 2100-03-31"),
    (
        RRule("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=12"),
        "2026-01-15",
        "2026-01-30 2026-02-27 2026-03-31",
    ),
    (RRule("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=12"), "2026-07-01", "2026-07-31 2026-08-28"),
    (RRule("FREQ=MONTHLY;BYMONTHDAY=-2;BYHOUR=12"), "2027-02-01", "2027-02-27 2027-03-30"),
    # a day that some months do not have
    (Cron("0 12 31 * *"), "2026-01-31T12:00", "2026-03-31 2026-05-31"),
    # week 53: of 2026, and then of 2032
    (RRule("FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO;BYHOUR=12"), "2026-01-01", "2026-12-28 2032-12-27"),
    # Sunday is 0 and 7 to cron, and SU to a rule; Monday is 1, and MO
    (Cron("0 12 * * 0"), "2026-05-04", "2026-05-10 2026-05-17"),
    (Cron("0 12 * * 7"), "2026-05-04", "2026-05-10 2026-05-17"),
    (Cron("0 12 * * 1"), "2026-05-05", "2026-05-11"),
    (RRule("FREQ=WEEKLY;BYDAY=SU;BYHOUR=12"), "2026-05-04", "2026-05-10 2026-05-17"),
    (RRule("FREQ=WEEKLY;BYDAY=MO;BYHOUR=12"), "2026-05-05", "2026-05-11"),
]


@pytest.mark.case("CAL05")
@pytest.mark.parametrize(("schedule", "after", "days"), CALENDAR, ids=str)
def test_cal05_days_that_not_every_month_or_year_has(
    schedule: Schedule, after: str, days: str
) -> None:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    for expected in days.split():
        found = next_due(schedule, moment)
        assert found == datetime.fromisoformat(expected).replace(hour=12, tzinfo=UTC)
        moment = found


@pytest.mark.case("CAL05")
@pytest.mark.parametrize("never", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4 *", "0 0 31 6,9,11 *"])
def test_cal05_a_day_that_never_comes_is_refused(never: str) -> None:
    with pytest.raises(BadInput, match="never matches"):
        Cron(never)
