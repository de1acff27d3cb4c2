"""Recurrence rules of RFC 5545 in a zone: the runs that a text stands for.

The text is one rule ("FREQ=WEEKLY;BYDAY=MO") or the lines DTSTART, RRULE, RDATE, EXDATE, parted by
newlines or by a backslash and an n. python-dateutil expands the rules (`expansions.py`); where it
leaves a choice, it is made here:

- Rules count in wall time of the item's zone (of UTC, when DTSTART ends in Z). A time in a gap
  runs right after it; a time shown twice runs once, the first time.
- Without DTSTART a rule counts from `ANCHOR`, a Monday at midnight. COUNT then means nothing and
  is refused. With DTSTART, only what the rules yield is a run, as in dateutil; without any RRULE,
  DTSTART is a run.
- UNTIL and EXDATE may end in Z or not, whatever DTSTART does. A date alone means its midnight.
- EXRULE, which RFC 5545 withdrew, is refused, and so is a text that has no run at all.

Expands one recurrence rule in wall time, by python-dateutil, in the bounded time it lacks.

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
import heapq
from datetime import UTC
from functools import lru_cache
from zoneinfo import ZoneInfo

from blackboard.schedule.rrule_text import (
    BELOW_A_DAY,
    MONTHS,
    PROPERTIES,
    STEPS,
    canonical_lines,
    read_instant,
    read_parts,
    read_property,
    read_time,
    refusal,
)
from blackboard.schedule.zones import find_zone, first_shown

LEAPS = 1000
"""Turns in a row without a hit after which a search below a day says that there is nothing."""

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


ANCHOR = datetime(2000, 1, 3)  # noqa: DTZ001 - wall time
"""What rules without DTSTART count from: a Monday, at midnight in the item's zone."""
LONGEST_TEXT = 20_000
MOST_RULES = 5

_BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
_DAY_PARTS = {"BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY"}


@dataclass(frozen=True, slots=True)
class RRule:
    """A recurrence rule in a zone. `rule` is kept on one line, a backslash and an n for each break.

    Raises BadInput when it cannot be read ("rrule", "timezone") or has no run.
    """

    rule: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", "\\n".join(canonical_lines(self.rule)))
        _read(self.rule, self.zone)

    @property
    def text(self) -> str:
        return f"rrule {self.rule}"

    def runs(self, after: datetime) -> Iterator[datetime]:
        """The runs strictly later than `after` (aware), in order; UTC. `after` lies between the
        years 1000 and 9000.
        """
        return _read(self.rule, self.zone).runs(after)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recurrence:
    """What a text stands for. Its times are instants, but for the walls of the rules."""

    rules: tuple[tuple[Expansion, datetime | None], ...]
    """Each with its UNTIL."""
    zone: ZoneInfo
    extra: tuple[datetime, ...]
    excluded: frozenset[datetime]

    def runs(self, after: datetime) -> Iterator[datetime]:
        wall = after.astimezone(self.zone).replace(tzinfo=None)
        streams = [self._instants(rule, until, wall) for rule, until in self.rules]
        streams.append(iter(self.extra[bisect_right(self.extra, after) :]))
        last = after
        for run in heapq.merge(*streams):
            if run > last and run not in self.excluded:
                yield run
                last = run

    def _instants(
        self, rule: Expansion, until: datetime | None, wall: datetime
    ) -> Iterator[datetime]:
        for found in rule.walls(wall):
            run = first_shown(found, self.zone)
            if until is not None and run > until:
                return
            yield run


@lru_cache(maxsize=1024)
def _read(text: str, zone_name: str) -> _Recurrence:
    """`text` is canonical: see `canonical_lines`."""
    zone = find_zone(zone_name)
    if len(text) > LONGEST_TEXT:
        raise refusal(f"{len(text)} characters are too many", f"at most {LONGEST_TEXT}")
    values: dict[str, list[str]] = {name: [] for name in PROPERTIES}
    for line in text.split("\\n"):
        name, value = read_property(line, zone_name)
        values[name] += [value] if name == "RRULE" else value.split(",")
    starts = values["DTSTART"]
    if len(starts) > 1:
        raise refusal("more than one DTSTART", "leave one")
    if len(values["RRULE"]) > MOST_RULES:
        raise refusal(f"{len(values['RRULE'])} rules are too many", f"at most {MOST_RULES}")
    if not starts and any("COUNT=" in rule for rule in values["RRULE"]):
        raise refusal("COUNT has nothing to count from", "add a line DTSTART:20261231T090000")
    start = ANCHOR
    if starts:
        start, in_utc = read_time(starts[0])
        zone = find_zone("UTC") if in_utc else zone
    extra = {read_instant(value, zone) for value in values["RDATE"]}
    if starts and not values["RRULE"]:
        extra.add(first_shown(start, zone))
    recurrence = _Recurrence(
        rules=tuple(_read_rule(rule, start, zone) for rule in values["RRULE"]),
        zone=zone,
        extra=tuple(sorted(extra)),
        excluded=frozenset(read_instant(value, zone) for value in values["EXDATE"]),
    )
    try:
        first = next(recurrence.runs(_BEGINNING), None)
    except ValueError as error:  # dateutil notices some contradictions only when it starts
        raise refusal(f"it contradicts itself: {error}", "look at INTERVAL and BY parts") from None
    if first is None:
        raise refusal("it has no run at all", "look at UNTIL and for days that do not exist")
    return recurrence


def _read_rule(text: str, start: datetime, zone: ZoneInfo) -> tuple[Expansion, datetime | None]:
    from dateutil import rrule  # noqa: PLC0415 - slow to import, and few items have rules

    parts = read_parts(text)
    frequency = parts["FREQ"]
    until = read_instant(parts.pop("UNTIL"), zone) if "UNTIL" in parts else None
    count = int(parts.pop("COUNT")) if "COUNT" in parts else None
    if count is not None and until is not None:
        raise refusal("COUNT and UNTIL exclude each other", "leave one")
    try:
        rule = rrule.rrulestr(";".join(f"{k}={v}" for k, v in parts.items()), dtstart=start)
    except ValueError as error:
        raise refusal(f"{text!r} contradicts itself: {error}", "look at its BY parts") from None
    assert isinstance(rule, rrule.rrule)
    expansion = Expansion(
        rule=rule,
        frequency=frequency,
        interval=int(parts.get("INTERVAL", 1)),
        start=start,
        leaps=frequency in BELOW_A_DAY and not _DAY_PARTS.isdisjoint(parts),
        count=count,
    )
    return expansion, until
