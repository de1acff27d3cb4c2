"""`blackboard leader`: who leads, and exit code 1 when nobody does."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest

import blackboard as package
from blackboard.blocking import BlockingElection
from blackboard.cli.listing import Listing, elections_of
from blackboard.display.layout import text_of
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.table import ANY, Delete, Merge
from tests.cli.command_line import CommandLine, blackboard

pytestmark = pytest.mark.of_one_store("what is said of elections is judged above the store")

__all__ = ["blackboard"]

LEADERS = "blackboard.leaders"


@contextmanager
def candidate(name: str = "report", **said: Any) -> Iterator[BlockingElection]:
    """A leader in another thread."""
    with package.open_blocking(create=True) as board, board.election(name, **said) as leader:
        leader.won()
        yield leader


@pytest.fixture(name="elections")
def _elections(blackboard: CommandLine) -> Iterator[CommandLine]:
    """Two elections that have a leader, and one that has none."""
    with ExitStack() as stack:
        with candidate("old"):
            pass
        stack.enter_context(candidate("billing"))
        stack.enter_context(candidate("report", kind="bully", rank=3, lease="30s"))
        yield blackboard


def change(town: CommandLine, key: str, **columns: Any) -> None:
    async def merged(board: BoardTable) -> None:
        await board.table.commit(LEADERS, [Merge(key, columns, ANY)])

    town.on_board(merged)


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.mark.of_each_store
def test_the_leaders_are_shown(elections: CommandLine) -> None:
    titles, billing, old, report = lines(elections("leader").out)
    assert titles == ["election", "leader", "since", "term", "kind", "renewed"]
    assert (billing[0], billing[-4:-2]) == ("billing", ["1", "mutex"])
    assert billing[-1] == report[-1] == "ago"
    assert (report[0], report[-4:-2]) == ("report", ["1", "bully"])
    assert old == ["old", "none", "-", "1", "mutex", "-"]


def test_why_an_election_has_no_leader_names_no_worker(elections: CommandLine) -> None:
    said = elections("--board", LEADERS, "why", "old", "billing").out
    assert "worker" not in said
    assert "start a program that enters the election" in said
    assert "any candidate may override it" in said
    assert f"`blackboard --board {LEADERS} cancel billing` ends the run" in said


def test_one_election_is_shown_for_programs(elections: CommandLine) -> None:
    (one,) = elections("leader", "report", "--json").json
    assert one.pop("leader").count(":") == 2
    assert one.pop("since")
    assert 0 <= one.pop("renewed") < 30
    assert one == {
        "election": "report",
        "term": 1,
        "kind": "bully",
        "lease": 30.0,
        "paused": False,
        "late": False,
        "problem": None,
    }
    (old,) = elections("leader", "old", "--json").json
    assert (old["leader"], old["since"], old["renewed"], old["late"]) == (None, None, None, False)


def test_an_election_without_a_leader_for_longer_than_its_lease_is_no(
    elections: CommandLine,
) -> None:
    async def now(board: BoardTable) -> Any:
        return await board.table.now()

    at = elections.on_board(now)
    change(elections, "item:old", stop=at - timedelta(seconds=14))
    assert elections("leader", "old").code == 0
    long_ago, soon = at - timedelta(seconds=60), at + timedelta(seconds=60)
    change(elections, "item:old", stop=long_ago, ready=soon)
    assert lines(elections("leader", code=1).out)[2] == ["old", "none", "-", "1", "mutex", "-"]
    assert [one["late"] for one in elections("leader", "--json", code=1).json] == [
        False,
        True,
        False,
    ]


def test_a_lock_that_is_stale_is_no_leader(elections: CommandLine) -> None:
    change(elections, keys.lock_key("report"), stale_after=-60.0)
    (one,) = elections("leader", "report", "--json", code=1).json
    assert (one["leader"], one["late"]) == (None, True)
    assert one["renewed"] >= 0
    assert lines(elections("leader", "report", code=1).out)[1][1:5] == ["none", "-", "1", "bully"]


def test_a_paused_election_is_no_alarm(elections: CommandLine) -> None:
    assert "pause '*'`" in elections.refused("pause", "--board", LEADERS)
    elections("pause", "old", "--board", LEADERS)
    change(elections, "item:old", stop=timedelta_ago(elections, 60))
    assert lines(elections("leader", "old").out)[1][1] == "paused"


def test_a_paused_election_whose_leader_died_is_no_alarm(elections: CommandLine) -> None:
    elections("pause", "report", "--board", LEADERS)
    change(elections, keys.lock_key("report"), stale_after=-60.0)
    (one,) = elections("leader", "report", "--json").json
    assert (one["leader"], one["paused"], one["late"]) == (None, True, False)


def timedelta_ago(town: CommandLine, seconds: float) -> Any:
    async def ago(board: BoardTable) -> Any:
        return await board.table.now() - timedelta(seconds=seconds)

    return town.on_board(ago)


def listing(board: CommandLine) -> Listing:
    """What is watched."""

    async def read(board: BoardTable) -> Listing:
        return await elections_of(board, None, absolute=False)

    return board.on_board(read)


def test_a_board_without_elections_says_so(blackboard: CommandLine) -> None:
    blackboard("init")
    said = blackboard("leader").out
    assert said.startswith("no elections yet: workers make one")
    body = listing(blackboard).page(40).body
    assert " ".join(text_of(line, colour=False) for line in body) == said.strip()
    assert blackboard("leader", "--json").json == []
    assert blackboard.refused("leader", "report") == (
        "name: no election 'report' on this board (`blackboard leader`)"
    )


def test_a_name_that_is_none_is_refused(elections: CommandLine) -> None:
    assert "no election 'nobody'" in elections("leader", "nobody", code=2).err


def test_commands_of_items_work_on_elections(elections: CommandLine) -> None:
    (run,) = elections("log", "--board", LEADERS, "--json").json
    assert (run["id"], run["type"], run["outcome"]) == ("old", "mutex", "cancelled")
    assert "3 items" in elections("show", "--board", LEADERS).out
    assert elections("doctor", "--board", LEADERS).code == 0
    (member,) = elections("workers", "--board", LEADERS, "--json").json
    assert (member["types"], member["alive"]) == (["report"], True)


@pytest.mark.parametrize(
    "options",
    [("--until", "2026-01-01"), ("--max-runs", "1"), ("--every", ""), ("--cron", "@daily")],
)
def test_an_election_keeps_its_schedule(elections: CommandLine, options: tuple[str, str]) -> None:
    """It could be done by another, and no candidate would lead any more."""
    said = elections.refused("edit", "old", *options, "--board", LEADERS)
    assert "the elections of blackboard.leaders are held" in said


def test_watching_needs_a_terminal(elections: CommandLine) -> None:
    said = elections("leader", "--watch", code=2).err
    assert said == (
        "blackboard: watch: needs a terminal (for programs: the command with `--json`)\n"
    )


def test_what_is_watched_has_a_line_for_each_election(elections: CommandLine) -> None:
    page = listing(elections).page(80)
    lines = [text_of(line, colour=False).split() for line in page.body]
    assert [line[0] for line in lines] == ["election", "billing", "old", "report"]
    assert (page.head, page.summary) == (1, "3 elections")


@pytest.mark.cases_of_one_store("leases are refused above the store")
@pytest.mark.parametrize("lease", ["2d", "2s", ""])
def test_no_election_gets_a_lease_that_no_candidate_can_have(
    elections: CommandLine, lease: str
) -> None:
    board = ("--board", LEADERS)
    assert elections.refused("edit", "old", "--stale-after", lease, *board).startswith(
        "stale_after"
    )
    assert elections.refused("edit", "old", "--cron", "@daily", *board).startswith("cron: ")
    said = elections("edit", "old", "--stale-after", "20s", *board).out
    assert "its time was" not in said
    assert "every 1s" not in elections("show", *board).out


def test_a_lease_that_is_the_interval_is_shown_as_candidates_have_it(
    elections: CommandLine,
) -> None:
    """An election says each second, and no such lease is shorter than ten."""
    elections("edit", "old", "--stale-after", "interval", "--board", LEADERS)
    change(elections, "item:old", stop=timedelta_ago(elections, 9))
    (old,) = elections("leader", "old", "--json").json
    assert (old["lease"], old["late"]) == (10.0, False)
    change(elections, "item:old", stop=timedelta_ago(elections, 11))
    assert elections("leader", "old", "--json", code=1).json[0]["late"]


@pytest.mark.cases_of_one_store("rows are judged above the store")
@pytest.mark.parametrize("spec", ["soon", "{", '{"every":"0s"}', '{"stale_after":"x"}'])
def test_an_election_whose_settings_are_damaged_is_named_and_hides_no_other(
    elections: CommandLine, spec: str
) -> None:
    change(elections, "item:old", spec=spec)
    said = elections("leader", code=1).out
    assert [line[0] for line in lines(said)[1:4]] == ["billing", "old", "report"]
    assert "old: its settings cannot be read: " in said
    assert f"`blackboard --board {LEADERS} doctor`" in said
    found = {one["election"]: one for one in elections("leader", "--json", code=1).json}
    assert found["old"]["problem"].startswith("old: its settings cannot be read")
    assert (found["old"]["lease"], found["billing"]["problem"]) == (None, None)
    (alarm,) = elections("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == ("leaders/old", "damaged")


def test_an_election_whose_row_cannot_be_read_is_named(elections: CommandLine) -> None:
    change(elections, "item:old", slot="soon")
    said = elections("leader", code=1).out
    assert f"the row item:old in {LEADERS} cannot be read" in said
    assert [line[0] for line in lines(said)[1:3]] == ["billing", "report"]
    assert elections("leader", "--json", code=1).json[-1]["election"] == "item:old"
    assert elections.refused("leader", "old") == (
        f"row item:old of the board {LEADERS}: it cannot be read "
        f"(`blackboard --board {LEADERS} doctor` tells more)"
    )
    assert elections("leader", "report").code == 0
    (alarm,) = elections("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == ("leaders/item:old", "damaged")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"shards": "x"}, "the row board in blackboard.leaders-meta has no good shards (delete it"),
        ({"shards": 2}, "the row board in blackboard.leaders-meta says 2 shards, not 1 (delete it"),
        ({"version": 2}, "a newer version wrote the row board in blackboard.leaders-meta (upgrade"),
    ],
)
def test_elections_whose_board_is_damaged_say_so_and_stop_no_other_command(
    elections: CommandLine, columns: dict[str, Any], words: str
) -> None:
    async def merged(board: BoardTable) -> None:
        await board.table.commit(f"{LEADERS}-meta", [Merge("board", columns, ANY)])

    elections.on_board(merged)
    assert words in elections("leader", code=2).err
    assert f"not known: {words[:30]}" in " ".join(elections("status").out.split())
    assert elections("status", "--json").json["coordinator"] is None
    (alarm,) = elections("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == (LEADERS, "damaged")
    assert words in alarm["problem"]


@pytest.mark.of_each_store
def test_elections_whose_board_has_no_row_are_not_none_and_a_candidate_makes_it_anew(
    elections: CommandLine,
) -> None:
    async def lose(board: BoardTable) -> None:
        await board.table.commit(f"{LEADERS}-meta", [Delete("board", ANY)])

    elections.on_board(lose)
    words = "the row board in blackboard.leaders-meta is lost (the next candidate that starts"
    assert words in elections("leader", code=2).err
    assert words in elections("leader", "report", code=2).err
    (alarm,) = elections("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == (LEADERS, "damaged")
    with candidate("new"):
        assert [line[0] for line in lines(elections("leader").out)[1:]] == [
            "billing",
            "new",
            "old",
            "report",
        ]
