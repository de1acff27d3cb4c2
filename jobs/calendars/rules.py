"""Reads the recurrence rules of a feed, and what else is said of the times of a series.

Understood besides RFC 5545: lower case, white space, quotes, escapes as of a text, commas or blanks
between parts, commas too many, UNTIL in each form that dates have (`times.py`), parts that begin
with X-, the text of a broken line after the last part, RSCALE=GREGORIAN (RFC 7529), weekdays of
which only some have a number, or that are written out, parts that are empty, a negative COUNT,
which is none, INTERVAL=0, which is 1, an UNTIL that is a word or in the year 0, which is none, and
one on a day that its month does not have, which is the last one that it has. The second 60 is read
as 59. Of a part that is there twice the last counts. A WKST that is a number is left out, and so
are parts that no rule has, such as DTSTART; but a rule with a BY.. or a calendar (RSCALE) that is
not known is none.

**The end.** `ended_in` puts every UNTIL into the form that RFC 5545 has for the start of a series.
For days, one in UTC is the day that it is then where the feed is: Google writes the last second of
the last day so. But T000000Z and T235959Z are that date itself: other programs put them behind a
date. A date, for times, is that day, whole.

An event in UTC whose feed names a zone (X-WR-TIMEZONE) may be meant in either: the RFC repeats it
in UTC, most publishers mean the zone, and keep its hour when the clocks change. The start decides.
It is the first of its series, so where it is none of the days of the rule in one of the two, the
other is meant. Where it fits in both, exclusions and changes decide: they are at the hour that the
series has. Where all that decides nothing, it is the feed's zone. A feed that names no zone means
UTC, unless the start fits the rule in the city's zone alone.
"""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from icalendar.timezone import tzp

from blackboard.schedule.expansion import Expansion, expansion
from blackboard.schedule.rrule import NUMBERS

from .times import Moment, Written, cut, in_utc, written
from .zone_names import guessed_zone

Rule = dict[str, str]
"""The parts of a rule by their names."""
_IN_ANY_MONTH = {"BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYDAY", "BYSETPOS"}
"""Parts beside which the days of the month of a yearly rule are in any month, or those named."""

_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_TIMES = ("BYHOUR", "BYMINUTE", "BYSECOND")
_NUMBERS = r"[+-]?\d{1,4}(?:,[+-]?\d{1,4})*"
_WEEKDAY = "(?:MO|TU|WE|TH|FR|SA|SU)"
_PARTS = {
    "FREQ": re.compile("SECONDLY|MINUTELY|HOURLY|DAILY|WEEKLY|MONTHLY|YEARLY"),
    "UNTIL": re.compile(r"NAN.*|[A-Z ]+|-\d.*|0000.*"),
    "COUNT": re.compile(r"-?\d{1,9}"),
    "INTERVAL": re.compile(r"\d{1,9}"),
    "WKST": re.compile(rf"{_WEEKDAY}|\d+"),
    "RSCALE": re.compile("GREGORIAN"),
    "SKIP": re.compile("OMIT|BACKWARD|FORWARD"),
    "BYDAY": re.compile(rf"[+-]?\d{{0,2}}{_WEEKDAY}(?:,[+-]?\d{{0,2}}{_WEEKDAY})*"),
    **{
        f"BY{unit}": re.compile(_NUMBERS)
        for unit in ("SECOND", "MINUTE", "HOUR", "MONTHDAY", "YEARDAY", "WEEKNO", "MONTH", "SETPOS")
    },
}
_BY = re.compile("BY(?!DAY).*")
_IDLE = re.compile(
    r"X-.*|RSCALE=GREGORIAN|SKIP=OMIT|COUNT=-\d+"
    rf"|(?:{'|'.join(name for name in _PARTS if name not in {'UNTIL', 'COUNT'})})=?"
)
"""Matches a part that says nothing."""
_LEFT_OUT = re.compile(
    r"SKIP=.*|INTERVAL=0+|WKST=\d+|(?:UNTIL|COUNT)=?|UNTIL=(?:NAN.*|[A-Z ]+|-\d.*|0000.*)"
)
"""Matches a part that is not followed, though it may move some of the days of its rule, or end it.
"""
_LONG_DAY = re.compile(
    r"\b(\d*(?:MO(?=N)|TU(?=E)|WE(?=D)|TH(?=U)|FR(?=I)|SA(?=T)|SU(?=N)))"
    r"(?:N|ES?|D(?:NES)?|U(?:RS?)?|I|T(?:UR)?)(?:DAY)?\b"
)
"""Matches a weekday that is written out, or its first letters."""
_BREAK = re.compile(rf";|[, ](?= ?(?:{'|'.join(_PARTS)}) ?=)")
"""Matches what stands between two parts."""
_ESCAPE = re.compile(r"(?<!\\)\\+(?=[;,])")
_DAY_OF_MONTH = re.compile(r"(?<=^\d{6})(?:29|3[01])|(?<=^\d{4}-\d\d-)(?:29|3[01])")
_LEAP_SECOND = re.compile(r"\b60\b")
_OF_DATES = frozenset({"000000", "235959"})
"""Times in UTC that only fill up a date."""


def tidy(value: str) -> tuple[Rule, list[str]]:
    """A rule in standard form, and what it says that is not followed. Raises ValueError when it
    cannot be read.
    """
    text = _ESCAPE.sub("", " ".join(value.split())).strip("; \"'").upper().removeprefix("RRULE:")
    given = [part for part in (one.strip() for one in _BREAK.split(text)) if part]
    parts: Rule = {}
    left_out = []
    for number, part in enumerate(given, start=1):
        try:
            name, equals, content = _part(part, is_last=number == len(given))
        except ValueError:
            raise ValueError(f"{value[:60]!r} is not a rule") from None
        whole = f"{name}{equals}{content}"
        if _IDLE.fullmatch(whole):
            continue
        if name not in _PARTS or _LEFT_OUT.fullmatch(whole):
            left_out.append(whole)
            continue
        if parts.get(name, content) != content:
            left_out.append(f"{name}={parts[name]}")
        parts[name] = content
    if "FREQ" not in parts:
        raise ValueError(f"{value[:60]!r} is not a rule")
    _check_numbers(parts)
    return parts, [f"{part[:60]} is not followed" for part in left_out]


def _part(text: str, *, is_last: bool) -> tuple[str, str, str]:
    """A part of a rule in standard form, with its name before the equals sign. The last one may
    have the text of a broken line behind it. Raises ValueError when it cannot be read, unless no
    rule has one of that name.
    """
    name, equals, value = re.sub(r"\s*([,=])\s*", r"\1", text).partition("=")
    if name == "UNTIL" and value[:1].isdigit() and not value.startswith("0000"):
        return name, equals, _end_of(value, is_last=is_last)
    if name in {"BYDAY", "WKST"}:
        value = _LONG_DAY.sub(r"\1", value)
    if name == "BYSECOND":
        value = _LEAP_SECOND.sub("59", value)
    if name.startswith("BY"):
        value = re.sub(",{2,}", ",", value).strip(",")
    if not value or not (name in _PARTS or name.startswith("BY")):
        return name, equals, value
    match = _PARTS[name].match(value) if name in _PARTS else None
    if match is None or (match.end() < len(value) and not is_last):
        raise ValueError(text)
    return name, equals, match[0]


def _end_of(until: str, *, is_last: bool) -> str:
    """An UNTIL in standard form. Raises ValueError when it cannot be read."""
    end = _written_end(until)
    if end.rest not in {"", "Z"} and not is_last:
        raise ValueError(until)
    wall = end.wall if end.east is None else in_utc(end.wall, end.east)
    text = wall.isoformat() if end.has_time else wall.date().isoformat()
    return text.replace("-", "").replace(":", "") + ("Z" if end.east is not None else "")


def _written_end(text: str) -> Written:
    """On the last day of its month where it names one that the month does not have."""
    try:
        return written(text)
    except ValueError:
        for day in ("30", "29", "28"):
            with suppress(ValueError):
                return written(_DAY_OF_MONTH.sub(day, text))
        raise


def _check_numbers(parts: Rule) -> None:
    """Raises ValueError for the month 13, for which dateutil would search to the last year."""
    for name in filter(_BY.fullmatch, parts):
        least, most = NUMBERS[name]
        numbers = [int(number) for number in parts[name].split(",")]
        if min(numbers) < least or max(numbers) > most or (least < 0 and 0 in numbers):
            raise ValueError(f"{name}={parts[name][:40]} is no part of a rule")


def ended_in(rule: Rule, start: Moment, zone: str) -> Rule:
    """A rule with its UNTIL as RFC 5545 has it for such a start: a day for days, else an instant. A
    local time is one of the start's zone. `zone` is that of the feed's days. Days have no times.
    """
    if start.is_day:
        rule = {name: value for name, value in rule.items() if name not in _TIMES}
    if "UNTIL" not in rule:
        return rule
    day, _t, time = rule["UNTIL"].removesuffix("Z").partition("T")
    in_utc = rule["UNTIL"].endswith("Z")
    wall = cut(datetime.fromisoformat(f"{day}T{time or '235959'}"))
    if start.is_day:
        until = _day_of(Moment(wall, "UTC" if in_utc else start.zone), zone).isoformat()
    elif in_utc:
        return rule
    else:
        clock = tzp.timezone(start.zone if time or start.zone != "UTC" else zone)
        until = wall.replace(tzinfo=clock).astimezone(UTC).isoformat()
    return {**rule, "UNTIL": until}


def until_of(rule: Rule) -> date | None:
    """The last day, or instant, of a rule that is `ended_in` days or times."""
    until = rule.get("UNTIL")
    if until is None:
        return None
    return datetime.fromisoformat(until) if "T" in until else date.fromisoformat(until)


def _local(moment: Moment, zone: str) -> datetime:
    """The wall time at which a moment names a day."""
    if moment.zone != "UTC" or f"{moment.wall:%H%M%S}" in _OF_DATES:
        return moment.wall
    return _wall(moment, zone)


def _day_of(moment: Moment, zone: str) -> date:
    """The day that a moment names, which is given as a time."""
    return _local(moment, zone).date()


def end_beside(end: Moment, start: Moment, *, days: str) -> Moment:
    """The end beside such a start: beside a day, the midnight that a time is, else the one after
    it; beside a time, the midnight of a day. `days` is the zone of the feed's days.
    """
    if end.is_day == start.is_day:
        return end
    if end.is_day:
        return Moment(end.wall, days if start.zone == "UTC" else start.zone)
    wall = _local(end, days)
    midnight = datetime.combine(wall, time())
    return Moment(midnight if wall == midnight else midnight + _DAY, "")


def at_start(moment: Moment, start: Moment, *, days: str) -> Moment:
    """The moment as one of the times of a series that begins at `start` and repeats in its zone: a
    day names the time of that day, a time the day of days. `days` is the zone of the feed's days.
    """
    if start.is_day:
        day = datetime.combine(_day_of(moment, days), datetime.min.time())
        return moment if moment.is_day else Moment(day, "")
    if not moment.is_day:
        return moment
    if start.zone != "UTC":
        return Moment(datetime.combine(moment.wall, start.wall.time()), start.zone)
    ahead = _wall(start, days).date() - start.wall.date()
    return Moment(datetime.combine(moment.wall - ahead, start.wall.time()), "UTC")


def meant_start(
    start: Moment, rules: list[Rule], *, calendar: str, city: str, points: list[Moment]
) -> Moment:
    """The start of a series, in the zone in which it repeats: its own, unless that is UTC. `points`
    are times that the series has by what else is said of it.
    """
    if start.zone != "UTC":
        return start
    named = guessed_zone(calendar)
    choices = [named, "UTC"] if named and named != "UTC" else ["UTC", city]
    if any(name.startswith("BY") for rule in rules for name in rule):
        choices = [zone for zone in choices if fits(rules, _wall(start, zone))] or choices[:1]

    def agreeing(zone: str) -> int:
        hour = _wall(start, zone).time()
        return sum(_wall(one, zone).time() == hour for one in points if one.zone == "UTC")

    zone = max(choices, key=agreeing)
    return Moment(_wall(start, zone), zone)


def times_of(rule: Rule, start: datetime) -> Expansion:
    """The times of a rule from a start. A yearly one with nothing but days of the month is of the
    month of its start, as libical and Google's calendar read it, for birthdays are written so; by
    the RFC, and in schedules, it is of each month. Raises ValueError for parts that contradict each
    other.
    """
    if rule["FREQ"] == "YEARLY" and "BYMONTHDAY" in rule and _IN_ANY_MONTH.isdisjoint(rule):
        rule = {**rule, "BYMONTH": str(start.month)}
    return expansion(rule, start)


def has_start(rules: list[Rule], start: Moment) -> bool:
    """Whether the start of a series is one of its times: unless all of its rules end before it."""
    ends = [until_of(rule) for rule in rules]
    return not ends or any(end is None or end >= start.time for end in ends)


def fits(rules: list[Rule], wall: datetime) -> bool:
    """Whether a start is among the times of one of its own rules."""
    return any(_is_time_of(rule, wall) for rule in rules)


def _is_time_of(rule: Rule, wall: datetime) -> bool:
    try:
        return next(times_of(rule, wall).after(wall - _SECOND), None) == wall
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the library may contradict itself in one zone only
        return False


def _wall(start: Moment, zone: str) -> datetime:
    local = start.wall.replace(tzinfo=ZoneInfo("UTC")).astimezone(ZoneInfo(zone))
    return local.replace(tzinfo=None)
