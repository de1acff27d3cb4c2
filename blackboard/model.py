"""The records of a board: what the rows mean, without saying how they are kept.

Times are aware, UTC, in whole milliseconds. Text that may be absent is "", a time that may be
absent is None. JSON text is carried as text: a record copies it unread.

Records that a run copies again and again are frozen structs of msgspec: `replace` takes a tenth of
the time that it takes with a dataclass.
"""

import dataclasses
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec.structs
from msgspec import Struct

if TYPE_CHECKING:
    # mypy checks the arguments of this one, and of no other; for structs, too.
    from dataclasses import replace as replace  # noqa: PLC0414 - so that it may be imported from here
else:

    def replace(record: Any, /, **changes: Any) -> Any:
        """A copy of a struct, or of a dataclass, with other values in some fields."""
        if isinstance(record, Struct):
            return msgspec.structs.replace(record, **changes)
        return dataclasses.replace(record, **changes)


VERSION = 1
"""The version of the protocol this code speaks. Rows of a higher one are left alone."""

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""What is `planned` beside a run that was asked for, where the schedule has no next slot."""


class State(StrEnum):
    """What an operator decided about an item, or what became of it."""

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


class QueuedRun(Struct, frozen=True, kw_only=True):
    """A run that was asked for and waits behind others."""

    name: str
    slot: datetime
    once: str = ""
    """JSON of params for this run alone."""


class Applied(Struct, frozen=True, kw_only=True):
    """The name of an operator's request, and the time of it."""

    name: str
    at: datetime


class Mark(Struct, frozen=True, kw_only=True):
    """Who did something to an item, when, and why."""

    by: str
    at: datetime
    reason: str = ""


class Work(Struct, frozen=True, kw_only=True):
    """What a run of an item needs, and what its end is planned by. The item has it, its waiting
    token repeats it.
    """

    id: str
    type: str
    spec: str
    """JSON of `spec.Spec`: the item's own settings."""
    fence: int
    """Rises with every claim, override, unlock, cancel and removal; never falls."""
    born: int
    """The fence the item was added with: more than 0 when the id was in use before, and another
    one each time."""
    slot: datetime
    """The due time of the pending or running run: its identity."""
    ready: datetime
    """When the pending token may be taken: slot plus jitter, or now plus backoff."""
    planned: datetime
    """The schedule's own next slot; a `run now` puts another slot before it."""
    attempt: int
    runs: int
    failures: int
    """In a row, since the last ok."""
    once: str
    """JSON of params for the pending run alone."""
    checkpoint: str = ""
    """JSON that a run has saved and no good run has emptied since: the next one goes on there."""
    requests: tuple[QueuedRun, ...] = ()
    """Runs that were asked for and come after the waiting or running one, in this order."""
    version: int = VERSION
    """Of the item's row: a token repeats it, so that a program of an older version leaves the token
    alone."""
    etag: str = ""
    """"" when the row has to be read before it is written."""

    @property
    def is_asked_for(self) -> bool:
        """Whether the pending or running run is one that an operator asked for."""
        return self.slot != self.planned


class Token(Work, frozen=True, kw_only=True):
    """A waiting token: the permission to run an item once, which a worker may claim."""


class Item(Work, frozen=True, kw_only=True):
    """The record that commands show: all that is true of an item."""

    state: State
    fence: int = 0
    born: int = 0
    attempt: int = 1
    runs: int = 0
    failures: int = 0
    once: str = ""
    start: datetime | None = None
    stop: datetime | None = None
    running: bool = False
    owner: str = ""
    outcome: Outcome | None = None
    result: str = ""
    """JSON of what the last handler to finish returned."""
    error: str = ""
    result_fence: int = 0
    schedule: str = ""
    """As last resolved from item, type and handler: "every 8h", "cron 0 3 * * *"."""
    timezone: str = "UTC"
    paused: str = ""
    """JSON of `Mark`: who paused it, when and why."""
    resumed: str = ""
    """JSON of `Mark`: who last resumed it, when and why."""
    first: datetime | None = None
    """The first time that an operator named when it was added."""
    applied: tuple[Applied, ...] = ()
    """The latest requests of operators, newest first, so that a repeated request counts once."""

    @property
    def waits(self) -> bool:
        """Whether it has a waiting token: `next:<ready>:<id>`."""
        return self.state is State.ACTIVE and not self.running

    @property
    def is_paused(self) -> bool:
        """Whether it was paused and not resumed. It may be done since."""
        return self.state is State.PAUSED or (self.state is State.DONE and bool(self.paused))


class Lock(Struct, frozen=True, kw_only=True):
    """A claimed token. Only its holder and an overrider write it."""

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


class Run(Struct, frozen=True, kw_only=True):
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
    """JSON of `Mark` when an operator ended it."""
    version: int = VERSION
    etag: str = ""

    @property
    def duration(self) -> float:
        """Seconds."""
        return (self.stop - self.start).total_seconds()


class Member(Struct, frozen=True, kw_only=True):
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
    rank: int = 0
    """Of a candidate in an election."""
    etag: str = ""


class Identifier(Struct, frozen=True, order=True):
    """Identifies a candidate of an election. Identifiers are ordered by rank, then by name."""

    rank: int
    owner: str


class MessageKind(StrEnum):
    """The messages of the published elections."""

    ELECTION = "election"
    """Bully: answer, if you are there. Ring: a list to which each candidate adds itself."""
    OK = "ok"
    """Bully: a higher candidate is there."""
    COORDINATOR = "coordinator"
    """Who was elected: in a ring the only one in `ids`, else the sender."""


class Message(Struct, frozen=True, kw_only=True):
    """A message from one candidate of an election to another."""

    id: str
    """The election."""
    to: str
    sender: str
    rank: int
    """The sender's."""
    kind: MessageKind
    number: int
    """Of the sender's elections, the one that this is about; an OK repeats what it answers."""
    ids: tuple[Identifier, ...] = ()
    version: int = VERSION
    etag: str = ""


class Ended(Struct, frozen=True, kw_only=True):
    """What a runner returns when a handler has ended, however it ended."""

    outcome: Outcome
    result: Any = None
    """What the handler returned, when ok: anything JSON can hold."""
    error: str = ""
    """Type, message and traceback when it failed; the reason when it was stopped or died."""
    output: str = ""


class Claim(Struct, frozen=True, kw_only=True):
    """A lock and its item as the holder of the lock last read or wrote them: all that is needed to
    run the item and to release it.
    """

    item: Item
    """As it was last read; after a claim as much of it as the token repeats. Its etag is "" when it
    has to be read before the release."""
    lock: Lock
    sent: float
    """Monotonic seconds at the first send of the claim or of its last acknowledged renewal."""

    @property
    def id(self) -> str:
        return self.item.id

    @property
    def type(self) -> str:
        return self.item.type

    @property
    def spec(self) -> str:
        return self.item.spec

    @property
    def once(self) -> str:
        return self.item.once

    @property
    def fence(self) -> int:
        return self.item.fence

    @property
    def slot(self) -> datetime:
        return self.item.slot

    @property
    def attempt(self) -> int:
        return self.item.attempt

    @property
    def owner(self) -> str:
        return self.lock.owner

    @property
    def nonce(self) -> str:
        return self.lock.nonce

    @property
    def start(self) -> datetime:
        return self.lock.since

    @property
    def stale_after(self) -> float:
        return self.lock.stale_after

    def answered(self, *, lock_etag: str, item_etag: str) -> "Claim":
        """After its batch was answered: the rows have these etags."""
        item = replace(self.item, etag=item_etag)
        return replace(self, item=item, lock=replace(self.lock, etag=lock_etag))

    def renewed(self, lock_etag: str, *, sent: float) -> "Claim":
        """After a renewal: its lock has this etag."""
        return replace(self, lock=replace(self.lock, etag=lock_etag), sent=sent)

    def found(self, lock_etag: str) -> "Claim":
        """After no answer: its lock was found with this etag; its item has to be read."""
        return self.answered(lock_etag=lock_etag, item_etag="")


def whole_milliseconds(moment: datetime) -> datetime:
    """`moment` cut down to the millisecond, the grain of every time in a row."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
