"""What is one event in a city's calendar, and which feed's it is."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from jobs.calendars import merge as merging
from jobs.calendars.events import plain_words
from jobs.calendars.merge import CityEvent, FeedSource, merged
from jobs.calendars.output import calendar_file, events_file
from jobs.calendars.records import Occurrence, Parsed, Text
from tests.calendars.support import window

NOON = "2026-09-01T16:00:00Z"
SITES = "https://a.org", "https://b.org"


def source(
    name: str, *told: tuple[str, str, str] | tuple[str, str, str, str], primary: bool = False
) -> FeedSource:
    texts = tuple(Text(uid=one[0], title=one[1]) for one in told)
    occurrences = tuple(
        Occurrence(number, one[2], one[2], one[3] if len(one) > 3 else "")
        for number, one in enumerate(told)
    )
    parsed = Parsed(texts=texts, occurrences=occurrences)
    return FeedSource(name=name, url=name, parsed=parsed, primary=primary)


def telling(name: str, *texts: Text, start: str = NOON, primary: bool = False) -> FeedSource:
    """A source whose events say more than a title."""
    occurrences = tuple(Occurrence(number, start, start) for number in range(len(texts)))
    parsed = Parsed(texts=texts, occurrences=occurrences)
    return FeedSource(name=name, url=name, parsed=parsed, primary=primary)


def at(uid: str, location: str = "", url: str = "", title: str = "Storytime", **more: Any) -> Text:
    return Text(uid=uid, title=title, location=location, url=url, **more)


def merge(*sources: FeedSource, zone: str = "America/New_York") -> tuple[list[CityEvent], int]:
    found = merged(sources, window(zone=zone))
    return found.events, len(found.drops)


def are_one(left: Text, right: Text) -> bool:
    """Whether two feeds' events are one, whichever stands first."""
    answers = {
        len(merge(telling("A", one), telling("B", other))[0])
        for one, other in ((left, right), (right, left))
    }
    assert len(answers) == 1
    return answers == {1}


def test_one_event_of_two_feeds_is_kept_once_with_both_names() -> None:
    events, dropped = merge(
        source("A", ("1", "Art Walk", NOON)), source("B", ("2", "ART  walk!", NOON))
    )
    assert [(one.uid, one.sources, one.merged) for one in events] == [("1", ("A", "B"), ("2",))]
    assert dropped == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Art Walk", "art walk"),
        ("Art Walk", " Art  -  Walk! "),
        ("Rock & Roll", "Rock &amp; Roll"),
        ("Café", "Cafe\u0301"),
        ("Ｆｕｌｌ", "full"),
    ],
)
def test_titles_are_the_same_but_for_case_punctuation_and_spacing(left: str, right: str) -> None:
    assert plain_words(left) == plain_words(right)


@pytest.mark.parametrize(("left", "right"), [("Art Walk", "Art Talk"), ("C", "C+"), ("🎉", "🎂")])
def test_other_titles_are_not(left: str, right: str) -> None:
    assert plain_words(left) != plain_words(right)


@pytest.mark.parametrize(
    "other",
    [
        ("2", "Other", NOON),
        ("2", "Art Walk", "2026-09-01T16:30:00Z"),
        ("2", "Art Walk", "2026-09-01"),
    ],
)
def test_another_title_or_start_is_another_event(other: tuple[str, str, str]) -> None:
    events, dropped = merge(source("A", ("1", "Art Walk", NOON)), source("B", other))
    assert (len(events), dropped) == (2, 0)


def test_what_one_feed_says_twice_with_two_uids_is_two_events() -> None:
    events, dropped = merge(source("Library", ("1", "Storytime", NOON), ("2", "Storytime", NOON)))
    assert (len(events), dropped) == (2, 0)


ONE = {
    "the same place": (at("1", "Main Library"), at("2", "Main Library")),
    "the same but for signs": (at("1", "Main Library, Room 2"), at("2", "main library - room 2")),
    "a place and its address": (
        at("1", "Main Library"),
        at("2", "Main Library, 315 E. 14th St., Davis, CA 95616"),
    ),
    "an address in two spellings": (
        at("1", "Hall, 101 Walnut Street, Montclair, NJ 07042, Montclair, NJ"),
        at("2", "The Hall, 101 Walnut St, Montclair, NJ, 07042, United States"),
    ),
    "a place that one does not say": (at("1", "Main Library"), at("2")),
    "one that is not decided yet": (at("1", "Main Library"), at("2", "TBD")),
    "no place and two sites": (at("1", url=f"{SITES[0]}/1"), at("2", url=f"{SITES[1]}/2")),
    "one page": (at("1", url="https://a.org/1/"), at("2", "Main", url="http://www.a.org/1")),
    "one page but for what counts visitors": (
        at("1", url="https://a.org/1?utm_source=ics"),
        at("2", url="https://a.org/1"),
    ),
    "an address, a name, and one page": (
        at("1", "Joe's Bar", url=f"{SITES[0]}/1"),
        at("2", "123 Main Street, Davis", url=f"{SITES[0]}/1"),
    ),
    "an address, a name, and one point on the map": (
        at("1", "Joe's Bar", geo="38.5449;-121.7405"),
        at("2", "123 Main Street, Davis", geo="38.54491;-121.74052"),
    ),
    "two pages of one site for one place": (
        at("1", "Main", url=f"{SITES[0]}/1"),
        at("2", "main.", url=f"{SITES[0]}/2"),
    ),
    "one UID": (at("1", url=f"{SITES[0]}/1"), at("1", url=f"{SITES[0]}/2")),
    "online": (at("1", "Online"), at("2", "Virtual (Zoom)")),
    "one announcement of two groups": (
        at("1", url=f"{SITES[0]}/1", description="Group A\n" + "We read and sing. " * 30),
        at("2", url=f"{SITES[0]}/2", description="Group B\n" + "We read and sing. " * 30),
    ),
    "a title with its place": (
        at("1", "The Hall, 1 Main Street", title="Jazz Night"),
        at("2", title="Jazz Night at The Hall"),
    ),
    "a title with its place, live": (
        at("1", "The Hall", title="Mas Trauma"),
        at("2", title="Mas Trauma LIVE at The Hall"),
    ),
    "a title with its place behind a sign": (
        at("1", "The Hall", title="Jazz Night"),
        at("2", "The Hall", title="Jazz Night @ The Hall"),
    ),
    "a title with its place in brackets": (
        at("1", "The Hall", title="Jazz Night"),
        at("2", title="Jazz Night (The Hall)"),
    ),
    "a title with its place, and nothing else": (
        at("1", title="Jazz Night"),
        at("2", title="Jazz Night at The Hall"),
    ),
    "two ways to write at": (at("1", title="Jazz @ Hall"), at("2", title="Jazz at Hall")),
}


@pytest.mark.parametrize(("left", "right"), ONE.values(), ids=ONE)
def test_these_are_one(left: Text, right: Text) -> None:
    assert are_one(left, right)


TWO = {
    "another branch": (at("1", "Parkdale Branch"), at("2", "High Park Branch")),
    "another branch of one library": (
        at("1", "Toronto Public Library - Parkdale"),
        at("2", "Toronto Public Library - High Park"),
    ),
    "another branch with one page for all": (
        at("1", "Parkdale Branch", url=f"{SITES[0]}/storytime"),
        at("2", "High Park Branch", url=f"{SITES[0]}/storytime"),
    ),
    "another address": (
        at("1", "- 1 Municipal Plaza Bloomfield NJ 07003"),
        at("2", "Municipal Building - 525 Pompton Ave. Cedar Grove NJ 07009"),
    ),
    "another number in the same street": (
        at("1", "12 Main St, Davis"),
        at("2", "14 Main Street, Davis"),
    ),
    "another point on the map": (
        at("1", geo="38.5449;-121.7405"),
        at("2", "Main Library", geo="38.5549;-121.7405"),
    ),
    "another room": (at("1", "Room 1, 5 Main Street"), at("2", "Room 2, 5 Main St")),
    "a name and an address": (at("1", "Joe's Bar"), at("2", "123 Main Street, Davis")),
    "two pages of one site, no place": (
        at("1", url=f"{SITES[0]}/event/1"),
        at("2", url=f"{SITES[0]}/event/2"),
    ),
    "two pages of one site, one place not said": (
        at("1", url=f"{SITES[0]}/event?id=1"),
        at("2", "North Branch", url=f"{SITES[0]}/event?id=2"),
    ),
    "online and in a place": (at("1", "Online"), at("2", "Main Library")),
    "a title with another place": (
        at("1", "Library", title="Jazz Night"),
        at("2", "The Hall", title="Jazz Night at The Hall"),
    ),
    "a title that goes on": (at("1", title="Jazz"), at("2", title="Jazz for Kids")),
    "a time is not a place": (
        at("1", "Plaza", title="Jazz"),
        at("2", "Plaza", title="Jazz at Noon"),
    ),
}


@pytest.mark.parametrize(("left", "right"), TWO.values(), ids=TWO)
def test_these_are_two(left: Text, right: Text) -> None:
    assert not are_one(left, right)


def test_branches_of_two_feeds_find_each_other() -> None:
    branches = ("Parkdale", "High Park", "Main")
    ours = telling("A", *(at(f"a{n}", place) for n, place in enumerate(branches)))
    theirs = telling("B", *(at(f"b{n}", place) for n, place in enumerate(reversed(branches))))
    events, dropped = merge(ours, theirs)
    assert dropped == 3
    assert {(one.text.location, one.merged) for one in events} == {
        ("Parkdale", ("b2",)),
        ("High Park", ("b1",)),
        ("Main", ("b0",)),
    }


def test_what_may_be_either_of_two_is_neither() -> None:
    branches = telling("A", at("1", "Parkdale"), at("2", "High Park"))
    assert merge(branches, telling("B", at("3")))[1] == 0


def test_the_copy_that_says_most_is_kept_with_the_link_of_each_source() -> None:
    poor = at("1", url=f"{SITES[0]}/1")
    rich = at("2", "Hall", url=f"{SITES[1]}/2", description="Bring a book. " * 20)
    (event,), _ = merge(telling("A", poor), telling("B", rich))
    assert (event.uid, event.sources, event.merged) == ("2", ("B", "A"), ("1",))
    assert event.links == (("B", f"{SITES[1]}/2"), ("A", f"{SITES[0]}/1"))
    (event,), _ = merge(telling("A", poor), telling("B", at("2", "Hall", description="x" * 500)))
    assert (event.uid, event.text.url) == ("2", f"{SITES[0]}/1")


def test_a_word_more_changes_nothing_about_which_copy_is_kept() -> None:
    for words in (20, 21):
        (event,), _ = merge(
            telling("A", at("1", description="word " * 20)),
            telling("B", at("2", description="word " * words)),
        )
        assert event.uid == "1"


def test_the_copy_of_a_primary_source_is_kept_whatever_the_others_say() -> None:
    rich = telling("A", at("1", "Hall", url=f"{SITES[0]}/1", description="x" * 500))
    primary = telling("B", at("2"), primary=True)
    (event,), _ = merge(rich, primary)
    assert (event.uid, event.sources) == ("2", ("B", "A"))


@pytest.mark.parametrize("primary", [True, False])
def test_a_fresh_copy_is_kept_before_a_stale_one(*, primary: bool) -> None:
    old = telling("A", at("1", "Hall", description="old"), primary=primary)
    new = telling("B", at("2", "Hall", description="new"))
    assert [one.uid for one in merge(old, new)[0]] == ["1"]
    assert [one.uid for one in merge(replace(old, stale=True), new)[0]] == ["2"]
    both = merge(replace(old, stale=True), replace(new, stale=True))[0]
    assert [one.uid for one in both] == ["1"]


def test_what_was_dropped_says_in_favour_of_whom() -> None:
    sources = [telling("A", at("1")), telling("B", at("2", "Hall"))]
    found = merged(sources, window())
    assert found.dropped(sources) == [
        {
            "title": "Storytime",
            "start": NOON,
            "source": "A",
            "uid": "1",
            "kept": "B",
            "kept_uid": "2",
        }
    ]


def test_a_feed_that_says_the_very_same_twice_is_one_event_where_another_says_it() -> None:
    assert merge(telling("A", at("1")), telling("B", at("2"), at("3")))[1] == 2
    assert merge(telling("A", at("1"), at("2")), telling("B", at("3")))[1] == 1
    assert merge(telling("A", at("1")), telling("B", at("2"), at("3", description="Late")))[1] == 1


def test_many_events_of_one_title_and_start_are_compared_by_their_place_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging, "MANY", 10)
    ours = telling("A", *(at(f"a{n}", f"Branch {n}") for n in range(20)))
    theirs = telling("B", *(at(f"b{n}", f"branch, {n}") for n in range(20)))
    events, dropped = merge(ours, theirs)
    assert (len(events), dropped) == (20, 20)


def test_order_is_by_local_start_and_all_day_events_come_first_in_their_day() -> None:
    starts = [
        "2026-09-02T03:30:00Z",  # the evening of the first
        "2026-09-02",
        "2026-09-01T12:00:00Z",
        "2026-09-01",
        "2026-09-02T04:30:00Z",  # the first hour of the second
    ]
    told = [(str(number), str(number), start) for number, start in enumerate(starts)]
    events, _ = merge(source("A", *told))
    assert [one.uid for one in events] == ["3", "2", "0", "1", "4"]


def test_an_event_is_the_same_when_those_before_it_have_passed() -> None:
    told = [("1", "Walk", "2026-09-01T16:00:00Z"), ("1", "Walk", "2026-09-05T16:00:00Z")]
    sources = [source("A", *((*one, one[2]) for one in told)), source("B", ("9", "Run", NOON))]
    both = merged(sources, window()).events
    later = merged(sources, window("2026-09-03")).events
    assert [one for one in both if one.start > "2026-09-03"] == later


EXTREMES = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01", "9999-12-31"]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue", "America/New_York"])
def test_times_at_the_end_of_all_time_spoil_nothing(zone: str) -> None:
    texts = (Text(uid="1", title="Ever"),)
    for start, end in itertools.product(EXTREMES, repeat=2):
        odd = Parsed(texts=texts, occurrences=(Occurrence(0, start, end, end),))
        sources = [FeedSource(name="A", url="A", parsed=odd), source("B", ("2", "Good", NOON))]
        asked = window(zone=zone)
        found = merged(sources, asked)
        assert "2" in {one.uid for one in found.events}
        assert calendar_file("town", found.events, asked).count(b"BEGIN:VEVENT") == len(
            found.events
        )
        assert events_file("town", found.events, asked)


@pytest.mark.parametrize("start", ["2026-09-01T99:00:00Z", "2026-09-31T00:00:00Z", "2026-09-31"])
def test_times_that_are_none_are_left_out_and_counted(start: str) -> None:
    odd = Parsed(texts=(Text(uid="1"),), occurrences=(Occurrence(0, start, start),))
    sources = [source("B", ("2", "Good", NOON)), FeedSource(name="A", url="A", parsed=odd)]
    found = merged(sources, window())
    assert [one.uid for one in found.events] == ["2"]
    assert found.misplaced == {1: 1}


def test_events_without_a_title_are_never_taken_for_one() -> None:
    assert merge(source("A", ("1", "", NOON)), source("B", ("2", " ", NOON)))[1] == 0


def test_a_name_is_credited_once() -> None:
    events, _ = merge(*(source("A", (str(number), "Walk", NOON)) for number in range(3)))
    assert events[0].sources == ("A",)


def test_no_two_events_have_one_uid_and_one_place() -> None:
    events, _ = merge(
        source("A", ("1", "Walk", NOON), ("1", "Walk", "2026-09-02T16:00:00Z")),
        source("B", ("1", "Walk: sold out", NOON), ("1", "Run", "2026-09-03T16:00:00Z", NOON)),
    )
    places = [(one.uid, one.recurrence) for one in events]
    assert len(set(places)) == len(places) == 4
    assert "1" in {one.uid for one in events}


def test_only_what_takes_place_in_the_window_is_kept() -> None:
    events, _ = merge(source("A", ("1", "Past", "2026-08-01T16:00:00Z"), ("2", "Now", NOON)))
    assert [one.uid for one in events] == ["2"]


def test_the_calendar_does_not_depend_on_the_order_within_feeds() -> None:
    told = [("1", "A", NOON), ("1", "B", NOON), ("2", "A", NOON), ("3", "C", "2026-09-01")]
    first, *others = (
        merge(source("X", *order), source("Y", *told)) for order in itertools.permutations(told)
    )
    assert all(other == first for other in others)
