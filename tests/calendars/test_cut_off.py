"""Feeds that end before their end, servers that want time, and feeds that all fail."""

import errno
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from blackboard import BadInput
from jobs.calendars import cache
from jobs.calendars.aggregation import NothingCame
from jobs.calendars.params import RunContext
from jobs.calendars.responses import Limits, cut_off, freshness, next_request_at, words_of
from tests.calendars.serving import Answer, Site, serving
from tests.calendars.support import LOCAL, aggregate, calendar, event, events, report, whole_report

WHOLE = calendar(*(event(str(n), f"E{n}", f"202609{n:02d}T180000Z") for n in range(1, 21)))
OTHER = calendar(event("o", "Other"))
HALF = WHOLE[: WHOLE.index(b"BEGIN:VEVENT\r\nUID:11")]
NEW = WHOLE.replace(b"SUMMARY:E1", b"SUMMARY:N1")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
NO_FEED = {"Content-Type": "text/html"}


def town(site: Site) -> list[dict[str, str]]:
    return [{"url": site.url(path), "name": path[1:]} for path in ("/one", "/two")]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(HALF, length=None),
        Answer(HALF),
        Answer(WHOLE[:-12]),
        Answer(WHOLE[:1000]),
        Answer(HALF, length=len(WHOLE)),
        Answer(WHOLE[:-3], length=len(WHOLE)),
        Answer(NEW, length=len(NEW) + 1),
        Answer(HALF, chunks=True),
        Answer(NEW, chunks=True),
        Answer(HALF + OTHER[:-15]),
        Answer(HALF, length=None, etag=False),
        Answer(NEW, chunks=True, etag=False),
    ],
    ids=lambda answer: f"{len(answer.body)}-{answer.length}-{answer.chunks}-{answer.etag}",
)
def test_a_feed_that_is_cut_off_has_failed_and_its_last_good_events_stay(
    tmp_path: Path, answer: Answer
) -> None:
    with serving({"/one": Answer(WHOLE), "/two": Answer(OTHER)}) as site:
        aggregate(tmp_path, town(site))
        site.answers["/one"] = answer
        for _again in range(2):
            summary = aggregate(tmp_path, town(site))
            assert (summary["failed"], summary["events"]) == (1, 21)
            told = report(tmp_path)["one"]
            assert told["error"].startswith("cut off: ")
            assert (told["status"], told["stale"]) == ("failed", True)
        site.answers["/one"] = Answer(WHOLE)
        assert aggregate(tmp_path, town(site))["failed"] == 0


def test_events_of_a_feed_that_fails_stay_where_they_cannot_be_read_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        monkeypatch.undo()
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with serving({"/one": Answer(WHOLE), "/two": Answer(OTHER)}) as site:
        aggregate(tmp_path, town(site))
        site.answers["/one"] = Answer(status=503, etag=False)
        monkeypatch.setattr(cache, "bytes_of", refuse)
        with pytest.raises(BadInput, match=r"params\.out: .*\.cache\.json: Too many open files"):
            aggregate(tmp_path, town(site))
        assert aggregate(tmp_path, town(site))["events"] == 21


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (WHOLE, True),
        (WHOLE + WHOLE, True),
        (WHOLE.lower(), True),
        (WHOLE.replace(b"\r\n", b"\n").rstrip(), True),
        (WHOLE.replace(b"\r\n", b"\r"), True),
        (WHOLE + b"<!-- 0.3 s -->\n" * 10_000, True),
        (WHOLE.strip() + b"<!-- cached -->", True),
        (WHOLE.strip() + b"\xc2\xa0", True),
        (WHOLE.strip() + b"\xa0\r\n", True),
        (WHOLE.strip() + b"\x1a", True),
        (WHOLE.strip() + b"</pre></html>", True),
        (WHOLE.replace(b"END:VCALENDAR", b"END: VCALENDAR"), True),
        (WHOLE.replace(b"END:VCALENDAR", b"\xc2\xa0END:VCALENDAR"), True),
        (WHOLE.replace(b"END:VEVENT\r\nEND:VCAL", b"END:VEVENTEND:VCAL"), True),
        (WHOLE.replace(b"END:VEVENT\r\nEND:VCAL", b"END:VEVENT END:VCAL"), True),
        (WHOLE.replace(b"END:VEVENT\r\n", b"END:VEVENT"), True),
        (WHOLE.replace(b"END:VCAL", b"BEGIN:VALARM\r\nEND:VALARMEND:VCAL"), True),
        (WHOLE.strip()[:-1], False),
        (WHOLE.strip() + b"X", False),
        (WHOLE.strip() + HALF, False),
        (WHOLE.replace(b"END:VCALENDAR", b"DESCRIPTION:see END:VCALENDAR!"), False),
        (WHOLE.decode().encode("utf-16"), True),
        (WHOLE.decode()[:-14].encode("utf-16"), False),
        (WHOLE + HALF, False),
        (HALF, False),
        (WHOLE[: WHOLE.index(b"BEGIN:VEVENT")], False),
        (WHOLE.replace(b"END:VCALENDAR", b"DESCRIPTION:END:VCALENDAR"), False),
        (b"BEGIN:VEVENT\nUID:1\nEND:VEVENT\n", True),
        (b"BEGIN:VEVENT\nUID:1\nEND:VEVENT\nBEGIN:VEVENT\nUID:2\n", False),
        (b"no calendar", True),
    ],
)
def test_what_is_cut_off_is_seen_by_its_end(body: bytes, *, whole: bool) -> None:
    assert (cut_off(body) == "") is whole


@pytest.mark.parametrize("end", [b"END:VCALENDAR<!-- cached -->", b"END:VCALENDAR\xc2\xa0"])
def test_what_stands_behind_the_end_of_a_feed_costs_no_event(tmp_path: Path, end: bytes) -> None:
    glued = WHOLE.replace(b"END:VEVENT\r\n", b"END:VEVENT").replace(b"END:VCALENDAR\r\n", end)
    with serving({"/one": Answer(glued)}) as site:
        assert aggregate(tmp_path, [site.url("/one")])["events"] == 20


class Turned:
    """A clock that a test turns: what sleeps on it lets it go on at once."""

    def __init__(self) -> None:
        self.time = NOW
        self.slept = 0.0

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.time += timedelta(seconds=seconds)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("later", ["3600", "Fri, 21 Aug 2026 13:00:00 GMT"])
def test_a_feed_whose_server_wants_time_is_left_alone_for_so_long(
    tmp_path: Path, status: int, later: str
) -> None:
    clock = Turned()
    with serving({"/two": Answer(OTHER)}) as site, serving({"/a": Answer(WHOLE)}) as busy:
        feeds = [busy.url("/a"), site.url("/two")]

        def run() -> int:
            busy.asked.clear()
            aggregate(tmp_path, feeds, run=RunContext(clock=clock))
            return len(busy.asked)

        assert run() == 1
        refusal = {"Retry-After": later, "Date": "Fri, 21 Aug 2026 12:00:00 GMT"}
        busy.answers["/a"] = Answer(status=status, headers=refusal, etag=False)
        assert run() == 1
        told = report(tmp_path)["a"]
        assert told["error"] == f"HTTP {status}, to be asked again from 2026-08-21T13:00:00Z on"
        assert (told["stale"], told["ask_again"]) == (True, "2026-08-21T13:00:00Z")
        clock.time += timedelta(minutes=59)
        assert run() == 0
        told = report(tmp_path)["a"]
        assert told["error"] == "not asked: its server wants no request until 2026-08-21T13:00:00Z"
        assert told["stale"]
        clock.time += timedelta(minutes=1)
        busy.answers["/a"] = Answer(WHOLE)
        assert run() == 1
        assert report(tmp_path)["a"]["error"] == ""
    assert clock.slept == 0


def test_one_feed_that_is_unavailable_silences_no_other_of_its_host(tmp_path: Path) -> None:
    clock = Turned()
    with serving({f"/{n}": Answer(WHOLE) for n in range(12)}) as site:
        feeds = [site.url(f"/{n}") for n in range(12)]
        site.answers["/1"] = Answer(status=503, headers={"Retry-After": "3600"}, etag=False)
        summary = aggregate(tmp_path, feeds, run=RunContext(clock=clock))
    assert (summary["ok"], summary["failed"]) == (11, 1)


@pytest.mark.parametrize(("status", "asked"), [(429, 2), (503, 3)])
def test_a_host_that_is_busy_is_left_alone_in_this_run(
    tmp_path: Path, status: int, asked: int
) -> None:
    """One 429 is of the host, and so are the 503 of two feeds. What was not asked for is asked for
    in the next run: no server has refused it.
    """
    clock = Turned()
    one_by_one = replace(LOCAL, limits=Limits(per_host=1))
    with serving({f"/{n}": Answer(WHOLE) for n in range(8)}) as site:
        feeds = [site.url(f"/{n}") for n in range(8)]
        for n in (1, 2):
            refusal = {"Retry-After": "3600"}
            site.answers[f"/{n}"] = Answer(status=status, headers=refusal, etag=False)

        def run() -> int:
            site.asked.clear()
            aggregate(tmp_path, feeds, run=RunContext(clock=clock), settings=one_by_one)
            return len(site.asked)

        assert run() == asked
        told = report(tmp_path)["7"]
        assert told["error"] == "not asked: its server wants no request until 2026-08-21T13:00:00Z"
        assert told["ask_again"] is None
        site.answers["/2"] = Answer(WHOLE)
        run()
        assert {path for path, _headers in site.asked} >= {"/0", *(f"/{n}" for n in range(3, 8))}
        assert report(tmp_path)["7"]["error"] == ""


def test_a_clock_that_was_ahead_silences_no_host(tmp_path: Path) -> None:
    clock = Turned()
    clock.time = NOW + timedelta(days=3_000)
    with serving({"/two": Answer(OTHER)}) as site, serving({"/a": Answer(WHOLE)}) as busy:
        feeds = [busy.url("/a"), site.url("/two")]
        aggregate(tmp_path, feeds, run=RunContext(clock=clock))
        busy.answers["/a"] = Answer(status=503, headers={"Retry-After": "3600"}, etag=False)
        aggregate(tmp_path, feeds, run=RunContext(clock=clock))
        busy.answers["/a"] = Answer(WHOLE)
        clock.time = NOW
        assert aggregate(tmp_path, feeds, run=RunContext(clock=clock))["failed"] == 0


def test_a_host_that_wants_a_moment_is_asked_again_in_the_same_run(tmp_path: Path) -> None:
    clock = Turned()
    with serving({"/one": Answer(status=429, headers={"Retry-After": "2"}, etag=False)}) as site:

        class Mending(Turned):
            async def sleep(self, seconds: float) -> None:
                await super().sleep(seconds)
                site.answers["/one"] = Answer(WHOLE)

        clock = Mending()
        summary = aggregate(tmp_path, [site.url("/one")], run=RunContext(clock=clock))
        assert len(site.asked) == 2
    assert (summary["ok"], clock.slept) == (1, 2)


def test_a_host_that_wants_a_moment_again_and_again_is_asked_no_more(tmp_path: Path) -> None:
    clock = Turned()
    busy = Answer(status=503, headers={"Retry-After": "20"}, etag=False)
    with serving({f"/{n}": busy for n in range(30)}) as site:
        site.answers["/one"] = Answer(WHOLE)
        with serving({"/two": Answer(OTHER)}) as other:
            feeds = [*(site.url(f"/{n}") for n in range(30)), other.url("/two")]
            summary = aggregate(tmp_path, feeds, run=RunContext(clock=clock))
        assert len(site.asked) <= 2 * Limits().per_host
    assert (summary["ok"], summary["failed"]) == (1, 30)
    assert clock.slept <= 20 * Limits().per_host


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("Fri, 21 Aug 2026 12:02:00 GMT", 120),
        ("99999999999", 86_400),
        ("Fri, 21 Aug 2126 12:02:00 GMT", 86_400),
        ("0", None),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("Fri, 21 Aug 2020 12:02:00 GMT", None),
        ("Fri, 99 Aug 2026 12:02:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -0500", None),
        ("9" * 5000, 86_400),
    ],
)
def test_when_to_come_again_is_read_and_bounded(value: str, seconds: int | None) -> None:
    when = next_request_at({"retry-after": value}, NOW)
    assert when == (None if seconds is None else NOW + timedelta(seconds=seconds))


def test_when_to_come_again_is_read_by_the_clock_of_the_server() -> None:
    """An hour ahead of that of this host."""
    said = {"retry-after": "Fri, 21 Aug 2026 13:02:00 GMT", "date": "Fri, 21 Aug 2026 13:00:00 GMT"}
    assert next_request_at(said, NOW) == NOW + timedelta(minutes=2)


def test_when_to_come_again_is_read_by_the_clock_of_this_host_where_the_server_tells_none() -> None:
    at = NOW + timedelta(minutes=2)
    for date in ("", "0"):
        said = {"retry-after": format_datetime(at, usegmt=True), "date": date}
        assert next_request_at(said, NOW) == at


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 300),
        ({"age": "100"}, 200),
        ({"cache-control": "public, max-age=60"}, 60),
        ({"cache-control": "max-age=60", "age": "50"}, 10),
        ({"cache-control": "max-age=60", "age": "90"}, 0),
        ({"cache-control": "max-age=999999"}, 3600),
        ({"cache-control": "s-maxage=60"}, 300),
        ({"cache-control": "no-cache, no-store, max-age=0, must-revalidate"}, 0),
        ({"cache-control": "no-cache"}, 0),
        (
            {
                "expires": "Fri, 21 Aug 2026 12:02:00 GMT",
                "date": "Fri, 21 Aug 2026 12:00:00 GMT",
            },
            120,
        ),
        ({"expires": "0", "date": "Fri, 21 Aug 2026 12:00:00 GMT"}, 0),
        ({"expires": "-1"}, 0),
        (
            {
                "expires": "Fri, 31 Dec 9999 23:59:59 -0500",
                "date": "Fri, 21 Aug 2026 12:00:00 GMT",
            },
            0,
        ),
        ({"expires": "Mon, 01 Jan 0001 00:00:00 +0100", "date": "soon"}, 0),
    ],
)
def test_how_long_an_answer_is_fresh(headers: dict[str, str], seconds: float) -> None:
    assert freshness(headers) == seconds


def test_when_all_feeds_fail_the_run_fails_and_the_last_good_files_stay(tmp_path: Path) -> None:
    with serving({"/one": Answer(WHOLE), "/two": Answer(OTHER)}) as site:
        aggregate(tmp_path, town(site))
        names = ("town.ics", "town.json")
        made = {name: (tmp_path / name).read_bytes() for name in names}
        site.answers = {"/two": Answer(b"<html>down</html>", headers=NO_FEED, etag=False)}
        for _again in range(5):
            with pytest.raises(NothingCame, match=r"all 2 feeds failed.*one: HTTP 404") as caught:
                aggregate(tmp_path, town(site))
            assert {name: (tmp_path / name).read_bytes() for name in names} == made
        told = whole_report(tmp_path)
    assert "blackboard report town" in str(caught.value)
    assert (told["summary"]["failed"], report(tmp_path)["one"]["failures"]) == (2, 5)


def test_feeds_that_all_say_404_at_once_are_not_gone(tmp_path: Path) -> None:
    """A host that is set up anew answers so for a while, and a failed run is tried again soon."""
    with serving({"/one": Answer(WHOLE), "/two": Answer(OTHER)}) as site:
        aggregate(tmp_path, town(site))
        site.answers = {}
        for _again in range(5):
            with pytest.raises(NothingCame):
                aggregate(tmp_path, town(site))
        site.answers["/two"] = Answer(OTHER)
        for number in range(1, 4):
            summary = aggregate(tmp_path, town(site))
            assert summary["events"] == (1 if number == 3 else 21)


def test_a_city_whose_first_run_fails_has_a_report_and_no_calendar(tmp_path: Path) -> None:
    with serving() as site, pytest.raises(NothingCame):
        aggregate(tmp_path, [site.url("/nothing")])
    assert report(tmp_path)["nothing"]["said"] == "nothing here"
    assert not (tmp_path / "town.ics").exists()
    assert not (tmp_path / "town.json").exists()


def test_old_events_outlive_the_days_for_which_they_were_expanded(tmp_path: Path) -> None:
    """The feed is down from August to November: what it said of November is still shown."""
    far = calendar(event("f", "Far", "20261120T180000Z"))
    with serving({"/one": Answer(far), "/two": Answer(OTHER)}) as site:
        aggregate(tmp_path, town(site))
        site.answers["/one"] = Answer(status=500, etag=False)
        aggregate(tmp_path, town(site), first="2026-11-01")
    assert [one["title"] for one in events(tmp_path)] == ["Far"]
    assert report(tmp_path)["one"]["stale"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"Group not found", "Group not found"),
        (b"<html><head><title>Group not\n found</title></head><body>x", "Group not found"),
        (b"<h1 class='x'>Gone &amp; lost</h1>", "Gone & lost"),
        (
            b'{"error": {"code": 404, "message": "Group \\"x\\" not found"}}',
            'Group \\"x\\" not found',
        ),
        (b"<style>p{}</style><p>Not<br>here</p><script>x()</script>", "Not here"),
        (b"\x1b[31mred\x00", "[31mred"),
        (b"<head><title>Gone", "Gone"),
        (b"<body><h1>Not <h1>here", "Not here"),
        (b"<head><meta a><body>Not here<!-- <p>", "Not here"),
        (b"Not here<script>a<script>", "Not here"),
        (b"Not <<here", "Not <<here"),
        (
            b"no https://a.org/x?token=sword%20fish and sword fish",
            "no https://a.org/x?token=... and ...",
        ),
        (b"x" * 1000, "x" * 157 + "..."),
        (b"PK\x03\x04\x14\x00\x08\x00\xd6\xa5{]8\xe9a.icsru\x8e\xcb\xf1\xb6s", ""),
        ("Страница не найдена".encode("cp1251"), ""),
        (calendar(event("1", "One")), ""),
        (b"<rss><channel><title>News</title>", ""),
        (b"", ""),
    ],
)
def test_what_a_server_says_is_one_line_of_its_words_without_secrets(
    body: bytes, words: str
) -> None:
    assert words_of(body, "https://a.org/x?token=sword%20fish") == words
