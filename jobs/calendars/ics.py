"""Writes a city's events as iCalendar (RFC 5545) and as JSON, the same bytes for the same events.

Times are written in the city's zone, whose rules come along as a VTIMEZONE made from the IANA
data. DTSTAMP is the first day of the window, not the moment of writing: nothing changes when
nothing changed. A time in the hour that the clocks repeat is written in UTC, because local time
cannot say which of the two is meant.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from .merge import CityEvent
from .records import Window, instant_of, is_day

_SPECIAL = re.compile(r"[\\;,\n]")
_WIDTH = 75


def calendar_file(name: str, events: Sequence[CityEvent], window: Window) -> bytes:
    """The whole .ics file."""
    zone = ZoneInfo(window.zone)
    head = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//blackboard//calendars//EN",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        f"X-WR-CALNAME:{_text(name)}",
        f"X-WR-TIMEZONE:{window.zone}",
    ]
    lines = [*head, *(_zone_lines(window, events) if window.zone != "UTC" else ())]
    stamp = f"DTSTAMP:{window.first:%Y%m%d}T000000Z"
    for event in events:
        lines += _event_lines(event, zone, stamp)
    lines.append("END:VCALENDAR")
    return b"".join(_folded(line) for line in lines)


def events_file(name: str, events: Iterable[CityEvent], window: Window) -> bytes:
    """The same as JSON. Moments are days, or local times with their offset."""
    zone = ZoneInfo(window.zone)
    told = {
        "id": name,
        "timezone": window.zone,
        "from": window.first.isoformat(),
        "days": window.days,
        "events": [_event_object(event, zone) for event in events],
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"


def _event_object(event: CityEvent, zone: ZoneInfo) -> dict[str, object]:
    text = event.text
    told: dict[str, object] = {
        "uid": event.uid,
        "recurrence": _local(event.recurrence, zone) if event.recurrence else "",
        "title": text.title,
        "start": _local(event.start, zone),
        "end": _local(event.end, zone),
        "all_day": is_day(event.start),
        "location": text.location,
        "description": text.description,
        "url": text.url,
        "categories": text.categories,
        "status": text.status,
        "sources": event.sources,
        "merged": event.merged,
    }
    return {name: value for name, value in told.items() if value not in ("", ())}


def _local(moment: str, zone: ZoneInfo) -> str:
    return moment if is_day(moment) else instant_of(moment).astimezone(zone).isoformat()


def _event_lines(event: CityEvent, zone: ZoneInfo, stamp: str) -> list[str]:
    text = event.text
    lines = ["BEGIN:VEVENT", f"UID:{_text(event.uid)}", stamp]
    if event.recurrence:
        # The RFC wants a recurrence of the same kind as the start; a feed may mix them.
        place = event.recurrence if is_day(event.recurrence) == is_day(event.start) else event.start
        lines.append(_moment("RECURRENCE-ID", place, zone))
    lines += [_moment("DTSTART", event.start, zone), _moment("DTEND", event.end, zone)]
    lines.append(f"SUMMARY:{_text(text.title)}")
    for name, value in (("DESCRIPTION", text.description), ("LOCATION", text.location)):
        if value:
            lines.append(f"{name}:{_text(value)}")
    if text.url:
        lines.append(f"URL:{_address(text.url)}")
    if text.categories:
        lines.append("CATEGORIES:" + ",".join(map(_text, text.categories)))
    if text.status in {"CONFIRMED", "TENTATIVE", "CANCELLED"}:
        lines.append(f"STATUS:{text.status}")
    lines.append("X-SOURCE:" + ",".join(map(_text, event.sources)))
    if event.merged:
        lines.append("X-MERGED-UID:" + ",".join(map(_text, event.merged)))
    return [*lines, "END:VEVENT"]


def _moment(name: str, moment: str, zone: ZoneInfo) -> str:
    if is_day(moment):
        return f"{name};VALUE=DATE:{moment.replace('-', '')}"
    instant = instant_of(moment)
    local = instant.astimezone(zone)
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    if zone.key == "UTC" or twice:
        return f"{name}:{instant:%Y%m%dT%H%M%S}Z"
    return f"{name};TZID={zone.key}:{local:%Y%m%dT%H%M%S}"


def _zone_lines(window: Window, events: Sequence[CityEvent]) -> list[str]:
    """The zone's offsets from a year before the first event to a year after the last."""
    zone = ZoneInfo(window.zone)
    days = [
        moment[:10] for one in events for moment in (one.start, one.end, one.recurrence) if moment
    ]
    first = min([window.first.isoformat(), *days])
    last = max([window.end.isoformat(), *days])
    year = timedelta(days=366)
    begin = max(datetime.fromisoformat(first), datetime(1900, 1, 1) + year) - year  # noqa: DTZ001
    stop = min(datetime.fromisoformat(last), datetime(2100, 1, 1) - year) + year  # noqa: DTZ001
    lines = ["BEGIN:VTIMEZONE", f"TZID:{zone.key}"]
    at = begin.replace(tzinfo=UTC)
    lines += _observance(at, zone, at.astimezone(zone).utcoffset() or timedelta())
    for change, before in _changes(zone, at, stop.replace(tzinfo=UTC)):
        lines += _observance(change, zone, before)
    return [*lines, "END:VTIMEZONE"]


def _changes(zone: ZoneInfo, at: datetime, stop: datetime) -> list[tuple[datetime, timedelta]]:
    """The instants at which the offset changes, each with the offset before it."""
    found = []
    step = timedelta(days=7)
    while at < stop:
        before, after = _offset(at, zone), _offset(at + step, zone)
        if before != after:
            low, high = at, at + step
            while high - low > timedelta(seconds=1):
                middle = (low + (high - low) / 2).replace(microsecond=0)
                low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
            found.append((high, before))
            at = high
        else:
            at += step
    return found


def _offset(at: datetime, zone: ZoneInfo) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _observance(at: datetime, zone: ZoneInfo, before: timedelta) -> list[str]:
    local = at.astimezone(zone)
    kind = "DAYLIGHT" if local.dst() else "STANDARD"
    return [
        f"BEGIN:{kind}",
        f"DTSTART:{(at + before):%Y%m%dT%H%M%S}",
        f"TZOFFSETFROM:{_hours(before)}",
        f"TZOFFSETTO:{_hours(_offset(at, zone))}",
        f"TZNAME:{local.tzname()}",
        f"END:{kind}",
    ]


def _hours(offset: timedelta) -> str:
    seconds = int(offset.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("+", seconds)
    rest = f"{seconds % 60:02d}" if seconds % 60 else ""
    return f"{sign}{seconds // 3600:02d}{seconds // 60 % 60:02d}{rest}"


def _text(value: str) -> str:
    """A TEXT value, escaped."""
    return _SPECIAL.sub(lambda found: "\\n" if found[0] == "\n" else "\\" + found[0], value)


def _address(url: str) -> str:
    return "".join("%20" if letter.isspace() else letter for letter in url)


def _folded(line: str) -> bytes:
    """A line in pieces of at most 75 octets, none of which ends within a character."""
    raw = line.encode("utf-8", "replace")
    if len(raw) <= _WIDTH:
        return raw + b"\r\n"
    pieces = []
    room = _WIDTH
    while len(raw) > room:
        cut = room
        while raw[cut] & 0xC0 == 0x80:
            cut -= 1
        pieces.append(raw[:cut])
        raw = raw[cut:]
        room = _WIDTH - 1
    return b"\r\n ".join([*pieces, raw]) + b"\r\n"
