"""What becomes of each request to the store: drawn from the seed, or as a plan says.

A drawn weather remembers what it has drawn besides "answered". That list, with the plan of the
other faults, is the whole story of a world: given back, the same happens again, and with one entry
less it is a smaller story.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from blackboard.clock import Chance


class Fate(StrEnum):
    """Of one request."""

    ANSWERED = "answered"
    BUSY = "503"
    """The store has no time for it."""
    NEVER = "lost"
    """It gets lost on its way."""
    UNHEARD = "unheard"
    """It is done, and the reply gets lost."""
    LATE = "late"
    """Its sender gives up, and then it is done."""
    KILLED_BEFORE = "killed before"
    """Its sender is killed when it is about to send it."""
    KILLED_SENT = "killed sent"
    """Its sender is killed when it has sent it."""
    KILLED_DONE = "killed done"
    """Its sender is killed when it is done, before the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fated:
    """Request `number` of a process meets with a fate."""

    process: str
    number: int
    fate: Fate


class Weather(Protocol):
    def fate(self, process: str, number: int) -> Fate: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How often a request meets with a fate."""

    busy: float = 0.0
    lost: float = 0.0
    """Requests and replies, half of each."""
    late: float = 0.0


class DrawnWeather:
    """By chance, while it is on."""

    def __init__(self, chance: Chance, odds: Odds) -> None:
        self._chance = chance
        self._until: list[tuple[float, Fate]] = []
        total = 0.0
        for fate, odd in (
            (Fate.BUSY, odds.busy),
            (Fate.NEVER, odds.lost / 2),
            (Fate.UNHEARD, odds.lost / 2),
            (Fate.LATE, odds.late),
        ):
            total += odd
            self._until.append((total, fate))
        self._total = total
        self.drawn: list[Fated] = []

    def fate(self, process: str, number: int) -> Fate:
        draw = self._chance.fraction()
        if draw >= self._total:
            return Fate.ANSWERED
        found = next(fate for until, fate in self._until if draw < until)
        self.drawn.append(Fated(process=process, number=number, fate=found))
        return found


class PlannedWeather:
    """As it was told."""

    def __init__(self, fated: Iterable[Fated]) -> None:
        self._fates = {(one.process, one.number): one.fate for one in fated}

    def fate(self, process: str, number: int) -> Fate:
        return self._fates.get((process, number), Fate.ANSWERED)


class Calm:
    """Nothing goes wrong."""

    def fate(self, process: str, number: int) -> Fate:  # noqa: ARG002
        return Fate.ANSWERED
