"""The real feeds of cities, and feeds on which libraries fail, where that data is at hand."""

import json
import re
import shutil
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import icalendar
import pytest
import recurring_ical_events
import vobject

from jobs.calendars.merge import FeedSource, merged
from jobs.calendars.params import read_feeds
from jobs.calendars.records import Parsed, Window, instant_of, is_day
from tests.calendars.serving import Site, serving
from tests.calendars.support import aggregate, events, read, report, times, vevents, window

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no real feeds in {DATA}")

ZONES: dict[str, str] = {
    "davis": "America/Los_Angeles",
    "montclair": "America/New_York",
}
DAYS = 30
"""Days of a whole city: every day of its output is read back by slower libraries."""
LARGE = 200_000
"""Bytes of a feed that takes a second, and shows no more than others where all are read."""
HOSTILE = sorted(DATA.glob("hostile/*.ics")) + sorted(DATA.glob("large/*.ics"))


def feeds(site: Site, folder: Path) -> list[str]:
    return site.folder(folder, f"/{folder.name}/")


@cache
def parsed(city: str) -> dict[str, Parsed]:
    """The feeds of a city, by the names of their files; read once for all tests."""
    asked = window(days=DAYS, zone=ZONES[city])
    files = sorted((DATA / "cities" / city).glob("*.ics"))
    return {file.stem: read(file.read_bytes(), window=asked) for file in files}


@pytest.mark.parametrize("city", ZONES)
def test_a_city_has_all_the_events_that_another_aggregator_found(city: str, tmp_path: Path) -> None:
    zone = ZONES[city]
    folder = DATA / "cities" / city
    with serving() as site:
        addresses = feeds(site, folder)
        first = aggregate(tmp_path, addresses, name=city, timezone=zone, days=DAYS)
        made = {name: (tmp_path / f"{city}{name}").read_bytes() for name in (".ics", ".json")}
        second = aggregate(tmp_path, addresses, name=city, timezone=zone, days=DAYS)

    assert first["feeds"] == len(addresses) == len(report(tmp_path, city))
    assert first["ok"] + first["failed"] == first["feeds"]
    assert second["ok"] == 0
    assert second["unchanged"] == first["ok"]
    assert all((tmp_path / f"{city}{name}").read_bytes() == was for name, was in made.items())

    mine = vevents(made[".ics"])
    found = {str(one["UID"]) for one in mine}
    expected = _uids(DATA / "expected" / city / "combined.ics")
    assert len(mine) == first["events"]
    assert (expected & _in_window(city)) <= found | _merged(tmp_path, city)
    assert len({(str(one["UID"]), str(one.get("RECURRENCE-ID"))) for one in mine}) == len(mine)
    by_another = vobject.readOne(made[".ics"].decode()).vevent_list
    assert sorted((str(one["UID"]), _instant(one["DTSTART"].dt)) for one in mine) == sorted(
        (one.uid.value, _instant(one.dtstart.value)) for one in by_another
    )


@pytest.mark.parametrize("file", HOSTILE, ids=lambda file: file.stem[:40])
def test_hostile_feeds_survive(file: Path) -> None:
    """Those on which a library fails altogether have events all the same."""
    body = file.read_bytes()
    blocks = len(re.findall(rb"^[ \t]*BEGIN:VEVENT", body, re.MULTILINE))
    whole = read(body)
    assert whole.error == ""
    assert whole.seen == blocks
    assert whole.skipped <= 1
    start = re.search(rb"^DTSTART[^:]*:(\d{8})", body[body.index(b"BEGIN:VEVENT") :], re.MULTILINE)
    assert start is not None
    day = datetime.strptime(start[1].decode(), "%Y%m%d").replace(tzinfo=UTC).date()
    around = Window(day - timedelta(days=2), 5, "America/New_York")
    assert read(body, window=around).occurrences


def test_a_city_of_hostile_feeds_is_a_city(tmp_path: Path) -> None:
    """Of those that are not large."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for file in (DATA / "hostile").glob("*.ics"):
        if file.stat().st_size <= LARGE:
            shutil.copy(file, folder)
    with serving() as site:
        summary = aggregate(tmp_path, feeds(site, folder))
    assert (summary["ok"], summary["failed"]) == (summary["feeds"], 0)
    assert vevents((tmp_path / "town.ics").read_bytes())


def test_days_in_a_row_end_as_the_last_day_alone(tmp_path: Path) -> None:
    zone = ZONES["davis"]
    days = sorted((DATA / "timeseries-davis").iterdir())[::-6][::-1]
    state = tmp_path / "state"
    state.mkdir()
    read_anew = []
    with serving() as site:
        for day in days:
            for file in day.glob("*.ics"):
                if file.stat().st_size <= LARGE:
                    (state / file.name).write_bytes(file.read_bytes())
            addresses = feeds(site, state)
            summary = aggregate(tmp_path / "row", addresses, timezone=zone, first=day.name)
            read_anew.append(summary["ok"])
        aggregate(tmp_path / "alone", addresses, timezone=zone, first=days[-1].name)
    assert len(days) == 3
    for name in ("town.ics", "town.json"):
        assert (tmp_path / "row" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    changed = [len(list(day.glob("*.ics"))) for day in days]
    assert sum(read_anew[1:]) < sum(changed[1:]), "changes that do not matter are not parsed"


@pytest.mark.parametrize("city", ZONES)
def test_events_are_those_that_the_library_finds_in_whole_feeds(city: str) -> None:
    """Passing over what is past, and reading VEVENTs one by one, loses and invents nothing."""
    asked = window(days=120, zone=ZONES[city])
    compared = 0
    for file in sorted((DATA / "cities" / city).glob("*.ics")):
        body = file.read_bytes()
        if len(body) > LARGE or b"BEGIN:VCALENDAR" not in body:
            continue
        expected = _by_the_library(body, asked)
        assert {(start, end) for _title, start, end in times(read(body, window=asked))} == expected
        compared += len(expected)
    assert compared > 100


@pytest.mark.parametrize("city", ZONES)
def test_a_city_is_in_the_order_of_its_clocks_and_no_branch_is_taken_for_another(city: str) -> None:
    sources = [FeedSource(name=name, url=name, parsed=one) for name, one in parsed(city).items()]
    found = merged(sources, window(days=DAYS, zone=ZONES[city]))
    zone = ZoneInfo(ZONES[city])
    starts = [
        (one.start, "") if is_day(one.start) else _day_and_time(one.start, zone)
        for one in found.events
    ]
    assert starts == sorted(starts)
    assert found.drops, "some events are in several feeds"
    closed = [one for one in found.drops if "closed" in one.title.lower()]
    assert closed == [], "each library closes for itself"
    assert len(found.events) + len(found.drops) == sum(found.counts)


def _day_and_time(moment: str, zone: tzinfo) -> tuple[str, str]:
    """The time in UTC: local times of the hour that is repeated are in no order."""
    return f"{instant_of(moment).astimezone(zone):%Y-%m-%d}", moment


def test_the_lists_of_cities_name_all_their_feeds() -> None:
    for city in ZONES:
        text = (DATA / "cities" / city / "feeds.txt").read_text()
        listed = read_feeds(text)
        assert len(listed) == len(re.findall(r"^(?!#)\S", text, re.MULTILINE))
        assert all(one.name and "cmd:" not in one.name for one in listed)


def _uids(file: Path) -> set[str]:
    unfolded = re.sub(r"\r?\n[ \t]", "", file.read_text(encoding="utf-8"))
    found = re.findall(r"^UID[^:\n]*:(.*?)\r?$", unfolded, re.MULTILINE)
    return {re.sub(r"\\([\\,;])", r"\1", one) for one in found}


def _in_window(city: str) -> set[str]:
    feeds = parsed(city).values()
    return {feed.texts[one.text].uid for feed in feeds for one in feed.occurrences}


def _merged(folder: Path, name: str) -> set[str]:
    return {uid for one in events(folder, name) for uid in one.get("merged", ())}


def _by_the_library(body: bytes, asked: Window) -> set[tuple[str, str]]:
    zone, edges = ZoneInfo(asked.zone), asked.edges()
    calendar = icalendar.Calendar.from_ical(body[body.index(b"BEGIN:VCALENDAR") :])
    for event in calendar.walk("VEVENT"):
        _as_the_start_is(event, zone)
    query: Any = recurring_ical_events.of(calendar)
    found = set()
    for event in query.between(asked.first - timedelta(days=2), asked.end + timedelta(days=2)):
        start = event["DTSTART"].dt
        end = event["DTEND"].dt if "DTEND" in event else start
        if type(start) is date and end <= start:
            end = start + timedelta(days=1)
        span = _instant(start, zone), _instant(max(start, end), zone)
        if edges.meet(*span):
            found.add(span)
    return found


def _as_the_start_is(event: Any, city: tzinfo) -> None:
    """The library takes a day for its midnight, in UTC: feeds mean all of it, where the event is. A
    day that is excluded is the time on that day. Days end with the day that it is in the city.
    """
    start = getattr(event.get("DTSTART"), "dt", None)
    if not isinstance(start, date):
        return
    rules = event.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        until = next(iter(rule.get("UNTIL", [])), None)
        if until is not None:
            rule["UNTIL"] = [_end_for(start, until, city)]
    lines = event.get("EXDATE", [])
    for line in lines if isinstance(lines, list) else [lines]:
        for one in line.dts:
            if type(one.dt) is date and isinstance(start, datetime):
                one.dt = datetime.combine(one.dt, start.time(), start.tzinfo)


def _end_for(start: date, until: date, city: tzinfo) -> date:
    """An UNTIL as one of this start."""
    if not isinstance(start, datetime):
        if not isinstance(until, datetime):
            return until
        is_date = until.tzinfo is None or until.time() in {time(), time(23, 59, 59)}
        return until.date() if is_date else until.astimezone(city).date()
    if not isinstance(until, datetime):
        zone = city if start.tzname() == "UTC" else start.tzinfo
        return datetime.combine(until, time(23, 59, 59), zone).astimezone(UTC)
    if until.tzinfo is None and start.tzinfo is not None:
        return until.replace(tzinfo=start.tzinfo).astimezone(UTC)
    return until


def _instant(moment: date, zone: tzinfo = UTC) -> str:
    if not isinstance(moment, datetime):
        return moment.isoformat()
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    return f"{aware.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_the_zones_of_the_cities_are_those_of_the_data() -> None:
    told = json.loads((DATA / "cities" / "cities.json").read_text())
    assert {city: told[city]["timezone"] for city in ZONES} == ZONES
