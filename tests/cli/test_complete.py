"""Shell completion: commands without importing them, ids from the board, silence otherwise."""

import os
import shlex
import subprocess
import sys
import time

import pytest
from click.shell_completion import ShellComplete

from blackboard.cli import completion, group
from blackboard.cli.bash_completion import Bash
from blackboard.protocol.additions import add_election
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import group_key, item_key, meta_partition
from blackboard.protocol.leaders import open_elections
from blackboard.spec import Spec
from blackboard.table import ANY, Insert, Merge
from tests.cli.command_line import CommandLine, blackboard
from tests.support.patience import is_within, patience

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store("what is offered is chosen above the store")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is offered, however slow this machine is."""
    monkeypatch.setattr(completion, "OF_JOBS", patience(30))
    monkeypatch.setattr(completion, "PATIENCE", patience(60))


def completed(*args: str) -> list[str]:
    """What a shell offers for the last of `args`."""
    complete = ShellComplete(group, {}, "blackboard", "_BLACKBOARD_COMPLETE")
    return [one.value for one in complete.get_completions(list(args[:-1]), args[-1])]


def test_commands_complete(blackboard: CommandLine) -> None:
    assert completed("re") == ["report", "rename", "resume"]
    assert "--store" in completed("--st")


@pytest.mark.of_each_store
def test_ids_complete_from_the_chosen_board(blackboard: CommandLine) -> None:
    towns = ("--store", blackboard.elsewhere("towns"))
    blackboard(*towns, "init", "--shards", "4")
    ids = ("davis", "day ton", "da/is", "other", "da\nx")
    blackboard(*towns, "add", *ids, "--type", "calendars")
    blackboard(*towns, "rm", "day ton")
    for args in ([*towns, "pause"], ["pause", *towns]):
        assert completed(*args, "da") == ["da/is", "davis"]
    assert completed(*towns, "pause", "da/") == ["da/is"]
    assert completed(*towns, "pause", "davis", "o") == ["other"]


def test_removed_items_hide_no_ids(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "MOST", 2)
    blackboard("init")
    blackboard("add", *(f"a-{number}" for number in range(6)), "--type", "calendars")
    blackboard("rm", "a-[012]", "--yes")
    assert completed("show", "a") == ["a-3", "a-4"]


async def damage(board: BoardTable) -> None:
    spoiled = Merge(item_key("dayton"), {"state": "?"}, ANY)
    await board.table.commit(board.partition("dayton"), [spoiled])


def test_a_damaged_row_hides_no_other_ids(
    blackboard: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    blackboard("init")
    blackboard("add", "davis", "dayton", "--type", "calendars")
    blackboard.on_board(damage)
    capsys.readouterr()
    assert completed("show", "da") == ["davis"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.of_each_store
@pytest.mark.parametrize("settings", ["", "[wroker]", '[board]\nstore = "azurite:"'])
def test_what_is_wrong_completes_nothing(blackboard: CommandLine, settings: str) -> None:
    blackboard.write(settings)
    assert completed("pause", "da") == []
    assert blackboard.rows() == []


def test_types_jobs_and_zones_complete(blackboard: CommandLine) -> None:
    blackboard.write('[board]\njobs = ["jobs.py"]\n[types.tide]\nevery = "8h"\n')
    text = "from blackboard import handler\n\n\n@handler('town')\ndef town(item, ctx): ...\n"
    blackboard.write(text, "jobs.py")
    assert completed("add", "--type", "t") == ["tail", "tide", "town"]
    assert completed("show", "--type", "to") == ["town"]
    assert completed("add", "--tz", "europe/be") == [
        "Europe/Belfast",
        "Europe/Belgrade",
        "Europe/Berlin",
    ]
    assert completed("worker", "--jobs", "cal") == ["calendars", "cal"]


def test_jobs_that_hang_at_import_hold_completion_up_for_two_seconds_at_the_most(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It offers what it finds without them."""
    monkeypatch.setattr(completion, "OF_JOBS", 0.1)
    blackboard("init")
    blackboard("add", "davis", "--type", "feed", "--owner", "ann")
    blackboard.write("import time\n\ntime.sleep(60)\n", "jobs.py")
    blackboard.write('[board]\njobs = ["jobs.py"]\n[types.tide]\nevery = "8h"\n')
    for args, offered in (
        (["show", "--type", "ti"], ["tide"]),
        (["pause", "owner:"], ["owner:ann"]),
    ):
        begun = time.monotonic()
        assert completed(*args) == offered
        assert is_within(time.monotonic() - begun, 5)


def test_labels_that_a_handler_declares_complete(blackboard: CommandLine) -> None:
    text = "from blackboard import handler\n\n\n@handler(owner='cove')\ndef feed(item, ctx): ...\n"
    blackboard.write(text, "jobs.py")
    blackboard.write('[board]\njobs = ["jobs.py"]\n')
    blackboard("add", "davis", "--type", "feed")
    assert completed("pause", "owner:c") == ["owner:cove"]
    assert completed("edit", "davis", "--owner", "c") == ["cove"]


def test_labels_complete(blackboard: CommandLine) -> None:
    blackboard.write('[types.tide]\nowner = "coast"\n')
    blackboard("add", "davis", "--type", "feed", "--tags", "north,near", "--owner", "ann")
    blackboard("add", "derry", "--type", "tide", "--tags", "nova")
    assert completed("show", "tag:n") == ["tag:near", "tag:north", "tag:nova"]
    assert completed("show", "tag:no") == ["tag:north", "tag:nova"]
    assert completed("pause", "owner:") == ["owner:ann", "owner:coast"]
    assert completed("rm", "type:f") == ["type:feed"]
    assert completed("run", "state:f") == ["state:failed"]
    assert completed("edit", "davis", "--owner", "c") == ["coast"]
    assert completed("add", "keene", "--type", "feed", "--tags", "north,no") == [
        "north,north",
        "north,nova",
    ]


def test_an_owner_with_a_comma_completes(blackboard: CommandLine) -> None:
    blackboard("init")
    blackboard("add", "davis", "--type", "feed", "--owner", "Frost, Ann")
    assert completed("edit", "davis", "--owner", "Frost, ") == ["Frost, Ann"]


def test_groups_and_elections_complete(blackboard: CommandLine) -> None:
    blackboard("init")
    assert completed("leases", "") == completed("leader", "") == []

    async def made(board: BoardTable) -> None:
        rows = [Insert(group_key(name), {"version": 1}) for name in ("clicks", "orders")]
        await board.table.commit(meta_partition(board.name), rows)
        elections = await open_elections(board, create=True)
        for name in ("billing", "report"):
            await add_election(elections, name, "mutex", Spec())

    blackboard.on_board(made)
    assert completed("leases", "") == ["clicks", "orders"]
    assert completed("leases", "o") == ["orders"]
    assert completed("leader", "re") == ["report"]


IN_BASH = """
compopt() { :; }
source <("$BLACKBOARD" -m blackboard)
unset _BLACKBOARD_COMPLETE
asked() {
    COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
    _blackboard_completion "$COMMAND"
    printf '%s\\n' "${COMPREPLY[@]}" .
}
asked 'blackboard show tenant:' blackboard show tenant :
asked 'blackboard show tenant:1' blackboard show tenant : 1
asked 'blackboard show my\\ it' blackboard show 'my\\ it'
asked "blackboard show 'my it" blackboard show "'my it"
asked "blackboard show 'it" blackboard show "'it"
asked 'blackboard show "a' blackboard show '"a'
asked 'blackboard worker --jobs cal' blackboard worker --jobs cal
asked 'blackboard worker --jobs=cal' blackboard worker --jobs = cal
"""


@pytest.mark.of_sqlite("it is about a shell")
def test_bash_gets_what_it_has_to_put_for_its_own_words(blackboard: CommandLine) -> None:
    """An id with a colon is several words to bash, and one with a space must be quoted."""
    python = shlex.quote(sys.executable)
    command = blackboard.write(f'#!/bin/sh\nexec {python} -m blackboard "$@"\n', "command")
    command.chmod(0o755)
    blackboard.write("", "calendar.py")
    blackboard("init")
    blackboard("add", "tenant:1", "tenant:12", "my item", "it's", 'a$b`"\\', "--type", "calendars")
    names = {"BLACKBOARD": sys.executable, "COMMAND": str(command)}
    environment = {**os.environ, **names, "_BLACKBOARD_COMPLETE": "bash_source"}
    done = subprocess.run(
        ["bash", "-c", IN_BASH],
        check=False,
        cwd=blackboard.folder,
        env=environment,
        capture_output=True,
    )
    assert done.stderr == b""
    jobs = ["calendars", "calendar.py"]
    assert [one.split() for one in done.stdout.decode().split(".\n")[:-1]] == [
        ["1", "12"],
        ["1", "12"],
        ["my\\", "item"],
        ["my", "item"],
        [r"it'\''s"],
        [r"a\$b\`\"\\"],
        jobs,
        jobs,
    ]


@pytest.mark.of_sqlite("it is about a shell")
def test_a_script_of_click_for_bash_gets_what_it_asks_for(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the words, as programs do that complete commands of click in all shells."""
    blackboard("init")
    blackboard("add", "tenant:1", "my item", "--type", "calendars")
    monkeypatch.setenv("COMP_WORDS", "blackboard show m")
    monkeypatch.setenv("COMP_CWORD", "2")
    for name in ("COMP_LINE", "COMP_WORD"):
        monkeypatch.delenv(name, raising=False)
    assert Bash(group, {}, "blackboard", "_BLACKBOARD_COMPLETE").complete() == "plain,my item"
