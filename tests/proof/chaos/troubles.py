"""The faults of a fleet of workers, and their times: drawn from a seed, in advance.

Each worker has a seat, and a worker that is killed is replaced there. Kills come every two
seconds; the rest comes in spells that begin and end: two workers at a time stand still, one has a
wrong clock, one has no store. The host's clock never goes back; that of a single worker does, and
comes back.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

SEATS = 8
LEASE = 4.0
"""Seconds: `stale_after` of all items."""
KILL_EVERY = 2.0
PAUSED = 2
DAY_EVERY = 20.0


class Trouble(StrEnum):
    """Something that happens to the worker at a seat."""

    KILL = "kill -9"
    STOP = "stands still"
    GO_ON = "goes on"
    FALL_BACK = "its clock falls back by a day"
    CATCH_UP = "its clock is put right"
    CUT = "partitioned"
    DEAF = "partitioned one way: what it asks arrives, and no reply does"
    SLOW = "partitioned one way: what it asks arrives after seconds, if ever"
    MEND = "has its store again"
    DAY = "a day passes at once, for all workers"


PARTITIONS = (Trouble.CUT, Trouble.DEAF, Trouble.SLOW)


@dataclass(frozen=True, slots=True, order=True)
class Strike:
    """One trouble, so many seconds after the beginning."""

    at: float
    seat: int
    trouble: Trouble

    def __str__(self) -> str:
        return f"{self.at:7.2f} s  worker {self.seat}: {self.trouble.value}"


def planned(seed: int, *, seconds: float, partitions: bool) -> list[Strike]:
    """All that happens, in order."""
    chance = random.Random(seed)
    kills = [
        Strike(at, chance.randrange(SEATS), Trouble.KILL) for at in _moments(KILL_EVERY, seconds)
    ]
    days = [Strike(at, 0, Trouble.DAY) for at in _moments(DAY_EVERY, seconds, first=0.5)]
    pauses = [
        _spells(chance, seconds, longest=3 * LEASE, of=[Trouble.STOP], end=Trouble.GO_ON)
        for _ in range(PAUSED)
    ]
    spells = [
        *chain(*pauses),
        *_spells(chance, seconds, longest=4.0, of=[Trouble.FALL_BACK], end=Trouble.CATCH_UP),
    ]
    if partitions:
        spells += _spells(chance, seconds, longest=4.0, of=PARTITIONS, end=Trouble.MEND)
    return sorted(kills + days + spells)


def _moments(every: float, seconds: float, *, first: float = 1.0) -> list[float]:
    return [every * (first + number) for number in range(int(seconds / every - first) + 1)]


def _spells(
    chance: random.Random, seconds: float, *, longest: float, of: Sequence[Trouble], end: Trouble
) -> list[Strike]:
    """Spells of one kind, some seconds apart, at one seat after the other."""
    found: list[Strike] = []
    at = chance.uniform(0.5, 2.0)
    while at < seconds:
        seat, until = chance.randrange(SEATS), at + chance.uniform(0.5, longest)
        found += [Strike(at, seat, chance.choice(of)), Strike(until, seat, end)]
        at = until + chance.uniform(0.5, 2.0)
    return found
