"""Worlds of all kinds in which everything goes wrong, as many worker-hours of them as are wanted.

    python -m tests.proof.simulator.worlds faults SEED...    the worlds of these seeds, again

Each seed is another board: few items that run often or many that run seldom, one worker or a
dozen, calm networks and bad ones, troubles every few seconds or every few minutes. In every eighth,
most items are of types of which only so many runs go on at a time. In another eighth the workers
share groups of partitions, too, and are candidates in elections. These are short, for their workers
ask the store every few seconds; and in a half of them nothing befalls requests, so that shares,
moves and times can be checked between two faults, and not at the end alone.
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

import msgspec.structs

from blackboard.model import replace
from blackboard.rules.election import ElectionKind
from blackboard.rules.shares import Balance
from blackboard.simulator.handlers import KEYED, SCARCE
from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import Odds
from blackboard.simulator.scenario import (
    ALL,
    NONE,
    Fault,
    Scenario,
    synthetic,
)
from blackboard.simulator.world import World
from tests.support.simulated_elections import ElectionPart, SimulatedElection
from tests.support.simulated_groups import GroupPart, SimulatedGroup

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
    Odds(busy=0.02, lost=0.02, late=0.01, twice=0.01),
    Odds(busy=0.1, lost=0.06, late=0.06, twice=0.06),
)
SHARING = 8
"""Every such seed is a world with groups and elections."""
LIMITED = 3
"""Of as many, the seed whose world has limits across workers."""
SHARING_ROUNDS = 600.0
"""Rounds of all workers of one of these, at the most."""
RACES_LAST = 3
"""So much longer are those in which partitions are raced for, and as much longer between faults."""
TO_WORKERS = frozenset({Fault.KILL, Fault.PAUSE, Fault.REDEPLOY, Fault.SKEW, Fault.BUS})
"""Faults of workers, and of the bus, of which all is well again between two of them."""
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
    scenario = Scenario(
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
        housekeeping=pick.choice((None, None, timedelta(minutes=10))),
    )
    if seed % SHARING == LIMITED:
        return with_limits(scenario)
    return with_groups(scenario) if seed % SHARING == SHARING - 1 else scenario


def with_limits(scenario: Scenario) -> Scenario:
    """The same world, in which most runs are limited on the whole board."""
    items = tuple(
        replace(one, type=KEYED, spec=msgspec.structs.replace(one.spec, params=_HOSTS[number % 3]))
        if number % 3 == 1
        else replace(one, type=(one.type, SCARCE)[number % 3 == 0])
        for number, one in enumerate(scenario.items)
    )
    return replace(scenario, items=items)


_HOSTS: tuple[dict[str, Any], ...] = ({}, {"host": "a.example"}, {"host": "b.example"})


def with_groups(scenario: Scenario) -> Scenario:
    """The same world, with a group or two and as many elections."""
    pick = random.Random(f"groups {scenario.seed}")
    lease = pick.choice((6.0, 15.0, 30.0, 60.0))
    groups = tuple(
        SimulatedGroup(
            name=name,
            partitions=pick.choice((1, 4, 12, 32)),
            lease=lease * pick.choice((1, 1, 2)),
            drain=pick.choice((2.0, 10.0)),
            balance=pick.choice((Balance.SHARES, Balance.SHARES, Balance.STEAL, Balance.GRAB)),
            saves=lease * pick.choice((0.5, 2, 8)),
        )
        for name in pick.choice((("clicks",), ("clicks", "views")))
    )
    elections = tuple(
        SimulatedElection(
            name=kind.value,
            kind=kind,
            lease=lease * pick.choice((0.5, 1, 2)),
            ranks=pick.choice((1, 3, 100)),
            preempt=pick.choice((True, True, False)),
        )
        for kind in pick.sample(tuple(ElectionKind), pick.choice((1, 2)))
    )
    slower = RACES_LAST if any(one.has_bus for one in groups) else 1
    is_gentle = bool(scenario.faults) and pick.choice((True, False))
    pause = slower * pick.choice((4, 16)) * lease if is_gentle else scenario.trouble_every
    return replace(
        scenario,
        items=synthetic(min(len(scenario.items), 12), every=timedelta(minutes=2)),
        hours=min(scenario.hours, slower * SHARING_ROUNDS * lease / 3 / scenario.workers / 3600),
        faults=TO_WORKERS if is_gentle else scenario.faults,
        trouble_every=pause,
        shared=(*groups, *elections),
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
    sharing_hours: float = 0.0
    """Worker-hours with groups and elections."""
    moves: int = 0
    terms: int = 0
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

    def add(self, world: World) -> None:
        scenario = world.scenario
        self.worlds += 1
        self.worker_hours += scenario.worker_hours
        self.sharing_hours += scenario.worker_hours if scenario.shared else 0.0
        moves, terms = moves_and_terms(world)
        self.moves += moves
        self.terms += terms
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(world.figures, name))


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


def moves_and_terms(world: World) -> tuple[int, int]:
    """The moves of partitions from one worker to another, and the terms of elections."""
    parts = world.parts.values()
    moves = sum(one.moved for one in parts if isinstance(one, GroupPart))
    return moves, sum(one.won for one in parts if isinstance(one, ElectionPart))


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
        totals.add(world)
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
