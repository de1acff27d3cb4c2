"""How dates and times are read, and what zone they are in."""

import pytest

from jobs.calendars.lines import Line
from jobs.calendars.times import Zones, known_zone

NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("params", "value", "calendar", "expected"),
    [
        ("", "20260901T190000Z", "", "X:20260901T190000Z"),
        (";TZID=Europe/Paris", "20260901T190000", "", "X;TZID=Europe/Paris:20260901T190000"),
        (';TZID="Europe/Paris"', "20260901T190000", "", "X;TZID=Europe/Paris:20260901T190000"),
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
        ("", "20260901T190000", "Indiana (East)", f"X;TZID={NEW_YORK}:20260901T190000"),
        # A zone that nobody knows counts as none.
        (";TZID=PDT", "20260901T190000", "", f"X;TZID={NEW_YORK}:20260901T190000"),
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
    ["", "soon", "20261301", "20260230T100000Z", "20260901T250000", "20260901T106000", "2026"],
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
        ("Eastern Time (US & Canada)", ""),
        ("../../etc/passwd", ""),
        ("", ""),
    ],
)
def test_zones_are_known_by_many_names(name: str, expected: str) -> None:
    assert known_zone(name) == expected


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
