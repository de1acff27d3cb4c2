"""What happens in a worker. Decisions emit events; one subscriber logs, others count.

A program that subscribes to a board gets a `BoardEvent` of one of the classes below, made by
`board_event` of what the worker emits:

    WorkerStarted  WorkerStopping  WorkerStopped     a worker begins, is asked to stop, has ended
    RunStarted     RunEnded                          a run was claimed; it ended, with its record
    LockOverridden LockLost                          a stale lock was taken over; one was lost
    RunLogged                                        a handler logged something
    SlotSkipped    ItemLeftAlone                     a slot was missed; an item cannot be taken
    StoreAway      StoreBack       ClockJumped       trouble of the store, and its end
    NoticeSent     NoticeFailed    EventsMissed      of notices, and of subscribers

    def count(event):
        match event:
            case RunEnded(run=run):
                RUNS.labels(run.type, run.outcome).inc()

A subscriber that raises is isolated: the others get the event, the worker goes on, and the next
event is handed to that subscriber again. What it missed is counted. The others get an event about
its first failure, its 10th, its 100th, and so on. When it works again it gets one event that says
how many it has missed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from blackboard.records import BoardRun, run_record


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
    """A notice was sent: a webhook, a command."""
    NOTIFY = "notify trouble"
    SUBSCRIBER = "events missed"
    """A subscriber failed, or works again."""


# ---- what programs subscribe to


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardEvent:
    """Something that happened in a worker."""

    worker: str
    """host:pid:boot nonce"""
    message: str
    """As it is logged."""
    level: int
    """As in `logging`."""


class WorkerStarted(BoardEvent):
    """A worker begins to work."""


class WorkerStopping(BoardEvent):
    """A worker was asked to stop."""


class WorkerStopped(BoardEvent):
    """A worker has ended in good order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardItemEvent(BoardEvent):
    """What concerns an item, or a run of it."""

    id: str
    type: str
    fence: int


class RunStarted(BoardItemEvent):
    """A run was claimed, and its handler is called."""


class LockOverridden(BoardItemEvent):
    """A stale lock was taken over: its run was abandoned, and is tried again if it may be."""


class LockLost(BoardItemEvent):
    """The lock of a run under way was lost; its handler is about to be stopped."""


class RunLogged(BoardItemEvent):
    """A handler logged something."""


class SlotSkipped(BoardItemEvent):
    """A slot was missed, and is not made up for."""


class ItemLeftAlone(BoardItemEvent):
    """An item is due, and this worker cannot take it; `message` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(BoardItemEvent):
    """A run has ended and was written to the history."""

    run: BoardRun


class StoreAway(BoardEvent):
    """The store, or a part of it, does not answer. Emitted again while that lasts."""


class StoreBack(BoardEvent):
    """The store answers again."""


class ClockJumped(BoardEvent):
    """The store's clock jumped against the worker's own, or a jump was confirmed, or is over."""


class NoticeSent(BoardItemEvent):
    """A notice was sent: a webhook, a command."""


class NoticeFailed(BoardEvent):
    """A notice could not be sent."""


class EventsMissed(BoardEvent):
    """A subscriber failed, or works again."""


_OF_WORKERS: Mapping[Kind, type[BoardEvent]] = {
    Kind.STARTED: WorkerStarted,
    Kind.STOPPING: WorkerStopping,
    Kind.STOPPED: WorkerStopped,
    Kind.CLOCK: ClockJumped,
    Kind.NOTIFY: NoticeFailed,
    Kind.SUBSCRIBER: EventsMissed,
}
_OF_ITEMS: Mapping[Kind, type[BoardItemEvent]] = {
    Kind.CLAIMED: RunStarted,
    Kind.ADOPTED: RunStarted,
    Kind.OVERRIDDEN: LockOverridden,
    Kind.LOST: LockLost,
    Kind.SAID: RunLogged,
    Kind.SKIPPED: SlotSkipped,
    Kind.LEFT: ItemLeftAlone,
    Kind.NOTIFIED: NoticeSent,
}


def board_event(event: "Event") -> BoardEvent | None:
    """An event as programs get it; None for what only measures a worker, such as a walk."""
    worker, message, level = event.worker, event.message, event.level
    match event.kind:
        case Kind.STORE:
            store = StoreAway if level > logging.INFO else StoreBack
            return store(worker=worker, message=message, level=level)
        case Kind.ENDED:
            _, released = event.record
            return RunEnded(
                worker=worker,
                message=message,
                level=level,
                id=event.item,
                type=event.type,
                fence=event.fence,
                run=run_record(released.run),
            )
        case kind if kind in _OF_ITEMS:
            return _OF_ITEMS[kind](
                worker=worker,
                message=message,
                level=level,
                id=event.item,
                type=event.type,
                fence=event.fence,
            )
        case kind if kind in _OF_WORKERS:
            return _OF_WORKERS[kind](worker=worker, message=message, level=level)
        case _:
            return None


# ---- what workers emit


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
    next_report_at: int = 1
    """Failures at which the others get the next event about it."""

    def takes(self, event: Event) -> bool:
        try:
            self.subscriber(event)
        except (Exception, SystemExit, asyncio.CancelledError) as problem:  # noqa: BLE001
            # A subscriber must never stop the worker.
            self.missed += 1
            self.failures += 1
            self.problem = _words(problem)
            return False
        return True

    def is_to_be_reported(self) -> bool:
        """Whether the others get an event about its failures: at the 1st, the 10th, the 100th."""
        if self.failures < self.next_report_at:
            return False
        while self.next_report_at <= self.failures:
            self.next_report_at *= 10
        return True


class Events:
    """Hands every event to every subscriber, whatever becomes of the others."""

    def __init__(self, worker: str = "") -> None:
        self.worker = worker
        self._subscriptions: list[_Subscription] = []

    def subscribe(self, subscriber: Subscriber, name: str = "") -> None:
        """`name` stands in the events about its failures."""
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
                if one.is_to_be_reported():
                    self._report(one)
            elif one.missed:
                missed, one.missed = one.missed, 0
                one.takes(self._trouble(f"{missed} events were missed here: {one.problem}"))

    def _report(self, failed: _Subscription) -> None:
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
