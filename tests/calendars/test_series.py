"""What is meant by series, ends and versions that are not as RFC 5545 has them."""

from zoneinfo import ZoneInfo

import pytest

from jobs.calendars.records import instant_of
from tests.calendars.support import calendar, event, read, times, window

WEEKLY = event(
    "w", "Weekly", "20260902T180000Z", "DTEND:20260902T190000Z", "RRULE:FREQ=WEEKLY;COUNT=4"
)
LOS_ANGELES = window(zone="America/Los_Angeles")


def starts(body: bytes, **more: object) -> list[str]:
    return sorted(one.start for one in read(body, **more).occurrences)


def days(*numbers: int, at: str = "T18:00:00Z") -> list[str]:
    return [f"2026-09-{number:02d}{at}" for number in numbers]


# Each reading: the start, the rule, the zone that the feed names, and what comes of it in a city
# on the Pacific. 2026-09-02 is a Wednesday.
READINGS = {
    "the start fits the rule in UTC alone: UTC": (
        "20260902T013000Z",
        "FREQ=WEEKLY;BYDAY=WE;COUNT=4",
        "America/Los_Angeles",
        days(2, 9, 16, 23, at="T01:30:00Z"),
    ),
    "it fits in the feed's zone alone: that zone": (
        "20260902T013000Z",
        "FREQ=WEEKLY;BYDAY=TU;COUNT=4",
        "America/Los_Angeles",
        days(2, 9, 16, 23, at="T01:30:00Z"),
    ),
    "it fits in both: the feed's zone, which keeps its hour": (
        "20261028T180000Z",
        "FREQ=WEEKLY;BYDAY=WE;COUNT=2",
        "America/Los_Angeles",
        ["2026-10-28T18:00:00Z", "2026-11-04T19:00:00Z"],
    ),
    "no zone is named: UTC, which does not": (
        "20261028T180000Z",
        "FREQ=WEEKLY;BYDAY=WE;COUNT=2",
        "",
        ["2026-10-28T18:00:00Z", "2026-11-04T18:00:00Z"],
    ),
    "no zone is named, and it fits in the city's alone": (
        "20260902T013000Z",
        "FREQ=WEEKLY;BYDAY=TU;COUNT=4",
        "",
        days(2, 9, 16, 23, at="T01:30:00Z"),
    ),
    "days of the month": (
        "20260902T013000Z",
        "FREQ=MONTHLY;BYMONTHDAY=2;COUNT=2",
        "America/Los_Angeles",
        ["2026-09-02T01:30:00Z", "2026-10-02T01:30:00Z"],
    ),
}


@pytest.mark.parametrize(("start", "rule", "zone", "expected"), READINGS.values(), ids=READINGS)
def test_a_series_in_utc_repeats_in_the_zone_in_which_its_start_fits_its_rule(
    start: str, rule: str, zone: str, expected: list[str]
) -> None:
    head = f"X-WR-TIMEZONE:{zone}\n" if zone else ""
    body = calendar(event("u", "U", start, f"RRULE:{rule}"), head=head)
    assert starts(body, window=LOS_ANGELES) == expected


@pytest.mark.parametrize("day", ["MO", "TU", "WE", "TH"])
@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo", "UTC", ""])
def test_a_weekly_series_of_one_weekday_has_one_day_a_week(day: str, zone: str) -> None:
    """Where the start is on that day in one of the zones; else the start comes first, as ever."""
    head = f"X-WR-TIMEZONE:{zone}\n" if zone else ""
    rule = f"RRULE:FREQ=WEEKLY;BYDAY={day};COUNT=4"
    body = calendar(event("u", "U", "20260902T013000Z", rule), head=head)
    found = starts(body, window=LOS_ANGELES)
    names = {name for name in (zone or "America/Los_Angeles", "UTC") if name}
    fitting = {
        f"{instant_of(found[0]).astimezone(ZoneInfo(name)):%a}".upper()[:2] for name in names
    }
    if zone == "UTC":
        fitting.add("TU")  # a feed in UTC is asked in the city's zone too
    weekdays = {instant_of(one).weekday() for one in found}
    assert (len(weekdays) == 1) is (day in fitting)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("EXDATE:20261104T180000Z", ["2026-10-28T18:00:00Z", "2026-11-11T18:00:00Z"]),
        ("EXDATE:20261104T190000Z", ["2026-10-28T18:00:00Z", "2026-11-11T19:00:00Z"]),
    ],
)
@pytest.mark.parametrize("rule", ["FREQ=WEEKLY;COUNT=3", "FREQ=WEEKLY;BYDAY=WE;COUNT=3"])
def test_where_both_fit_the_hour_of_an_exclusion_decides(
    line: str, expected: list[str], rule: str
) -> None:
    """The clocks go back on the first of November."""
    series = event("u", "U", "20261028T180000Z", f"RRULE:{rule}", line)
    body = calendar(series, head="X-WR-TIMEZONE:America/Los_Angeles\n")
    assert starts(body, window=LOS_ANGELES) == expected


def test_where_both_fit_the_hour_of_a_change_decides() -> None:
    series = event("u", "U", "20261028T180000Z", "RRULE:FREQ=WEEKLY;COUNT=2")
    change = event("u", "U", "20261105T180000Z", "RECURRENCE-ID:20261104T180000Z")
    body = calendar(series, change, head="X-WR-TIMEZONE:America/Los_Angeles\n")
    assert starts(body, window=LOS_ANGELES) == ["2026-10-28T18:00:00Z", "2026-11-05T18:00:00Z"]


ENDS = {
    "before its start": ("20260902T180000Z", "DTEND:20260902T170000Z", 0),
    "a day before its start": ("20260902T180000Z", "DTEND:20260901T190000Z", 0),
    "years before its start": ("20260902T180000Z", "DTEND:20200902T190000Z", 0),
    "a hundred years away": ("20260902T180000Z", "DTEND:21990902T190000Z", 0),
    "beyond all years": ("20260902T180000Z", "DTEND:99991231T235959Z", 0),
    "a giant duration": ("20260902T180000Z", "DURATION:P99999999999999999999D", 0),
    "a duration of millennia": ("20260902T180000Z", "DURATION:P2500000D", 0),
    "an unreadable duration": ("20260902T180000Z", "DURATION:PT1HOUR", 0),
    "an hour": ("20260902T180000Z", "DTEND:20260902T190000Z", 3600),
}


@pytest.mark.parametrize(("start", "line", "seconds"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("rule", ["RRULE:FREQ=WEEKLY;COUNT=4", "RDATE:20260909T180000Z"])
def test_a_bad_end_moves_no_series_and_loses_none(
    start: str, line: str, seconds: int, rule: str
) -> None:
    parsed = read(calendar(event("e", "E", start, line, rule)))
    assert (parsed.skipped, parsed.error) == (0, "")
    found = times(parsed)
    assert [begin for _title, begin, _end in found][:2] == days(2, 9)
    for _title, begin, end in found:
        assert (instant_of(end) - instant_of(begin)).total_seconds() == seconds


BESIDE_A_ZONE = {
    "a floating start": ("", "", "DTSTART:20260902T200000", days(2)),
    "in a calendar of another zone": (
        "Asia/Tokyo",
        "",
        "DTSTART:20260902T200000",
        days(2, at="T11:00:00Z"),
    ),
    "in a calendar that names UTC": ("UTC", "", "DTSTART:20260902T200000", days(2)),
    "a series": ("", "RRULE:FREQ=WEEKLY;COUNT=2", "DTSTART:20260902T200000", days(2, 9)),
    "a start in UTC": ("", "", "DTSTART:20260902T180000Z", days(2)),
    "a start in a zone": (
        "",
        "",
        "DTSTART;TZID=Asia/Tokyo:20260902T200000",
        days(2, at="T11:00:00Z"),
    ),
}


@pytest.mark.parametrize(
    ("calendars", "rule", "start", "expected"), BESIDE_A_ZONE.values(), ids=BESIDE_A_ZONE
)
def test_a_floating_start_is_of_the_zone_of_its_end_where_the_calendar_names_none(
    calendars: str, rule: str, start: str, expected: list[str]
) -> None:
    head = f"X-WR-TIMEZONE:{calendars}\n" if calendars else ""
    end = "DTEND;TZID=Europe/Berlin:20260902T213000"
    parsed = read(calendar("\n".join(filter(None, ["UID:e", start, end, rule])), head=head))
    assert sorted(one.start for one in parsed.occurrences) == expected
    assert {one.end[11:16] for one in parsed.occurrences} == {"19:30"}


def test_a_zone_of_an_end_that_is_not_known_says_nothing_of_the_start() -> None:
    body = calendar("UID:e\nDTSTART:20260902T140000\nDTEND;TZID=Nowhere:20260902T150000")
    parsed = read(body)
    assert [(one.start, one.end) for one in parsed.occurrences] == [
        (days(2)[0], days(2, at="T19:00:00Z")[0])
    ]
    assert parsed.mending == "the time zone 'Nowhere' is not known"


@pytest.mark.parametrize("end", ["DTEND:", "DTEND:xx", "DTEND;VALUE=DATE:20260902"])
def test_an_end_that_cannot_be_used_leaves_the_duration(end: str) -> None:
    parsed = read(calendar(event("1", "E", "20260902T180000Z", end, "DURATION:PT5H")))
    assert [one.end for one in parsed.occurrences] == ["2026-09-02T23:00:00Z"]


def test_an_end_before_the_start_across_zones_is_none() -> None:
    body = calendar(
        "UID:1\nSUMMARY:S\nDTSTART;TZID=Europe/Paris:20260902T180000\n"
        "DTEND;TZID=Asia/Tokyo:20260902T190000\nRRULE:FREQ=WEEKLY;COUNT=2"
    )
    parsed = read(body)
    assert times(parsed) == [("S", day, day) for day in days(2, 9, at="T16:00:00Z")]


BROKEN = {
    "text after a start": ("DTSTART:20260902T180000Z\nand a broken line", days(2)),
    "text folded into a start": ("DTSTART:20260902T180000Z\n SUMMARY of it", days(2)),
    "text after a rule": (
        "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;COUNT=2\nand a broken line",
        days(2, 9),
    ),
    "text folded into a rule": (
        "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;COUNT=2\n  and more",
        days(2, 9),
    ),
    "a rule in two lines": (
        "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;UN\nTIL=20260910T000000Z",
        days(2, 9),
    ),
    "text after an exclusion": (
        "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;COUNT=2\nEXDATE:20260909T180000Z\nfoo",
        days(2),
    ),
    "an unreadable rule": ("DTSTART:20260902T180000Z\nRRULE:FREQ=SOMETIMES", days(2)),
    "a rule without a frequency": ("DTSTART:20260902T180000Z\nRRULE:COUNT=3", days(2)),
    "an empty rule": ("DTSTART:20260902T180000Z\nRRULE:", days(2)),
    "a rule that says its end wrong": (
        "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;UNTIL=202609",
        days(2),
    ),
    "a rule of impossible days": (
        "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;BYDAY=XX",
        days(2),
    ),
    "a rule whose end is written with dashes": (
        "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;UNTIL=2026-09-10T00:00:00Z",
        days(2, 9),
    ),
    "an unreadable place in a series": (
        "DTSTART:20260902T180000Z\nRECURRENCE-ID:00000000T000000",
        days(2),
    ),
    "one unreadable date in a list": (
        "DTSTART:20260902T180000Z\nRDATE:20260904T180000Z,soon,20260905T180000Z",
        days(2, 4, 5),
    ),
}


@pytest.mark.parametrize(("lines", "expected"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_of_an_event_costs_that_alone(lines: str, expected: list[str]) -> None:
    parsed = read(calendar(f"UID:1\nSUMMARY:E\n{lines}", event("g", "Good", "20261001")))
    found = times(parsed)
    assert [start for title, start, _end in found if title == "E"] == expected
    assert [title for title, _start, _end in found].count("Good") == 1
    assert parsed.skipped == 0


def test_what_was_mended_is_counted_with_the_first_reason() -> None:
    parsed = read(calendar(event("1", "E", "20260902T180000Z", "RRULE:FREQ=SOMETIMES")))
    assert (parsed.mended, parsed.mending) == (1, "'FREQ=SOMETIMES' is not a rule")
    assert read(calendar(WEEKLY)).mended == 0


PERIODS = {
    "a duration": ("20260910T180000Z/PT3H", "2026-09-10T21:00:00Z"),
    "an end": ("20260910T180000Z/20260910T203000Z", "2026-09-10T20:30:00Z"),
    "no end that can be read": ("20260910T180000Z/later", "2026-09-10T19:00:00Z"),
}


@pytest.mark.parametrize(("period", "end"), PERIODS.values(), ids=PERIODS)
def test_an_added_period_is_as_long_as_it_says(period: str, end: str) -> None:
    parsed = read(calendar(f"{WEEKLY}\nRDATE;VALUE=PERIOD:{period}"))
    ends = {one.start: one.end for one in parsed.occurrences}
    assert sorted(ends) == days(2, 9, 10, 16, 23)
    assert ends["2026-09-10T18:00:00Z"] == end
    assert ends["2026-09-09T18:00:00Z"] == "2026-09-09T19:00:00Z"
    assert parsed.repeated == 0


def test_a_period_that_is_excluded_or_changed_is_not_there() -> None:
    added = f"{WEEKLY}\nRDATE;VALUE=PERIOD:20260910T180000Z/PT3H"
    assert starts(calendar(f"{added}\nEXDATE:20260910T180000Z")) == days(2, 9, 16, 23)
    moved = event("w", "Moved", "20260911T180000Z", "RECURRENCE-ID:20260910T180000Z")
    assert starts(calendar(added, moved)) == days(2, 9, 11, 16, 23)


EXCEPTIONS = {
    "by the month day": ("EXRULE:FREQ=MONTHLY;BYMONTHDAY=9", days(2, 16, 23)),
    "every second": ("EXRULE:FREQ=WEEKLY;INTERVAL=2", days(9, 23)),
    "until a day": ("EXRULE:FREQ=WEEKLY;UNTIL=20260910T000000Z", days(16, 23)),
    "one that cannot be read": ("EXRULE:FREQ=NEVER", days(2, 9, 16, 23)),
}


@pytest.mark.parametrize(("line", "expected"), EXCEPTIONS.values(), ids=EXCEPTIONS)
def test_a_rule_of_exceptions_takes_its_times_away(line: str, expected: list[str]) -> None:
    assert starts(calendar(f"{WEEKLY}\n{line}")) == expected


@pytest.mark.parametrize("place", ["19691231T160000Z", "19700101T000000Z", "19700101"])
@pytest.mark.parametrize("series", [[], [WEEKLY]])
def test_overrides_of_the_epoch_are_events_of_their_own(place: str, series: list[str]) -> None:
    bogus = [
        event("w", f"On {day}", f"202609{day}T200000Z", f"RECURRENCE-ID:{place}")
        for day in ("03", "04", "05")
    ]
    parsed = read(calendar(*series, *bogus))
    found = {title: start for title, start, _end in times(parsed) if title != "Weekly"}
    assert list(found.values()) == days(3, 4, 5, at="T20:00:00Z")
    assert len(parsed.occurrences) == 3 + 4 * len(series)
    assert not any(one.recurrence.startswith("19") for one in parsed.occurrences)


def test_overrides_that_share_a_place_before_their_series_are_events_of_their_own() -> None:
    bogus = [
        event("w", f"On {day}", f"202609{day}T200000Z", "RECURRENCE-ID:20200101T000000Z")
        for day in ("03", "04")
    ]
    assert len(read(calendar(WEEKLY, *bogus)).occurrences) == 6


VERSIONS = {
    "an event": ("", days(5)),
    "a series": ("\nRRULE:FREQ=WEEKLY;COUNT=2", days(5, 12)),
}


@pytest.mark.parametrize(("rule", "expected"), VERSIONS.values(), ids=VERSIONS)
def test_a_higher_sequence_with_a_new_start_replaces_the_old(
    rule: str, expected: list[str]
) -> None:
    old = event("s", "Old", "20260903T180000Z", "SEQUENCE:1") + rule
    new = event("s", "New", "20260905T180000Z", "SEQUENCE:2") + rule
    for blocks in ([old, new], [new, old]):
        parsed = read(calendar(*blocks))
        assert [(title, start) for title, start, _end in times(parsed)] == [
            ("New", start) for start in expected
        ]
        assert parsed.repeated == 1


def test_events_that_share_uid_and_sequence_are_each_an_event_with_a_place_that_stays() -> None:
    blocks = [event("s", "E", f"202609{day}T180000Z", "SEQUENCE:1") for day in ("03", "04", "05")]
    whole = {(one.start, one.recurrence) for one in read(calendar(*blocks)).occurrences}
    assert whole == {(day, day) for day in days(3, 4, 5)}
    later = read(calendar(*blocks), window=window("2026-09-05")).occurrences
    assert {(one.start, one.recurrence) for one in later} <= whole


def test_the_same_uid_and_start_at_another_place_stays() -> None:
    def at(place: str, *more: str) -> str:
        return event("s", "Storytime", "20260903T180000Z", f"LOCATION:{place}", *more)

    both = read(calendar(at("Main Library"), at("North Branch")))
    assert (len(both.occurrences), both.repeated) == (2, 0)
    again = read(calendar(at("Main Library"), at("main  library.")))
    assert (len(again.occurrences), again.repeated) == (1, 1)
    nowhere = read(calendar(at("Main Library"), at("")))
    assert [one.location for one in nowhere.texts] == ["Main Library"]
    moved = read(calendar(at("Main Library", "SEQUENCE:1"), at("North Branch", "SEQUENCE:2")))
    assert [one.location for one in moved.texts] == ["North Branch"]
    rule = "RRULE:FREQ=WEEKLY;COUNT=2"
    assert len(read(calendar(at("Main Library", rule), at("North", rule))).occurrences) == 4


@pytest.mark.parametrize("rule", ["", "RRULE:FREQ=WEEKLY;COUNT=2"])
@pytest.mark.parametrize("place", ["", "Main Library"])
def test_the_same_uid_and_start_with_another_title_stays(rule: str, place: str) -> None:
    def one(title: str, at: str = place) -> str:
        return event("s", title, "20260903T180000Z", f"LOCATION:{at}", *filter(None, [rule]))

    times = 2 if rule else 1
    both = read(calendar(one("Chess"), one("Yoga")))
    assert sorted(one.title for one in both.texts) == ["Chess", "Yoga"]
    assert (len(both.occurrences), both.repeated) == (2 * times, 0)
    elsewhere = read(calendar(one("Chess", "North"), one("Yoga", "")))
    assert len(elsewhere.occurrences) == 2 * times
    again = read(calendar(one("Chess"), one("CHESS!")))
    assert (len(again.occurrences), again.repeated) == (times, 1)


def test_a_change_with_another_title_takes_the_place_of_its_series() -> None:
    series = event("s", "Chess", "20260903T180000Z", "RRULE:FREQ=WEEKLY;COUNT=2")
    change = event("s", "Yoga", "20260910T180000Z", "RECURRENCE-ID:20260910T180000Z")
    found = [title for title, _start, _end in times(read(calendar(series, change)))]
    assert found == ["Chess", "Yoga"]


VERSIONS_OF_A_CHANGE = {
    "is newer than the series": ("SEQUENCE:3", days(2, 10, 16, 23)),
    "is as old": ("SEQUENCE:2", days(2, 10, 16, 23)),
    "is older": ("SEQUENCE:1", days(2, 16, 23)),
}


@pytest.mark.parametrize(
    ("sequence", "expected"), VERSIONS_OF_A_CHANGE.values(), ids=VERSIONS_OF_A_CHANGE
)
@pytest.mark.parametrize("excluded", ["EXDATE:20260909T180000Z", "EXDATE;VALUE=DATE:20260909"])
def test_a_change_is_over_where_a_later_version_of_its_series_excludes_it(
    sequence: str, expected: list[str], excluded: str
) -> None:
    series = f"{WEEKLY}\nSEQUENCE:2\n{excluded}"
    change = event("w", "Moved", "20260910T180000Z", "RECURRENCE-ID:20260909T180000Z", sequence)
    for blocks in ([series, change], [change, series]):
        assert starts(calendar(*blocks)) == expected


def test_an_excluded_change_of_all_later_times_still_changes_the_later_ones() -> None:
    change = event(
        "w", "Later", "20260910T180000Z", "RECURRENCE-ID;RANGE=THISANDFUTURE:20260909T180000Z"
    )
    series = f"{WEEKLY}\nSEQUENCE:2\nEXDATE:20260909T180000Z"
    assert starts(calendar(series, change)) == days(2, 17, 24)


def test_an_older_change_at_no_time_of_its_series_is_shown_and_noted() -> None:
    """It may be left from before the series was ended."""
    series = f"{WEEKLY}\nSEQUENCE:2"
    change = event("w", "Weekly", "20260930T180000Z", "RECURRENCE-ID:20260930T180000Z")
    parsed = read(calendar(series, change))
    assert sorted(one.start for one in parsed.occurrences) == days(2, 9, 16, 23, 30)
    assert parsed.mending == "RECURRENCE-ID 20260930T180000Z is not a time of its series"
    newer = read(calendar(series, f"{change}\nSEQUENCE:3"))
    assert (len(newer.occurrences), newer.mended) == (5, 0)
    other_days = read(calendar(series, change), window=window("2026-09-15", days=10))
    assert (len(other_days.occurrences), other_days.mended) == (2, 0)


@pytest.mark.parametrize("title", ["Weekly", "Concert"])
def test_two_changes_of_a_series_to_the_same_time_are_one_where_their_titles_are_the_same(
    title: str,
) -> None:
    changes = [
        event("w", "Weekly", "20260910T200000Z", "RECURRENCE-ID:20260909T180000Z"),
        event("w", title, "20260910T200000Z", "RECURRENCE-ID:20260910T180000Z"),
    ]
    parsed = read(calendar(WEEKLY, *changes))
    same = title == "Weekly"
    assert (len(parsed.occurrences), parsed.repeated) == ((4, 1) if same else (5, 0))
    again = read(calendar(*reversed(changes), WEEKLY))
    places = [sorted(one.recurrence for one in each.occurrences) for each in (parsed, again)]
    assert places[0] == places[1]


MOVED = event(
    "w", "Weekly", "20260916T180000Z", "DTEND:20260916T190000Z", "RECURRENCE-ID:20260909T180000Z"
)


@pytest.mark.parametrize("first", ["2026-08-21", "2026-09-14"])
def test_a_change_that_is_moved_to_another_time_of_its_series_is_shown_beside_it(
    first: str,
) -> None:
    """Two meetings at one time, as calendar programs show them."""
    parsed = read(calendar(WEEKLY, MOVED), window=window(first))
    expected = days(2, 16, 16, 23) if first < "2026-09" else days(16, 16, 23)
    assert sorted(one.start for one in parsed.occurrences) == expected
    assert parsed.repeated == 0
    assert len({one.recurrence for one in parsed.occurrences}) == len(parsed.occurrences)


def test_two_changes_that_are_moved_to_one_time_are_two() -> None:
    other = MOVED.replace("RECURRENCE-ID:20260909", "RECURRENCE-ID:20260923")
    assert starts(calendar(WEEKLY, MOVED, other)) == days(2, 16, 16, 16)


@pytest.mark.parametrize("title", ["Weekly", "Concert"])
def test_a_change_that_names_no_time_of_its_series_is_shown_where_it_adds_something(
    title: str,
) -> None:
    stray = MOVED.replace("20260909", "20260911").replace("Weekly", title)
    expected = days(2, 9, 16, 23) if title == "Weekly" else days(2, 9, 16, 16, 23)
    assert starts(calendar(WEEKLY, stray)) == expected


def test_a_change_of_two_series_of_one_uid_is_shown_once() -> None:
    other = WEEKLY.replace("20260902T18", "20260902T20").replace("T190000Z", "T210000Z")
    found = starts(calendar(WEEKLY, other, MOVED))
    assert found.count("2026-09-16T18:00:00Z") == 2
    assert len(found) == 8


NAMES = {
    "commas": (r"(UTC+03:00) Athens\, Minsk", '"(UTC+03:00) Athens, Minsk"'),
    "escaped on both sides": (r"(UTC+03:00) Athens\, Minsk", r'"(UTC+03:00) Athens\, Minsk"'),
    "no quotes where there should be": (r"(UTC+03:00) Athens", "(UTC+03:00) Athens"),
    "white space": ("Our   time", "Our time"),
}


@pytest.mark.parametrize(("name", "param"), NAMES.values(), ids=NAMES)
def test_a_zone_of_the_feed_is_found_however_its_name_is_escaped(name: str, param: str) -> None:
    head = (
        f"BEGIN:VTIMEZONE\nTZID:{name}\nBEGIN:STANDARD\nDTSTART:19700101T000000\n"
        "TZOFFSETFROM:+0300\nTZOFFSETTO:+0300\nEND:STANDARD\nEND:VTIMEZONE\n"
    )
    body = calendar(f"UID:1\nSUMMARY:E\nDTSTART;TZID={param}:20260902T210000", head=head)
    assert starts(body) == days(2)


def test_a_bad_zone_costs_the_other_zones_nothing() -> None:
    zone = (
        "BEGIN:VTIMEZONE\nTZID:{}\nBEGIN:STANDARD\nDTSTART:{}\n"
        "TZOFFSETFROM:+0300\nTZOFFSETTO:+0300\nEND:STANDARD\nEND:VTIMEZONE\n"
    )
    head = zone.format("Bad", "nonsense") + zone.format("Good", "19700101T000000")
    body = calendar("UID:1\nSUMMARY:E\nDTSTART;TZID=Good:20260902T210000", head=head)
    assert starts(body) == days(2)


def test_events_without_a_calendar_around_them_are_read() -> None:
    bare = b"BEGIN:VEVENT\r\n" + event("1", "One", "20260902T180000Z").encode()
    bare = bare.replace(b"\n", b"\r\n") + b"\r\nEND:VEVENT\r\n"
    for body in (bare, b"\r\n" + bare, bare.replace(b"\r\n", b"\r"), b"\xef\xbb\xbf" + bare):
        assert starts(body) == days(2)


# ---- a local time, or a day, where a time in UTC belongs


def choir(*lines: str) -> str:
    return "\n".join(["UID:e", "SUMMARY:Choir", *lines])


EVENINGS = days(2, 3, 4, 5, at="T03:00:00Z")
"""At 20:00 on the Pacific, from the first of September on."""


@pytest.mark.parametrize(
    "start", ["DTSTART:20260901T200000", "DTSTART;TZID=America/Los_Angeles:20260901T200000"]
)
@pytest.mark.parametrize(
    ("rule", "others", "found"),
    [
        ("FREQ=DAILY;UNTIL=20260904T200000", "", EVENINGS),
        ("FREQ=DAILY;UNTIL=20260904T195959", "", EVENINGS[:3]),
        ("FREQ=DAILY;UNTIL=20260905T030000Z", "", EVENINGS),
        ("FREQ=DAILY;UNTIL=20260904", "", EVENINGS),
        ("FREQ=DAILY;UNTIL=20260901", "", EVENINGS[:1]),
        ("FREQ=DAILY;COUNT=4", "EXDATE;VALUE=DATE:20260902", [EVENINGS[0], *EVENINGS[2:]]),
    ],
)
def test_ends_and_exclusions_are_of_the_zone_of_the_start(
    start: str, rule: str, others: str, found: list[str]
) -> None:
    body = calendar(choir(start, f"RRULE:{rule}", *filter(None, [others])))
    assert starts(body, window=LOS_ANGELES) == found


def test_a_change_that_names_a_day_is_of_the_time_on_that_day() -> None:
    start = "DTSTART;TZID=America/Los_Angeles:20260901T200000"
    body = calendar(
        choir(start, "RRULE:FREQ=DAILY;COUNT=4"),
        choir(
            "RECURRENCE-ID;VALUE=DATE:20260902",
            "DTSTART;TZID=America/Los_Angeles:20260902T210000",
        ),
    )
    moved = "2026-09-03T04:00:00Z"
    assert starts(body, window=LOS_ANGELES) == [EVENINGS[0], moved, *EVENINGS[2:]]


def test_a_change_in_utc_names_a_local_time_by_the_clocks_of_its_series() -> None:
    """The series has another time at that hour of UTC."""
    series = choir(
        "DTSTART;TZID=America/Los_Angeles:20260901T130000", "RRULE:FREQ=DAILY;BYHOUR=13,20;COUNT=4"
    )
    moved = choir("RECURRENCE-ID:20260902T200000", "DTSTART:20260903T050000Z")
    first = ["2026-09-01T20:00:00Z", EVENINGS[0], "2026-09-02T20:00:00Z"]
    for blocks in ([series, moved], [moved, series]):
        parsed = read(calendar(*blocks), window=LOS_ANGELES)
        found = sorted(one.start for one in parsed.occurrences)
        assert (found, parsed.mended) == ([*first, "2026-09-03T05:00:00Z"], 0)
    alone = read(calendar(moved), window=LOS_ANGELES).occurrences
    assert [one.start for one in alone] == ["2026-09-03T05:00:00Z"]


def test_each_period_has_the_zone_of_its_own_line() -> None:
    body = calendar(
        choir(
            "DTSTART;TZID=America/New_York:20260901T090000",
            "RDATE;VALUE=PERIOD;TZID=America/New_York:20260902T090000/20260902T100000",
            "RDATE;VALUE=PERIOD;TZID=Europe/London:20260903T090000/20260903T100000",
        )
    )
    found = {one.start: one.end for one in read(body, window=LOS_ANGELES).occurrences}
    assert found["2026-09-03T08:00:00Z"] == "2026-09-03T09:00:00Z"
