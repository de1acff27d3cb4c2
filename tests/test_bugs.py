"""The record of bugs is whole: each can be brought back, and names a test that there is.

That each test fails with its bug is seen with `BLACKBOARD_NIGHTLY=1` in the environment: it takes
minutes.
"""

import ast
import os
import subprocess

import pytest

from tests.reliability.bugs import DIFFS, ROOT, Bug, Copy, bugs_table, main, read_bugs

BUGS = {bug.name: bug for bug in read_bugs()}
PER_BUG = 60
"""Seconds, at the most, on the mean."""


def functions_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_bug_has_a_diff_of_its_own_and_every_diff_a_bug() -> None:
    assert len(BUGS) == len(read_bugs())
    assert {bug.diff for bug in BUGS.values()} == set(DIFFS.iterdir())


@pytest.mark.parametrize("bug", BUGS.values(), ids=list(BUGS))
def test_a_bug_can_still_be_brought_back_and_its_test_is_there(bug: Bug) -> None:
    """What does not fit is told by `git apply --check`: the diff has to follow its file."""
    done = subprocess.run(
        ["git", "apply", "--check", bug.diff], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    file, _, test = bug.test.partition("::")
    assert test.startswith("test_")
    assert test in functions_in(file)


def test_the_table_has_a_row_for_each_bug() -> None:
    head, _, *rows = bugs_table().splitlines()
    assert len(rows) == len(BUGS)
    assert {row.count("|") for row in rows} == {head.count("|")}


@pytest.mark.parametrize(
    ("without", "with_bug", "told"),
    [(0, 1, 0), (0, 0, 1), (0, 4, 1), (1, 1, 1)],
    ids=["fails with it alone", "passes with it", "cannot be run with it", "fails without it"],
)
def test_a_bug_is_shown_by_a_test_that_fails_with_it_alone(
    without: int, with_bug: int, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pytest's exit codes."""
    monkeypatch.setattr(Copy, "__init__", lambda copy, folder: None)
    monkeypatch.setattr(Copy, "run", lambda copy, tests: (without, ""))
    monkeypatch.setattr(Copy, "run_with", lambda copy, bug: (with_bug, ""))
    assert main(["1"]) == told


@pytest.mark.skipif(os.environ.get("BLACKBOARD_NIGHTLY") != "1", reason="it takes minutes")
@pytest.mark.timeout(PER_BUG * len(BUGS))
def test_every_bug_is_shown_by_its_test(capfd: pytest.CaptureFixture[str]) -> None:
    code = main([])
    assert code == 0, capfd.readouterr()
