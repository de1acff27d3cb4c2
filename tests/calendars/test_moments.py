"""How dates and times are read, and what zone they are in."""

from time import process_time

import pytest

from jobs.calendars.lines import Block, Line, read_calendar
from jobs.calendars.times import Moment, Zones
from jobs.calendars.zone_names import guessed_zone, known_zone
from tests.calendars.support import calendar, event, read, times, window

NEW_YORK = "America/New_York"


def text(moment: Moment) -> str:
    wall = moment.wall.isoformat(" ", "minutes")
    return f"{wall} {moment.zone}" if moment.zone else wall.removesuffix(" 00:00")


@pytest.mark.parametrize(
    ("params", "value", "calendar", "expected"),
    [
        ("", "20260901T190000Z", "", "2026-09-01 19:00 UTC"),
        (";TZID=Europe/Paris", "20260901T190000", "", "2026-09-01 19:00 Europe/Paris"),
        (';TZID="Europe/Paris"', "20260901T190000", "", "2026-09-01 19:00 Europe/Paris"),
        (";TZID='Europe/Paris'", "20260901T190000", "", "2026-09-01 19:00 Europe/Paris"),
        (';TZID="Europe/Paris', "20260901T190000", "", "2026-09-01 19:00 Europe/Paris"),
        (";VALUE=DATE", "20260901", "", "2026-09-01"),
        ("", "20260901", "", "2026-09-01"),
        (";VALUE=DATE", "20260901T000000", "", "2026-09-01"),
        (";VALUE=DATE", "20260901T193000", "", f"2026-09-01 19:30 {NEW_YORK}"),
        (";VALUE=DATE", "20260901T193000Z", "", "2026-09-01 19:30 UTC"),
        (";VALUE=DATE-TIME", "20260901T190000Z", "", "2026-09-01 19:00 UTC"),
        ("", "2026-09-01T19:00:00Z", "", "2026-09-01 19:00 UTC"),
        ("", "2026-09-01 19:00", "", f"2026-09-01 19:00 {NEW_YORK}"),
        ("", "20260901T1900", "", f"2026-09-01 19:00 {NEW_YORK}"),
        ("", "20260901T190000-0400", "", "2026-09-01 23:00 UTC"),
        ("", "20260901T190000+05:30", "", "2026-09-01 13:30 UTC"),
        ("", "20260901T190000.000Z", "", "2026-09-01 19:00 UTC"),
        ("", "20260901T240000", "", f"2026-09-02 00:00 {NEW_YORK}"),
        ("", "00010101T000000Z", "", "0001-01-01 00:00 UTC"),
        # Floating: the calendar's zone if it says one that means something, else the city's.
        ("", "20260901T190000", "", f"2026-09-01 19:00 {NEW_YORK}"),
        ("", "20260901T190000", "Europe/Paris", "2026-09-01 19:00 Europe/Paris"),
        ("", "20260901T190000", "UTC", f"2026-09-01 19:00 {NEW_YORK}"),
        ("", "20260901T190000", "Pacific", "2026-09-01 19:00 America/Los_Angeles"),
        # A zone that is not known counts as none.
        ("", "20260901T190000", "Our time", f"2026-09-01 19:00 {NEW_YORK}"),
        (";TZID=Our time", "20260901T190000", "", f"2026-09-01 19:00 {NEW_YORK}"),
        (";TZID=PDT", "20260901T190000", "", "2026-09-01 19:00 America/Los_Angeles"),
        (";TZID=GMT+0200", "20260901T190000", "", "2026-09-01 19:00 Etc/GMT-2"),
        # Hours of half a day.
        ("", "2026-08-22 10:00 PM", "", f"2026-08-22 22:00 {NEW_YORK}"),
        ("", "2026-08-22 9:05 p.m.", "", f"2026-08-22 21:05 {NEW_YORK}"),
        ("", "2026-08-22 12:30AM", "", f"2026-08-22 00:30 {NEW_YORK}"),
        ("", "2026-08-22 12:30:00 pm Z", "", "2026-08-22 12:30 UTC"),
        (";TZID=UTC", "20260901T190000", "", "2026-09-01 19:00 UTC"),
        # A zone behind the time, which no other one is beside.
        ("", "20260901T190000 UTC", "", "2026-09-01 19:00 UTC"),
        ("", "20260901T190000 PDT", "", "2026-09-01 19:00 America/Los_Angeles"),
        ("", "20260901T190000+02", "", "2026-09-01 19:00 Etc/GMT-2"),
        ("", "2026-09-01 19:00 MEZ", "UTC", "2026-09-01 19:00 CET"),
        ("", "20260901T190000 Europe/Berlin", "", "2026-09-01 19:00 Europe/Berlin"),
        (";TZID=Europe/Paris", "20260901T190000 UTC", "", "2026-09-01 19:00 Europe/Paris"),
        # Other words are the text of a broken line, also where they are names of cities.
        ("", "20260901T190000 in the hall", "", f"2026-09-01 19:00 {NEW_YORK}"),
        ("", "20260901T190000 Louisville", "", f"2026-09-01 19:00 {NEW_YORK}"),
        ("", "20260901T190000 Center", "Europe/Paris", "2026-09-01 19:00 Europe/Paris"),
        ("", "20260901T190000 Mountain", "Europe/Paris", "2026-09-01 19:00 Europe/Paris"),
        ("", "20260901T190000 West", "Europe/Paris", "2026-09-01 19:00 Europe/Paris"),
        ("", "20260901T190000 Met", "Europe/Paris", "2026-09-01 19:00 Europe/Paris"),
        ("", "20260901T190000 Eastern Time", "Europe/Paris", "2026-09-01 19:00 Europe/Paris"),
        ("", "20260901T190000 Hall A/B", "Europe/Paris", "2026-09-01 19:00 Europe/Paris"),
        # An hour without its zero, and a leap second.
        ("", "20260901T93000", "", f"2026-09-01 09:30 {NEW_YORK}"),
        ("", "20260901T 93000Z", "", "2026-09-01 09:30 UTC"),
        ("", "20261231T235960Z", "", "2026-12-31 23:59 UTC"),
    ],
)
def test_moments_are_read_as_they_are_written(
    params: str, value: str, calendar: str, expected: str
) -> None:
    line = Line("DTSTART", params, value)
    assert text(Zones(NEW_YORK).moment(line, Block(zone=calendar))) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "20261301",
        "20260230T100000Z",
        "20260901T250000",
        "20260901T106000",
        "2026",
        "2026-08-22 13:00 PM",
        "20260901T9300",
        "20260901T999999",
    ],
)
def test_what_is_no_moment_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Zones(NEW_YORK).moment(Line("DTSTART", "", value), Block())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("America/New_York", NEW_YORK),
        ("america/new_york", NEW_YORK),
        ("Eastern Standard Time", NEW_YORK),
        ("W. Europe Standard Time", "Europe/Berlin"),
        ("/freeassociation.sourceforge.net/Europe/Berlin", "Europe/Berlin"),
        (
            "/softwarestudio.org/Olson_20011030_5/America/Argentina/Ushuaia",
            "America/Argentina/Ushuaia",
        ),
        ("Etc/UTC", "UTC"),
        ("GMT", "UTC"),
        ("eastern STANDARD time", NEW_YORK),
        ("'Europe/Berlin'", "Europe/Berlin"),
        (r"Europe\/Berlin", "Europe/Berlin"),
        ("America/New York", NEW_YORK),
        ("tzone://Microsoft/Utc", "UTC"),
        ("tzone://Microsoft/Custom", ""),
        ("Eastern Time (US & Canada)", ""),
        ("EST", ""),
        ("localtime", ""),
        ("../../etc/passwd", ""),
        ("", ""),
    ],
)
def test_zones_are_known_by_many_names(name: str, expected: str) -> None:
    assert known_zone(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Europe/Paris", "Europe/Paris"),
        ("Eastern Time (US & Canada)", NEW_YORK),
        ("(UTC-05:00) Eastern Time (US & Canada)", NEW_YORK),
        ("(GMT-0800) Pacific Time (US & Canada)", "America/Los_Angeles"),
        ("(GMT-08:00) Pacific Time (US & Canada); Tijuana", "America/Los_Angeles"),
        ("(UTC-04:00) Atlantic Time (Canada)", "America/Halifax"),
        ("(UTC+01:00) Amsterdam, Berlin, Bern, Rome, Stockholm, Vienna", "Europe/Amsterdam"),
        ("(UTC+00:00) Dublin, Edinburgh, Lisbon, London", "Europe/Dublin"),
        ("(UTC+05:30) Chennai, Kolkata, Mumbai, New Delhi", "Asia/Kolkata"),
        ("(UTC-10:00) Hawaii", "Pacific/Honolulu"),
        ("(UTC) Coordinated Universal Time", "UTC"),
        ("Indiana (East)", "America/Indiana/Indianapolis"),
        ("Eastern Daylight Time", NEW_YORK),
        ("Pacific", "America/Los_Angeles"),
        ("US/Pacific-New", "America/Los_Angeles"),
        ("Canada/East-Saskatchewan", "America/Regina"),
        ("Berlin", "Europe/Berlin"),
        # What is shown contradicts itself, or is not a zone: the offset remains.
        ("(UTC+03:00) Berlin", "Etc/GMT-3"),
        ("(UTC+03:00) Nowhere", "Etc/GMT-3"),
        ("EST", NEW_YORK),
        ("edt", NEW_YORK),
        ("PDT", "America/Los_Angeles"),
        ("CST", "America/Chicago"),
        ("CEST", "CET"),
        ("GMT+0200", "Etc/GMT-2"),
        ("UTC-5", "Etc/GMT+5"),
        ("-05:00", "Etc/GMT+5"),
        ("UTC+00:00", "UTC"),
        ("UTC+05:30", "Asia/Kolkata"),
        ("UTC-03:30", ""),
        ("Kamchatka Standard Time", "Asia/Kamchatka"),
        ("Mid-Atlantic Standard Time", "Etc/GMT+2"),
        ("MEZ", "CET"),
        ("CET/CEST", "CET"),
        ("UTC/GMT", "UTC"),
        ("UTC/Berlin", ""),
        ("US-Eastern", "US/Eastern"),
        ("Europe-London", "Europe/London"),
        ("Europe/Berlin DST", "Europe/Berlin"),
        ("Europe_London", "Europe/London"),
        ("America_New_York", NEW_YORK),
        ("America_Argentina_Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("posix/Europe/Vaduz", "Europe/Vaduz"),
        ("/citadel.org/20260108_1/EST", NEW_YORK),
        ("(GMT-05.00) Eastern Time (US & Canada)", NEW_YORK),
        ("(GMT-08.00) Pacific Time (US & Canada) / Tijuana", "America/Los_Angeles"),
        ("(GMT-08.00) Pacific Time (US &amp", "America/Los_Angeles"),
        ("(GMT+01.00) Sarajevo/Warsaw/Zagreb", "Europe/Sarajevo"),
        ("(GMT) Greenwich Mean Time - Dublin / Lisbon", "Europe/Dublin"),
        ("Greenwich Mean Time", "Europe/London"),
        ("Europe/Paris (CET)", "Europe/Paris"),
        ("CEST (UTC+2)", "CET"),
        ("Eastern Time - New York", NEW_YORK),
        ("W. Europe Standard Time 1", "Europe/Berlin"),
        ("(GMT-05:00) US/Eastern", "US/Eastern"),
        ("America/New_York,", NEW_YORK),
        ("\u200bEurope/Berlin;", "Europe/Berlin"),
        ("UTC\u221205:00", "Etc/GMT+5"),
        ("(UTC\u201305:00) Eastern Time (US & Canada)", NEW_YORK),
        ("ET", NEW_YORK),
        ("Pacific Time (PT)", "America/Los_Angeles"),
        ("UTC 5", ""),
        ("Nowhere" + " (x)" * 10_000, ""),
        ("UTC+25", ""),
        ("Our time", ""),
        ("", ""),
    ],
)
def test_zones_are_guessed_by_what_programs_show(name: str, expected: str) -> None:
    assert guessed_zone(name) == expected


def test_a_name_of_megabytes_costs_little_time() -> None:
    begun = process_time()
    for sign in ("/a", " / a", "(a) ", ", a"):
        assert guessed_zone(sign * 1_000_000) == known_zone(sign * 1_000_000) == ""
    assert process_time() - begun < 10


@pytest.mark.parametrize(
    ("tzid", "hour"),
    [
        ("tzone://Microsoft/Utc", "18:00"),
        ("UTC-05:00", "23:00"),
        ('"Europe/Berlin', "16:00"),
        ("GMT+0200", "16:00"),
        ("UTC+05:30", "12:30"),
        ("(UTC-05:00) Eastern Time (US & Canada)", "22:00"),
        ("EST", "22:00"),
    ],
)
@pytest.mark.parametrize("rule", ["", "\nRRULE:FREQ=DAILY;COUNT=1"])
def test_events_are_in_the_zones_that_are_guessed(tzid: str, hour: str, rule: str) -> None:
    body = calendar(f"UID:1\nDTSTART;TZID={tzid}:20260901T180000{rule}")
    parsed = read(body, window=window(zone="Asia/Tokyo"))
    assert [one.start[11:16] for one in parsed.occurrences] == [hour]
    assert (parsed.skipped, parsed.mended) == (0, 0)


@pytest.mark.parametrize(
    ("start", "head", "mended"),
    [
        (";TZID=Our time:20260901T190000", "", "the time zone 'Our time' is not known"),
        (":20260901T190000", "X-WR-TIMEZONE:Ours\n", "the time zone 'Ours' is not known"),
        (";TZID=Our time:20260901T190000Z", "", ""),
        (";TZID=EDT:20260901T190000", "X-WR-TIMEZONE:UTC\n", ""),
        (":20260901T190000", "", ""),
    ],
)
def test_a_zone_that_is_not_known_is_noted_where_it_matters(
    start: str, head: str, mended: str
) -> None:
    parsed = read(calendar(f"UID:1\nDTSTART{start}", event("2", "Two"), head=head))
    assert (parsed.mended, parsed.mending) == (int(bool(mended)), mended)


VCALENDAR_1_0 = {
    "an offset": ("TZ:+02\nDAYLIGHT:FALSE", "13:00"),
    "an offset with minutes": ("TZ:+05:30", "09:30"),
    "the offset of the city": ("TZ:-0500", "19:00"),
    "summer time with a name": (
        "TZ:+01\nDAYLIGHT:TRUE;+02;20260329T010000Z;20261025T010000Z;CET;CEST",
        "13:00",
    ),
    "another zone that is named": ("TZ:+09\nX-WR-TIMEZONE:Europe/Berlin", "13:00"),
}


@pytest.mark.parametrize(("head", "hour"), VCALENDAR_1_0.values(), ids=VCALENDAR_1_0)
def test_floating_times_of_vcalendar_1_0_are_of_its_zone(head: str, hour: str) -> None:
    """In a city where 15:00 is 19:00 UTC in summer, and 20:00 in winter."""
    start = "20260901T150000"
    body = calendar(event("1", "One", start, f"RDATE:{start};20260902T150000"), head=f"{head}\n")
    found = [one.start for one in read(body).occurrences]
    assert found == [f"2026-09-01T{hour}:00Z", f"2026-09-02T{hour}:00Z"]


OWN = """BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:19700101T000000
TZOFFSETFROM:+0300
TZOFFSETTO:+0300
END:STANDARD
END:VTIMEZONE
"""


def own(name: str = "Ours", *more: str) -> Block:
    """A zone as it is read from a feed, with more lines in its only part."""
    end = "END:STANDARD"
    said = OWN.format(name=name).replace(end, "\n".join((*more, end)))
    return read_calendar(calendar(head=said)).zones[0]


def test_a_feed_may_bring_its_own_zone_but_not_redefine_a_known_one() -> None:
    zones = Zones(NEW_YORK)
    zones.learn(own())
    zones.learn(own("Europe/Paris"))
    assert zones.name("Ours", Block()) == "feed-zone-0"
    assert zones.name("Europe/Paris", Block()) == "Europe/Paris"
    zones.learn(own("EST", "RDATE:20000101T000000"))
    assert zones.name("EST", Block()) == "feed-zone-1"


@pytest.mark.parametrize("frequency", ["SECONDLY", "HOURLY", "DAILY", "monthly"])
def test_a_zone_whose_clocks_change_more_often_than_every_year_is_none(frequency: str) -> None:
    """To follow its rules to an event takes as long as they are many."""
    zones = Zones(NEW_YORK)
    with pytest.raises(ValueError, match="more often"):
        zones.learn(own("Ours", f"RRULE:FREQ={frequency}"))
    assert zones.name("Ours", Block()) == NEW_YORK
    zones.learn(own())
    line = Line("DTSTART", ";TZID=Ours", "99991231T000000")
    assert text(zones.moment(line, Block()).within()) == "2300-01-01 00:00 feed-zone-0"


def test_the_zone_of_one_feed_is_not_known_to_the_next() -> None:
    Zones(NEW_YORK).learn(own())
    assert Zones(NEW_YORK).name("Ours", Block()) == NEW_YORK


def test_a_zone_that_says_where_it_is_is_the_zone_of_that_place() -> None:
    zones = Zones(NEW_YORK)
    zones.learn(own("Ours\nX-LIC-LOCATION:Europe/Athens"))
    zones.learn(own("Other"))
    assert zones.name("Ours", Block()) == "Europe/Athens"
    assert zones.name("Other", Block()) == "feed-zone-0"


BERLIN = """BEGIN:VTIMEZONE
TZID:Ours
BEGIN:STANDARD
DTSTART:20001029T030000
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
TZNAME:A
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:20000326T020000
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
END:DAYLIGHT
END:VTIMEZONE
"""
CLOCKS = {
    "RFC 5545, 3.8.3.2": ("TZNAME:A", "TZNAME;LANGUAGE=fr-CA:HNE"),
    "RFC 5545, 3.8.3.1": ("TZID:Ours", "TZID;X-A=B:Ours"),
    "stamps of a part": ("TZNAME:A", "LAST-MODIFIED:20200101T000000Z\nDTSTAMP:20200101T000000Z"),
    "a text of a part": ("TZNAME:A", "DESCRIPTION;LANGUAGE=de:Winterzeit"),
    "RFC 7808": ("TZID:Ours", "TZID:Ours\nTZUNTIL:20300101T000000Z"),
    "changes as days": (
        "RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU",
        "RDATE;VALUE=DATE:20251026,20261025",
    ),
    "changes as periods": (
        "RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU",
        "RDATE;VALUE=PERIOD:20251026T030000/PT1H,20261025T030000/20261025T040000",
    ),
    "a start that is a day": ("DTSTART:20001029T030000", "DTSTART;VALUE=DATE:20001029"),
    "offsets with colons": ("TZOFFSETFROM:+0200", "TZOFFSETFROM:+02:00"),
    "offsets with seconds": ("TZOFFSETTO:+0200", "TZOFFSETTO:+02:00:00"),
    "offsets without a sign": ("TZOFFSETTO:+0200", "TZOFFSETTO:0200"),
    "white space in a rule": ("RRULE:FREQ=YEARLY", "RRULE: FREQ = yearly"),
}


@pytest.mark.parametrize(("line", "written"), CLOCKS.values(), ids=CLOCKS)
def test_the_clocks_of_a_zone_are_read_whatever_else_it_says(line: str, written: str) -> None:
    assert line in BERLIN
    starts = [f"DTSTART;TZID=Ours:2026{month}09T120000" for month in ("07", "12")]
    feed = calendar(
        *(f"UID:{start}\nSUMMARY:E\n{start}" for start in starts),
        head=BERLIN.replace(line, written),
    )
    parsed = read(feed, window=window("2026-07-01", days=200))
    assert parsed.problem == ""
    assert [one.start for one in parsed.occurrences] == [
        "2026-07-09T10:00:00Z",
        "2026-12-09T11:00:00Z",
    ]


@pytest.mark.parametrize("day", ["20260327", "20261024"])
@pytest.mark.parametrize("hour", ["015959", "020000", "023000", "025959", "030000"])
def test_the_clocks_of_a_feed_change_as_those_of_the_same_known_zone(day: str, hour: str) -> None:
    """RFC 5545, 3.3.5: a time that the clocks leave out has the offset from before."""

    def shown(zone: str) -> list[tuple[str, str, str]]:
        lines = f"DTSTART;TZID={zone}:{day}T{hour}\nDTEND;TZID={zone}:{day}T050000"
        feed = calendar(f"UID:1\nSUMMARY:E\n{lines}\nRRULE:FREQ=DAILY;COUNT=3", head=BERLIN)
        return times(read(feed, window=window("2026-03-01", days=300)))

    assert len(shown("Ours")) == 3
    assert shown("Ours") == shown("Europe/Berlin")


@pytest.mark.parametrize("offset", ["", "+2", "+02000", "east", "+2500"])
def test_a_zone_whose_offset_is_none_is_reported(offset: str) -> None:
    feed = calendar(
        "UID:1\nSUMMARY:E\nDTSTART;TZID=Ours:20260909T120000",
        head=BERLIN.replace("TZOFFSETTO:+0200", f"TZOFFSETTO:{offset}"),
    )
    parsed = read(feed)
    assert parsed.problem.startswith("a VTIMEZONE is not understood: ")
    assert [one.start for one in parsed.occurrences] == ["2026-09-09T16:00:00Z"]


def test_two_calendars_of_a_file_may_mean_two_zones_by_one_name() -> None:
    """The zone may stand behind the events, and a calendar without it has the first."""

    def one(uid: str, zone: str) -> bytes:
        said = calendar(event(uid, uid, "20261201T100000").replace("DTSTART", "DTSTART;TZID=Ours"))
        return said.replace(b"END:VCALENDAR", f"{zone}END:VCALENDAR".encode())

    west = OWN.format(name="Ours").replace("+0300", "-0500")
    body = one("east", OWN.format(name="Ours")) + one("west", west) + one("none", "")
    found = {title: start for title, start, _end in times(read(body, window=window(days=150)))}
    assert found == {
        "east": "2026-12-01T07:00:00Z",
        "west": "2026-12-01T15:00:00Z",
        "none": "2026-12-01T07:00:00Z",
    }
