"""What happens in a worker, told once. Decisions emit events; one subscriber logs, others count."""

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
    NOTIFIED = "notified"
    """Somebody was told of something: a webhook, a command."""
    NOTIFY = "notify trouble"


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


class Events:
    """Hands every event to every subscriber. One that fails (its disk is full, its terminal is
    gone) is dropped: telling is no reason to stop working.
    """

    def __init__(self, worker: str = "") -> None:
        self.worker = worker
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def emit(self, kind: Kind, message: str = "", **about: Any) -> None:
        event = Event(kind=kind, message=message, worker=self.worker, **about)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - whatever is wrong with it
                self._subscribers.remove(subscriber)

    def emit_of(self, run: OfRun, kind: Kind, message: str = "", **about: Any) -> None:
        """Of a run, or of what may become one."""
        self.emit(kind, message, item=run.id, type=run.type, fence=run.fence, **about)
