"""Reads the dates, times, durations and zones of a feed, well-formed or not.

Understood besides RFC 5545: dashes and colons (2026-08-21 19:00), no seconds, offsets, a
date marked as a time and a time marked as a date, 24:00, AM and PM, and a date with the text of a
broken line after it, unless that is a zone (`zone_behind`). The second 60 is read as 59, as
RFC 5545 has it. A zone is, in this order, one that is known by its name, the feed's own
VTIMEZONE, one that is probably meant (`zone_names.py`); else the feed's X-WR-TIMEZONE, unless that
is UTC, which many programs write by default; else the city's zone, which also holds for floating
times. A floating start is one of the zone that its end names, where the feed names none; a floating
time beside a start is one of the start's zone.

Weeks and days of a DURATION are nominal: a day later is the same hour of the next day, whatever the
clocks do in between. Hours, minutes and seconds are exact (RFC 5545, 3.3.6).

A datetime holds the years 1 to 9999. What is `within` `EARLIEST` and `LATEST` is two days away from
its ends, so that no zone and no day added leads out of it.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo

from icalendar import Timezone
from icalendar.timezone import tzp
from icalendar.timezone.zoneinfo import ZONEINFO

from .lines import Block, Line
from .zone_names import guessed_zone, known_zone, zone_behind, zone_name, zone_of_days

_MOMENT = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)"
    r"(?:[T ]\s*(\d\d|\d(?=:|\d{4}(?!\d))):?(\d\d)(?::?(\d\d))?(?:[.,]\d+)?"
    r"(?:\s*([AP])\.?M\b\.?)?\s*(Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
_TZID = re.compile(r';\s*TZID\s*=\s*(?:"([^"]*)"|([^;]*))', re.IGNORECASE)
_DATE_ONLY = re.compile(r";\s*VALUE\s*=\s*DATE\s*(?:;|$)", re.IGNORECASE)
_OFFSET = re.compile(r"([+-]?)(\d\d):?(\d\d)(?::?(\d\d))?")
_CHANGE = re.compile(r"(\d{8})(T\d{6})?[^,]*")
_PERIOD = re.compile(r"/(?!\s*[a-z]{3})", re.IGNORECASE)
"""The slash of a period, not that of a zone's name."""
_MORE_DIGITS = re.compile(r"\s*T?\d", re.IGNORECASE)
_LONGEST_NAME = 60

_DURATION = re.compile(
    r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)", re.IGNORECASE
)
LONGEST = timedelta(days=36_525)
"""A longer DURATION is ignored, and so is a longer one from start to end in a series."""
_MOST_DIGITS = 12

_DAY = timedelta(days=1)
_OWN = "feed-zone-"
_HORIZON = datetime(2300, 1, 1)  # noqa: DTZ001 - the wall of a zone of a feed
EARLIEST, LATEST = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001 - walls of any zone


@dataclass(frozen=True, slots=True)
class Length:
    """Nominal days, and exact seconds after them."""

    days: int
    seconds: int

    def after(self, start: date) -> date:
        """The end of what begins at a day, or at an aware time. A day counts when it begins."""
        if not isinstance(start, datetime):
            begun = -(-self.seconds // 86_400)
            return start + timedelta(days=max(1, self.days + begun))
        later = (start + timedelta(days=self.days)).astimezone(UTC)
        return later + timedelta(seconds=self.seconds)


def length_of(text: str) -> Length | None:
    """The length that a DURATION says; None when it is none, or goes back in time."""
    parts = _DURATION.fullmatch(text.strip())
    if parts is None or parts[1] == "-" or not any(parts.groups()[1:]):
        return None
    weeks, days, hours, minutes, seconds = (
        int(part[:_MOST_DIGITS]) if part else 0 for part in parts.groups()[1:]
    )
    return Length(weeks * 7 + days, hours * 3_600 + minutes * 60 + seconds)


@dataclass(frozen=True, slots=True)
class Moment:
    """A wall time, and the zone it is in: "" for a day, "UTC" for an instant."""

    wall: datetime
    zone: str

    @property
    def is_day(self) -> bool:
        return not self.zone

    @property
    def text(self) -> str:
        """As a feed has it, without its zone."""
        if self.is_day:
            return f"{self.wall:%Y%m%d}"
        return f"{self.wall:%Y%m%dT%H%M%S}{'Z' if self.zone == 'UTC' else ''}"

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


@dataclass(frozen=True, slots=True)
class Written:
    """A date or a time as a feed has it."""

    wall: datetime
    has_time: bool
    east: timedelta | None
    """What the offset behind it says; zero for a Z."""
    rest: str
    """What stands behind all that."""


def written(text: str) -> Written:
    """Reads a date or a time; ValueError when it is none."""
    parts = _MOMENT.fullmatch(text) or _MOMENT.match(text)
    if parts is None or _MORE_DIGITS.match(text, parts.end()):
        raise ValueError(text)
    year, month, of_month = (int(part) for part in parts.groups()[:3])
    wall = datetime(year, month, of_month)  # noqa: DTZ001 - the zone comes beside it
    rest = text[parts.end() :].strip()
    if parts[4] is None:
        return Written(wall, has_time=False, east=None, rest=rest)
    past = timedelta(
        hours=_hour(parts[4], parts[7]),
        minutes=_below(parts[5], 60),
        seconds=min(_below(parts[6], 61), 59),
    )
    wall = (wall if past < _DAY else cut(wall)) + past
    return Written(wall, has_time=True, east=_east(parts[8]), rest=rest)


def _east(offset: str | None) -> timedelta | None:
    if offset is None or offset.upper() == "Z":
        return timedelta(0) if offset else None
    minutes = int(offset[1:3]) * 60 + int(offset[-2:])
    return timedelta(minutes=-minutes if offset[0] == "-" else minutes)


def in_utc(wall: datetime, east: timedelta) -> datetime:
    """The wall time in UTC of one that is so far east. ValueError for more than a day."""
    if not east:
        return wall
    return cut(wall).replace(tzinfo=timezone(east)).astimezone(UTC).replace(tzinfo=None)


class _Clocks(tzinfo):
    """The clocks of a VTIMEZONE. Of a time that they leave out a library takes the offset from
    after the change, so that it comes before what is an hour earlier; here it has the one from
    before, as RFC 5545 says (3.3.5), and as in any other zone.
    """

    def __init__(self, read: tzinfo) -> None:
        self._read = read

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        offset_of = self._read.utcoffset
        wall = moment and moment.replace(tzinfo=None)
        after = offset_of(wall)
        if wall is None or after is None or wall.fold:
            return after
        before = offset_of(cut(wall) - _DAY)
        if before is None or before >= after or offset_of(cut(wall) - (after - before)) != before:
            return after
        return before

    def dst(self, moment: datetime | None) -> timedelta | None:
        return self._read.dst(moment)

    def tzname(self, moment: datetime | None) -> str | None:
        return self._read.tzname(moment)

    def fromutc(self, moment: datetime) -> datetime:
        return self._read.fromutc(moment.replace(tzinfo=self._read)).replace(tzinfo=self)


class _ZonesOfFeeds(ZONEINFO):
    """Makes the clocks of a VTIMEZONE."""

    def create_timezone(self, tz: Timezone) -> tzinfo:  # type: ignore[override] # as ZONEINFO has it
        return _Clocks(super().create_timezone(tz))


class Zones:
    """The zones of one feed."""

    def __init__(self, city: str) -> None:
        self._city = city
        self._own: dict[tuple[int, str], str] = {}
        """By the number of the calendar and the name."""
        self._of_any: dict[str, str] = {}
        """The first of each name, for calendars that do not define it."""
        self._learned: dict[str, str] = {}
        """By their clocks."""
        self._tried = 0
        self.unknown: set[str] = set()
        """Names of zones that were asked for and are not known."""
        tzp.use(_ZonesOfFeeds())

    def learn(self, zone: Block) -> None:
        """Makes a VTIMEZONE of the feed's own known in its calendar, where no known zone has its
        name. Its rules are followed to the horizon here, and never further: what that takes is seen
        at once. ValueError, or another error of a library, where its clocks cannot be read.
        """
        name = zone_name(zone.value("TZID"))
        if not name or known_zone(name) or (zone.calendar, name) in self._own:
            return
        known = known_zone(zone.value("X-LIC-LOCATION")) or self._with_clocks(_clocks(zone))
        self._own[zone.calendar, name] = known
        self._of_any.setdefault(name, known)

    def _with_clocks(self, clocks: str) -> str:
        if clocks not in self._learned:
            alias = f"{_OWN}{self._tried}"
            self._tried += 1
            lines = ("BEGIN:VTIMEZONE", f"TZID:{alias}", clocks, "END:VTIMEZONE", "")
            tzp.cache_timezone_component(Timezone.from_ical("\r\n".join(lines)))
            _HORIZON.replace(tzinfo=tzp.timezone(alias)).utcoffset()
            self._learned[clocks] = alias
        return self._learned[clocks]

    def name(self, tzid: str, block: Block) -> str:
        """The zone for a TZID, which may be empty, or unknown: it is then noted."""
        zone = self._found(tzid, block)
        if zone:
            return zone
        self.unknown |= {
            one for one in (tzid, block.zone) if zone_name(one) and not guessed_zone(one)
        }
        return self.of_days(block.zone)

    def _found(self, tzid: str, block: Block) -> str:
        name = zone_name(tzid)
        own = self._own.get((block.calendar, name)) or self._of_any.get(name, "")
        return known_zone(tzid) or own or guessed_zone(tzid)

    def of_end(self, block: Block) -> str | None:
        """The zone that an end names, for a start that names none in a feed that names none."""
        line = block.first("DTEND")
        if line is None or guessed_zone(block.zone) not in {"", "UTC"}:
            return None
        return self._found(_tzid(line), block) or None

    def of_days(self, calendar: str) -> str:
        """The zone in which a day of the feed begins."""
        return zone_of_days(calendar, self._city)

    def moment(self, line: Line, block: Block, local: str | None = None) -> Moment:
        """The single date or time of a property; ValueError when it is none. `local` is the zone of
        the start, beside which it stands; None where there is none.
        """
        moments = self.periods(line, block, local)
        if not moments:
            raise ValueError(f"{line.name} is empty")
        return moments[0][0]

    def periods(
        self, line: Line, block: Block, local: str | None = None
    ) -> list[tuple[Moment, str]]:
        """All dates or times of a property, each with the text after its slash: an end, a duration,
        or nothing.
        """
        tzid = _tzid(line)
        day = _DATE_ONLY.search(line.params) is not None
        periods = []
        for part in line.value.split(","):
            start, *ends = (side.strip() for side in _PERIOD.split(part, maxsplit=1))
            if not start:
                continue
            try:
                moment = self._one(start, tzid, block, local, day=day)
            except ValueError:
                problem = f"{line.name}: {start[:40]!r} is not a date or time"
                raise ValueError(problem) from None
            periods.append((moment, ends[0] if ends else ""))
        return periods

    def _one(self, text: str, tzid: str, block: Block, local: str | None, *, day: bool) -> Moment:
        when = written(text)
        if not when.has_time or (day and local == ""):
            return Moment(datetime.combine(when.wall, time()), "")
        if day and when.wall.time() == time():
            return Moment(when.wall, "")
        if when.east is not None:
            return Moment(in_utc(when.wall, when.east), "UTC")
        behind = zone_behind(when.rest) if len(when.rest) < _LONGEST_NAME else ""
        if behind and not tzid:
            return Moment(when.wall, behind)
        return Moment(when.wall, local if local and not tzid else self.name(tzid, block))


def _tzid(line: Line) -> str:
    name = _TZID.search(line.params)
    return (name[1] or name[2] or "").strip() if name else ""


def _clocks(zone: Block) -> str:
    """The clocks of a VTIMEZONE, in the form that libraries read. ValueError."""
    return "\r\n".join(
        f"{line.name}:{_clock_value(line)}"
        for line in zone.lines
        if line.name not in {"TZID", "X-LIC-LOCATION"}
    )


def _clock_value(line: Line) -> str:
    value = "".join(line.value.split()).upper()
    if line.name in {"DTSTART", "RDATE"}:
        changes = _CHANGE.findall(value)
        value = ",".join(day + (time or "T000000") for day, time in changes)
    elif line.name.startswith("TZOFFSET"):
        offset = _OFFSET.fullmatch(value)
        if offset is None:
            raise ValueError(f"{line.name}: {line.value[:40]!r} is no offset")
        value = "".join([offset[1] or "+", *filter(None, offset.groups()[1:])])
    elif line.name == "RRULE" and "FREQ=YEARLY" not in value:
        raise ValueError(f"{value[:60]!r}: clocks that change more often than every year")
    return value


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
        raise ValueError(digits)
    return number
