"""What is said of a record in a column, as JSON, and as an alarm."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from blackboard.display.columns import (
    ITEM_COLUMNS,
    OUTCOME_STYLES,
    ShownTimes,
    item_cells,
    percent,
    style_of,
    summary,
    warning_lines,
    worker_cells,
    worker_name,
)
from blackboard.display.health import alarms_of
from blackboard.display.layout import Style
from blackboard.model import NEVER, Item, Lock, Member, Outcome, QueuedRun, State, replace
from blackboard.protocol.members import lost_since, served_types
from blackboard.records import as_json, item_record, run_record, run_summary, worker_record
from blackboard.rules.status import ItemStatus
from blackboard.spec import DEEPEST, Labels
from tests.support.plans import RUN

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
ITEM = Item(
    id="davis",
    type="calendars",
    state=State.ACTIVE,
    spec="{}",
    slot=NOW + timedelta(hours=7),
    ready=NOW + timedelta(hours=7),
    planned=NOW + timedelta(hours=7),
    schedule="every 8h",
)
LOCK = Lock(
    id="davis",
    type="calendars",
    owner="host:1:a",
    nonce="n",
    fence=1,
    born=0,
    slot=NOW,
    since=NOW,
    stale_after=30.0,
    attempt=1,
    age=float("inf"),
)
MEMBER = Member(
    owner="host:1:a",
    started=NOW - timedelta(hours=3),
    seen=NOW - timedelta(minutes=20),
    slots=8,
    running=0,
    release="0.1.0",
    types="a,b",
)
RUNS: dict[str, Any] = {
    "running": True,
    "start": NOW - timedelta(minutes=2),
    "owner": "host:1:a",
    "fence": 1,
}


WARNS = ("lost half of it",)


def stands(
    lock: Lock | None = None,
    *,
    stale: bool = False,
    overdue: bool = False,
    silent: float | None = None,
    **item: Any,
) -> ItemStatus:
    return ItemStatus(replace(ITEM, **item), lock, stale=stale, overdue=overdue, silent=silent)


def cell(one: ItemStatus, title: str) -> tuple[str, Style]:
    number = [column.title for column in ITEM_COLUMNS].index(title)
    return item_cells(one, ShownTimes(NOW))[number]


@pytest.mark.parametrize(
    ("one", "title", "words", "style"),
    [
        (stands(), "next", "in 7h", Style.PLAIN),
        (stands(LOCK, silent=240.0, **RUNS), "running", "silent 4m", Style.LOST),
        (stands(LOCK, silent=240.0, stale=True, **RUNS), "running", "stale 2m", Style.LOST),
        (stands(ready=NOW), "next", "now", Style.PLAIN),
        (stands(ready=NOW + timedelta(seconds=9), attempt=2), "next", "retry in 9s", Style.PLAIN),
        (stands(ready=NOW, attempt=2), "next", "retry now", Style.PLAIN),
        (stands(ready=NOW - timedelta(hours=2), overdue=True), "next", "overdue 2h", Style.LATE),
        (stands(state=State.PAUSED), "next", "paused", Style.QUIET),
        (stands(**RUNS), "next", "-", Style.PLAIN),
        (stands(**RUNS, requests=(QueuedRun(name="a", slot=NOW),)), "next", "again", Style.PLAIN),
        (stands(**RUNS, state=State.PAUSED), "next", "paused", Style.QUIET),
        (stands(), "running", "-", Style.PLAIN),
        (stands(**RUNS), "running", "2m", Style.BUSY),
        (stands(replace(LOCK, progress="[1,4]"), **RUNS), "running", "2m 25%", Style.BUSY),
        (stands(LOCK, stale=True, **RUNS), "running", "stale 2m", Style.LOST),
        (stands(), "outcome", "-", Style.PLAIN),
        (stands(outcome=Outcome.OK), "outcome", "ok", Style.GOOD),
        (stands(outcome=Outcome.OK, warnings=WARNS, warned=1), "outcome", "warned", Style.LATE),
        (stands(outcome=Outcome.OK, warnings=WARNS, warned=3), "outcome", "warned x3", Style.LATE),
        (
            stands(outcome=Outcome.FAILED, failures=1, warnings=WARNS),
            "outcome",
            "failed",
            Style.BAD,
        ),
        (stands(outcome=Outcome.CANCELLED), "outcome", "cancelled", Style.QUIET),
        (stands(outcome=Outcome.FAILED, failures=1), "outcome", "failed", Style.BAD),
        (stands(outcome=Outcome.TIMEOUT, failures=3), "outcome", "timeout x3", Style.BAD),
        (stands(outcome=Outcome.OK, failures=1), "outcome", "abandoned", Style.BAD),
        (stands(schedule="", start=NOW, planned=NEVER), "schedule", "once", Style.PLAIN),
        (stands(schedule="", start=NOW), "schedule", "by handler", Style.PLAIN),  # of another type
        (
            stands(schedule="", start=NOW, planned=NEVER, attempt=2),
            "schedule",
            "by handler",
            Style.PLAIN,
        ),
        (stands(schedule=""), "schedule", "by handler", Style.PLAIN),
        (
            stands(schedule="at 2026-11-21T09:00:00+00:00"),
            "schedule",
            "at 2026-11-21 09:00Z",
            Style.PLAIN,
        ),
        (
            stands(schedule="at 2026-11-21T09:00:30.500000-08:00"),
            "schedule",
            "at 2026-11-21 09:00:30-08:00",
            Style.PLAIN,
        ),
        (
            stands(schedule="at 2026-11-21T09:00:00+01:00 (until 2026-12-31; not sat, hol[01-01])"),
            "schedule",
            "at 2026-11-21 09:00+01:00 (until 2026-12-31; not sat, hol)",
            Style.PLAIN,
        ),
        (
            stands(schedule=r"rrule DTSTART:20260101T090000\nRRULE:FREQ=DAILY"),
            "schedule",
            "rrule DTSTART:20260101T090000 RRULE:FREQ=DAILY",
            Style.PLAIN,
        ),
        (stands(schedule="at noon"), "schedule", "at noon", Style.PLAIN),
        (stands(), "worker", "-", Style.QUIET),
        (stands(owner="host:1:a"), "worker", "host:1", Style.QUIET),
        (stands(**RUNS), "worker", "host:1", Style.BUSY),
    ],
)
def test_words_and_colour_of_a_cell(one: ItemStatus, title: str, words: str, style: Style) -> None:
    assert cell(one, title) == (words, style)


@pytest.mark.parametrize(
    ("one", "style"),
    [
        (stands(), Style.PLAIN),
        (stands(LOCK, stale=True, failures=1, **RUNS), Style.LOST),
        (stands(failures=1, **RUNS), Style.BUSY),
        (stands(overdue=True, failures=1), Style.LATE),
        (stands(failures=1), Style.BAD),
        (stands(failures=1, state=State.PAUSED), Style.QUIET),
        (stands(state=State.DONE), Style.QUIET),
    ],
)
def test_the_colour_of_an_item_is_the_most_telling(one: ItemStatus, style: Style) -> None:
    assert style_of(one) is style


def test_every_outcome_has_a_colour() -> None:
    styles = [OUTCOME_STYLES[one] for one in Outcome]
    assert styles == [*(Style.GOOD, Style.BAD, Style.BAD), *[Style.LOST] * 2, Style.QUIET]


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        ([40, 100], "40%"),
        ([1, 3], "33%"),
        ([7, None], "7"),
        ([7, 0], "7"),
        ([0.5], "0.5"),
        ("half", ""),
        (None, ""),
        (["a", "b"], ""),
    ],
)
def test_progress_is_a_share_or_a_number(progress: Any, words: str) -> None:
    assert percent(progress) == words


@pytest.mark.parametrize(
    ("owner", "name"), [("host:1:a", "host:1"), ("me", "me"), ("", "-"), ("a:b:1:c", "a:b:1")]
)
def test_a_worker_goes_by_host_and_process(owner: str, name: str) -> None:
    assert worker_name(owner) == name


def test_the_summary_counts_what_matters() -> None:
    found = [
        stands(LOCK, stale=True, **RUNS),
        stands(**RUNS),
        stands(overdue=True, ready=NOW),
        stands(state=State.PAUSED, failures=2),
        stands(state=State.DONE),
    ]
    told = summary(found, total=1234, now=NOW)
    assert told == (
        "5 of 1,234 items, 1 running, 1 stale, 1 overdue, 1 failed, 1 paused, 1 done, next now"
    )
    assert summary([stands()], total=1, now=NOW) == "1 item, next in 7h"
    assert summary([], total=0, now=NOW) == "0 items"


def test_warnings_are_lines_below_the_board() -> None:
    quiet = stands(outcome=Outcome.FAILED, failures=1, warnings=WARNS)
    loud = stands(outcome=Outcome.OK, warnings=("a\x1b[31m", "b"))
    lines = [[text for text, _ in line] for line in warning_lines([quiet, stands(), loud])]
    assert lines == [["davis: a\\x1b[31m"], ["davis: b"]]
    assert [text for text, _ in warning_lines([loud] * 20)[-1]] == ["... and 30 warnings more"]
    assert summary([quiet, loud], total=2, now=NOW) == "2 items, 1 failed, 1 warned, next in 7h"
    assert item_record(loud, Labels()).warnings == ("a\x1b[31m", "b")


def test_a_lost_worker() -> None:
    lost = replace(MEMBER, types="", age=float("inf"))
    cells = [text for text, _ in worker_cells(lost, ShownTimes(NOW))]
    assert cells == ["host:1:a", "lost", "3h ago", "20m ago", "8", "0", "-", "0.1.0"]
    record = worker_record(lost)
    assert (record.alive, record.age, record.types) == (False, None, ())
    assert worker_record(replace(MEMBER, age=1.23456)).age == 1.235


def test_a_row_that_holds_no_json_is_shown_as_it_is() -> None:
    record = item_record(stands(spec="oops", result="{", paused="[1]"), Labels())
    assert (record.params, record.result, record.paused) == ({}, "{", None)


def test_a_result_is_as_deep_in_json_as_it_was_read() -> None:
    deep = "[" * DEEPEST + "]" * DEEPEST
    view = as_json([item_record(stands(result=deep, start=NOW), Labels())])
    assert (view[0]["start"], msgspec.json.encode(view[0]["result"]).decode()) == (
        "2026-11-21T09:00:00.000Z",
        deep,
    )


def test_lag_and_duration_are_seconds() -> None:
    run = replace(
        RUN,
        start=NOW,
        stop=NOW + timedelta(seconds=1.5),
        lag=0.25,
        note='{"by":"ann","at":"2026-11-21T09:00:00.25Z"}',
        output="printed",
    )
    view = as_json(run_summary(run))
    assert (view["lag"], view["duration"], view["stop"]) == (0.25, 1.5, "2026-11-21T09:00:01.500Z")
    assert view["note"] == {"by": "ann", "at": "2026-11-21T09:00:00.250Z", "reason": ""}
    assert view.keys() < as_json(run_record(run)).keys()
    assert as_json(run_record(run))["output"] == "printed"


@pytest.mark.parametrize(
    ("one", "alarms"),
    [
        (stands(), []),
        (stands(overdue=True, ready=NOW - timedelta(hours=2)), [("overdue", "ready for 2h")]),
        (
            stands(LOCK, stale=True, **RUNS),
            [("stale", "host:1:a has not renewed its lock since before this host was started")],
        ),
        (
            stands(replace(LOCK, age=90.0), stale=True, **RUNS),
            [("stale", "host:1:a has not renewed its lock for 1m 30s")],
        ),
        (stands(failures=2), [("failing", "2 failures in a row")]),
        (stands(failures=2, state=State.PAUSED), []),
        (
            stands(failures=1, error="ValueError: x\nTraceback", state=State.DONE),
            [("failing", "1 failure in a row: ValueError: x")],
        ),
        (
            stands(failures=1, outcome=Outcome.CANCELLED, error="the worker is stopping"),
            [("failing", "1 failure in a row; the last run was cancelled: the worker is stopping")],
        ),
        (
            stands(replace(LOCK, age=90.0), stale=True, state=State.PAUSED, **RUNS),
            [("stale", "host:1:a has not renewed its lock for 1m 30s")],
        ),
    ],
)
def test_what_is_alarming(one: ItemStatus, alarms: list[tuple[str, str]]) -> None:
    present = [replace(MEMBER, owner="fox:8:d", types="calendars", age=1.0)]
    served, lost = served_types(present), lost_since(present)
    told = alarms_of(one, None, served=served, lost=lost, now=NOW)
    assert [(alarm.kind, alarm.problem) for alarm in told] == alarms


@pytest.mark.parametrize(
    ("one", "alarms"),
    [
        (stands(ready=NOW + timedelta(hours=2)), []),
        (
            stands(ready=NOW - timedelta(seconds=20)),
            [("unserved", "ready for 20s, and no live worker takes calendars")],
        ),
        (
            stands(overdue=True, ready=NOW - timedelta(hours=2)),
            [("overdue", "ready for 2h, and no live worker takes calendars")],
        ),
        (stands(replace(LOCK, age=90.0), **RUNS), [("silent", "host:1:a was last seen 4m ago")]),
        (
            stands(replace(LOCK, age=90.0), stale=True, **RUNS),
            [("stale", "host:1:a has not renewed its lock for 1m 30s")],
        ),
        (stands(state=State.PAUSED, ready=NOW - timedelta(seconds=20)), []),
    ],
)
def test_what_is_alarming_where_the_one_worker_is_silent(
    one: ItemStatus, alarms: list[tuple[str, str]]
) -> None:
    present = [replace(MEMBER, types="calendars", age=240.0)]
    served, lost = served_types(present), lost_since(present)
    told = alarms_of(one, None, served=served, lost=lost, now=NOW)
    assert [(alarm.kind, alarm.problem) for alarm in told] == alarms
