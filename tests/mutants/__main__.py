"""Changes the rules in every small way, and sees whether their tests notice.

    python -m tests.mutants

For the night: it takes minutes. mutmut makes the changes, in a copy of the checkout, and runs the
tests of the rules against each. It is no part of the locked environment: it comes by pip, into an
environment of its own that borrows the packages of this one.

Exit code 1: too few mutants were killed, or `survivors.toml` is not what survived; 2: mutmut could
not run. With BLACKBOARD_FIGURES in the environment the figures go to `mutants.json` in that folder.

Not promised: mutmut changes what functions do. It leaves alone the constants of a module, and
functions with a decorator.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.verdict import LIST, Change, Verdict, change_of, judge, read_list

ROOT = Path(__file__).resolve().parents[2]
TOOL = "mutmut==3.8.1"
KILLED = {"killed", "timeout"}

SETUP = """
[mutmut]
source_paths = blackboard
only_mutate =
    blackboard/rules/due.py
    blackboard/rules/outcomes.py
    blackboard/rules/patience.py
    blackboard/schedule/schedule.py
pytest_add_cli_args =
    --store=memory
    --hypothesis-seed=0
    -pno:cacheprovider
pytest_add_cli_args_test_selection =
    tests/test_claim_rules.py
    tests/test_outcome_rules.py
    tests/test_patience_rules.py
    tests/test_plan_rules.py
    tests/test_schedules.py
process_isolation = forkserver
"""
# A fork server, because what one test has cached must not hide a mutant from another.


class Mutmut:
    """The tool in an environment of its own, and a copy of the checkout for it to work in."""

    def __init__(self, folder: Path) -> None:
        self._environment = folder / "environment"
        self._copy = folder / "copy"
        venv.create(self._environment, with_pip=True)
        self._call("pip", "install", "--quiet", "--disable-pip-version-check", TOOL)
        for name in ("blackboard", "tests"):
            unneeded = shutil.ignore_patterns("__pycache__", "node_modules")
            shutil.copytree(ROOT / name, self._copy / name, ignore=unneeded)
        shutil.copy(ROOT / "pyproject.toml", self._copy)
        (self._copy / "setup.cfg").write_text(SETUP)

    def run(self) -> dict[str, str]:
        """What became of each mutant, by its name."""
        self._call("mutmut", "run")
        lines = self._call("mutmut", "results", "--all", "true").splitlines()
        return dict(line.strip().rsplit(": ", 1) for line in lines if "__mutmut_" in line)

    def change(self, name: str) -> Change:
        return change_of(name, self._call("mutmut", "show", name))

    def _call(self, program: str, *args: str) -> str:
        borrowed = {"PYTHONPATH": sysconfig.get_path("purelib"), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [self._environment / "bin" / program, *args],
            cwd=self._copy if self._copy.exists() else None,
            env=os.environ | borrowed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.stderr.write(done.stdout)
            sys.exit(2)
        return done.stdout


def found_by_mutmut() -> Verdict:
    with TemporaryDirectory() as folder:
        mutmut = Mutmut(Path(folder))
        fates = mutmut.run()
        survivors = [mutmut.change(name) for name in fates if fates[name] not in KILLED]
    return judge(len(fates), survivors, read_list(LIST.read_text()))


def write_figures(verdict: Verdict, seconds: float) -> None:
    folder = os.environ.get("BLACKBOARD_FIGURES")
    if folder:
        figures = {
            "tool": TOOL,
            "mutants": verdict.mutants,
            "killed": verdict.killed,
            "percent": round(verdict.percent, 2),
            "survivors": len(verdict.survivors),
            "seconds": round(seconds, 1),
        }
        Path(folder, "mutants.json").write_text(json.dumps(figures, indent=2) + "\n")


def main() -> int:
    begun = time.monotonic()
    verdict = found_by_mutmut()
    seconds = time.monotonic() - begun
    share = f"{verdict.killed} of {verdict.mutants} mutants were killed: {verdict.percent:.2f} %"
    sys.stdout.write(f"{share}, in {seconds:.0f} s\n")
    for change, reason in verdict.survivors.items():
        sys.stdout.write(f"{change}\n    {reason}\n")
    problems = list(verdict.problems())
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    write_figures(verdict, seconds)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
