"""Every bug of correctness that was found in the product, and what shows it again.

    python -m tests.reliability.bugs [NUMBER...]

brings each back, or those with these numbers, and runs the test that is named for it. A bug comes
back by its diff in `bugs/`, which takes its mending out of today's files: an old commit would know
neither today's tests nor the rest of today's product. It is done in a copy of the checkout, with
the packages of this Python and a table in memory where the test can be run on one.

Exit code 1: a test passed with its bug, or failed without it. It takes minutes for all of them.

Not promised: that a diff brings back nothing else of the commit that had the bug last.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("bugs.toml")
DIFFS = Path(__file__).with_name("bugs")
PATIENCE = 120
"""Seconds for one test. Some bugs are that something never ends."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest. Any other tells that it could not run the test."""
LAST = 2_000
"""Characters of what pytest said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One bug, mended since."""

    name: str
    """Of its diff."""
    what: str
    """Symptom and consequence, for users."""
    found_by: str
    before: str = ""
    """The last commit that has it. "": it was mended before anything of it was committed."""
    test: str
    """Fails with the bug: as pytest names it, without parameters."""
    seed: str = ""
    """What else shows it: a command, for the commit or for a checkout with the diff."""

    @property
    def diff(self) -> Path:
        return DIFFS / f"{self.name}.diff"


def read_bugs() -> tuple[Bug, ...]:
    """All of them, in the order of their numbers, the first of which is 1."""
    return tuple(Bug(**one) for one in tomllib.loads(LIST.read_text())["bug"])


def bugs_table() -> str:
    """Markdown: a row for each bug."""
    lines = ["| | bug | found by | last commit with it | test |", "|---|---|---|---|---|"]
    for number, bug in enumerate(read_bugs(), start=1):
        what = f"{bug.what} Also shown by `{bug.seed}`." if bug.seed else bug.what
        before = f"`{bug.before}`" if bug.before else "none"
        test = bug.test.removeprefix("tests/")
        lines.append(f"| {number} | {what} | {bug.found_by} | {before} | `{test}` |")
    return "\n".join(lines) + "\n"


class Copy:
    """A copy of the checkout that a bug is brought back in, and mended again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        unneeded = shutil.ignore_patterns("__pycache__", "node_modules")
        for name in ("blackboard", "jobs", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=unneeded)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """The exit code of pytest, and what it said."""
        environ = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
        options = ["-qx", "-p", "no:cacheprovider", "--store", "memory", f"--timeout={PATIENCE}"]
        done = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", *options, *tests],
            cwd=self._folder,
            env=environ | {"PYTHONPATH": str(self._folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def run_with(self, bug: Bug) -> tuple[int, str]:
        """The same with a bug."""
        self._apply(bug)
        try:
            return self.run([bug.test])
        finally:
            self._apply(bug, "--reverse")

    def _apply(self, bug: Bug, *options: str) -> None:
        subprocess.run(["git", "apply", *options, bug.diff], cwd=self._folder, check=True)


def main(arguments: Sequence[str]) -> int:
    bugs = dict(enumerate(read_bugs(), start=1))
    chosen = {int(number): bugs[int(number)] for number in arguments} or bugs
    problems = 0
    with TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        code, said = copy.run(sorted({bug.test for bug in chosen.values()}))
        if code != PASSED:
            sys.stderr.write(f"the tests fail without any bug\n{said[-LAST:]}")
            return 1
        for number, bug in chosen.items():
            code, said = copy.run_with(bug)
            problems += code != FAILED
            told = "is shown" if code == FAILED else f"IS NOT SHOWN\n{said[-LAST:]}"
            sys.stdout.write(f"{number} {bug.name}: {told}\n")
            sys.stdout.flush()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
