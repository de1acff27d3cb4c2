"""Elections in simulated worlds: each worker is a candidate, and leads when it can. With their
invariants: TERM, UNLED.

TERM: a term has one leader, and a leader holds the lock of its term: it stops leading before
another candidate can take the lock. Only people take a lock from a leader that still leads.

UNLED: without faults, each election soon has a leader.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from blackboard.board_worker import WorkerSettings
from blackboard.emitter import EventEmitter
from blackboard.errors import BlackboardError
from blackboard.model import Lock
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import LEADERS
from blackboard.rules.election import ElectionKind, ElectionTimes
from blackboard.sharing.election import Election, Term
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.invariants import Violation
from blackboard.simulator.processes import Process
from blackboard.simulator.scenario import SharedWork
from blackboard.simulator.workers import SharedPart
from blackboard.simulator.world import World
from blackboard.table import Delete, Insert, Replace, TableError

_log = logging.getLogger("blackboard")
TRIES = 3
"""Elections in a row, until one has a leader: a candidate that is asked may have just ended, and
others begin meanwhile.
"""


def _log_problem(problem: BlackboardError) -> None:
    """Logs a problem of a candidate. Outages are no news in a simulated world."""
    _log.warning("an election: %s", problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedElection(SharedWork):
    """An election, in which all workers of a world are candidates."""

    kind: ElectionKind = ElectionKind.MUTEX
    lease: float = 15.0
    ranks: int = 1
    """The number of different ranks of candidates; a seat keeps its rank after a restart."""
    preempt: bool = True

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def group(self) -> str:
        return LEADERS

    def in_world(self, world: World) -> "ElectionPart":
        return ElectionPart(self, world)

    def rank(self, seat: int) -> int:
        return 0 if self.kind is ElectionKind.MUTEX else seat % self.ranks


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedCandidate:
    """The part of a process in an election: it leads when it can, again and again."""

    about: SimulatedElection
    enter: Callable[[], Election]
    process: Process
    on_term: Callable[["SimulatedCandidate"], None]
    """Called when it has won."""
    election: Election = field(init=False)
    term: Term | None = None
    """The term that it has won last."""
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.election = self.enter()

    @property
    def leads(self) -> bool:
        return not self.process.loop.dead and self.term is not None and not self.term.lost

    async def work(self) -> None:
        """Takes part until it is cancelled. Retries a board that cannot be reached."""
        self._task = asyncio.current_task()
        while True:
            try:
                async with self.election as leader:
                    while True:
                        self.term = await leader.won()
                        self.on_term(self)
                        await self.term.lost.wait()
            except (TableError, BlackboardError):
                await self.process.loop.sleep(self.about.lease / 3)
            self.election = self.enter()

    def stop(self) -> None:
        """Cancels its block, as a program does that is asked to stop."""
        if self._task is not None:
            self._task.cancel()


@dataclass(slots=True)
class ElectionPart(SharedPart):
    """One election in a world."""

    election: SimulatedElection
    world: World
    won: int = 0
    """How many times a candidate has won."""
    terms: dict[int, str] = field(default_factory=dict)
    """The leader of each term."""
    _taken_away: set[int] = field(default_factory=set)
    """The terms that people have ended."""

    def participant(
        self,
        process: Process,
        seat: int,
        *,
        board: BoardTable,
        settings: WorkerSettings,
        events: EventEmitter,
    ) -> SimulatedCandidate:
        def enter() -> Election:
            return Election(
                board,
                name=self.election.name,
                owner=process.name,
                kind=self.election.kind.value,
                lease=timedelta(seconds=self.election.lease),
                rank=self.election.rank(seat),
                preempt=self.election.preempt,
                ends_at_sigterm=False,
                report=_log_problem,
            )

        return SimulatedCandidate(
            about=self.election, enter=enter, process=process, on_term=self._on_term
        )

    def _on_term(self, candidate: SimulatedCandidate) -> None:
        self.won += 1
        # A violation raised in a task of a process would be caught there.
        self.world.timeline.at(self.world.timeline.now, self.begins, candidate)

    def begins(self, candidate: SimulatedCandidate) -> None:
        """Checks a candidate that has won."""
        assert candidate.term is not None
        name, term = candidate.process.name, candidate.term.fence
        if self.terms.setdefault(term, name) != name:
            what = f"{self.terms[term]} and {name} lead in term {term}"
            raise Violation("TERM", what, item=self.election.name)
        self._check_one(candidate)

    def changed(self, change: AppliedChange) -> None:
        """A leader must have stopped before another candidate takes its lock."""
        if change.id != self.election.name:
            return
        for touch in change.of(Lock):
            if isinstance(touch.op, Delete) and change.sender.is_person:
                assert isinstance(touch.old, Lock)
                self._taken_away.add(touch.old.fence)
            elif isinstance(touch.op, Insert | Replace):
                self.check()

    def check(self) -> None:
        for candidate in self._candidates:
            self._check_one(candidate)

    @property
    def _candidates(self) -> list[SimulatedCandidate]:
        """Those of the workers that are alive."""
        found = (one.shared[self.election.name] for one in self.world.workers.members)
        return [one for one in found if isinstance(one, SimulatedCandidate)]

    def _check_one(self, candidate: SimulatedCandidate) -> None:
        if candidate.term is None or not candidate.leads:
            return
        term, name = candidate.term.fence, candidate.process.name
        if term in self._taken_away:
            return
        shadow = self.world.shadows.of[self.election.name]
        lock = shadow.lock
        if lock is None or (lock.owner, lock.fence) != (name, term):
            there = "is free" if lock is None else f"is {lock.owner}'s, of term {lock.fence}"
            what = f"{name} leads in term {term}, and the lock {there}"
            raise Violation("TERM", what, item=self.election.name)

    def check_end(self) -> None:
        """Checks that there is a leader."""
        shadow, candidates = self.world.shadows.of.get(self.election.name), self._candidates
        is_open = shadow is not None and (shadow.lock is not None or bool(shadow.tokens))
        if is_open and candidates and not any(one.leads for one in candidates):
            raise Violation("UNLED", "it has no leader", item=self.election.name)

    @property
    def longest(self) -> float:
        times = ElectionTimes(lease=self.election.lease)
        return self.election.lease + TRIES * times.turn(self.world.workers.scenario.workers)
