"""Which troubles come when: drawn from the seed before the world begins.

A plan is data. Given back with fewer entries it is a smaller story, which is how a failure is
brought down to what it takes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from blackboard.clock import SeededChance
from blackboard.simulator.chance import stream
from blackboard.simulator.host import When
from blackboard.simulator.network import Broken, Sick
from blackboard.simulator.scenario import Scenario, Trouble
from blackboard.simulator.weather import Fated

VERBS = ("add", "edit", "pause", "resume", "run_now", "unlock", "cancel", "remove")
LONGEST_PAUSE_LEASES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One trouble: when, to whom, how long, and in which way."""

    at: float
    """Seconds since the world began."""
    trouble: Trouble
    target: int
    """The seat of a worker, or the number of an item."""
    seconds: float = 0.0
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that will go wrong."""

    happenings: tuple[Happening, ...]
    fated: tuple[Fated, ...] | None = None
    """Requests that meet with a fate; None: they are drawn."""


def draw_plan(scenario: Scenario) -> Plan:
    """The plan of a scenario's seed."""
    chance = stream(scenario.seed, "plan")
    kinds = [one for one in Trouble if one in scenario.faults and one in _DRAWN]
    happenings: list[Happening] = []
    at, end = 0.0, scenario.hours * 3600.0
    while kinds:
        at += -math.log(1.0 - chance.fraction()) * scenario.trouble_every
        if at >= end:
            break
        kind = _pick(chance, [kind for kind in kinds for _ in range(_DRAWN[kind][0])])
        happenings += _DRAWN[kind][1](chance, scenario, round(at, 3))
    return Plan(happenings=tuple(sorted(happenings, key=lambda one: one.at)))


Some = TypeVar("Some")


def _pick(chance: SeededChance, some: Sequence[Some]) -> Some:
    return some[int(chance.fraction() * len(some))]


def _span(chance: SeededChance, least: float, most: float) -> float:
    """Seconds; short ones as often as long ones."""
    return round(least * math.exp(math.log(most / least) * chance.fraction()), 3)


def _seat(chance: SeededChance, scenario: Scenario) -> int:
    return int(chance.fraction() * scenario.workers)


def _kill(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    how = _pick(chance, tuple(When)).value
    seat, away = _seat(chance, scenario), _span(chance, 0.1, 60.0)
    return [Happening(at=at, trouble=Trouble.KILL, target=seat, seconds=away, how=how)]


def _pause(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    lease = scenario.shortest_lease
    seconds = _span(chance, 0.5, LONGEST_PAUSE_LEASES * lease)
    how = _pick(chance, tuple(When)).value
    seat = _seat(chance, scenario)
    return [Happening(at=at, trouble=Trouble.PAUSE, target=seat, seconds=seconds, how=how)]


def _jump(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    by = _span(chance, 1.0, 2 * 86_400.0) * (1 if chance.fraction() < 0.5 else -1)
    seat = _seat(chance, scenario)
    return [Happening(at=at, trouble=Trouble.JUMP, target=seat, seconds=by)]


def _partition(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    how = _pick(chance, tuple(Broken)).value
    seconds = _span(chance, 2.0, 600.0)
    half = chance.fraction() < 0.25
    first = _seat(chance, scenario)
    count = max(scenario.workers // 2, 1) if half else 1
    return [
        Happening(
            at=at,
            trouble=Trouble.PARTITION,
            target=(first + number) % scenario.workers,
            seconds=seconds,
            how=how,
        )
        for number in range(count)
    ]


def _outage(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:  # noqa: ARG001
    seconds = _span(chance, 1.0, 300.0)
    return [Happening(at=at, trouble=Trouble.OUTAGE, target=0, seconds=seconds)]


def _shard(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    how = _pick(chance, tuple(Sick)).value
    number, seconds = int(chance.fraction() * scenario.shards), _span(chance, 2.0, 600.0)
    return [Happening(at=at, trouble=Trouble.SHARD, target=number, seconds=seconds, how=how)]


def _clock(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:  # noqa: ARG001
    by = _span(chance, 0.1, 50.0) * (1 if chance.fraction() < 0.5 else -1)
    return [Happening(at=at, trouble=Trouble.CLOCK, target=0, seconds=by)]


def _versions(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    """An item in three may be taken over: people of this version cannot change it any more."""
    items = range(2, len(scenario.items), 3)
    if scenario.workers < 2 or not items:
        return []
    return [Happening(at=at, trouble=Trouble.VERSIONS, target=_pick(chance, items))]


def _redeploy(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    apart = _span(chance, 1.0, 60.0)
    return [
        Happening(at=at + seat * apart, trouble=Trouble.REDEPLOY, target=seat)
        for seat in range(scenario.workers)
    ]


def _edit(chance: SeededChance, scenario: Scenario, at: float) -> list[Happening]:
    verb = _pick(chance, VERBS)
    item = int(chance.fraction() * len(scenario.items))
    detail = chance.fraction()
    return [Happening(at=at, trouble=Trouble.EDIT, target=item, seconds=detail, how=verb)]


_Draw = Callable[[SeededChance, Scenario, float], list[Happening]]
_DRAWN: dict[Trouble, tuple[int, _Draw]] = {
    Trouble.KILL: (4, _kill),
    Trouble.PAUSE: (4, _pause),
    Trouble.JUMP: (1, _jump),
    Trouble.PARTITION: (2, _partition),
    Trouble.OUTAGE: (1, _outage),
    Trouble.SHARD: (2, _shard),
    Trouble.CLOCK: (1, _clock),
    Trouble.REDEPLOY: (1, _redeploy),
    Trouble.VERSIONS: (1, _versions),
    Trouble.EDIT: (6, _edit),
}
"""How often each comes among the others, and how it is drawn."""
