"""Reads the recurrence rules of a feed, and what else is said of the times of a series.

Understood besides RFC 5545: lower case, white space, dashes in UNTIL, parts that begin with X-, the
text of a broken line after the last part, RSCALE=GREGORIAN (RFC 7529), weekdays of which only some
have a number, a negative COUNT, which is none, and INTERVAL=0, which is 1.

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

import math
import re
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr
from icalendar.timezone import tzp

from blackboard.schedule.rrule import NUMBERS, one_kind

from .budget import SERIES_EVENTS, STEPS, TooMuch
from .records import Window
from .times import Moment, cut
from .zone_names import guessed_zone

_ONE_DAY = timedelta(days=1)
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
    "RSCALE": re.compile("GREGORIAN"),
    "SKIP": re.compile("OMIT|BACKWARD|FORWARD"),
    "BYDAY": re.compile(rf"[+-]?\d{{0,2}}{_WEEKDAY}(?:,[+-]?\d{{0,2}}{_WEEKDAY})*"),
    **{
        f"BY{unit}": re.compile(_NUMBERS)
        for unit in ("SECOND", "MINUTE", "HOUR", "MONTHDAY", "YEARDAY", "WEEKNO", "MONTH", "SETPOS")
    },
}
_BY = re.compile("BY(?!DAY).*")
_LEFT_OUT = re.compile(r"\b(?:SKIP\s*=\s*(?:BACK|FOR)WARD|INTERVAL\s*=\s*0+)\b", re.IGNORECASE)
_UNTIL = re.compile(r"UNTIL=(\d{8})(?:T(\d{6})(Z?))?(?![\dTZ])")
_OF_DATES = frozenset({"000000", "235959"})
"""Times in UTC that only fill up a date."""
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a rule is tried out in no zone


def tidy(value: str) -> str:
    """A rule in standard form. Raises ValueError when it cannot be read."""
    text = " ".join(value.split()).strip(";").upper().removeprefix("RRULE:")
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
    _drop_defaults(parts)
    _check_numbers(parts)
    if "BYDAY" in parts and parts["FREQ"] in {"MONTHLY", "YEARLY"}:
        parts["BYDAY"] = ",".join(one_kind(parts["BYDAY"].split(","), parts))
    rule = ";".join(f"{name}={parts[name]}" for name in sorted(parts, key="FREQ".__ne__))
    rrulestr(_endless(rule), dtstart=_ANY_DAY)
    return rule


def _drop_defaults(parts: dict[str, str]) -> None:
    """Removes the parts that say nothing, or nothing that can be followed."""
    for name in ("RSCALE", "SKIP"):
        parts.pop(name, None)
    if not parts.get("INTERVAL", "1").strip("0"):
        del parts["INTERVAL"]
    if parts.get("COUNT", "").startswith("-"):
        del parts["COUNT"]


def _check_numbers(parts: dict[str, str]) -> None:
    """Raises ValueError for the month 13, for which dateutil would search to the last year."""
    for name in filter(_BY.fullmatch, parts):
        least, most = NUMBERS[name]
        numbers = [int(number) for number in parts[name].split(",")]
        if min(numbers) < least or max(numbers) > most or (least < 0 and 0 in numbers):
            raise ValueError(f"{name}={parts[name][:40]} is no part of a rule")


def not_followed(value: str) -> list[str]:
    """What a rule says and `tidy` leaves out, though it may move some of its days."""
    return [f"{''.join(said.upper().split())} is not followed" for said in _LEFT_OUT.findall(value)]


def ended_in(rule: str, start: Moment, zone: str) -> str:
    """A rule with its UNTIL as RFC 5545 has it for such a start: a day for days, else an instant. A
    local time is one of the start's zone. `zone` is that of the feed's days.
    """
    found = _UNTIL.search(rule)
    if found is None:
        return rule
    wall = cut(datetime.fromisoformat(f"{found[1]}T{found[2] or '235959'}"))
    if start.is_day:
        until = f"{_day_of(Moment(wall, 'UTC' if found[3] else start.zone), zone):%Y%m%d}"
    elif found[3]:
        return rule
    else:
        there = tzp.timezone(start.zone if found[2] or start.zone != "UTC" else zone)
        until = f"{wall.replace(tzinfo=there).astimezone(UTC):%Y%m%dT%H%M%SZ}"
    return rule.replace(found[0], f"UNTIL={until}")


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


def refuse_bomb(rule: str, start: Moment, window: Window) -> None:
    """Raises TooMuch. A rule by the second or minute is followed from its start, step by step; of
    one with many hours, minutes and seconds, all times of a step are made before any is looked at.
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
        last = min(last, datetime.combine(date(*map(int, until.groups())) + _ONE_DAY, last.time()))
    steps = (last - start.wall).total_seconds() / seconds
    plain = not any(name.startswith("BY") for name in parts)
    if plain and parts.get("COUNT", "").isdigit():
        steps = min(steps, int(parts["COUNT"]))
    first = datetime.combine(window.first, datetime.min.time())
    inside = (last - max(first, start.wall)).total_seconds() / seconds
    if steps > STEPS or (plain and min(steps, inside) > SERIES_EVENTS):
        raise TooMuch(f"FREQ={parts['FREQ']} makes more than {SERIES_EVENTS:,} events")


def meant_start(
    start: Moment, rules: list[str], *, calendar: str, city: str, points: list[Moment]
) -> Moment:
    """The start of a series, in the zone in which it repeats: its own, unless that is UTC. `points`
    are times that the series has by what else is said of it.
    """
    if start.zone != "UTC":
        return start
    named = guessed_zone(calendar)
    choices = [named, "UTC"] if named and named != "UTC" else ["UTC", city]
    if any("BY" in rule for rule in rules):
        choices = [zone for zone in choices if fits(rules, _wall(start, zone))] or choices[:1]

    def agreeing(zone: str) -> int:
        hour = _wall(start, zone).time()
        return sum(_wall(one, zone).time() == hour for one in points if one.zone == "UTC")

    zone = max(choices, key=agreeing)
    return Moment(_wall(start, zone), zone)


def has_start(rules: list[str], start: Moment) -> bool:
    """Whether the start of a series is one of its times: unless all of its rules end before it."""

    def reaches(rule: str) -> bool:
        found = _UNTIL.search(rule)
        if found is None:
            return True
        end = datetime.fromisoformat(found[0].removeprefix("UNTIL="))
        return (end.date() if start.is_day else end) >= start.time

    return not rules or any(map(reaches, rules))


def fits(rules: list[str], wall: datetime) -> bool:
    """Whether a start is among the times of one of its own rules."""
    return any(next(iter(rrulestr(_endless(rule), dtstart=wall)), None) == wall for rule in rules)


def _wall(start: Moment, zone: str) -> datetime:
    there = start.wall.replace(tzinfo=ZoneInfo("UTC")).astimezone(ZoneInfo(zone))
    return there.replace(tzinfo=None)


def _parts(rule: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in rule.split(";"))


def _endless(rule: str) -> str:
    """The rule without its end, which may be an instant or a day."""
    parts = _parts(rule).items()
    return ";".join(f"{name}={said}" for name, said in parts if name not in {"UNTIL", "COUNT"})
