"""`blackboard log --actions`: which commands leave what, and which leave nothing."""

import re
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from blackboard.cli.export import item_text
from blackboard.model import Outcome
from blackboard.protocol.actions import BEGUN
from blackboard.protocol.actions import actions as read_actions
from blackboard.protocol.board_table import BoardTable
from blackboard.table import Delete, Op, Table, Unavailable, commit_again
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store("commands record their actions above the store")

Do = Callable[[CommandLine], object]


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "dayton", "keene", "--type", "calendars", "--every", "8h")
    return blackboard


def actions(towns: CommandLine, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = towns("log", "--actions", "--json", *args).json
    return found


def failed(towns: CommandLine) -> None:
    towns.finish(towns.start("davis"), Outcome.FAILED, error="ValueError")


@pytest.mark.cases_of_one_store("commands record their actions above the store")
@pytest.mark.parametrize(
    ("before", "command", "expected"),
    [
        (None, "pause davis dayton --reason moving", ("pause", ["davis", "dayton"], "moving", "")),
        (None, "pause da*", ("pause", ["davis", "dayton"], "", "")),
        (
            lambda towns: towns("pause", "davis"),
            "resume davis dayton --reason back",
            ("resume", ["davis"], "back", ""),
        ),
        (
            lambda towns: towns.start("davis"),
            "cancel davis --reason wrong",
            ("cancel", ["davis"], "wrong", ""),
        ),
        (lambda towns: towns.start("davis"), "unlock davis", ("unlock", ["davis"], "", "")),
        (failed, "ack davis --reason known", ("ack", ["davis"], "known", "")),
        (None, "run davis keene --reason late", ("run", ["davis", "keene"], "late", "")),
        (
            None,
            "run davis --set token=s3cret --set at.night=true",
            ("run", ["davis"], "", "params.token, params.at"),
        ),
        (
            None,
            "edit da* --every 4h --retries 2 --set token=s3cret --reason slower",
            ("edit", ["davis", "dayton"], "slower", "every, retries, params.token"),
        ),
        (
            None,
            "rename davis woodland --reason typo",
            ("rename", ["davis"], "typo", "to woodland"),
        ),
        (None, "rm da* --yes --reason gone", ("remove", ["davis", "dayton"], "gone", "")),
        (None, "pause --board --reason upgrade", ("pause board", [], "upgrade", "")),
        (
            lambda towns: towns("pause", "--board"),
            "resume --board --reason done",
            ("resume board", [], "done", ""),
        ),
    ],
)
def test_a_command_that_changes_something_is_one_action(
    towns: CommandLine,
    before: Do | None,
    command: str,
    expected: tuple[str, list[str], str, str],
) -> None:
    if before is not None:
        before(towns)
    there = len(actions(towns))
    towns(*command.split())
    newest, *others = actions(towns)
    assert len(others) == there
    verb, ids, reason, detail = expected
    assert re.fullmatch(r"\S+@\S+", newest.pop("by"))
    assert newest.pop("at").endswith("Z")
    assert newest == {
        "verb": verb,
        "ids": ids,
        "count": len(ids),
        "reason": reason or None,
        "detail": detail or None,
        "via": "cli",
    }
    assert "s3cret" not in towns("log", "--actions").out


@pytest.mark.cases_of_one_store("commands record their actions above the store")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("resume davis", 0),
        ("resume --board", 0),
        ("cancel davis", 1),
        ("unlock davis", 1),
        ("ack davis", 1),
        ("edit davis --every 8h", 0),
        ("pause absent", 2),
        ("rename davis davis", 2),
        ("add woodland --type calendars", 0),
    ],
)
def test_a_command_that_changes_nothing_leaves_no_action(
    towns: CommandLine, command: str, code: int
) -> None:
    towns(*command.split(), code=code)
    assert actions(towns) == []
    assert towns("log", "--actions").out == "no actions\n"


def test_the_name_of_a_user_may_be_no_utf8(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "a\udcff")
    towns("pause", "davis")
    (only,) = actions(towns)
    assert only["by"].startswith("a\\udcff@")


def test_the_user_is_looked_up_once_for_all_items(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a directory on the network has the users, each of these takes long."""
    look_up = Mock(return_value="ann")
    monkeypatch.setattr("getpass.getuser", look_up)
    towns("pause", "*")
    assert look_up.call_count == 2  # for the items, and for the record of the action


def test_a_rename_that_was_done_already_is_one_action(towns: CommandLine) -> None:
    done = [towns("rename", "davis", "woodland", "--json").json[0]["changed"] for _ in range(2)]
    assert done == [True, False]
    assert [one["verb"] for one in actions(towns)] == ["rename"]


def test_an_apply_says_how_many_it_changed(towns: CommandLine) -> None:
    declared = '[[items]]\nid = "{}"\ntype = "calendars"\nevery = "4h"\n'
    towns.write("".join(declared.format(one) for one in ("davis", "woodland", "dixon")))
    towns("apply", "--dry-run")
    assert actions(towns) == []
    towns("apply", "--reason", "spring")
    towns("apply", "--reason", "again")
    (only,) = actions(towns)
    assert (only["verb"], only["reason"]) == ("apply", "spring")
    assert only["detail"] == "2 added, 1 changed"
    assert (only["ids"], only["count"]) == (["woodland", "dixon", "davis"], 3)


def test_a_run_in_this_process_is_an_action(towns: CommandLine) -> None:
    towns.write(
        "from blackboard import handler\n@handler('calendars')\ndef read(item, ctx): ...\n",
        "here.py",
    )
    towns("run", "davis", "--here", "--jobs", "here.py", "--set", "days=3", "--reason", "look")
    (only,) = actions(towns)
    assert (only["verb"], only["ids"], only["reason"]) == ("run", ["davis"], "look")
    assert only["detail"] == "here, params.days"


@pytest.mark.of_each_store
def test_people_are_shown_when_who_what_which_and_why(towns: CommandLine) -> None:
    towns("edit", "*", "--every", "4h")
    towns("pause", "--board", "--reason", "an upgrade")
    towns("add", *(f"town-{number}" for number in range(30)), "--type", "calendars")
    towns("rm", "town-*", "--yes")
    title, removed, paused, edited = towns("log", "--actions").out.splitlines()
    assert title.split() == ["at", "by", "verb", "ids", "reason", "via"]
    assert re.search(r"@\S+ +remove +town-0, town-1, town-10 and 27 more +- +cli", removed)
    assert re.search(r"@\S+ +pause board +the board +an upgrade +cli", paused)
    assert re.search(r"@\S+ +edit: every +davis, dayton, keene +- +cli", edited)
    absolute = towns("log", "--actions", "--absolute", "-n", "1").out.splitlines()
    assert len(absolute) == 2
    assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ  ", absolute[1])


@pytest.mark.cases_of_one_store("commands record their actions above the store")
@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["davis"], "ids"),
        (["--follow", "--json"], "--follow"),
        (["--since", "1h", "--full"], "--since, --full"),
        (["--fence", "1", "-n", "1"], "--fence"),
    ],
)
def test_what_chooses_runs_chooses_no_actions(
    towns: CommandLine, args: list[str], names: str
) -> None:
    said = towns.refused("log", "--actions", *args)
    assert said == f"actions: all actions of the board are shown (leave out {names})"


def test_the_items_of_a_command_that_ends_in_the_middle_are_recorded(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from blackboard.protocol import edits

    run_now = edits.run_now

    async def until_keene(board: BoardTable, item_id: str, **about: Any) -> object:
        if item_id == "keene":
            raise Unavailable("cable cut")
        return await run_now(board, item_id, **about)

    monkeypatch.setattr("blackboard.protocol.edits.run_now", until_keene)
    assert "cable cut" in towns("run", "davis", "keene", "dayton", code=3).err
    assert [one["ids"] for one in actions(towns)] == [["davis"]]


def test_what_an_apply_had_done_when_it_ended_in_the_middle_is_recorded(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from blackboard.protocol import edits

    edit = edits.edit

    async def until_keene(board: BoardTable, item_id: str, *args: Any, **about: Any) -> object:
        if item_id == "keene":
            raise Unavailable("cable cut")
        return await edit(board, item_id, *args, **about)

    items = towns("export", "--json").json
    new = [{**one, "id": f"new-{one['id']}"} for one in items[:1]]
    text = "\n".join(item_text({**one, "every": "4h"}) for one in [*items, *new])
    towns.write(text, "towns.toml")
    monkeypatch.setattr("blackboard.protocol.edits.edit", until_keene)
    monkeypatch.setattr("blackboard.cli.many.AT_ONCE", 1)
    assert "cable cut" in towns("apply", "towns.toml", code=3).err
    (action,) = actions(towns)
    assert (action["verb"], action["detail"]) == ("apply", "1 added, 2 changed")
    assert sorted(action["ids"]) == ["davis", "dayton", "new-davis"]


@pytest.mark.parametrize("command", ["pause", "run", "edit --every 4h", "apply"])
def test_a_command_for_many_items_is_recorded_before_the_first_is_changed(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """So a process that is killed in the middle leaves who it was."""
    found: list[Any] = []

    async def killed(board: BoardTable, *_: object, **__: object) -> object:
        found.extend(await read_actions(board, limit=9))
        raise Unavailable("cable cut")

    items = towns("export", "--json").json
    towns.write("\n".join(item_text({**one, "every": "4h"}) for one in items), "towns.toml")
    verb, *options = command.split()
    function = {"run": "run_now", "apply": "edit"}.get(verb, verb)
    monkeypatch.setattr(f"blackboard.protocol.edits.{function}", killed)
    monkeypatch.setattr("blackboard.cli.many.AT_ONCE", 1)
    asked = verb, "towns.toml" if verb == "apply" else "*", *options, "--reason", "storm"
    assert f"0 of {len(items)} are done" in towns(*asked, code=3).err
    (action,) = found
    assert (action.verb, action.count, action.reason) == (verb, len(items), "storm")
    assert action.detail == BEGUN
    assert actions(towns) == [], "nothing was changed"


def test_many_items_are_left_as_they_are_where_the_store_does_not_take_the_record(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("cable cut")

    monkeypatch.setattr("blackboard.protocol.actions.commit_again", away)
    assert "cable cut" in towns("pause", "*", code=3).err
    assert not towns.item("davis").is_paused


@pytest.mark.parametrize("changed", [True, False])
def test_a_store_that_does_not_take_how_it_ended_keeps_that_it_was_begun(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, *, changed: bool
) -> None:
    async def away(table: Table, partition: str, ops: Sequence[Op]) -> None:
        if any(isinstance(one, Delete) for one in ops):
            raise Unavailable("cable cut")
        await commit_again(table, partition, ops)

    if not changed:
        towns("pause", "*")
    monkeypatch.setattr("blackboard.protocol.actions.commit_again", away)
    assert towns("pause", "*").err == (
        "blackboard: warning: pause: `log --actions` says that it was begun, and not how it ended: "
        "cable cut\n"
    )
    assert actions(towns)[0]["detail"] == BEGUN


@pytest.mark.of_each_store
def test_a_store_that_does_not_take_the_record_is_a_warning(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("cable cut")

    monkeypatch.setattr("blackboard.protocol.actions.commit_again", away)
    said = towns("pause", "davis")
    assert said.out == "davis is paused\n"
    assert said.err == (
        "blackboard: warning: pause: it is done, and not recorded for `log --actions`: cable cut\n"
    )
    assert towns.item("davis").is_paused
