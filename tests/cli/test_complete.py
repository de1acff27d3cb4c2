"""Shell completion: commands without importing them, ids from the board, silence otherwise."""

import pytest
from click.shell_completion import ShellComplete

from blackboard.cli import group
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]


def completed(*args: str) -> list[str]:
    """What a shell offers for the last of `args`."""
    complete = ShellComplete(group, {}, "blackboard", "_BLACKBOARD_COMPLETE")
    return [one.value for one in complete.get_completions(list(args[:-1]), args[-1])]


def test_commands_complete(blackboard: CommandLine) -> None:
    assert completed("re") == ["report", "rename", "resume"]
    assert "--store" in completed("--st")


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
