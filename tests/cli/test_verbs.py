"""pause, resume, cancel, unlock, rm: what they do, what they answer, what they leave alone."""

import json
import re
import signal
import sys
from io import StringIO
from typing import Any

import pytest

from blackboard.cli import verbs
from blackboard.model import VERSION, Mark, Outcome, State
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_pause import pause_board, resume_board
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import item_key
from blackboard.protocol.rename import rename
from blackboard.spec import Spec
from blackboard.table import ANY, Data, Merge, Unavailable
from tests.cli.command_line import CommandLine, blackboard
from tests.support.faults import Fault, FaultyTable

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store(
    "the verbs themselves are in tests/protocol, and test_actions.py calls each on each store"
)


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "dayton", "montclair", "--type", "calendars", "--every", "8h")
    return blackboard


def add_a_pattern(towns: CommandLine, item_id: str) -> None:
    """Adds an item that an earlier version has allowed."""

    async def added(board: BoardTable) -> None:
        await add(board, New(id=item_id, type="calendars", spec=Spec()))

    towns.on_board(added)


def outcomes(towns: CommandLine, item_id: str) -> list[str]:
    async def read(board: BoardTable) -> list[str]:
        return [run.outcome.value async for run in board.runs(item_id)]

    return towns.on_board(read)


def test_pause_records_who_and_why_and_resume_undoes_it(towns: CommandLine) -> None:
    assert towns("pause", "davis", "--reason", "moving").out == "davis is paused\n"
    item = towns.item("davis")
    assert item.state is State.PAUSED
    note = json.loads(item.paused)
    assert note["reason"] == "moving"
    assert "@" in note["by"]
    assert towns("pause", "davis").out == "davis was paused already\n"
    assert towns("resume", "davis").out == "davis is resumed and is due now\n"
    assert towns.item("davis").state is State.ACTIVE
    assert towns("resume", "davis").out == "davis was not paused\n"


def test_a_running_item_may_finish_when_it_is_paused(towns: CommandLine) -> None:
    held = towns.start("davis")
    assert towns("pause", "davis").out == "davis is paused; the run under way may finish\n"
    towns.finish(held)
    assert towns.item("davis").state is State.PAUSED


def test_an_item_that_is_done_cannot_be_paused(towns: CommandLine) -> None:
    towns("add", "once", "--type", "calendars")
    towns.finish(towns.start("once"))
    assert towns.item("once").state is State.DONE
    assert "is done: there is nothing to pause" in towns("pause", "once", code=1).err


def test_a_paused_item_that_is_done_since_says_so_and_is_resumed(towns: CommandLine) -> None:
    towns.finish(towns.start("davis"))
    towns("pause", "davis")
    towns("edit", "davis", "--at", "2020-01-01T00:00Z")
    assert towns.item("davis").state is State.DONE
    assert towns("pause", "davis").out == "davis was paused already\n"
    assert "resume davis" in towns("run", "davis", code=1).err
    (told,) = towns("why", "davis", "--json").json
    assert told["facts"]["next"] == "nothing is due any more"
    assert told["facts"]["to change"] == "`blackboard resume davis`"
    assert [one["id"] for one in towns("show", "--state", "paused", "--json").json] == ["davis"]
    assert towns("resume", "davis").out == "davis is resumed and is done\n"
    assert "`blackboard run davis` runs it once again" in towns("why", "davis").out


def test_cancel_ends_a_run_and_waits_for_the_next_time(towns: CommandLine) -> None:
    held = towns.start("davis")
    said = towns("cancel", "davis", "--reason", "wrong feeds", "--json").json[0]
    assert (said["running"], said["outcome"], said["changed"]) == (False, "cancelled", True)
    assert "wrong feeds" in said["error"]
    item = towns.item("davis")
    assert (item.state, item.running) == (State.ACTIVE, False)
    assert (item.ready - held.start).total_seconds() == 8 * 3600
    towns.finish(held)
    assert outcomes(towns, "davis") == ["superseded"]


def test_cancel_of_an_item_that_does_not_run_is_a_no(towns: CommandLine) -> None:
    towns.start("dayton")
    said = towns("cancel", "davis", "dayton", code=1)
    assert said.err == "blackboard: davis does not run\n"
    assert said.out.startswith("dayton is cancelled (was with host:1:worker)")


def test_a_cancelled_item_keeps_the_schedule_of_a_handler_unknown_here(
    towns: CommandLine,
) -> None:
    towns.write('[types.feed]\nevery = "8h"\n')
    towns("add", "a", "--type", "feed")
    towns.start("a")
    (towns.folder / "blackboard.toml").unlink()
    towns("cancel", "a")
    assert towns.item("a").state is State.ACTIVE


def test_unlock_takes_the_lock_that_was_read(towns: CommandLine) -> None:
    held = towns.start("davis")
    told = towns("unlock", "davis", "--reason", "host gone").out
    assert told.startswith(f"davis is unlocked (fence {held.fence}, held by host:1:worker")
    assert told.endswith("and is due now\n")
    assert outcomes(towns, "davis") == ["abandoned"]
    assert "davis is not locked" in towns("unlock", "davis", code=1).err


def test_unlock_leaves_any_other_lock_than_the_one_shown(towns: CommandLine) -> None:
    held = towns.start("davis")
    before = towns.rows()
    said = towns("unlock", "davis", "--fence", str(held.fence + 1), code=1)
    assert f"is not locked with fence {held.fence + 1}, but {held.fence}" in said.err
    assert towns.rows() == before
    towns("unlock", "davis", "--fence", str(held.fence))
    assert not towns.item("davis").running


def test_cancel_leaves_any_other_run_than_the_one_shown(towns: CommandLine) -> None:
    held = towns.start("davis")
    before = towns.rows()
    said = towns("cancel", "davis", "--fence", str(held.fence + 1), code=1)
    assert f"does not run with fence {held.fence + 1}, but {held.fence}" in said.err
    assert towns.rows() == before
    towns("cancel", "davis", "--fence", str(held.fence))
    assert not towns.item("davis").running


def test_a_fence_belongs_to_one_item(towns: CommandLine) -> None:
    for verb in ("unlock", "cancel"):
        assert towns.refused(verb, "da*", "--fence", "1").startswith("fence: ")
        assert "'--fence'" in towns.refused(verb, "davis", "--fence", "-1")


def test_rm_removes_what_is_named(towns: CommandLine) -> None:
    assert towns("rm", "davis", "dayton").out == "davis is removed\ndayton is removed\n"
    assert towns.ids() == ["montclair"]


def test_rm_says_that_an_item_was_running(towns: CommandLine) -> None:
    held = towns.start("davis")
    assert towns("rm", "davis").out == "davis is removed, while it was running\n"
    towns.finish(held, Outcome.OK, result={"late": True})
    assert towns.ids() == ["dayton", "montclair"]


def test_rm_of_a_glob_needs_a_yes(towns: CommandLine) -> None:
    told = towns.refused("rm", "da*")
    assert told == "id: this would remove 2 items: davis, dayton (say so with --yes)"
    assert towns.refused("rm", "mont*").startswith("id: this would remove 1 item: montclair")
    towns("rm", "mont*", "--yes")
    towns("rm", "davis", "dayton")
    assert towns.ids() == []


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("cancel", "had ended, or been taken over, before it could be cancelled"),
        ("unlock", "is not locked with fence 1 any more"),
    ],
)
def test_a_run_that_ends_meanwhile_is_left_as_it_is(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, verb: str, words: str
) -> None:
    held = towns.start("davis")
    stale = towns.on_board(lambda board: board.lock("davis")), towns.item("davis")
    towns.finish(held)

    async def lock(*_: object) -> object:
        return stale[0]

    async def select(*_: object, **__: object) -> object:
        return [stale[1]]

    monkeypatch.setattr("blackboard.cli.many.select", select)
    monkeypatch.setattr("blackboard.protocol.board_table.BoardTable.lock", lock)
    before = towns.rows()
    for fence in ([], ["--fence", str(held.fence)]):
        said = towns(verb, "davis", *fence, code=1)
        assert said.err == f"blackboard: davis {words}\n"
    assert towns.rows() == before


class Keyboard(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("glob", "typed", "code", "asked", "left"),
    [
        ("da*", "y\n", 0, "2 items (davis, dayton)", ["montclair"]),
        ("da*", "n\n", 1, "2 items (davis, dayton)", ["davis", "dayton", "montclair"]),
        ("m*", "n\n", 1, "1 item (montclair)", ["davis", "dayton", "montclair"]),
    ],
)
def test_rm_asks_on_a_terminal(
    *,
    towns: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    glob: str,
    typed: str,
    code: int,
    asked: str,
    left: list[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    said = towns("rm", glob, code=code)
    assert f"Remove {asked}?" in said.err
    assert towns.ids() == left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("args", [["rm", "da*"], ["apply", "--prune"]])
def test_a_signal_at_a_question_ends_the_command_at_once(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, args: list[str], number: signal.Signals
) -> None:
    waiting = list[Keyboard]()

    class Interrupted(Keyboard):
        def readline(self, _size: int | None = -1, /) -> Any:
            signal.raise_signal(number)
            waiting.append(self)
            return "y\n"

    towns.write('[[items]]\nid = "ann"\ntype = "calendars"\n')
    towns("apply")
    towns.write("items = []\n")
    before = towns.rows()
    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert towns(*args, code=130).err.endswith("interrupted\n")
    assert not waiting
    assert towns.rows() == before


@pytest.mark.parametrize(
    "args",
    [
        ["pause", "absent"],
        ["resume", "absent"],
        ["cancel", "absent"],
        ["unlock", "absent"],
        ["rm", "absent"],
        ["run", "absent"],
        ["edit", "absent", "--every", "1h"],
        ["next", "absent"],
        ["export", "absent"],
        ["pause", "absent*"],
        ["rm", "davis", "absent*"],
        ["pause", ""],
    ],
)
def test_ids_and_globs_that_mean_nothing_are_refused(towns: CommandLine, args: list[str]) -> None:
    assert towns.refused(*args).startswith("id: ")


def test_an_id_is_meant_before_a_glob(towns: CommandLine) -> None:
    add_a_pattern(towns, "da*")
    towns("rm", "da*")
    assert towns.ids() == ["davis", "dayton", "montclair"]


def test_exact_takes_ids_as_written(towns: CommandLine) -> None:
    assert towns.refused("pause", "da*", "--exact").startswith("id: no item 'da*'")
    towns("add", "da?is", "--type", "calendars")
    assert towns("pause", "--exact", "da?is").out == "da?is is paused\n"


def test_each_item_is_meant_once(towns: CommandLine) -> None:
    said = towns("pause", "dayton", "da*", "davis", "--json").json
    assert [one["id"] for one in said] == ["dayton", "davis"]


LABELLED = """
from blackboard import handler


@handler("tide", every="8h", tags=["eu"], owner="web")
def tide(item, ctx): ...
"""


def test_labels_that_a_handler_declares_choose_items(towns: CommandLine) -> None:
    """In each command, as those of the settings and of the items themselves do."""
    towns.write('[board]\njobs = ["jobs.py"]\n')
    towns.write(LABELLED, "jobs.py")
    towns("add", "tide", "--type", "tide")
    towns.finish(towns.start("tide"), Outcome.FAILED, error="low water")
    labels = {"description": "", "owner": "web", "tags": ["eu"]}

    def answers(line: str) -> None:
        [answer] = towns(*line.split(), "--json").json
        assert (answer["id"], answer["labels"]) == ("tide", labels), line

    for verb in ("show", "why", "edit --retries 1", "ack", "pause", "resume", "run"):
        answers(f"{verb} tag:eu")
    for verb in ("unlock", "cancel"):
        towns.start("tide")
        answers(f"{verb} owner:w*")
    assert [one["id"] for one in towns("log", "tag:eu", "--json").json] == ["tide"] * 3
    assert [one["id"] for one in towns("export", "tag:eu", "--json").json] == ["tide"]
    assert towns("next", "tag:eu", "--json").json.keys() == {"tide"}
    assert towns("check", "owner:web", "--json", code=1).json["items"] == 1
    assert "tide: none of its runs" in towns("report", "tag:eu", code=1).err
    answers("rm tag:eu --yes")


def test_a_label_that_looks_like_a_glob_means_itself_too(towns: CommandLine) -> None:
    towns("edit", "davis", "--owner", "ops [eu]")
    towns("edit", "dayton", "--owner", "ops e")
    assert towns("pause", "owner:ops [eu]").out == "davis is paused\ndayton is paused\n"


def test_labels_choose_items(towns: CommandLine) -> None:
    towns("edit", "davis", "--tags", "eu, nightly", "--owner", "ops", "--description", "a town")
    assert '["eu"]' in towns("edit", "dayton", "--tags", "eu,eu").out
    towns("add", "report", "--type", "shell", "--set", 'command=["true"]', "--every", "8h")
    assert towns("pause", "tag:eu").out == "davis is paused\ndayton is paused\n"
    assert towns("resume", "owner:op*").out == "davis is resumed and is due now\n"
    assert towns("pause", "type:shell").out == "report is paused\n"
    assert "no item matches 'tag:us'" in towns("pause", "tag:us", code=2).err
    assert "no item 'tag:eu'" in towns("pause", "tag:eu", "--exact", code=2).err
    labels = {"description": "a town", "owner": "ops", "tags": ["eu", "nightly"]}
    assert json.loads(towns("show", "davis", "--json").out)[0]["labels"] == labels
    assert "a town; owner ops; #eu #nightly" in towns("why", "davis").out
    towns("edit", "davis", "--tags", "", "--owner", "")
    assert json.loads(towns("show", "davis", "--json").out)[0]["labels"]["tags"] == []
    assert "is not a tag" in towns("edit", "davis", "--tags", "-a", code=2).err


def test_a_state_chooses_items(towns: CommandLine) -> None:
    towns("add", "keene", "--type", "calendars", "--every", "8h")
    for name in ("davis", "dayton"):
        towns.finish(towns.start(name), Outcome.FAILED, error="no host")
    towns.start("keene")
    assert towns("run", "state:failed").out == "davis is due now\ndayton is due now\n"
    assert towns("pause", "state:running", "davis").out == (
        "keene is paused; the run under way may finish\ndavis is paused\n"
    )
    assert towns("resume", "state:paused", "--json").json[0]["id"] == "davis"
    shown = [one["id"] for one in towns("show", "state:failed", "--json").json]
    assert shown == ["davis", "dayton"]
    assert [one["id"] for one in towns("log", "state:running", "--json").json] == []


def test_a_state_that_no_item_is_in_is_no_bad_input(towns: CommandLine) -> None:
    assert towns("run", "state:failed", code=1).err == "blackboard: state: no item is failed\n"
    assert "no item 'state:failed'" in towns("run", "state:failed", "--exact", code=2).err
    refused = towns("rm", "state:odd", code=2).err
    assert "state: there is no state 'odd' (one of active, " in refused
    refused = towns("rm", "state:f*", code=2).err
    assert "no state 'f*' (it is no glob: name each state that is meant, one of " in refused


def test_of_several_states_those_that_no_item_is_in_are_passed_over(towns: CommandLine) -> None:
    towns("pause", "davis")
    assert (
        towns("resume", "state:failed", "state:paused").out == "davis is resumed and is due now\n"
    )
    assert towns("run", "state:failed", "dayton").out.startswith("dayton is due now")
    assert "no item is stale" in towns("run", "state:failed", "state:stale", code=1).err
    assert "no item 'nope'" in towns("run", "state:failed", "nope", code=2).err


def test_several_states_are_one_reading_of_the_board(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    towns("pause", "davis")
    readings, scan = 0, BoardTable.items

    def counted(self: BoardTable, **options: Any) -> Any:
        nonlocal readings
        readings += 1
        return scan(self, **options)

    monkeypatch.setattr(BoardTable, "items", counted)
    towns("resume", "state:paused")
    once = readings
    towns("pause", "davis")
    readings = 0
    assert len(towns("resume", "state:stale", "state:paused", "state:done").out.splitlines()) == 1
    assert readings == once


def test_a_state_is_by_the_time_that_overdue_gives(towns: CommandLine) -> None:
    assert towns("show", "state:overdue", "--json").json == []
    assert towns("show", "state:overdue").out == "0 items\n"
    assert len(towns("show", "state:overdue", "--overdue", "0", "--json").json) == 3
    assert towns("check", "state:overdue", "--overdue", "0", code=1).out.count("overdue") == 3


def test_all_is_well_where_no_item_is_in_a_state_that_is_checked(towns: CommandLine) -> None:
    assert towns("check", "state:failed").out == "all well: 0 items\n"


def test_an_item_that_was_named_like_a_state_is_meant_by_its_id(towns: CommandLine) -> None:
    """Partitions may have such names."""
    add_a_pattern(towns, "state:failed")
    assert towns("pause", "state:failed").out == "state:failed is paused\n"


def test_an_item_is_renamed(towns: CommandLine) -> None:
    towns.finish(towns.start("davis"))
    assert towns("rename", "davis", "woodland").out == "woodland is the name of davis now\n"
    assert towns.item("woodland").runs == 1
    assert outcomes(towns, "davis") == ["ok"]
    assert "no item 'davis'" in towns("rename", "davis", "dixon", code=2).err
    assert "is on this board already" in towns("rename", "dayton", "montclair", code=2).err
    assert "it is the same" in towns("rename", "dayton", "dayton", code=2).err
    assert "'d*y' would mean other items" in towns("rename", "dayton", "d*y", code=2).err
    towns("pause", "dayton")
    said = "dixon is the name of dayton now and is paused, as it was\n"
    assert towns("rename", "dayton", "dixon").out == said


def test_what_is_being_renamed_is_refused_and_the_others_are_changed(towns: CommandLine) -> None:
    """The rename is killed before it removes the old one."""

    async def killed(board: BoardTable) -> None:
        table = FaultyTable(board.table)
        table.script(Fault.NONE, Fault.NONE, Fault.AWAY)
        mark = Mark(by="ann", at=await board.table.now())
        with pytest.raises(Unavailable):
            await rename(board.using(table), "davis", "woodland", mark)

    towns.on_board(killed)
    refused = "woodland is being renamed: `blackboard rename davis woodland` finishes it"
    said = towns("edit", "*", "--every", "3h", code=1)
    assert refused in said.err
    assert len(said.out.splitlines()) == len(towns.ids()) - 1
    assert refused in towns("resume", "woodland", code=1).err
    towns("rename", "davis", "woodland")
    assert towns.item("woodland").schedule == "every 3h"


def test_an_item_gets_another_type(towns: CommandLine) -> None:
    edited = towns("edit", "davis", "--type", "shell", "--set", 'command=["true"]')
    assert "type calendars -> shell" in edited.out
    assert towns.item("davis").type == "shell"
    towns.start("davis")
    assert "davis runs" in towns("edit", "davis", "--type", "calendars", code=1).err


def test_schedules_have_limits(towns: CommandLine) -> None:
    towns("edit", "davis", "--max-runs", "1", "--blackout", "sat-sun, 22:00-06:00")
    assert towns.item("davis").schedule == "every 8h (1 run; not sat-sun, 22:00-06:00)"
    towns.finish(towns.start("davis"))
    assert towns.item("davis").state is State.DONE
    assert (
        "there is no calendar 'feasts'"
        in towns("edit", "dayton", "--blackout", "feasts", code=2).err
    )
    assert "is out of range" in towns("edit", "dayton", "--max-runs", "0", code=2).err
    towns("edit", "dayton", "--until", "in 2h")
    assert "until" in towns.item("dayton").schedule


def test_the_board_is_paused_as_a_whole(towns: CommandLine) -> None:
    def first_line(*words: str) -> str:
        """Without how long ago the pause was: commands may take a second."""
        return re.sub(r" \((now|\d+s ago)\)", "", towns(*words).out.splitlines()[0])

    towns("pause", "davis")
    said = first_line("pause", "--board", "--reason", "moving")
    assert said.startswith("the board is paused, by ")
    assert ": moving; `blackboard resume --board` ends that" in said
    assert first_line("show") == said
    assert first_line("status") == said
    assert towns("status", "--json").json["board_paused"]["reason"] == "moving"
    assert first_line("check") == said
    assert "board       paused by" in towns("why", "dayton").out.replace("  board", "board ")
    assert first_line("pause", "--board") == said, "the first one stays"
    assert towns("resume", "--board").out == "the board is resumed\n"
    assert towns("resume", "--board", "--json").json == {
        "board": "blackboard",
        "changed": False,
        "paused": None,
    }
    assert towns.item("davis").is_paused, "its own pause stays"
    assert "no item is named" in towns("pause", code=2).err
    towns("init", "--board", "other")
    towns("pause", "--board", "other")
    assert "paused" not in towns("show").out.splitlines()[0]
    assert towns("show", "--board", "other").out.startswith("the board is paused")


def test_a_command_for_the_board_says_when_another_has_undone_it(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def undone(board: BoardTable, mark: Mark) -> bool:
        return await pause_board(board, mark) and await resume_board(board)

    monkeypatch.setattr(verbs, "pause_board", undone)
    said = towns("pause", "--board", code=1).out
    assert said == "the board is not paused: it was resumed meanwhile\n"

    async def redone(board: BoardTable) -> bool:
        return await pause_board(board, Mark(by="ben", at=await board.table.now(), reason="mine"))

    monkeypatch.setattr(verbs, "resume_board", redone)
    said = towns("resume", "--board", code=1).out
    assert said.startswith("another command has paused it meanwhile: the board is paused, by ben")
    assert towns("resume", "--board", "--json", code=1).json["paused"]["reason"] == "mine"


def test_a_failure_is_acknowledged_until_the_item_runs_again(towns: CommandLine) -> None:
    towns("rm", "dayton", "montclair", "--yes")
    towns.finish(towns.start("davis"), Outcome.FAILED)
    assert "failing" in towns("check", code=1).out
    assert towns("ack", "davis", "--reason", "known").out == (
        "davis is acknowledged, with its 1 failure in a row\n"
    )
    assert "well" in towns("check").out
    assert "acknowledged  by" in towns("why", "davis").out
    assert towns("show", "--json").json[0]["acknowledged"]["reason"] == "known"
    assert "already" in towns("ack", "davis").out
    towns("run", "davis")
    held = towns.start("davis")
    assert "davis runs: its outcome ends the alarm" in towns("ack", "davis", code=1).err
    towns.finish(held, Outcome.FAILED)
    assert "failing" in towns("check", code=1).out


@pytest.mark.parametrize("column", ["state", "fence", "item"])
def test_an_item_whose_row_cannot_be_read_is_removed(blackboard: CommandLine, column: str) -> None:
    """With its lock and tokens; the next one of that id has a higher fence than all its runs."""
    blackboard("add", "waits", "runs", "other", "--type", "calendars", "--every", "1h")
    for item_id in ("waits", "runs"):
        blackboard.finish(blackboard.start(item_id))
    blackboard("run", "runs")
    held = blackboard.start("runs")

    async def spoiled(board: BoardTable) -> None:
        for item_id in ("waits", "runs"):
            row = Merge(item_key(item_id), {column: -1 if column == "fence" else "?"}, ANY)
            await board.table.commit(board.partition(item_id), [row])

    blackboard.on_board(spoiled)
    assert "`blackboard rm waits`" in blackboard("doctor", code=1).out
    said = blackboard("rm", "waits", "runs", "other", "--reason", "storm")
    words = "is removed; its row could not be read"
    assert said.out == f"waits {words}\nruns {words}\nother is removed\n"
    assert "storm" in blackboard("log", "--actions").out
    [run, _] = blackboard("log", "runs", "--json").json
    assert (run["outcome"], run["error"], run["fence"]) == ("cancelled", "its item was removed", 2)
    assert (run["type"], run["worker"]) == ("calendars", held.lock.owner)
    assert blackboard("doctor").out.startswith("clean: 0 items, 3 tombstones, 0 waiting tokens")
    blackboard("add", "waits", "runs", "--type", "calendars")
    assert (blackboard.item("waits").fence, blackboard.item("runs").fence) == (2, 3)
    blackboard.finish(held)
    assert blackboard("doctor").out.startswith("clean: 2 items")


def test_an_item_that_a_newer_version_wrote_is_not_removed(blackboard: CommandLine) -> None:
    blackboard("add", "davis", "--type", "calendars")

    async def spoiled(board: BoardTable) -> None:
        newer: Data = {"version": VERSION + 1, "state": "hibernating"}
        await board.table.commit(board.partition("davis"), [Merge(item_key("davis"), newer, ANY)])

    blackboard.on_board(spoiled)
    assert "upgrade blackboard" in blackboard.refused("rm", "davis")
