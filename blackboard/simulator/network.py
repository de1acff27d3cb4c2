"""The way between processes and the store: it takes time, and things go wrong on it.

A request that was sent belongs to the network: it arrives whether or not its sender still lives. A
reply belongs to the process: one that is stopped finds it when it goes on. What a caller is told
follows the contract of a store: a batch that is not answered is Unknown, a page Unavailable; Busy
means that nothing was done.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from blackboard.clock import Chance
from blackboard.simulator.host import Process, Trap, When
from blackboard.simulator.timeline import NOBODYS, Call, Timeline
from blackboard.simulator.weather import Fate, Weather
from blackboard.table import Busy, Op, TableError, Unavailable, Unknown

QUICKEST, USUAL = 0.003, 0.010
"""Seconds of a way: the least, and what comes to it on the mean."""
PATIENCE = 10.0
"""Seconds until a caller gives a request up."""
LATEST = 30.0
"""Seconds after its sending that a late batch lands, at the latest."""
SLOWEST = 5.0
"""Seconds that a request takes to a slow partition, at the most."""
RETRY_AFTER = (0.5, 1.0, 2.0, 10.0)

_KILLED = {
    Fate.KILLED_BEFORE: When.BEFORE,
    Fate.KILLED_SENT: When.SENT,
    Fate.KILLED_DONE: When.APPLIED,
}


class Broken(StrEnum):
    """What of the way between a process and the store does not work."""

    BOTH = "nothing gets through"
    REQUESTS = "requests get lost"
    REPLIES = "replies get lost"
    WRITES = "batches get lost, pages do not"


class Sick(StrEnum):
    """What is the matter with one partition of the store."""

    AWAY = "its partition is away"
    BUSY = "its partition is throttled"
    SLOW = "its partition is slow"
    REPLIES = "replies of its partition get lost"


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One batch, or one page."""

    process: Process
    sender: str
    """The name of the worker or person in that process."""
    partition: str
    ask: Callable[[], Any]
    """Asks the store, now."""
    ops: Sequence[Op]
    """Of a batch; none: a page is asked for."""
    answer: asyncio.Future[Any]
    """The future that its caller waits on."""
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
    """Carries requests and replies."""

    timeline: Timeline
    chance: Chance
    weather: Weather
    spring: Callable[[Process, Trap], None]
    """Lets a trap do its work."""
    tell: Callable[["Request", str], None]
    """Hears of what goes wrong."""
    refused: Callable[[Process, str, Sequence[Op], TableError], None]
    """Hears of batches that lost a race, and whose senders are told so: of both."""
    broken: dict[str, Broken] = field(default_factory=dict)
    """By the names of processes."""
    away: bool = False
    """Whether the store is."""
    sick: dict[str, Sick] = field(default_factory=dict)
    """By the names of partitions."""

    def send(self, request: Request) -> None:
        process = request.process
        process.requests += 1
        request.fate = self.weather.fate(process.name, process.requests)
        if request.fate in _KILLED:
            request.trap = Trap(when=_KILLED[request.fate], seconds=None)
            request.fate = Fate.ANSWERED
        elif request.is_batch and process.trap is not None:
            request.trap, process.trap = process.trap, None
        if request.trap is not None and request.trap.when is When.BEFORE:
            self.spring(process, request.trap)
        if process.runs:
            self._go(request)
        else:  # it goes when the process goes on, if it ever does
            process.loop.call_soon(self._go, request)

    def _go(self, request: Request) -> None:
        process, fate = request.process, request.fate
        way = self.broken.get(process.name)
        sick = self.sick.get(request.partition)
        lost = way in {Broken.BOTH, Broken.REQUESTS} or (way is Broken.WRITES and request.is_batch)
        if fate is not Fate.ANSWERED or way or sick or self.away:
            self._trouble(request, "the store is away" if self.away else way or sick or f"{fate}")
        if self.away or sick is Sick.AWAY:
            self._reply(request, Unavailable("the store is away"))
        elif lost or fate is Fate.NEVER:
            self._give_up(request)
        elif fate is Fate.BUSY or sick is Sick.BUSY:
            after = RETRY_AFTER[int(self.chance.fraction() * len(RETRY_AFTER))]
            self._reply(request, Busy(after))
        else:
            delay = self._takes()
            if sick is Sick.SLOW:
                delay += self.chance.fraction() * SLOWEST
            if fate is Fate.LATE:
                self._give_up(request)
                delay = PATIENCE + self.chance.fraction() * (LATEST - PATIENCE)
            self.timeline.at(self.timeline.now + delay, self._arrive, request)
        if request.trap is not None and request.trap.when is When.SENT:
            self.spring(process, request.trap)

    def _arrive(self, request: Request) -> None:
        sick = self.sick.get(request.partition)
        if self.away or sick is Sick.AWAY:
            self._give_up(request)
            return
        try:
            answer = request.ask()
        except TableError as problem:
            answer = problem
        if request.trap is not None and request.trap.when is When.APPLIED:
            self.spring(request.process, request.trap)
        way = self.broken.get(request.process.name)
        if (
            request.fate is Fate.UNHEARD
            or sick is Sick.REPLIES
            or way in {Broken.BOTH, Broken.REPLIES}
        ):
            self._give_up(request)
        else:
            heard = request.fate is not Fate.LATE
            if heard and request.is_batch and isinstance(answer, TableError):
                self.refused(request.process, request.sender, request.ops, answer)
            self._reply(request, answer)

    def _trouble(self, request: Request, what: str) -> None:
        self.tell(request, f"{'batch' if request.is_batch else 'page'}: {what}")

    def _takes(self) -> float:
        """Seconds of one way: rarely long."""
        fraction = self.chance.fraction()
        return QUICKEST + USUAL * fraction / (1.02 - fraction)

    def _give_up(self, request: Request) -> None:
        """Its connection breaks at some time, or its caller gives up."""
        self._answer(request, request.unanswered, self.chance.fraction() * PATIENCE)

    def _reply(self, request: Request, answer: Any) -> None:
        self._answer(request, answer, self._takes())

    def _answer(self, request: Request, answer: Any, delay: float) -> None:
        arrives = self.timeline.now + delay
        loop = request.process.loop
        self.timeline.put(Call(loop, arrives, _set, (request.answer, answer), NOBODYS))


def _set(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
