"""The report of a run, for the people who look after a city's feeds."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.calendars.aggregation import level_of
from jobs.calendars.cache import Level
from jobs.calendars.params import RunContext
from jobs.calendars.records import PARSER
from jobs.calendars.responses import Limits
from tests.calendars.serving import Answer, Site, serving
from tests.calendars.support import LOCAL, aggregate, calendar, event, read, report, whole_report

NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
MANY = calendar(*(event(f"{n}@m", f"M{n}", f"202609{n:02d}T180000Z") for n in range(1, 11)))
FEW = calendar(event("1@f", "M1", "20260901T180000Z"), event("2@f", "F2", "20260902T180000Z"))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def town(site: Site) -> list[dict[str, str]]:
    return [{"url": site.url(path), "name": path[1:]} for path in ("/many", "/few")]


def test_a_feed_has_its_past_in_the_report(tmp_path: Path) -> None:
    clock = Clock()
    run = RunContext(clock=clock)
    with serving({"/many": Answer(MANY), "/few": Answer(FEW)}) as site:
        aggregate(tmp_path, town(site), run=run)
        assert report(tmp_path)["few"]["change"] is None
        clock.time += timedelta(hours=8)
        site.answers["/many"] = Answer(b"<title>Group not found</title>", 404, etag=False)
        for number in (1, 2, 3):
            aggregate(tmp_path, town(site), run=run)
            told = report(tmp_path)["many"]
            assert (told["failures"], told["last_good"]) == (number, "2026-08-21T12:00:00Z")
            assert (told["error"], told["said"]) == ("HTTP 404", "Group not found")
            assert told["problem"] == 'HTTP 404, "Group not found"'
            assert (told["events"], told["change"]) == ((0, -10) if number == 3 else (10, 0))
            assert report(tmp_path)["few"]["last_good"] == "2026-08-21T20:00:00Z"
        site.answers["/many"] = Answer(MANY)
        aggregate(tmp_path, town(site), run=run)
        told = report(tmp_path)["many"]
        assert (told["failures"], told["events"], told["change"]) == (0, 10, 10)


def test_what_is_worst_comes_first(tmp_path: Path) -> None:
    with serving({"/many": Answer(MANY), "/few": Answer(FEW)}) as site:
        site.answers["/old"] = Answer(calendar(event("o", "Old")))
        site.answers["/odd"] = Answer(calendar(event("a", "A"), event("b", "B", "never")))
        paths = ["/few", "/odd", "/many", "/old", "/bad"]
        feeds = [site.url(path) for path in paths]
        aggregate(tmp_path, feeds)
        site.answers["/many"].body = FEW
        site.answers["/old"] = Answer(status=500, etag=False)
        aggregate(tmp_path, feeds)
    told = whole_report(tmp_path)
    assert [one["name"] for one in told["feeds"]] == ["bad", "old", "many", "odd", "few"]
    assert [one["level"] for one in told["feeds"]] == ["bad", "bad", "", "late", ""]
    assert [one["state"] for one in told["feeds"]][:2] == ["failed", "old events"]


def test_duplicates_are_counted_for_who_gave_and_who_took(tmp_path: Path) -> None:
    with serving({"/many": Answer(MANY), "/few": Answer(FEW)}) as site:
        aggregate(tmp_path, town(site))
    told = report(tmp_path)
    assert told["many"]["duplicates"] == {"given": 0, "taken": 1}
    assert told["few"]["duplicates"] == {"given": 1, "taken": 0}


def test_the_time_in_the_queue_is_not_that_of_a_feed(tmp_path: Path) -> None:
    """While the first feed is under way a hundred seconds pass; the second waits for its place."""
    clock, hold = Clock(), threading.Event()
    with serving({"/many": Answer(MANY, hold=hold), "/few": Answer(FEW)}) as site:

        def pass_time() -> None:
            while not site.asked:
                hold.wait(0.01)
            clock.time += timedelta(seconds=100)
            hold.set()

        passing = threading.Thread(target=pass_time)
        passing.start()
        settings = replace(LOCAL, limits=Limits(per_host=1))
        aggregate(tmp_path, town(site), run=RunContext(clock=clock), settings=settings)
        passing.join()
    told = report(tmp_path)
    assert told["many"]["duration"] == 100
    assert told["few"]["duration"] == 0
    assert set(told["many"]["seconds"]) == {"connect", "wait", "read", "parse"}


def test_a_city_that_loses_more_than_half_of_its_events_warns_until_it_has_them(
    tmp_path: Path,
) -> None:
    clock = Clock()

    def run(feeds: list[dict[str, str]]) -> list[str]:
        clock.time += timedelta(hours=8)
        warnings: list[str] = []
        aggregate(tmp_path, feeds, run=RunContext(clock=clock, warn=warnings.append))
        return warnings

    with serving({"/many": Answer(MANY), "/few": Answer(FEW)}) as site:
        assert run(town(site)) == []
        site.answers["/many"] = Answer(calendar())
        lost = ["lost more than half of its events: 2 now, 11 before"]
        assert run(town(site)) == run(town(site)) == lost
        site.answers["/many"] = Answer(MANY)
        assert run(town(site)) == []
        site.answers["/many"] = Answer(status=404)
        assert run(town(site)) == ["1 of 2 feeds failed"]


@pytest.mark.parametrize("changed", ["days", "private", "feeds"])
def test_a_city_that_asks_for_less_has_lost_nothing(tmp_path: Path, changed: str) -> None:
    warnings: list[str] = []
    run = RunContext(warn=warnings.append)
    private = [event(f"{n}@p", f"P{n}", "20260905", "CLASS:PRIVATE") for n in range(20)]
    with serving({"/many": Answer(MANY), "/private": Answer(calendar(*private))}) as site:
        feeds = [site.url("/many"), site.url("/private")]
        before: dict[str, Any] = {"feeds": feeds, "days": 90, "private": True}
        less: dict[str, Any] = {"feeds": feeds[:1], "days": 13, "private": False}
        now = {**before, changed: less[changed]}
        usual, fewer = (aggregate(tmp_path, run=run, **one)["events"] for one in (before, now))
        assert (fewer * 2 < usual, warnings) == (True, [])
        for path in site.answers:
            site.answers[path] = Answer(calendar())
        aggregate(tmp_path, run=run, **now)
        assert warnings == [f"lost more than half of its events: 0 now, {fewer} before"]


@pytest.mark.parametrize(
    ("before", "events", "warns", "after"),
    [
        (Level(), 0, False, Level(0)),
        (Level(), 9, False, Level(9)),
        (Level(10), 5, False, Level(5)),
        (Level(10), 4, True, Level(10, NOW)),
        (Level(1), 0, True, Level(1, NOW)),
        (Level(10, NOW - timedelta(days=6)), 3, True, Level(10, NOW - timedelta(days=6))),
        (Level(10, NOW - timedelta(days=7)), 3, False, Level(3)),
        (Level(10, NOW - timedelta(days=1)), 12, False, Level(12)),
    ],
)
def test_the_usual_number_of_events_follows_what_lasts(
    before: Level, events: int, *, warns: bool, after: Level
) -> None:
    level, warnings = level_of(before, events, NOW)
    assert (level, bool(warnings)) == (after, warns)


def test_a_loss_that_a_clock_noted_ahead_of_time_ends_a_week_from_now() -> None:
    now = datetime(2026, 8, 21, tzinfo=UTC)
    level, warnings = level_of(Level(100, now + timedelta(days=3_000)), 10, now)
    assert (level.lost_since, len(warnings)) == (now, 1)
    assert level_of(level, 10, now + timedelta(days=7)) == (Level(10), [])


ODD = {
    "DTSTART:20260902T180000\nDTEND;TZID=Europe/Berlin:20260902T190000": ["2026-09-02T16:00:00Z"],
    "DTSTART;VALUE=DATE:20260902T120000": ["2026-09-02T16:00:00Z"],
    "DTSTART:20260902T180000\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20260903T180000Z": [
        "2026-09-02T22:00:00Z"
    ],
    "DTSTART:20260902T180000\nRRULE:FREQ=DAILY;COUNT=2\nEXDATE:20260903T000000": [
        "2026-09-02T22:00:00Z"
    ],
    "DTSTART;VALUE=DATE:20260902\nRRULE:FREQ=DAILY;BYHOUR=9,10;COUNT=2": [
        "2026-09-02",
        "2026-09-03",
    ],
    "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE;BYSETPOS=1;COUNT=1": [
        "2026-09-02T18:00:00Z",
        "2026-09-07T18:00:00Z",
    ],
    "DTSTART;VALUE=DATE:20220920\nRRULE:FREQ=YEARLY;WKST=MO;INTERVAL=1;BYMONTHDAY=20": [
        "2026-09-20",
    ],
    "DTSTART:20260902T180000Z\nRRULE:FREQ=WEEKLY;BYDAY=WEDNESDAY;COUNT=2": [
        "2026-09-02T18:00:00Z",
        "2026-09-09T18:00:00Z",
    ],
}


def test_odd_feeds_have_other_events_only_by_another_parser() -> None:
    """Cached events are used as long as its number is the same: with a change here, raise it."""
    found = {
        lines: [one.start for one in read(calendar(f"UID:1\nSUMMARY:E\n{lines}")).occurrences]
        for lines in ODD
    }
    assert (PARSER, found) == (18, ODD)


def test_another_parser_reads_all_anew_and_keeps_what_is_known(tmp_path: Path) -> None:
    """Also the events of a feed that is down on that day."""
    with serving({"/many": Answer(MANY), "/few": Answer(FEW)}) as site:
        aggregate(tmp_path, town(site))
        cache = tmp_path / "town.cache.json"
        cache.write_text(cache.read_text().replace('"parser":"', '"parser":"0, '))
        site.answers["/many"] = Answer(status=500, etag=False)
        summary = aggregate(tmp_path, town(site))
    assert (summary["ok"], summary["failed"], summary["events"]) == (1, 1, 11)
    assert report(tmp_path)["many"]["failures"] == 1
