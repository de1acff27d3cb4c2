"""The ends of rules, and what else names the times of a series by a day."""

from datetime import datetime

import pytest

from jobs.calendars.rules import ended_in, tidy, until_of
from jobs.calendars.times import Moment
from tests.calendars.support import calendar, event, read, window

LOS_ANGELES = "America/Los_Angeles"


def starts(*lines: str, zone: str = LOS_ANGELES, named: str = "") -> list[str]:
    body = calendar(
        "\n".join(["UID:e", "SUMMARY:E", *lines]),
        head=f"X-WR-TIMEZONE:{named}\n" if named else "",
    )
    return sorted(one.start for one in read(body, window=window(zone=zone)).occurrences)


def days(first: int, last: int, at: str = "") -> list[str]:
    return [f"2026-09-{day:02d}{at}" for day in range(first, last + 1)]


# Each end: the UNTIL of days from the 18th on, the zone of the city, and the last day.
ENDS_OF_DAYS = {
    "a date": ("20260920", LOS_ANGELES, 20),
    "the last second of a day, as Google writes it": ("20260921T065959Z", LOS_ANGELES, 20),
    "the same elsewhere": ("20260920T145959Z", "Asia/Tokyo", 20),
    "the midnight that begins a day": ("20260920T070000Z", LOS_ANGELES, 20),
    "the same elsewhere, the day before in UTC": ("20260919T150000Z", "Asia/Tokyo", 20),
    "a date with a midnight that was put behind it": ("20260920T000000Z", LOS_ANGELES, 20),
    "a date with a last second": ("20260920T235959Z", "Europe/Berlin", 20),
    "a local time": ("20260920T065959", LOS_ANGELES, 20),
}


@pytest.mark.parametrize(("until", "zone", "last"), ENDS_OF_DAYS.values(), ids=ENDS_OF_DAYS)
def test_days_end_with_the_day_that_it_is_where_the_feed_is(
    until: str, zone: str, last: int
) -> None:
    lines = "DTSTART;VALUE=DATE:20260918", f"RRULE:FREQ=DAILY;UNTIL={until}"
    assert starts(*lines, zone=zone) == days(18, last)
    assert starts(*lines, zone="America/New_York", named=zone) == days(18, last)
    assert starts(*lines, zone=zone, named="UTC") == days(18, last)


@pytest.mark.parametrize("named", ["", LOS_ANGELES])
@pytest.mark.parametrize(
    ("start", "hour"), [("T180000Z", "T18:00:00Z"), ("T020000Z", "T02:00:00Z")]
)
def test_a_date_that_ends_times_in_utc_is_that_day_whole(start: str, hour: str, named: str) -> None:
    """Of Los Angeles, where 2:00 UTC is of the day before."""
    last = 23 if start == "T180000Z" else 24
    lines = f"DTSTART:20260921{start}", "RRULE:FREQ=DAILY;UNTIL=20260923"
    assert starts(*lines, named=named) == days(21, last, hour)


@pytest.mark.parametrize("until", ["99991231", "99991231T235959", "00010101"])
@pytest.mark.parametrize("zone", ["UTC", LOS_ANGELES, "Asia/Tokyo", ""])
def test_an_end_at_the_end_of_time_can_be_read(until: str, zone: str) -> None:
    start = Moment(datetime(2026, 9, 1, 18), zone)  # noqa: DTZ001 - a wall
    assert until_of(ended_in({"FREQ": "DAILY", "UNTIL": until}, start, "Asia/Tokyo"))


EVENING = "T18:00:00Z"
NAMED = {
    "an exclusion": ("RRULE:FREQ=DAILY;COUNT=3", "EXDATE;VALUE=DATE:20260909", [8, 10]),
    "an addition": ("RDATE;VALUE=DATE:20260911", "", [8, 11]),
    "an addition to a rule": ("RRULE:FREQ=DAILY;COUNT=2", "RDATE;VALUE=DATE:20260911", [8, 9, 11]),
}


@pytest.mark.parametrize(("rule", "line", "expected"), NAMED.values(), ids=NAMED)
@pytest.mark.parametrize(
    ("start", "named"),
    [
        (f";TZID={LOS_ANGELES}:20260908T110000", ""),
        (":20260908T180000Z", ""),
        (":20260908T180000Z", LOS_ANGELES),
    ],
)
def test_a_day_names_the_time_of_the_series_on_it(
    rule: str, line: str, expected: list[int], start: str, named: str
) -> None:
    found = starts(f"DTSTART{start}", rule, *filter(None, [line]), named=named)
    assert found == [f"2026-09-{day:02d}{EVENING}" for day in expected]


@pytest.mark.parametrize("named", ["", LOS_ANGELES])
def test_a_day_that_is_named_for_times_in_utc_is_one_of_the_feed(named: str) -> None:
    """2:00 UTC is of the day before there."""
    lines = "RRULE:FREQ=DAILY;COUNT=3", "EXDATE;VALUE=DATE:20260908"
    found = starts("DTSTART:20260908T020000Z", *lines, named=named)
    assert found == ["2026-09-08T02:00:00Z", "2026-09-10T02:00:00Z"]


@pytest.mark.parametrize("time", ["20260909T000000Z", "20260909T070000Z", "20260909T120000"])
def test_a_time_that_is_named_for_days_is_its_day(time: str) -> None:
    found = starts("DTSTART;VALUE=DATE:20260908", "RRULE:FREQ=DAILY;COUNT=3", f"EXDATE:{time}")
    assert found == ["2026-09-08", "2026-09-10"]


ALL_DAY = "X-MICROSOFT-CDO-ALLDAYEVENT:TRUE"


@pytest.mark.parametrize("zone", [f";TZID={LOS_ANGELES}", ""])
def test_midnights_that_outlook_marks_as_all_day_are_days(zone: str) -> None:
    """In a city of any zone."""

    def found(first: str, last: str, *more: str) -> list[tuple[str, str]]:
        lines = "UID:e\nSUMMARY:E", f"DTSTART{zone}:{first}", f"DTEND{zone}:{last}", *more
        parsed = read(calendar("\n".join(lines)), window=window(zone="America/New_York"))
        return [(one.start, one.end) for one in parsed.occurrences]

    night = "20260908T000000", "20260909T000000"
    assert found(*night, ALL_DAY) == [("2026-09-08", "2026-09-09")]
    assert found(*night)[0][0].startswith("2026-09-08T")
    assert found("20260908T164500", "20260908T190000", ALL_DAY)[0][0].startswith("2026-09-08T")
    series = "RRULE:FREQ=DAILY;COUNT=3", f"EXDATE{zone}:20260909T000000"
    assert [start for start, _end in found(*night, ALL_DAY, *series)] == [
        "2026-09-08",
        "2026-09-10",
    ]


@pytest.mark.parametrize(
    ("lines", "mending"),
    [
        (
            "DTSTART:20260902T180000Z\nDTEND;VALUE=DATE:20260902",
            "an end before its start is left out",
        ),
        (
            "DTSTART;VALUE=DATE:20260902\nDTEND:20260831T180000Z",
            "an end before its start is left out",
        ),
        (
            "DTSTART:20260902T180000Z\nDTEND:20260902T170000Z",
            "an end before its start is left out",
        ),
        (
            "DTSTART:20260902T180000Z\nRECURRENCE-ID;RANGE=THISANDPRIOR:20260902T180000Z",
            "RANGE=THISANDPRIOR is not followed",
        ),
    ],
)
def test_what_is_left_out_of_an_event_is_reported(lines: str, mending: str) -> None:
    parsed = read(calendar(f"UID:e\nSUMMARY:E\n{lines}"))
    assert (len(parsed.occurrences), parsed.mending) == (1, mending)


OTHER_ENDS = {
    "a midnight": (";VALUE=DATE:20260902", ":20260904T000000", "2026-09-04"),
    "a later time": (";VALUE=DATE:20260902", ":20260904T235900", "2026-09-05"),
    "a midnight of the city": (";VALUE=DATE:20260902", ":20260904T070000Z", "2026-09-04"),
    "a midnight in UTC": (";VALUE=DATE:20260902", ":20260904T000000Z", "2026-09-04"),
    "a time in UTC": (";VALUE=DATE:20260902", ":20260904T180000Z", "2026-09-05"),
    "a day, of a zone": (
        ";TZID=Europe/Berlin:20260902T180000",
        ";VALUE=DATE:20260904",
        "2026-09-03T22:00:00Z",
    ),
    "a day, in UTC": (":20260902T180000Z", ";VALUE=DATE:20260904", "2026-09-04T07:00:00Z"),
    "a day, floating": (":20260902T180000", ";VALUE=DATE:20260904", "2026-09-04T07:00:00Z"),
}


@pytest.mark.parametrize(("start", "end", "expected"), OTHER_ENDS.values(), ids=OTHER_ENDS)
@pytest.mark.parametrize("rule", ["", "\nRRULE:FREQ=YEARLY"])
def test_an_end_that_is_a_time_beside_a_day_or_a_day_beside_a_time_is_read_as_the_other(
    start: str, end: str, expected: str, rule: str
) -> None:
    """In a city on the Pacific."""
    body = calendar(f"UID:e\nSUMMARY:E\nDTSTART{start}\nDTEND{end}{rule}")
    parsed = read(body, window=window(zone=LOS_ANGELES))
    assert ([one.end for one in parsed.occurrences], parsed.mended) == ([expected], 0)


@pytest.mark.parametrize("end", ["20260910T235959", "20260910T000000Z"])
def test_an_end_that_is_marked_as_a_day_is_one_beside_a_day(end: str) -> None:
    head = "UID:e\nSUMMARY:E\nDTSTART;VALUE=DATE:20260908"
    parsed = read(calendar(f"{head}\nDTEND;VALUE=DATE:{end}"))
    assert [(one.start, one.end) for one in parsed.occurrences] == [("2026-09-08", "2026-09-10")]


NAMING = {
    "a wall that is written as UTC": ("", "20260909T110000Z", True),
    "an instant": ("", "20260909T180000Z", True),
    "an instant, beside a zone": (f";TZID={LOS_ANGELES}", "20260909T180000Z", True),
    "neither": ("", "20260909T120000Z", False),
    "a wall beside a zone": (f";TZID={LOS_ANGELES}", "20260909T110000Z", True),
    "a wall of another zone": (f";TZID={LOS_ANGELES}", ";TZID=Europe/Berlin:20260909T110000", True),
    "a midnight": (f";TZID={LOS_ANGELES}", ";TZID=America/Los_Angeles:20260909T000000", True),
    "a midnight in UTC": (f";TZID={LOS_ANGELES}", "20260909T070000Z", True),
    "a midnight beside a floating time": ("", "20260909T000000", True),
    "another hour": (f";TZID={LOS_ANGELES}", "20260909T120000Z", False),
}


@pytest.mark.parametrize(("params", "moment", "is_named"), NAMING.values(), ids=NAMING)
def test_an_exclusion_and_a_change_name_a_time_of_their_series_as_an_instant_a_wall_or_a_day(
    params: str, moment: str, *, is_named: bool
) -> None:
    """What names none, though the series has a time on its day, is reported."""
    moment = moment if ":" in moment else f":{moment}"
    series = event("e", "E").partition("DTSTART")[0] + f"DTSTART{params}:20260908T110000"
    series += "\nRRULE:FREQ=DAILY;COUNT=3"
    change = event("e", "Changed", "20260909T130000", f"RECURRENCE-ID{moment}")
    rest = [8, 10] if is_named else [8, 9, 10]
    for name, body, more in (
        ("EXDATE", calendar(f"{series}\nEXDATE{moment}"), []),
        ("RECURRENCE-ID", calendar(series, change), ["2026-09-09T20:00:00Z"]),
    ):
        parsed = read(body, window=window(zone=LOS_ANGELES))
        found = sorted(one.start for one in parsed.occurrences)
        assert found == sorted([*(f"2026-09-{day:02d}{EVENING}" for day in rest), *more])
        wrong = f"{name} {moment.removeprefix(':')} is not a time of its series"
        assert parsed.mending == ("" if is_named else wrong)


def test_an_exclusion_where_its_series_has_no_time_is_not_reported() -> None:
    """Programs leave those of days behind on which a series ended, or give all holidays to each."""
    rules = "RRULE:FREQ=WEEKLY;UNTIL=20260920T000000Z", "EXDATE:20260910T180000Z,20260922T180000Z"
    assert read(calendar(event("e", "E", "20260908T180000Z", *rules))).mended == 0


@pytest.mark.parametrize("excluded", ["20260909T000000", "20260909T120000Z", "20260909T170000Z"])
def test_of_several_times_a_day_none_is_meant_by_a_moment_of_another(excluded: str) -> None:
    start, rule = "DTSTART:20260908T100000", "RRULE:FREQ=DAILY;BYHOUR=10,12;COUNT=4"
    found = starts(start, rule, f"EXDATE:{excluded}")
    kept = [at for at in ("08T17", "08T19", "09T17", "09T19") if at not in excluded[6:]]
    assert found == [f"2026-09-{at}:00:00Z" for at in kept]


@pytest.mark.parametrize(("rule", "left"), [("DAILY", [8, 9, 10]), ("DAILY;INTERVAL=3", [11, 14])])
def test_a_midnight_in_utc_is_a_date_where_the_day_before_has_no_time(
    rule: str, left: list[int]
) -> None:
    """It is five in the afternoon of that day in California: the series may have been there."""
    excluded = "20260909T000000Z" if rule == "DAILY" else "20260908T000000Z"
    lines = f"DTSTART;TZID={LOS_ANGELES}:20260908T180000", f"RRULE:FREQ={rule};COUNT=3"
    body = event("e", "E").partition("DTSTART")[0] + "\n".join([*lines, f"EXDATE:{excluded}"])
    parsed = read(calendar(body), window=window(zone=LOS_ANGELES))
    assert [one.start[8:10] for one in parsed.occurrences] == [f"{day + 1:02d}" for day in left]
    assert parsed.mended == (rule == "DAILY")


def test_a_time_that_one_change_names_is_meant_by_no_other() -> None:
    series = event("e", "E", "20260908T110000", "RRULE:FREQ=DAILY;COUNT=3")
    exact = event("e", "Later", "20260909T120000", "RECURRENCE-ID:20260909T110000")
    other = event("e", "Other", "20260912T110000", "RECURRENCE-ID:20260909T000000")
    parsed = read(calendar(series, exact, other), window=window(zone=LOS_ANGELES))
    hours = {one.start[8:13] for one in parsed.occurrences}
    assert hours == {"08T18", "10T18", "09T19", "12T18"}


def test_an_exclusion_of_times_in_utc_is_an_instant_also_where_the_feed_names_a_zone() -> None:
    lines = "DTSTART:20260908T180000Z", "RRULE:FREQ=DAILY;COUNT=3", "EXDATE:20260909T110000Z"
    assert starts(*lines, named=LOS_ANGELES) == days(8, 10, EVENING)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=DAILY;UNTIL=20260910;BYHOUR=9;BYMINUTE=0", days(8, 10)),
        ("FREQ=DAILY;COUNT=4;BYHOUR=9,17;BYSECOND=30", days(8, 11)),
        ("BYMINUTE=1,2,3,4;FREQ=DAILY;COUNT=2", days(8, 9)),
    ],
)
def test_days_have_no_times(rule: str, expected: list[str]) -> None:
    assert starts("DTSTART;VALUE=DATE:20260908", f"RRULE:{rule}") == expected


MIXED = {
    "some weekdays with a number": (
        "FREQ=MONTHLY;BYDAY=1TU,FR;COUNT=6",
        ["09-01", "09-04", "09-11", "09-18", "09-25", "10-02"],
    ),
    "positions in the week of the start": (
        "FREQ=WEEKLY;BYDAY=MO,TU,WE;BYSETPOS=2,3;COUNT=4",
        ["09-01", "09-02", "09-08", "09-09"],
    ),
    "a week of the year without a day": ("FREQ=YEARLY;BYWEEKNO=36,37;COUNT=2", ["09-01", "09-08"]),
    "numbers alone": ("FREQ=MONTHLY;BYDAY=1TU,2FR;COUNT=3", ["09-01", "09-11", "10-06"]),
    "a calendar of its own name": ("RSCALE=GREGORIAN;FREQ=DAILY;COUNT=2", ["09-01", "09-02"]),
    "with what to do where a day is missing": (
        "FREQ=MONTHLY;RSCALE=gregorian;SKIP=FORWARD;COUNT=2",
        ["09-01", "10-01"],
    ),
}


@pytest.mark.parametrize(("rule", "expected"), MIXED.values(), ids=MIXED)
def test_rules_that_libraries_do_not_follow(rule: str, expected: list[str]) -> None:
    found = starts("DTSTART;VALUE=DATE:20260901", f"RRULE:{rule}")
    assert found == [f"2026-{day}" for day in expected]


def test_positions_of_a_rule_by_the_hour_are_those_of_its_hours() -> None:
    """A case of libical (icalrecur_test.txt)."""
    minutes = "BYMINUTE=0,10,20,30,40,50;BYSETPOS=-2,3"
    rule = f"RRULE:FREQ=HOURLY;BYHOUR=15,17,19;{minutes};INTERVAL=2;COUNT=5"
    found = starts("DTSTART;TZID=UTC:20260923T154000", rule)
    times = ["23T15:40", "23T17:20", "23T17:40", "23T19:20", "23T19:40"]
    assert found == [f"2026-09-{time}:00Z" for time in times]


@pytest.mark.parametrize(("skip", "mended"), [("omit", 0), ("backward", 1), ("Forward", 1)])
def test_what_to_do_where_a_day_is_missing_is_not_followed_and_the_report_says_so(
    skip: str, mended: int
) -> None:
    rule = f"RRULE:RSCALE=GREGORIAN;FREQ=MONTHLY;COUNT=2;SKIP={skip}"
    parsed = read(calendar(event("1", "E", "20260831", rule)))
    assert [one.start for one in parsed.occurrences] == ["2026-08-31", "2026-10-31"]
    assert parsed.mended == mended
    assert parsed.mending == (f"SKIP={skip.upper()} is not followed" if mended else "")


@pytest.mark.parametrize(
    ("rule", "found", "mending"),
    [
        ("", 1, ""),
        (" ;", 1, ""),
        ("FREQ=DAILY;INTERVAL=0;COUNT=2", 2, "INTERVAL=0"),
        ("FREQ=DAILY; interval = 00 ;COUNT=2", 2, "INTERVAL=00"),
        ("FREQ=WEEKLY;WKST=1;INTERVAL=2;COUNT=3", 3, "WKST=1"),
        ("FREQ=MONTHLY;COUNT=-1", 3, ""),
        ("FREQ=MONTHLY;BYDAY=;INTERVAL=;WKST=", 3, ""),
        ("FREQ=MONTHLY;UNTIL= ;BYDAY=", 3, "UNTIL="),
        ("FREQ=MONTHLY;count=", 3, "COUNT="),
        ("FREQ=WEEKLY;BYDAY=TUESDAY,Thu;UNTIL=20260910", 4, ""),
        ("FREQ=MONTHLY;BYDAY=1TUE;WKST=SUN;COUNT=2", 2, ""),
        ("FREQ=WEEKLY;UNTIL=20260910;BYDAY=TUESDAY,THURSDAY and more", 4, ""),
        ("DTSTART=20260901T100000Z;FREQ=DAILY;COUNT=2", 2, "DTSTART=20260901T100000Z"),
        ("TZID=UTC;FREQ=DAILY;COUNT=2;PRIORITY=1", 2, "TZID=UTC"),
        ("RRULE:AnythingRandom;FREQ=DAILY;COUNT=2", 2, "ANYTHINGRANDOM"),
        ("FREQ=DAILY;WKST=MO;WKST=MO;COUNT=2", 2, ""),
        ("FREQ=DAILY;COUNT=3;COUNT=2", 2, "COUNT=3"),
        ("FREQ=MONTHLY;UNTIL=Never", 3, "UNTIL=NEVER"),
        ("FREQ=MONTHLY;UNTIL=Invalid date;INTERVAL=1", 3, "UNTIL=INVALID DATE is not followed"),
        ("FREQ=MONTHLY;UNTIL=NaNNaNNaNTNaNNaN00Z;INTERVAL=1", 3, "UNTIL=NANNANNANTNANNAN00Z"),
        ("FREQ=MONTHLY;UNTIL=00000000T000000Z;INTERVAL=1", 3, "UNTIL=00000000T000000Z"),
        ("FREQ=MONTHLY;UNTIL=-00011130T000000Z;INTERVAL=1", 3, "UNTIL=-00011130T000000Z"),
        (
            "FREQ=MONTHLY;UNTIL=Thu Oct 1 2026;COUNT=9",
            1,
            "'FREQ=MONTHLY;UNTIL=Thu Oct 1 2026;COUNT=9' is not a rule",
        ),
        (r"FREQ=WEEKLY\;BYDAY=TU\,TH\;UNTIL=20260910", 4, ""),
        ('"FREQ=WEEKLY;BYDAY=TU,TH;UNTIL=20260910"', 4, ""),
        ("FREQ=WEEKLY,BYDAY=TU,TH,COUNT=4", 4, ""),
        ("FREQ=WEEKLY BYDAY=TU,TH COUNT=4", 4, ""),
        ("FREQ=WEEKLY;BYDAY=TU,,TH,;COUNT=4", 4, ""),
        ("FREQ=DAILY;BYEASTER=0;COUNT=2", 1, "'FREQ=DAILY;BYEASTER=0;COUNT=2' is not a rule"),
        ("FREQ=DAILY;BYMONTH=13", 1, "BYMONTH=13 is no part of a rule"),
        ("FREQ=MONTHLY;BYDAY=1TU,8TU", 1, "a rule that cannot be followed: no month has 8TU"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,32", 1, "BYMONTHDAY=1,32 is no part of a rule"),
        ("FREQ=YEARLY;BYYEARDAY=0", 1, "BYYEARDAY=0 is no part of a rule"),
    ],
)
def test_what_no_rule_can_have_is_left_out_or_leaves_the_start_and_is_reported(
    rule: str, found: int, mending: str
) -> None:
    parsed = read(calendar(event("1", "E", "20260901", f"RRULE:{rule}")))
    if mending and " " not in mending:
        mending += " is not followed"
    assert (len(parsed.occurrences), parsed.mending, parsed.skipped) == (found, mending, 0)


def test_white_space_and_escapes_in_a_rule_cost_no_time() -> None:
    many = " " * 1_000_000
    rule = {"FREQ": "DAILY", "COUNT": "2"}
    assert tidy(f"FREQ{many}=DAILY{many};{many}COUNT=2{many}X") == (rule, [])
    assert tidy("FREQ=DAILY;COUNT=2" + "\\" * 1_000_000) == (rule, [])


# Each end, and its standard form.
WRITTEN_ENDS = {
    "a date in UTC": ("20260903Z", "20260903"),
    "dashes and colons": ("2026-09-03T18:00:00Z", "20260903T180000Z"),
    "no seconds": ("20260903T1800Z", "20260903T180000Z"),
    "an offset": ("20260903T140000-0400", "20260903T180000Z"),
    "an offset with a colon": ("2026-09-03T20:00:00+02:00", "20260903T180000Z"),
    "the end of a day": ("20260903T240000", "20260904T000000"),
    "a leap second": ("20260903T235960Z", "20260903T235959Z"),
    "a day that its month does not have": ("20260931T235959Z", "20260930T235959Z"),
    "one that no February has": ("2027-02-30", "20270228"),
    "a leap day that is none": ("20270229T180000", "20270228T180000"),
}


@pytest.mark.parametrize(("said", "meant"), WRITTEN_ENDS.values(), ids=WRITTEN_ENDS)
def test_an_end_is_read_in_each_form_that_dates_have(said: str, meant: str) -> None:
    """Before other parts, and as the last one."""
    for rule in (f"FREQ=DAILY;UNTIL={said};INTERVAL=1", f"FREQ=DAILY;UNTIL={said}"):
        parts, left_out = tidy(rule)
        assert (parts["UNTIL"], left_out) == (meant, [])


@pytest.mark.parametrize("said", ["20260900", "20261301", "20260903T250000Z", "2026", "20260903 x"])
def test_an_end_that_is_no_date_makes_a_rule_none(said: str) -> None:
    with pytest.raises(ValueError, match="not a rule"):
        tidy(f"FREQ=DAILY;UNTIL={said};INTERVAL=1")


def test_the_leap_second_of_a_rule_is_the_one_before_it() -> None:
    assert tidy("FREQ=DAILY;BYSECOND=0,60")[0]["BYSECOND"] == "0,59"


@pytest.mark.parametrize("day", ["MOTUWE", "SUMMER", "MONTUE", "FRITZ"])
def test_letters_that_begin_like_a_weekday_are_none(day: str) -> None:
    with pytest.raises(ValueError, match="not a rule"):
        tidy(f"FREQ=WEEKLY;BYDAY={day};COUNT=3")


def test_weekdays_may_be_written_out() -> None:
    said = "MON,TUES,WEDNESDAY,THUR,1FRIDAY,-1SAT,SUNDAY"
    rule, _notes = tidy(f"FREQ=MONTHLY;BYDAY={said};COUNT=3")
    assert rule["BYDAY"] == "MO,TU,WE,TH,1FR,-1SA,SU"


@pytest.mark.parametrize("rule", ["RSCALE=CHINESE;FREQ=YEARLY", "FREQ=DAILY;SKIP=SOMETIMES"])
def test_a_rule_of_another_calendar_is_none(rule: str) -> None:
    with pytest.raises(ValueError, match="not a rule"):
        tidy(f"{rule};COUNT=2")
