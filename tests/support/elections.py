"""Candidates of an election without a store: a driver of the pure rules, and a world with faults.

`Town` steps candidates by hand and records what they send, as a transcript. `Storm` runs them while
messages are lost, doubled, late and reordered, and candidates die, stand still and come back; all
of it is drawn from one seed.
"""

import heapq
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from blackboard.model import Identifier, Message, MessageKind
from blackboard.rules.due import deadline
from blackboard.rules.election import (
    Candidacy,
    ElectionKind,
    ElectionPhase,
    ElectionTimes,
    Event,
    Looked,
    Received,
    Step,
    Undelivered,
    step,
)

LEASE = 15.0
TIMES = ElectionTimes(lease=LEASE)


def candidate(rank: int) -> Identifier:
    return Identifier(rank, str(rank))


class Town:
    """Candidates of ranks 1, 2, 3... that all know each other. Tests move time and messages."""

    def __init__(
        self, kind: str, size: int, *, dead: Iterable[int] = (), preempt: bool = True
    ) -> None:
        self.now = 0.0
        self.dead = set(dead)
        self.leader: int | None = None
        """The rank of the holder of the lock."""
        self.states = {
            rank: Candidacy(
                kind=ElectionKind(kind),
                id="report",
                me=candidate(rank),
                times=TIMES,
                preempt=preempt,
                others=tuple(candidate(one) for one in range(1, size + 1) if one != rank),
            )
            for rank in range(1, size + 1)
        }
        self.mail: list[Message] = []
        self.sent: Counter[str] = Counter()
        self.arrived: Counter[str] = Counter()
        self.transcript: list[str] = []
        self.stand: set[int] = set()

    # ---- steps

    def looks(self, *ranks: int) -> None:
        """These candidates check, in this order. Those that stand take the lock if it is free."""
        for rank in ranks or self.alive:
            leader = None if self.leader is None else candidate(self.leader)
            self._step(rank, Looked(others=self.states[rank].others, leader=leader))
            if rank in self.stand and self.leader is None:
                self.leader = rank
                self.transcript.append(f"{rank} leads")
            elif rank not in self.stand and self.leader == rank:
                self.leader = None
                self.transcript.append(f"{rank} steps down")

    def delivers(self, *, most: int = 1_000) -> None:
        """Delivers all messages in the order of their sending, and those that they cause."""
        for _ in range(most):
            if not self.mail:
                return
            self.delivered(0)

    def delivered(self, place: int, *, again: bool = False) -> None:
        """Delivers one message; with `again` it stays, to be delivered once more."""
        message = self.mail[place] if again else self.mail.pop(place)
        to = int(message.to)
        if to in self.dead:
            self._step(int(message.sender), Undelivered(message))
        else:
            self.arrived[message.kind] += 1
            self._step(to, Received(message))

    def lost(self, place: int = 0) -> None:
        del self.mail[place]

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def dies(self, rank: int) -> None:
        """A candidate dies. Its lock is stale at once here."""
        self.dead.add(rank)
        self.leader = None if self.leader == rank else self.leader

    # ---- the state

    @property
    def alive(self) -> list[int]:
        return [rank for rank in self.states if rank not in self.dead]

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.sent)

    def phase(self, rank: int) -> ElectionPhase:
        return self.states[rank].phase

    def _step(self, rank: int, event: Event) -> None:
        if rank in self.dead:
            return
        done = step(self.states[rank], event, now=self.now)
        self.states[rank] = done.after
        (self.stand.add if done.stand else self.stand.discard)(rank)
        for one in done.sends:
            ids = f" {','.join(str(each.rank) for each in one.ids)}" if one.ids else ""
            self.transcript.append(f"{rank} > {one.to} {one.kind}{ids}")
            self.sent[one.kind] += 1
        self.mail += done.sends


@dataclass
class Living:
    """One candidate of a storm."""

    state: Candidacy
    stand: bool = False
    fence: int = 0
    """The fence of the lock that it believes to hold; 0: none."""
    sent: float = 0.0
    """The moment when the claim, or the last renewal, was sent."""
    away: bool = False
    """Whether it is dead or stands still."""
    later: list[Event] = field(default_factory=list)
    """Messages that wait while it stands still."""


class Storm:
    """One election with faults of all kinds until `calm`, and none after that."""

    def __init__(self, seed: int, *, calm: float = 45.0) -> None:
        self.draw = random.Random(seed)
        self.calm = calm
        self.now = 0.0
        self.kind = self.draw.choice(list(ElectionKind))
        preempt = self.draw.random() < 0.7
        ranks = [self.draw.randint(0, 4) for _ in range(self.draw.randint(2, 6))]
        self.all = {
            f"c{n}": Living(
                Candidacy(
                    kind=self.kind,
                    id="report",
                    me=Identifier(rank, f"c{n}"),
                    times=TIMES,
                    preempt=preempt,
                )
            )
            for n, rank in enumerate(ranks)
        }
        self.trouble = self.draw.random()
        """The level of faults, from 0 to 1."""
        self.holder, self.fence, self.renewed = "", 0, 0.0
        self.terms: dict[int, str] = {}
        self.problems: list[str] = []
        self.rivals = 0
        """The number of checks by a candidate that stood while another one stood, too."""
        self._queue: list[tuple[float, int, str, Event | None]] = []
        self._number = 0
        for name in self.all:
            self._at(self.draw.random() * TIMES.check, name)
        self._death()

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, name, event = heapq.heappop(self._queue)
            if name.startswith("c"):
                self._turn(self.all[name], name, event)
            elif name.startswith("back "):
                self._back(name.removeprefix("back "))
            else:
                self._death()

    @property
    def acting(self) -> list[str]:
        """The candidates that act as leader: before the deadline of their lock."""
        return [name for name in self.all if self._acts(name)]

    @property
    def alive(self) -> list[str]:
        return [name for name, one in self.all.items() if not one.away]

    # ---- time

    def _at(self, seconds: float, name: str, event: Event | None = None) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now + seconds, self._number, name, event))

    @property
    def _stormy(self) -> bool:
        return self.now < self.calm

    def _chance(self, share: float) -> bool:
        return self._stormy and self.draw.random() < share * self.trouble

    # ---- faults

    def _death(self) -> None:
        """Once in a while a candidate dies or stands still, and comes back."""
        if not self._stormy:
            return
        if self.draw.random() < self.trouble:
            name = self.draw.choice(list(self.all))
            one = self.all[name]
            if not one.away:
                one.away = True
                for_good = self.draw.random() < 0.2 and len(self.alive) > 1
                if not for_good:
                    self._at(self.draw.uniform(0.5, 2.5 * LEASE), f"back {name}")
        self._at(self.draw.uniform(1.0, LEASE), "death")

    def _back(self, name: str) -> None:
        """A candidate continues after it stood still, or is started anew."""
        one = self.all[name]
        one.away = False
        if self.draw.random() < 0.5:
            fresh = Candidacy(
                kind=one.state.kind,
                id=one.state.id,
                me=one.state.me,
                times=TIMES,
                preempt=one.state.preempt,
                number=one.state.number,
            )
            one.state, one.stand, one.fence = fresh, False, 0
        later, one.later = one.later, []
        for event in later:
            self._at(self.draw.random(), name, event)
        self._at(0.0, name)

    # ---- one candidate

    def _turn(self, one: Living, name: str, event: Event | None) -> None:
        if one.away:
            if event is not None and len(one.later) < 20:
                one.later.append(event)
            return
        if event is not None:
            self._apply(one, step(one.state, event, now=self.now))
            return
        self._check(one, name)
        hurry = not self._leader() and self.kind is not ElectionKind.MUTEX
        pause = 0.5 if hurry else TIMES.check
        self._at(pause * self.draw.uniform(0.8, 1.0), name)

    def _check(self, one: Living, name: str) -> None:
        if one.fence:
            self._renew(one, name)
        leader = self._leader()
        others = tuple(
            each.state.me
            for other, each in self.all.items()
            if other != name and (not each.away or self._chance(0.5))
        )
        holder = self.all[leader].state.me if leader else None
        self._apply(one, step(one.state, Looked(others=others, leader=holder), now=self.now))
        named = [each for each in self.all.values() if each.stand and not each.away]
        self.rivals += one.stand and len(named) > 1 and self.kind is not ElectionKind.MUTEX
        if one.stand and not one.fence:
            self._take(one, name)
        elif one.fence and not one.stand:
            self._give_up(one, name)
        if len(self.acting) > 1:
            self.problems.append(f"{self.now:.1f}: {self.acting} act at the same time")

    def _apply(self, one: Living, done: Step) -> None:
        one.state, one.stand = done.after, done.stand
        for message in done.sends:
            if self._chance(0.3):
                continue
            for _ in range(2 if self._chance(0.3) else 1):
                slow = LEASE if self._chance(0.2) else 1.0
                self._at(self.draw.random() * slow, message.to, Received(message))
            if message.kind is MessageKind.ELECTION and self.all[message.to].away:
                self._at(TIMES.answer, message.sender, Undelivered(message))

    # ---- the lock, as a store keeps it

    def _leader(self) -> str:
        """The holder of a lock that is not stale."""
        return self.holder if self.now - self.renewed <= LEASE else ""

    def _acts(self, name: str) -> bool:
        one = self.all[name]
        return bool(one.fence) and self.now < deadline(one.sent, LEASE)

    def _renew(self, one: Living, name: str) -> None:
        if (self.holder, self.fence) != (name, one.fence):
            one.fence = 0
        elif not self._chance(0.3):
            self.renewed = one.sent = self.now
        elif not self._acts(name):
            one.fence = 0

    def _take(self, one: Living, name: str) -> None:
        if self._leader() or self._chance(0.1):
            return
        self.holder, self.fence, self.renewed = name, self.fence + 1, self.now
        one.fence, one.sent = self.fence, self.now
        if self.terms.setdefault(self.fence, name) != name:
            self.problems.append(f"term {self.fence} is {name}'s, and {self.terms[self.fence]}'s")

    def _give_up(self, one: Living, name: str) -> None:
        if (self.holder, self.fence) == (name, one.fence):
            self.holder = ""
        one.fence = 0


LONGEST = 6 * LEASE
"""Seconds without faults after which each election has ended."""


def hold_elections(number: int) -> None:
    """Runs elections, each with its own seed: no term has two leaders, and each election ends."""
    rivals = terms = 0
    for seed in range(number):
        storm = Storm(seed)
        storm.run(until=storm.calm)
        storm.run(until=storm.calm + LONGEST)
        assert storm.problems == [], f"seed {seed}"
        (leader,) = storm.acting or ("",)
        assert leader, f"seed {seed}: no leader after {LONGEST:g} s without faults"
        before = storm.fence
        storm.run(until=storm.calm + LONGEST + 2 * LEASE)
        assert (storm.acting, storm.fence) == ([leader], before), f"seed {seed}: it changes"
        state = storm.all[leader].state
        if storm.kind == "bully" and state.preempt:
            assert state.me.rank == max(storm.all[one].state.me.rank for one in storm.alive)
        rivals += storm.rivals > 0
        terms += storm.fence
    assert rivals > number // 10, "two were named at a time, and the lock decided"
    assert terms > number * 3 // 2
