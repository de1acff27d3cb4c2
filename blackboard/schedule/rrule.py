"""Recurrence rules of RFC 5545 in a zone: the runs that a text means.

The text is one rule ("FREQ=WEEKLY;BYDAY=MO") or the lines DTSTART, RRULE, RDATE, EXDATE, separated
by newlines or by a backslash and an n. Where the RFC leaves a choice:

- Rules count in wall time of the item's zone (of UTC, when DTSTART ends in Z). A time in a gap
  runs right after it; a time shown twice runs once, the first time.
- What a rule does not say, its start says: BYWEEKNO=20 alone is one day of that week.
- Without DTSTART a rule counts from `ANCHOR`, a Monday at midnight. COUNT then means nothing and
  is refused. With DTSTART, only what the rules yield is a run, as in dateutil; without any RRULE,
  DTSTART is a run.
- UNTIL and EXDATE may end in Z or not, whatever DTSTART does. A date alone is that day, whole: as
  UNTIL it is included, as EXDATE it excludes all of its times. An RDATE that is a date alone is at
  DTSTART's time of day.
- EXRULE, which RFC 5545 withdrew, is refused, and so is a text that has no run at all.

`expansion.py` makes the times of a rule.

**Checks.** dateutil accepts more than it should (INTERVAL=0, BYMONTH=13, 1MO in a daily rule) and
then yields nothing, or wrong times, or never returns. So every part of a rule is checked first.
"""

import heapq
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, lru_cache
from math import prod
from zoneinfo import ZoneInfo

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.schedule.expansion import (
    BELOW_A_DAY,
    FIRST,
    MONTHS,
    RULE_DAYS,
    STEPS,
    Expansion,
    expansion,
    numbers_in,
)
from blackboard.schedule.limits import NONE, Limits
from blackboard.schedule.times import end_of_day
from blackboard.schedule.zones import find_zone, first_shown

ANCHOR = datetime(2000, 1, 3)  # noqa: DTZ001 - wall time
"""The start of rules without DTSTART: a Monday, at midnight in the item's zone."""
BREAK = "\\n"
"""What stands for a line break in a rule that is kept: a backslash and an n."""
_PROPERTIES = ("DTSTART", "RRULE", "RDATE", "EXDATE")
_TIME_PARTS = ("BYSECOND", "BYMINUTE", "BYHOUR")
NUMBERS = {
    "INTERVAL": (1, 1_000_000),
    "COUNT": (1, 10_000),
    "BYSECOND": (0, 59),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTH": (1, 12),
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYSETPOS": (-366, 366),
}
"""The least and greatest number of each part; where negative ones are allowed, 0 is not."""
_LONGEST_TEXT = 20_000
_MOST_RULES = 5
_MOST_TIMES = 1440
_MOST_POSITIONS = 31
"""The most positions of BYSETPOS: dateutil computes all in one period."""
_BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DAY_ALONE = len("20261231")

_NUMBER = re.compile(r"[+-]?[0-9]{1,7}")
_WEEKDAY = re.compile(r"([+-]?[1-9][0-9]?)?(?:MO|TU|WE|TH|FR|SA|SU)")
_TIME = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")
_FOLDED = re.compile(r"\n[ \t](?!\s*(?:DTSTART|RRULE|RDATE|EXDATE|EXRULE|FREQ=))", re.IGNORECASE)
"""A line break of RFC 5545 in a long line; not the beginning of an indented line."""


@dataclass(frozen=True, slots=True)
class RRule:
    """A recurrence rule in a zone. `rule` is kept on one line, a `BREAK` for each break of it.

    Raises BadInput when it cannot be read ("rrule", "timezone") or has no run.
    """

    rule: str
    zone: str = "UTC"
    limits: Limits = NONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", BREAK.join(canonical_lines(self.rule)))
        _read(self.rule, self.zone)

    @property
    def text(self) -> str:
        return f"rrule {self.rule}{self.limits.text}"

    def runs(self, after: datetime) -> Iterator[datetime]:
        """The runs strictly later than `after` (aware), in order; UTC. `after` lies between the
        years 1601 and 9000.
        """
        return _read(self.rule, self.zone).runs(after)


class _Recurrence(Struct, frozen=True, kw_only=True):
    """The meaning of a text. Times are instants, except the wall times of the rules."""

    rules: tuple["_Rule", ...]
    zone: ZoneInfo
    extra: tuple[datetime, ...]
    excluded: frozenset[datetime | date]
    """Instants, and days of the zone."""

    def runs(self, after: datetime) -> Iterator[datetime]:
        last: datetime | None = after
        while last is not None:
            after, last = last, None
            for run in self.all_runs(after):
                day = run.astimezone(self.zone).date()
                if day in self.excluded:  # a rule below a day has many times on it
                    last = max(run, end_of_day(day, self.zone))
                    break
                if run not in self.excluded:
                    yield run

    def all_runs(self, after: datetime) -> Iterator[datetime]:
        """Those that are excluded are among them."""
        wall = after.astimezone(self.zone).replace(tzinfo=None)
        streams = [rule.runs(wall, self.zone) for rule in self.rules]
        streams.append(iter(self.extra[bisect_right(self.extra, after) :]))
        last = after
        for run in heapq.merge(*streams):
            if run > last:
                yield run
                last = run


@dataclass(frozen=True)
class _Rule:
    """One RRULE."""

    times: "Expansion"
    until: datetime | None
    """An instant."""

    def runs(self, after: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """The runs of the rule in a zone, in order, of the wall times strictly later than `after`,
        which lies between the years 1601 and 9000.
        """
        if self.times.count is None:
            wall_times = self.times.after(after)
        else:
            wall_times = iter(self._counted[bisect_right(self._counted, after) :])
        for wall in wall_times:
            run = first_shown(wall, zone)
            if self.until is not None and run > self.until:
                return
            yield run

    @cached_property
    def _counted(self) -> tuple[datetime, ...]:
        return tuple(self.times.after(FIRST))


# ---- reading a text


def canonical_lines(text: str) -> list[str]:
    """The canonical lines of a text: unfolded, and in capitals where case has no meaning."""
    text = text.replace(BREAK, "\n").replace("\r\n", "\n").strip()
    lines = []
    for line in _FOLDED.sub("", text).split("\n"):
        head, colon, value = line.strip().rpartition(":")
        name, semicolon, parameters = head.partition(";")
        lines.append(name.upper() + semicolon + parameters.replace('"', "") + colon + value.upper())
    lines = [line for line in lines if line]
    if len(lines) == 1:
        return [lines[0].removeprefix("RRULE:")]
    return [f"RRULE:{line}" if line.startswith("FREQ=") else line for line in lines]


def zone_in(text: str) -> str | None:
    """The TZID of DTSTART, or None: the zone of a rule where no setting names one."""
    for line in canonical_lines(text):
        name, *parameters = line.rpartition(":")[0].split(";")
        for parameter in parameters if name == "DTSTART" else ():
            key, _, given = parameter.partition("=")
            if key.upper() == "TZID":
                return given
    return None


def idle_exclusions(text: str, zone: str | None) -> list[str]:
    """The EXDATEs that exclude nothing. Where the zone is not known, those in UTC of rules that are
    not are left out. Raises BadInput.
    """
    rule = RRule(text, zone or zone_in(text) or "UTC")
    recurrence = _read(rule.rule, rule.zone)
    lines = rule.rule.split(BREAK)
    in_utc = any(line.startswith("DTSTART") and line.endswith("Z") for line in lines)
    values = ",".join(line.rpartition(":")[2] for line in lines if line.startswith("EXDATE"))

    def is_idle(value: str) -> bool:
        moment = _read_instant(value, recurrence.zone)
        if isinstance(moment, datetime):
            return next(recurrence.all_runs(moment - _SECOND), None) != moment
        begin = first_shown(datetime.combine(moment, time()), recurrence.zone)
        run = next(recurrence.all_runs(begin - _SECOND), None)
        return run is None or run > end_of_day(moment, recurrence.zone)

    is_sure = in_utc or bool(zone or zone_in(text))
    judged = [
        value for value in values.split(",") if value and (is_sure or not value.endswith("Z"))
    ]
    return list(filter(is_idle, judged))


@lru_cache(maxsize=1024)
def _read(text: str, zone_name: str) -> _Recurrence:
    """Reads a text that is canonical: see `canonical_lines`."""
    zone = find_zone(zone_name)
    if len(text) > _LONGEST_TEXT:
        raise _refusal(f"{len(text)} characters are too many", f"at most {_LONGEST_TEXT}")
    values: dict[str, list[str]] = {name: [] for name in _PROPERTIES}
    for line in text.split(BREAK):
        name, value = _read_property(line, zone_name)
        values[name] += [value] if name == "RRULE" else value.split(",")
    starts = values["DTSTART"]
    if len(starts) > 1:
        raise _refusal("more than one DTSTART", "leave one")
    if len(values["RRULE"]) > _MOST_RULES:
        raise _refusal(f"{len(values['RRULE'])} rules are too many", f"at most {_MOST_RULES}")
    if not starts and any("COUNT=" in rule for rule in values["RRULE"]):
        raise _refusal("COUNT has nothing to count from", "add a line DTSTART:20261231T090000")
    start = ANCHOR
    if starts:
        start, in_utc = _read_time(starts[0])
        zone = find_zone("UTC") if in_utc else zone
    extra = {_read_addition(value, zone, start) for value in values["RDATE"]}
    if starts and not values["RRULE"]:
        extra.add(first_shown(start, zone))
    recurrence = _Recurrence(
        rules=tuple(_read_rule(rule, start, zone) for rule in values["RRULE"]),
        zone=zone,
        extra=tuple(sorted(extra)),
        excluded=frozenset(_read_instant(value, zone) for value in values["EXDATE"]),
    )
    try:
        first = next(recurrence.runs(_BEGINNING), None)
    except Exception as error:  # noqa: BLE001 - of dateutil, which notices some only when it starts
        raise _refusal(f"it contradicts itself: {error}", "look at INTERVAL and BY parts") from None
    if first is None:
        raise _refusal("it has no run at all", "look at UNTIL and for days that do not exist")
    return recurrence


def _read_property(line: str, zone_name: str) -> tuple[str, str]:
    """The name and the value of a line, its parameters checked."""
    head, _, value = line.rpartition(":")
    name, *parameters = (head or "RRULE").split(";")
    if name not in _PROPERTIES:
        raise _refusal(f"{name[:40]!r} is not known", "use " + ", ".join(_PROPERTIES))
    for parameter in parameters:
        key, _, given = parameter.partition("=")
        if key.upper() == "TZID" and given != zone_name:
            remedy = f"make {given} the timezone, or leave TZID out"
            raise _refusal(f"{name} is in {given!r}, the item in {zone_name!r}", remedy)
        if key.upper() != "TZID" and parameter.upper() not in {"VALUE=DATE", "VALUE=DATE-TIME"}:
            raise _refusal(f"{parameter[:40]!r} of {name} is not known", "leave it out")
    return name, value


def _read_rule(text: str, start: datetime, zone: ZoneInfo) -> _Rule:
    parts = read_parts(text)
    if "COUNT" in parts and "UNTIL" in parts:
        raise _refusal("COUNT and UNTIL exclude each other", "leave one")
    until = _read_instant(parts["UNTIL"], zone) if "UNTIL" in parts else None
    if until is not None and not isinstance(until, datetime):
        until = end_of_day(until, zone)
    try:
        return _Rule(expansion(parts, start), until)
    except Exception as error:  # noqa: BLE001 - a library may raise anything for an odd rule
        raise _refusal(f"{text!r} contradicts itself: {error}", "look at its BY parts") from None


def read_parts(text: str) -> dict[str, str]:
    """The parts of an RRULE, each checked; WKST is always among them."""
    parts: dict[str, str] = {}
    for part in text.strip(";").split(";"):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in parts:
            raise _refusal(f"{name} occurs twice", "keep one")
        parts[name] = value
        if name in NUMBERS:
            _check_numbers(name, value)
        elif name not in {"FREQ", "UNTIL", "BYDAY", "WKST"}:
            raise _refusal(f"{name[:40]!r} is not part of a rule", "see RFC 5545, section 3.3.10")
    parts.setdefault("WKST", "MO")
    frequency = parts.get("FREQ", "")
    if frequency not in STEPS and frequency not in MONTHS:
        raise _refusal(f"FREQ={frequency} is not known", "use " + ", ".join([*STEPS, *MONTHS]))
    if parts["WKST"] not in RULE_DAYS:
        raise _refusal(f"WKST={parts['WKST']} is not a weekday", "use MO, TU, WE, TH, FR, SA, SU")
    for weekday in parts["BYDAY"].split(",") if "BYDAY" in parts else ():
        match = _WEEKDAY.fullmatch(weekday)
        if match is None or (match[1] and frequency not in MONTHS):
            raise _refusal(
                f"BYDAY={weekday} cannot be read with FREQ={frequency}",
                "use MO, TU, WE, TH, FR, SA, SU; 1MO or -1FR with MONTHLY and YEARLY only",
            )
    _check_size(parts, frequency)
    return parts


def _check_numbers(name: str, value: str) -> None:
    least, greatest = NUMBERS[name]
    numbers = value.split(",") if name.startswith("BY") else [value]
    for number in numbers:
        allowed = _NUMBER.fullmatch(number) and least <= int(number) <= greatest
        if not allowed or (least < 0 and int(number) == 0):
            remedy = f"{least} to {greatest}" + (", not 0" if least < 0 else "")
            raise _refusal(f"{name}={number[:40]} is out of bounds", remedy)


def _check_size(parts: dict[str, str], frequency: str) -> None:
    """Refuses rules that dateutil could read but not expand in time. For a BYSETPOS that no period
    has, it would search minute by minute.
    """
    below = BELOW_A_DAY.index(frequency) if frequency in BELOW_A_DAY else None
    multiplying = _TIME_PARTS[:below]
    times = prod(len(set(numbers_in(parts[name]))) for name in multiplying if name in parts)
    if times > _MOST_TIMES:
        raise _refusal(f"{times} times in one period are too many", "use a shorter FREQ")
    positions = numbers_in(parts["BYSETPOS"]) if "BYSETPOS" in parts else [1]
    if len(positions) > _MOST_POSITIONS:
        raise _refusal(f"{len(positions)} positions are too many", f"at most {_MOST_POSITIONS}")
    if frequency in BELOW_A_DAY and min(abs(position) for position in positions) > times:
        raise _refusal(f"BYSETPOS is beyond the {times} times of a period", "use a smaller one")


def _read_time(text: str) -> tuple[datetime, bool]:
    """A naive time, and whether it ends in Z."""
    remedy = "write it like 20261231T235900, with a Z at the end for UTC"
    match = _TIME.fullmatch(text)
    if match is None:
        raise _refusal(f"{text[:40]!r} is not a time", remedy)
    try:
        moment = datetime.strptime(match[1] + (match[2] or "000000"), "%Y%m%d%H%M%S")  # noqa: DTZ007
    except ValueError:
        raise _refusal(f"{text!r} does not exist", remedy) from None
    if not 1000 < moment.year < 9000:
        raise _refusal(f"{text!r} is too far away", remedy)
    return moment, bool(match[3])


def _read_instant(text: str, zone: ZoneInfo) -> datetime | date:
    """An instant, or a day."""
    moment, in_utc = _read_time(text)
    if len(text) == _DAY_ALONE:
        return moment.date()
    return moment.replace(tzinfo=UTC) if in_utc else first_shown(moment, zone)


def _read_addition(text: str, zone: ZoneInfo, start: datetime) -> datetime:
    moment = _read_instant(text, zone)
    if isinstance(moment, datetime):
        return moment
    return first_shown(datetime.combine(moment, start.time()), zone)


def _refusal(problem: str, remedy: str) -> BadInput:
    return BadInput("rrule", problem, remedy)
