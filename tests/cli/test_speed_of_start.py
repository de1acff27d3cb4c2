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
CALENDARS = {"httpx2", "icalendar"}
SLOW = {"azure", "dateutil", "multiprocessing", "rich"} | CALENDARS
"""Each of them takes longer to import than a small board to read."""

LOADED = """
import shlex, sys
from blackboard.cli import called
for line in sys.argv[1:]:
    code = called(shlex.split(line))
    print("loaded", code, *sys.modules, file=sys.stderr)
"""


def loaded(*lines: str, folder: Path) -> dict[str, set[str]]:
    """The packages and modules that command lines have imported, one after the other in one
    process: with each line also those of the lines before. They succeed; `check` may find what is
    wrong.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *lines],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("loaded ")]
    found = {}
    for line, (code, *modules) in zip(lines, told, strict=True):
        assert code == "0" or (code, line) == ("1", "check"), done.stderr
        found[line] = {name.partition(".")[0] for name in modules} | set(modules)
    return found


def too_early(found: dict[str, set[str]], *, slow: set[str]) -> dict[str, set[str]]:
    """The first line that has imported something slow, and what that is; nothing if none has."""
    return next(({line: names & slow} for line, names in found.items() if names & slow), {})


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    blackboard("add", "davis", "--type", "hello", "--every", "8h")
    blackboard("add", "keene", "--type", "hello", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
    return blackboard


def test_help_waits_for_nothing(tmp_path: Path) -> None:
    found = loaded("--help", "--version", folder=tmp_path)
    assert "blackboard.cli" in found["--help"]
    slow = SLOW | WORKERS | {"asyncio", "msgspec", "sqlite3", "tomllib"}
    assert too_early(found, slow=slow) == {}


def test_a_small_board_waits_for_nothing_slow(town: CommandLine) -> None:
    found = loaded(
        *("show", "show --plain", "show --json", "log", "next davis keene", "why davis keene"),
        *("check", "doctor", "workers", "export", "init", "pause davis", "run keene"),
        *("edit davis --retries 2", "add new --type hello", "rm davis", "next --cron @daily"),
        folder=town.folder,
    )
    assert {"asyncio", "msgspec"} <= found["show"]
    assert too_early(found, slow=SLOW | WORKERS) == {}


def test_each_command_helps_without_what_it_may_need_later(tmp_path: Path) -> None:
    found = loaded(*(f"{name} --help" for name in COMMANDS), folder=tmp_path)
    assert too_early(found, slow=SLOW | WORKERS) == {}


def test_a_rule_loads_what_reads_it(town: CommandLine) -> None:
    """So the names above are those that would be seen."""
    rule, worker = "next --rrule FREQ=DAILY", "worker --jobs shell --until-idle"
    found = loaded(rule, worker, folder=town.folder)
    assert too_early({rule: found[rule]}, slow=SLOW) == {rule: {"dateutil"}}
    assert "apscheduler" in found[worker]


def test_a_child_process_waits_for_nothing_that_runs_on_a_loop() -> None:
    """Each plain handler waits for one to start: what only coroutines need is not imported."""
    code = "import sys, blackboard.runners.child_main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert "blackboard.runners.child_main" in names
    assert names & (SLOW | WORKERS | {"asyncio", "sqlite3", "ssl"}) == set()
