"""`edit`: what changes, what it says, what it refuses for all when one refuses it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from blackboard.model import replace
from blackboard.protocol import edits
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import Changed
from blackboard.protocol.keys import item_key
from blackboard.spec import Spec, decode_spec
from blackboard.table import ANY, Merge
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store(
    "the verb itself is in tests/protocol, and test_actions.py calls it on each store"
)


@pytest.fixture(name="davis")
def _davis(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard(
        *("add", "davis", "--type", "calendars", "--every", "8h", "--timeout", "5m"),
        *("--set", "days=90", "--set", "window.from=today"),
    )
    return blackboard


def spec(blackboard: CommandLine, item_id: str = "davis") -> Spec:
    return decode_spec(blackboard.item(item_id).spec)


PARAMS = {"days": 90, "window": {"from": "today"}}


@pytest.mark.parametrize(
    ("args", "after", "words"),
    [
        (["--every", "4h"], Spec(every="4h", timeout="5m", params=PARAMS), "every: 8h -> 4h"),
        (
            ["--cron", "@daily"],
            Spec(cron="@daily", timeout="5m", params=PARAMS),
            "every: 8h -> unset; cron: unset -> @daily",
        ),
        (["--timeout", ""], Spec(every="8h", params=PARAMS), "timeout: 5m -> unset"),
        (["--every", ""], Spec(timeout="5m", params=PARAMS), "every: 8h -> unset"),
        (
            ["--cron", "", "--timeout", "6m"],
            Spec(every="8h", timeout="6m", params=PARAMS),
            "timeout: 5m -> 6m",
        ),
        (
            ["--retries", "3"],
            Spec(every="8h", timeout="5m", retries=3, params=PARAMS),
            "retries: unset -> 3",
        ),
        (
            ["--set", "window.to=5", "--unset", "days"],
            Spec(every="8h", timeout="5m", params={"window": {"from": "today", "to": 5}}),
            "params.days: 90 -> unset; params.window.to: unset -> 5",
        ),
    ],
)
def test_edit_changes_what_was_said_and_no_more(
    davis: CommandLine, args: list[str], after: Spec, words: str
) -> None:
    assert davis("edit", "davis", *args).out.startswith(f"davis is changed ({words}) and is ")
    assert spec(davis) == after


def test_nothing_new_is_said_and_leaves_the_row_alone(davis: CommandLine) -> None:
    before = davis.rows()
    assert davis("edit", "davis", "--every", "8h").out == "davis is as it was\n"
    assert davis.rows() == before
    assert davis("edit", "davis", "--every", "8h", "--json").json[0]["changed"] is False


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([], "edit: nothing to change"),
        (["--every", "8"], "every: "),
        (["--retries", ""], ""),
        (["--timezone", "Mars"], "timezone: "),
        (["--unset", "absent"], "unset: there is no 'absent'"),
        (["--unset", "days.x"], "unset: 'days' is not an object"),
        (["--set", "days.x=1"], "set: 'days' is not an object"),
        (["--set", "x"], "set: "),
        (["--set", "x=@big.txt"], "params: "),
    ],
)
def test_bad_input_changes_nothing(davis: CommandLine, args: list[str], problem: str) -> None:
    davis.write("x" * (1 << 20), "big.txt")
    if problem:
        assert davis.refused("edit", "davis", *args).startswith(problem)
    else:
        davis("edit", "davis", *args)


def test_what_one_item_refuses_is_done_to_none(davis: CommandLine) -> None:
    davis("add", "amherst", "--type", "calendars")
    told = davis.refused("edit", "*", "--unset", "days", "--every", "1h")
    assert told.startswith("unset: amherst: there is no 'days'")
    assert spec(davis).every == "8h"


@pytest.mark.parametrize(
    ("args", "noun"), [(["--type", "feed"], "type"), (["--checkpoint", "7"], "checkpoint")]
)
def test_what_runs_is_named_and_the_others_get_another_type_or_checkpoint(
    davis: CommandLine, args: list[str], noun: str
) -> None:
    davis("add", "berkeley", "eugene", "--type", "calendars", "--every", "8h")
    davis.start("eugene")
    said = davis("edit", "eugene", "berkeley", *args, code=1)
    assert f"blackboard: eugene runs, and gets no other {noun} until its end" in said.err
    assert said.out.startswith("berkeley is changed (")
    (action,) = [one for one in davis("log", "--actions", "--json").json if one["verb"] == "edit"]
    assert action["ids"] == ["berkeley"]


def test_what_a_run_saves_meanwhile_is_no_change_of_an_edit(
    davis: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = edits.edit

    async def saved_before(board: BoardTable, item_id: str, *said: Any, **more: Any) -> Changed:
        saved = Merge(item_key(item_id), {"checkpoint": "15"}, ANY)
        await board.table.commit(board.partition(item_id), [saved])
        return await done(board, item_id, *said, **more)

    monkeypatch.setattr(edits, "edit", saved_before)
    assert "checkpoint" not in davis("edit", "davis", "--retries", "7").out
    assert davis.item("davis").checkpoint == "15"


def test_an_unknown_type_is_warned_of_once(davis: CommandLine) -> None:
    davis("add", "berkeley", "eugene", "--type", "calendars", "--every", "8h")
    said = davis("edit", "*", "--type", "calendar")
    assert said.err.count("no handler for the type 'calendar'") == 1
    assert said.out.count("type calendars -> calendar") == 3


def test_a_first_time_is_moved_until_the_item_has_run(davis: CommandLine) -> None:
    davis("add", "keene", "--type", "feed", "--cron", "0 9 * * *", "--first", "2036-01-01")
    said = davis("edit", "keene", "--first", "2035-01-01").out
    assert "first 2036-01-01 00:00:00Z -> 2035-01-01 00:00:00Z" in said
    keene = davis.item("keene")
    assert keene.slot == keene.planned == keene.first == datetime(2035, 1, 1, tzinfo=UTC)
    assert "edit: first" in davis("log", "--actions").out
    assert "keene is as it was" in davis("edit", "keene", "--first", "2035-01-01").out
    davis("edit", "keene", "--first", "now")
    davis.start("keene")
    assert "keene has run already" in davis.refused("edit", "*", "--first", "now")


def test_what_another_person_changes_meanwhile_is_no_change_of_an_edit(
    davis: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = edits.edit

    async def changed_before(board: BoardTable, item_id: str, *said: Any, **more: Any) -> Changed:
        await done(board, item_id, lambda spec, _: replace(spec, owner="eve"))
        return await done(board, item_id, *said, **more)

    monkeypatch.setattr(edits, "edit", changed_before)
    assert "owner" not in davis("edit", "davis", "--retries", "7").out
    assert " edit: retries  davis" in davis("log", "--actions").out


def test_an_edit_that_moves_a_run_by_what_its_type_says_now_is_one(davis: CommandLine) -> None:
    davis("add", "keene", "--type", "feed", "--owner", "ann")
    davis.write('[types.feed]\ncron = "0 6 * * *"\n')
    said = davis("edit", "keene", "--owner", "bob").out
    assert said.startswith(
        "keene is changed (owner: ann -> bob; schedule: unset -> cron 0 6 * * *)"
    )
    assert "edit: owner, schedule" in davis("log", "--actions").out
    davis.write('[types.feed]\ncron = "0 7 * * *"\n')
    said = davis("edit", "keene", "--owner", "bob").out
    assert said.startswith("keene is changed (schedule: cron 0 6 * * * -> cron 0 7 * * *) and is")


def test_a_glob_edits_all_that_match(davis: CommandLine) -> None:
    davis("add", "dayton", "--type", "calendars")
    davis("add", "other", "--type", "calendars")
    assert davis("edit", "da*", "--every", "1h").out.count("\n") == 2
    assert [spec(davis, one).every for one in ("davis", "dayton", "other")] == ["1h", "1h", None]


def test_words_of_a_time_are_of_the_zone_of_the_new_type(davis: CommandLine) -> None:
    davis.write('[types.b]\ntimezone = "Asia/Tokyo"\n')
    davis("edit", "davis", "--every", "")
    davis("edit", "davis", "--type", "b", "--at", "tomorrow 09:00")
    assert davis.item("davis").planned.hour == 0


def test_a_new_schedule_counts_from_now(davis: CommandLine) -> None:
    held = davis.start("davis")
    davis.finish(held)
    due = davis("edit", "davis", "--every", "24h", "--json").json[0]["due"]
    assert (davis.item("davis").ready - held.start).total_seconds() == 24 * 3600
    assert due.endswith("Z")
