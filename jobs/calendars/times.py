"""Reads the dates, times and zones of a feed, well-formed or not.

Understood besides RFC 5545: dashes and colons (2026-08-21 19:00), no seconds, offsets, a
date marked as a time and a time marked as a date, 24:00, AM and PM, and a date with the text of a
broken line after it. A zone is, in this order, one that is known by its name, the feed's own
VTIMEZONE, one that is probably meant (`zone_names.py`); else the feed's X-WR-TIMEZONE, unless that
is UTC, which many programs write by default; else the city's zone, which also holds for floating
times. A floating time beside a start is one of the start's zone.

A datetime holds the years 1 to 9999. What is `within` `EARLIEST` and `LATEST` is two days away from
its ends, so that no zone and no day added leads out of it.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone

from icalendar import Timezone
from icalendar.timezone import tzp

from .lengths import Length
from .lines import Block, Line
from .zone_names import guessed_zone, known_zone, zone_name, zone_of_days

_MOMENT = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)"
    r"(?:[T ]\s*(\d\d|\d(?=:)):?(\d\d)(?::?(\d\d))?(?:[.,]\d+)?"
    r"(?:\s*([AP])\.?M\b\.?)?\s*(Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
_TZID = re.compile(r';\s*TZID\s*=\s*(?:"([^"]*)"|([^;]*))', re.IGNORECASE)
_DATE_ONLY = re.compile(r";\s*VALUE\s*=\s*DATE\s*(?:;|$)", re.IGNORECASE)
_TZID_LINE = re.compile(r"^TZID[^:\n]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_LOCATION_LINE = re.compile(r"^X-LIC-LOCATION[^:\n]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_MORE_DIGITS = re.compile(r"\s*T?\d", re.IGNORECASE)

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

    def after(self, length: Length) -> "Moment":
        """The end of what begins then."""
        end = length.after(self.time)
        if not isinstance(end, datetime):
            return Moment(datetime.combine(end, time()), "")
        return Moment(end.replace(tzinfo=None), "UTC")

    @property
    def time(self) -> date:
        """The day, or the aware time."""
        if self.is_day:
            return self.wall.date()
        return self.wall.replace(tzinfo=tzp.timezone(self.zone))


class Zones:
    """The zones of one feed."""

    def __init__(self, city: str) -> None:
        self._city = city
        self._own: dict[tuple[int, str], str] = {}
        """By the number of the calendar and the name."""
        self._of_any: dict[str, str] = {}
        """The first of each name, for calendars that do not define it."""
        self._learned: dict[str, str] = {}
        self._tried = 0
        self.unknown: set[str] = set()
        """Names of zones that were asked for and are not known."""
        tzp.use_default()

    def learn(self, component: str, calendar: int = 0) -> None:
        """Makes a VTIMEZONE of the feed's own known in its calendar, where no known zone has its
        name. Its rules are followed to the horizon here, and never further: what that takes is seen
        at once.
        """
        named, located = _TZID_LINE.search(component), _LOCATION_LINE.search(component)
        name = zone_name(named[1]) if named else ""
        if not name or known_zone(name) or (calendar, name) in self._own:
            return
        alias = self._learned.get(component) or (known_zone(located[1].strip()) if located else "")
        if not alias:
            alias = f"{_OWN}{self._tried}"
            self._tried += 1
            own = Timezone.from_ical(component)
            own["TZID"] = alias
            if set(_FREQUENCY.findall(component.upper())) - {"YEARLY"}:
                raise ValueError(f"{name[:60]}: its clocks change more often than every year")
            tzp.cache_timezone_component(own)
            _HORIZON.replace(tzinfo=tzp.timezone(alias)).utcoffset()
        self._learned[component] = self._own[calendar, name] = alias
        self._of_any.setdefault(name, alias)

    def name(self, tzid: str, block: Block) -> str:
        """The zone for a TZID, which may be empty, or unknown: it is then noted."""
        name = zone_name(tzid)
        own = self._own.get((block.calendar, name)) or self._of_any.get(name, "")
        found = known_zone(tzid) or own or guessed_zone(tzid)
        if found:
            return found
        self.unknown |= {
            one for one in (tzid, block.zone) if zone_name(one) and not guessed_zone(one)
        }
        return self.of_days(block.zone)

    def of_days(self, calendar: str) -> str:
        """The zone in which a day of the feed begins."""
        return zone_of_days(calendar, self._city)

    def moment(self, line: Line, block: Block, local: str = "") -> Moment:
        """The single date or time of a property; ValueError when it is none. `local` is the zone of
        the start, where there is one.
        """
        found = self.periods(line, block, local)
        if not found:
            raise ValueError(f"{line.name} is empty")
        return found[0][0]

    def periods(self, line: Line, block: Block, local: str = "") -> list[tuple[Moment, str]]:
        """All dates or times of a property, each with the text after its slash: an end, a duration,
        or nothing.
        """
        found = _TZID.search(line.params)
        tzid = (found[1] or found[2] or "").strip() if found else ""
        day = _DATE_ONLY.search(line.params) is not None
        parts = [part.partition("/") for part in line.value.split(",")]
        return [
            (self._one(start.strip(), tzid, block, local, day=day), end.strip())
            for start, _slash, end in parts
            if start.strip()
        ]

    def _one(self, text: str, tzid: str, block: Block, local: str, *, day: bool) -> Moment:
        found = _MOMENT.fullmatch(text) or _MOMENT.match(text)
        if found is None or _MORE_DIGITS.match(text, found.end()):
            raise ValueError(f"{text[:40]!r} is no date")
        year, month, of_month = (int(part) for part in found.groups()[:3])
        if day or found[4] is None:
            return Moment(datetime(year, month, of_month), "")  # noqa: DTZ001 - a day has no zone
        past = timedelta(
            hours=_hour(found[4], found[7]),
            minutes=_below(found[5], 60),
            seconds=_below(found[6], 61),
        )
        wall = datetime(year, month, of_month)  # noqa: DTZ001 - the zone comes beside it
        wall = (wall if past < _DAY else cut(wall)) + past
        offset = found[8]
        if offset is None:
            return Moment(wall, local if local and not tzid else self.name(tzid, block))
        if offset.upper() == "Z":
            return Moment(wall, "UTC")
        minutes = int(offset[1:3]) * 60 + int(offset[-2:])
        there = timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))
        return Moment(cut(wall).replace(tzinfo=there).astimezone(UTC).replace(tzinfo=None), "UTC")


def cut(wall: datetime) -> datetime:
    """The same time, or the nearest that no zone and no day added leads out of time."""
    return max(EARLIEST, min(wall, LATEST))


def _hour(digits: str, half: str | None) -> int:
    """The hour, of 24, or of the 12 of half a day."""
    if half is None:
        return _below(digits, 25)
    return _below(digits, 13) % 12 + (12 if half in "pP" else 0)


def _below(digits: str | None, limit: int) -> int:
    number = int(digits or 0)
    if number >= limit:
        raise ValueError(f"{digits} is no part of a time")
    return number
