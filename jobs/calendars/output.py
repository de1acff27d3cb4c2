"""Writes the files of a city: the calendar as iCalendar (RFC 5545) and as JSON, report and cache.

**Contents.** The same events give the same bytes. Times are in the city's zone, whose rules are
included as a VTIMEZONE made from the IANA data. A time in the hour that the clocks repeat is in
UTC, because local time cannot say which of the two is meant. An event that has not changed is
written as before, whatever the day, so that a comparison of two files, or a subscriber, sees only
changes: DTSTAMP, which calendars must have, is always the same, and the VTIMEZONE goes from one New
Year to another.

**Files.** Each is replaced whole or not at all, and never over a later run's: it is written beside
its place and renamed. A run with a lower fence than that of the last writer is refused, unless the
type is not fenced: then the last writer wins. Comparison and renaming happen under a lock file,
which the kernel releases when a process dies. The report goes first: it has the fence, so that a
crash half-way leaves nothing that an earlier run could overwrite. The cache goes last, so that it
never has events that are in no calendar.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from blackboard import BadInput
from blackboard.errors import BlackboardError
from blackboard.protocol.keys import encode_id
from blackboard.schedule.zones import next_change

from .merge import CityEvent
from .records import Window, is_day, local_of

_SPECIAL = re.compile(r"[\\;,\n]")
_WIDTH = 75
_STAMP = "DTSTAMP:19700101T000000Z"
_NO_TWO_CHANGES = timedelta(days=2)
"""A time in which no zone changes its offset twice (`blackboard.schedule.zones`)."""
_UNQUOTED = str.maketrans({'"': "^'", "^": "^^", "\n": "^n"})
"""What a parameter cannot hold, as RFC 6868 writes it."""


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
    lines += [_moment("DTSTART", event.start, zone), _moment("DTEND", event.end, zone)]
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
    found = []
    before = _offset(at, zone)
    while at < stop:
        following = at + _NO_TWO_CHANGES
        offset = _offset(following, zone)
        if offset != before:
            found.append((next_change(zone, at, following), before))
        at, before = following, offset
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


def _link(source: str) -> str:
    """The property for what a source has as the event's address (RFC 9253)."""
    return f'LINK;LINKREL=SOURCE;LABEL="{source.translate(_UNQUOTED)}";VALUE=URI'


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


REPORT, CALENDAR, EVENTS, CACHE = ".report.json", ".ics", ".json", ".cache.json"
_ORDER = (REPORT, CALENDAR, EVENTS, CACHE)
_LOCK_WITHIN = 30.0
_PAUSE = 0.05


class Overtaken(BlackboardError):
    """The files belong to a run with a higher fence."""


class _Header(msgspec.Struct):
    """The writer of a report or a cache."""

    id: str = ""
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """The files of one city."""

    folder: Path
    name: str
    id: str

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.name}{ending}"

    async def publish(self, files: Mapping[str, bytes], *, fence: int, fenced: bool) -> None:
        """Replaces the files with these endings. Raises Overtaken when they belong to a later
        run, BadInput when they belong to another city, OSError when the folder cannot be written;
        a crash leaves each file old or new.
        """
        async with self._locked():
            headers = [self._header_of(ending) for ending in (REPORT, CACHE)]
            self._check_owner(headers)
            theirs = max(one.fence for one in headers)
            if fenced and fence < theirs:
                raise Overtaken(
                    f"{self.path(CALENDAR)}: a later run (fence {theirs}) has written it, and this"
                    f" one has fence {fence}; if the board was made anew, delete"
                    f" {self.path(REPORT).name} and {self.path(CACHE).name}"
                )
            for ending in _ORDER:
                if ending in files:
                    self._replace(ending, files[ending])
            _flush_folder(self.folder)

    def _header_of(self, ending: str) -> _Header:
        try:
            return msgspec.json.decode(self.path(ending).read_bytes(), type=_Header)
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return _Header()

    def _check_owner(self, headers: Sequence[_Header]) -> None:
        """All ids have their own file names, but for some file systems `A` and `a` are one name."""
        for one in headers:
            if one.id and one.id != self.id:
                raise BadInput(
                    "params.out",
                    f"{self.path(REPORT)} is of the city {one.id!r}: this file system takes"
                    f" its name and {self.id!r} for one",
                    "another folder for one of them",
                )

    def _replace(self, ending: str, content: bytes) -> None:
        """A link that lies in the file's place is replaced, not followed."""
        temporary = self.folder / f".{self.name}.{secrets.token_hex(6)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(temporary, flags, 0o666), "wb") as sink:
                sink.write(content)
                sink.flush()
                os.fsync(sink.fileno())
            temporary.replace(self.path(ending))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        with os.fdopen(os.open(self.folder / f".{self.name}.lock", flags, 0o666), "r+b") as held:
            await self._take(held.fileno())
            for left in self.folder.glob(f".{self.name}.????????????.tmp"):
                left.unlink(missing_ok=True)
            yield

    async def _take(self, descriptor: int) -> None:
        for _attempt in range(int(_LOCK_WITHIN / _PAUSE)):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            await asyncio.sleep(_PAUSE)
        raise BlackboardError(f"{self.path(CALENDAR)}: another run has been writing it for 30 s")


def output_of(folder: Path, item_id: str) -> Output:
    """The files of an item, in a folder that is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadInput("params.out", f"{folder}: {problem.strerror or problem}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput("params.out", f"{folder} cannot be written", "another folder, or its rights")
    return Output(folder, file_name(item_id), item_id)


def file_name(item_id: str) -> str:
    """An id as the beginning of a file's name: it never leaves the folder, is never hidden, and
    never meets the files of another id; where a file system takes `A` and `a` for one name,
    `publish` refuses the second.
    """
    name = encode_id(item_id)
    if name.startswith("."):
        name = "=2E" + name[1:]
    for ending in (".report", ".cache"):
        if name.lower().endswith(ending):
            name = name[: -len(ending)] + "=2E" + name[-len(ending) + 1 :]
    return name


def _flush_folder(folder: Path) -> None:
    """Some file systems cannot: then the renames are as durable as they make them."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
