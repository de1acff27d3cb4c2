"""The network between processes and the store: delays, and what goes wrong with a request.

A request that was sent belongs to the network: it arrives whether or not its sender still lives. A
reply belongs to the process: a stopped process receives it when it continues. The sender gets what
the contract of a store says: Unknown for a batch without an answer, Unavailable for a page, Busy
when nothing was done.

The fate of each request is drawn from the seed, or planned. All drawn fates but "answered" are
recorded: with the plan of the other faults they determine the world, and it can be run again with
fewer of them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any

from blackboard.clock import Chance
from blackboard.simulator.processes import (
    EMPTY,
    Process,
    ScheduledCall,
    Timeline,
    Trap,
    TrapPoint,
    settle,
)
from blackboard.table import Busy, Op, TableError, Unavailable, Unknown

QUICKEST, USUAL = 0.003, 0.010
"""Seconds of one way: the minimum, and about the median of what is added to it."""
TIMEOUT = 10.0
"""Seconds after which a sender gives up a request."""
LATEST = 30.0
"""Seconds after its sending that a late batch is applied, at most."""
SLOWEST = 5.0
"""Extra seconds of a request to a slow partition, at most."""
RETRY_AFTER = (0.5, 1.0, 2.0, 10.0)
BESIDE = "."
"""A character that only the partitions of shared work have in their names."""


class Fate(StrEnum):
    ANSWERED = "answered"
    BUSY = "503"
    NEVER = "lost"
    REPLY_LOST = "reply lost"
    """The request is done, and the reply is lost."""
    LATE = "late"
    """The sender gives up, and then the request is done."""
    TWICE = "twice"
    """Something on the way sends a batch once more: the answer is that to the second."""
    KILLED_BEFORE = "killed before"
    """The sender is killed before it sends."""
    KILLED_SENT = "killed sent"
    """The sender is killed after it has sent."""
    KILLED_DONE = "killed done"
    """The sender is killed when the request is done, before the reply."""


_KILLED = {
    Fate.KILLED_BEFORE: TrapPoint.BEFORE,
    Fate.KILLED_SENT: TrapPoint.SENT,
    Fate.KILLED_DONE: TrapPoint.APPLIED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fated:
    process: str
    number: int
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    busy: float = 0.0
    lost: float = 0.0
    """Requests and replies, half of each."""
    late: float = 0.0
    twice: float = 0.0


class Fates:
    """The fate of each request: as planned, or else drawn by the odds."""

    def __init__(self, chance: Chance, odds: Odds, planned: Iterable[Fated] | None) -> None:
        self._chance = chance
        self.fated = list(planned or ())
        """The fates that were planned, or drawn so far."""
        self._planned = {(message.process, message.number): message.fate for message in self.fated}
        self._draws = planned is None
        kinds = (Fate.BUSY, Fate.NEVER, Fate.REPLY_LOST, Fate.LATE, Fate.TWICE)
        limits = accumulate((odds.busy, odds.lost / 2, odds.lost / 2, odds.late, odds.twice))
        self._limits = list(zip(limits, kinds, strict=True))

    def stop(self) -> None:
        self._planned, self._draws = {}, False

    def of(self, process: str, number: int) -> Fate:
        if not self._draws:
            return self._planned.get((process, number), Fate.ANSWERED)
        draw = self._chance.fraction()
        for limit, fate in self._limits:
            if draw < limit:
                self.fated.append(Fated(process=process, number=number, fate=fate))
                return fate
        return Fate.ANSWERED


class LinkFault(StrEnum):
    BOTH = "nothing gets through"
    REQUESTS = "requests get lost"
    REPLIES = "replies get lost"
    WRITES = "batches get lost, pages do not"


class BusFault(StrEnum):
    AWAY = "its bus is away"
    LATE = "its bus answers late"
    LOST = "its bus loses messages"


class ShardFault(StrEnum):
    AWAY = "its partition is away"
    BUSY = "its partition is throttled"
    SLOW = "its partition is slow"
    REPLIES = "replies of its partition get lost"


@dataclass(slots=True, kw_only=True, eq=False)
class StoreRequest:
    """One batch, or one page."""

    process: Process
    sender: str
    """The name of the worker or person."""
    partition: str
    ask: Callable[[], Any]
    """Applies the batch, or reads the page, when it is called."""
    ops: Sequence[Op]
    """The operations of a batch; none for a page."""
    answer: asyncio.Future[Any]
    fate: Fate = Fate.ANSWERED
    trap: Trap | None = None

    @property
    def is_batch(self) -> bool:
        return len(self.ops) > 0

    @property
    def unanswered(self) -> TableError:
        return Unknown() if self.is_batch else Unavailable("no answer")


@dataclass(slots=True, kw_only=True)
class Network:
    timeline: Timeline
    chance: Chance
    fates: Fates
    trigger: Callable[[Process, Trap], None]
    """Called when a trap is due: kills or stops the process."""
    on_fault: Callable[["StoreRequest", str], None]
    """Called with each request that meets a fault."""
    on_refused: Callable[[Process, str, Sequence[Op], TableError], None]
    """Called with each batch that lost a race, if its sender gets that answer."""
    link_faults: dict[str, LinkFault] = field(default_factory=dict)
    """By process name."""
    away: bool = False
    shard_faults: dict[str, ShardFault] = field(default_factory=dict)
    """By partition name."""

    def send(self, request: StoreRequest) -> None:
        process = request.process
        process.requests += 1
        process.beside += BESIDE in request.partition
        request.fate = self.fates.of(process.name, process.requests)
        if request.fate in _KILLED:
            request.trap = Trap(when=_KILLED[request.fate], seconds=None)
            request.fate = Fate.ANSWERED
        elif request.is_batch and process.trap is not None:
            request.trap, process.trap = process.trap, None
        self._spring(request, TrapPoint.BEFORE)
        if process.runs:
            self._go(request)
        else:  # sent when the process continues, if it ever does
            process.loop.call_soon(self._go, request)

    def _spring(self, request: StoreRequest, point: TrapPoint) -> None:
        """Kills or stops the process of a request that has a trap at this point."""
        if request.trap is not None and request.trap.when is point:
            self.trigger(request.process, request.trap)

    def _go(self, request: StoreRequest) -> None:
        if fault := self._fault_of(request):
            self.on_fault(request, f"{'batch' if request.is_batch else 'page'}: {fault}")
        if self._is_away(request):
            self._reply(request, Unavailable("the store is away"))
        elif self._loses(request):
            self._give_up(request)
        elif request.fate is Fate.BUSY or self._shard_fault(request) is ShardFault.BUSY:
            after = RETRY_AFTER[int(self.chance.fraction() * len(RETRY_AFTER))]
            self._reply(request, Busy(after))
        else:
            delay = self._takes()
            if self._shard_fault(request) is ShardFault.SLOW:
                delay += self.chance.fraction() * SLOWEST
            if request.fate is Fate.LATE:
                self._give_up(request)
                delay = TIMEOUT + self.chance.fraction() * (LATEST - TIMEOUT)
            self.timeline.at(self.timeline.now + delay, self._arrive, request)
        self._spring(request, TrapPoint.SENT)

    def _arrive(self, request: StoreRequest) -> None:
        if self._is_away(request):
            self._give_up(request)
            return
        if request.fate is Fate.TWICE and request.is_batch:
            with suppress(TableError):
                request.ask()
        try:
            answer = request.ask()
        except TableError as problem:
            answer = problem
        self._spring(request, TrapPoint.APPLIED)
        if self._loses_reply(request):
            self._give_up(request)
            return
        is_answered = request.fate is not Fate.LATE
        if is_answered and request.is_batch and isinstance(answer, TableError):
            self.on_refused(request.process, request.sender, request.ops, answer)
        self._reply(request, answer)

    # ---- the faults of this moment

    def _fault_of(self, request: StoreRequest) -> str:
        """The fault that a request meets, in words; "" for none."""
        if self.away:
            return "the store is away"
        drawn = "" if request.fate is Fate.ANSWERED else request.fate
        return self._link_fault(request) or self._shard_fault(request) or drawn

    def _link_fault(self, request: StoreRequest) -> LinkFault | None:
        return self.link_faults.get(request.process.name)

    def _shard_fault(self, request: StoreRequest) -> ShardFault | None:
        return self.shard_faults.get(request.partition)

    def _is_away(self, request: StoreRequest) -> bool:
        return self.away or self._shard_fault(request) is ShardFault.AWAY

    def _loses(self, request: StoreRequest) -> bool:
        """Whether the request does not arrive."""
        link = self._link_fault(request)
        return (
            request.fate is Fate.NEVER
            or link in {LinkFault.BOTH, LinkFault.REQUESTS}
            or (link is LinkFault.WRITES and request.is_batch)
        )

    def _loses_reply(self, request: StoreRequest) -> bool:
        """Whether its sender gets no answer to a request that has arrived."""
        return (
            request.fate is Fate.REPLY_LOST
            or self._shard_fault(request) is ShardFault.REPLIES
            or self._link_fault(request) in {LinkFault.BOTH, LinkFault.REPLIES}
        )

    # ---- ways and answers

    def _takes(self) -> float:
        """Draws the seconds of one way, which are rarely many."""
        fraction = self.chance.fraction()
        return QUICKEST + USUAL * fraction / (1.02 - fraction)

    def _give_up(self, request: StoreRequest) -> None:
        """The connection breaks, or the sender gives up."""
        self._answer(request, request.unanswered, self.chance.fraction() * TIMEOUT)

    def _reply(self, request: StoreRequest, answer: Any) -> None:
        self._answer(request, answer, self._takes())

    def _answer(self, request: StoreRequest, answer: Any, delay: float) -> None:
        arrives = self.timeline.now + delay
        loop = request.process.loop
        self.timeline.put(ScheduledCall(loop, arrives, settle, (request.answer, answer), EMPTY))
