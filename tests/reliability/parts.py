"""The parts of the proof, each of which can be run by itself and comes to figures.

Worlds and the model are shared out over processes here. The others are tests or commands of their
own, which leave their figures in a folder; what is kept of them is summed up here.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree as ET

from tests.model.cases import KEPT, LEFT_OUT, NIGHTLY, LeftOut
from tests.model.conditions import without
from tests.model.search import search
from tests.reliability.measured import ROOT, Figures, Measured
from tests.simulator.worlds import Totals, run_worlds, scenarios

ONE = 1.0
"""Worker-hours that any world has."""
TOLD = 0.01
"""Of the worker-hours, after how many more of them progress is told."""
CALM = 0.1
"""Of the worker-hours, so many again in which nothing goes wrong."""
PYTEST = (
    *(sys.executable, "-m", "pytest"),
    *("-q", "-p", "no:cacheprovider", "--junit-xml={folder}/tests.xml"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How much is to be done."""

    worker_hours: float = 100_000.0
    processes: int = 2
    nightly: bool = False
    earlier: Mapping[str, Measured] = field(default_factory=dict)
    """By part: what to go on from, and not to begin anew."""


class Failed(Exception):
    """A part found a violation, or could not be run."""


def tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def pool(wanted: Wanted) -> ProcessPoolExecutor:
    """Spawned: nothing of this process is in them."""
    return ProcessPoolExecutor(wanted.processes, mp_context=get_context("spawn"))


# ---- the simulator


def worlds(wanted: Wanted) -> Figures:
    return _run_worlds(wanted, wanted.worker_hours, wanted.earlier.get("worlds"), faults=True)


def calm(wanted: Wanted) -> Figures:
    return _run_worlds(wanted, CALM * wanted.worker_hours, wanted.earlier.get("calm"), faults=False)


def _run_worlds(
    wanted: Wanted, worker_hours: float, earlier: Measured | None, *, faults: bool
) -> Figures:
    """The worlds from the first seed on, or those that follow earlier ones until all of them
    together are enough; one at a time in each process.
    """
    before = earlier.figures if earlier else {"last_seed": -1, **Totals().plain()}
    total = Totals.of(before)
    told, first = total.worker_hours, before["last_seed"] + 1
    left = worker_hours - total.worker_hours
    seeds = [one.seed for one in scenarios(first, left, faults=faults)]
    if not seeds:
        raise Failed(f"{total.worker_hours:,.0f} worker-hours are kept already")
    with pool(wanted) as processes:
        for one in processes.map(partial(run_worlds, worker_hours=ONE, faults=faults), seeds):
            add(total, one)
            if total.worker_hours >= told + TOLD * worker_hours:
                told = total.worker_hours
                tell(f"  {told:,.0f} worker-hours, violations: {len(total.violations)}")
    if total.violations:
        raise Failed("\n".join(total.violations))
    return {
        "first_seed": before.get("first_seed", first),
        "last_seed": seeds[-1],
        "before": [*before.get("before", ()), *([_share(earlier)] if earlier else ())],
        **total.plain(),
    }


def _share(earlier: Measured) -> Figures:
    """What earlier worlds were of, and their worker-hours."""
    counted = sum(one["worker_hours"] for one in earlier.figures.get("before", ()))
    hours = earlier.figures["worker_hours"] - counted
    return {**asdict(earlier.origin), "worker_hours": hours}


def add(total: Totals, more: Totals) -> None:
    for one in fields(Totals):
        setattr(total, one.name, getattr(total, one.name) + getattr(more, one.name))


# ---- the model


def model(wanted: Wanted) -> Figures:
    searched = KEPT | NIGHTLY if wanted.nightly else KEPT
    with pool(wanted) as processes:
        kept = []
        for name, found in zip(searched, processes.map(search, searched.values()), strict=True):
            tell(f"  {name}: {found}")
            if found.broken:
                raise Failed(f"{name}\n{found}")
            kept.append(
                {
                    "bounds": name,
                    "worlds": found.worlds,
                    "steps": found.steps,
                    "depth": found.depth,
                }
            )
        left_out = list(processes.map(_left_out, LEFT_OUT))
    return {"kept": kept, "left_out": left_out}


def _left_out(one: LeftOut) -> Figures:
    found = search(one.bounds, without(one.condition))
    if found.broken is None or found.broken.invariant != one.invariant:
        raise Failed(f"without {one.condition} other things happen than should: {found}")
    return {
        "condition": one.condition,
        "breaks": one.invariant.partition(":")[0],
        "steps": len(found.story),
    }


# ---- tests and commands that leave figures


@dataclass(frozen=True, slots=True)
class Left:
    """What a command has left in its folder."""

    folder: Path

    def one(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())

    def some(self, pattern: str) -> list[Any]:
        return [self.one(path.stem) for path in sorted(self.folder.glob(f"{pattern}.json"))]

    def tests(self) -> dict[str, int]:
        """How many tests did as they should, and how many could not be run or are known to fail."""
        cases = [*ET.parse(self.folder / "tests.xml").iter("testcase")]
        skipped = sum(case.find("skipped") is not None for case in cases)
        return {"tests": len(cases) - skipped, "skipped": skipped}


@contextmanager
def left_by(command: Sequence[str], wanted: Wanted) -> Iterator[Left]:
    """Runs a command, in which `{folder}` is that of its figures. Raises Failed when it fails."""
    with TemporaryDirectory() as folder:
        environ = dict(os.environ) | {"BLACKBOARD_FIGURES": folder}
        if wanted.nightly:
            environ |= {"BLACKBOARD_NIGHTLY": "1", "BLACKBOARD_CHAOS": "full"}
        called = [word.format(folder=folder) for word in command]
        done = subprocess.run(called, cwd=ROOT, env=environ, stdout=sys.stderr, check=False)
        if done.returncode:
            raise Failed(f"exit code {done.returncode}: {' '.join(command)}")
        yield Left(Path(folder))


def planted(wanted: Wanted) -> Figures:
    tests = ["tests/simulator/test_planted.py", "-k", "each_planted_bug"]
    with left_by([*PYTEST, *tests], wanted) as left:
        return {"bugs": left.one("planted")}


def histories(wanted: Wanted) -> Figures:
    tests = ["tests/history", "-n", str(wanted.processes)]
    with left_by([*PYTEST, *tests], wanted) as left:
        total: dict[str, Counter[str]] = {}
        for one in left.some("histories-*"):
            total.setdefault(one.pop("of"), Counter()).update(one)
        stores = {store: dict(counted) for store, counted in total.items()}
        return {"stores": stores, "planted": left.one("damaged"), **left.tests()}


def chaos(wanted: Wanted) -> Figures:
    """Nothing runs beside it: some of its tests see how little of the machine is enough."""
    with left_by([*PYTEST, "tests/chaos"], wanted) as left:
        storms, starved = left.some("chaos-*"), left.some("starved-*")
        return {"storms": storms, "starved": starved, **left.tests()}


def mutants(wanted: Wanted) -> Figures:
    with left_by([sys.executable, "-m", "tests.mutants"], wanted) as left:
        figures: Figures = left.one("mutants")
        return figures


PARTS: dict[str, Callable[[Wanted], Figures]] = {
    one.__name__: one for one in (worlds, calm, planted, model, histories, chaos, mutants)
}
