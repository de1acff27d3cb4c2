"""How dates and times are read, and what zone they are in."""

import pytest

from jobs.calendars.lines import Line
from jobs.calendars.times import Zones
from jobs.calendars.zone_names import guessed_zone, known_zone
from tests.calendars.support import calendar, event, read, window

NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("params", "value", "calendar", "expected"),
    [
        ("", "20260901T190000Z", "", "X:20260901T190000Z"),
        (";TZID=Europe/Paris", "20260901T190000", "", "X;TZID=Europe/Paris:20260901T190000"),
        (';TZID="Europe/Paris"', "20260901T190000", "", "X;TZID=Europe/Paris:20260901T190000"),
        (";TZID='Europe/Paris'", "20260901T190000", "", "X;TZID=Europe/Paris:20260901T190000"),
        (';TZID="Europe/Paris', "20260901T190000", "", "X;TZID=Europe/Paris:20260901T190000"),
        (";VALUE=DATE", "20260901", "", "X;VALUE=DATE:20260901"),
        ("", "20260901", "", "X;VALUE=DATE:20260901"),
        (";VALUE=DATE", "20260901T000000", "", "X;VALUE=DATE:20260901"),
        (";VALUE=DATE-TIME", "20260901T190000Z", "", "X:20260901T190000Z"),
        ("", "2026-09-01T19:00:00Z", "", "X:20260901T190000Z"),
        ("", "2026-09-01 19:00", "", f"X;TZID={NEW_YORK}:20260901T190000"),
        ("", "20260901T1900", "", f"X;TZID={NEW_YORK}:20260901T190000"),
        ("", "20260901T190000-0400", "", "X:20260901T230000Z"),
        ("", "20260901T190000+05:30", "", "X:20260901T133000Z"),
        ("", "20260901T190000.000Z", "", "X:20260901T190000Z"),
        ("", "20260901T240000", "", f"X;TZID={NEW_YORK}:20260902T000000"),
        ("", "00010101T000000Z", "", "X:00010101T000000Z"),
        # Floating: the calendar's zone if it says one that means something, else the city's.
        ("", "20260901T190000", "", f"X;TZID={NEW_YORK}:20260901T190000"),
        ("", "20260901T190000", "Europe/Paris", "X;TZID=Europe/Paris:20260901T190000"),
        ("", "20260901T190000", "UTC", f"X;TZID={NEW_YORK}:20260901T190000"),
        ("", "20260901T190000", "Pacific", "X;TZID=America/Los_Angeles:20260901T190000"),
        # A zone that is not known counts as none.
        ("", "20260901T190000", "Our time", f"X;TZID={NEW_YORK}:20260901T190000"),
        (";TZID=Our time", "20260901T190000", "", f"X;TZID={NEW_YORK}:20260901T190000"),
        (";TZID=PDT", "20260901T190000", "", "X;TZID=America/Los_Angeles:20260901T190000"),
        (";TZID=GMT+0200", "20260901T190000", "", "X;TZID=Etc/GMT-2:20260901T190000"),
        # Hours of half a day.
        ("", "2026-08-22 10:00 PM", "", f"X;TZID={NEW_YORK}:20260822T220000"),
        ("", "2026-08-22 9:05 p.m.", "", f"X;TZID={NEW_YORK}:20260822T210500"),
        ("", "2026-08-22 12:30AM", "", f"X;TZID={NEW_YORK}:20260822T003000"),
        ("", "2026-08-22 12:30:00 pm Z", "", "X:20260822T123000Z"),
        (";TZID=UTC", "20260901T190000", "", "X:20260901T190000Z"),
    ],
)
def test_moments_are_read_as_they_are_written(
    params: str, value: str, calendar: str, expected: str
) -> None:
    line = Line("DTSTART", params, value)
    assert Zones(NEW_YORK).moment(line, calendar).line("X") == expected


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
    ],
)
def test_what_is_no_moment_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Zones(NEW_YORK).moment(Line("DTSTART", "", value), "")


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
        ("Berlin", "Europe/Berlin"),
        # What is shown contradicts itself, or is no zone: the offset remains.
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
        ("UTC+25", ""),
        ("Our time", ""),
        ("", ""),
    ],
)
def test_zones_are_guessed_by_what_programs_show(name: str, expected: str) -> None:
    assert guessed_zone(name) == expected


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


OWN = """BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:19700101T000000
TZOFFSETFROM:+0300
TZOFFSETTO:+0300
END:STANDARD
END:VTIMEZONE
""".replace("\n", "\r\n")


def test_a_feed_may_bring_its_own_zone_but_not_redefine_a_known_one() -> None:
    zones = Zones(NEW_YORK)
    zones.learn(OWN.format(name="Ours"))
    zones.learn(OWN.format(name="Europe/Paris"))
    assert zones.name("Ours", "") == "feed-zone-0"
    assert zones.name("Europe/Paris", "") == "Europe/Paris"
    zones.learn(OWN.format(name="EST"))
    assert zones.name("EST", "") == "feed-zone-1"


@pytest.mark.parametrize("frequency", ["SECONDLY", "HOURLY", "DAILY", "monthly"])
def test_a_zone_whose_clocks_change_more_often_than_every_year_is_none(frequency: str) -> None:
    """To follow its rules to an event takes as long as they are many."""
    rule = f"TZOFFSETTO:+0300\r\nRRULE:FREQ={frequency}\r\n"
    bad = OWN.format(name="Ours").replace("TZOFFSETTO:+0300\r\n", rule)
    zones = Zones(NEW_YORK)
    with pytest.raises(ValueError, match="more often"):
        zones.learn(bad)
    assert zones.name("Ours", "") == NEW_YORK
    zones.learn(OWN.format(name="Ours"))
    line = Line("DTSTART", ";TZID=Ours", "99991231T000000")
    assert zones.moment(line, "").within().line("X") == "X;TZID=feed-zone-1:23000101T000000"


def test_the_zone_of_one_feed_is_not_known_to_the_next() -> None:
    Zones(NEW_YORK).learn(OWN.format(name="Ours"))
    assert Zones(NEW_YORK).name("Ours", "") == NEW_YORK


def test_a_zone_that_says_where_it_is_is_the_zone_of_that_place() -> None:
    zones = Zones(NEW_YORK)
    zones.learn(OWN.format(name="Ours\r\nX-LIC-LOCATION:Europe/Athens"))
    assert zones.name("Ours", "") == "Europe/Athens"
