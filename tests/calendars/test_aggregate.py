"""A whole run for a town: what is fetched, parsed, kept and told."""

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from blackboard import BadInput
from jobs.calendars import series
from jobs.calendars.aggregation import NothingCame
from jobs.calendars.params import RunContext
from jobs.calendars.publish import Overtaken
from tests.calendars.serving import Answer, Site, serving
from tests.calendars.support import aggregate, calendar, event, events, report, vevents

ONE = calendar(event("1@a", "Art Walk"), event("2@a", "Concert", "20260905T000000Z"))
TWO = calendar(event("1@b", "ART WALK!"), event("2@b", "Market", "20260906"))
PAGE = b"<!doctype html><html>Not today</html>"


def town(site: Site) -> list[dict[str, str]]:
    return [{"url": site.url(path), "name": path[1:]} for path in ("/one", "/two")]


def counts(summary: dict[str, Any]) -> tuple[int, int, int]:
    return summary["ok"], summary["unchanged"], summary["failed"]


def test_a_run_merges_its_feeds_and_tells_of_each(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        summary = aggregate(tmp_path, town(site), readers=True)
    assert summary == {
        "feeds": 2,
        "ok": 2,
        "unchanged": 0,
        "failed": 0,
        "events": 3,
        "duplicates": 1,
        "from": "2026-08-21",
        "days": 90,
        "timezone": "America/New_York",
        "report": str(tmp_path / "town.report.json"),
    }
    assert [(one["title"], one["sources"]) for one in events(tmp_path)] == [
        ("Art Walk", ["one", "two"]),
        ("Concert", ["one"]),
        ("Market", ["two"]),
    ]
    written = vevents((tmp_path / "town.ics").read_bytes())
    assert [str(one["UID"]) for one in written] == ["1@a", "2@a", "2@b"]
    told = report(tmp_path)
    assert set(told["one"]) == {
        *("name", "url", "state", "status", "stale", "error", "said", "problem", "level"),
        *("events", "change", "seen", "skipped", "mended", "private", "bytes", "duplicates"),
        *("failures", "last_good", "ask_again", "seconds", "duration"),
    }
    assert (told["two"]["bytes"], told["two"]["events"]) == (len(TWO), 2)


def test_the_report_says_what_was_dropped_in_favour_of_whom(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        one, two = town(site)
        aggregate(tmp_path, [one, two])
        aggregate(tmp_path / "other", [one, {**two, "primary": True}])
    dropped = [
        json.loads((folder / "town.report.json").read_bytes())["dropped"]
        for folder in (tmp_path, tmp_path / "other")
    ]
    assert [(drop["source"], drop["kept"]) for (drop,) in dropped] == [
        ("two", "one"),
        ("one", "two"),
    ]
    assert dropped[0][0]["title"] == "ART WALK!"
    assert dropped[0][0]["kept_uid"] == "1@a"


def test_relative_addresses_are_resolved_and_private_events_come_when_asked_for(
    tmp_path: Path,
) -> None:
    body = calendar(
        event("1", "Open", "20260901", "URL:/event/1"),
        event("2", "Closed", "20260901", "CLASS:PRIVATE"),
    )
    with serving({"/feeds/one?token=swordfish": Answer(body)}) as site:
        feeds = [{"url": site.url("/feeds/one?token=swordfish"), "name": "one"}]
        aggregate(tmp_path, feeds)
        assert [one["title"] for one in events(tmp_path)] == ["Open"]
        assert events(tmp_path)[0]["url"] == site.url("/event/1")
        assert report(tmp_path)["one"]["private"] == 1
        aggregate(tmp_path, feeds, private=True)
        assert [one["title"] for one in events(tmp_path)] == ["Closed", "Open"]
        aggregate(tmp_path, feeds)
        assert [one["title"] for one in events(tmp_path)] == ["Open"]
    assert "Closed" not in "".join(path.read_text() for path in tmp_path.glob("town*"))


def test_what_an_event_is_does_not_change_from_day_to_day(tmp_path: Path) -> None:
    weekly = event("w", "W", "20260822T180000Z", "RRULE:FREQ=WEEKLY")
    shared = [event("s", "S", f"202609{day}T180000Z") for day in ("01", "05", "09")]
    body = calendar(weekly, *shared, event("l", "Long", "20260801", "DTEND:20261001"))
    blocks: list[set[bytes]] = []
    with serving({"/one": Answer(body), "/two": Answer(TWO)}) as site:
        for day in ("2026-08-31", "2026-09-01", "2026-09-04"):
            aggregate(tmp_path / day, town(site), first=day)
            written = (tmp_path / day / "town.ics").read_bytes()
            blocks.append(set(written.split(b"BEGIN:VEVENT")[1:-1]))
            head = written.partition(b"BEGIN:VEVENT")[0]
            assert head == (tmp_path / "2026-08-31" / "town.ics").read_bytes()[: len(head)]
    for before, after in itertools.pairwise(blocks):
        new = [block for block in after - before if b"RECURRENCE-ID" not in block]
        assert new == [], "only what the window has reached is new"


def test_one_bad_feed_never_spoils_the_town(tmp_path: Path) -> None:
    broken = b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nEND:VCALENDAR\n"
    bad = {"/page": PAGE, "/empty": b"", "/broken": broken}
    with serving({path: Answer(body) for path, body in bad.items()}) as site:
        site.answers["/error"] = Answer(status=500, etag=False)
        site.answers["/one"] = Answer(ONE)
        feeds = [site.url(path) for path in ("/one", *bad, "/error", "/missing")]
        summary = aggregate(tmp_path, [*feeds, "http://169.254.169.254/", "nonsense", "x://y"])
    assert counts(summary) == (1, 0, 8)
    assert summary["events"] == 2
    errors = {name: one["error"] for name, one in report(tmp_path).items() if one["error"]}
    assert errors == {
        "page": "an HTML page, not a calendar",
        "empty": "the answer is empty",
        "broken": "an event without DTSTART",
        "error": "HTTP 500",
        "missing": "HTTP 404",
        "169.254.169.254": "refused: 169.254.169.254 is a link-local address",
        "nonsense": "no such file",
        "y": "x: is not fetched, only http and https",
    }


def test_an_entry_that_cannot_be_used_is_one_failed_feed(tmp_path: Path) -> None:
    bad = ["", {"name": "Nowhere"}, None, 7, "http://[broken]", "file://[broken]", "x://y"]
    bad += [f"http://127.0.0.1:{port}/p{port}" for port in (0, 99999)]
    with serving({"/one": Answer(ONE)}) as site:
        address = site.url("/one")
        secret = address.replace("://", "://user:swordfish@").replace("/one", "/secret")
        summary = aggregate(tmp_path, [*bad, secret, address])
    assert counts(summary) == (1, 0, 10)
    assert summary["events"] == 2
    missing = 'not a feed: an address is missing, or {"url": ..., "name": ...}'
    told = report(tmp_path)
    assert {name: one["error"] for name, one in told.items() if one["status"] == "failed"} == {
        "feed 1": missing,
        "Nowhere": missing,
        "feed 3": missing,
        "feed 4": missing,
        "feed 5": "not a well-formed address",
        "feed 6": "not a well-formed address",
        "y": "x: is not fetched, only http and https",
        "p0": "not a well-formed address",
        "p99999": "not a well-formed address",
        "secret": "an address with a user or password is refused",
    }
    assert "swordfish" not in json.dumps(told)


def test_an_unchanged_feed_is_neither_sent_nor_parsed_again(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO, etag=False)}) as site:
        first = aggregate(tmp_path, town(site))
        made = (tmp_path / "town.ics").read_bytes()
        second = aggregate(tmp_path, town(site), run=RunContext(fence=1))
        assert sum("if-none-match" in headers for _path, headers in site.asked) == 1
    assert counts(second) == (0, 2, 0)
    assert (second["events"], second["duplicates"]) == (first["events"], first["duplicates"])
    assert (tmp_path / "town.ics").read_bytes() == made


def test_a_change_of_nothing_but_stamps_is_no_change(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site))
        site.answers["/one"].body = ONE.replace(b"SUMMARY", b"DTSTAMP:20260821T000000Z\r\nSUMMARY")
        assert counts(aggregate(tmp_path, town(site))) == (0, 2, 0)
        site.answers["/one"].body = ONE.replace(b"Concert", b"Opera")
        assert counts(aggregate(tmp_path, town(site))) == (1, 1, 0)
    assert "Opera" in {one["title"] for one in events(tmp_path)}


def test_the_next_days_need_no_parsing_until_the_window_moves_on(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site))
        assert counts(aggregate(tmp_path, town(site), first="2026-09-02")) == (0, 2, 0)
        assert [one["title"] for one in events(tmp_path)] == ["Concert", "Market"]
        assert counts(aggregate(tmp_path, town(site), first="2026-10-02")) == (2, 0, 0)
        assert counts(aggregate(tmp_path, town(site), first="2026-08-01")) == (2, 0, 0)


@pytest.mark.parametrize("params", [{"days": 200}, {"timezone": "Asia/Tokyo"}])
def test_another_zone_or_a_wider_window_needs_parsing(
    tmp_path: Path, params: dict[str, Any]
) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site))
        assert counts(aggregate(tmp_path, town(site), **params)) == (2, 0, 0)


DAYS = {
    "by the week": "RRULE:FREQ=WEEKLY",
    "cut at its bound": "RRULE:FREQ=MINUTELY",
}


@pytest.mark.parametrize("rule", DAYS.values(), ids=DAYS)
def test_a_calendar_from_the_cache_is_the_one_made_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """The first times of a long series are others on another day."""
    monkeypatch.setattr(series, "SERIES_EVENTS", 1_000)
    body = calendar(event("w", "W", "20260822T180000Z", rule), event("l", "L", "20261119"))
    with serving({"/one": Answer(ONE), "/two": Answer(body)}) as site:
        for first in ("2026-08-21", "2026-08-22", "2026-09-10"):
            aggregate(tmp_path / "again", town(site), first=first)
        aggregate(tmp_path / "alone", town(site), first="2026-09-10")
    for name in ("town.ics", "town.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


@pytest.mark.parametrize(
    ("answer", "runs"),
    [
        (Answer(status=503, etag=False), 9),
        (Answer(PAGE, etag=False), 9),
        (Answer(status=404, etag=False), 2),
        (Answer(status=410, etag=False), 2),
    ],
)
def test_a_feed_that_fails_keeps_its_events_unless_it_is_gone(
    tmp_path: Path, answer: Answer, runs: int
) -> None:
    """Gone is what a server says so three times in a row: it may be one bad day."""
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site))
        site.answers["/two"] = answer
        for number in range(1, 5):
            summary = aggregate(tmp_path, town(site))
            assert counts(summary) == (0, 1, 1)
            told = report(tmp_path)["two"]
            assert told["stale"] is (number <= runs)
            assert told["failures"] == number
            assert ("Market" in {one["title"] for one in events(tmp_path)}) is (number <= runs)
        site.answers["/two"] = Answer(TWO)
        assert counts(aggregate(tmp_path, town(site)))[2] == 0
        assert report(tmp_path)["two"]["failures"] == 0
        site.answers["/two"] = answer
        aggregate(tmp_path, town(site))
        assert report(tmp_path)["two"]["stale"]


def test_only_a_feed_that_is_gone_in_runs_in_a_row_loses_its_events(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site))
        for status in (404, 500, 410, 404, 500, 404, 404):
            site.answers["/two"] = Answer(b"", status, etag=False)
            aggregate(tmp_path, town(site))
            assert report(tmp_path)["two"]["stale"]
        aggregate(tmp_path, town(site))
        assert not report(tmp_path)["two"]["stale"]


def test_a_feed_that_is_no_longer_listed_leaves_nothing(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site))
        aggregate(tmp_path, town(site)[:1])
    assert "Market" not in {one["title"] for one in events(tmp_path)}
    assert "Market" not in (tmp_path / "town.cache.json").read_text()


def test_a_damaged_cache_is_not_used_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site))
        for damage in (b"", b"{", b"\xff\xfe", b"[]", b'{"entries": 3}', b'{"format": 99}'):
            (tmp_path / "town.cache.json").write_bytes(damage)
            caplog.clear()
            with caplog.at_level(logging.INFO, "calendars"):
                summary = aggregate(tmp_path, town(site), run=RunContext())
            assert not any("if-none-match" in headers for _path, headers in site.asked), damage
            assert counts(summary) == (2, 0, 0), damage
            assert "town.cache.json" in caplog.text, damage


def test_the_cache_holds_no_address(tmp_path: Path) -> None:
    with serving({"/one?token=swordfish": Answer(ONE)}) as site:
        aggregate(tmp_path, [site.url("/one?token=swordfish")])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    written = b"".join(path.read_bytes() for path in files) + repr(files).encode()
    assert b"swordfish" not in written


def test_a_run_that_was_overtaken_writes_nothing(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(tmp_path, town(site), run=RunContext(fence=5))
        made = (tmp_path / "town.ics").read_bytes()
        with pytest.raises(Overtaken):
            aggregate(tmp_path, town(site)[:1], run=RunContext(fence=4))
        assert (tmp_path / "town.ics").read_bytes() == made
        aggregate(tmp_path, town(site)[:1], run=RunContext(fence=4, fenced=False))
        assert (tmp_path / "town.ics").read_bytes() != made
    assert json.loads((tmp_path / "town.report.json").read_bytes())["fence"] == 4


def test_a_run_that_has_lost_its_lock_writes_nothing(tmp_path: Path) -> None:
    with (
        serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site,
        pytest.raises(Overtaken, match="lost"),
    ):
        aggregate(tmp_path, town(site), run=RunContext(lost=lambda: True))
    assert list(tmp_path.glob("town*")) == []


def test_progress_counts_feeds(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with serving({"/one": Answer(ONE), "/two": Answer(TWO)}) as site:
        aggregate(
            tmp_path,
            town(site),
            run=RunContext(progress=lambda done, total: told.append((done, total))),
        )
    assert told == [(1, 2), (2, 2)]


def test_a_feed_listed_twice_is_two_sources_of_the_same_events(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE)}) as site:
        feeds = [{"url": site.url("/one"), "name": name} for name in ("A", "B")]
        summary = aggregate(tmp_path, feeds)
    assert (summary["events"], summary["duplicates"]) == (2, 2)
    assert events(tmp_path)[0]["sources"] == ["A", "B"]


def test_files_are_feeds_where_they_are_allowed(tmp_path: Path) -> None:
    file = tmp_path / "one.ics"
    file.write_bytes(ONE)
    assert counts(aggregate(tmp_path / "out", [file.as_uri()])) == (1, 0, 0)
    assert counts(aggregate(tmp_path / "out", [file.as_uri()])) == (0, 1, 0)
    file.unlink()
    with pytest.raises(NothingCame, match="no such file"):
        aggregate(tmp_path / "out", [file.as_uri()])
    assert events(tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_bad_input_and_nothing_is_fetched(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with serving({"/one": Answer(ONE)}) as site:
        with pytest.raises(BadInput, match=r"params\.out"):
            aggregate(tmp_path / "file", [site.url("/one")])
        assert not site.asked
