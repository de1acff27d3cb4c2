"""What is said about mutants, without making any; that needs mutmut and minutes."""

import re
from pathlib import Path

import pytest

from tests.proof.mutants.verdict import LIST, Change, change_of, judge, read_list

ROOT = Path(__file__).resolve().parents[3]
LISTED = read_list(LIST.read_text())

DIFF = """# blackboard.rules.due.x_renew_every__mutmut_2: survived
--- blackboard/rules/due.py
+++ blackboard/rules/due.py
@@ -2,4 +2,4 @@
     minute, so that a lost lock is noticed.
-    return min(stale_after / 3, LONGEST_RENEWAL)
+    return min(stale_after / 4, LONGEST_RENEWAL)
"""


def survivors(count: int) -> list[Change]:
    return [Change(function="rules.f", was=f"x = {n}", becomes="x = None") for n in range(count)]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("blackboard.rules.due.x_renew_every__mutmut_2", "blackboard.rules.due.renew_every"),
        ("blackboard.rules.next_run.x__begins__mutmut_31", "blackboard.rules.next_run._begins"),
        (
            "blackboard.schedule.schedule.xǁEveryǁ__post_init____mutmut_5",
            "blackboard.schedule.schedule.Every.__post_init__",
        ),
    ],
)
def test_a_mutant_is_known_by_its_function_and_its_line(name: str, function: str) -> None:
    assert change_of(name, DIFF) == Change(
        function=function,
        was="return min(stale_after / 3, LONGEST_RENEWAL)",
        becomes="return min(stale_after / 4, LONGEST_RENEWAL)",
    )


@pytest.mark.parametrize(("survived", "enough"), [(0, True), (5, True), (6, False)])
def test_of_a_hundred_mutants_ninety_five_are_killed(survived: int, *, enough: bool) -> None:
    found = survivors(survived)
    verdict = judge(100, found, dict.fromkeys(found, "equivalent"))
    assert verdict.killed == 100 - survived
    assert (list(verdict.problems()) == []) is enough


def test_a_survivor_without_a_reason_is_a_problem() -> None:
    known, new = survivors(2)
    [problem] = judge(100, [known, new], {known: "equivalent"}).problems()
    assert str(new) in problem


def test_a_reason_for_what_did_not_survive_is_a_problem() -> None:
    known, gone = survivors(2)
    [problem] = judge(100, [known], dict.fromkeys([known, gone], "equivalent")).problems()
    assert str(gone) in problem


@pytest.mark.parametrize("change", LISTED, ids=lambda change: change.function)
def test_what_is_listed_is_still_in_the_code(change: Change) -> None:
    module, _, function = change.function.rpartition(".")
    module = re.sub(r"\.[A-Z]\w*$", "", module)  # of a method
    code = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
    assert f"def {function}(" in code
    assert change.was in [line.strip() for line in code.splitlines()]
    assert LISTED[change]
