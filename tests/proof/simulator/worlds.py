"""Worlds of all kinds in which everything goes wrong, as many worker-hours of them as are wanted.

    python -m tests.proof.simulator.worlds faults SEED...    the worlds of these seeds, again

Each seed is another board: few items that run often or many that run seldom, one worker or a
dozen, calm networks and bad ones, troubles every few seconds or every few minutes.
"""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import Odds
from blackboard.simulator.results import Figures
from blackboard.simulator.scenario import ALL, NONE, Scenario, synthetic
from blackboard.simulator.world import World

WORKER_HOURS = 24.0
"""Of one world, about."""
OFTEN_HOURS = 0.6
"""Of one world whose workers walk each second, at the most: for their walks it takes as long."""
RUNS_A_WORKER_HOUR = 20.0
"""At the most: what makes a world slow to run."""
INTERVALS = (2, 5, 15, 60, 240, 480)
"""Minutes."""
OFTEN = INTERVALS[:2]
"""Minutes, where workers walk each second."""
BAD = (
    Odds(),
    Odds(busy=0.02, lost=0.02, late=0.01),
    Odds(busy=0.1, lost=0.06, late=0.06),
)
SILENT = Odds(lost=0.4)
"""Where workers walk each second, in half of the worlds: two batches in a row have no answer."""


def world_of(seed: int, *, faults: bool = True) -> Scenario:
    """The world of a seed, with everything that can go wrong or with nothing."""
    pick = random.Random(seed)
    cycle = pick.choice((1, 20, 60, 60))
    every = timedelta(minutes=pick.choice(INTERVALS if cycle > 1 else OFTEN))
    workers = pick.choice((1, 2, 3, 5, 8, 12))
    most = RUNS_A_WORKER_HOUR * workers * every / timedelta(hours=1)
    takes = pick.choice((None, 1.0, every.total_seconds() / 3, every.total_seconds() * 1.2))
    hours = max(WORKER_HOURS / workers, 1.5 * every / timedelta(hours=1))
    return Scenario(
        seed=seed,
        items=synthetic(
            max(1, int(min(pick.choice((3, 12, 40, 150)), most))), every=every, takes=takes
        ),
        workers=workers,
        hours=hours if cycle > 1 else min(hours, OFTEN_HOURS / workers),
        shards=pick.choice((1, 1, 1, 2, 4)),
        slots=pick.choice((1, 2, 8, 8)),
        page_rows=pick.choice((1_000, 1_000, 10)),
        cycle=timedelta(seconds=cycle),
        faults=ALL if faults else NONE,
        trouble_every=pick.choice((10.0, 30.0, 60.0, 120.0, 300.0)),
        odds=pick.choice((*BAD, SILENT, SILENT, SILENT) if cycle == 1 else BAD),
    )


@dataclass(slots=True)
class Totals:
    """What many worlds add up to."""

    worlds: int = 0
    worker_hours: float = 0.0
    claims: int = 0
    overrides: int = 0
    renewals: int = 0
    saves: int = 0
    late: int = 0
    handled: int = 0
    overlaps: int = 0
    overlapped: float = 0.0
    worked: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    """Of requests, besides those that were answered."""
    violations: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            one.name: dict(value) if isinstance(value, Counter) else value
            for one in fields(self)
            for value in [getattr(self, one.name)]
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Totals":
        """From JSON."""
        totals = cls()
        for one in fields(cls):
            counts = isinstance(getattr(totals, one.name), Counter)
            value = plain[one.name]
            setattr(totals, one.name, Counter(value) if counts else value)
        return totals

    def add(self, scenario: Scenario, figures: Figures) -> None:
        self.worlds += 1
        self.worker_hours += scenario.worker_hours
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(figures, name))


_SUMMED = (
    "claims",
    "overrides",
    "renewals",
    "saves",
    "late",
    "handled",
    "overlaps",
    "overlapped",
    "worked",
    "outcomes",
    "troubles",
)


def seeds(worker_hours: float, *, faults: bool = True) -> list[int]:
    """Of the worlds, from the first one on, that make up so many worker-hours."""
    done, chosen = 0.0, list[int]()
    while done < worker_hours:
        chosen.append(len(chosen))
        done += world_of(chosen[-1], faults=faults).worker_hours
    return chosen


def run_worlds(chosen: Sequence[int], *, faults: bool = True) -> Totals:
    """Runs the worlds of these seeds. A violation is collected with the seed that repeats it."""
    totals = Totals()
    for seed in chosen:
        world = World(world_of(seed, faults=faults))
        try:
            world.run()
        except Violation as violation:
            totals.violations.append(f"seed {seed}: {violation}")
        totals.add(world.scenario, world.figures)
        totals.fates.update(one.fate.value for one in world.fated)
    return totals


def run_apart(chosen: Sequence[int], *, faults: bool = True) -> Totals:
    """As `run_worlds`, in a process of its own, in which coverage measures nothing."""
    kind = "faults" if faults else "calm"
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.simulator.worlds", kind, *map(str, chosen)],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Totals.of(json.loads(done.stdout))


def main(kind: str, *chosen: str) -> None:
    totals = run_worlds([int(seed) for seed in chosen], faults=kind == "faults")
    sys.stdout.write(json.dumps(totals.plain()))


if __name__ == "__main__":
    main(*sys.argv[1:])
