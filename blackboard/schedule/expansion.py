"""The wall times of one recurrence rule of RFC 5545, from its start: for schedules, and for the
calendars of feeds. The parts of a rule are checked before (`rrule.py`).

dateutil steps from the start of a rule, period by period, and ends in the year 9999. For bounded
time:

- A rule is first moved forward by whole intervals, to just before the requested time. (With COUNT
  that cannot be; such a rule is expanded once, from its start.)
- A search for what never comes must not step to 9999. The calendar repeats every 400 years, so the
  search is moved by a multiple of 400 years until 9999 is near; it ends after 100 to 500 years.
- Below a day, to step through the days that a rule leaves out would take too long. There the times
  of day and the days are searched in turn, and each search says how far the other may skip. Hours
  and minutes that it leaves out are skipped where a search begins in them.
- The times of a day, in rules of months and years, are no part of what dateutil steps through: it
  makes the days.

dateutil takes the last days of December and the first of January for days of a wrong week in some
years (2 January 2022 for one of a week 53 of 2021, which has 52). So it is asked for all weeks that
these days may be of, and what is in none of BYWEEKNO is left out. BYSETPOS of months and years is
counted after that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime, time, timedelta
from functools import partial
from itertools import chain, dropwhile, groupby, islice, product, takewhile
from operator import gt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dateutil.rrule import rrule

MOST_SKIPS = 1000
"""Days in a row without a time after which a search below a day ends."""
STEPS = {
    "SECONDLY": timedelta(seconds=1),
    "MINUTELY": timedelta(minutes=1),
    "HOURLY": timedelta(hours=1),
    "DAILY": timedelta(days=1),
    "WEEKLY": timedelta(weeks=1),
}
MONTHS = {"MONTHLY": 1, "YEARLY": 12}
"""How long the periods of each FREQ are; those of the latter in months."""
BELOW_A_DAY = ("SECONDLY", "MINUTELY", "HOURLY")
RULE_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_TIME_PARTS = ("BYHOUR", "BYMINUTE", "BYSECOND")
_DAY_PARTS = {"BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY"}
FIRST = datetime(1, 1, 1)  # noqa: DTZ001 - wall time
"""Before all times of all rules."""
_LAST_YEAR = 9899
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """The times of one RRULE from its start, whatever its UNTIL. Times are naive: wall time."""

    rule: "rrule"
    """FREQ, INTERVAL, WKST and the BY parts, from `start`."""
    frequency: str
    interval: int
    week_start: int
    start: datetime
    skips_days: bool
    """Whether FREQ is below a day and a BY part leaves out days."""
    hours: Sequence[int]
    minutes: Sequence[int]
    """Those of BYHOUR and BYMINUTE; all of them, without such a part."""
    weeks: frozenset[int]
    """Those of BYWEEKNO, where `rule` has more; empty: any."""
    positions: Sequence[int]
    """Those of BYSETPOS, where `rule` has none, though it has `weeks`; empty: any."""
    times: Sequence[time]
    """Those of each day, in order, where `rule` has all days, at midnight; empty: its own."""
    count: int | None

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The times strictly later than `moment`, in order. With COUNT, all from the start on are
        made first.
        """
        if self.count is None:
            return self._endless(moment)
        return dropwhile(moment.__ge__, islice(self._endless(FIRST), self.count))

    def _endless(self, after: datetime) -> Iterator[datetime]:
        after = max(after, self.start - _SECOND)
        moved = (_LAST_YEAR - after.year) // 400 * 400
        search = self._search_by_day if self.skips_days else partial(self._stream, self.rule)
        search = self._search_by_time if self.times else search
        search = self._search_by_position if self.positions else search
        times = search(_moved(self.start, moved), _moved(after, moved))
        for wall in filter(self._is_in_weeks, times):
            if wall.year - moved > MAXYEAR:
                return
            yield _moved(wall, -moved)

    def _stream(self, rule: "rrule", start: datetime, after: datetime) -> Iterator[datetime]:
        """The times of a rule with the hours and minutes of this one, later than `after`."""
        first = after + _SECOND
        while True:
            if hours := min((hour - first.hour) % 24 for hour in self.hours):
                first = first.replace(minute=0, second=0) + hours * _HOUR
            elif minutes := min((minute - first.minute) % 60 for minute in self.minutes):
                first = first.replace(second=0) + minutes * _MINUTE
            else:
                break
        after = first - _SECOND
        return rule.replace(dtstart=self._near(start, after)).xafter(after)

    def _search_by_day(self, start: datetime, after: datetime) -> Iterator[datetime]:
        times, days = _times_of(self.rule), _days_of(self.rule)
        skips = 0
        while skips < MOST_SKIPS:
            stream = self._stream(times, start, after)
            wall = next(stream, None)
            if wall is None:
                return
            midnight = wall.replace(hour=0, minute=0, second=0)
            following = days.replace(dtstart=midnight).xafter(midnight, inc=True)
            day = next(filter(self._is_in_weeks, following), None)
            if day is None:
                return
            if day > midnight:
                after = day - _SECOND
                skips += 1
                continue
            skips = 0
            tomorrow = midnight + _DAY
            yield from takewhile(partial(gt, tomorrow), chain((wall,), stream))
            after = tomorrow - _SECOND

    def _search_by_time(self, start: datetime, after: datetime) -> Iterator[datetime]:
        before = datetime.combine(after, time()) - _SECOND
        first = self._near(datetime.combine(start, time()), before)
        for day in self.rule.replace(dtstart=first).xafter(before):
            walls = (datetime.combine(day, moment) for moment in self.times)
            yield from filter(after.__lt__, walls)

    def _search_by_position(self, start: datetime, after: datetime) -> Iterator[datetime]:
        before = self._begin_of_period(after) - _SECOND
        first = self._near(self._begin_of_period(start), before)
        days = self.rule.replace(dtstart=first).xafter(before)
        for _, period in groupby(filter(self._is_in_weeks, days), self._begin_of_period):
            of_period = list(period)
            most = len(of_period) * len(self.times)
            for place in sorted({n - 1 if n > 0 else n + most for n in self.positions}):
                if 0 <= place < most:
                    day, number = divmod(place, len(self.times))
                    wall = datetime.combine(of_period[day], self.times[number])
                    if wall > after:
                        yield wall

    def _begin_of_period(self, wall: datetime) -> datetime:
        """Midnight of the first day of its month, or year."""
        month = wall.month if self.frequency == "MONTHLY" else 1
        return datetime(wall.year, month, 1)  # noqa: DTZ001 - wall time

    def _is_in_weeks(self, wall: datetime) -> bool:
        """Whether the week of a time has a number of `weeks`, counted from either end of the year
        that it belongs to: the one that has four of its days or more.
        """
        if not self.weeks:
            return True
        first = wall.date() - (wall.weekday() - self.week_start) % len(RULE_DAYS) * _DAY
        middle = first + 3 * _DAY
        of_year = (middle - date(middle.year, 1, 1)).days
        until_end = (date(middle.year, 12, 31) - middle).days
        return not self.weeks.isdisjoint({of_year // 7 + 1, -(until_end // 7 + 1)})

    def _near(self, start: datetime, after: datetime) -> datetime:
        """`start`, moved by whole intervals if that leaves at least one interval up to `after`. A
        week begins with its first day: dateutil would count BYSETPOS from the start on.
        """
        if self.frequency == "WEEKLY":
            start -= (start.weekday() - self.week_start) % len(RULE_DAYS) * _DAY
        if self.frequency in STEPS:
            step = STEPS[self.frequency] * self.interval
            return start + max((after - start) // step - 1, 0) * step
        step_months = MONTHS[self.frequency] * self.interval
        most = ((after.year - start.year) * 12 + after.month - start.month) // step_months - 1
        for steps in range(most, 0, -1):
            years, month = divmod(start.month - 1 + steps * step_months, 12)
            try:
                return start.replace(year=start.year + years, month=month + 1)
            except ValueError:  # that month has no such day
                continue
        return start


def expansion(parts: Mapping[str, str], start: datetime) -> Expansion:
    """The times from `start` (naive) of a rule that is given by its parts. Raises ValueError for
    parts that contradict each other.
    """
    # Where a change here gives other times, raise PARSER in jobs/calendars/records.py: events of
    # feeds are cached.
    from dateutil import rrule  # noqa: PLC0415 - slow to import, and few items have rules

    frequency, interval = parts["FREQ"], parts.get("INTERVAL", "1")
    used = {name: value for name, value in parts.items() if name not in {"COUNT", "UNTIL"}}
    in_weeks = frequency == "WEEKLY" or (frequency in MONTHS and "BYWEEKNO" in parts)
    if "BYDAY" in parts:
        used["BYDAY"] = ",".join(_one_kind(parts["BYDAY"].split(","), parts))
    elif in_weeks and parts.keys().isdisjoint({"BYMONTHDAY", "BYYEARDAY"}):
        used["BYDAY"] = RULE_DAYS[start.weekday()]
    weeks = set(numbers_in(parts["BYWEEKNO"])) if "BYWEEKNO" in parts else set()
    positions: Sequence[int] = ()
    times: Sequence[time] = ()
    if frequency in MONTHS and (weeks or "BYSETPOS" not in used):
        positions = numbers_in(used.pop("BYSETPOS")) if "BYSETPOS" in used else ()
        times = _times_of_day(used, start)
        used |= dict.fromkeys(_TIME_PARTS, "0")
    if weeks:
        used["BYWEEKNO"] = ",".join(map(str, sorted(_weeks_to_ask_for(weeks))))
    rule = rrule.rrulestr(";".join(f"{k}={v}" for k, v in used.items()), dtstart=start)
    assert isinstance(rule, rrule.rrule)
    return Expansion(
        rule=rule,
        frequency=frequency,
        interval=int(interval),
        week_start=RULE_DAYS.index(parts.get("WKST", "MO")),
        start=start,
        skips_days=frequency in BELOW_A_DAY and not _DAY_PARTS.isdisjoint(parts),
        hours=numbers_in(parts["BYHOUR"]) if "BYHOUR" in parts else range(24),
        minutes=numbers_in(parts["BYMINUTE"]) if "BYMINUTE" in parts else range(60),
        weeks=frozenset(weeks),
        positions=positions,
        times=times,
        count=int(parts["COUNT"]) if "COUNT" in parts else None,
    )


def _times_of_day(parts: Mapping[str, str], start: datetime) -> Sequence[time]:
    """The times of day of a rule, in order. What it does not say is as in `start`."""
    of_start = (start.hour, start.minute, start.second)
    numbers = [
        numbers_in(parts.get(name, str(number)))
        for name, number in zip(_TIME_PARTS, of_start, strict=True)
    ]
    return sorted({time(hour, minute, second) for hour, minute, second in product(*numbers)})


def _weeks_to_ask_for(weeks: set[int]) -> set[int]:
    """The weeks of BYWEEKNO, and those for which dateutil takes some of their days at the turn of a
    year.
    """
    more = {-1} if weeks & {52, 53} else set()
    more |= {1} if weeks & {-52, -53} else set()
    return weeks | more


def _one_kind(weekdays: list[str], parts: Mapping[str, str]) -> Iterator[str]:
    """The weekdays, all with numbers or all without: MO beside 1TU becomes 1MO, 2MO and so on. Of
    mixed kinds dateutil leaves only the days that match both. Raises ValueError for a number that
    no month or year has: some of these lead dateutil out of its tables, years after the first run.
    """
    in_months = parts["FREQ"] == "MONTHLY" or "BYMONTH" in parts
    numbers = range(1, 6 if in_months else 54)
    for weekday in weekdays:
        if not weekday.isalpha() and abs(int(weekday[:-2])) not in numbers:
            raise ValueError(f"no {'month' if in_months else 'year'} has {weekday}")
    if len({weekday.isalpha() for weekday in weekdays}) == 1:
        return iter(weekdays)
    return (
        f"{number}{weekday}"
        for weekday in weekdays
        for number in (numbers if weekday.isalpha() else ("",))
    )


def _times_of(rule: "rrule") -> "rrule":
    """`rule` on every day."""
    return rule.replace(
        bymonth=None, bymonthday=None, byyearday=None, byweekno=None, byweekday=None
    )


def _days_of(rule: "rrule") -> "rrule":
    """The days of `rule`, each at midnight."""
    from dateutil.rrule import DAILY  # noqa: PLC0415 - dateutil is slow to import

    return rule.replace(freq=DAILY, interval=1, bysetpos=None, byhour=0, byminute=0, bysecond=0)


def _moved(wall: datetime, years: int) -> datetime:
    """The same day of the calendar, `years` (a multiple of 400) later."""
    return wall.replace(year=wall.year + years)


def numbers_in(value: str) -> list[int]:
    return [int(number) for number in value.split(",")]
