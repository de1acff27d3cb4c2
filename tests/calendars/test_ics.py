"""The calendar that is written, as two other programs read it."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import icalendar
import pytest
import vobject

from jobs.calendars.lines import CONTROL
from jobs.calendars.merge import CityEvent
from jobs.calendars.output import calendar_file, events_file
from jobs.calendars.records import Text
from tests.calendars.support import vevents, window

ODD = 'Comma, semicolon; back\\slash "quote" : colon\nsecond line\u2014\U0001f389 ' + "ä" * 200


def told(start: str, end: str, recurrence: str = "", uid: str = "1") -> CityEvent:
    text = Text(
        uid=uid,
        title="A, B; C",
        description=ODD,
        location="Here\\there",
        url="https://a.org/?a=1,2;3",
        categories=("Music", "Food, Drink"),
        status="CANCELLED",
    )
    sources = ("One, Two", "Three; Four")
    return CityEvent(
        uid=uid,
        recurrence=recurrence,
        start=start,
        end=end,
        text=text,
        sources=sources,
        merged=("x,y",),
    )


ZONES = [
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "UTC",
]
MOMENTS = [
    "2026-08-30T12:00:00Z",
    "2026-10-25T00:30:00Z",
    "2026-11-01T05:30:00Z",
    "2026-11-01T06:30:00Z",
    "2026-11-10T12:00:00Z",
    "2027-03-01T12:00:00Z",
    "2026-04-04T15:15:00Z",
    "2026-04-04T15:45:00Z",
]


@pytest.mark.parametrize("zone", ZONES)
def test_times_are_read_back_as_the_instants_they_were(zone: str) -> None:
    events = [told(moment, moment, uid=str(number)) for number, moment in enumerate(MOMENTS)]
    written = calendar_file("town", events, window(zone=zone))
    expected = {
        str(number): datetime.fromisoformat(moment) for number, moment in enumerate(MOMENTS)
    }

    found = {str(one["UID"]): one["DTSTART"].dt.astimezone(UTC) for one in vevents(written)}
    assert found == expected

    other = vobject.readOne(written.decode())
    assert {
        one.uid.value: one.dtstart.value.astimezone(UTC) for one in other.vevent_list
    } == expected


@pytest.mark.parametrize("zone", [zone for zone in ZONES if zone != "UTC"])
def test_the_zone_that_comes_along_has_the_offsets_of_the_real_one(zone: str) -> None:
    written = calendar_file("town", [told(MOMENTS[0], MOMENTS[0])], window(zone=zone))
    (component,) = icalendar.Calendar.from_ical(written).walk("VTIMEZONE")
    assert isinstance(component, icalendar.Timezone)
    ours, real = component.to_tz(lookup_tzid=False), ZoneInfo(zone)
    for month in range(1, 13):
        noon = datetime(2026, month, 15, 12)  # noqa: DTZ001 - local to both zones
        assert ours.utcoffset(noon) == real.utcoffset(noon), noon


def test_texts_are_read_back_as_they_were() -> None:
    written = calendar_file("To,wn", [told("2026-09-01", "2026-09-03")], window())
    (event,) = vevents(written)
    assert str(event["SUMMARY"]) == "A, B; C"
    assert str(event["DESCRIPTION"]) == ODD
    assert str(event["LOCATION"]) == "Here\\there"
    assert str(event["URL"]) == "https://a.org/?a=1,2;3"
    assert event["CATEGORIES"].cats == ["Music", "Food, Drink"]
    assert str(event["STATUS"]) == "CANCELLED"
    other = vobject.readOne(written.decode()).vevent
    assert other.description.value == ODD
    assert other.dtstart.value == date(2026, 9, 1)
    assert other.dtend.value == date(2026, 9, 3)


@pytest.mark.parametrize("odd", ["\rBEGIN:VEVENT", "a\r\nb", "a\x00b", "a\x1bb", "a\x85b"])
def test_no_name_begins_a_line_or_holds_what_a_calendar_must_not(odd: str) -> None:
    named = replace(told("2026-09-01", "2026-09-03", uid=odd), sources=(odd,), links=((odd, "u"),))
    written = calendar_file(odd, [named], window())
    assert not CONTROL.search(written.replace(b"\r\n", b"").decode())
    assert written.count(b"\r\nBEGIN:VEVENT") == len(vevents(written)) == 1


@pytest.mark.parametrize("start", ["2026-09-01", MOMENTS[0]])
def test_an_event_of_no_length_has_no_end(start: str) -> None:
    written = calendar_file("town", [told(start, start)], window())
    assert b"DTSTART" in written
    assert b"DTEND" not in written


def test_no_line_is_longer_than_75_octets_and_none_ends_within_a_character() -> None:
    written = calendar_file("town", [told("2026-09-01", "2026-09-03")], window())
    lines = written.split(b"\r\n")
    assert max(map(len, lines)) <= 75
    assert all(line.decode() is not None for line in lines)
    assert b"\n" not in written.replace(b"\r\n", b"")


def test_a_recurrence_is_written_as_the_kind_its_start_is() -> None:
    written = calendar_file(
        "town", [told("2026-09-01", "2026-09-02", "2026-09-01T10:00:00Z")], window()
    )
    assert b"RECURRENCE-ID;VALUE=DATE:20260901\r\n" in written


def test_the_same_events_give_the_same_bytes() -> None:
    events = [told(MOMENTS[0], MOMENTS[0])]
    assert calendar_file("town", events, window()) == calendar_file("town", events, window())
    assert events_file("town", events, window()) == events_file("town", events, window())


def test_an_unchanged_event_is_written_the_same_on_another_day() -> None:
    events = [told(MOMENTS[0], MOMENTS[0])]
    assert calendar_file("town", events, window()) == calendar_file(
        "town", events, window("2026-08-22")
    )


def test_a_place_on_the_map_a_picture_and_the_links_of_all_sources_are_written() -> None:
    text = Text(
        uid="1",
        title="T",
        geo="37.5;-122.25",
        image="https://a.org/i.png",
        access="PRIVATE",
        url="https://a.org/1",
    )
    links = (('The "A", Inc.: one', "https://a.org/1"), ("B", "https://b.org/2"))
    event = CityEvent(
        uid="1",
        recurrence="",
        start="2026-09-01",
        end="2026-09-02",
        text=text,
        sources=("A", "B"),
        links=links,
    )
    written = calendar_file("town", [event], window())
    lines = written.replace(b"\r\n ", b"").decode().split("\r\n")
    assert "GEO:37.5;-122.25" in lines
    assert "IMAGE;VALUE=URI:https://a.org/i.png" in lines
    assert "CLASS:PRIVATE" in lines
    assert [line for line in lines if line.startswith("LINK")] == [
        """LINK;LINKREL=SOURCE;LABEL="The ^'A^', Inc.: one";VALUE=URI:https://a.org/1""",
        'LINK;LINKREL=SOURCE;LABEL="B";VALUE=URI:https://b.org/2',
    ]
    (one,) = vevents(written)
    assert one["GEO"].to_ical() == "37.5;-122.25"
    assert str(one["IMAGE"]) == "https://a.org/i.png"
    assert vobject.readOne(written.decode()).vevent.summary.value == "T"
    (read,) = json.loads(events_file("town", [event], window()))["events"]
    assert (read["geo"], read["image"]) == ([37.5, -122.25], "https://a.org/i.png")
    assert read["links"] == [{"source": source, "url": url} for source, url in links]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue", "UTC"])
@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_the_first_and_the_last_moment_can_be_written(zone: str, moment: str) -> None:
    events = [told("2026-09-01T00:00:00Z", moment), told(moment, moment, moment)]
    assert len(vevents(calendar_file("town", events, window(zone=zone)))) == 2
    assert len(json.loads(events_file("town", events, window(zone=zone)))["events"]) == 2


def test_an_empty_calendar_is_one_too() -> None:
    assert vevents(calendar_file("town", [], window())) == []


def test_the_json_has_local_times_with_their_offset_and_days_as_days() -> None:
    events = [told("2026-09-01", "2026-09-02"), told(MOMENTS[0], MOMENTS[0], MOMENTS[0])]
    read = json.loads(events_file("town", events, window()))
    assert (read["id"], read["timezone"], read["from"], read["days"]) == (
        "town",
        "America/New_York",
        "2026-08-21",
        90,
    )
    day, timed = read["events"]
    assert (day["start"], day["end"], day["all_day"]) == ("2026-09-01", "2026-09-02", True)
    assert timed["start"] == timed["recurrence"] == "2026-08-30T08:00:00-04:00"
    assert timed["sources"] == ["One, Two", "Three; Four"]
