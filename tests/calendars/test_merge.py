"""What is one event in a city's calendar, and which feed's it is."""

import itertools

import pytest

from jobs.calendars.merge import CityEvent, Source, merged, plain_title
from jobs.calendars.records import Occurrence, Parsed, Text
from tests.calendars.support import window

NOON = "2026-09-01T16:00:00Z"


def source(name: str, *told: tuple[str, str, str] | tuple[str, str, str, str]) -> Source:
    texts = tuple(Text(uid=one[0], title=one[1]) for one in told)
    occurrences = tuple(
        Occurrence(number, one[2], one[2], one[3] if len(one) > 3 else "")
        for number, one in enumerate(told)
    )
    return Source(name=name, key=name, parsed=Parsed(texts=texts, occurrences=occurrences))


def merge(*sources: Source) -> tuple[list[CityEvent], int]:
    return merged(sources, window().edges())


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
    assert plain_title(left) == plain_title(right)


@pytest.mark.parametrize(("left", "right"), [("Art Walk", "Art Talk"), ("C", "C+"), ("🎉", "🎂")])
def test_other_titles_are_not(left: str, right: str) -> None:
    assert plain_title(left) != plain_title(right)


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
