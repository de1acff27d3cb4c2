"""Reads the recurrence rules of a feed: what can be understood of one, and what it would cost.

Understood besides RFC 5545: lower case, white space, dashes in UNTIL, parts that begin with X-, and
the text of a broken line after the last part.

An event in UTC whose feed names a zone (X-WR-TIMEZONE) may be meant in either: the RFC repeats it
in UTC, most publishers mean the zone, and keep its hour when the clocks change. The start decides.
It is the first of its series, so where it is none of the days of the rule in one of the two, the
other is meant. Where it fits in both, exclusions and changes decide: they are at the hour that the
series has. Where all that decides nothing, it is the feed's zone. A feed that names no zone means
UTC, unless the start fits the rule in the city's zone alone.
"""

import math
import re
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

from .budget import SERIES_EVENTS, STEPS, TooMuch
from .moments import Moment, known_zone
from .records import Window

_DAY = timedelta(days=1)
_UNIT = {"SECONDLY": 1, "MINUTELY": 60}
_TIMES = ("BYHOUR", "BYMINUTE", "BYSECOND")
_NUMBERS = r"[+-]?\d{1,4}(?:,[+-]?\d{1,4})*"
_WEEKDAY = "(?:MO|TU|WE|TH|FR|SA|SU)"
_PARTS = {
    "FREQ": re.compile("SECONDLY|MINUTELY|HOURLY|DAILY|WEEKLY|MONTHLY|YEARLY"),
    "UNTIL": re.compile(r"\d{8}(?:T\d{6}Z?)?"),
    "COUNT": re.compile(r"-?\d{1,9}"),
    "INTERVAL": re.compile(r"\d{1,9}"),
    "WKST": re.compile(_WEEKDAY),
    "BYDAY": re.compile(rf"[+-]?\d{{0,2}}{_WEEKDAY}(?:,[+-]?\d{{0,2}}{_WEEKDAY})*"),
    **{
        f"BY{unit}": re.compile(_NUMBERS)
        for unit in ("SECOND", "MINUTE", "HOUR", "MONTHDAY", "YEARDAY", "WEEKNO", "MONTH", "SETPOS")
    },
}
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a rule is tried out in no zone


def tidy(value: str) -> str:
    """A rule as libraries read it; ValueError when it cannot be understood."""
    text = value.strip().strip(";").upper().removeprefix("RRULE:")
    given = [part.strip() for part in text.split(";") if part.strip()]
    parts: dict[str, str] = {}
    for number, part in enumerate(given, start=1):
        name, _equals, said = (re.sub(r"\s*([,=])\s*", r"\1", part)).partition("=")
        if name.startswith("X-"):
            continue
        if name == "UNTIL":
            said = re.sub(r"(?<=\d)[-:](?=\d)", "", said)
        found = _PARTS[name].match(said) if name in _PARTS else None
        if found is None or (found.end() < len(said) and number < len(given)) or name in parts:
            raise ValueError(f"{value[:60]!r} is no rule")
        parts[name] = found[0]
    if "FREQ" not in parts:
        raise ValueError(f"{value[:60]!r} is no rule")
    if "UNTIL" in parts:
        datetime.fromisoformat(parts["UNTIL"])
    rule = ";".join(f"{name}={parts[name]}" for name in sorted(parts, key="FREQ".__ne__))
    if parts.get("INTERVAL", "1").strip("0"):
        rrulestr(_endless(rule), dtstart=_ANY_DAY)
    return rule


def refuse_bomb(rule: str, start: Moment, window: Window) -> None:
    """A rule by the second or minute is followed from its start, step by step; one with many
    hours, minutes and seconds has all times of a step made before any is looked at.
    """
    parts = _parts(rule)
    at_once = math.prod(len(parts[name].split(",")) for name in _TIMES if name in parts)
    if at_once > SERIES_EVENTS:
        raise TooMuch(f"FREQ={parts['FREQ']} with {at_once:,} times a step is too much")
    unit = _UNIT.get(parts["FREQ"])
    if unit is None:
        return
    seconds = unit * max(1, int(parts.get("INTERVAL") or 1))
    last = datetime.combine(window.end, datetime.min.time())
    until = re.match(r"(\d{4})(\d\d)(\d\d)", parts.get("UNTIL", ""))
    if until:
        last = min(last, datetime.combine(date(*map(int, until.groups())) + _DAY, last.time()))
    steps = (last - start.wall).total_seconds() / seconds
    plain = not any(name.startswith("BY") for name in parts)
    if plain and parts.get("COUNT", "").isdigit():
        steps = min(steps, int(parts["COUNT"]))
    first = datetime.combine(window.first, datetime.min.time())
    inside = (last - max(first, start.wall)).total_seconds() / seconds
    if steps > STEPS or (plain and min(steps, inside) > SERIES_EVENTS):
        raise TooMuch(f"FREQ={parts['FREQ']} makes more than {SERIES_EVENTS:,} events")


def meant_zone(
    start: Moment, rules: list[str], *, calendar: str, city: str, points: list[Moment]
) -> str:
    """The zone in which a series whose start is in UTC repeats, "" for UTC itself; of any other
    start the zone that the feed names, which then changes nothing. `points` are times that the
    series has by what else is said of it.
    """
    named = known_zone(calendar)
    if start.zone != "UTC":
        return named
    choices = [named, ""] if named and named != "UTC" else ["", city]
    if any("BY" in rule for rule in rules):
        choices = [zone for zone in choices if fits(rules, _wall(start, zone))] or choices[:1]

    def agreeing(zone: str) -> int:
        hour = _wall(start, zone).time()
        return sum(_wall(one, zone).time() == hour for one in points if one.zone == "UTC")

    return max(choices, key=agreeing)


def fits(rules: list[str], wall: datetime) -> bool:
    """Whether a start is among the times of one of its own rules."""
    return any(next(iter(rrulestr(_endless(rule), dtstart=wall)), None) == wall for rule in rules)


def _wall(start: Moment, zone: str) -> datetime:
    if not zone:
        return start.wall
    there = start.wall.replace(tzinfo=ZoneInfo("UTC")).astimezone(ZoneInfo(zone))
    return there.replace(tzinfo=None)


def _parts(rule: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in rule.split(";"))


def _endless(rule: str) -> str:
    """The rule without its end, which may be an instant or a day."""
    parts = _parts(rule).items()
    return ";".join(f"{name}={said}" for name, said in parts if name not in {"UNTIL", "COUNT"})
