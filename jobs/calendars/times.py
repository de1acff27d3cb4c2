"""Reads the dates, times, zones and recurrence rules of a feed, well-formed or not.

**Times.** Understood besides RFC 5545: dashes and colons (2026-08-21 19:00), no seconds, offsets, a
date marked as a time and a time marked as a date, 24:00, and a date with the text of a broken line
after it. A zone is, in this order, an IANA name in any case, a Windows name, the tail of a vendor's
path, the feed's own VTIMEZONE; else the feed's X-WR-TIMEZONE, unless that is UTC, which many
programs write by default; else the city's zone, which also holds for floating times.

A datetime holds the years 1 to 9999. What is `within` `EARLIEST` and `LATEST` is two days away from
its ends, so that no zone and no day added leads out of it.

**Rules.** Understood besides RFC 5545: lower case, white space, dashes in UNTIL, parts that begin
with X-, and the text of a broken line after the last part.

An event in UTC whose feed names a zone (X-WR-TIMEZONE) may be meant in either: the RFC repeats it
in UTC, most publishers mean the zone, and keep its hour when the clocks change. The start decides.
It is the first of its series, so where it is none of the days of the rule in one of the two, the
other is meant. Where it fits in both, exclusions and changes decide: they are at the hour that the
series has. Where all that decides nothing, it is the feed's zone. A feed that names no zone means
UTC, unless the start fits the rule in the city's zone alone.
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from dateutil.rrule import rrulestr
from icalendar import Timezone
from icalendar.timezone import tzp
from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from .lines import Line
from .records import SERIES_EVENTS, STEPS, TooMuch, Window

_MOMENT = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)"
    r"(?:[T ]\s*(\d\d):?(\d\d)(?::?(\d\d))?(?:[.,]\d+)?\s*(Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
_TZID = re.compile(r';\s*TZID\s*=\s*(?:"([^"]*)"|([^;]*))', re.IGNORECASE)
_DATE_ONLY = re.compile(r";\s*VALUE\s*=\s*DATE\s*(?:;|$)", re.IGNORECASE)
_TZID_LINE = re.compile(r"^TZID[^:\n]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_LOCATION_LINE = re.compile(r"^X-LIC-LOCATION[^:\n]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_MORE_DIGITS = re.compile(r"\s*T?\d", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)")

_DAY = timedelta(days=1)
_OWN = "feed-zone-"
_FREQUENCY = re.compile(r"FREQ\s*=\s*([A-Z]+)")
_HORIZON = datetime(2300, 1, 1)  # noqa: DTZ001 - the wall of a zone of a feed
EARLIEST, LATEST = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001 - walls of any zone


@dataclass(frozen=True, slots=True)
class Moment:
    """A wall time, and the zone it is in: "" for a day, "UTC" for an instant."""

    wall: datetime
    zone: str

    @property
    def is_day(self) -> bool:
        return not self.zone

    def within(self) -> "Moment":
        """The same time, or the nearest that exists in its zone."""
        last = _HORIZON if self.zone.startswith(_OWN) else LATEST
        return Moment(max(EARLIEST, min(self.wall, last)), self.zone)

    def line(self, name: str) -> str:
        """As a property in standard form."""
        digits = self.wall.isoformat().replace("-", "").replace(":", "")
        if self.is_day:
            return f"{name};VALUE=DATE:{digits[:8]}"
        if self.zone == "UTC":
            return f"{name}:{digits}Z"
        return f"{name};TZID={self.zone}:{digits}"


class Zones:
    """The zones of one feed."""

    def __init__(self, city: str) -> None:
        self._city = city
        self._own: dict[str, str] = {}
        self._tried = 0
        tzp.use_default()

    def learn(self, component: str) -> None:
        """Makes a VTIMEZONE of the feed's own known, where no known zone has its name. Its rules
        are followed to the horizon here, and never further: what that takes is seen at once.
        """
        named, located = _TZID_LINE.search(component), _LOCATION_LINE.search(component)
        name = _zone_name(named[1]) if named else ""
        if not name or known_zone(name) or name in self._own:
            return
        alias = known_zone(located[1].strip()) if located else ""
        if not alias:
            alias = f"{_OWN}{self._tried}"
            self._tried += 1
            own = Timezone.from_ical(component)
            own["TZID"] = alias
            if set(_FREQUENCY.findall(component.upper())) - {"YEARLY"}:
                raise ValueError(f"{name[:60]}: its clocks change more often than every year")
            tzp.cache_timezone_component(own)
            _HORIZON.replace(tzinfo=tzp.timezone(alias)).utcoffset()
        self._own[name] = alias

    def name(self, tzid: str, calendar: str) -> str:
        """The zone for a TZID, which may be empty or unknown."""
        found = known_zone(tzid) or self._own.get(_zone_name(tzid), "")
        if found:
            return found
        ours = known_zone(calendar)
        return ours if ours and ours != "UTC" else self._city

    def moment(self, line: Line, calendar: str) -> Moment:
        """The single date or time of a property; ValueError when it is none."""
        found = self.moments(line, calendar)
        if not found:
            raise ValueError(f"{line.name} is empty")
        return found[0]

    def moments(self, line: Line, calendar: str) -> list[Moment]:
        """All dates or times of a property. Of a period, the start."""
        return [start for start, _end in self.periods(line, calendar)]

    def periods(self, line: Line, calendar: str) -> list[tuple[Moment, str]]:
        """The same, each with the text after its slash: an end, a duration, or nothing."""
        found = _TZID.search(line.params)
        tzid = (found[1] or found[2] or "").strip() if found else ""
        day = _DATE_ONLY.search(line.params) is not None
        parts = [part.partition("/") for part in line.value.split(",")]
        return [
            (self._one(start.strip(), tzid, calendar, day=day), end.strip())
            for start, _slash, end in parts
            if start.strip()
        ]

    def _one(self, text: str, tzid: str, calendar: str, *, day: bool) -> Moment:
        found = _MOMENT.fullmatch(text) or _MOMENT.match(text)
        if found is None or _MORE_DIGITS.match(text, found.end()):
            raise ValueError(f"{text[:40]!r} is no date")
        year, month, date = (int(part) for part in found.groups()[:3])
        if day or found[4] is None:
            return Moment(datetime(year, month, date), "")  # noqa: DTZ001 - a day has no zone
        past = timedelta(
            hours=_below(found[4], 25), minutes=_below(found[5], 60), seconds=_below(found[6], 61)
        )
        wall = datetime(year, month, date)  # noqa: DTZ001 - the zone comes beside it
        wall = (wall if past < _DAY else _cut(wall)) + past
        offset = found[7]
        if offset is None:
            return Moment(wall, self.name(tzid, calendar))
        if offset.upper() == "Z":
            return Moment(wall, "UTC")
        minutes = int(offset[1:3]) * 60 + int(offset[-2:])
        there = timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))
        return Moment(_cut(wall).replace(tzinfo=there).astimezone(UTC).replace(tzinfo=None), "UTC")


def _cut(wall: datetime) -> datetime:
    return max(EARLIEST, min(wall, LATEST))


def _zone_name(text: str) -> str:
    """A TZID, normalized: as text it escapes its commas, as a parameter it does not."""
    return " ".join(_ESCAPED.sub(r"\1", text.strip().strip('"')).split())


def _below(digits: str | None, limit: int) -> int:
    number = int(digits or 0)
    if number >= limit:
        raise ValueError(f"{digits} is no part of a time")
    return number


@cache
def known_zone(name: str) -> str:
    """The IANA name of a zone, or ""."""
    name = name.strip().strip('"')
    if name.upper() in {"Z", "UTC", "GMT", "ETC/UTC", "ETC/GMT", "ZULU"}:
        return "UTC"
    if name in WINDOWS_TO_OLSON:
        return WINDOWS_TO_OLSON[name]
    parts = name.strip("/").split("/")
    for start in range(len(parts)):
        found = _spellings().get("/".join(parts[start:]).lower())
        if found:
            return found
        if not name.startswith("/"):
            break
    return ""


@cache
def _spellings() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


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
    "BYDAY": re.compile(rf"[+-]?\d{{0,2}}{_WEEKDAY}(?:,[+-]?\d{{0,2}}{_WEEKDAY})*"),
    **{
        f"BY{unit}": re.compile(_NUMBERS)
        for unit in ("SECOND", "MINUTE", "HOUR", "MONTHDAY", "YEARDAY", "WEEKNO", "MONTH", "SETPOS")
    },
}
_UNTIL = re.compile(r"UNTIL=(\d{8})(?:T(\d{6})(Z?))?(?![\dTZ])")
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a rule is tried out in no zone


def tidy(value: str) -> str:
    """A rule in standard form. Raises ValueError when it cannot be read."""
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


def ended_in(rule: str, start: Moment) -> str:
    """A rule whose UNTIL is in UTC, as RFC 5545 has it for a start with a zone. A local time is one
    of that zone, which a floating start has, too; a day is meant whole.
    """
    found = _UNTIL.search(rule)
    if found is None or found[3] or start.zone in {"", "UTC"}:
        return rule
    wall = datetime.fromisoformat(f"{found[1]}T{found[2] or '235959'}")
    until = wall.replace(tzinfo=tzp.timezone(start.zone)).astimezone(UTC)
    return rule.replace(found[0], f"UNTIL={until:%Y%m%dT%H%M%SZ}")


def at_start(moment: Moment, start: Moment) -> Moment:
    """A day that names one of the times of a series that begins at `start`: at its time of day."""
    if not moment.is_day or start.zone in {"", "UTC"}:
        return moment
    return Moment(datetime.combine(moment.wall.date(), start.wall.time()), start.zone)


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
        last = min(last, datetime.combine(date(*map(int, until.groups())) + _ONE_DAY, last.time()))
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
