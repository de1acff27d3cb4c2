"""Expands one recurrence rule in wall time, by python-dateutil, in the bounded time it lacks.

dateutil steps from the start of a rule, period by period, and knows no end but the year 9999. So:

- A rule is first moved forward by whole intervals, to just before the time asked about. (With
  COUNT that cannot be; such a rule is expanded once, from its start.)
- A search for what never comes must not step to 9999. The calendar repeats every 400 years, so the
  search is moved by a multiple of 400 years until 9999 is near; it ends after 100 to 500 years.
- Below a day, stepping through the days that a rule leaves out would take for ever. There the times
  of day and the days are searched in turns, each telling the other how far it may leap.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain, islice, takewhile
from operator import gt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dateutil.rrule import rrule

LEAPS = 1000
"""Turns in a row without a hit after which a search below a day says that there is nothing."""
STEPS = {
    "SECONDLY": timedelta(seconds=1),
    "MINUTELY": timedelta(minutes=1),
    "HOURLY": timedelta(hours=1),
    "DAILY": timedelta(days=1),
    "WEEKLY": timedelta(weeks=1),
}
MONTHS = {"MONTHLY": 1, "YEARLY": 12}

_LAST_YEAR = 9899
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """One RRULE without its UNTIL. All times are naive: wall time."""

    rule: "rrule"
    """FREQ, INTERVAL, WKST and the BY parts, from `start`."""
    frequency: str
    interval: int
    start: datetime
    leaps: bool
    """Below a day, and with a BY part that leaves out days."""
    count: int | None = None

    def walls(self, after: datetime) -> Iterator[datetime]:
        """The times strictly later than `after`, in order. `after` lies between the years 1000
        and 9000.
        """
        if self.count is None:
            return self._endless(after)
        return iter(self._counted[bisect_right(self._counted, after) :])

    @cached_property
    def _counted(self) -> tuple[datetime, ...]:
        return tuple(islice(self._endless(self.start - _SECOND), self.count))

    def _endless(self, after: datetime) -> Iterator[datetime]:
        after = max(after, self.start - _SECOND)
        moved = (_LAST_YEAR - after.year) // 400 * 400
        search = self._leaping if self.leaps else self._stepping
        for wall in search(_moved(self.start, moved), _moved(after, moved)):
            yield _moved(wall, -moved)

    def _stepping(self, start: datetime, after: datetime) -> Iterator[datetime]:
        return _from(self.rule, self._near(start, after)).xafter(after)

    def _leaping(self, start: datetime, after: datetime) -> Iterator[datetime]:
        times, days = _times_of(self.rule), _days_of(self.rule)
        fruitless = 0
        while fruitless < LEAPS:
            stream = _from(times, self._near(start, after)).xafter(after)
            found = next(stream, None)
            if found is None:
                return
            midnight = found.replace(hour=0, minute=0, second=0)
            day = next(_from(days, midnight).xafter(midnight, inc=True), None)
            if day is None:
                return
            if day > midnight:
                after = day - _SECOND
                fruitless += 1
                continue
            fruitless = 0
            tomorrow = midnight + _DAY
            yield from takewhile(partial(gt, tomorrow), chain((found,), stream))
            after = tomorrow - _SECOND

    def _near(self, start: datetime, after: datetime) -> datetime:
        """`start` moved by whole intervals to at least one interval before `after`, or left."""
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


def _from(rule: "rrule", start: datetime) -> "rrule":
    return rule.replace(dtstart=start)


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
