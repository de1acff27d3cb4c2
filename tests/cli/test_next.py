"""`next`: the times of a schedule, and of items: the pending run first, then the slots after it."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest

from blackboard.cli import next as next_
from blackboard.display import item_queries
from blackboard.model import Item, State, replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import item_key
from blackboard.protocol.status import count, write_statistics
from blackboard.rules.upcoming import upcoming
from blackboard.schedule.schedule import parse_schedule
from blackboard.schedule.words import NOT_KNOWN
from blackboard.spec import RunSettings
from blackboard.table import ANY, Merge
from tests.cli.command_line import CommandLine, blackboard

pytestmark = pytest.mark.of_one_store("times are computed above the store")

__all__ = ["blackboard"]


@pytest.mark.parametrize(
    ("args", "times"),
    [
        (
            ["--cron", "0 9 * * *", "--after", "2026-11-21T09:00:00Z", "-n", "2"],
            ["2026-11-22T09:00:00.000Z", "2026-11-23T09:00:00.000Z"],
        ),
        (
            [
                "--cron",
                "30 2 * * *",
                "--tz",
                "Europe/Berlin",
                "--after",
                "2027-03-27T00:00",
                "-n",
                "2",
            ],
            ["2027-03-27T01:30:00.000Z", "2027-03-28T01:00:00.000Z"],
        ),
        (
            ["--every", "8h", "--after", "2026-11-21T09:00:00.5Z", "-n", "2"],
            ["2026-11-21T17:00:00.500Z", "2026-11-22T01:00:00.500Z"],
        ),
        (
            [
                *("--rrule", "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "-n", "1"),
                *("--timezone", "America/New_York", "--after", "2026-11-21T00:00:00Z"),
            ],
            ["2026-11-23T14:00:00.000Z"],
        ),
        (["--at", "2026-11-21T09:00", "--after", "2026-11-01"], ["2026-11-21T09:00:00.000Z"]),
        (["--at", "2026-11-21T09:00", "--after", "2026-11-22"], []),
        (
            [
                *("--cron", "0 9 * * *", "--after", "2026-11-20T12:00Z"),
                *("--blackout", "sat-sun, holidays", "--until", "2026-11-25"),
            ],
            ["2026-11-24T09:00:00.000Z", "2026-11-25T09:00:00.000Z"],
        ),
        (
            ["--every", "8h", "--after", "2026-11-21T09:00Z", "--max-runs", "1"],
            ["2026-11-21T17:00:00.000Z"],
        ),
    ],
)
def test_the_times_of_a_schedule(
    blackboard: CommandLine, args: list[str], times: list[str]
) -> None:
    blackboard.write('[calendars]\nholidays = ["11-23"]\n')
    assert blackboard("next", *args, "--json").json == times


def test_a_glob_has_an_object_however_many_items_it_means(blackboard: CommandLine) -> None:
    blackboard("add", "k1", "--type", "feed", "--every", "8h")
    assert isinstance(blackboard("next", "k1", "--json").json, list)
    assert blackboard("next", "k*", "--json").json.keys() == {"k1"}


def test_programs_get_the_items_and_times_of_the_table(blackboard: CommandLine) -> None:
    """A list for one id alone; else an object, also where an id is given twice."""
    blackboard("add", "k1", "k2", "--type", "feed", "--every", "8h", "--first", "2035-01-01")
    blackboard("pause", "k1")
    times = ["2035-01-01T00:00:00.000Z", "2035-01-01T08:00:00.000Z"]
    said = blackboard("next", "k1", "k2", "-n", "2")
    brief = [one.replace(".000", "") for one in times]
    assert re.findall(r"(?m)^k\d|\S+Z$", said.out) == ["k1", *brief, "k2", *brief]
    assert "k1: paused, every 8 hours, if it is resumed now" in said.out
    assert blackboard("next", "k1", "k2", "-n", "2", "--json").json == {"k1": times, "k2": times}
    assert blackboard("next", "k1", "k1", "-n", "2", "--json").json == {"k1": times}
    assert blackboard("next", "k1", "-n", "2", "--json").json == times


def test_five_times_from_now_by_default(blackboard: CommandLine) -> None:
    times = blackboard("next", "--cron", "* * * * *", "--json").json
    assert len(times) == 5
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:00\.000Z", one) for one in times)


def test_people_get_words_wall_time_and_utc(blackboard: CommandLine) -> None:
    said = blackboard(
        *("next", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "-n", "1"),
        *("--after", "2026-11-21T09:00Z"),
    )
    assert said.out.splitlines() == [
        "at 03:00 every day (Europe/Berlin)",
        "  Sun 2026-11-22 03:00:00 CET     2026-11-22T02:00:00Z",
    ]
    never = blackboard("next", "--at", "2026-11-21T09:00", "--after", "2026-11-22").out
    assert never.splitlines()[1] == "  never again"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["a", "--every", "8h"], "next: "),
        (["--every", "8h", "--cron", "@daily"], "cron: "),
        (["--cron", "0 0 31 2 *"], "cron: "),
        (["--every", "8"], "every: "),
        (["--rrule", "x"], "rrule: "),
        (["--every", "8h", "--tz", "Mars"], "timezone: "),
        (["--blackout", "sat"], "blackout: it needs a schedule"),
        (["a", "--tz", "UTC"], "timezone: it needs a schedule"),
        (["--every", "8h", "--after", "soon"], "after: "),
        (["--every", "8h", "-n", "0"], "Invalid value for '-n'"),
    ],
)
def test_bad_input_is_refused(blackboard: CommandLine, args: list[str], problem: str) -> None:
    assert blackboard.refused("next", *args).startswith(problem)


def test_without_arguments_the_next_runs_of_the_board_are_shown(blackboard: CommandLine) -> None:
    add = ("add", "--type", "calendars", "--first")
    blackboard(*add, "2035-01-01T00:00:00Z", "davis", "--every", "8h")
    blackboard(*add, "2035-01-01T03:00:00Z", "keene", "--every", "6h")
    blackboard(*add, "2035-01-01T01:00:00Z", "once")
    blackboard(*add, "2035-01-01T00:30:00Z", "paused", "--every", "1h")
    blackboard("pause", "paused")
    said = blackboard("next", "-n", "6", "--json").json
    assert [(one["at"][11:16], one["id"]) for one in said] == [
        ("00:00", "davis"),
        ("01:00", "once"),
        ("03:00", "keene"),
        ("08:00", "davis"),
        ("09:00", "keene"),
        ("15:00", "keene"),
    ]
    lines = blackboard("next", "-n", "2", "--after", "2035-01-01T08:00:00Z").out.splitlines()
    assert [line.split()[0:2] + line.split()[-2:] for line in lines] == [
        ["2035-01-01", "09:00:00Z", "keene", "(calendars)"],
        ["2035-01-01", "15:00:00Z", "keene", "(calendars)"],
    ]


@pytest.mark.of_each_store
def test_the_next_runs_of_the_board_are_those_of_its_items(blackboard: CommandLine) -> None:
    """What runs has no run before `--after`; what waits for the end of a blackout is not due now,
    and a time that was missed is passed over.
    """
    now, hours = datetime.now(UTC), timedelta(hours=2)
    blackboard("add", "closed", "runs", "--type", "calendars", "--every", "8h")
    blackboard("edit", "closed", "--blackout", f"{now - hours:%H:%M}-{now + hours:%H:%M}")
    blackboard("add", "missed", "--type", "calendars", "--cron", "0 3 * * *", "--missed", "none")
    blackboard.set_back("missed", timedelta(days=2))
    blackboard.start("runs")
    for after in ((), ("--after", "in 3d")):
        for item_id in ("closed", "missed", "runs"):
            of_item = blackboard("next", item_id, "-n", "3", "--json", *after).json
            of_board = blackboard("next", "-n", "100", "--json", *after).json
            times = [one["at"] for one in of_board if one["id"] == item_id]
            assert times[:3] == of_item[: len(times)], (item_id, after)
            assert times


def test_the_next_runs_of_the_board_go_by_the_calendars_of_now(blackboard: CommandLine) -> None:
    """And not by those by which their items were planned."""
    blackboard.write('[calendars]\nhol = ["2034-01-01"]\n')
    add = ("add", "--type", "x", "--blackout", "hol", "--first", "2035-01-01T04:00Z")
    blackboard(*add, "closed", "--cron", "0 4 * * *")
    blackboard("add", "open", "--type", "x", "--first", "2035-01-01T05:00Z")
    blackboard.write('[calendars]\nhol = ["2035-01-01..2035-01-03"]\n')
    coming = blackboard("next", "-n", "2", "--json").json
    of_item = blackboard("next", "closed", "-n", "1", "--json").json
    assert [one["id"] for one in coming] == ["open", "closed"]
    assert [coming[1]["at"]] == of_item


@pytest.mark.parametrize(
    ("options", "are_few"),
    [
        (("-n", "3"), True),
        (("-n", "8"), True),
        (("-n", "3", "--after", "2035-01-01T00:30Z"), True),
        (("-n", "3", "--after", "2035-01-01T12:00Z"), False),
        (("-n", "11"), False),
    ],
)
def test_of_a_large_board_few_items_are_read_for_the_same_next_runs(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, options: list[str], *, are_few: bool
) -> None:
    """Also where the first to be ready are closed then, run now, or cannot be read."""
    add = ("add", "--type", "calendars", "--first")
    for hour in range(14):
        blackboard(*add, f"2035-01-01T{hour:02}:00:00Z", f"item-{hour:02}", "--every", "5h")
    blackboard("edit", "item-00", "--blackout", "00:00-05:30")
    blackboard(*add, "2035-01-01T04:00:00Z", "odd: ä", "a", "a-b", "--every", "8h")
    blackboard("add", "runs", "--type", "calendars", "--every", "400d")
    blackboard("add", "bad", "--type", "calendars", "--first", "2035-01-01T01:00:00Z")
    blackboard.start("runs")
    bad = Merge(item_key("bad"), {"state": "soon"}, ANY)

    async def counted(board: BoardTable) -> None:
        assert await write_statistics(board, await count(board))
        await board.table.commit(board.partition("bad"), [bad])

    blackboard.on_board(counted)
    whole = blackboard("next", "--json", *options)
    readings: list[str] = []
    items = BoardTable.items

    def reads_all(board: BoardTable, **how: Any) -> AsyncIterator[Item]:
        readings.append(board.name)
        return items(board, **how)

    monkeypatch.setattr("blackboard.protocol.status.LARGE", 12)
    monkeypatch.setattr(item_queries, "ONE_BY_ONE", 12)
    monkeypatch.setattr(next_, "SPARE", 2)
    monkeypatch.setattr(BoardTable, "items", reads_all)
    assert blackboard("next", "--json", *options).json == whole.json
    assert bool(readings) is not are_few


@pytest.mark.of_each_store
def test_of_a_large_board_on_which_many_run_all_items_are_read_at_once(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read one by one those that run would take a request for each."""
    blackboard("add", "a", "b", "c", "d", "--type", "calendars", "--every", "1h")
    blackboard.start("a")
    blackboard.start("b")

    async def counted(board: BoardTable) -> None:
        assert await write_statistics(board, await count(board))

    async def refused(board: BoardTable, item_id: str) -> Item | None:
        raise AssertionError(item_id)

    blackboard.on_board(counted)
    monkeypatch.setattr("blackboard.protocol.status.LARGE", 3)
    monkeypatch.setattr(next_, "SPARE", 0)
    monkeypatch.setattr(BoardTable, "item", refused)
    assert len(blackboard("next", "-n", "1", "--json").json) == 1


def test_a_board_without_active_items_has_no_next_runs(blackboard: CommandLine) -> None:
    blackboard("init")
    assert blackboard("next").out == "nothing is due: no item of the board is active\n"


def test_an_item_is_told_from_its_ready_time_on(blackboard: CommandLine) -> None:
    blackboard(
        *("add", "davis", "--type", "calendars", "--every", "8h"),
        *("--first", "2035-01-01T00:00:00Z"),
    )
    blackboard("add", "other", "--type", "calendars", "--first", "2035-01-01T00:00:00Z")
    times = ["2035-01-01T00:00:00.000Z", "2035-01-01T08:00:00.000Z"]
    assert blackboard("next", "davis", "-n", "2", "--json").json == times
    assert blackboard("next", "*", "-n", "2", "--json").json == {
        "davis": times,
        "other": ["2035-01-01T00:00:00.000Z"],
    }
    assert blackboard("next", "davis", "other", "-n", "1").out.splitlines() == [
        "davis: active, every 8 hours",
        "  Mon 2035-01-01 00:00:00 UTC     2035-01-01T00:00:00Z",
        f"other: active, schedule {NOT_KNOWN}",
        "  Mon 2035-01-01 00:00:00 UTC     2035-01-01T00:00:00Z",
    ]
    later = blackboard("next", "davis", "--after", "2035-01-02", "-n", "1", "--json").json
    assert later == ["2035-01-02T08:00:00.000Z"]


def test_a_time_without_an_offset_is_in_the_zone_of_each_item(blackboard: CommandLine) -> None:
    for name, zone in (("davis", "America/Los_Angeles"), ("keene", "America/New_York")):
        blackboard("add", name, "--type", "x", "--cron", "0 9 * * *", "--tz", zone)
    after = ("-n", "1", "--json", "--after")
    times = {"davis": ["2035-01-03T17:00:00.000Z"], "keene": ["2035-01-03T14:00:00.000Z"]}
    assert blackboard("next", "*", *after, "2035-01-02T09:00").json == times
    assert blackboard("next", "davis", *after, "2035-01-02T17:00Z").json == times["davis"]
    [first] = blackboard("next", *after, "2035-01-03T15:00").json
    assert (first["id"], first["at"]) == ("davis", *times["davis"])


def test_a_schedule_unknown_here_is_told_as_it_was_last_known(blackboard: CommandLine) -> None:
    blackboard.write('[types.feed]\nevery = "8h"\n')
    blackboard("add", "a", "--type", "feed", "--first", "2035-01-01T00:00:00Z")
    (blackboard.folder / "blackboard.toml").unlink()
    times = blackboard("next", "a", "-n", "2", "--json").json
    assert times == ["2035-01-01T00:00:00.000Z", "2035-01-01T08:00:00.000Z"]


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WAITING = Item(id="a", type="t", state=State.ACTIVE, spec="{}", slot=NOON, ready=NOON, planned=NOON)


def hours(*numbers: float) -> list[datetime]:
    return [NOON + number * HOUR for number in numbers]


@pytest.mark.parametrize(
    ("case", "schedule", "columns", "now", "after", "expected"),
    [
        ("waiting", "every 2h", {}, -1, None, hours(0, 2, 4)),
        ("overdue", "every 2h", {}, 3, None, hours(0, 5, 7)),
        ("later", "every 2h", {}, -1, 5, hours(6, 8, 10)),
        ("running", "every 2h", {"running": True, "start": NOON}, 1, None, hours(2, 4, 6)),
        ("retry", "every 2h", {"ready": NOON + HOUR, "attempt": 2}, 0, None, hours(1, 3, 5)),
        ("cron", "cron 0 * * * *", {}, -1, None, hours(0, 1, 2)),
        ("cron, overdue", "cron 0 * * * *", {}, 2.5, None, hours(0, 3, 4)),
        ("cron, later", "cron 0 * * * *", {}, -1, 5.5, hours(6, 7, 8)),
        (
            "cron, running",
            "cron 0 * * * *",
            {"running": True, "start": NOON},
            0,
            None,
            hours(1, 2, 3),
        ),
        ("asked for", "cron 0 */6 * * *", {"planned": NOON + 6 * HOUR}, 0, None, hours(0, 6, 12)),
        (
            "asked for, later",
            "cron 0 */6 * * *",
            {"planned": NOON + 6 * HOUR},
            0,
            6,
            hours(12, 18, 24),
        ),
        ("paused", "every 2h", {"state": State.PAUSED}, -1, None, hours(0, 2, 4)),
        ("once", "at 2026-11-21T12:00:00+00:00", {}, -1, None, hours(0)),
        ("no schedule", None, {}, -1, None, hours(0)),
        ("no schedule, running", None, {"running": True}, 0, None, []),
        ("done", "every 2h", {"state": State.DONE}, 0, None, []),
    ],
)
def test_the_times_of_an_item(
    *,
    case: str,
    schedule: str | None,
    columns: dict[str, Any],
    now: float,
    after: float | None,
    expected: list[datetime],
) -> None:
    found = upcoming(
        replace(WAITING, **columns),
        RunSettings(schedule=parse_schedule(schedule) if schedule else None),
        now=NOON + now * HOUR,
        after=None if after is None else NOON + after * HOUR,
    )
    assert list(islice(found, 3)) == expected


def test_the_part_of_the_jitter_is_in_all_times(blackboard: CommandLine) -> None:
    blackboard("add", "full", "--type", "x", "--cron", "0 9 * * *", "--jitter", "30m")
    times = [datetime.fromisoformat(one) for one in blackboard("next", "full", "--json").json]
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(days=1)}
    assert times[0].time() != time(9)
    after = blackboard("next", "full", "--after", times[1].isoformat(), "--json").json
    assert datetime.fromisoformat(after[0]) == times[2]
    earlier = times[1] - timedelta(seconds=1)
    after = blackboard("next", "full", "--after", earlier.isoformat(), "--json").json
    assert datetime.fromisoformat(after[0]) == times[1]


def test_an_item_whose_times_cannot_be_computed_keeps_no_other_from_being_shown(
    blackboard: CommandLine,
) -> None:
    blackboard.write('[calendars]\nhol = ["01-01"]\n')
    blackboard("add", "full", "--type", "x", "--cron", "0 9 * * *", "--blackout", "hol")
    blackboard("add", "other", "--type", "x", "--every", "1h")
    blackboard.write("")
    said = blackboard("next", "-n", "50", "--json")
    assert {one["id"] for one in said.json} == {"full", "other"}, "what waits is on the board"
    assert "full: there is no calendar 'hol'" in said.err
    assert blackboard.refused("next", "full").startswith("blackout: full: there is no calendar")
    assert "there is no calendar 'hol'" in blackboard("why", "full").out
