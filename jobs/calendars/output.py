"""The calendar of a city as iCalendar (RFC 5545) and as JSON.

The same events give the same bytes. Times are in the city's zone, whose rules are included as a
VTIMEZONE made from the IANA data. A time in the hour that the clocks repeat is in UTC, because
local time cannot say which of the two is meant. An event that has not changed is written as before,
whatever the day, so that a comparison of two files, or a subscriber, sees only changes: DTSTAMP,
which calendars must have, is always the same, and the VTIMEZONE goes from one New Year to another.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from blackboard.schedule.zones import next_change

from .lines import CONTROL
from .merge import CityEvent
from .records import Window, is_day, local_of

PRODUCT = "PRODID:-//blackboard//calendars//EN"
"""The line of a calendar that says who has made it."""
_SPECIAL = re.compile(r"[\\;,\n]")
_WIDTH = 75
_STAMP = "DTSTAMP:19700101T000000Z"
_NO_TWO_CHANGES = timedelta(days=2)
"""A time in which no zone changes its offset twice (`blackboard.schedule.zones`)."""
_UNQUOTED = str.maketrans({'"': "^'", "^": "^^", "\n": "^n"})
"""The characters that a parameter cannot hold, as RFC 6868 writes them."""


def calendar_file(name: str, events: Sequence[CityEvent], window: Window) -> bytes:
    """The whole .ics file."""
    zone = ZoneInfo(window.zone)
    head = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        PRODUCT,
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        f"X-WR-CALNAME:{_text(name)}",
        f"X-WR-TIMEZONE:{window.zone}",
    ]
    lines = [*head, *(_zone_lines(window, events) if window.zone != "UTC" else ())]
    for event in events:
        lines += _event_lines(event, zone)
    lines.append("END:VCALENDAR")
    return b"".join(_folded(line) for line in lines)


def events_file(name: str, events: Iterable[CityEvent], window: Window) -> bytes:
    """The same as JSON. Moments are days, or local times with their offset."""
    zone = ZoneInfo(window.zone)
    document = {
        "id": name,
        "timezone": window.zone,
        "from": window.first.isoformat(),
        "days": window.days,
        "events": [_event_object(event, zone) for event in events],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _event_object(event: CityEvent, zone: ZoneInfo) -> dict[str, object]:
    text = event.text
    fields: dict[str, object] = {
        "uid": event.uid,
        "recurrence": _local(event.recurrence, zone) if event.recurrence else "",
        "title": text.title,
        "start": _local(event.start, zone),
        "end": _local(event.end, zone),
        "all_day": is_day(event.start),
        "location": text.location,
        "description": text.description,
        "geo": _coordinates(text.geo),
        "url": text.url,
        "image": text.image,
        "categories": text.categories,
        "status": text.status,
        "access": text.access,
        "sources": event.sources,
        "merged": event.merged,
        "links": [{"source": source, "url": url} for source, url in event.links],
    }
    return {name: value for name, value in fields.items() if value not in ("", (), [])}


def _coordinates(geo: str) -> list[float]:
    """Latitude and longitude."""
    return [float(part) for part in geo.split(";")] if geo else []


def _local(moment: str, zone: ZoneInfo) -> str:
    return moment if is_day(moment) else local_of(moment, zone).isoformat()


def _event_lines(event: CityEvent, zone: ZoneInfo) -> list[str]:
    text = event.text
    lines = ["BEGIN:VEVENT", f"UID:{_text(event.uid)}", _STAMP]
    if event.recurrence:
        # The RFC wants a recurrence of the same kind as the start; a feed may mix them.
        place = event.recurrence if is_day(event.recurrence) == is_day(event.start) else event.start
        lines.append(_moment("RECURRENCE-ID", place, zone))
    lines.append(_moment("DTSTART", event.start, zone))
    if event.end > event.start:
        lines.append(_moment("DTEND", event.end, zone))
    status = text.status if text.status in {"CONFIRMED", "TENTATIVE", "CANCELLED"} else ""
    properties = (
        ("DESCRIPTION", _text(text.description)),
        ("LOCATION", _text(text.location)),
        ("GEO", text.geo),
        ("URL", _address(text.url)),
        ("IMAGE;VALUE=URI", _address(text.image)),
        ("CATEGORIES", ",".join(map(_text, text.categories))),
        ("STATUS", status),
        ("CLASS", text.access),
        ("X-SOURCE", ",".join(map(_text, event.sources))),
        *((_link(name), _address(url)) for name, url in event.links),
        ("X-MERGED-UID", ",".join(map(_text, event.merged))),
    )
    lines.append(f"SUMMARY:{_text(text.title)}")
    lines += [f"{name}:{value}" for name, value in properties if value]
    return [*lines, "END:VEVENT"]


def _moment(name: str, moment: str, zone: ZoneInfo) -> str:
    if is_day(moment):
        return f"{name};VALUE=DATE:{moment.replace('-', '')}"
    local = local_of(moment, zone)
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    if zone.key == "UTC" or twice:
        return f"{name}:{_digits(local.astimezone(UTC))}Z"
    return f"{name};TZID={zone.key}:{_digits(local)}"


def _digits(moment: datetime) -> str:
    """Four digits for the year, even the first."""
    return moment.replace(tzinfo=None).isoformat().replace("-", "").replace(":", "")


def _zone_lines(window: Window, events: Sequence[CityEvent]) -> list[str]:
    """The zone's offsets from the New Year before the year of the first event to the one after the
    year of the last.
    """
    zone = ZoneInfo(window.zone)
    days = [
        moment[:10] for one in events for moment in (one.start, one.end, one.recurrence) if moment
    ]
    first = int(min([window.first.isoformat(), *days])[:4])
    last = int(max([window.end.isoformat(), *days])[:4])
    begin = datetime(min(max(first - 1, 1900), 2100), 1, 1)  # noqa: DTZ001
    stop = datetime(max(min(last + 2, 2100), begin.year + 1), 1, 1)  # noqa: DTZ001
    lines = ["BEGIN:VTIMEZONE", f"TZID:{zone.key}"]
    at = begin.replace(tzinfo=UTC)
    lines += _observance(at, zone, _offset(at, zone))
    for change, before in _changes(zone, at, stop.replace(tzinfo=UTC)):
        lines += _observance(change, zone, before)
    return [*lines, "END:VTIMEZONE"]


def _changes(zone: ZoneInfo, at: datetime, stop: datetime) -> list[tuple[datetime, timedelta]]:
    """The instants at which the offset changes, each with the offset before it."""
    changes = []
    before = _offset(at, zone)
    while at < stop:
        following = at + _NO_TWO_CHANGES
        offset = _offset(following, zone)
        if offset != before:
            changes.append((next_change(zone, at, following), before))
        at, before = following, offset
    return changes


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
    return _SPECIAL.sub(lambda special: "\\n" if special[0] == "\n" else "\\" + special[0], value)


def _link(source: str) -> str:
    """The property for what a source has as the event's address (RFC 9253)."""
    return f'LINK;LINKREL=SOURCE;LABEL="{source.translate(_UNQUOTED)}";VALUE=URI'


def _address(url: str) -> str:
    return "".join("%20" if letter.isspace() else letter for letter in url)


def _folded(line: str) -> bytes:
    """A line in pieces of at most 75 octets, none of which ends within a character, without the
    control characters that a calendar must not have.
    """
    raw = CONTROL.sub("", line).encode("utf-8", "replace")
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
