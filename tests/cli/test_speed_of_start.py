"""A command is quick because of what it does not import: told by the modules, never by a clock."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from blackboard.cli import COMMANDS
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_sqlite("what an account needs takes longer to import")

ROOT = Path(__file__).resolve().parents[2]

WORKERS = {"apscheduler"}
CALENDARS = {"httpx2", "icalendar", "recurring_ical_events"}
SLOW = {"azure", "dateutil", "multiprocessing", "rich"} | CALENDARS
"""Each of them takes longer to import than a small board to read."""

LOADED = """
import sys
from blackboard.cli import called
code = called(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""


def loaded(*args: str, folder: Path) -> set[str]:
    """The packages and modules that a command line imports. It succeeds; `check` may find what is
    wrong.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    code, *modules = done.stderr.splitlines()[-1].split()
    assert code == "0" or (code, args[0]) == ("1", "check"), done.stderr
    return {name.partition(".")[0] for name in modules} | set(modules)


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    blackboard("add", "davis", "--type", "hello", "--every", "8h")
    blackboard("add", "keene", "--type", "hello", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
    return blackboard


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_help_waits_for_nothing(tmp_path: Path, args: list[str]) -> None:
    found = loaded(*args, folder=tmp_path)
    assert "blackboard.cli" in found
    assert not found & (SLOW | WORKERS | {"asyncio", "msgspec", "sqlite3", "tomllib"})


@pytest.mark.parametrize(
    "line",
    [
        *("show", "show --plain", "show --json", "log", "next davis keene", "why davis keene"),
        *("check", "doctor", "workers", "export", "init", "pause davis", "run davis"),
        *("edit davis --retries 2", "add new --type hello", "rm davis", "next --cron @daily"),
    ],
)
def test_a_small_board_waits_for_nothing_slow(town: CommandLine, line: str) -> None:
    found = loaded(*line.split(), folder=town.folder)
    assert {"asyncio", "msgspec"} <= found
    assert not found & (SLOW | WORKERS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_helps_without_what_it_may_need_later(tmp_path: Path, name: str) -> None:
    assert not loaded(name, "--help", folder=tmp_path) & (SLOW | WORKERS)


def test_a_rule_loads_what_reads_it(town: CommandLine) -> None:
    """So the names above are those that would be seen."""
    assert "dateutil" in loaded("next", "--rrule", "FREQ=DAILY", folder=town.folder)
    line = ("worker", "--jobs", "shell", "--until-idle")
    assert "apscheduler" in loaded(*line, folder=town.folder)
