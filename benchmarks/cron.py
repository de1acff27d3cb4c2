"""The next time of a cron expression, against dateutil's rules and a walk from minute to minute."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from dateutil.rrule import DAILY, HOURLY, MONTHLY, WEEKLY, YEARLY, rrule

from benchmarks.measure import best_of, report, seconds
from blackboard.bench import Measurement
from blackboard.schedule.cron import Cron, Fields, read_fields
from blackboard.schedule.schedule import next_due

ZONE = "Europe/Berlin"
BEGIN = datetime(2026, 11, 21, 9, 0, 30)  # noqa: DTZ001 - a wall time, in the zone above
DAYS = [timedelta(days=7 * number) for number in range(40)]
"""Moments asked from: over a year, both changes of the clocks included."""
WALKED = 3
"""The walk is asked from so many of them only."""

EXPRESSIONS: dict[str, Callable[[datetime], rrule]] = {
    "*/15 * * * *": lambda at: rrule(HOURLY, dtstart=at, byminute=(0, 15, 30, 45), bysecond=0),
    "0 3 * * *": lambda at: rrule(DAILY, dtstart=at, byhour=3, byminute=0, bysecond=0),
    "30 6 * * mon-fri": lambda at: rrule(
        WEEKLY, dtstart=at, byweekday=range(5), byhour=6, byminute=30, bysecond=0
    ),
    "0 0 1 * *": lambda at: rrule(
        MONTHLY, dtstart=at, bymonthday=1, byhour=0, byminute=0, bysecond=0
    ),
    "0 0 29 2 *": lambda at: rrule(
        YEARLY, dtstart=at, bymonth=2, bymonthday=29, byhour=0, byminute=0, bysecond=0
    ),
}


def measured() -> Iterator[Measurement]:
    walls = [BEGIN + days for days in DAYS]
    moments = [wall.replace(tzinfo=ZoneInfo(ZONE)).astimezone(UTC) for wall in walls]
    for expression, rule in EXPRESSIONS.items():
        cron = Cron(expression, ZONE)
        ours = _each(len(moments), lambda: [next_due(cron, at) for at in moments])  # noqa: B023
        theirs = _each(len(walls), lambda: [rule(wall).after(wall) for wall in walls])  # noqa: B023
        yield Measurement(
            name=expression,
            value=ours,
            unit="us",
            beside=theirs,
            reference="dateutil, a rule made for each",
        )
        if expression != "0 0 29 2 *":  # a walk over two years of minutes says nothing new
            few = walls[:WALKED]
            fields = read_fields(expression)
            walked = _each(WALKED, lambda: [_walk(fields, wall) for wall in few])  # noqa: B023
            yield Measurement(
                name=expression, value=ours, unit="us", beside=walked, reference="minute by minute"
            )


def _each(number: int, work: Callable[[], object]) -> float:
    """Microseconds for one of so many."""
    return best_of(5, lambda: seconds(work)) / number * 1e6


def _walk(fields: Fields, wall: datetime) -> datetime:
    """As most first tries at cron do it; it knows no zone."""
    wall = wall.replace(second=0) + timedelta(minutes=1)
    while not (
        wall.minute in fields.minutes and wall.hour in fields.hours and fields.on(wall.date())
    ):
        wall += timedelta(minutes=1)
    return wall


if __name__ == "__main__":
    report(measured())
