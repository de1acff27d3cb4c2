"""Reads the recurrence rules of a feed, and what else is said of the times of a series.

Understood besides RFC 5545: lower case, white space, dashes in UNTIL, parts that begin with X-, the
text of a broken line after the last part, RSCALE=GREGORIAN (RFC 7529), weekdays of which only some
have a number, or that are written out, parts that are empty, a negative COUNT, which is none, and
INTERVAL=0, which is 1. A WKST that is a number is left out.

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
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from icalendar.timezone import tzp

from blackboard.schedule.rrule import NUMBERS, expansion

from .budget import TooMuch
from .times import Moment, cut
from .zone_names import guessed_zone

Rule = dict[str, str]
"""The parts of a rule by their names."""

_SECOND = timedelta(seconds=1)
_TIMES = ("BYHOUR", "BYMINUTE", "BYSECOND")
_NUMBERS = r"[+-]?\d{1,4}(?:,[+-]?\d{1,4})*"
_WEEKDAY = "(?:MO|TU|WE|TH|FR|SA|SU)"
_PARTS = {
    "FREQ": re.compile("SECONDLY|MINUTELY|HOURLY|DAILY|WEEKLY|MONTHLY|YEARLY"),
    "UNTIL": re.compile(r"\d{8}(?:T\d{6}Z?)?"),
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
_LONG_DAY = re.compile(
    r"\b(\d*(?:MO(?=N)|TU(?=E)|WE(?=D)|TH(?=U)|FR(?=I)|SA(?=T)|SU(?=N)))"
    r"(?:N|ES?|D(?:NES)?|U(?:RS?)?|I|T(?:UR)?)(?:DAY)?\b"
)
"""Matches a weekday that is written out, or its first letters."""
_LEFT_OUT = re.compile(
    r"\b(?:SKIP\s*=\s*(?:BACK|FOR)WARD\b|INTERVAL\s*=\s*0+\b|WKST\s*=\s*\d+\b"
    r"|(?:UNTIL|COUNT)\s*=(?=\s*(?:;|\Z)))",
    re.IGNORECASE,
)
_OF_DATES = frozenset({"000000", "235959"})
"""Times in UTC that only fill up a date."""


def tidy(value: str) -> Rule:
    """A rule in standard form. Raises ValueError when it cannot be read."""
    text = " ".join(value.split()).strip(";").upper().removeprefix("RRULE:")
    given = [part.strip() for part in text.split(";") if part.strip()]
    parts: Rule = {}
    for number, part in enumerate(given, start=1):
        name, _equals, said = (re.sub(r"\s*([,=])\s*", r"\1", part)).partition("=")
        if name.startswith("X-") or (name in _PARTS and not said):
            continue
        if name == "UNTIL":
            said = re.sub(r"(?<=\d)[-:](?=\d)", "", said)
        if name in {"BYDAY", "WKST"}:
            said = _LONG_DAY.sub(r"\1", said)
        found = _PARTS[name].match(said) if name in _PARTS else None
        if found is None or (found.end() < len(said) and number < len(given)) or name in parts:
            raise ValueError(f"{value[:60]!r} is no rule")
        parts[name] = found[0]
    if "FREQ" not in parts:
        raise ValueError(f"{value[:60]!r} is no rule")
    if "UNTIL" in parts:
        datetime.fromisoformat(parts["UNTIL"])
    _drop_defaults(parts)
    _check_numbers(parts)
    return parts


def _drop_defaults(parts: Rule) -> None:
    """Removes the parts that say nothing, or nothing that can be followed."""
    for name in ("RSCALE", "SKIP"):
        parts.pop(name, None)
    if not parts.get("INTERVAL", "1").strip("0"):
        del parts["INTERVAL"]
    if parts.get("COUNT", "").startswith("-"):
        del parts["COUNT"]
    if parts.get("WKST", "").isdecimal():
        del parts["WKST"]


def _check_numbers(parts: Rule) -> None:
    """Raises ValueError for the month 13, for which dateutil would search to the last year."""
    for name in filter(_BY.fullmatch, parts):
        least, most = NUMBERS[name]
        numbers = [int(number) for number in parts[name].split(",")]
        if min(numbers) < least or max(numbers) > most or (least < 0 and 0 in numbers):
            raise ValueError(f"{name}={parts[name][:40]} is no part of a rule")


def not_followed(value: str) -> list[str]:
    """What a rule says and `tidy` leaves out, though it may move some of its days, or end it."""
    return [f"{''.join(said.upper().split())} is not followed" for said in _LEFT_OUT.findall(value)]


def ended_in(rule: Rule, start: Moment, zone: str) -> Rule:
    """A rule with its UNTIL as RFC 5545 has it for such a start: a day for days, else an instant. A
    local time is one of the start's zone. `zone` is that of the feed's days. Days have no times.
    """
    if start.is_day:
        rule = {name: said for name, said in rule.items() if name not in _TIMES}
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
        there = tzp.timezone(start.zone if time or start.zone != "UTC" else zone)
        until = wall.replace(tzinfo=there).astimezone(UTC).isoformat()
    return {**rule, "UNTIL": until}


def until_of(rule: Rule) -> date | None:
    """The last day, or instant, of a rule that is `ended_in` days or times."""
    said = rule.get("UNTIL")
    if said is None:
        return None
    return datetime.fromisoformat(said) if "T" in said else date.fromisoformat(said)


def _day_of(moment: Moment, zone: str) -> date:
    """The day that a moment names, which is given as a time."""
    if moment.zone != "UTC" or f"{moment.wall:%H%M%S}" in _OF_DATES:
        return moment.wall.date()
    return _wall(moment, zone).date()


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


def has_start(rules: list[Rule], start: Moment) -> bool:
    """Whether the start of a series is one of its times: unless all of its rules end before it."""
    ends = [until_of(rule) for rule in rules]
    return not ends or any(end is None or end >= start.time for end in ends)


def fits(rules: list[Rule], wall: datetime) -> bool:
    """Whether a start is among the times of one of its own rules."""
    return any(_is_time_of(rule, wall) for rule in rules)


def _is_time_of(rule: Rule, wall: datetime) -> bool:
    try:
        return next(expansion(rule, wall).after(wall - _SECOND), None) == wall
    except (TooMuch, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - the library may contradict itself in one zone only
        return False


def _wall(start: Moment, zone: str) -> datetime:
    there = start.wall.replace(tzinfo=ZoneInfo("UTC")).astimezone(ZoneInfo(zone))
    return there.replace(tzinfo=None)
