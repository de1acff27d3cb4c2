"""The parts of the proof: the folder of each, and the blocks of the page that its figures make."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.proof import tables
from tests.proof.shown import cases_table
from tests.proof.simulator.worlds import Totals

HERE = Path(__file__).parent
RESULTS = "tests.xml"
"""The file with the results of pytest, in the folder of the figures."""

Blocks = Iterator[tuple[str, str]]
"""Names of blocks, and their text."""


@dataclass(frozen=True, slots=True)
class Left:
    """The files that the tests of a part have left in a folder."""

    folder: Path

    def one(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())

    def some(self, pattern: str) -> list[Any]:
        return [self.one(path.stem) for path in sorted(self.folder.glob(f"{pattern}.json"))]

    def tests(self) -> dict[str, int]:
        """How many tests passed, and how many could not be run or are known to fail."""
        cases = [*ET.parse(self.folder / RESULTS).iter("testcase")]
        skipped = sum(case.find("skipped") is not None for case in cases)
        return {"passed": len(cases) - skipped, "skipped": skipped}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    tests: str
    """The folder of its tests, in this one; "" if it runs none."""
    blocks: Callable[[Left], Blocks]
    source: str
    """The block that ends with the origin of the figures; "" for none."""


def summed(all_of_them: list[Any]) -> tables.Figures:
    total = Totals()
    for more in map(Totals.of, all_of_them):
        for one in fields(Totals):
            setattr(total, one.name, getattr(total, one.name) + getattr(more, one.name))
    return total.plain()


def worlds(left: Left) -> Blocks:
    troubled, calm = summed(left.some("worlds-*")), summed(left.some("calm-*"))
    yield "overlaps", tables.overlap(troubled, calm)
    told = (tables.worlds(troubled), tables.went_wrong(troubled), tables.calm(calm))
    yield "worlds", "\n\n".join(told)


def planted(left: Left) -> Blocks:
    bugs = [bug for some in left.some("planted-*") for bug in some["bugs"]]
    figures = {"bugs": sorted(bugs, key=lambda bug: bug["place"])}
    yield "planted", f"{tables.planted_in_short(figures)}\n\n{tables.planted(figures)}"


def model(left: Left) -> Blocks:
    yield "model", tables.searches(left.some("kept-*"))
    yield "conditions", tables.conditions(left.some("left-out-*"))


def histories(left: Left) -> Blocks:
    total: dict[str, Counter[str]] = {}
    for one in left.some("histories-*"):
        total.setdefault(one.pop("of"), Counter()).update(one)
    yield "histories", f"{tables.histories(total)}\n\n{tables.damaged(left.one('damaged'))}"


def chaos(left: Left) -> Blocks:
    yield "storms", tables.chosen(tables.STORM, left.some("chaos-*"))
    starved = tables.chosen(tables.STARVED, left.some("starved-*"))
    yield "starved", f"{starved}\n\n{tables.tests(**left.tests())}"


def mutants(left: Left) -> Blocks:
    yield "mutants", tables.mutants(left.one("mutants"))


def damage(left: Left) -> Blocks:
    yield from ()


def cases(left: Left) -> Blocks:
    """The table of cases, from all tests, which are collected for it."""
    yield "cases", cases_table()


PARTS = {
    "mutants": Part(tests="mutants", blocks=mutants, source="mutants"),
    "worlds": Part(tests="simulator", blocks=worlds, source="worlds"),
    "planted": Part(tests="planted", blocks=planted, source="planted"),
    "model": Part(tests="model", blocks=model, source="conditions"),
    "histories": Part(tests="history", blocks=histories, source="histories"),
    "chaos": Part(tests="chaos", blocks=chaos, source="starved"),
    "damage": Part(tests="damage", blocks=damage, source=""),
    "cases": Part(tests="", blocks=cases, source=""),
}
"""The parts, the mutants first: they are one long test, and the others run at the same time."""
