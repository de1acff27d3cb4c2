"""What an item of type `calendars` may say."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from blackboard import BadInput
from jobs.calendars.addresses import Policy
from jobs.calendars.params import CityFeed, city_of, read_feeds
from tests.calendars.support import params_of

DUE = datetime(2026, 8, 21, 2, tzinfo=UTC)
FEEDS = ["https://a.org/one.ics"]


def city(**params: Any) -> Any:
    return city_of("town", params_of({"feeds": FEEDS, **params}), due=DUE)


def test_everything_but_the_feeds_has_a_default() -> None:
    made = city()
    assert made.feeds == (CityFeed("https://a.org/one.ics", "one"),)
    assert (made.window.first, made.window.days, made.window.zone) == (date(2026, 8, 21), 90, "UTC")
    assert made.out == Path("out")


def test_the_first_day_is_that_of_the_due_time_in_the_citys_zone() -> None:
    assert city(timezone="America/Los_Angeles").window.first == date(2026, 8, 20)
    assert city(timezone="America/Los_Angeles", **{"from": "2026-09-01"}).window.first == date(
        2026, 9, 1
    )


def test_the_zone_is_that_of_the_item_unless_the_params_name_one() -> None:
    params = {"feeds": FEEDS}
    assert city_of("t", params_of(params), due=DUE, zone="Asia/Tokyo").window.zone == "Asia/Tokyo"
    both = {**params, "timezone": "Europe/Paris"}
    assert city_of("t", params_of(both), due=DUE, zone="Asia/Tokyo").window.zone == "Europe/Paris"


def test_a_param_that_means_nothing_is_refused_by_name() -> None:
    with pytest.raises(
        BadInput, match=r"^params\.dayz: there is no such field \(did you mean days\?"
    ):
        city(dayz=30)


def test_feeds_are_addresses_objects_or_the_text_of_a_list() -> None:
    expected = (
        CityFeed("https://a.org/one.ics", "One"),
        CityFeed("https://a.org/two.ics", "two"),
    )
    objects = [{"url": "https://a.org/one.ics", "name": "One"}, "https://a.org/two.ics"]
    assert city(feeds=objects).feeds == expected
    assert city(feeds="# One\nhttps://a.org/one.ics\n\nhttps://a.org/two.ics\n").feeds == expected


def test_a_source_may_be_primary() -> None:
    objects = [{"url": "https://a.org/one.ics", "primary": True}, {"url": "https://a.org/two.ics"}]
    assert [one.primary for one in city(feeds=objects).feeds] == [True, False]
    listed = "One https://a.org/one.ics primary = true\nhttps://a.org/two.ics\n"
    assert city(feeds=listed).feeds == (
        CityFeed("https://a.org/one.ics", "One", primary=True),
        CityFeed("https://a.org/two.ics", "two"),
    )
    with pytest.raises(BadInput, match=r"params\.feeds"):
        city(feeds=[{"url": "https://a.org/one.ics", "primary": "perhaps"}])


def test_private_events_may_be_asked_for() -> None:
    assert city(private=True).window.private is True
    assert city().window.private is False
    with pytest.raises(BadInput, match=r"params\.private"):
        city(private="perhaps")


@pytest.mark.parametrize("entry", ["", " ", None, 7, True, [], {}, {"url": None}, {"url": 7}])
def test_an_entry_without_an_address_is_a_feed_that_is_named_by_its_place(entry: Any) -> None:
    first, second = city(feeds=["https://a.org/one.ics", entry]).feeds
    assert first.name == "one"
    assert (second.url, second.name) == ("", "feed 2")


def test_a_feed_keeps_the_name_it_has_and_needs_no_good_one() -> None:
    nameless = {"url": "https://a.org/one.ics", "name": 3}
    feeds = city(feeds=[{"name": "No url"}, nameless, "http://[broken"]).feeds
    assert [one.name for one in feeds] == ["No url", "one", "feed 3"]


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("params.feeds", {"feeds": []}),
        ("params.feeds", {"feeds": ""}),
        ("params.feeds", {"feeds": "# only a comment\n"}),
        ("params.feeds", {"feeds": 7}),
        ("params.feeds", {"feeds": {"url": "https://a.org/"}}),
        ("params.timezone", {"timezone": "Mars/Olympus"}),
        ("params.timezone", {"timezone": "../../etc/passwd"}),
        ("params.timezone", {"timezone": ""}),
        ("params.timezone", {"timezone": 3}),
        ("params.timezone", {"timezone": "localtime"}),
        ("params.timezone", {"timezone": "right/UTC"}),
        ("params.days", {"days": 0}),
        ("params.days", {"days": -1}),
        ("params.days", {"days": 100_000}),
        ("params.days", {"days": "30"}),
        ("params.days", {"days": True}),
        ("params.days", {"days": 1.5}),
        ("params.from", {"from": "yesterday"}),
        ("params.from", {"from": "2026-02-30"}),
        ("params.from", {"from": 20260821}),
        ("params.from", {"from": []}),
        ("params.from", {"from": {"day": 1}}),
        ("params.from", {"from": "0001-01-01"}),
        ("params.from", {"from": "9999-12-31"}),
        ("params.out", {"out": ""}),
        ("params.out", {"out": "a\0b"}),
        ("params.out", {"out": 3}),
    ],
)
def test_a_bad_parameter_is_refused_by_name(field: str, params: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        city(**params)
    assert caught.value.field == field


LISTS = {
    "an address": ("https://a.org/x", [("https://a.org/x", "")]),
    "a comment is the name": ("# One\nhttps://a.org/x", [("https://a.org/x", "One")]),
    "the name has reached its feed": (
        "# One\nhttps://a.org/x\nhttps://b.org/y",
        [("https://a.org/x", "One"), ("https://b.org/y", "")],
    ),
    "a heading is not a name": ("# --- Live feeds ---\nhttps://a.org/x", [("https://a.org/x", "")]),
    "a note is not a name": (
        "# One\n# cmd: python x.py --url https://b.org\nhttps://a.org/x",
        [("https://a.org/x", "One")],
    ),
    "a name with a colon": (
        "# Meetup: Mosaics\nhttps://a.org/x",
        [("https://a.org/x", "Meetup: Mosaics")],
    ),
    "the last comment is the name": (
        "# About this list\n# One\nhttps://a.org/x",
        [("https://a.org/x", "One")],
    ),
    "a blank line ends a name": ("# About this list\n\nhttps://a.org/x", [("https://a.org/x", "")]),
    "a feed switched off": (
        "# One\n# https://a.org/x\n\nhttps://b.org/y",
        [("https://b.org/y", "")],
    ),
    "name before": ("One Two  https://a.org/x", [("https://a.org/x", "One Two")]),
    "name after a tab": ("https://a.org/x\tOne Two", [("https://a.org/x", "One Two")]),
    "name and equals sign": ("one = https://a.org/x?a=b", [("https://a.org/x?a=b", "one")]),
    "quoted": ('"https://a.org/x",', [("https://a.org/x", "")]),
    "a byte order mark and CRLF": (
        "\ufeff# One\r\nhttps://a.org/x\r\n",
        [("https://a.org/x", "One")],
    ),
    "webcal": ("webcal://a.org/x", [("webcal://a.org/x", "")]),
    "a path": ("# One\ncities/davis/one two.ics", [("cities/davis/one two.ics", "One")]),
    "a comment behind": ("https://a.org/x # One", [("https://a.org/x", "One")]),
    "a comment above and behind": ("# One\nhttps://a.org/x #Two", [("https://a.org/x", "Two")]),
    "a note behind": ("# One\nhttps://a.org/x # todo: look", [("https://a.org/x", "One")]),
    "an old address behind": (
        "https://a.org/x # was https://b.org/y",
        [("https://a.org/x", "")],
    ),
    "a name with a number": ("https://a.org/x Room #5", [("https://a.org/x", "Room #5")]),
    "a part of an address": ("https://a.org/x#y", [("https://a.org/x#y", "")]),
    "two addresses": (
        "One https://a.org/x, webcal://b.org/y;",
        [("https://a.org/x", "One"), ("webcal://b.org/y", "One")],
    ),
    "a dash between": ("One - https://a.org/x", [("https://a.org/x", "One")]),
    "a list of dashes": (
        "- https://a.org/x\n* One: https://b.org/y",
        [
            ("https://a.org/x", ""),
            ("https://b.org/y", "One"),
        ],
    ),
    "a list of numbers": (
        "1. https://a.org/x\n2) 1. FC https://b.org/y",
        [
            ("https://a.org/x", ""),
            ("https://b.org/y", "2) 1. FC"),
        ],
    ),
    "a link of Markdown": ("* [One](https://a.org/x)", [("https://a.org/x", "One")]),
    "in brackets": (
        "(https://a.org/x)\n<https://b.org/y>\nTwo [https://c.org/z]",
        [("https://a.org/x", ""), ("https://b.org/y", ""), ("https://c.org/z", "Two")],
    ),
    "with brackets of its own": (
        "https://a.org/x_(y) (https://b.org/(x)/y) https://c.org/x_(y)),",
        [(f"https://{one}", "") for one in ("a.org/x_(y)", "b.org/(x)/y", "c.org/x_(y)")],
    ),
    "in other quotes": ("\u201chttps://a.org/x\u201d", [("https://a.org/x", "")]),
    "a name with other quotes": (
        "A \u201cOne\u201d https://a.org/x\u200b",
        [("https://a.org/x", "A \u201cOne\u201d")],
    ),
    "nothing": ("\n \n# comment\n", []),
}


@pytest.mark.parametrize(("text", "expected"), LISTS.values(), ids=LISTS)
def test_lists_are_read_as_people_write_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert read_feeds(text) == [CityFeed(url, name) for url, name in expected]


FILES = Policy(files=True)


def test_a_list_of_feeds_may_be_a_file_that_each_run_reads(tmp_path: Path) -> None:
    listed = tmp_path / "feeds.txt"
    listed.write_text("# One\nhttps://a.org/one.ics\n\nroot:x:0:0\n")
    made = city_of("town", params_of({"feeds_file": str(listed)}), due=DUE, allowed=FILES)
    assert [(one.url, one.name) for one in made.feeds] == [
        ("https://a.org/one.ics", "One"),
        ("", "feed 2"),
    ]
    listed.write_text("\n".join(f"https://{'a' * 90}.org/{number}.ics" for number in range(505)))
    made = city_of("town", params_of({"feeds_file": str(listed)}), due=DUE, allowed=FILES)
    assert len(made.feeds) == 505


@pytest.mark.parametrize(
    ("params", "allowed", "problem"),
    [
        ({"feeds_file": "feeds.txt"}, Policy(), "files are not allowed"),
        ({"feeds_file": "feeds.txt", "feeds": FEEDS}, FILES, "beside feeds"),
        ({"feeds_file": "/dev/zero"}, FILES, "is not a file"),
        ({"feeds_file": "nowhere/feeds.txt"}, FILES, "is not a file"),
        ({"feeds_file": "a\0b"}, FILES, "feeds_file"),
        ({"feeds_file": 7}, FILES, "fits nothing"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(
    params: dict[str, Any], allowed: Policy, problem: str
) -> None:
    with pytest.raises(BadInput, match=problem) as refused:
        city_of("town", params_of(params), due=DUE, allowed=allowed)
    assert refused.value.field == "params.feeds_file"


def test_of_a_list_that_is_too_long_no_part_is_read(tmp_path: Path) -> None:
    listed = tmp_path / "feeds.txt"
    listed.write_text(f"# {'x' * 4_000_000}\nhttps://a.org/one.ics")
    with pytest.raises(BadInput, match="more than 4,000,000 characters"):
        city_of("town", params_of({"feeds_file": str(listed)}), due=DUE, allowed=FILES)
