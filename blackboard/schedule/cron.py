"""Cron expressions with the semantics of Debian cron.

**What matches.** Five fields: minute, hour, day of month, month, day of week; or a name such as
@daily. A day matches when its month does, and: day of month AND day of week if one of these two
fields starts with `*`, else day of month OR day of week (crontab(5)). 0 and 7 are Sunday. Whether
a field "starts with *" depends on its text: `*/2` does, `0-59` does not. Several expressions, with
semicolons between them, match whenever one of them does.

A step after a single number, `5/15`, is `5-59/15`, as in Kubernetes, GitHub's workflows and Quartz;
Debian's cron and cronie refuse it, and so does the import of a crontab. A step beyond its field,
`*/90`, leaves the first number, as in all of these: `idle_steps` says so.

**When it runs.** cron(8) has two kinds of jobs, which it distinguishes by the same rule:

- A job whose minute or hour starts with `*` follows real time. It runs whenever the wall clock
  shows a matching minute: in a fold twice, in a gap not at all.
- Any other job runs at fixed times and follows the highest time that the wall clock has reached.
  It runs once for each matching time: in a fold the first time, in a gap right after it. Several
  times within one gap are one run.

cron(8) catches up over gaps of up to three hours, because it cannot distinguish a longer one from a
corrected clock. Here the rules of the zone are used, so the day that Samoa skipped in 2011 is a gap
like any other.

**How the next run is found.** The calendar is walked in wall time, where it is regular: the first
matching minute from here on, then the next. Each is mapped to the instants at which the clock
shows it (`zones.py`), and the first instant that is not too early wins. That order is right except
before the clock is put back: then earlier wall times come again, so unless a run comes before the
change, the search starts afresh from it.

The search ends after fifty years. The longest wait of an expression that matches at all is forty
(29 February on a given weekday, over the missing leap day of 2100).
"""

import heapq
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import chain, compress
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.schedule.limits import NONE, Limits
from blackboard.schedule.zones import find_zone, first_shown, replay_after, showings

HORIZON = 50
"""Years for which a run is searched for."""

MOST_EXPRESSIONS = 100
LONGEST_TEXT = 10_000
"""The most characters of all expressions together."""

_INSTANT = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_PROBE = datetime(2000, 1, 1, tzinfo=UTC)
"""An expression must run within the horizon from here, or it is refused."""

_FOUR_YEARS = [date(2001, 1, 1) + number * _DAY for number in range(4 * 365 + 1)]

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ELEMENT = re.compile(
    r"(?:(\*)|([a-z]{3}|[0-9]{1,2})(?:-([a-z]{3}|[0-9]{1,2}))?)(?:/([0-9]{1,4}))?", re.IGNORECASE
)
_EVERY = re.compile(r"@?every(?:\b|_)|rate\(|@\d", re.IGNORECASE)
_SUNDAY = "as a number, Sunday is 0 here, and 1 in Quartz and AWS"
_QUESTION = f"use * instead of ?; {_SUNDAY}"
_RRULE = "use an rrule instead: FREQ=MONTHLY;BYMONTH=...;{};BYHOUR=...;BYMINUTE=..."
"""Remedies for what other programs know."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a zone, or several.

    Raises BadInput when it cannot be read ("cron", "timezone") or would never run.
    """

    expression: str
    zone: str = "UTC"
    limits: Limits = NONE

    def __post_init__(self) -> None:
        expressions = [" ".join(expression.split()) for expression in self.expression.split(";")]
        object.__setattr__(self, "expression", "; ".join(expressions))
        if len(expressions) > MOST_EXPRESSIONS or len(self.expression) > LONGEST_TEXT:
            problem = f"{len(expressions):,} expressions of {len(self.expression):,} characters"
            remedy = f"{MOST_EXPRESSIONS} of {LONGEST_TEXT:,} characters together at the most"
            raise BadInput("cron", problem, remedy)
        for expression in expressions:
            _check(expression, self.zone)

    @property
    def text(self) -> str:
        return f"cron {self.expression}{self.limits.text}"

    def runs(self, after: datetime) -> Iterator[datetime]:
        """The runs strictly later than `after` (aware), in order; UTC."""
        last, zone = after.astimezone(UTC), find_zone(self.zone)
        streams = [
            _runs(read_fields(expression), zone, last) for expression in self.expression.split("; ")
        ]
        for run in heapq.merge(*streams):
            if run > last:
                yield run
                last = run

    def mean_interval(self) -> timedelta | None:
        """The mean time between two runs, counted from the calendar of four years without regard to
        limits and changes of the clock; None when it does not run in those.
        """
        return _mean_interval(self.expression)


class Fields(Struct, frozen=True, kw_only=True):
    """The sets that an expression means. Sunday is 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    follows_clock: bool
    """Whether the minute or the hour starts with `*`."""
    day_and_weekday: bool
    """Whether the day of month or the day of week starts with `*`."""
    times: tuple[int, ...]
    """Minutes of the day at which it runs."""

    def on(self, day: date) -> bool:
        """Whether it runs on that day of the calendar."""
        if day.month not in self.months:
            return False
        weekday = day.isoweekday() % 7 in self.weekdays
        if self.day_and_weekday:
            return weekday and day.day in self.days
        return weekday or day.day in self.days

    def first_wall(self, wall: datetime, last_year: int) -> datetime | None:
        """The first matching wall time at or after `wall` (naive), None past `last_year`."""
        if wall.second or wall.microsecond:
            wall = wall.replace(second=0, microsecond=0) + _MINUTE
        day = wall.date()
        if self.on(day):
            later = bisect_left(self.times, wall.hour * 60 + wall.minute)
            if later < len(self.times):
                return _at(day, self.times[later])
        day += _DAY
        while day.year <= last_year:
            if day.month not in self.months:
                day = (day.replace(day=28) + 4 * _DAY).replace(day=1)
            elif self.on(day):
                return _at(day, self.times[0])
            else:
                day += _DAY
        return None


@lru_cache(maxsize=4096)
def _mean_interval(expression: str) -> timedelta | None:
    fields = [read_fields(part) for part in expression.split("; ")]
    kinds_of_days = Counter(tuple([field.on(day) for field in fields]) for day in _FOUR_YEARS)
    runs = sum(
        days * len({time for field in compress(fields, on) for time in field.times})
        for on, days in kinds_of_days.items()
    )
    return len(_FOUR_YEARS) * _DAY / runs if runs else None


def _runs(fields: Fields, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The runs strictly later than `after` (UTC), in order."""
    while (run := _first_run(fields, zone, after + _INSTANT)) is not None:
        yield run
        after = run


def _first_run(fields: Fields, zone: ZoneInfo, start: datetime) -> datetime | None:
    """The first run at or after `start`, within the horizon."""
    here = start.astimezone(zone)
    # At the end of a gap, when the fixed times within it run, the clock shows a later time.
    since = here if fields.follows_clock else (start - _INSTANT).astimezone(zone)
    run = _first_in_wall_order(fields, zone, start, since.replace(tzinfo=None, fold=0))
    change = replay_after(here) if fields.follows_clock else None
    if change is None or (run is not None and run < change):
        return run
    return _first_run(fields, zone, change)


def _first_in_wall_order(
    fields: Fields, zone: ZoneInfo, start: datetime, wall: datetime
) -> datetime | None:
    last_year = wall.year + HORIZON
    while (match := fields.first_wall(wall, last_year)) is not None:
        runs = showings(match, zone) if fields.follows_clock else (first_shown(match, zone),)
        for run in runs:
            if run >= start:
                return run
        wall = match + _MINUTE
    return None


@lru_cache(maxsize=1024)
def read_fields(expression: str) -> Fields:
    """Reads an expression or a name such as @daily.

    Raises BadInput("cron").
    """
    texts = _MACROS.get(expression.lower(), expression).split()
    if expression.lower() == "@reboot":
        raise BadInput("cron", "@reboot has no meaning: a board has no host", "use every or at")
    if len(texts) == 1 and texts[0].startswith("@"):
        raise BadInput(
            "cron", f"{_shorten(expression)!r} is not the name of a schedule", _remedy(texts)
        )
    if len(texts) != 5:
        fields = f"{len(texts)} field{'s' * (len(texts) != 1)}"
        raise BadInput("cron", f"{_shorten(expression)!r} has {fields}", _remedy(texts))
    minute, hour, day, _, weekday = texts
    try:
        minutes, hours, days, months, weekdays = (
            sorted(field.numbers(text)) for text, field in zip(texts, _FIELDS, strict=True)
        )
    except BadInput as problem:
        raise BadInput("cron", problem.problem, _completed(problem.remedy, texts)) from None
    return Fields(
        minutes=tuple(minutes),
        hours=tuple(hours),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(n % 7 for n in weekdays),
        follows_clock=minute.startswith("*") or hour.startswith("*"),
        day_and_weekday=day.startswith("*") or weekday.startswith("*"),
        times=tuple(h * 60 + m for h in hours for m in minutes),
    )


class _Field(NamedTuple):
    """One of the five fields of an expression."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Those of `low`, `low` + 1 and so on."""

    def numbers(self, text: str) -> frozenset[int]:
        """The numbers that a text means in this field. Raises BadInput("cron")."""
        return frozenset(chain.from_iterable(map(self._element, text.split(","))))

    def _element(self, text: str) -> range:
        """The numbers that a text between two commas means."""
        parts = _ELEMENT.fullmatch(text)
        if parts is None:
            problem = f"{_shorten(text)!r} cannot be read as {self.name}"
            raise BadInput("cron", problem, _remedy_of(text, self))
        star, first, last, step = parts.groups()
        if step is not None and int(step) == 0:
            raise BadInput("cron", f"{text!r} in {self.name} has a step of 0", "use 1 or more")
        begin = self.low if star else self._number(first)
        end = self._number(last) if last else self.high if star or step else begin
        if end < begin:
            remedy = self._in_two(first, last)
            if self.names and end == 0:
                remedy = f"write {first}-7: Sunday is 7 at the end of a range"
            raise BadInput("cron", f"{text!r} in {self.name} runs backwards", remedy)
        return range(begin, end + 1, int(step or 1))

    def _number(self, word: str) -> int:
        lower = word.lower()
        value = int(word) if word.isdigit() else -1
        if lower in self.names:
            value = self.low + self.names.index(lower)
        if not self.low <= value <= self.high:
            article = "an" if self.name == "hour" else "a"
            or_names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
            remedy = f"use {self.low}-{self.high}{or_names}"
            raise BadInput("cron", f"{word!r} is not {article} {self.name}", remedy)
        return value

    def _in_two(self, first: str, last: str) -> str:
        """The remedy for a range that runs backwards: one to the end, one from the beginning."""
        top, bottom = str(self.high), str(self.low)
        if first.isalpha():
            top, bottom = self.names[-1], self.names[0]
        return f"write {_range(first, top)},{_range(bottom, last)}"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _WEEKDAYS),
)


def idle_steps(expression: str) -> str:
    """A step that leads beyond its field, as in */90, in words; "" if there is none. Raises
    BadInput.
    """
    for part in expression.split(";"):
        read_fields(" ".join(part.split()))
        for text, field in zip(part.split(), _FIELDS, strict=False):
            for element in text.split(","):
                if "/" in element and len(numbers := field.numbers(element)) == 1:
                    return f"{element} matches the {field.name} {min(numbers)} alone"
    return ""


@lru_cache(maxsize=4096)
def _check(expression: str, zone: str) -> None:
    """Refuses what never runs: 31 February, or a minute that the zone's clock always skips."""
    if _first_run(read_fields(expression), find_zone(zone), _PROBE) is None:
        remedy = f"name a day that the month has and a time that the clock of {zone} shows"
        raise BadInput("cron", f"{expression!r} never matches", remedy)


def _range(first: str, last: str) -> str:
    return first if first.lower() == last.lower() else f"{first}-{last}"


def _at(day: date, minute: int) -> datetime:
    return datetime(day.year, day.month, day.day, minute // 60, minute % 60)  # noqa: DTZ001 - wall


def _remedy(texts: list[str]) -> str:
    first = texts[0] if texts else ""
    if first.upper().startswith(("FREQ=", "RRULE:", "DTSTART")):
        return "use rrule instead"
    if "=" in first:
        return "say the zone as timezone, not in the expression"
    if len(texts) == 1 and f"@{first.lower()}" in _MACROS:
        return f"write @{first.lower()}"
    if first.lower().startswith("cron("):
        return f"write what is in the parentheses, and leave out the year (last, AWS); {_QUESTION}"
    if any(text.startswith(",") or text.endswith(",") for text in texts):
        return "leave out the blanks beside commas"
    if _EVERY.match(first):
        return "use every instead, with a duration such as 1h"
    if first.startswith("@"):
        return "the names are " + ", ".join(_MACROS)
    if len(texts) in {6, 7}:
        other = f"; {_QUESTION}" if "?" in texts else "; for less than a minute use every"
        return f"leave out the seconds (first, Quartz) or the year (last, AWS){other}"
    semicolon = "" if texts else ", with no semicolon at the end"
    return f"write five: minute, hour, day of month, month, day of week, as in 0 3 * * *{semicolon}"


def _completed(remedy: str, texts: Sequence[str]) -> str:
    """A remedy, an rrule in it with the months and times of the expression, if its day is all that
    the expression says of days.
    """
    *_, day, _month, weekday = texts
    if {"*", "?"}.isdisjoint({day, weekday}) or "," in day + weekday:
        return remedy
    for name, place in {"BYMINUTE": 0, "BYHOUR": 1, "BYMONTH": 3}.items():
        with suppress(BadInput):
            numbers = sorted(_FIELDS[place].numbers(texts[place]))
            if name == "BYMONTH" and len(numbers) == len(_MONTHS):
                remedy = remedy.replace("BYMONTH=...;", "")
            elif texts[place] != "*":
                remedy = remedy.replace(f"{name}=...", f"{name}={','.join(map(str, numbers))}")
    return remedy


def _remedy_of(element: str, field: _Field) -> str:
    """The remedy for an element of a field. Other programs know more."""
    if not element:
        return "leave out the comma beside which there is nothing"
    if element == "?":
        return _QUESTION
    if re.match(r"H\b|.*~", element):
        return "write a fixed number, or * before a step; jitter spreads items"
    if field.name.startswith("day") and (remedy := _remedy_of_day(element, field)):
        return remedy
    or_names = f", or the names {field.names[0]}-{field.names[-1]}" if field.names else ""
    return f"use *, 5, 1-5, */10, 1-30/5 and lists of these{or_names}"


def _remedy_of_day(element: str, field: _Field) -> str:
    """The remedy for what Quartz and AWS have for days: L, W and #; "" for anything else."""
    of_week = rf"({'|'.join(_WEEKDAYS)}|[0-7])(?:#([1-5])|(L))"
    if weekday := re.fullmatch(of_week, element, re.IGNORECASE):
        day = weekday[1] if weekday[1].isalpha() else _WEEKDAYS[int(weekday[1]) % 7]
        number = weekday[2] or "-1"
        doubt = "" if weekday[1].isalpha() else f" ({_SUNDAY})"
        return _RRULE.format(f"BYDAY={number}{day[:2].upper()}") + doubt
    if element.upper() == "L" and field.names == _WEEKDAYS:
        return "write sat, the last day of a week of Quartz and AWS"
    if last := re.fullmatch(r"L(?:-([0-9]|[12][0-9]|30))?", element, re.IGNORECASE):
        return _RRULE.format(f"BYMONTHDAY=-{int(last[1] or 0) + 1}")
    if element.upper() in {"1W", "LW"}:
        number = "1" if element[0] == "1" else "-1"
        return _RRULE.format(f"BYDAY=MO,TU,WE,TH,FR;BYSETPOS={number}")
    if re.fullmatch("[0-9]{1,2}W", element, re.IGNORECASE):
        return "name the day: neither cron nor rrule has the nearest weekday"
    return ""


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "..."
