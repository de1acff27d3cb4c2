"""The coordinates of the pictures."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest

from blackboard.model import Outcome, Run, replace
from blackboard.web.charts import (
    LEAST_BAR,
    LEAST_ROW,
    MOST_LANES,
    MOST_MARKS,
    MOST_ROWS,
    WIDTH,
    HeatCell,
    axis,
    duration_bars,
    heat_map,
    numbers_of,
    percentile,
    spans_of,
    sparkline,
    timeline,
)
from tests.support.plans import RUN

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
HOWE = ZoneInfo("Australia/Lord_Howe")
KOLKATA = ZoneInfo("Asia/Kolkata")


def run(
    item_id: str = "davis",
    *,
    ago: float = 0.0,
    took: float = 10.0,
    outcome: str = "ok",
    lag: float = 1.0,
    worker: str = "host:1:a",
    fence: int = 1,
    stop: datetime | None = None,
) -> Run:
    """A run that stopped so many seconds ago."""
    stop = stop or NOW - timedelta(seconds=ago)
    start = stop - timedelta(seconds=took)
    return replace(
        RUN,
        id=item_id,
        fence=fence,
        slot=start,
        start=start,
        stop=stop,
        lag=lag,
        outcome=Outcome(outcome),
        worker=worker,
    )


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "until", "zone", "marks"),
    [
        ("2026-11-21T08:00", "2026-11-21T09:00", UTC, "08:15 08:30 08:45"),
        ("2026-11-21T08:07", "2026-11-21T08:08", UTC, "08:07:15 08:07:30 08:07:45"),
        ("2026-11-21T08:00", "2026-11-21T11:00", KOLKATA, "14:00 14:30 15:00 15:30 16:00"),
        ("2026-11-21T21:00", "2026-11-22T03:00", UTC, "22:00 23:00 00:00* 01:00 02:00"),
        # Put forward: 02:00 to 03:00 is never shown.
        (
            "2026-03-29T00:00",
            "2026-03-29T02:00",
            BERLIN,
            "01:15 01:30 01:45 03:00 03:15 03:30 03:45",
        ),
        ("2026-03-29T10:30", "2026-03-29T22:30", BERLIN, "14:00 16:00 18:00 20:00 22:00 00:00*"),
        # Put back: 02:00 to 03:00 is shown twice.
        (
            "2026-10-25T00:00",
            "2026-10-25T02:00",
            BERLIN,
            "02:15 02:30 02:45 02:00 02:15 02:30 02:45",
        ),
        ("2026-10-25T10:30", "2026-10-25T22:30", BERLIN, "12:00 14:00 16:00 18:00 20:00 22:00"),
        # By half an hour: 01:30 to 02:00 is shown twice.
        ("2026-04-04T14:00", "2026-04-04T16:00", HOWE, "01:15 01:30 01:45 01:30 01:45 02:00 02:15"),
        ("2026-11-14T09:00", "2026-11-21T09:00", UTC, "00:00* " * 7),
        ("2026-10-20T09:00", "2026-10-27T09:00", BERLIN, "00:00* " * 7),
    ],
)
def test_marks_of_an_axis(since: str, until: str, zone: tzinfo, marks: str) -> None:
    begin, end = utc(since), utc(until)
    found = axis(begin, end, zone)
    shown = [
        one.at.strftime("%H:%M:%S" if one.at.second else "%H:%M") + "*" * one.is_day
        for one in found
    ]
    wanted = marks.split()
    assert shown == wanted
    assert [one.x for one in found] == sorted({one.x for one in found})
    for one in found:
        share = (one.at.astimezone(UTC) - begin) / (end - begin)
        assert one.x == pytest.approx(share * WIDTH, abs=0.01)


@pytest.mark.parametrize("zone", [UTC, BERLIN, HOWE, KOLKATA, ZoneInfo("Pacific/Apia")])
def test_any_axis_has_some_marks_within_it(zone: tzinfo) -> None:
    for day in ("2026-03-29", "2026-10-25", "2026-04-04", "2011-12-30", "2026-07-01"):
        for hours in (1 / 60, 0.25, 1, 3, 6, 12, 24, 72, 168, 744):
            for minutes in (0, 47, 600):
                since = utc(f"{day}T00:00") + timedelta(minutes=minutes)
                found = axis(since, since + timedelta(hours=hours), zone)
                assert 1 <= len(found) <= MOST_MARKS + 6, (day, hours)
                assert all(0 < one.x < WIDTH for one in found)


def test_heat_by_the_hours_of_a_zone() -> None:
    runs = [run(ago=60), run(ago=120, outcome="failed"), run(ago=86_400), run(ago=99 * 86_400)]
    found = heat_map(runs, until=NOW, days=3)
    assert [one.day.day for one in found] == [21, 20, 19]
    assert [(one.runs, one.failed) for one in found] == [(2, 1), (1, 0), (0, 0)]
    assert [cell.since.hour for cell in found[0].cells if cell.runs] == [8]
    assert [cell.since.hour for cell in found[1].cells if cell.runs] == [9]
    away = heat_map(runs, until=NOW, days=3, zone=ZoneInfo("Pacific/Auckland"))
    assert [hour for hour, cell in enumerate(away[0].cells) if cell.runs] == [21]


def test_the_hour_that_is_shown_twice() -> None:
    twice = [run(stop=utc("2026-10-25T00:30")), run(stop=utc("2026-10-25T01:30"))]
    (day,) = heat_map(twice, until=utc("2026-10-25T20:00"), days=1, zone=BERLIN)
    assert day.runs == 2
    cell = day.cells[2]
    assert (cell.since, cell.until) == (utc("2026-10-25T00:00"), utc("2026-10-25T02:00"))
    assert day.cells[3].since == cell.until
    (day,) = heat_map([], until=utc("2026-03-29T20:00"), days=1, zone=BERLIN)
    assert all(one.until >= one.since for one in day.cells)
    assert len(day.cells) == 24


@pytest.mark.parametrize(
    ("runs", "failed", "level"),
    [
        (0, 0, 0),
        (9, 0, 1),
        (9, 1, 2),
        (4, 1, 3),
        (4, 2, 4),
        (4, 3, 4),
        (99, 98, 4),
        (4, 4, 5),
        (1, 1, 5),
    ],
)
def test_levels_of_heat(runs: int, failed: int, level: int) -> None:
    assert HeatCell(since=NOW, until=NOW, runs=runs, failed=failed).level == level


def test_rows_of_a_timeline() -> None:
    since = NOW - timedelta(hours=1)
    runs = [
        run("b", ago=1800, took=900),
        run("a", ago=0, took=7200, fence=2, outcome="failed", worker="host:2:b"),
        run("a", ago=7200),
        run("c", ago=3600, took=1),
    ]
    picture = timeline(spans_of(runs), since=since, until=NOW, by="item")
    assert [one.name for one in picture.rows] == ["a", "b", "c"]
    assert [one.y for one in picture.rows] == [0.0, LEAST_ROW, 2.0 * LEAST_ROW]
    whole, quarter, short = (one.bars[0] for one in picture.rows)
    assert (whole.x, whole.width, whole.style) == (0.0, WIDTH, "bad")
    assert (quarter.x, quarter.width) == (250.0, 250.0)
    assert (short.x, short.width) == (0.0, LEAST_BAR)
    by = timeline(spans_of(runs), since=since, until=NOW, by="worker")
    assert [one.name for one in by.rows] == ["host:1", "host:2"]
    none = timeline([], since=since, until=NOW, by="item")
    assert (none.rows, none.height, none.left_out) == ([], LEAST_ROW, 0)
    many = spans_of([run(f"i{n:03d}", ago=n) for n in range(MOST_ROWS + 5)] + [run("z"), run("z")])
    drawn = timeline(many, since=since, until=NOW, by="item")
    assert (len(drawn.rows), drawn.left_out) == (MOST_ROWS, 6)
    assert drawn.rows[-1].name == "z"


def test_runs_at_the_same_time_lie_below_each_other() -> None:
    since = NOW - timedelta(hours=1)
    runs = [run(f"i{n}", ago=600 - 60 * n, took=300) for n in range(4)]  # each begins 60 s later
    runs += [run("late", ago=0, took=100), run("other", ago=0, worker="host:2:b")]
    row, other = timeline(spans_of(runs), since=since, until=NOW, by="worker").rows
    assert (row.lanes, [bar.id for bar in row.bars]) == (4, ["i0", "i1", "i2", "i3", "late"])
    assert [bar.y for bar in row.bars] == [4.0, 12.0, 20.0, 28.0, 4.0]
    assert all(bar.y + bar.height < row.height for bar in row.bars)
    assert (other.y, other.height, other.lanes) == (row.height, LEAST_ROW, 1)
    many = spans_of([run(f"i{n}", took=300) for n in range(50)])
    (row,) = timeline(many, since=since, until=NOW, by="worker").rows
    assert (row.lanes, len(row.bars)) == (MOST_LANES, 50)


def test_the_style_sheet_has_the_height_of_each_row() -> None:
    """The names beside a timeline are no part of its picture."""
    sheet = (files("blackboard.web") / "static" / "app.css").read_text()
    for lanes in range(1, MOST_LANES + 1):
        runs = spans_of([run(f"i{n}", took=300) for n in range(lanes)])
        (row,) = timeline(runs, since=NOW - timedelta(hours=1), until=NOW, by="worker").rows
        is_least = row.height == LEAST_ROW
        rule = (
            ".names a { display: block; height:" if is_least else f".names .lanes{lanes} {{ height:"
        )
        assert f"{rule} {row.height:g}px;" in sheet, lanes


def test_bars_of_durations() -> None:
    bars = duration_bars([run(took=5, fence=2), run(took=10, fence=1)])
    assert [(one.fence, one.height, one.y) for one in bars] == [(1, 90.0, 0.0), (2, 45.0, 45.0)]
    assert bars[0].x < bars[1].x
    assert duration_bars([]) == []
    (still,) = duration_bars([run(took=0)])
    assert still.height == LEAST_BAR
    wide = duration_bars([run()] * 100)
    assert wide[-1].x + wide[-1].width <= WIDTH


@pytest.mark.parametrize(
    ("values", "points"),
    [
        ([], ""),
        ([0], "0.0,9.0"),
        ([1, 2], "0.0,5.0 10.0,1.0"),
        ([-1, 1], "0.0,9.0 10.0,1.0"),
        ([-1], "0.0,9.0"),
        ([0, 0, 0], "0.0,9.0 5.0,9.0 10.0,9.0"),
    ],
)
def test_points_of_a_sparkline(values: Sequence[float], points: str) -> None:
    assert sparkline(values, width=10, height=10) == points


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [
        ([], 50, 0.0),
        ([7], 1, 7),
        ([7], 99, 7),
        ([1, 2], 50, 1),
        ([1, 2, 3], 50, 2),
        ([1, 2, 3], 0, 1),
        ([1, 2, 3], 100, 3),
        (range(1, 101), 99, 99),
        (range(1, 102), 99, 100),
    ],
)
def test_percentiles(values: Sequence[float], percent: int, found: float) -> None:
    assert percentile(values, percent) == found


def test_numbers_of_runs() -> None:
    assert numbers_of([]).success is None
    found = numbers_of(
        [run(took=1), run(took=3, outcome="failed"), run(took=9, outcome="cancelled", lag=5)]
    )
    assert (found.runs, found.good, found.success) == (2, 1, 0.5)
    assert (found.duration_p50, found.duration_p99) == (3.0, 9.0)
    assert (found.lag_p50, found.lag_p99) == (1.0, 5.0)
    assert numbers_of([run(outcome="cancelled")]).success is None
