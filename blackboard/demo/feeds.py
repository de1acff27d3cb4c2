"""Sixteen invented towns, the iCalendar feeds of their groups, and a web server for these.

The feeds are like those of real towns: most events recur, each program that wrote a feed handles
time zones in its own way, the same market is in two feeds, one week is cancelled, and one link
leads to a page that says that the calendar has moved. The server listens on this machine alone, at
a free port, and is slow, as the servers of small towns are.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta

from blackboard.clock import Clock
from blackboard.tasks import cancel_all

_WIDTH = 70


def calendar(name: str, *events: Sequence[str]) -> bytes:
    """A calendar of these events, in folded lines."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//blackboard//demo//EN"]
    lines.append(f"X-WR-CALNAME:{name}")
    for lines_of_event in events:
        lines += lines_of_event
    lines.append("END:VCALENDAR")
    return "".join(map(_folded, lines)).encode()


def event(
    uid: str,
    title: str,
    *,
    start: str,
    end: str = "",
    length: str = "",
    rules: Sequence[str] = (),
    location: str = "",
) -> list[str]:
    """The lines of an event. `start` and `end` begin with their parameters: ":20240106T090000" or
    ";VALUE=DATE:20240106". `rules` are whole lines: RRULE, EXDATE, RECURRENCE-ID.
    """
    lines = ["BEGIN:VEVENT", f"UID:{uid}", "DTSTAMP:20240101T000000Z", f"DTSTART{start}"]
    lines += [f"DTEND{end}"] if end else []
    lines += [f"DURATION:{length}"] if length else []
    lines += [*rules, f"SUMMARY:{_text(title)}"]
    lines += [f"LOCATION:{_text(location)}"] if location else []
    return [*lines, "END:VEVENT"]


def _text(value: str) -> str:
    return value.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")


def _folded(line: str) -> str:
    pieces = [line[start : start + _WIDTH] for start in range(0, len(line), _WIDTH)]
    return "\r\n ".join(pieces) + "\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """A town, its time zone, and its yearly feast."""

    id: str
    zone: str
    feast: str
    on: tuple[int, int]
    """Month and day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCalendar:
    """A calendar of a group in a town, as its web server sends it."""

    group: str
    body: bytes
    kind: str = "text/calendar; charset=utf-8"


TOWNS = (
    Town(id="alder-ferry", zone="America/Halifax", feast="Lobster Supper", on=(1, 17)),
    Town(id="birch-harbor", zone="America/New_York", feast="Lantern Walk", on=(12, 12)),
    Town(id="cedar-fork", zone="America/Chicago", feast="Pie Auction", on=(2, 6)),
    Town(id="dry-creek", zone="America/Phoenix", feast="Chili Night", on=(3, 5)),
    Town(id="eaglebrook", zone="America/Denver", feast="Snow Rodeo", on=(1, 30)),
    Town(id="fern-hollow", zone="America/Indiana/Indianapolis", feast="Maple Days", on=(3, 13)),
    Town(id="gullhaven", zone="Europe/Lisbon", feast="Sardine Fair", on=(6, 13)),
    Town(id="hirschau", zone="Europe/Berlin", feast="Lichterfest", on=(12, 6)),
    Town(id="isola-verde", zone="Europe/Rome", feast="Festa dell'Olio", on=(11, 28)),
    Town(id="juniper-flats", zone="America/Los_Angeles", feast="Star Party", on=(8, 12)),
    Town(id="kestrel-bay", zone="Pacific/Auckland", feast="Kite Day", on=(2, 20)),
    Town(id="lyngby-havn", zone="Europe/Copenhagen", feast="Fastelavn", on=(2, 7)),
    Town(id="mistral", zone="Europe/Paris", feast="Fête du Citron", on=(2, 14)),
    Town(id="nishikawa", zone="Asia/Tokyo", feast="Plum Blossom Fair", on=(2, 11)),
    Town(id="old-mill", zone="Europe/London", feast="Wassail", on=(1, 17)),
    Town(id="pelican-point", zone="Australia/Lord_Howe", feast="Regatta", on=(12, 27)),
)
BROKEN = ("old-mill", "parish")
"""The town and the group whose calendar address has a web page instead of a calendar."""

_PAGE = b"<!doctype html><title>Welcome!</title><p>The calendar has moved. Try the new website."


def feeds_of(town: Town, today: date) -> Iterator[GroupCalendar]:
    """The town's calendars as they are on this day. The same day gives the same bytes."""
    yield GroupCalendar(group="library", body=_library(town, today))
    yield GroupCalendar(group="town-hall", body=_town_hall(town))
    yield GroupCalendar(group="parks", body=_parks(town, today))
    yield GroupCalendar(group="school", body=_school(town, today))
    if town.id == BROKEN[0]:
        yield GroupCalendar(group=BROKEN[1], body=_PAGE, kind="text/html")


def _library(town: Town, today: date) -> bytes:
    """Local times with the zone's name; one story time is moved, one is cancelled."""
    moved, off = _next(0, today, weeks=1), _next(0, today, weeks=2)
    return calendar(
        "Public Library",
        event(
            f"story-time@library.{town.id}",
            "Story time",
            start=f";TZID={town.zone}:20240101T103000",
            end=f";TZID={town.zone}:20240101T111500",
            rules=("RRULE:FREQ=WEEKLY;BYDAY=MO", f"EXDATE;TZID={town.zone}:{off:%Y%m%d}T103000"),
            location="Children's room",
        ),
        event(
            f"story-time@library.{town.id}",
            "Story time (in the big hall)",
            start=f";TZID={town.zone}:{moved:%Y%m%d}T140000",
            end=f";TZID={town.zone}:{moved:%Y%m%d}T150000",
            rules=(f"RECURRENCE-ID;TZID={town.zone}:{moved:%Y%m%d}T103000",),
            location="Big hall",
        ),
        event(
            f"chess@library.{town.id}",
            "Chess club",
            start=f";TZID={town.zone}:20240104T183000",
            end=f";TZID={town.zone}:20240104T203000",
            rules=("RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=TH",),
        ),
    )


def _town_hall(town: Town) -> bytes:
    """Monthly and yearly recurrences, and a market that the parks announce as well."""
    month, day = town.on
    return calendar(
        "Town Hall",
        event(
            f"council@{town.id}",
            "Town council",
            start=f";TZID={town.zone}:20240109T190000",
            end=f";TZID={town.zone}:20240109T210000",
            rules=("RRULE:FREQ=MONTHLY;BYDAY=2TU",),
            location="Council chamber",
        ),
        event(
            f"market@{town.id}",
            "Farmers' market",
            start=f";TZID={town.zone}:20240106T090000",
            end=f";TZID={town.zone}:20240106T130000",
            rules=("RRULE:FREQ=WEEKLY;BYDAY=SA",),
            location="Main square",
        ),
        event(
            f"feast@{town.id}",
            town.feast,
            start=f";VALUE=DATE:2024{month:02d}{day:02d}",
            rules=("RRULE:FREQ=YEARLY",),
        ),
    )


def _parks(town: Town, today: date) -> bytes:
    """Its program writes local times without a zone, and durations instead of ends."""
    walk = today + timedelta(days=5)
    return calendar(
        "Parks Department",
        event(
            f"saturday-market@parks.{town.id}",
            "FARMERS' MARKET",
            start=":20240106T090000",
            length="PT4H",
            rules=("RRULE:FREQ=WEEKLY;BYDAY=SA",),
        ),
        event(
            f"walk-{walk:%Y%m%d}@parks.{town.id}",
            "Bird walk along the river, with the naturalist; bring boots, and binoculars if any",
            start=f":{walk:%Y%m%d}T073000",
            length="PT1H30M",
            location="Footbridge",
        ),
        event(
            f"cleanup@parks.{town.id}",
            "Volunteer morning",
            start=":20240107T100000",
            length="PT2H",
            rules=("RRULE:FREQ=MONTHLY;BYDAY=1SU",),
        ),
    )


def _school(town: Town, today: date) -> bytes:
    """A concert in UTC, and a fair over two whole days."""
    concert, fair = _next(4, today, weeks=1), _next(5, today, weeks=3)
    return calendar(
        "School",
        event(
            f"concert-{concert:%Y%m%d}@school.{town.id}",
            "School concert",
            start=f":{concert:%Y%m%d}T180000Z",
            end=f":{concert:%Y%m%d}T193000Z",
            location="Gymnasium",
        ),
        event(
            f"fair-{fair:%Y%m%d}@school.{town.id}",
            "Book fair",
            start=f";VALUE=DATE:{fair:%Y%m%d}",
            end=f";VALUE=DATE:{fair + timedelta(days=2):%Y%m%d}",
        ),
        event(
            f"parents@school.{town.id}",
            "Parents' evening",
            start=f";TZID={town.zone}:20240117T193000",
            end=f";TZID={town.zone}:20240117T210000",
            rules=("RRULE:FREQ=MONTHLY;BYDAY=3WE",),
        ),
    )


def _next(weekday: int, today: date, *, weeks: int) -> date:
    """The first such weekday after today, or with `weeks` a later one; Monday is 0."""
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1 + 7 * (weeks - 1))


HOST = "127.0.0.1"
REQUEST_TIMEOUT = 10.0
"""Seconds until the head of a request must be complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The response at an address, and the seconds before it is sent."""

    body: bytes
    kind: str
    delay: float


@asynccontextmanager
async def serving(pages: Mapping[str, Page], clock: Clock) -> AsyncIterator[str]:
    """Serve pages by their paths ("/town/group.ics"); the value is the address of the root, without
    a slash at its end.
    """
    site = _Site(pages, clock)
    server = await asyncio.start_server(site.answer, HOST, 0, backlog=128)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await site.close()


class _Site:
    def __init__(self, pages: Mapping[str, Page], clock: Clock) -> None:
        self._pages = pages
        self._clock = clock
        self._answering: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                request = await reader.readuntil(b"\r\n\r\n")
            writer.write(await self._response(request))
            await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            return  # the client is gone, its request is not HTTP, or the demo is over
        finally:
            self._answering.discard(task)
            writer.close()

    async def _response(self, request: bytes) -> bytes:
        method, path, *_ = [*request.decode("latin-1").partition("\r\n")[0].split(" "), "", ""]
        page = self._pages.get(path)
        if method != "GET" or page is None:
            return _message("404 Not Found", "text/plain", b"There is no such calendar.\n")
        await self._clock.sleep(page.delay)
        return _message("200 OK", page.kind, page.body)

    async def close(self) -> None:
        await cancel_all(self._answering)


def _message(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode("latin-1") + body
