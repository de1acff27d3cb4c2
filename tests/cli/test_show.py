"""`blackboard show`: what is told of a board, to people and to programs."""

import json
from datetime import timedelta

import pytest

from blackboard.model import Outcome
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import renew
from blackboard.table import ANY, Merge
from tests.cli.command_line import CommandLine, Said, blackboard
from tests.support.terminals import terminal

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store(
    "what is shown does not depend on the store: test_odd_ids.py shows items on each"
)

KEYS = (
    *("id", "type", "state", "schedule", "params", "start", "stop", "running", "outcome", "due"),
    *("ready", "worker", "fence", "runs", "failures", "error", "result", "paused", "overdue"),
    *("stale", "warnings"),
)


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    """Davis is waiting, keene failed, madison is paused, toronto runs, backup is done."""
    blackboard("init")
    blackboard("add", "davis", "keene", "madison", "--type", "calendars", "--every", "8h")
    blackboard("add", "toronto", "--type", "calendars", "--every", "8h", "--stale-after", "3s")
    blackboard("add", "backup", "--type", "shell", "--at", "2026-01-01T00:00")
    blackboard("pause", "madison", "--reason", "moving")
    failed = blackboard.start("keene")
    blackboard.finish(failed, Outcome.FAILED, error="ValueError: boom\nTraceback")
    blackboard.finish(blackboard.start("backup"), result={"files": 3})
    blackboard.start("toronto", owner="rabbit:7:abc")
    return blackboard


def ids(said: Said) -> list[str]:
    return [one["id"] for one in said.json]


def lines(said: Said) -> dict[str, list[str]]:
    """The cells of a table by id."""
    title, *rows = said.out.split("\n\n")[0].splitlines()
    starts = [title.index(name) for name in title.split()]
    ends = [*starts[1:], None]
    cells = [
        [row[a:b].strip() for a, b in zip(starts, ends, strict=True)] for row in [title, *rows]
    ]
    return {row[0]: row for row in cells}


def test_a_new_board_says_how_to_begin(blackboard: CommandLine) -> None:
    blackboard("init")
    assert blackboard("show").out == "no items yet: `blackboard add ID --type TYPE` adds one\n"
    assert blackboard("show", "--json").json == []


def test_the_table_has_a_line_for_each_item_and_one_that_sums_up(towns: CommandLine) -> None:
    said = towns("show")
    table = lines(said)
    titles = ("id", "type", "schedule", "start", "stop", "running", "outcome", "next", "worker")
    assert tuple(table["id"]) == titles
    assert list(table) == ["id", "backup", "davis", "keene", "madison", "toronto"]
    assert table["davis"] == ["davis", "calendars", "every 8h", "-", "-", "-", "-", "now", "-"]
    assert table["keene"][6:8] == ["failed", "in 8h"]
    assert table["madison"][7] == "paused"
    assert table["backup"][6:8] == ["ok", "done"]
    assert table["toronto"][8] == "rabbit:7"
    last = said.out.splitlines()[-1]
    assert last == "5 items, 1 running, 1 failed, 1 paused, 1 done, next now"


def test_words_tell_what_colours_would(towns: CommandLine) -> None:
    towns.set_back("davis", timedelta(minutes=22))
    assert lines(towns("show", "davis"))["davis"][7] == "overdue 22m"
    assert towns("show", "davis").out.splitlines()[-1].startswith("1 item, 1 overdue")


def test_a_stale_lock_is_told(towns: CommandLine) -> None:
    async def lower(board: BoardTable) -> None:
        """A lease that is over before anyone looks."""
        shorter = [Merge(keys.lock_key("toronto"), {"stale_after": -60.0}, ANY)]
        await board.table.commit(board.partition("toronto"), shorter)

    towns.on_board(lower)
    assert lines(towns("show", "toronto"))["toronto"][5].startswith("stale")
    assert ids(towns("show", "--state", "stale", "--json")) == ["toronto"]


def test_progress_is_in_the_running_column(towns: CommandLine) -> None:
    held = towns.start("davis")

    async def work(board: BoardTable) -> None:
        assert await renew(board, held, progress="[40,100]")

    towns.on_board(work)
    assert lines(towns("show", "davis"))["davis"][5].endswith("s 40%")
    assert towns("show", "davis", "--json").json[0]["progress"] == [40, 100]


def test_json_has_the_keys_and_times_in_utc(towns: CommandLine) -> None:
    views = {one["id"]: one for one in towns("show", "--json").json}
    assert all(set(KEYS) <= set(view) for view in views.values())
    keene, backup, madison = views["keene"], views["backup"], views["madison"]
    assert keene["start"].endswith("Z")
    assert len(keene["start"]) == len("2026-11-21T09:00:00.000Z")
    assert (keene["outcome"], keene["failures"], keene["runs"]) == ("failed", 1, 1)
    assert keene["error"] == "ValueError: boom\nTraceback"
    assert (backup["result"], backup["state"], backup["due"]) == ({"files": 3}, "done", None)
    assert madison["paused"]["reason"] == "moving"
    assert (views["toronto"]["running"], views["toronto"]["worker"]) == (True, "rabbit:7:abc")
    assert views["davis"]["params"] == {}
    assert views["davis"]["overdue"] is False


CHOSEN = [
    (["*e*"], "keene"),
    (["davis", "t*"], "davis toronto"),
    (["--type", "shell"], "backup"),
    (["--type", "shell", "--type", "tail"], "backup"),
    (["--state", "failed"], "keene"),
    (["--state", "failed", "--state", "done"], "backup keene"),
    (["--state", "active"], "davis keene toronto"),
    (["--state", "waiting"], "davis keene"),
    (["--state", "running"], "toronto"),
    (["--state", "paused"], "madison"),
    (["--state", "overdue"], ""),
    (["--state", "waiting", "--overdue", "1ms", "--state", "overdue"], "davis keene"),
    (["--type", "calendars", "--state", "done"], ""),
    (["--sort", "type"], "davis keene madison toronto backup"),
    (["--sort", "id", "--reverse"], "toronto madison keene davis backup"),
    (["--sort", "next"], "davis keene backup madison toronto"),
    (["--sort", "start", "--reverse"], "toronto backup keene davis madison"),
    (["--sort", "outcome"], "keene backup davis madison toronto"),
]


def test_items_are_chosen_and_sorted(towns: CommandLine) -> None:
    for arguments, expected in CHOSEN:
        assert ids(towns("show", "--json", *arguments)) == expected.split(), arguments


def test_a_filter_that_leaves_nothing_says_of_how_many(towns: CommandLine) -> None:
    assert towns("show", "--state", "stale").out == "0 of 5 items\n"
    assert towns("show", "--type", "shell").out.splitlines()[-1] == "1 of 5 items, 1 done"


def test_plain_is_four_lines_an_item_as_in_2009(towns: CommandLine) -> None:
    keene, toronto = towns("show", "--plain", "keene", "toronto").out.split("\n\n")
    start, stop = (
        value
        for name, value in towns("show", "--json", "keene").json[0].items()
        if name in {"start", "stop"}
    )
    assert keene.splitlines() == ["id: keene", f"start: {start}", f"stop: {stop}", "running: False"]
    assert toronto.splitlines()[2:] == ["stop: never", "running: True"]


def test_absolute_times_are_utc_and_say_so(towns: CommandLine) -> None:
    stop = towns("show", "--json", "keene").json[0]["stop"]
    cells = lines(towns("show", "keene", "--absolute"))["keene"]
    assert cells[4] == stop.replace("T", " ")[:19] + "Z"
    assert cells[7].endswith("Z")


def test_ids_of_any_text_stay_on_their_line(towns: CommandLine) -> None:
    towns("add", "a\x1b[31m\nb", "東京", "--type", "t", "--every", "1h")
    said = towns("show")
    assert "\x1b" not in said.out
    assert [line.split()[0] for line in said.out.splitlines()[1:3]] == [r"a\x1b[31m\nb", "backup"]
    assert "a\x1b[31m\nb" in ids(towns("show", "--json"))


def test_a_table_fits_the_columns_there_are(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    towns("add", "x" * 200, "--type", "calendars", "--every", "8h")
    for width in (60, 80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        assert max(map(len, towns("show").out.splitlines()[:-1])) <= width
    monkeypatch.delenv("COLUMNS")
    assert "x" * 200 in towns("show").out


def test_at_80_columns_nothing_important_is_cut_and_the_owner_goes_first(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    towns("add", "nightly-report", "--type", "a-long-type", "--cron", "30 6 * * mon-fri")
    towns.finish(towns.start("davis"), Outcome.FAILED, error="boom")
    whole = towns("show").out
    longest = len(whole.splitlines()[0])
    monkeypatch.setenv("COLUMNS", str(longest - 1))
    titles = ["id", "type", "schedule", "start", "stop", "running", "outcome", "next", "worker"]
    assert towns("show").out.split("\n")[0].split() == titles[:-1]
    monkeypatch.setenv("COLUMNS", "80")
    said = towns("show")
    table = lines(said)
    important = ("id", "schedule", "running", "outcome", "next")
    assert "…" not in said.out
    assert set(important) <= set(table["id"])
    nightly = dict(zip(table["id"], table["nightly-report"], strict=True))
    assert nightly["schedule"] == "cron 30 6 * * mon-fri"
    monkeypatch.delenv("COLUMNS")
    everything = lines(towns("show"))
    for item_id, cells in table.items():
        all_cells = dict(zip(everything["id"], everything[item_id], strict=True))
        cut = dict(zip(table["id"], cells, strict=True))
        assert [cut[name] for name in ("id", "outcome")] == [
            all_cells[name] for name in ("id", "outcome")
        ]
    assert table["madison"][table["id"].index("next")] == "paused"


@pytest.mark.not_on_azurite("the pager does not depend on the store")
def test_on_a_terminal_what_is_longer_than_the_screen_is_paged(towns: CommandLine) -> None:
    pager = towns.folder / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    environment = {"PAGER": str(pager)}
    with terminal("show", folder=towns.folder, size=(7, 100), environment=environment) as screen:
        screen.wait_for("PAGED")
        screen.wait_for("5 items")
        assert screen.end() == 0
    with terminal("show", folder=towns.folder, size=(24, 100), environment=environment) as screen:
        assert screen.end() == 0
    assert "toronto" in screen.text
    assert "PAGED" not in screen.text
    assert "PAGED" not in towns("show").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--watch"], "watch: needs a terminal"),
        (["--watch", "da*"], "watch: 'da*' is not a time (say the seconds"),
        (["--overdue", "soon"], "overdue: 'soon' is not a duration"),
        (["--overdue", ""], "overdue: '' is not a duration"),
        (
            ["--type", "calendar"],
            "type: no item has the type 'calendar' (did you mean 'calendars'?",
        ),
        (["davis", "--type", "calendar"], "type: no item has the type 'calendar' (did you mean"),
        (["nobody"], "id: no item 'nobody'"),
        (["n*"], "id: no item matches 'n*'"),
    ],
)
def test_bad_input_is_refused(towns: CommandLine, arguments: list[str], told: str) -> None:
    assert towns.refused("show", *arguments).startswith(told)


def test_a_type_without_an_item_in_this_state_is_a_type(towns: CommandLine) -> None:
    towns("add", "x", "--type", "command", "--every", "8h")
    assert towns("show", "--type", "command", "--state", "stale", "--json").json == []
    towns.write('[board]\njobs = ["no_such_jobs.py"]\n')
    said = towns("show", "--type", "command", "--state", "stale")
    assert said.out.startswith("0 of ")
    assert said.err == "", "no job is read for a type that an item has"


def test_json_is_what_another_program_reads(towns: CommandLine) -> None:
    assert json.loads(towns("show", "--json", "--exact", "davis").out)[0]["id"] == "davis"
