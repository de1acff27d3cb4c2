"""mutmut, at work in a copy of the checkout.

Not promised: it changes what functions do. It leaves alone the constants of a module, and functions
with a decorator.
"""

import os
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from tests.proof.mutants.verdict import Change, change_of

ROOT = Path(__file__).resolve().parents[3]
TOOL = f"mutmut=={version('mutmut')}"
KILLED = {"killed", "timeout"}

SETUP = """
[mutmut]
source_paths = blackboard
only_mutate =
    blackboard/rules/applied.py
    blackboard/rules/due.py
    blackboard/rules/next_run.py
    blackboard/rules/breaker.py
    blackboard/rules/election.py
    blackboard/rules/grab.py
    blackboard/rules/shares.py
    blackboard/rules/transitions.py
    blackboard/rules/upcoming.py
    blackboard/rules/wrong_clock.py
    blackboard/schedule/schedule.py
pytest_add_cli_args =
    --store=memory
    --hypothesis-seed=0
    --deselect=tests/rules/test_elections.py::test_elections_with_all_faults_never_have_two_leaders_of_a_term
    --deselect=tests/schedule/test_limits.py::test_slots_are_those_of_the_schedule_that_are_in_no_window
    -pno:cacheprovider
    -pno:xdist
    -pno:cov
    -pno:anyio
    -pno:unraisableexception
    -pno:threadexception
pytest_add_cli_args_test_selection =
    tests/rules/test_ahead.py
    tests/rules/test_applied.py
    tests/rules/test_claim_rules.py
    tests/rules/test_outcome_rules.py
    tests/rules/test_limit_rules.py
    tests/rules/test_breaker_rules.py
    tests/rules/test_election_steps.py
    tests/rules/test_elections.py
    tests/rules/test_grab_rules.py
    tests/rules/test_plan_rules.py
    tests/rules/test_request_rules.py
    tests/rules/test_shares.py
    tests/schedule/test_limits.py
    tests/schedule/test_schedules.py
    tests/rules/test_transitions.py
    tests/rules/test_upcoming.py
process_isolation = forkserver
"""
# Without the tests that take longer than all others together: each survivor would wait for them.
# A fork server, because what one test has cached must not hide a mutant from another. Without the
# plugins that collect all garbage at the end of each run: that was half of the time of a mutant.


class Mutmut:
    """Runs in the environment of this Python."""

    def __init__(self, folder: Path) -> None:
        self._copy = folder / "copy"
        unneeded = shutil.ignore_patterns("__pycache__", "node_modules")
        for name in ("blackboard", "tests"):
            shutil.copytree(ROOT / name, self._copy / name, ignore=unneeded)
        shutil.copy(ROOT / "pyproject.toml", self._copy)
        (self._copy / "setup.cfg").write_text(SETUP)

    def run(self, pattern: str, *, processes: int) -> dict[str, str]:
        """What became of each mutant of such a name."""
        self._call("run", "--max-children", str(processes), pattern)
        lines = self._call("results", "--all", "true").splitlines()
        fates = dict(line.strip().rsplit(": ", 1) for line in lines if "__mutmut_" in line)
        return {name: fate for name, fate in fates.items() if fnmatchcase(name, pattern)}

    def change(self, name: str) -> Change:
        return change_of(name, self._call("show", name))

    def _call(self, *args: str) -> str:
        environ = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
        done = subprocess.run(
            [sys.executable, "-m", "mutmut", *args],
            cwd=self._copy,
            env=environ | {"PYTHONPATH": str(self._copy), "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout
