"""`blackboard log`: the runs of items, newest first."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blackboard.cli import log
from blackboard.clock import SystemClock
from blackboard.display.layout import measure, text_of
from blackboard.display.run_queries import RunQuery, items_with_history, newest_runs
from blackboard.model import Item, LogLine, Mark, Outcome, Run, replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import run_now, unlock
from blackboard.protocol.keys import item_key, run_key
from blackboard.protocol.rows import data_of
from blackboard.table import ANY, Insert, Merge, Op, Replace, Unavailable, Unusable
from tests.cli.command_line import CommandLine, Said, blackboard
from tests.support.clocks import START
from tests.support.patience import patience
from tests.support.plans import RUN
from tests.support.processes import eventually, own_environ, whole_lines
from tests.support.terminals import terminal

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store(
    "how runs are chosen and shown does not depend on the store: test_odd_ids.py reads them on each"
)

KEYS = (
    *("id", "type", "due", "start", "stop", "lag", "duration", "outcome", "worker", "fence"),
    *("attempt", "result", "error"),
)
ERROR = "ValueError: no calendar\nTraceback (most recent call last):\n  in aggregate"


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    """In this order: davis ok, keene failed, davis ok again, dayton timed out, backup ok."""
    blackboard("init")
    blackboard("add", "davis", "keene", "dayton", "--type", "calendars", "--every", "8h")
    blackboard("add", "backup", "--type", "shell", "--every", "1h")
    run(blackboard, "davis", result={"events": 1}, output="fetching\nparsed\n")
    run(blackboard, "keene", Outcome.FAILED, error=ERROR, output="half\x1b[2J\tdone")
    run(blackboard, "davis", result={"events": 2})
    run(blackboard, "dayton", Outcome.TIMEOUT, error="it ran longer than 10m")
    run(blackboard, "backup")
    return blackboard


def run(towns: CommandLine, item_id: str, outcome: Outcome = Outcome.OK, **ended: Any) -> None:
    towns("run", item_id)
    towns.finish(towns.start(item_id), outcome, **ended)


def told(said: Said) -> list[tuple[str, int]]:
    return [(one["id"], one["fence"]) for one in said.json]


ALL = [("backup", 1), ("dayton", 1), ("davis", 2), ("keene", 1), ("davis", 1)]


def test_warnings_of_a_good_run_are_shown_and_counted(towns: CommandLine) -> None:
    for _ in range(2):
        run(towns, "davis", result={"events": 3}, warnings=("2 of 60 feeds failed",))
    _, newest, *_ = towns("log", "davis").out.splitlines()
    assert "warned" in newest
    assert newest.endswith("2 of 60 feeds failed")
    assert "  warnings\n    2 of 60 feeds failed" in towns("log", "davis", "-n", "1", "--full").out
    assert towns("log", "davis", "--json").json[0]["warnings"] == ["2 of 60 feeds failed"]
    shown = towns("show", "davis")
    assert "warned x2" in shown.out
    assert "davis: 2 of 60 feeds failed" in shown.out
    [item] = towns("show", "davis", "--json").json
    assert (item["warned"], item["warnings"]) == (2, ["2 of 60 feeds failed"])
    run(towns, "davis")
    [item] = towns("show", "davis", "--json").json
    assert (item["outcome"], item["warned"], item["warnings"]) == ("ok", 0, [])


def test_the_log_of_a_run_is_shown_with_time_and_level(towns: CommandLine) -> None:
    at = datetime(2026, 11, 21, 9, 0, 4, 250_000, tzinfo=UTC)
    lines = (
        LogLine(at=at, level="INFO", logger="feeds", text="reading"),
        LogLine(at=at, level="WARNING", text="two\nlines"),
    )
    run(towns, "davis", log=lines)
    full = towns("log", "davis", "-n", "1", "--full").out
    assert full.endswith(
        "  log\n"
        "    2026-11-21 09:00:04.250Z  INFO     feeds: reading\n"
        "    2026-11-21 09:00:04.250Z  WARNING  two\n"
        "    lines\n"
    )
    assert "reading" not in towns("log", "davis", "-n", "1").out
    assert len(towns("log", "--grep", "READING$", "--json").json) == 1
    [newest] = towns("log", "davis", "-n", "1", "--full", "--json").json
    assert newest["log"] == [
        {"at": "2026-11-21T09:00:04.250Z", "level": "INFO", "logger": "feeds", "text": "reading"},
        {"at": "2026-11-21T09:00:04.250Z", "level": "WARNING", "text": "two\nlines"},
    ]


def test_json_has_the_keys(towns: CommandLine) -> None:
    newest, *_ = towns("log", "keene", "--json").json
    assert set(KEYS) <= set(newest)
    assert (newest["outcome"], newest["worker"], newest["attempt"]) == (
        "failed",
        "host:1:worker",
        1,
    )
    assert (newest["result"], newest["error"]) == (None, ERROR)
    assert newest["stop"].endswith("Z")
    assert newest["duration"] >= 0
    assert newest["lag"] >= 0
    assert "output" not in newest
    assert towns("log", "davis", "--json").json[0]["result"] == {"events": 2}


def test_the_newest_run_of_all_items_comes_first(towns: CommandLine) -> None:
    assert told(towns("log", "--json")) == ALL


CHOSEN: list[tuple[list[str], list[tuple[str, int]]]] = [
    (["-n", "2"], ALL[:2]),
    (["-n", "3"], ALL[:3]),
    (["davis"], [("davis", 2), ("davis", 1)]),
    (["da*"], [("dayton", 1), ("davis", 2), ("davis", 1)]),
    (["da*", "keene", "-n", "3"], ALL[1:4]),
    (["--outcome", "ok", "-n", "2"], [ALL[0], ALL[2]]),
    (["--outcome", "failed", "--outcome", "timeout"], [ALL[1], ALL[3]]),
    (["--outcome", "abandoned"], []),
    (["--type", "shell"], ALL[:1]),
    (["--since", "1h"], ALL),
    (["--since", "1ms"], []),
    (["--since", "today 00:00", "--until", "tomorrow"], ALL),
    (["--until", "1h ago"], []),
    (["--until", "2020-01-01"], []),
    (["--grep", "NO CALENDAR$"], [ALL[3]]),
    (["--grep", "pars|longer"], [ALL[1], ALL[4]]),
    (["--grep", '"events":2'], [ALL[2]]),
    (["davis", "--fence", "1"], [("davis", 1)]),
    (["--fence", "2"], [("davis", 2)]),
]


def test_runs_are_chosen(towns: CommandLine) -> None:
    for arguments, expected in CHOSEN:
        assert told(towns("log", "--json", *arguments)) == expected, arguments


def test_people_get_a_line_for_each_run_and_the_error_in_brief(towns: CommandLine) -> None:
    title, *lines = towns("log").out.splitlines()
    assert title.split()[:5] == ["stop", "id", "type", "outcome", "took"]
    assert len(lines) == len(ALL)
    assert lines[3].split()[-3:] == ["ValueError:", "no", "calendar"]
    assert "Traceback" not in "".join(lines)
    assert lines[2].endswith('{"events":2}')


def test_what_was_printed_is_shown_below_its_run_and_steers_nothing(towns: CommandLine) -> None:
    lines = towns("log", "davis", "keene", "--output").out.splitlines()
    assert lines[3] == r"    half\x1b[2J    done"
    assert lines[-2:] == ["    fetching", "    parsed"]


@pytest.mark.parametrize("option", [["--full"], ["--fence", "1"]])
def test_one_run_in_full(towns: CommandLine, option: list[str]) -> None:
    lines = towns("log", "keene", *option).out.splitlines()
    assert lines[0] == "keene  failed  fence 1, attempt 1"
    assert lines[6:] == [
        "  error",
        *(f"    {line}" for line in ERROR.splitlines()),
        "  output",
        r"    half\x1b[2J    done",
    ]
    assert towns("log", "keene", *option, "--json").json[0]["output"] == "half\x1b[2J\tdone"


def test_a_run_that_somebody_ended_names_them(towns: CommandLine) -> None:
    towns("run", "davis")
    towns.start("davis")
    towns("cancel", "davis", "--reason", "wrong feeds")
    lines = towns("log", "davis", "--fence", "3").out.splitlines()
    assert any(line.startswith("  note    ended by ") for line in lines)
    assert any(line.endswith("Z: wrong feeds") for line in lines)
    note = towns("log", "davis", "--fence", "3", "--json").json[0]["note"]
    assert note["reason"] == "wrong feeds"
    assert re.fullmatch(r"[0-9T:-]{19}\.\d{3}Z", note["at"])


def test_history_outlives_its_item(towns: CommandLine) -> None:
    towns("rm", "keene")
    assert told(towns("log", "keene", "--json")) == [("keene", 1)]
    assert sorted(told(towns("log", "--json"))) == sorted(ALL)


@pytest.mark.parametrize("runs_again", [False, True])
def test_history_is_there_when_its_id_is_added_again(
    towns: CommandLine, *, runs_again: bool
) -> None:
    towns("rm", "keene")
    towns("add", "keene", "--type", "calendars", "--every", "8h")
    if runs_again:
        towns.start("keene")
    assert told(towns("log", "keene", "--json")) == [("keene", 1)]
    assert told(towns("log", "--json")) == ALL
    assert told(towns("log", "--json", "-n", "2")) == ALL[:2]
    assert told(towns("log", "keene", "--since", "1h", "--json")) == [("keene", 1)]
    assert told(towns("log", "keene", "--since", "1ms", "--json")) == []


def test_no_runs_is_no_error(towns: CommandLine) -> None:
    assert towns("log", "--outcome", "cancelled").out == "no runs\n"
    assert towns("log", "--outcome", "cancelled", "--full").out == "no runs\n"
    assert towns("log", "--outcome", "cancelled", "--json").json == []


def test_a_type_whose_items_have_not_run_yet_is_a_type(towns: CommandLine) -> None:
    towns("add", "x", "--type", "command", "--every", "8h")
    assert towns("log", "--type", "command").out == "no runs\n"
    towns.write('[board]\njobs = ["no_such_jobs.py"]\n')
    said = towns("log", "--type", "command")
    assert said.out == "no runs\n"
    assert said.err == "", "no job is read for a type that an item has"


def test_one_misspelled_type_among_others_is_refused(towns: CommandLine) -> None:
    words = towns.refused("log", "--type", "calendars", "--type", "calendar")
    assert words.startswith("type: no item has the type 'calendar'")


FOLLOWED = "follow: it shows a line for each run, until Ctrl-C (leave out "
REFUSED = [
    (["nobody"], "id: no item 'nobody'"),
    (["--since", "soon"], "since: 'soon' is not a time"),
    (["--until", "soon"], "until: 'soon' is not a time"),
    (["--since", "1h", "--until", "2h"], "until: it is before --since"),
    (["--type", "calendar"], "type: no item has the type 'calendar' (did you mean 'calendars'?"),
    (["--follow", "--type", "calendar"], "type: no item has the type 'calendar'"),
    (["davis", "--type", "calendar"], "type: no item has the type 'calendar' (did you mean"),
    (["davis", "-f", "--type", "calendar"], "type: no item has the type 'calendar'"),
    (["--fence", "0"], "Invalid value for '--fence'"),
    (["--grep", "("], "grep: '(' is not a regular expression"),
    (["--follow", "--until", "now"], f"{FOLLOWED}--until)"),
    (["--follow", "--fence", "1"], f"{FOLLOWED}--fence)"),
    (["davis", "-f", "--output", "--absolute"], f"{FOLLOWED}--output, --absolute)"),
    (["--follow", "--full", "--json"], f"{FOLLOWED}--full)"),
]


def test_bad_input_is_refused(towns: CommandLine) -> None:
    for arguments, begin in REFUSED:
        assert towns.refused("log", *arguments).startswith(begin), arguments


def test_only_items_that_can_matter_are_read(towns: CommandLine) -> None:
    """Four items, and the newest run is in the one that was heard of last."""
    asked: list[str] = []

    async def newest(board: BoardTable) -> list[Run]:
        items = await items_with_history(board, [])
        runs = board.runs

        def counted(item_id: str, **about: Any) -> Any:
            asked.append(item_id)
            return runs(item_id, **about)

        board.runs = counted  # type: ignore[method-assign]
        found, _ = await newest_runs(board, items, RunQuery(), limit=1)
        return [run for _, run in found]

    assert [one.id for one in towns.on_board(newest)] == ["backup"]
    assert asked == ["backup"]


def test_a_run_that_ends_after_its_item_has_moved_on_is_listed_in_one_place(
    towns: CommandLine,
) -> None:
    """However many are asked for: items are read in the order in which they were heard of last."""
    towns("run", "davis")
    late = towns.start("davis")
    towns("unlock", "davis")
    towns("pause", "davis")
    between = towns.on_board(lambda board: board.table.now())
    run(towns, "keene")
    towns.finish(late)
    whole = told(towns("log", "--json"))
    assert whole[:3] == [("keene", 2), ("davis", 3), ("backup", 1)]
    for number in (1, 2, 3):
        assert told(towns("log", "-n", str(number), "--json")) == whole[:number]
    since = ("--since", (between + timedelta(milliseconds=1)).isoformat(), "--json")
    assert told(towns("log", "davis", *since)) == [("davis", 3)], "it stopped since"
    assert told(towns("log", *since)) == [("keene", 2), ("davis", 3)]


def test_a_glob_means_removed_items_too(towns: CommandLine) -> None:
    runs = towns("log", "da*", "--json").json
    assert runs
    towns("rm", "davis", "--yes")
    assert towns("log", "da*", "--json").json == runs


def test_a_run_whose_row_cannot_be_read_is_left_out(towns: CommandLine) -> None:
    async def harm(board: BoardTable) -> None:
        spoiled = Merge(run_key("davis", 1), {"lag": "x"}, ANY)
        await board.table.commit(board.partition("davis"), [spoiled])

    towns.on_board(harm)
    for said in (towns("log", "--json"), towns("log", "davis", "keene", "--json")):
        assert ("davis", 1) not in told(said)
        assert {("davis", 2), ("keene", 1)} <= set(told(said))
        assert "1 run left out, whose rows cannot be read" in said.err
    assert towns("doctor", "--json").json["findings"]


def test_a_run_taken_over_is_found_while_the_next_one_runs(towns: CommandLine) -> None:
    """An override tells the history before the item has a new stop."""
    towns("run", "davis")
    held = towns.start("davis")

    async def override(board: BoardTable) -> None:
        now = await board.table.now() + timedelta(seconds=9)
        run = await board.run("davis", 2)
        assert run is not None
        gone = replace(run, fence=held.fence, outcome=Outcome.ABANDONED, stop=now)
        ops: list[Op] = [
            Insert(run_key("davis", held.fence), data_of(gone)),
            Merge(item_key("davis"), {"start": now, "fence": held.fence + 1}, ANY),
        ]
        await board.table.commit(board.partition("davis"), ops)

    towns.on_board(override)
    assert told(towns("log", "--json", "-n", "1")) == [("davis", 3)]


def test_runs_that_stopped_together_come_in_the_order_of_their_ids(towns: CommandLine) -> None:
    async def together(board: BoardTable) -> None:
        first = await board.run("backup", 1)
        assert first is not None
        for item_id, fence in ALL[1:4]:
            run = await board.run(item_id, fence)
            assert run is not None
            same = replace(run, stop=first.stop)
            change = Replace(run_key(item_id, fence), data_of(same), run.etag)
            await board.table.commit(board.partition(item_id), [change])

    towns.on_board(together)
    assert told(towns("log", "--json")) == [
        ("backup", 1),
        ("davis", 2),
        ("dayton", 1),
        ("keene", 1),
        ("davis", 1),
    ]


def test_a_terminal_is_told_how_many_runs_are_not_shown(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "newest" not in towns("log", "-n", "2").out
    monkeypatch.setattr(log, "is_terminal", lambda: True)
    assert towns("log", "-n", "2").out.endswith("\nthe newest 2 of 5; -n shows more\n")
    assert towns("log", "-n", "1", "--type", "calendars").out.endswith(
        "the newest 1 of those that match; -n shows more\n"
    )
    assert "-n shows more" not in towns("log").out


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_runs_are_followed_as_they_end(towns: CommandLine, form: list[str]) -> None:
    """The newest first come in the order in which they ended; each run is told once."""
    said = towns.folder / "said"
    with said.open("wb") as out:
        command = [sys.executable, "-m", "blackboard", "log", "--follow", "-n", "2", *form]
        following = subprocess.Popen(
            command,
            cwd=towns.folder,
            stdout=out,
            env=own_environ() | {"BLACKBOARD_STORE": towns.store},
        )
    try:
        eventually(lambda: len(whole_lines(said)) == 2, "the newest two")
        run(towns, "keene", result={"events": 3})
        eventually(lambda: len(whole_lines(said)) == 3, "the run that ends")
        run(towns, "davis", Outcome.FAILED, error=ERROR)
        eventually(lambda: len(whole_lines(said)) == 4, "the next run")
        following.send_signal(signal.SIGINT)
        assert following.wait(patience(20)) == 0
    finally:
        following.kill()
        following.wait()
    lines = whole_lines(said)
    ids = [json.loads(line)["id"] if form else line.split()[2] for line in lines]
    assert ids == ["dayton", "backup", "keene", "davis"]
    assert "no calendar" in lines[3]


class Looks:
    """The looks of `log --follow`, of which Ctrl-C comes after the `last`. After some others
    something is done, as `after` says by their numbers. The host's monotonic clock is `ahead` by so
    many seconds after that look, its wall clock by an `offset`.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        last: int,
        after: Mapping[int, Callable[[], object]],
        ahead: Callable[[int], float] = lambda _: 0.0,
        offset: timedelta = timedelta(0),
    ) -> None:
        self.number = 0
        looks = self

        class Stepped(SystemClock):
            def now(self) -> datetime:
                return super().now() + offset

            def monotonic(self) -> float:
                return super().monotonic() + ahead(looks.number)

            async def sleep(self, _: float) -> None:
                looks.number += 1
                if looks.number == last:
                    raise KeyboardInterrupt
                if looks.number in after:
                    await asyncio.to_thread(after[looks.number])

        monkeypatch.setattr(log, "SystemClock", Stepped)


def runs_again(towns: CommandLine) -> Callable[[], None]:
    """Requests a run of keene, and runs it."""

    def next_run() -> None:
        towns.on_board(lambda board: run_now(board, "keene"))
        towns.finish(towns.start("keene"))

    return next_run


@pytest.mark.not_on_azurite("a file says whether it was written")
def test_the_items_of_a_quiet_board_are_not_read_while_runs_are_followed(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[int] = []
    looks = Looks(monkeypatch, last=5, after={3: runs_again(towns)})

    async def counted(*asked: Any, **how: Any) -> Any:
        readings.append(looks.number)
        return await items_with_history(*asked, **how)

    monkeypatch.setattr(log, "items_with_history", counted)
    lines = towns("log", "--follow", "-n", "1").out.splitlines()
    assert [line.split()[2] for line in lines] == ["backup", "keene"]
    assert [look for look in readings if look] == [3]


def test_the_history_of_an_item_that_has_not_changed_is_not_read_while_runs_are_followed(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But once a minute: a late run may change nothing but the history."""
    read: list[tuple[int, list[str]]] = []
    looks = Looks(
        monkeypatch,
        last=5,
        after=dict.fromkeys((2, 3, 4), runs_again(towns)),
        ahead=lambda look: 60.0 if look == 4 else 0.0,
    )

    async def counted(board: BoardTable, items: Sequence[Item], *rest: Any, **how: Any) -> Any:
        read.append((looks.number, [one.id for one in items]))
        return await newest_runs(board, items, *rest, **how)

    monkeypatch.setattr(log, "newest_runs", counted)
    lines = towns("log", "--follow", "-n", "1").out.splitlines()
    assert [line.split()[2] for line in lines] == ["backup", "keene", "keene", "keene"]
    first, whole = read[0][1], read[-1][1]
    assert first == whole
    assert len(first) > 1
    assert [ids for look, ids in read if look in {2, 3}] == [["keene"], ["keene"]]


def test_what_ends_before_a_time_to_come_is_not_shown_while_runs_are_followed(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Looks(monkeypatch, last=3, after=dict.fromkeys((1, 2), runs_again(towns)))
    assert towns("log", "--follow", "--since", "in 1h").out == ""


def test_a_state_that_is_followed_may_be_that_of_none_at_first(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed() -> None:
        towns("run", "keene")
        towns.finish(towns.start("keene"), Outcome.FAILED, error=ERROR)

    towns("log", "state:stale", code=1)
    Looks(monkeypatch, last=3, after={1: failed})
    assert "keene" in towns("log", "--follow", "state:failed").out


def test_a_run_that_comes_back_late_is_shown_again_while_runs_are_followed(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it may change nothing but the history, that is a minute later at the most."""
    towns("run", "keene")
    claim = towns.start("keene")

    def unlocked() -> None:
        mark = Mark(by="ann", at=claim.start)
        towns.on_board(lambda board: unlock(board, "keene", mark, fence=claim.fence))

    def comes_back() -> None:
        towns.finish(claim, Outcome.FAILED, error=ERROR)

    after = {1: unlocked, 2: comes_back}
    Looks(monkeypatch, last=4, after=after, ahead=lambda look: 60.0 * look)
    lines = towns("log", "keene", "--follow", "-n", "1").out.splitlines()
    assert [line.split()[4] for line in lines] == ["failed", "abandoned", "superseded"]


def test_runs_that_end_while_no_look_is_possible_are_shown_by_the_next(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the machine is suspended, or the store is away from this host alone."""
    monkeypatch.setattr(log, "BEHIND", timedelta(milliseconds=1))

    def run_long_ago() -> None:
        runs_again(towns)()
        time.sleep(0.1)

    Looks(monkeypatch, last=3, after={1: run_long_ago, 2: run_long_ago})
    lines = towns("log", "--follow", "-n", "1").out.splitlines()
    assert [line.split()[2] for line in lines] == ["backup", "keene", "keene"]


def test_a_store_that_cannot_be_used_any_more_ends_what_follows_runs(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would show nothing for ever; one that is only away is asked again."""
    revision, answers = BoardTable.revision, [Unavailable("cable cut"), Unusable("another file")]
    looks = Looks(monkeypatch, last=3, after={})

    async def asked(board: BoardTable) -> int | None:
        if looks.number:
            raise answers.pop(0)
        return await revision(board)

    monkeypatch.setattr(BoardTable, "revision", asked)
    said = towns("log", "--follow", code=2).err
    assert said.splitlines() == [
        "blackboard: store: cable cut; it is asked again",
        "blackboard: another file",
    ]


def test_a_host_whose_clock_is_wrong_shows_runs_by_the_clock_of_the_store(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Looks(monkeypatch, last=2, after={1: runs_again(towns)}, offset=timedelta(hours=1))
    assert told(towns("log", "--since", "30m", "--json")) == ALL
    lines = towns("log", "--follow", "--since", "30m", "-n", "1").out.splitlines()
    assert [line.split()[2] for line in lines] == ["backup", "keene"]


@pytest.mark.not_on_azurite("what is shown does not depend on the store")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_runs_are_followed_in_columns_and_in_colours(
    towns: CommandLine, no_color: str
) -> None:
    run(towns, "davis", Outcome.FAILED, error=f"ValueError: {'東京' * 60}")
    with terminal(
        "log", "--follow", folder=towns.folder, size=(24, 80), environment={"NO_COLOR": no_color}
    ) as screen:
        screen.wait_for("ValueError: 東京")
        run(towns, "keene", result={"events": 77})
        screen.wait_for('{"events":77}')
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 0
    lines = re.sub(r"\x1b\[\d+m", "", screen.all.replace("\r", "")).splitlines()
    table = [line for line in lines if line[:4] == "stop" or line[8:9] == "Z"]
    assert len(table) == 8
    starts = [table[0].index(title) for title in ("id", "outcome", "took", "result or error")]
    for line in table:
        assert measure(line) <= 80
        assert all(line[start - 1] == " " != line[start] for start in starts)
    assert ("\x1b[31mfailed" in screen.all) is not bool(no_color)
    assert ("\x1b[32mok" in screen.all) is not bool(no_color)
    assert ("\x1b" in screen.all) is not bool(no_color)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
def test_the_columns_of_what_is_followed_fit_the_terminal(columns: int) -> None:
    run = replace(
        RUN, id="davis-" * 9, stop=START, outcome=Outcome.FAILED, error="it is away " * 20
    )
    titles, line = log.tail_lines(run, columns)
    assert {"stop", "id"} <= {title.rstrip() for title, _ in titles}
    assert all(measure(text_of(some, colour=False)) <= columns for some in (titles, line))
    stop = "2026-11-21 09:00:00Z" if columns >= log.ROOMY else "09:00:00Z"
    assert line[0][0] == stop
