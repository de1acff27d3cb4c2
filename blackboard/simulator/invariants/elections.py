"""Invariants of elections: TERM, UNLED.

TERM: a term has one leader, and a leader holds the lock of its term: it stops leading before
another candidate can take the lock. Only people take a lock from a leader that still leads.

UNLED: without faults, each election soon has a leader.
"""

from dataclasses import dataclass, field

from blackboard.model import Lock
from blackboard.rules.election import ElectionTimes
from blackboard.simulator.changes import AppliedChange, Shadows
from blackboard.simulator.invariants import Violation
from blackboard.simulator.scenario import SimulatedElection
from blackboard.simulator.workers import SimulatedCandidate, Workers
from blackboard.table import Delete, Insert, Replace

TRIES = 3
"""Elections in a row, until one has a leader: a candidate that is asked may have just ended, and
others begin meanwhile.
"""


@dataclass(slots=True)
class ElectionInvariants:
    """Checks one election."""

    election: SimulatedElection
    shadows: Shadows
    workers: Workers
    terms: dict[int, str] = field(default_factory=dict)
    """The leader of each term."""
    _taken_away: set[int] = field(default_factory=set)
    """The terms that people have ended."""

    def begins(self, candidate: SimulatedCandidate) -> None:
        """Checks a candidate that has won."""
        assert candidate.term is not None
        name, term = candidate.process.name, candidate.term.fence
        if self.terms.setdefault(term, name) != name:
            what = f"{self.terms[term]} and {name} lead in term {term}"
            raise Violation("TERM", what, item=self.election.name)
        self._check_one(candidate)

    def changed(self, change: AppliedChange) -> None:
        """Checks each write: a leader must have stopped before another candidate takes its lock."""
        if change.id != self.election.name:
            return
        for touch in change.of(Lock):
            if isinstance(touch.op, Delete) and change.sender.is_person:
                assert isinstance(touch.old, Lock)
                self._taken_away.add(touch.old.fence)
            elif isinstance(touch.op, Insert | Replace):
                self.check()

    def check(self) -> None:
        """Checks all candidates. To be called every cycle."""
        for member in self.workers.members:
            for candidate in member.candidates:
                if candidate.about is self.election:
                    self._check_one(candidate)

    def _check_one(self, candidate: SimulatedCandidate) -> None:
        if candidate.term is None or not candidate.leads:
            return
        term, name = candidate.term.fence, candidate.process.name
        if term in self._taken_away:
            return
        shadow = self.shadows.of[self.election.name]
        lock = shadow.lock
        if lock is None or (lock.owner, lock.fence) != (name, term):
            there = "is free" if lock is None else f"is {lock.owner}'s, of term {lock.fence}"
            what = f"{name} leads in term {term}, and the lock {there}"
            raise Violation("TERM", what, item=self.election.name)

    def check_led(self) -> None:
        """Checks that there is a leader. To be called when there were no faults for `longest`."""
        shadow = self.shadows.of.get(self.election.name)
        candidates = [one for member in self.workers.members for one in member.candidates]
        mine = [one for one in candidates if one.about is self.election]
        is_open = shadow is not None and (shadow.lock is not None or bool(shadow.tokens))
        if is_open and mine and not any(one.leads for one in mine):
            raise Violation("UNLED", "it has no leader", item=self.election.name)

    @property
    def longest(self) -> float:
        """Seconds until there is a leader, after any trouble."""
        times = ElectionTimes(lease=self.election.lease)
        return self.election.lease + TRIES * times.turn(self.workers.scenario.workers)
