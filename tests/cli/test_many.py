"""What is done to many items at a time: in their order, with a bar, and again after a kill."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from blackboard.cli.many import AT_ONCE, for_each
from blackboard.cli.output import MOST_LINES
from blackboard.cli.progress import MANY
from blackboard.model import VERSION, Item
from blackboard.protocol import additions, edits
from blackboard.protocol.actions import BEGUN
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import item_key, lock_key
from blackboard.table import ANY, Merge
from blackboard.tables.base import MAX_ROWS
from tests.cli.command_line import ROOT, CommandLine, blackboard, processed
from tests.support.terminals import terminal

__all__ = ["blackboard"]


def declared(count: int) -> str:
    return "".join(
        f'[[items]]\nid = "town-{number:05}"\ntype = "feed"\nevery = "8h"\n\n'
        for number in range(count)
    )


def test_results_are_in_the_order_of_the_things_and_some_are_done_at_a_time() -> None:
    under_way, most = 0, 0

    async def change(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(number % 7):
            await asyncio.sleep(0)
        under_way -= 1
        return 2 * number

    assert asyncio.run(for_each(range(100), change, "doubling")) == [*range(0, 200, 2)]
    assert most == AT_ONCE


def test_after_an_error_those_under_way_are_finished_and_no_other_is_begun(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun, finished = [], []

    async def change(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 2:
            raise ValueError("the third")
        await asyncio.sleep(0)
        finished.append(number)

    with pytest.raises(ValueError, match="the third"):
        asyncio.run(for_each(range(500), change, "trying"))
    assert len(begun) <= 2 * AT_ONCE
    assert sorted([*finished, 2]) == begun
    assert capsys.readouterr().err == f"blackboard: trying: {len(finished)} of 500 are done\n"


def test_at_ctrl_c_those_under_way_are_finished_and_counted_and_no_other_is_begun(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun, finished = [], []

    async def change(number: int) -> None:
        begun.append(number)
        if number == 2 * AT_ONCE:
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        finished.append(number)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(for_each(range(500), change, "trying"))
    assert len(begun) <= 4 * AT_ONCE
    assert sorted(finished) == begun
    assert capsys.readouterr().err == f"blackboard: trying: {len(finished)} of 500 are done\n"


ENDING = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
above_the_store = pytest.mark.cases_of_one_store("signals are handled above the store")


@above_the_store
@ENDING
def test_a_signal_lets_an_apply_finish_its_batch_and_say_what_is_done(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    blackboard("init")
    blackboard.write(declared(MAX_ROWS))
    add_batch = additions._add_batch

    async def interrupted(*args: Any) -> list[Item]:
        signal.raise_signal(number)
        await asyncio.sleep(0)
        return await add_batch(*args)

    monkeypatch.setattr(additions, "_add_batch", interrupted)
    said = blackboard("apply", "--json", code=130)
    added = len(blackboard.ids())
    assert 0 < added < MAX_ROWS
    assert len(said.json["add"]) == added
    (action,) = blackboard("log", "--actions", "--json").json
    assert (action["verb"], action["count"]) == ("apply", added)
    assert f"adding: {added:,} of {MAX_ROWS:,} are done" in said.err


@above_the_store
@ENDING
def test_a_signal_lets_changes_under_way_finish_and_records_them(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    blackboard.write(declared(3 * AT_ONCE))
    blackboard("apply")
    pause, sent = edits.pause, [number]

    async def interrupted(*args: Any) -> Any:
        while sent:
            signal.raise_signal(sent.pop())
        return await pause(*args)

    monkeypatch.setattr(edits, "pause", interrupted)
    said = blackboard("pause", "*", "--json", code=130).json
    paused = len(blackboard("show", "--state", "paused", "--json").json)
    assert 0 < paused < 3 * AT_ONCE
    assert len(said) == paused
    action = blackboard("log", "--actions", "--json").json[0]
    assert (action["verb"], action["count"]) == ("pause", paused)


@pytest.mark.parametrize(
    ("verb", "does"),
    [
        (["pause"], "pause"),
        (["edit", "--description", "x"], "edit"),
        (["run"], "run_now"),
        (["run", "--wait"], "run_now"),
    ],
)
def test_one_of_many_items_that_is_removed_meanwhile_keeps_no_other_from_being_changed(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, verb: list[str], does: str
) -> None:
    blackboard.write(declared(2 * AT_ONCE))
    blackboard("apply")
    change, first = getattr(edits, does), ["town-00000"]

    async def after_a_removal(board: Any, item_id: str, *args: Any, **named: Any) -> Any:
        while first:
            await edits.remove(board, first.pop())
        return await change(board, item_id, *args, **named)

    monkeypatch.setattr(edits, does, after_a_removal)
    monkeypatch.setattr("blackboard.cli.follow.NO_WORKER_WAIT", 0.0)
    told = blackboard(verb[0], "*", *verb[1:], "--json", code=1)
    assert "town-00000 was removed by another command meanwhile" in told.err
    assert [item["id"] for item in told.json] == [f"town-{n:05}" for n in range(2 * AT_ONCE)]
    action = blackboard("log", "--actions", "--json").json[0]
    assert (action["verb"], action["count"]) == (verb[0], 2 * AT_ONCE - 1)


@pytest.mark.parametrize("verb", [["pause"], ["run"], ["edit", "--every", "9h"]])
def test_of_many_items_one_that_cannot_be_changed_here_keeps_no_other_from_being_changed(
    blackboard: CommandLine, verb: list[str]
) -> None:
    blackboard("add", "a", "b", "c", "--type", "calendars", "--every", "8h")

    async def written_by_a_newer_version(board: BoardTable) -> None:
        newer = Merge(item_key("a"), {"version": VERSION + 1}, ANY)
        await board.table.commit(board.partition("a"), [newer])

    blackboard.on_board(written_by_a_newer_version)
    blackboard("pause", "b")
    problem = "id: 'a' was written by a newer version (upgrade blackboard)"
    told = blackboard(verb[0], "*", *verb[1:], code=2)
    assert told.err.startswith(f"blackboard: a is left after an error: {problem}\n")
    assert "c is " in told.out
    assert blackboard(verb[0], "a", *verb[1:], code=2).err == f"blackboard: {problem}\n"


def test_of_many_locks_one_that_cannot_be_read_keeps_no_other_from_being_taken(
    blackboard: CommandLine,
) -> None:
    blackboard("add", "a", "b", "--type", "calendars", "--every", "8h")
    for name in ("a", "b"):
        blackboard.start(name)

    async def damaged(board: BoardTable) -> None:
        await board.table.commit(board.partition("a"), [Merge(lock_key("a"), {"fence": "x"}, ANY)])

    blackboard.on_board(damaged)
    told = blackboard("unlock", "*", code=2)
    assert told.err.startswith("blackboard: a is left after an error: row lock:a: ")
    assert told.out.startswith("b is unlocked (")


def test_an_error_of_the_only_change_needs_no_count(capsys: pytest.CaptureFixture[str]) -> None:
    async def change(number: int) -> None:
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        asyncio.run(for_each([0], change, "trying"))
    assert capsys.readouterr().err == ""


@pytest.mark.not_on_azurite("the bar does not depend on the store")
def test_a_progress_bar_is_on_stderr_at_a_terminal_only(blackboard: CommandLine) -> None:
    blackboard.write(declared(MANY))
    with terminal("apply", folder=blackboard.folder, size=(24, 80)) as screen:
        screen.wait_for("adding")
        screen.wait_for("100%")
        assert screen.end() == 0
    with terminal("pause", "town-*", folder=blackboard.folder, size=(24, 80)) as screen:
        screen.wait_for("changing")
        assert screen.end() == 0
    blackboard.write(declared(2 * MANY))
    said = blackboard("apply")
    assert "adding" not in said.err + said.out


KILLED = """
import os, signal
from blackboard.cli import called
from blackboard.protocol import additions

add_batch = additions._add_batch


async def add_and_die(*args):
    await add_batch(*args)
    os.kill(os.getpid(), signal.SIGKILL)


additions._add_batch = add_and_die
called(["apply"])
"""
"""A program that is killed when the first of its batches was written."""


@pytest.mark.not_on_azurite("the file is looked into from outside")
def test_an_apply_that_was_killed_is_repeated_and_goes_on(blackboard: CommandLine) -> None:
    count = MAX_ROWS
    blackboard("init")
    blackboard.write(declared(count))
    file = blackboard.folder / blackboard.store
    others = 2
    """The row of the board, and the action that has begun."""
    process = subprocess.run(
        [sys.executable, "-c", KILLED],
        cwd=blackboard.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert process.returncode == -signal.SIGKILL
    added = rows_in(file) - others
    assert 0 < added < 2 * count
    assert added % 2 == 0, "an item without its token, or a token without its item"
    said = processed("apply", folder=blackboard.folder)
    assert said.stdout.splitlines()[-1] == (
        f"{count - added // 2} to add, 0 to change, 0 to remove, {added // 2} unchanged"
    )
    action = 1
    assert rows_in(file) == others + 2 * count + action
    ended, killed = blackboard("log", "--actions", "--json").json
    assert ended["count"] == count - added // 2
    assert (killed["count"], killed["detail"]) == (count, BEGUN)
    assert blackboard("doctor").code == 0


def rows_in(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM rows").fetchone()
    return int(count)


def test_a_command_names_the_first_of_many_items_that_it_changes(blackboard: CommandLine) -> None:
    count = MOST_LINES + 5
    left, ids = "... and 5 more", [f"town-{number:05}" for number in range(count)]
    blackboard.write(declared(count), "towns.toml")
    whole = blackboard("apply", "towns.toml", "--dry-run").out.splitlines()
    assert len([line for line in whole if line.startswith("+ town-")]) == count
    first = blackboard("apply", "towns.toml").out.splitlines()
    assert first[:MOST_LINES] == whole[:MOST_LINES]
    assert first[MOST_LINES:] == ["+ ... and 5 more", whole[-2]]
    paused = blackboard("pause", "*").out.splitlines()
    assert [line.split()[0] for line in paused[:MOST_LINES]] == ids[:MOST_LINES]
    assert paused[MOST_LINES:] == [left]
    refused = blackboard("ack", "*", code=1)
    assert (refused.out, refused.err.splitlines()[MOST_LINES:]) == ("", [f"blackboard: {left}"])
    assert [one["id"] for one in blackboard("resume", "*", "--json").json] == ids
