"""The records of a board: what the rows mean, without saying how they are kept.

Times are aware, UTC, in whole milliseconds. Text that may be absent is "", a time that may be
absent is None. JSON text is carried as text: a record copies it unread.

Records that a run copies again and again are frozen structs of msgspec: `replace` takes a tenth of
the time that it takes with a dataclass. They hold no cycles, so the garbage collector passes over
them (`gc=False`).
"""

import dataclasses
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, overload

import msgspec.json
import msgspec.structs
from msgspec import Meta, Struct

if TYPE_CHECKING:
    # mypy checks the arguments of this one, and of no other; for structs, too.
    from dataclasses import replace as replace  # noqa: PLC0414 - so that it may be imported from here
else:

    def replace(record: Any, /, **changes: Any) -> Any:
        """A copy of a struct, or of a dataclass, with other values in some fields."""
        if isinstance(record, Struct):
            return msgspec.structs.replace(record, **changes)
        return dataclasses.replace(record, **changes)


Decoded = TypeVar("Decoded")

VERSION = 1
"""The version of the protocol this code speaks. Rows of a higher one are left alone."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""A time before all others."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER = EPOCH
"""The `planned` beside a run that was asked for, where the schedule has no next slot."""

# ---- what a row may hold: what is read is what every store writes

YEARS = range(1601, 9100)
"""The years of times. A table of Azure begins with 1601; schedules are computed up to 9000, and a
jitter or a backoff adds ten years at the most."""
LARGEST = 10**12 - 1
"""The largest integer: the keys of the history have no room for a higher fence. Counters stay at
it, and an item that has it is not claimed."""
LONGEST_TEXT = 32_768
"""UTF-16 units of a text, at the most."""
HIGHEST_FLOOR = LARGEST + 1 - 10**9
"""An item is added only with a fence below this: its runs need some above. No run gets so far, so a
key of the history with such a fence is damage, and proves nothing."""

Moment = Annotated[datetime, Meta(tz=True)]
"""A time of the `YEARS`."""
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Neither infinite nor "not a number"."""
Cycle = Annotated[float, Meta(ge=0.001, le=timedelta(days=3653).total_seconds())]
"""Seconds between the walks of a worker: as a setting, ten years at the most."""
Version = Annotated[int, Meta(ge=1, le=LARGEST)]


def one_more(count: int) -> int:
    """A counter, or a fence, raised by one."""
    return min(count + 1, LARGEST)


# ---- the records


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


class QueuedRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run that was asked for and waits behind others."""

    name: str
    slot: Moment
    once: str = ""
    """JSON of params for this run alone."""


class Applied(Struct, frozen=True, gc=False, kw_only=True):
    """The name of an operator's request, and the time of it."""

    name: str
    at: Moment


class Mark(Struct, frozen=True, gc=False, kw_only=True):
    """Who did something to an item, when, and why."""

    by: str
    at: datetime
    reason: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a time that cannot be shown: a row may hold anything."""
        if self.at.tzinfo is None or self.at.year not in YEARS:
            raise ValueError("a time without a zone, or far away")


class Acknowledgement(Mark, frozen=True, kw_only=True):
    """Who acknowledged the failure of a run, when, and why."""

    fence: int
    """The item's fence after that run: the run's own, or higher where another than its holder ended
    it."""


class Work(Struct, frozen=True, gc=False, kw_only=True):
    """The fields that a run needs, and by which the next one is planned. They are the item's; its
    waiting token has a copy.
    """

    id: str
    type: str
    spec: str
    """JSON of `spec.Spec`: the item's own settings."""
    fence: Count
    """Rises with every claim, override, unlock, cancel and removal; never falls."""
    born: Count
    """The fence the item was added with: more than 0 when the id was in use before, and another
    one each time."""
    slot: Moment
    """The due time of the pending or running run: its identity."""
    ready: Moment
    """When the pending token may be taken: slot plus jitter, or now plus backoff."""
    planned: Moment
    """The slot of the schedule: that of the pending or running run, or the one that comes after it,
    if that run is for no slot of the schedule."""
    attempt: Count
    runs: Count
    failures: Count
    """Failures in a row, since the last ok run."""
    once: str
    """JSON of params for the pending run alone."""
    checkpoint: str = ""
    """JSON that a run has saved and no ok run has cleared since: the next run goes on there."""
    requests: tuple[QueuedRun, ...] = ()
    """Runs that were asked for and come after the waiting or running one, in this order."""
    warned: Count = 0
    """Ok runs in a row that had warnings, up to the last ok one."""
    first: Moment | None = None
    """The first time that an operator named when it was added."""
    version: Version = VERSION
    """The version of the item's row: a token repeats it, so that a program of an older version
    leaves the token alone."""
    etag: str = ""
    """"" when the row has to be read before it is written."""

    @property
    def is_unscheduled(self) -> bool:
        """Whether the pending or running run is for no slot of the schedule: an operator asked for
        it, or gave the item another schedule since it began.
        """
        return self.slot != self.planned

    @property
    def is_planned_first(self) -> bool:
        """Whether the planned slot is the first time that an operator named."""
        return self.planned == self.first


class Token(Work, frozen=True, kw_only=True):
    """A waiting token: the permission to run an item once, which a worker may claim."""


class Item(Work, frozen=True, kw_only=True):
    """The record of an item, which commands show."""

    state: State
    fence: Count = 0
    born: Count = 0
    attempt: Count = 1
    runs: Count = 0
    failures: Count = 0
    once: str = ""
    start: Moment | None = None
    stop: Moment | None = None
    running: bool = False
    put_back: bool = False
    """Whether it waits for a run that was cut short, and is due again with the same slot and
    attempt: its worker stopped, had no slot or permit for it, or it was unlocked."""
    owner: str = ""
    outcome: Outcome | None = None
    result: str = ""
    """JSON of what the last handler to finish returned."""
    error: str = ""
    result_fence: Count = 0
    warnings: tuple[str, ...] = ()
    """Those of the last ok run."""
    schedule: str = ""
    """The schedule as last resolved from item, type and handler: "every 8h", "cron 0 3 * * *"."""
    timezone: str = "UTC"
    paused: str = ""
    """JSON of `Mark`: who paused it, when and why."""
    resumed: str = ""
    """JSON of `Mark`: who last resumed it, when and why."""
    acknowledged: str = ""
    """JSON of `Acknowledgement`: who saw that it fails, when and why."""
    declared_by: str = ""
    """The file, or the owner of files, that `apply` took it from last."""
    applied: tuple[Applied, ...] = ()
    """The latest requests of operators, newest first, so that a repeated request counts once."""

    @property
    def has_no_schedule(self) -> bool:
        """Whether it is certain, without the handler of its type, that there is no schedule: a
        worker that had the handler found none. An item that was given another type since then is
        still planned for a slot of its earlier schedule, or waits for a retry.
        """
        has_run = self.start is not None and self.planned <= self.start and self.attempt == 1
        return has_run and not self.schedule

    @property
    def is_acknowledged(self) -> bool:
        """Whether a person has acknowledged that its last run failed."""
        if not self.failures or self.running:
            return False
        mark = decoded_as(Acknowledgement, self.acknowledged)
        return mark is not None and mark.fence == self.fence

    @property
    def is_skipped(self) -> bool:
        """Whether the handler of its last run had nothing to do; `error` says why."""
        return self.outcome is Outcome.OK and bool(self.error)

    @property
    def waits(self) -> bool:
        """Whether it has a waiting token: `next:<ready>:<id>`."""
        return self.state is State.ACTIVE and not self.running

    @property
    def is_paused(self) -> bool:
        """Whether it was paused and not resumed. It may be done since."""
        return self.state is State.PAUSED or (self.state is State.DONE and bool(self.paused))


class Lock(Struct, frozen=True, gc=False, kw_only=True):
    """A claimed token. Only its holder and an overrider write it."""

    id: str
    type: str
    owner: str
    """The worker: host:pid:boot nonce."""
    nonce: str
    """Drawn afresh for each claim: proves whose lock this is."""
    fence: Count
    born: Count
    slot: Moment
    since: Moment
    stale_after: Number
    """Seconds, as resolved when it was claimed."""
    attempt: Count
    progress: str = ""
    """JSON [done, total]."""
    stood_still: bool = False
    """Whether its handler kept the loop of its worker from turning, which ended the worker."""
    sent: Number | None = None
    """When its holder sent the last renewal that wrote it, on the monotonic clock of the holder;
    None: none has."""
    version: Version = VERSION
    etag: str = ""
    age: float = 0.0
    """Seconds since its last renewal, by the store's clock, when it was read."""


class Permit(Struct, frozen=True, gc=False, kw_only=True):
    """The right of one run to go on, where its type has a limit of runs on the whole board. Only
    its holder, and the worker that takes it over, write it.
    """

    type: str
    value: str = ""
    """JSON of the param by which the runs of the type are counted apart; "": all are counted
    together."""
    number: Count
    """The number of the permit among those of its limit, from 0 on."""
    id: str
    """The item."""
    owner: str
    """The worker, as in locks."""
    nonce: str
    """Drawn afresh for each: proves whose permit this is."""
    since: Moment
    stale_after: Number
    """Seconds for which it is good without a renewal."""
    sent: Number | None = None
    """As in locks."""
    version: Version = VERSION
    etag: str = ""
    age: float = 0.0
    """Seconds since its last renewal, by the store's clock, when it was read."""


class LogLine(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Something that a handler logged."""

    at: Moment
    level: str
    """DEBUG, INFO, WARNING, ERROR, CRITICAL."""
    text: str
    logger: str = ""
    """The name of the logger; "" for `ctx.log`."""


class Run(Struct, frozen=True, gc=False, kw_only=True):
    """One run in the history: one row for each fence."""

    id: str
    type: str
    fence: Count
    attempt: Count
    slot: Moment
    start: Moment
    stop: Moment
    lag: Number
    """Seconds from ready to start."""
    outcome: Outcome
    worker: str
    nonce: str
    result: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    output: str = ""
    """The last of what the handler printed."""
    log: tuple[LogLine, ...] = ()
    """The last of what the handler logged."""
    note: str = ""
    """JSON of `Mark` when an operator ended it."""
    version: Version = VERSION
    etag: str = ""

    @property
    def is_skipped(self) -> bool:
        """Whether its handler had nothing to do; `error` says why."""
        return self.outcome is Outcome.OK and bool(self.error)

    @property
    def duration(self) -> float:
        """Seconds; 0 where a clock that was put back has it end before it began."""
        return max((self.stop - self.start).total_seconds(), 0.0)


ANNOUNCE_EVERY = 60.0
"""Seconds between two writes of a worker's row."""
LOST_AFTER = 2 * ANNOUNCE_EVERY + 10.0
"""Seconds since the last write: two more were missed, and a slow store takes time."""
MORE_TYPES = "*"
"""The end of a list of types that does not fit its row: the missing ones sort behind all others."""


class Member(Struct, frozen=True, gc=False, kw_only=True):
    """A worker as it announces itself."""

    owner: str
    started: Moment
    seen: Moment
    slots: Count
    running: Count
    release: str
    """The version of the software."""
    types: str = ""
    """The types it takes, comma-separated; see `MORE_TYPES`."""
    cycle: Cycle = 60.0
    """Seconds between its walks."""
    rank: Count = 0
    """The rank of a candidate in an election."""
    etag: str = ""
    age: float = 0.0
    """Seconds since its last write, by the store's clock, when it was read; infinity when its host
    has booted since."""

    @property
    def lost(self) -> bool:
        """Whether it should have announced itself again by now."""
        return self.age > LOST_AFTER

    def takes(self, item_type: str) -> bool:
        """Whether it takes a type, or may take it: one that may be missing in its list."""
        return item_type in TypesTaken.of([self])


class TypesTaken(Struct, frozen=True):
    """The types that some workers take."""

    named: frozenset[str]
    more_after: str | None
    """Types that sort behind this one may be taken, too; None: no list has missing types."""

    @classmethod
    def of(cls, members: Iterable[Member]) -> "TypesTaken":
        lists = [member.types.split(",") for member in members]
        ends = [max(names) for names in lists if MORE_TYPES in names]
        return cls(frozenset().union(*lists), min(ends, default=None))

    def __contains__(self, item_type: str) -> bool:
        may_be_missing = self.more_after is not None and item_type > self.more_after
        return may_be_missing or item_type in self.named


class Identifier(Struct, frozen=True, gc=False, order=True):
    """Identifies a candidate of an election. Identifiers are ordered by rank, then by name."""

    rank: Count
    owner: str


class MessageKind(StrEnum):
    """The messages of the published elections."""

    ELECTION = "election"
    """Bully: answer, if you are there. Ring: a list to which each candidate adds itself."""
    OK = "ok"
    """Bully: a higher candidate is there."""
    COORDINATOR = "coordinator"
    """Who was elected: in a ring the only one in `ids`, else the sender."""


class Message(Struct, frozen=True, gc=False, kw_only=True):
    """A message from one candidate of an election to another."""

    id: str
    """The election."""
    to: str
    sender: str
    rank: Count
    """The sender's."""
    kind: MessageKind
    number: Count
    """The number of the sender's election that this is about; an OK repeats that of its ELECTION.
    """
    ids: tuple[Identifier, ...] = ()
    version: Version = VERSION
    etag: str = ""


class ItemCounts(Struct, frozen=True, gc=False, kw_only=True):
    """The number of items by state and by status. An item has one state; all else that applies to
    it is counted besides.
    """

    items: Count = 0
    active: Count = 0
    paused: Count = 0
    done: Count = 0
    running: Count = 0
    """Includes those whose lock is stale."""
    stale: Count = 0
    overdue: Count = 0
    failing: Count = 0
    warned: Count = 0


class TypeCounts(ItemCounts, frozen=True, kw_only=True):
    """The same, of the items of one type."""

    type: str


class Statistics(ItemCounts, frozen=True, kw_only=True):
    """The counts of all items of a board."""

    at: Moment
    """When the counting ended, by the store's clock."""
    by: str
    """The worker that counted."""
    term: Count
    """The worker's term as coordinator of the board; 0: it was none."""
    took: Number
    """Seconds that the counting took."""
    earliest: Moment | None = None
    """The earliest ready time of all waiting items; it may have passed."""
    by_type: tuple[TypeCounts, ...] = ()
    """The types that most items have, the most frequent first."""
    version: Version = VERSION
    etag: str = ""


Via = Literal["cli", "python", "web"]
"""Through what an action was done: the command line, a program, the pages."""


class Action(Struct, frozen=True, gc=False, kw_only=True):
    """What a person did by one command, to items or to the board."""

    at: Moment
    by: str
    verb: str
    """"run", "pause", "edit" and so on; "pause board" and "resume board"."""
    ids: tuple[str, ...] = ()
    """The first of the items."""
    count: Count = 0
    """The number of all items; 0: it was done to the board."""
    reason: str = ""
    detail: str = ""
    """The fields that an edit changed, the names of params, the new id; never the values of
    params."""
    via: str
    version: Version = VERSION
    etag: str = ""


class Ended(Struct, frozen=True, gc=False, kw_only=True):
    """What a runner returns when a handler has ended, however it ended."""

    outcome: Outcome
    begun: bool = True
    """Whether the handler may have been called: False where no process for it could be started."""
    result: Any = None
    """What the handler returned, when ok: anything JSON can hold."""
    error: str = ""
    """Type, message and traceback when it failed; the reason when it was stopped or died; of one
    that is ok, why its handler skipped it."""
    retry_after: float | None = None
    """Seconds after which a failed run is to be run again, where its handler says so."""
    final: bool = False
    """Whether a failed run is not to be tried again before the next slot."""
    lease_lost: bool = False
    """Whether the handler raised LeaseLost: it has nothing else to say."""
    terminated: bool = False
    """Whether its child process was ended by a signal that asks a process to end, as SIGTERM."""
    warnings: tuple[str, ...] = ()
    """What the handler gave `ctx.warn`."""
    output: str = ""
    log: tuple[LogLine, ...] = ()


@overload
def decoded_as(kind: type[Decoded], text: str) -> Decoded | None: ...
@overload
def decoded_as(kind: Any, text: str) -> Any: ...
def decoded_as(kind: Any, text: str) -> Any:
    """JSON text of a row as a value of `kind`, such as `Mark`; None where it is empty, or not of
    it.
    """
    try:
        return msgspec.json.decode(text, type=kind) if text else None
    except (ValueError, RecursionError):
        return None


def whole_milliseconds(moment: datetime) -> datetime:
    """`moment` cut down to the millisecond, the grain of every time in a row."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
