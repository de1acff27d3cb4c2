"""What happens in a worker, told once. Decisions emit events; one subscriber logs, others count.

A subscriber that raises is isolated: the others get the event, the worker goes on, and the next
event is handed to that subscriber again. What it missed is counted. The others get an event about
its first failure, its 10th, its 100th, and so on. When it works again it gets
one event that says how many it has missed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Kind(StrEnum):
    """What happened."""

    STARTED = "worker started"
    STOPPING = "worker stopping"
    STOPPED = "worker stopped"
    WALKED = "walked"
    CLAIMED = "claimed"
    OVERRIDDEN = "overridden"
    ADOPTED = "adopted"
    SKIPPED = "skipped"
    LEFT = "left alone"
    SAID = "said"
    """The handler logged something."""
    LOST = "lost"
    ENDED = "ended"
    STORE = "store trouble"
    CLOCK = "clock jumped"
    """The store's clock, against the worker's monotonic one; or it is confirmed, or back."""
    NOTIFIED = "notified"
    """Somebody was told of something: a webhook, a command."""
    NOTIFY = "notify trouble"
    SUBSCRIBER = "events missed"
    """A subscriber failed, or works again."""


class OfRun(Protocol):
    """What names a run: a claim, a lock, a token, a row of the history."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def fence(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One happening. What concerns a run names its item, type and fence."""

    kind: Kind
    message: str = ""
    level: int = logging.INFO
    worker: str = ""
    item: str = ""
    type: str = ""
    fence: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    record: Any = None
    """What it is about, for a subscriber that looks closer. It is not logged."""


Subscriber = Callable[[Event], None]


@dataclass(slots=True, eq=False)
class _Subscription:
    """One subscriber, and how it fares."""

    subscriber: Subscriber
    name: str
    missed: int = 0
    """Events since it last worked."""
    failures: int = 0
    """All of them."""
    problem: str = ""
    """The last of them."""
    told_again_at: int = 1
    """How many failures are worth an event next."""

    def takes(self, event: Event) -> bool:
        try:
            self.subscriber(event)
        except (Exception, SystemExit, asyncio.CancelledError) as problem:  # noqa: BLE001
            # Whatever is wrong with it: telling is no reason to stop working.
            self.missed += 1
            self.failures += 1
            self.problem = _words(problem)
            return False
        return True

    def is_worth_telling(self) -> bool:
        """Whether its failures are an event for the others; at the 1st, the 10th, the 100th."""
        if self.failures < self.told_again_at:
            return False
        while self.told_again_at <= self.failures:
            self.told_again_at *= 10
        return True


class Events:
    """Hands every event to every subscriber, whatever becomes of the others."""

    def __init__(self, worker: str = "") -> None:
        self.worker = worker
        self._subscriptions: list[_Subscription] = []

    def subscribe(self, subscriber: Subscriber, name: str = "") -> None:
        """`name` is what the others are told when it fails."""
        name = name or getattr(subscriber, "__qualname__", type(subscriber).__name__)
        self._subscriptions.append(_Subscription(subscriber, name))

    @property
    def failures(self) -> int:
        """Times that a subscriber raised."""
        return sum(one.failures for one in self._subscriptions)

    def emit(self, kind: Kind, message: str = "", **about: Any) -> None:
        event = Event(kind=kind, message=message, worker=self.worker, **about)
        for one in tuple(self._subscriptions):
            if not one.takes(event):
                if one.is_worth_telling():
                    self._tell_others(one)
            elif one.missed:
                missed, one.missed = one.missed, 0
                one.takes(self._trouble(f"{missed} events were missed here: {one.problem}"))

    def _tell_others(self, failed: _Subscription) -> None:
        """Subscribers that fail at this, too, are counted and nothing more."""
        event = self._trouble(f"{failed.name} fails ({failed.failures}): {failed.problem}")
        for one in tuple(self._subscriptions):
            if one is not failed:
                one.takes(event)

    def _trouble(self, message: str) -> Event:
        return Event(
            kind=Kind.SUBSCRIBER, message=message, level=logging.WARNING, worker=self.worker
        )

    def emit_of(self, run: OfRun, kind: Kind, message: str = "", **about: Any) -> None:
        """Of a run, or of what may become one."""
        self.emit(kind, message, item=run.id, type=run.type, fence=run.fence, **about)


def _words(problem: BaseException) -> str:
    """What is wrong, without what may be secret in it."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return type(problem).__name__
