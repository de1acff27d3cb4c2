"""Sixteen invented towns, the iCalendar feeds of their groups, and a web server for these.

The feeds are like those of real towns: most events recur, each program that wrote a feed handles
time zones in its own way, the same market is in two feeds, one week is cancelled, and one link
leads to a page that says that the calendar has moved. The server listens on this machine alone, at
a free port, and is slow, as the servers of small towns are.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from textwrap import dedent
from typing import Any

_WIDTH = 70


def calendar(name: str, events: str) -> bytes:
    """A calendar of these events, in folded lines."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//blackboard//demo//EN"]
    lines.append(f"X-WR-CALNAME:{name}")
    for event in dedent(events).strip().split("\n\n"):
        lines += ["BEGIN:VEVENT", "DTSTAMP:20240101T000000Z", *event.split("\n"), "END:VEVENT"]
    lines.append("END:VCALENDAR")
    return "".join(map(_folded, lines)).encode()


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
    zone, moved, off = f"TZID={town.zone}", _next(0, today, weeks=1), _next(0, today, weeks=2)
    return calendar(
        "Public Library",
        f"""
        UID:story-time@library.{town.id}
        DTSTART;{zone}:20240101T103000
        DTEND;{zone}:20240101T111500
        RRULE:FREQ=WEEKLY;BYDAY=MO
        EXDATE;{zone}:{off:%Y%m%d}T103000
        SUMMARY:Story time
        LOCATION:Children's room

        UID:story-time@library.{town.id}
        DTSTART;{zone}:{moved:%Y%m%d}T140000
        DTEND;{zone}:{moved:%Y%m%d}T150000
        RECURRENCE-ID;{zone}:{moved:%Y%m%d}T103000
        SUMMARY:Story time (in the big hall)
        LOCATION:Big hall

        UID:chess@library.{town.id}
        DTSTART;{zone}:20240104T183000
        DTEND;{zone}:20240104T203000
        RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=TH
        SUMMARY:Chess club
        """,
    )


def _town_hall(town: Town) -> bytes:
    """Monthly and yearly recurrences, and a market that the parks announce as well."""
    zone, (month, day) = f"TZID={town.zone}", town.on
    return calendar(
        "Town Hall",
        f"""
        UID:council@{town.id}
        DTSTART;{zone}:20240109T190000
        DTEND;{zone}:20240109T210000
        RRULE:FREQ=MONTHLY;BYDAY=2TU
        SUMMARY:Town council
        LOCATION:Council chamber

        UID:market@{town.id}
        DTSTART;{zone}:20240106T090000
        DTEND;{zone}:20240106T130000
        RRULE:FREQ=WEEKLY;BYDAY=SA
        SUMMARY:Farmers' market
        LOCATION:Main square

        UID:feast@{town.id}
        DTSTART;VALUE=DATE:2024{month:02d}{day:02d}
        RRULE:FREQ=YEARLY
        SUMMARY:{town.feast}
        """,
    )


def _parks(town: Town, today: date) -> bytes:
    """Its program writes local times without a zone, and durations instead of ends."""
    walk = today + timedelta(days=5)
    things = r"bring boots\, and binoculars if any"
    return calendar(
        "Parks Department",
        rf"""
        UID:saturday-market@parks.{town.id}
        DTSTART:20240106T090000
        DURATION:PT4H
        RRULE:FREQ=WEEKLY;BYDAY=SA
        SUMMARY:FARMERS' MARKET

        UID:walk-{walk:%Y%m%d}@parks.{town.id}
        DTSTART:{walk:%Y%m%d}T073000
        DURATION:PT1H30M
        SUMMARY:Bird walk along the river\, with the naturalist\; {things}
        LOCATION:Footbridge

        UID:cleanup@parks.{town.id}
        DTSTART:20240107T100000
        DURATION:PT2H
        RRULE:FREQ=MONTHLY;BYDAY=1SU
        SUMMARY:Volunteer morning
        """,
    )


def _school(town: Town, today: date) -> bytes:
    """A concert in UTC, and a fair over two whole days."""
    zone, concert, fair = f"TZID={town.zone}", _next(4, today, weeks=1), _next(5, today, weeks=3)
    return calendar(
        "School",
        f"""
        UID:concert-{concert:%Y%m%d}@school.{town.id}
        DTSTART:{concert:%Y%m%d}T180000Z
        DTEND:{concert:%Y%m%d}T193000Z
        SUMMARY:School concert
        LOCATION:Gymnasium

        UID:fair-{fair:%Y%m%d}@school.{town.id}
        DTSTART;VALUE=DATE:{fair:%Y%m%d}
        DTEND;VALUE=DATE:{fair + timedelta(days=2):%Y%m%d}
        SUMMARY:Book fair

        UID:parents@school.{town.id}
        DTSTART;{zone}:20240117T193000
        DTEND;{zone}:20240117T210000
        RRULE:FREQ=MONTHLY;BYDAY=3WE
        SUMMARY:Parents' evening
        """,
    )


def _next(weekday: int, today: date, *, weeks: int) -> date:
    """The first such weekday after today, or with `weeks` a later one; Monday is 0."""
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1 + 7 * (weeks - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The response at an address, and the seconds before it is sent."""

    body: bytes
    kind: str
    delay: float


class _Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Does nothing: the client is gone."""


@contextmanager
def serving(pages: Mapping[str, Page]) -> Iterator[str]:
    """Serve pages by their paths ("/town/group.ics"); the value is the address of the root, without
    a slash at its end.
    """
    is_over = threading.Event()

    class _Request(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            if page is None:
                self.send_error(404, "There is no such calendar")
            elif not is_over.wait(page.delay):
                self.send_response(200)
                self.send_header("Content-Type", page.kind)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                self.wfile.write(page.body)

        def log_message(self, *_: Any) -> None:
            """Does nothing: the demo has the terminal."""

    with _Server(("127.0.0.1", 0), _Request) as server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            is_over.set()
            server.shutdown()
