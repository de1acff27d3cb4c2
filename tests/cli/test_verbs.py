"""pause, resume, cancel, unlock, rm: what they do, what they answer, what they leave alone."""

import json
import sys
from io import StringIO

import pytest

from blackboard.model import Outcome, State
from blackboard.protocol.reading import BoardTable
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "dayton", "montclair", "--type", "calendars", "--every", "8h")
    return blackboard


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
    assert "resume davis" in towns.refused("run", "davis")
    told = towns("why", "davis").out
    assert "until `blackboard resume`. Nothing is due any more." in " ".join(told.split())
    assert [one["id"] for one in towns("show", "--state", "paused", "--json").json] == ["davis"]
    assert towns("resume", "davis").out == "davis is resumed and is done\n"
    assert "`blackboard run` would" in towns("why", "davis").out


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


def test_a_fence_belongs_to_one_item(towns: CommandLine) -> None:
    assert towns.refused("unlock", "da*", "--fence", "1").startswith("fence: ")


def test_rm_removes_what_is_named(towns: CommandLine) -> None:
    assert towns("rm", "davis", "dayton").out == "davis is removed\ndayton is removed\n"
    assert towns.ids() == ["montclair"]


def test_rm_says_that_an_item_was_running(towns: CommandLine) -> None:
    held = towns.start("davis")
    assert towns("rm", "davis").out == "davis is removed, while it was running\n"
    towns.finish(held, Outcome.OK, result={"late": True})
    assert towns.ids() == ["dayton", "montclair"]


def test_rm_of_several_by_glob_needs_a_yes(towns: CommandLine) -> None:
    told = towns.refused("rm", "da*")
    assert told == "id: this would remove 2 items (say so with --yes)"
    towns("rm", "mont*")
    towns("rm", "da*", "--yes")
    assert towns.ids() == []


@pytest.mark.parametrize("verb", ["cancel", "unlock"])
def test_a_run_that_ends_meanwhile_is_left_as_it_is(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    held = towns.start("davis")
    stale = towns.on_board(lambda board: board.lock("davis")), towns.item("davis")
    towns.finish(held)

    async def lock(*_: object) -> object:
        return stale[0]

    async def select(*_: object, **__: object) -> object:
        return [stale[1]]

    monkeypatch.setattr("blackboard.cli.edit.select", select)
    monkeypatch.setattr("blackboard.protocol.reading.BoardTable.lock", lock)
    before = towns.rows()
    said = towns(verb, "davis", code=1)
    assert said.err.startswith("blackboard: davis ")
    assert towns.rows() == before


class Keyboard(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "code", "left"),
    [("y\n", 0, ["montclair"]), ("n\n", 1, ["davis", "dayton", "montclair"])],
)
def test_rm_asks_on_a_terminal(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, left: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    said = towns("rm", "da*", code=code)
    assert "Remove 2 items (davis, dayton)?" in said.err
    assert towns.ids() == left


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
    towns("add", "da*", "--type", "calendars")
    towns("rm", "da*")
    assert towns.ids() == ["davis", "dayton", "montclair"]


def test_exact_takes_ids_as_written(towns: CommandLine) -> None:
    assert towns.refused("pause", "da*", "--exact").startswith("id: no item 'da*'")
    towns("add", "da?is", "--type", "calendars")
    assert towns("pause", "--exact", "da?is").out == "da?is is paused\n"


def test_each_item_is_meant_once(towns: CommandLine) -> None:
    said = towns("pause", "dayton", "da*", "davis", "--json").json
    assert [one["id"] for one in said] == ["dayton", "davis"]
