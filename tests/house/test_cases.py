"""Every case is shown by a test, on every store that it touches; and who counts can see a gap."""

import pytest

from tests.proof.cases import CASES, Case
from tests.proof.shown import Shown, cases_table, problems, shown
from tests.support.pages import page

BOTH = {
    "AA01": Case(says="This holds."),
    "AA02": Case(says="So does this.", stores=("sqlite",), why="it is about files"),
    "AA03": Case(says="And this.", absent=True, why="there is no such part"),
}
WHOLE = [
    Shown("AA01", "tests/test_a.py::test_one", ("memory", "sqlite")),
    Shown("AA01", "tests/test_a.py::test_two", ("azurite",)),
    Shown("AA02", "tests/test_a.py::test_two", ("sqlite",)),
]


def test_every_case_is_shown_on_every_store_that_it_touches() -> None:
    """Asked of all tests, once: they are collected for it."""
    found = shown()
    assert problems(found) == []
    table = cases_table(found)
    assert all(f"| {name} | {case.says}" in table for name, case in CASES.items())
    assert all(f"| `{one.test.removeprefix('tests/')}` |" in table for one in found)
    written = page("reliability.md").text
    assert table in written, "run ./bb proof --record --only cases"


def test_what_is_whole_has_no_problem() -> None:
    assert problems(WHOLE, BOTH) == []


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (WHOLE[:1], "AA01 is not shown on azurite"),
        (WHOLE[:2], "AA02 has no test"),
        ([*WHOLE, Shown("AA03", "tests/test_a.py::test_x")], "AA03 has tests"),
        ([*WHOLE, Shown("AA04", "tests/test_a.py::test_x")], "AA04 is no case: tests/test_a.py"),
        ([*WHOLE[:2], Shown("AA02", "tests/test_a.py::test_x")], "AA02 is not shown on sqlite"),
    ],
)
def test_a_gap_is_told(found: list[Shown], problem: str) -> None:
    assert [one for one in problems(found, BOTH) if one.startswith(problem)]


def test_fewer_stores_need_a_reason() -> None:
    case = Case(says="This holds.", stores=("sqlite",))
    found = [Shown("AA01", "tests/test_a.py::test_one", ("sqlite",))]
    assert problems(found, {"AA01": case}) == ["AA01 says no reason for fewer stores"]


def test_a_row_tells_a_test_and_its_stores() -> None:
    found = [Shown("ME01", "tests/test_a.py::test_one", ("memory", "sqlite"))]
    assert "| ME01 | To take a lock and let it go leaves no row of it. " in cases_table(found)
    assert "| `test_a.py::test_one` | memory, sqlite |\n| ME03 |" in cases_table(found)
