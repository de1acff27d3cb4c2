"""Sixteen invented towns, and the calendars that their groups publish.

Like the calendars of real towns: most of it recurs, each program that wrote one has its own way
with time zones, the same market stands in two of them, a week is called off, and one link has
been dead since somebody redid the parish's website.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from blackboard.demo.ical import calendar, event


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """A town, its time zone, and what it celebrates on which day of the year."""

    id: str
    zone: str
    feast: str
    on: tuple[int, int]
    """Month and day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A calendar of a group in a town, as its web server hands it out."""

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
"""The town and the group whose calendar is a web page that says it is gone."""

_PAGE = b"<!doctype html><title>Welcome!</title><p>The calendar has moved. Try the new website."


def feeds_of(town: Town, today: date) -> Iterator[Feed]:
    """The town's calendars as they are on this day. The same day gives the same bytes."""
    yield Feed(group="library", body=_library(town, today))
    yield Feed(group="town-hall", body=_town_hall(town))
    yield Feed(group="parks", body=_parks(town, today))
    yield Feed(group="school", body=_school(town, today))
    if town.id == BROKEN[0]:
        yield Feed(group=BROKEN[1], body=_PAGE, kind="text/html")


def _library(town: Town, today: date) -> bytes:
    """Local times with the zone's name; one story time is moved, one called off."""
    moved, off = _next(0, today, weeks=1), _next(0, today, weeks=2)
    return calendar(
        "Public Library",
        event(
            f"story-time@library.{town.id}",
            "Story time",
            start=f";TZID={town.zone}:20240101T103000",
            end=f";TZID={town.zone}:20240101T111500",
            rules=(
                "RRULE:FREQ=WEEKLY;BYDAY=MO",
                f"EXDATE;TZID={town.zone}:{off:%Y%m%d}T103000",
            ),
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
    """The so-manyth such weekday after today; Monday is 0."""
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1 + 7 * (weeks - 1))
