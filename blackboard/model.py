"""The records of a board: what the rows mean, without saying how they are kept.

Times are aware, UTC, in whole milliseconds. Text that may be absent is "", a time that may be
absent is None. JSON text is carried as text: a record copies it unread.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

VERSION = 1
"""The version of the protocol this code speaks. Rows of a higher one are left alone."""

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""What is `planned` beside a run that a person asked for, where the schedule has no next slot."""


class State(StrEnum):
    """What a person decided about an item, or what became of it."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    REMOVED = "removed"


class Outcome(StrEnum):
    """How a run ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    ABANDONED = "abandoned"
    """Its lock was taken away: overridden when it had outlived its lease, or unlocked."""
    SUPERSEDED = "superseded"
    """It was abandoned or cancelled and came back after all, too late."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The record people look at, and the truth about an item."""

    id: str
    type: str
    state: State
    spec: str
    """JSON of `spec.Spec`: what the item itself says about its runs."""
    fence: int = 0
    """Rises with every claim, override, unlock, cancel and removal; never falls."""
    born: int = 0
    """The fence the item was added with: more than 0 when the id was in use before, and another
    one each time."""
    slot: datetime
    """The due time of the pending or running run: its identity."""
    ready: datetime
    """When the pending token may be taken: slot plus jitter, or now plus backoff."""
    planned: datetime
    """The schedule's own next slot; a `run now` puts another slot before it."""
    attempt: int = 1
    start: datetime | None = None
    stop: datetime | None = None
    running: bool = False
    owner: str = ""
    outcome: Outcome | None = None
    result: str = ""
    """JSON of what the last handler to finish returned."""
    error: str = ""
    result_fence: int = 0
    runs: int = 0
    failures: int = 0
    """In a row, since the last ok."""
    schedule: str = ""
    """As last resolved from item, type and handler: "every 8h", "cron 0 3 * * *"."""
    timezone: str = "UTC"
    once: str = ""
    """JSON of params for the pending run alone."""
    requests: str = ""
    """JSON list of `Request`: runs that were asked for and come after the waiting or running one,
    in this order."""
    paused: str = ""
    """JSON of `Mark`: who paused it, when and why."""
    resumed: str = ""
    """JSON of `Mark`: who last resumed it, when and why."""
    first: datetime | None = None
    """The first time that a person named when it was added."""
    applied: str = ""
    """JSON list of `Applied`: the latest requests of operators, newest first, so that a repeated
    request counts once."""
    version: int = VERSION
    etag: str = ""

    @property
    def waits(self) -> bool:
        """Whether it has a waiting token: `next:<ready>:<id>`."""
        return self.state is State.ACTIVE and not self.running

    @property
    def is_paused(self) -> bool:
        """Whether a person paused it and nobody has resumed it. It may be done since."""
        return self.state is State.PAUSED or (self.state is State.DONE and bool(self.paused))


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A waiting token: the permission to run an item once, lying there to be claimed."""

    id: str
    type: str
    spec: str
    fence: int
    born: int
    slot: datetime
    ready: datetime
    planned: datetime
    attempt: int
    runs: int
    failures: int
    once: str
    requests: str = ""
    version: int = VERSION
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A claimed token. Only its holder and whoever overrides it ever write it."""

    id: str
    type: str
    owner: str
    """The worker: host:pid:boot nonce."""
    nonce: str
    """Drawn afresh for each claim: proves whose lock this is."""
    fence: int
    born: int
    slot: datetime
    since: datetime
    stale_after: float
    """Seconds, as resolved when it was claimed."""
    attempt: int
    progress: str = ""
    """JSON [done, total]."""
    version: int = VERSION
    etag: str = ""
    age: float = 0.0
    """Seconds since its last renewal, by the store's clock, when it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run in the history: one row for each fence."""

    id: str
    type: str
    fence: int
    attempt: int
    slot: datetime
    start: datetime
    stop: datetime
    lag: float
    """Seconds from ready to start."""
    outcome: Outcome
    worker: str
    nonce: str
    result: str = ""
    error: str = ""
    output: str = ""
    """The last of what the handler printed."""
    note: str = ""
    """JSON of `Mark` when a person ended it."""
    version: int = VERSION
    etag: str = ""

    @property
    def duration(self) -> float:
        """Seconds."""
        return (self.stop - self.start).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A worker as it announces itself."""

    owner: str
    started: datetime
    seen: datetime
    slots: int
    running: int
    release: str
    """The version of the software."""
    types: str = ""
    """The types it takes, comma-separated."""
    cycle: float = 60.0
    """Seconds between its walks."""
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Who did something to an item, when, and why."""

    by: str
    at: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run that was asked for and waits behind others."""

    name: str
    slot: datetime
    once: str = ""
    """JSON of params for this run alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The name of an operator's request, and the time of it."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a runner has to say when a handler has ended, however it ended."""

    outcome: Outcome
    result: Any = None
    """What the handler returned, when ok: anything JSON can hold."""
    error: str = ""
    """Type, message and traceback when it failed; the reason when it was stopped or died."""
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lock in its holder's hands, with all that is needed to run the item and to let it go."""

    id: str
    type: str
    spec: str
    once: str
    state: State = State.ACTIVE
    """As the item said when it was last read: a pause while it runs shows here."""
    requests: str = ""
    fence: int
    born: int
    slot: datetime
    ready: datetime
    planned: datetime
    attempt: int
    runs: int
    failures: int
    owner: str
    nonce: str
    start: datetime
    stale_after: float
    sent: float
    """Monotonic seconds at the first send of the claim or of its last acknowledged renewal."""
    lock_etag: str
    item_etag: str
    """"" when the item has to be read before the release."""
    version: int = VERSION
    """Of its item: a token keeps it, so that who does not know it leaves the token alone."""


def whole_milliseconds(moment: datetime) -> datetime:
    """`moment` cut down to the millisecond, the grain of every time in a row."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
