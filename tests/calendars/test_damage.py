"""Hundreds of damaged feeds, none of which costs a city more than itself."""

import json
import os
import random
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from jobs.calendars import budget
from jobs.calendars.merge import FeedSource, merged
from jobs.calendars.output import calendar_file, events_file
from jobs.calendars.parser import parse
from jobs.calendars.records import Ask, Parsed
from tests.calendars.damage import damaged
from tests.calendars.support import FEEDS, calendar, event, read, vevents, window

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
TIMES = int(os.environ.get("BLACKBOARD_DAMAGED_FEEDS", "500"))
"""How many feeds are damaged; as many as there is time for find the most."""
ROUND = 250
ZONES = ["Pacific/Kiritimati", "Pacific/Niue", "America/New_York", "Australia/Lord_Howe", "UTC"]
GOOD = read(calendar(event("good", "The good one", "20260901T180000Z")))
WEEKLY = event("w", "Weekly", "20260902T180000Z", "DTEND:20260902T190000Z", "RRULE:FREQ=WEEKLY")
ZONE = (
    "BEGIN:VTIMEZONE\nTZID:Our time\nBEGIN:STANDARD\nDTSTART:19700101T000000\n"
    "TZOFFSETFROM:+0300\nTZOFFSETTO:+0300\nEND:STANDARD\nEND:VTIMEZONE\n"
)
OWN = [
    calendar(
        WEEKLY + "\nEXDATE:20260909T180000Z\nRDATE;VALUE=PERIOD:20260910T180000Z/PT3H",
        event("w", "Moved", "20260917T180000Z", "RECURRENCE-ID:20260916T180000Z"),
        event("day", "Fair", "20260905", "DTEND;VALUE=DATE:20260908", "CLASS:PUBLIC"),
        event("one", "Caf\u00e9 &amp; <b>Jazz</b>", "20260901T180000Z", "DURATION:PT2H", "GEO:1;2"),
        "UID:own\nSUMMARY:Own\nDTSTART;TZID=Our time:20260901T180000\nLOCATION:Hall\\, Main St",
        head=f"X-WR-TIMEZONE:America/Los_Angeles\n{ZONE}",
    ),
    (FEEDS / "own_zones.ics").read_bytes(),
]


@cache
def seeds() -> list[list[str]]:
    """Small feeds, as lines: our own, and some events of each real one."""
    found = [body.decode().splitlines() for body in OWN]
    for file in sorted(DATA.glob("cities/*/*.ics")) + sorted(DATA.glob("hostile/*.ics")):
        body = file.read_bytes()[:400_000].decode("utf-8", "replace")
        blocks = re.findall(r"^BEGIN:VEVENT.*?^END:VEVENT", body, re.MULTILINE | re.DOTALL)
        chosen = "\n".join(sorted(blocks, key=lambda one: "RRULE" not in one)[:4])
        found.append(f"BEGIN:VCALENDAR\n{chosen}\nEND:VCALENDAR".splitlines())
    return found


def city_of(parsed: Parsed, zone: str) -> tuple[bytes, bytes]:
    """What a city makes of a feed beside a good one."""
    asked = window("2026-08-21", 60, zone)
    sources = [
        FeedSource(name="Damaged", url="d", parsed=parsed),
        FeedSource(name="Good", url="g", parsed=GOOD),
    ]
    found = merged(sources, asked)
    return (
        calendar_file("town", found.events, asked),
        events_file("town", found.events, asked),
    )


@pytest.mark.parametrize("number", range(max(1, TIMES // ROUND)))
def test_no_damaged_feed_destroys_a_city(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SERIES_SECONDS", 0.1)
    monkeypatch.setattr(budget, "HURRY_SECONDS", 0.05)
    chance = random.Random(number)
    for _time in range(ROUND):
        body = damaged(chance, chance.choice(seeds()))
        zone = chance.choice(ZONES)
        asked = window("2026-08-21", 60, zone, private=chance.random() < 0.5)
        parsed = parse(body, Ask(asked, base="https://a.org/feed.ics"))
        assert msgspec.json.decode(msgspec.json.encode(parsed), type=Parsed) == parsed
        written, told = city_of(parsed, zone)
        assert b"The good one" in written
        titles = [one.get("title") for one in json.loads(told)["events"]]
        assert "The good one" in titles
        assert written.count(b"\r\nBEGIN:VEVENT\r\n") == len(titles)


def test_what_a_damaged_feed_leaves_is_a_calendar_that_programs_read() -> None:
    chance = random.Random("read back")
    for _time in range(30):
        parsed = parse(damaged(chance, chance.choice(seeds())), Ask(window(days=14)))
        written, told = city_of(parsed, "America/New_York")
        assert len(vevents(written)) == len(json.loads(told)["events"])


END_OF_TIME = [
    "DTSTART:20260901T180000Z\nDTEND:99991231T235959Z",
    "DTSTART:00010101T000000Z\nDTEND:20260901T180000Z",
    "DTSTART:00010101T000000Z\nDTEND:99991231T235959Z",
    "DTSTART;VALUE=DATE:20260901\nDTEND;VALUE=DATE:99991231",
    "DTSTART;VALUE=DATE:00010101\nDTEND;VALUE=DATE:99991231",
    "DTSTART;TZID=Asia/Tokyo:20260901T180000\nDTEND;TZID=Pacific/Niue:99991231T235959",
    "DTSTART:20260901T180000Z\nDTEND:99991231T235959-1200",
    "DTSTART:20260901T180000Z\nRECURRENCE-ID:99991231T235959Z",
    "DTSTART:20260901T180000Z\nRECURRENCE-ID:00010101T000000Z",
    "DTSTART:20260901T180000Z\nRDATE:99991231T235959Z,00010101T000000Z",
    "DTSTART:20260901T180000Z\nRRULE:FREQ=YEARLY;UNTIL=99991231T235959Z",
    "DTSTART:20260901T180000Z\nRRULE:FREQ=WEEKLY\nEXDATE:99991231T235959Z",
    "DTSTART:20260901T180000Z\nRRULE:FREQ=WEEKLY\nDTEND:99991231T235959Z",
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("lines", END_OF_TIME)
def test_an_event_until_the_end_of_time_is_one_event_of_the_city(lines: str, zone: str) -> None:
    body = calendar(f"UID:1\nSUMMARY:Ever\n{lines}")
    parsed = parse(body, Ask(window("2026-08-21", 60, zone)))
    assert (parsed.skipped, parsed.error) == (0, "")
    written, _told = city_of(parsed, zone)
    titles = [str(one["SUMMARY"]) for one in vevents(written)]
    assert "Ever" in titles
    assert "The good one" in titles


def test_what_is_cut_at_the_end_of_time_is_counted() -> None:
    parsed = read(calendar(event("1", "Ever", "20260901T180000Z", "DTEND:99991231T235959Z")))
    assert (parsed.mended, parsed.mending) == (1, "an end in the year 9999 is cut")
