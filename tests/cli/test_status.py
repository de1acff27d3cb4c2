"""`blackboard status`: the board in one screen, and `show` of a board that is large."""

from datetime import timedelta

import pytest

import blackboard as package
from blackboard.board import Board
from blackboard.cli.board_view import BoardView
from blackboard.cli.options import Chosen
from blackboard.cli.session import Session
from blackboard.display.item_queries import ItemQuery
from blackboard.display.layout import text_of
from blackboard.model import Member, Outcome, replace
from blackboard.protocol import keys
from blackboard.protocol.additions import ensure
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import announce
from blackboard.protocol.status import count, write_statistics
from blackboard.rules.status import CURRENT, MOST_TYPES
from blackboard.table import ANY, Merge
from tests.cli.command_line import CommandLine, Said, blackboard

pytestmark = pytest.mark.of_one_store("what was counted is shown above the store")

__all__ = ["blackboard"]


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "elko", "--type", "feed", "--every", "8h")
    blackboard("add", "backup", "--type", "shell", "--at", "2090-01-01T00:00")
    blackboard("pause", "elko")
    return blackboard


def counted(town: CommandLine, *, age: timedelta = timedelta(0), items: int = 3) -> None:
    """The coordinator has counted so long ago, and has come to these numbers."""

    async def write(board: BoardTable) -> None:
        found = await count(board, by="rabbit:7:abc", term=4)
        found = replace(found, at=found.at - age, items=items)
        assert await write_statistics(board, found)

    town.on_board(write)


async def announced(board: BoardTable) -> None:
    """A worker is at work."""
    now = await board.table.now()
    member = Member(owner="host:1:a", started=now, seen=now, slots=8, running=0, release="1")
    await announce(board, member)


def lines(said: Said) -> dict[str, str]:
    """What stands behind each word at the beginning of a line."""
    found = (line.partition(" ") for line in said.out.split("\n\n")[0].splitlines())
    return {word: rest.strip() for word, _, rest in found}


def test_a_board_without_a_coordinator_is_counted_now(town: CommandLine) -> None:
    found = lines(town("status"))
    assert found["board"] == f"blackboard in {town.store}"
    assert found["items"] == "3 items: 2 active, 1 paused, 0 done"
    assert found["now"] == "0 running, 0 stale, 0 overdue, 0 failing, 0 warned"
    assert found["earliest"].startswith("ready for ")
    assert (found["workers"], found["coordinator"]) == ("0 alive", "none")
    assert found["counted"].startswith("now, in ")


def test_types_have_a_line_each(town: CommandLine) -> None:
    table = town("status").out.split("\n\n")[1].splitlines()
    titles, feed, shell = [line.split() for line in table]
    assert titles == (
        ["type", "items", "active", "paused", "done", "running", "stale", "overdue", "failing"]
    )
    assert feed == ["feed", "2", "1", "1", "0", "0", "0", "0", "0"]
    assert shell == ["shell", "1", "1", "0", "0", "0", "0", "0", "0"]


@pytest.mark.of_each_store
def test_what_was_counted_of_a_large_board_is_shown_with_its_age(town: CommandLine) -> None:
    counted(town, age=timedelta(minutes=3), items=1_001)
    found = lines(town("status"))
    assert found["items"].startswith("1,001 items: 2 active")
    assert found["counted"].startswith("3m")
    assert " ago by rabbit:7, in " in found["counted"]
    assert "... and 998 items of other types" in town("status").out
    assert lines(town("status", "--exact"))["items"].startswith("3 items")


def test_what_was_counted_long_ago_is_counted_again(town: CommandLine) -> None:
    counted(town, age=CURRENT + timedelta(seconds=1), items=1_001)
    assert town("status", "--json").json["items"] == 3


def test_of_a_small_board_what_is_so_now_is_shown_whatever_was_counted(town: CommandLine) -> None:
    counted(town)
    town.start("davis")
    found = lines(town("status"))
    assert found["now"].startswith("1 running, ")
    assert found["counted"].startswith("now, in ")


def test_one_line_for_a_prompt_has_what_there_is_and_nothing_else(town: CommandLine) -> None:
    assert town("status", "--line").out == "blackboard: 3 items, 1 paused; 0 workers\n"
    failed = town.start("davis")
    town.finish(failed, Outcome.FAILED, error="boom")
    assert "1 failing" in town("status", "--line").out
    town("pause", "--board")
    assert town("status", "--line").out.endswith("; 0 workers; the board is paused\n")
    town.on_board(announced)
    assert "; 1 worker; " in town("status", "--line").out
    assert town("status", "--line").out.count("\n") == 1
    refused = town.refused("status", "--line", "--watch", "soon")
    assert refused.startswith("watch: it shows the whole screen")


def test_programs_have_it_as_json(town: CommandLine) -> None:
    counted(town, age=timedelta(minutes=3), items=1_001)
    said = town("status", "--json").json
    assert (said["items"], said["active"], said["paused"], said["done"]) == (1_001, 2, 1, 0)
    assert said["types"][0]["type"] == "feed"
    assert said["earliest"].endswith("Z")
    assert (said["workers"], said["coordinator"]) == ({"alive": 0, "lost": 0}, None)
    assert (said["counted"]["by"], said["counted"]["age"] >= 180) == ("rabbit:7:abc", True)
    exact = town("status", "--json", "--exact").json["counted"]
    assert (exact["by"], exact["age"] < 60) == (None, True)


def test_the_coordinator_and_the_workers_are_shown(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This enters as a worker does.
    monkeypatch.setattr("blackboard.protocol.leaders.name_of_program", str)
    town.on_board(announced)
    with package.open_blocking() as board, board.election("coordinator") as leader:
        leader.won()
        said = town("status", "--json").json
        assert said["workers"]["alive"] == 1
        assert said["coordinator"]["term"] == 1
        assert lines(town("status"))["coordinator"].endswith(", term 1")
    assert town("status", "--json").json["coordinator"] is None


def test_an_empty_board_has_a_status(blackboard: CommandLine) -> None:
    blackboard("init")
    assert lines(blackboard("status"))["earliest"] == "no item waits"
    assert blackboard("status", "--json").json["items"] == 0


# ---- show


@pytest.fixture(name="large")
def _large(town: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setattr("blackboard.protocol.status.LARGE", 10)
    names = [f"part-{number:02}" for number in range(20)]
    town.on_board(lambda board: ensure(board, names, "feed"))
    return town


def ids(said: Said) -> list[str]:
    return [line.split()[0] for line in said.out.split("\n\n")[0].splitlines()[1:]]


def test_show_has_so_many_lines_and_says_how_many_are_left(large: CommandLine) -> None:
    said = large("show", "--limit", "2")
    assert ids(said) == ["backup", "davis", "..."]
    assert "... and 21 more" in said.out
    assert said.out.splitlines()[-1].startswith("23 items, 1 paused, next ")
    assert [one["id"] for one in large("show", "--limit", "2", "--json").json] == [
        "backup",
        "davis",
    ]


def test_of_a_large_board_only_what_is_shown_is_read(large: CommandLine) -> None:
    counted(large, age=timedelta(minutes=3), items=1_000)
    said = large("show", "--limit", "2")
    assert ids(said) == ["backup", "davis", "..."]
    assert "... and 998 more" in said.out
    assert said.out.splitlines()[-1] == "1,000 items, 1 paused, next now (counted 3m ago)"


def test_a_board_that_has_lost_items_since_they_were_counted_is_read(large: CommandLine) -> None:
    counted(large, age=timedelta(minutes=3), items=1_000)
    said = large("show", "--limit", "100")
    assert "more" not in said.out
    assert said.out.splitlines()[-1].startswith("23 items, ")


def test_a_limit_above_the_counted_items_leaves_none_out(large: CommandLine) -> None:
    counted(large, age=timedelta(minutes=3), items=21)
    assert "... and 1 more" in large("show", "--limit", "22").out


FOUND = {
    "--state overdue": ["davis", "part-03"],
    "--state running": ["part-02", "part-04"],
    "--state stale": ["part-02"],
    "--state stale --state overdue": ["davis", "part-02", "part-03"],
}


@pytest.mark.of_each_store
def test_of_a_large_board_what_runs_or_is_late_is_found_by_its_keys(large: CommandLine) -> None:
    for late in ("davis", "part-03"):
        large.set_back(late, timedelta(minutes=22))
    large.start("part-04")
    held = large.start("part-02")

    async def lower(board: BoardTable) -> None:
        """A lease that is over before anyone looks."""
        shorter = [Merge(keys.lock_key(held.id), {"stale_after": -60.0}, ANY)]
        await board.table.commit(board.partition(held.id), shorter)

    large.on_board(lower)
    for args, found in FOUND.items():
        assert [one["id"] for one in large("show", "--json", *args.split()).json] == found, args
    counted(large, items=1_000)
    for args, found in FOUND.items():
        for number in (None, 2, 1):
            limit = () if number is None else ("--limit", str(number))
            wanted = found[:number]
            shown = large("show", "--json", *args.split(), *limit).json
            assert [one["id"] for one in shown] == wanted, args
            said = large("show", *args.split(), *limit)
            assert [one for one in ids(said) if one != "..."] == wanted, args
            assert "(counted " in said.out
        assert large("show", "--json", *args.split(), "--type", "shell").json == []


@pytest.mark.parametrize("args", ["show --json --state overdue", "show --json state:overdue"])
def test_a_damaged_row_hides_no_other_late_items_of_a_large_board(
    large: CommandLine, args: str
) -> None:
    for late in ("davis", "part-03"):
        large.set_back(late, timedelta(minutes=22))

    async def damage(board: BoardTable) -> None:
        spoiled = [Merge(keys.item_key("davis"), {"state": "?"}, ANY)]
        await board.table.commit(board.partition("davis"), spoiled)

    large.on_board(damage)
    counted(large, items=1_000)
    said = large(*args.split())
    assert [one["id"] for one in said.json] == ["part-03"]
    assert "1 item left out, whose rows cannot be read" in said.err


@pytest.mark.cases_of_one_store("columns are sorted above the store")
@pytest.mark.parametrize(
    "args", [("part-*",), ("--type", "feed"), ("--state", "paused"), ("--sort", "runs")]
)
def test_what_is_looked_for_or_sorted_is_read_as_a_whole(
    large: CommandLine, args: tuple[str, ...]
) -> None:
    counted(large, items=1_000)
    assert "(counted" not in large("show", "--limit", "2", *args).out


def test_a_large_board_is_read_where_its_counts_are_old_or_nothing_is_left_out(
    large: CommandLine,
) -> None:
    counted(large, items=1_000)
    assert large("show").out.splitlines()[-1].startswith("23 items, ")
    counted(large, age=CURRENT + timedelta(minutes=1), items=1_000)
    assert large("show", "--limit", "2").out.splitlines()[-1].startswith("23 items, ")


def test_a_watched_large_board_is_read_as_far_as_it_fits(large: CommandLine) -> None:
    counted(large, items=1_000)

    async def drawn(board: BoardTable) -> tuple[list[str], int]:
        view = BoardView(board, Board(board, Session.start(Chosen())), ItemQuery())
        view.draw(100, 7)
        await view.read()
        return [text_of(line, colour=False) for line in view.draw(100, 7)], len(view.state.items)

    found, read = large.on_board(drawn)
    assert [line[2:].split()[0] for line in found[1:5]] == ["backup", "davis", "elko", "part-00"]
    assert read == 4
    assert found[-2].startswith("1,000 items, 1 paused, next now (counted ")
    assert "1-4 of 1,000" in found[-2]


def test_a_state_that_is_watched_may_be_that_of_none(blackboard: CommandLine) -> None:
    blackboard("add", "davis", "--type", "feed")

    async def story(board: BoardTable) -> None:
        query = ItemQuery(ids=["state:paused"])
        view = BoardView(board, Board(board, Session.start(Chosen())), query)
        for is_paused in (False, True, False):
            if is_paused:
                await view._board.pause("davis")
            elif view.state.items:
                await view._board.resume("davis")
            await view.read()
            assert [one.item.id for one in view.state.items] == ["davis"] * is_paused

    blackboard.on_board(story)


def test_as_many_types_are_counted_as_a_row_holds(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    blackboard("init")
    monkeypatch.setattr("blackboard.protocol.status.LARGE", MOST_TYPES)

    async def many(board: BoardTable) -> None:
        for number in range(MOST_TYPES + 5):
            await ensure(board, [f"item-{number:03}"], f"{'x' * 100}-{number:03}")
        assert await write_statistics(board, await count(board, by="x" * 100, term=1))

    blackboard.on_board(many)
    said = blackboard("status")
    assert "... and 5 items of other types" in said.out
    assert " ago by " in said.out
