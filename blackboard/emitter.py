"""Hands the events of a worker to its subscribers.

A subscriber that raises is isolated: the others get the event, the worker goes on, and the next
event is handed to that subscriber again. What it missed is counted. The others get an event about
its first failure, its 10th, its 100th, and so on. When it works again it gets one event that says
how many it has missed.
"""

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, Protocol

from blackboard.events import BoardEvent, BoardItemEvent, EventsMissed

P = ParamSpec("P")
_log = logging.getLogger("blackboard")
Subscriber = Callable[[BoardEvent], None]


def log_event(event: BoardEvent) -> None:
    """Logs an event as the library does, to the logger `blackboard`."""
    if _log.isEnabledFor(event.level):
        about = f"{event.kind} {event.id}" if isinstance(event, BoardItemEvent) else event.kind
        message = event.message
        _log.log(event.level, "%s", f"{about}: {message}" if message else about)


class OfRun(Protocol):
    """A record that names a run: a claim, a lock, a token, a row of the history."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def fence(self) -> int: ...


@dataclass(slots=True, eq=False)
class Subscription:
    """One subscriber, and its failures."""

    subscriber: Subscriber
    name: str = ""
    """Stands in the events about its failures; the name of its class or function if none is given.
    """
    missed: int = 0
    """Events that it has missed since it last worked."""
    failures: int = 0
    """All events that it has missed."""
    problem: str = ""
    """Its last failure, in words."""
    next_report_at: int = 1
    """The number of failures at which the others get the next event about it."""

    def __post_init__(self) -> None:
        kind = type(self.subscriber).__name__
        self.name = self.name or getattr(self.subscriber, "__qualname__", kind)

    def takes(self, event: BoardEvent) -> bool:
        try:
            left: object = self.subscriber(event)  # type: ignore[func-returns-value]
            if left is not None and isinstance(left, Coroutine):
                left.close()
                raise TypeError("a coroutine, which nothing awaits")
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a subscriber must never stop the worker
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


class EventEmitter:
    """Hands each event of a worker to every subscriber, also when others fail."""

    def __init__(self, worker: str = "") -> None:
        self.worker = worker
        self.subscriptions: list[Subscription] = []

    def subscribe(self, subscriber: Subscriber, name: str = "") -> None:
        """`name` stands in the events about its failures."""
        self.subscriptions.append(Subscription(subscriber, name))

    @property
    def failures(self) -> int:
        """How often a subscriber raised."""
        return sum(subscription.failures for subscription in self.subscriptions)

    def emit(
        self, make: Callable[Concatenate[str, P], BoardEvent], /, *args: P.args, **values: P.kwargs
    ) -> None:
        """Makes an event of a class and hands it out: `emit(StoreBack, message="...")`."""
        event = make(self.worker, *args, **values)
        for subscription in tuple(self.subscriptions):
            if not subscription.takes(event):
                if subscription.is_to_be_reported():
                    self._report(subscription)
            elif subscription.missed:
                missed, subscription.missed = subscription.missed, 0
                words = f"{missed} events were missed here: {subscription.problem}"
                subscription.takes(self._trouble(subscription, words))

    def emit_of(
        self,
        run: OfRun,
        make: Callable[Concatenate[str, str, str, int, P], BoardItemEvent],
        /,
        *args: P.args,
        **values: P.kwargs,
    ) -> None:
        """As `emit`, for an event of a run, or of a token or lock that may become one."""
        self.emit(make, run.id, run.type, run.fence, *args, **values)

    def _report(self, failed: Subscription) -> None:
        """Emits the failures of a subscriber to the others. One that fails at this, too, is counted
        and not reported.
        """
        message = f"{failed.name} fails ({failed.failures}): {failed.problem}"
        event = self._trouble(failed, message)
        for subscription in tuple(self.subscriptions):
            if subscription is not failed:
                subscription.takes(event)

    def _trouble(self, failed: Subscription, message: str) -> EventsMissed:
        name, failures = failed.name, failed.failures
        return EventsMissed(self.worker, message=message, subscriber=name, failures=failures)


def _words(problem: BaseException) -> str:
    """What is wrong, without what may be secret in it."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return type(problem).__name__
