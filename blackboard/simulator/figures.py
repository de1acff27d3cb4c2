"""What a world adds up to."""

import sys
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from blackboard.model import Lock, Outcome, Run, Token
from blackboard.protocol.keys import NEXT, next_until
from blackboard.protocol.rows import record_of
from blackboard.simulator.changes import Change, Touch
from blackboard.simulator.crew import Crew
from blackboard.simulator.handlers import Stage
from blackboard.simulator.store import Store
from blackboard.table import Insert, Merge, Replace, Requests


@dataclass(slots=True)
class Figures:
    """Counted as it happens, and measured when the troubles end."""

    claims: int = 0
    overrides: int = 0
    renewals: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of the runs in the history, as they were first told."""
    late: int = 0
    """Runs that came back after their locks were taken."""
    lags: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds from ready to start, of every claim, and of every other start by an override."""
    waits: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds since they were ready, of those that nobody has claimed when it is measured."""
    troubles: Counter[str] = field(default_factory=Counter)
    requests: Requests = field(default_factory=Requests)
    handled: int = 0
    overlaps: int = 0
    overlapped: float = 0.0
    worked: float = 0.0
    """Seconds of handlers, all together, also of those that are at work when it is measured."""
    seconds: float = 0.0

    def count(self, trouble: str) -> None:
        self.troubles[trouble] += 1

    def changed(self, change: Change) -> None:
        """Counts until it is measured: what is made good afterwards is not part of it."""
        if self.seconds:
            return
        for touch in change.of(Lock):
            self._lock_written(change, touch)
        for touch in change.of(Run):
            if isinstance(touch.new, Run):
                if isinstance(touch.op, Insert):
                    self.outcomes[touch.new.outcome.value] += 1
                if touch.new.outcome is Outcome.SUPERSEDED:
                    self.late += 1

    def _lock_written(self, change: Change, touch: Touch) -> None:
        match touch.op:
            case Insert():
                self.claims += 1
                self._begun(change)
            case Replace():
                self.overrides += 1
                self._begun(change)
            case Merge():
                self.renewals += 1

    def _begun(self, change: Change) -> None:
        if change.before is not None:
            self.lags.append((change.now - change.before.ready).total_seconds())

    def measure(self, crew: Crew, stage: Stage, seconds: float) -> None:
        """At the end of the time that counts."""
        self.requests = crew.requests
        self.handled, self.overlaps = stage.runs, stage.overlaps
        at_work = [seconds - one.began for some in stage.handled.values() for one in some]
        self.overlapped, self.worked = stage.overlapped, stage.worked + sum(at_work)
        self.waits = array("d", _waits(crew.store))
        self.seconds = seconds

    def lag(self, share: float) -> float:
        """Seconds by which so large a share was not later; what still waits has its part in it."""
        ordered = sorted([*self.lags, *self.waits])
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0

    def later_than(self, seconds: float) -> int:
        """Runs that began, or still wait, longer after they were ready."""
        return sum(lag > seconds for some in (self.lags, self.waits) for lag in some)


def _waits(store: Store) -> Iterator[float]:
    now = store.now()
    for partition in store.contents.parts:
        for row in store.page(partition, NEXT, next_until(now), sys.maxsize):
            yield (now - record_of(Token, row).ready).total_seconds()
