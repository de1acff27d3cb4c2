"""What takes place in a window, by what a feed says of it."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from itertools import count
from time import process_time
from weakref import ref

import pytest

from jobs.calendars import budget, series
from jobs.calendars import parser as expand
from jobs.calendars.budget import SERIES_EVENTS
from jobs.calendars.rules import fits
from tests.calendars.support import FEEDS, calendar, event, read, times, window

WEEKLY = event(
    "w", "Weekly", "20260902T180000Z", "DTEND:20260902T190000Z", "RRULE:FREQ=WEEKLY;COUNT=4"
)


def starts(body: bytes, **more: object) -> list[str]:
    return [start for _title, start, _end in times(read(body, **more))]


def days(*numbers: int, at: str = "T18:00:00Z") -> list[str]:
    return [f"2026-09-{number:02d}{at}" for number in numbers]


RECURRENCES = {
    "a rule": ([WEEKLY], days(2, 9, 16, 23)),
    "an exclusion": ([f"{WEEKLY}\nEXDATE:20260909T180000Z"], days(2, 16, 23)),
    "exclusions in a list": ([f"{WEEKLY}\nEXDATE:20260909T180000Z,20260916T180000Z"], days(2, 23)),
    "an unreadable exclusion": ([f"{WEEKLY}\nEXDATE:never"], days(2, 9, 16, 23)),
    "an addition": ([f"{WEEKLY}\nRDATE:20260904T180000Z"], days(2, 4, 9, 16, 23)),
    "additions alone": (
        [event("r", "R", "20260902T180000Z", "RDATE:20260905T180000Z")],
        days(2, 5),
    ),
    "an override": (
        [WEEKLY, event("w", "Moved", "20260910T180000Z", "RECURRENCE-ID:20260909T180000Z")],
        days(2, 10, 16, 23),
    ),
    "an override before its series": (
        [event("w", "Moved", "20260910T180000Z", "RECURRENCE-ID:20260909T180000Z"), WEEKLY],
        days(2, 10, 16, 23),
    ),
    "this and all that follow": (
        [
            WEEKLY,
            event(
                "w",
                "Later",
                "20260909T200000Z",
                "RECURRENCE-ID;RANGE=THISANDFUTURE:20260909T180000Z",
            ),
        ],
        [*days(2), *days(9, 16, 23, at="T20:00:00Z")],
    ),
    "an override whose series is elsewhere": (
        [event("w", "Alone", "20260910T180000Z", "RECURRENCE-ID:20260909T180000Z")],
        days(10),
    ),
    "the higher sequence": (
        [
            event("s", "New", "20260903T180000Z", "SEQUENCE:2"),
            event("s", "Old", "20260903T180000Z", "SEQUENCE:1"),
        ],
        days(3),
    ),
    "one UID for what is no series": (
        [event("s", "One", "20260903T180000Z"), event("s", "Two", "20260904T180000Z")],
        days(3, 4),
    ),
    "a rule with stray characters": (
        [WEEKLY.replace("FREQ=WEEKLY;COUNT=4", " freq=weekly; count=2; ")],
        days(2, 9),
    ),
    "an end of the rule as a date": (
        [WEEKLY.replace("COUNT=4", "UNTIL=20260916")],
        days(2, 9, 16),
    ),
}


@pytest.mark.parametrize(("blocks", "expected"), RECURRENCES.values(), ids=RECURRENCES)
def test_recurrences(blocks: list[str], expected: list[str]) -> None:
    parsed = read(calendar(*blocks))
    assert sorted(one.start for one in parsed.occurrences) == expected
    assert parsed.skipped == 0


def test_the_highest_sequence_is_kept_whatever_the_order() -> None:
    blocks = RECURRENCES["the higher sequence"][0]
    for order in (blocks, blocks[::-1]):
        assert [title for title, _start, _end in times(read(calendar(*order)))] == ["New"]


def test_an_override_says_what_it_says_and_knows_its_place() -> None:
    parsed = read(calendar(*RECURRENCES["an override"][0]))
    told = {one.recurrence: parsed.texts[one.text].title for one in parsed.occurrences}
    assert told["2026-09-09T18:00:00Z"] == "Moved"
    assert told["2026-09-16T18:00:00Z"] == "Weekly"


def test_a_series_keeps_its_local_hour_when_the_clocks_change() -> None:
    body = calendar(
        "UID:1\nSUMMARY:S\nDTSTART;TZID=America/New_York:20261029T180000\nRRULE:FREQ=WEEKLY;COUNT=2"
    )
    assert starts(body) == ["2026-10-29T22:00:00Z", "2026-11-05T23:00:00Z"]


LENGTHS = {
    "an end": ("20260901T180000Z", ["DTEND:20260901T193000Z"], "2026-09-01T19:30:00Z"),
    "a duration": ("20260901T180000Z", ["DURATION:PT1H30M"], "2026-09-01T19:30:00Z"),
    "a duration in days": ("20260901T180000Z", ["DURATION:P1W1D"], "2026-09-09T18:00:00Z"),
    "nothing": ("20260901T180000Z", [], "2026-09-01T18:00:00Z"),
    "an end before its start": (
        "20260901T180000Z",
        ["DTEND:20260901T170000Z"],
        "2026-09-01T18:00:00Z",
    ),
    "an unreadable end": ("20260901T180000Z", ["DTEND:late"], "2026-09-01T18:00:00Z"),
    "an end of another kind": (
        "20260901T180000Z",
        ["DTEND;VALUE=DATE:20260902"],
        "2026-09-02T04:00:00Z",
    ),
    "a negative duration": ("20260901T180000Z", ["DURATION:-PT1H"], "2026-09-01T18:00:00Z"),
    "days": ("20260901", ["DTEND;VALUE=DATE:20260904"], "2026-09-04"),
    "a day": ("20260901", [], "2026-09-02"),
    "a day that ends where it begins": ("20260901", ["DTEND:20260901"], "2026-09-02"),
    "days by duration": ("20260901", ["DURATION:P3D"], "2026-09-04"),
}


@pytest.mark.parametrize(("start", "lines", "end"), LENGTHS.values(), ids=LENGTHS)
def test_how_long_an_event_is(start: str, lines: list[str], end: str) -> None:
    assert [one.end for one in read(calendar(event("1", "E", start, *lines))).occurrences] == [end]


EDGES = {
    "begins with the window": ("20260821T040000Z", "20260821T050000Z", True),
    "ends as the window begins": ("20260821T030000Z", "20260821T040000Z", False),
    "runs into the window": ("20260820T230000Z", "20260821T050000Z", True),
    "begins as the window ends": ("20260824T040000Z", "20260824T050000Z", False),
    "begins just before the end": ("20260824T035900Z", "20260824T050000Z", True),
    "surrounds the window": ("20260101T000000Z", "20270101T000000Z", True),
    "the day before": ("20260820", "20260821", False),
    "the first day": ("20260821", "20260822", True),
    "the last day": ("20260823", "20260824", True),
    "the day after": ("20260824", "20260825", False),
}


@pytest.mark.parametrize(("start", "end", "inside"), EDGES.values(), ids=EDGES)
def test_the_edges_of_a_window_are_those_of_days_in_the_citys_zone(
    start: str, end: str, *, inside: bool
) -> None:
    body = calendar(event("1", "E", start, f"DTEND:{end}"))
    assert bool(read(body, window=window(days=3)).occurrences) is inside


SIXTY = ",".join(map(str, range(60)))
BOMBS = {
    "by the second since 1970": ("19700101T000000Z", "FREQ=SECONDLY"),
    "by the minute since 1970": ("19700101T000000Z", "FREQ=MINUTELY"),
    "by the minute in the window": ("20260901T000000Z", "FREQ=MINUTELY"),
    "by the second, counted": ("19700101T000000Z", "FREQ=SECONDLY;COUNT=999999999"),
    "every second of a day": (
        "20260901T000000Z",
        f"FREQ=DAILY;BYSECOND={SIXTY};BYMINUTE={SIXTY}",
    ),
}


@pytest.mark.parametrize(("start", "rule"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_cut_or_left_out_with_the_reason_and_the_rest_stays(
    start: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "SERIES_SECONDS", 0.3)
    parsed = read(calendar(event("b", "Bomb", start, f"RRULE:{rule}"), event("g", "Good")))
    assert [title for title, _start, _end in times(parsed) if title != "Bomb"] == ["Good"]
    assert len(parsed.occurrences) <= SERIES_EVENTS + 1
    assert (parsed.skipped, parsed.mended, parsed.error) in {(1, 0, ""), (0, 1, "")}
    assert parsed.problem or parsed.mending


UNITS = [("HOUR", 24), ("MINUTE", 60), ("SECOND", 60)]


@pytest.mark.parametrize("freq", ["DAILY", "HOURLY", "WEEKLY", "YEARLY", "MINUTELY"])
def test_a_rule_of_many_times_a_step_is_cut_before_it_takes_memory(freq: str) -> None:
    times_a_step = [f"BY{unit}={','.join(map(str, range(end)))}" for unit, end in UNITS]
    bomb = event("b", "Bomb", "20260901T180000Z", f"RRULE:FREQ={freq};{';'.join(times_a_step)}")
    parsed = read(calendar(bomb, event("g", "Good")))
    titles = [title for title, _start, _end in times(parsed)]
    assert (titles.count("Good"), parsed.skipped, parsed.mended) == (1, 0, 1)
    assert 0 < titles.count("Bomb") <= SERIES_EVENTS
    assert parsed.mending == f"FREQ={freq}: the times after the first 5,000 are left out"


SLOW_ZONE = (
    "BEGIN:VTIMEZONE\nTZID:Z{number}\n"
    + "BEGIN:STANDARD\nDTSTART:19000101T000000\nRRULE:FREQ=YEARLY\n"
    "TZOFFSETFROM:+0{number}00\nTZOFFSETTO:+0100\nEND:STANDARD\n" * 5 + "END:VTIMEZONE\n"
)
SLOW = {
    "bombs": ("FREQ=SECONDLY;COUNT=999999999", ""),
    "rules that never come": ("FREQ=MONTHLY;BYDAY=5MO;BYMONTHDAY=1", ""),
    "rules from long ago": ("FREQ=DAILY;COUNT=9999", ""),
    "zones": ("FREQ=DAILY", "".join(SLOW_ZONE.format(number=number) for number in range(3))),
}


@pytest.mark.parametrize(("rule", "head"), SLOW.values(), ids=SLOW)
def test_what_takes_long_uses_up_the_time_of_its_feed_and_the_rest_stays(
    rule: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is refused in the end or not: the reader of the feed has a deadline."""
    monkeypatch.setattr(budget, "SERIES_SECONDS", 0.1)
    monkeypatch.setattr(budget, "FEED_SECONDS", 0.1)
    given: list[float] = []
    whole = budget.processor_time

    def noted(seconds: float, what: str) -> AbstractContextManager[None]:
        given.append(seconds)
        return whole(seconds, what)

    monkeypatch.setattr(budget, "processor_time", noted)
    slow = [event(f"s{n}", "Slow", "19700101T180000Z", f"RRULE:{rule}") for n in range(8)]
    parsed = read(calendar(*slow, event("g", "Good"), head=head))
    assert "Good" in [one.title for one in parsed.texts]
    assert (given[0], given[-1]) == (0.1, budget.LAST_SECONDS)


def test_of_a_feed_beyond_a_bound_the_first_events_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expand, "FEED_EVENTS", 3)
    parsed = read(calendar(*(event(f"{n}", f"E{n}") for n in range(5))))
    assert [title for title, _start, _end in times(parsed)] == ["E0", "E1", "E2"]
    assert (parsed.error, parsed.skipped, parsed.is_cut) == ("", 2, True)
    assert parsed.problem == "the feed has more than 3 events"


NOTHING_MORE = {
    "nothing": [],
    "a series that is over": [event("n", "N", "20260101T180000Z", "RRULE:FREQ=YEARLY")],
    "an event that is private": [event("n", "N", "20260901T180000Z", "CLASS:PRIVATE")],
    "a series whose only time is excluded": [
        event("n", "N", "20260901T180000Z", "RRULE:FREQ=DAILY;COUNT=1", "EXDATE:20260901T180000Z")
    ],
}


@pytest.mark.parametrize("more", NOTHING_MORE.values(), ids=NOTHING_MORE)
def test_a_feed_that_is_full_to_the_last_event_has_all_of_them(
    monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setattr(expand, "FEED_EVENTS", 3)
    parsed = read(calendar(*(event(f"{n}", f"E{n}") for n in range(3)), *more))
    assert (len(parsed.occurrences), parsed.skipped, parsed.problem) == (3, 0, "")
    assert not parsed.is_cut


def test_long_series_that_fill_a_feed_are_not_said_to_be_more_than_it_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expand, "FEED_EVENTS", 40)
    monkeypatch.setattr(expand, "LONG_SERIES", 10)
    daily = [event(f"s{n}", "S", "20260901T180000Z", "RRULE:FREQ=DAILY;COUNT=20") for n in (1, 2)]
    parsed = read(calendar(*daily))
    assert (len(parsed.occurrences), parsed.skipped) == (20, 1)
    assert parsed.problem == "a series of more than 10 times would use up the last tenth of 40"


def test_each_event_of_a_full_feed_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be read, one that is private, and one beyond the bound, by one UID."""
    monkeypatch.setattr(expand, "FEED_EVENTS", 1)
    same = [
        event("n", "Broken", "tomorrow"),
        event("n", "Private", "20260901T190000Z", "CLASS:PRIVATE"),
        event("n", "Good", "20260901T200000Z"),
    ]
    parsed = read(calendar(event("f", "First"), *same))
    assert (len(parsed.occurrences), parsed.skipped, parsed.private) == (1, 2, 1)
    after = read(calendar(event("f", "First"), *same, event("l", "Last", "tomorrow")))
    assert (after.skipped, after.private) == (3, 1)


def test_of_a_feed_beyond_a_bound_of_text_the_first_events_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expand, "FEED_TEXT", 2 << 20)
    long = f"DESCRIPTION:{'x' * 32_000}"
    many = [event(f"{n}", f"S{n}", "20260822T180000Z", "RRULE:FREQ=DAILY", long) for n in range(2)]
    parsed = read(calendar(many[0], event("g", "Good"), many[1]))
    assert {title for title, _start, _end in times(parsed)} == {"Good"}
    parsed = read(calendar(many[0].replace("DAILY", "WEEKLY"), event("g", "Good"), many[1]))
    assert {title for title, _start, _end in times(parsed)} == {"Good", "S0"}
    assert (parsed.error, parsed.skipped, parsed.is_cut) == ("", 1, True)
    assert parsed.problem == "the feed has more than 2 Mi characters of text"


def test_long_series_leave_room_for_the_other_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "FEED_EVENTS", 100)
    monkeypatch.setattr(expand, "LONG_SERIES", 10)
    daily = [event(f"s{n}", "S", "20260901T180000Z", "RRULE:FREQ=DAILY") for n in range(10)]
    parsed = read(calendar(*daily, event("g", "Good")))
    assert "Good" in [one.title for one in parsed.texts]
    assert (parsed.error, parsed.skipped > 0) == ("", True)


def test_no_exception_of_a_long_rule_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SERIES_EVENTS", 3)
    none = event("b", "None", "20260901T180000Z", "RRULE:FREQ=DAILY;COUNT=3", "EXRULE:FREQ=HOURLY")
    assert read(calendar(none)).occurrences == ()


@pytest.mark.parametrize("freq", ["SECONDLY", "DAILY", "YEARLY"])
def test_a_rule_that_never_comes_leaves_the_start(freq: str) -> None:
    rule = f"RRULE:FREQ={freq};BYMONTH=2;BYMONTHDAY=30"
    parsed = read(calendar(event("n", "Never", "20260901T180000Z", rule)))
    assert [one.start for one in parsed.occurrences] == ["2026-09-01T18:00:00Z"]
    assert parsed.problem == ""


DENSE = {
    "by the second since 1990": ("19900101T000000Z", "FREQ=SECONDLY", "04:00:00", "05:23:19"),
    "by the second, on some days": (
        "19900101T000000Z",
        "FREQ=SECONDLY;BYDAY=TH,FR",
        "04:00:00",
        "05:23:19",
    ),
    "by the minute since 1990": ("19900101T000000Z", "FREQ=MINUTELY", "04:00:00", "15:19:00"),
    "from the day before": ("20260820T120000Z", "FREQ=MINUTELY", "04:00:00", "15:19:00"),
    "counted": ("20260820T120000Z", "FREQ=MINUTELY;COUNT=9999", "04:00:00", "15:19:00"),
    "each lasts into the next": (
        "20260820T120000Z",
        "FREQ=MINUTELY;INTERVAL=2",
        "03:58:00",
        "02:36:00",
    ),
}


@pytest.mark.parametrize(("start", "rule", "first", "last"), DENSE.values(), ids=DENSE)
def test_of_a_dense_rule_the_first_times_in_the_window_are_kept(
    start: str, rule: str, first: str, last: str
) -> None:
    """The window begins at 04:00 in UTC."""
    end = f"DURATION:PT{3 if 'INTERVAL' in rule else 0}M"
    parsed = read(calendar(event("d", "Dense", start, end, f"RRULE:{rule}")))
    found = sorted(one.start for one in parsed.occurrences)
    assert (len(found), found[0][11:19], found[-1][11:19]) == (SERIES_EVENTS, first, last)
    assert (parsed.skipped, parsed.mended) == (0, 1)


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("more", [0, 1])
def test_a_rule_has_too_many_times_where_its_window_has_one_more(
    monkeypatch: pytest.MonkeyPatch, zone: str, more: int
) -> None:
    """Those of the days before and after it do not count."""
    monkeypatch.setattr(series, "SERIES_EVENTS", 3 * 24 - more)
    rule = event("h", "H", "19900101T000000Z", "RRULE:FREQ=HOURLY")
    parsed = read(calendar(rule), window=window(days=3, zone=zone))
    assert (len(parsed.occurrences), parsed.mended) == (3 * 24 - more, more)


def test_an_old_rule_by_the_minute_costs_what_its_window_has() -> None:
    rule = "RRULE:FREQ=MINUTELY;BYHOUR=9;BYMINUTE=0,30"
    found = starts(calendar(event("m", "M", "19700101T090000Z", rule)), window=window(days=2))
    assert found == [f"2026-08-{day}T{time}:00Z" for day in (21, 22) for time in ("09:00", "09:30")]


def test_a_short_rule_by_the_second_is_no_bomb() -> None:
    body = calendar(event("s", "S", "20260901T180000Z", "RRULE:FREQ=SECONDLY;COUNT=3"))
    assert starts(body) == [f"2026-09-01T18:00:0{second}Z" for second in range(3)]


@pytest.mark.parametrize("added", ["RRULE:FREQ=DAILY", "RDATE:20260901T180000Z,20260830T180000Z"])
def test_of_a_series_beyond_the_bound_the_first_times_are_kept(
    monkeypatch: pytest.MonkeyPatch, added: str
) -> None:
    monkeypatch.setattr(series, "SERIES_EVENTS", 3)
    parsed = read(calendar(f"{WEEKLY}\n{added}", event("g", "Good")))
    found = [start for title, start, _end in times(parsed) if title == "Weekly"]
    assert found == sorted(found)[:3]
    assert (len(found), len(times(parsed)), parsed.skipped, parsed.mended) == (3, 4, 0, 1)
    assert parsed.is_cut
    assert parsed.mending.endswith("the times after the first 3 are left out")


@pytest.mark.parametrize("start", ["", "tomorrow", "20260931T180000Z", "99999999"])
def test_an_event_with_a_broken_start_is_left_out_and_counted(start: str) -> None:
    parsed = read(calendar(event("b", "Broken", start), event("g", "Good")))
    assert [title for title, _start, _end in times(parsed)] == ["Good"]
    assert (parsed.seen, parsed.skipped) == (2, 1)


UNREADABLE = {
    "tomorrow": "DTSTART: 'tomorrow' is not a date or time",
    "20260901T180000Z\nDTEND:20260901T9900": "DTEND: '20260901T9900' is not a date or time",
    "20260901T180000Z\nDURATION:P99999999D": "DURATION: 'P99999999D' is too long",
    "20260901T180000Z\nDURATION:5 hours": "DURATION: '5 hours' is not a duration",
    "20260901T180000Z\nRDATE:20260902T180000Z/P": "RDATE: 'P' is not a duration",
    "20260901T180000Z\nEXDATE:20260931": "EXDATE: '20260931' is not a date or time",
}


@pytest.mark.parametrize(("start", "reason"), UNREADABLE.items(), ids=UNREADABLE.values())
def test_what_cannot_be_read_is_named_with_its_property(start: str, reason: str) -> None:
    parsed = read(calendar(event("1", "E", start)))
    assert (parsed.problem or parsed.mending) == reason


def test_an_event_without_a_uid_gets_one_that_stays() -> None:
    body = calendar(
        "SUMMARY:One\nDTSTART:20260901T180000Z", "SUMMARY:Two\nDTSTART:20260901T180000Z"
    )
    uids = sorted(text.uid for text in read(body).texts)
    assert len(set(uids)) == 2
    assert uids == sorted(text.uid for text in read(body).texts)


def test_texts_lose_their_escapes_and_addresses_that_run_code() -> None:
    body = calendar(
        event(
            "1",
            r"Rock\, Paper\; Scissors",
            "20260901T180000Z",
            r"DESCRIPTION:One\nTwo \\ three",
            "URL:javascript:alert(1)",
            r"CATEGORIES:Music,Food\, Drink",
        )
    )
    (text,) = read(body).texts
    assert text.title == "Rock, Paper; Scissors"
    assert text.description == "One\nTwo \\ three"
    assert text.url == ""
    assert text.categories == ("Music", "Food, Drink")


SAME = {
    "stamps": (b"DTSTAMP:20260101T000000Z", b"DTSTAMP:20260102T000000Z"),
    "a sequence": (b"SEQUENCE:1", b"SEQUENCE:2"),
    "when it was modified": (b"LAST-MODIFIED:20260101T000000Z", b"LAST-MODIFIED:20260102T000000Z"),
    "the calendar's name": (b"PRODID:test", b"PRODID:test 2"),
}
STAMPED = calendar(
    event(
        "1",
        "One",
        "20260901",
        "DTSTAMP:20260101T000000Z",
        "SEQUENCE:1",
        "LAST-MODIFIED:20260101T000000Z",
    ),
    event("2", "Two", "20260902"),
)


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME)
def test_a_change_that_does_not_matter_expands_nothing(before: bytes, after: bytes) -> None:
    known = read(STAMPED).meaning
    changed = STAMPED.replace(before, after)
    assert changed != STAMPED
    assert read(changed, known=known).same


def test_another_order_of_events_and_lines_does_not_matter() -> None:
    turned = calendar(event("2", "Two", "20260902"), "DTSTART:20260901\nUID:1\nSUMMARY:One")
    assert read(turned, known=read(STAMPED).meaning).same


MATTERS = {
    "a title": (b"SUMMARY:One", b"SUMMARY:Won"),
    "a start": (b"DTSTART:20260901", b"DTSTART:20260911"),
    "a zone of the calendar": (b"PRODID:test", b"X-WR-TIMEZONE:Asia/Tokyo"),
    "a removed event": (b"UID:2", b"UID:3"),
}


@pytest.mark.parametrize(("before", "after"), MATTERS.values(), ids=MATTERS)
def test_a_change_that_matters_is_seen(before: bytes, after: bytes) -> None:
    assert not read(STAMPED.replace(before, after), known=read(STAMPED).meaning).same


def test_a_sequence_matters_where_it_chooses_between_two() -> None:
    body = calendar(*RECURRENCES["the higher sequence"][0])
    turned = body.replace(b"SEQUENCE:1", b"SEQUENCE:3")
    assert not read(turned, known=read(body).meaning).same


def test_the_zones_that_feeds_bring_are_used() -> None:
    parsed = read((FEEDS / "own_zones.ics").read_bytes(), window=window(zone="Europe/Berlin"))
    assert times(parsed) == [
        ("Windows name", "2026-09-01T23:00:00Z", "2026-09-02T00:00:00Z"),
        ("Zone of the feed", "2026-09-01T16:00:00Z", "2026-09-01T17:00:00Z"),
        ("Zone that nobody knows", "2026-09-01T17:00:00Z", "2026-09-01T18:00:00Z"),
    ]


@pytest.mark.parametrize("rule", ["SECONDLY", "DAILY", "WEEKLY;BYDAY=SU", "YEARLY;BYSECOND=0,1"])
def test_a_zone_whose_clocks_change_all_the_time_costs_little(rule: str) -> None:
    body = calendar(
        "UID:1\nSUMMARY:E\nDTSTART;TZID=Mine:20260901T180000\nDTEND;TZID=Mine:99991231T000000",
        head="BEGIN:VTIMEZONE\nTZID:Mine\n"
        + "".join(
            f"BEGIN:STANDARD\nDTSTART:00010101T00000{number}\nRRULE:FREQ={rule}\n"
            "TZOFFSETFROM:+0000\nTZOFFSETTO:-0400\nEND:STANDARD\n"
            for number in range(2)
        )
        + "END:VTIMEZONE\n",
    )
    assert starts(body) == ["2026-09-01T22:00:00Z"]


def test_a_zone_that_is_a_bomb_costs_its_events_no_more_than_their_zone() -> None:
    body = calendar(
        "UID:1\nSUMMARY:E\nDTSTART;TZID=Mine:20260901T180000",
        head="BEGIN:VTIMEZONE\nTZID:Mine\nBEGIN:STANDARD\nDTSTART:nonsense\nRRULE:FREQ=SECONDLY\n"
        "TZOFFSETFROM:+0000\nTZOFFSETTO:+0000\nEND:STANDARD\nEND:VTIMEZONE\n",
    )
    assert starts(body) == ["2026-09-01T22:00:00Z"]


def burn(*_: object) -> None:
    until = process_time() + 0.2
    while process_time() < until:
        pass


def burn_in_a_destructor() -> None:
    class Burning:
        def __del__(self) -> None:
            burn()

    Burning()


def burn_in_a_generator_that_is_let_go() -> None:
    def generate() -> Iterator[int]:
        try:
            yield 1
        finally:
            burn()

    next(generate())


def burn_in_a_callback_of_a_weak_reference() -> None:
    one: ref[set[object]] = ref(set(), burn)
    assert one() is None


def burn_in_the_garbage_collector() -> None:
    def callback(phase: str, _about: object) -> None:
        if phase == "start":
            burn()

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


@pytest.mark.parametrize(
    "burn_where_errors_are_dropped",
    [
        burn_in_a_destructor,
        burn_in_a_generator_that_is_let_go,
        burn_in_a_callback_of_a_weak_reference,
        burn_in_the_garbage_collector,
    ],
)
def test_a_series_whose_time_is_over_where_errors_are_dropped_ends_after_it(
    burn_where_errors_are_dropped: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a report of it; errors of others are reported as ever."""
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: reported.append(one.exc_type))

    class Failing:
        def __del__(self) -> None:
            raise OSError

    def work_out() -> None:
        Failing()
        burn_where_errors_are_dropped()
        sum(1 for _ in count())

    with pytest.raises(budget.TooMuch), budget.processor_time(0.05, "it"):
        work_out()
    Failing()
    assert reported == [OSError, OSError]


def test_no_code_that_drops_its_errors_drops_the_end_of_its_time() -> None:
    def work_out() -> None:
        for _ in count():
            with suppress(Exception):
                sum(range(10_000))

    with pytest.raises(budget.TooMuch), budget.processor_time(0.05, "it"):
        work_out()


def test_a_rule_without_times_ends_with_the_time_that_its_series_is_given() -> None:
    """Where it is asked in which zone the rule repeats, too."""
    endless = {"FREQ": "SECONDLY", "BYMONTH": "2", "BYMONTHDAY": "30"}
    with pytest.raises(budget.TooMuch), budget.processor_time(0.05, "it"):
        fits([endless], datetime(2026, 12, 1, 10, tzinfo=UTC).replace(tzinfo=None))
