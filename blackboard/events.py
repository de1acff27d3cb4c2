"""What happens in a worker, as events. Decisions emit events; one subscriber logs, others count.
`emitter.py` hands them out.

An event is of one of these classes. A program that subscribes to a board gets them as they are:

    WorkerStarted  WorkerStopping  WorkerStopped     a worker begins, is asked to stop, has ended
    MetricsServed                                    its metrics can be read over HTTP
    Walked         LocksRenewed                      it has walked the board, renewed locks
    RunStarted     RunEnded        RunLogged         a run was claimed; ended; its handler logs
    LockOverridden LockAdopted     LockLost          a lock was taken over, or lost
    LoopStoodStill                                   a coroutine is about to end its worker
    WorkerStoodStill                                 it is about to be ended, by no handler's fault
    SlotSkipped    SlotPutOff                        a slot was missed, waits for a blackout's end
    ItemLeftAlone  TimesPutRight                     an item cannot be taken; a clock was wrong
    BoardPaused    BoardResumed                      nothing is claimed while the board is paused
    StoreAway      StoreBack       ClockJumped       trouble of the store, and its end
    StoreChanged                                     each time that it begins, and ends
    GroupTrouble                                     the partitions of a pump cannot be named
    BusUnavailable BusBack                           trouble of the bus of a lease grab, and its end
    CoordinatorElected  CoordinatorEnded             a worker's term as coordinator of the board
    BoardCounted   BoardExamined                     what it has counted, and found
    Housekept      HousekeepingTrouble               what it has deleted, and could not do
    NoticeSent     NoticeFailed    EventsMissed      of notices, and of subscribers
    JobsChanged                                      the files of its jobs are not those it runs

    def count(event):
        match event:
            case RunEnded(run=run):
                RUNS.labels(run.type, run.outcome).inc()

An event holds values, and makes its text when a subscriber asks for it.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from blackboard.model import Outcome
from blackboard.phrases import first_line, plural, since, stamp
from blackboard.records import BoardRun

FEW_FILES = 3
"""Files that an event names."""
_GOOD = {Outcome.OK, Outcome.CANCELLED}


class BoardEvent(Struct, frozen=True):
    """Something that happened in a worker."""

    kind: ClassVar[str]
    """The name of the event in logs, a word or two."""
    logged: ClassVar[tuple[str, ...]] = ()
    """The fields that are logged beside the message."""

    worker: str
    """host:pid:boot nonce"""

    @property
    def level(self) -> int:
        """As in `logging`."""
        return logging.INFO

    @property
    def message(self) -> str:
        """In words, as it is logged."""
        return ""

    @property
    def details(self) -> Mapping[str, object]:
        """Values that are logged beside the message, by name."""
        return {name: getattr(self, name) for name in self.logged}

    def line(self) -> dict[str, object]:
        """The values of its line in a log, by name, without the time."""
        fields: dict[str, object] = {
            "level": logging.getLevelName(self.level).lower(),
            "event": self.kind,
            "worker": self.worker,
        }
        if isinstance(self, BoardItemEvent):
            fields |= {"item": self.id, "type": self.type, "fence": self.fence}
        if message := self.message:
            fields["message"] = message
        return {**fields, **self.details}


class BoardItemEvent(BoardEvent, frozen=True):
    """An event that concerns an item, or a run of it."""

    id: str
    type: str
    fence: int


class TroubleEvent(BoardEvent, frozen=True, kw_only=True):
    """A warning; `message` says of what."""

    level = logging.WARNING

    message: str


# ---- of a worker


class WorkerStarted(BoardEvent, frozen=True, kw_only=True):
    """A worker begins to work."""

    kind = "worker started"

    slots: int
    cycle: float
    """Seconds between two walks."""
    types: tuple[str, ...]
    """The types it takes."""
    groups: tuple[str, ...] = ()
    """The types whose partitions it holds."""

    @property
    def message(self) -> str:
        return (
            f"{plural(self.slots, 'slot')}, every {self.cycle:g} s, types {', '.join(self.types)}"
        )


class MetricsServed(BoardEvent, frozen=True, kw_only=True):
    """The metrics of a worker can be read over HTTP."""

    kind = "metrics served"

    url: str

    @property
    def message(self) -> str:
        return self.url


class WorkerStopping(BoardEvent, frozen=True, kw_only=True):
    """A worker was asked to stop."""

    kind = "worker stopping"

    message: str


class WorkerStopped(BoardEvent, frozen=True, kw_only=True):
    """A worker has ended, and put back what it ran."""

    kind = "worker stopped"
    logged = ("runs", "requests")

    runs: int
    """How many runs it has released."""
    requests: Mapping[str, int]
    """Requests to the store, by kind. Workers that share an open board count each request once,
    whichever of them, or of the program, has made it."""


class OverdueRun(Struct, frozen=True, kw_only=True):
    """A run that has waited for longer than is usual, and was not claimed."""

    id: str
    type: str
    fence: int
    due: datetime
    ready: datetime
    attempt: int
    failures: int
    """Failures in a row, since the last ok run."""


class FreedLock(Struct, frozen=True, kw_only=True):
    """A stale lock that was removed without another attempt of its run."""

    id: str
    type: str
    fence: int
    due: datetime
    start: datetime
    attempt: int


class Walked(BoardEvent, frozen=True, kw_only=True):
    """A worker has walked the board, or claimed more of the tokens that it had read."""

    kind = "walked"
    level = logging.DEBUG
    logged = ("claims", "due", "locks", "requests")

    claims: int
    """Items that were claimed, taken over or adopted since the event before."""
    due: int
    """How many tokens and stale locks could have been taken and were not, at the least."""
    locks: int
    """Locks of the types that the worker takes."""
    missed: int
    """Slots that were missed and are not made up for, or wait for the end of a blackout."""
    complete: bool
    """Whether every shard was read."""
    requests: Mapping[str, int]
    """Requests to the store since the walk before, by kind."""
    lost: int = 0
    """Batches of claims at which another worker was faster, since the event before."""
    overdue: tuple[OverdueRun, ...] = ()
    """Found only where notices are sent about them."""
    freed: tuple[FreedLock, ...] = ()


class LocksRenewed(BoardEvent, frozen=True, kw_only=True):
    """A worker has renewed locks of its runs, in one batch."""

    kind = "renewed"
    level = logging.DEBUG

    locks: int
    late: float
    """Seconds by which the latest of them came after its time, a third of its lease or a minute."""

    @property
    def details(self) -> Mapping[str, object]:
        return {"locks": self.locks, "late": round(self.late, 3)}


# ---- of runs and items


class RunStarted(BoardItemEvent, frozen=True, kw_only=True):
    """A run was claimed. Its handler is called, unless its slot or its permit was taken meanwhile,
    or no process can be started: then it is put back. Each run that ends was started.
    """

    kind = "claimed"

    due: datetime
    """The slot that it is for."""
    attempt: int

    @property
    def message(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        return f"due {stamp(self.due)}{again}"


class RunLogged(BoardItemEvent, frozen=True, kw_only=True):
    """A handler logged something."""

    kind = "logged"

    message: str
    level: int


class RunEnded(BoardItemEvent, frozen=True, kw_only=True):
    """A run has ended and was written to the history."""

    kind = "ended"

    run: BoardRun
    release: str
    """"done"; "late": its lock had been taken away; "dropped": its item is gone, or the store
    refused what it says."""
    ready: datetime
    """When its token was ready: it might have started then."""
    failures: int
    """Failures of the item in a row, before this run."""
    warned: int
    """Ok runs of the item in a row that had warnings, before this run."""
    retried: bool
    """Whether it failed and is tried again before the next slot."""

    @property
    def level(self) -> int:
        """A warning but for "ok" and "cancelled"."""
        return logging.INFO if self.run.outcome in _GOOD else logging.WARNING

    @property
    def message(self) -> str:
        outcome, reason = self.run.outcome.value, self.run.error
        if self.run.skipped is not None:
            outcome, reason = "skipped", self.run.skipped
        return f"{outcome}: {first_line(reason)}" if reason else outcome

    @property
    def details(self) -> Mapping[str, object]:
        run = self.run
        return {
            "outcome": run.outcome.value,
            "release": self.release,
            "duration": run.duration,
            "lag": run.lag,
            "attempt": run.attempt,
        }


class LockOverridden(BoardItemEvent, frozen=True, kw_only=True):
    """A stale lock was taken over: its run was abandoned, and is tried again if it may be."""

    kind = "overridden"

    owner: str
    """Whose lock it was."""
    age: float
    """Seconds since it was last renewed; infinity when the host has booted since."""

    @property
    def message(self) -> str:
        return f"{self.owner} was not heard of {since(self.age)}"


class LockAdopted(BoardItemEvent, frozen=True, kw_only=True):
    """A lock of this worker was found whose claim had no answer: its run starts now."""

    kind = "adopted"

    message = "its claim had landed late"


class LockLost(BoardItemEvent, frozen=True, kw_only=True):
    """The lock of a run under way was lost; its handler is about to be stopped."""

    kind = "lost"
    level = logging.WARNING

    message: str


class WorkerStoodStill(BoardEvent, frozen=True, kw_only=True):
    """The loop of a worker does not turn, and no handler is in it: the worker is about to be ended.
    It is emitted by another thread.
    """

    kind = "worker stands still"
    level = logging.CRITICAL

    @property
    def message(self) -> str:
        return (
            "the worker's loop does not turn, and no handler is in it: the machine has no time for "
            "it, or a library blocks it, or `resources` do as they are closed. The worker is ended "
            "unless it turns at once: before the shortest lease of its runs is over (a longer "
            "`stale_after` allows for more), or 30 s"
        )


class LoopStoodStill(BoardItemEvent, frozen=True, kw_only=True):
    """A coroutine has kept the loop of its worker from turning, so that no lock is renewed: the
    worker is about to be ended. It is emitted by another thread.
    """

    kind = "loop stands still"
    level = logging.CRITICAL

    @property
    def message(self) -> str:
        return (
            f"its handler, {self.type}, keeps the worker's loop from turning, and the worker is "
            "ended unless it turns at once: a coroutine must await what takes long, or be a plain "
            "function"
        )


class SlotSkipped(BoardItemEvent, frozen=True, kw_only=True):
    """A slot was missed, and is not made up for."""

    kind = "skipped"

    due: datetime

    @property
    def message(self) -> str:
        return f"missed {stamp(self.due)}"


class SlotPutOff(BoardItemEvent, frozen=True, kw_only=True):
    """A slot waits for the end of a blackout."""

    kind = "put off"

    due: datetime
    until: datetime | None
    """None: a run that was asked for goes before it; or the blackout has no end."""

    @property
    def message(self) -> str:
        until = f" until {stamp(self.until)}" if self.until else ""
        return f"{stamp(self.due)} is put off by its blackout{until}"


class TimesPutRight(BoardItemEvent, frozen=True, kw_only=True):
    """The coordinator has put the times of an item right that only a wrong clock explains."""

    kind = "times put right"
    level = logging.WARNING

    problem: str
    """What was wrong with them."""
    due: datetime
    ready: datetime

    @property
    def message(self) -> str:
        return f"{self.problem}; that is put right"


class BoardPaused(BoardEvent, frozen=True, kw_only=True):
    """The board was paused: this worker claims nothing until it is resumed."""

    kind = "paused"
    level = logging.WARNING

    by: str
    reason: str

    @property
    def message(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        return f"the board was paused by {self.by}{because}; nothing is claimed until it is resumed"


class BoardResumed(BoardEvent, frozen=True, kw_only=True):
    """The board is not paused any more."""

    kind = "resumed"


class ItemLeftAlone(BoardItemEvent, frozen=True, kw_only=True):
    """An item is due, and this worker cannot take it; `message` says why."""

    kind = "left alone"
    level = logging.WARNING

    message: str


# ---- of the store


class StoreEvent(BoardEvent, frozen=True, kw_only=True):
    """The store, or a part of it, does not answer, or answers again."""

    kind = "store trouble"

    message: str


class StoreAway(StoreEvent, frozen=True):
    """The store, or a part of it, does not answer. Emitted again while that lasts, a minute after
    the last one.
    """

    level = logging.WARNING


class StoreBack(StoreEvent, frozen=True):
    """The store answers again."""


class StoreChanged(BoardEvent, frozen=True, kw_only=True):
    """The store, or a part of it, does not answer from now on, or all of it answers again."""

    kind = "store changed"
    level = logging.DEBUG
    logged = ("board", "away")

    board: str
    """The board of the worker, or of a group."""
    away: bool


class GroupTrouble(TroubleEvent, frozen=True):
    """Partitions of a group cannot be named, made or served; the others are served."""

    kind = "group trouble"


class BusUnavailable(TroubleEvent, frozen=True):
    """The bus of a lease grab does not answer: after a lease the group goes by shares."""

    kind = "bus trouble"


class BusBack(BoardEvent, frozen=True, kw_only=True):
    """The bus of a lease grab answers again."""

    kind = "bus back"

    message: str


class ClockJumped(BoardEvent, frozen=True, kw_only=True):
    """The store's clock jumped against the worker's own, or a jump was confirmed, or is over."""

    kind = "clock jumped"

    message: str
    level: int = logging.INFO


# ---- of the coordinator


class CoordinatorElected(BoardEvent, frozen=True, kw_only=True):
    """A worker is the coordinator of the board from now on."""

    kind = "coordinator elected"

    term: int

    @property
    def message(self) -> str:
        return f"term {self.term}"


class CoordinatorEnded(BoardEvent, frozen=True, kw_only=True):
    """A worker's term as coordinator is over."""

    kind = "coordinator ended"

    term: int
    reason: str

    @property
    def message(self) -> str:
        return f"term {self.term}: {self.reason}"


class Housekept(BoardEvent, frozen=True, kw_only=True):
    """The coordinator has deleted rows that are past their retention, of the board and of those
    that belong to it.
    """

    kind = "housekeeping"
    logged = ("runs", "tombstones", "notices", "mail", "actions")

    runs: int
    tombstones: int
    notices: int
    mail: int
    actions: int

    @property
    def level(self) -> int:
        """Not logged where nothing was deleted."""
        return logging.INFO if any(self.details.values()) else logging.DEBUG

    @property
    def message(self) -> str:
        counted = (
            plural(self.runs, "run"),
            plural(self.tombstones, "tombstone"),
            plural(self.notices, "notice"),
            plural(self.mail, "message"),
            plural(self.actions, "action"),
        )
        return f"deleted {', '.join(counted)}"


class BoardCounted(BoardEvent, frozen=True, kw_only=True):
    """The coordinator has counted the items of the board."""

    kind = "board counted"
    level = logging.DEBUG

    items: int
    failing: tuple[str, ...]
    """Ids of those whose last runs failed, up to ten thousand."""

    @property
    def message(self) -> str:
        return f"{plural(self.items, 'item')}, {len(self.failing):,} failing"

    @property
    def details(self) -> Mapping[str, object]:
        return {"items": self.items, "failing": len(self.failing)}


class BoardFinding(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be, as `doctor` reports it."""

    code: str
    subject: str
    """The id of an item, a key, or what else it is about."""
    problem: str
    grave: bool
    """Whether something is broken."""


class BoardExamined(BoardEvent, frozen=True, kw_only=True):
    """The coordinator has examined the rows of the board, as `doctor` does, but for histories."""

    kind = "board examined"

    items: int
    findings: tuple[BoardFinding, ...]

    @property
    def level(self) -> int:
        return logging.WARNING if any(finding.grave for finding in self.findings) else logging.INFO

    @property
    def message(self) -> str:
        broken = [finding for finding in self.findings if finding.grave]
        if not broken:
            return f"clean: {plural(self.items, 'item')}"
        first = f"{broken[0].code} {broken[0].subject} {broken[0].problem}"
        return f"{plural(len(broken), 'finding')} (`blackboard doctor`): {first}"

    @property
    def details(self) -> Mapping[str, object]:
        return {"items": self.items, "findings": [asdict(finding) for finding in self.findings]}


class HousekeepingTrouble(TroubleEvent, frozen=True):
    """The coordinator could not do a duty, or no worker can be elected. Items are still run."""

    kind = "housekeeping trouble"


# ---- of notices and subscribers


class NoticeSent(BoardItemEvent, frozen=True, kw_only=True):
    """A notice was sent through one channel: a webhook, a command."""

    kind = "notified"

    message: str


class NoticeFailed(TroubleEvent, frozen=True):
    """A notice could not be sent."""

    kind = "notify trouble"


class JobsChanged(BoardEvent, frozen=True, kw_only=True):
    """Files of the jobs have changed since the worker read them. Emitted once for each change."""

    kind = "jobs changed"
    level = logging.WARNING

    files: tuple[str, ...]

    @property
    def message(self) -> str:
        shown = ", ".join(self.files[:FEW_FILES])
        more = f" and {len(self.files) - FEW_FILES} more" if len(self.files) > FEW_FILES else ""
        return f"{shown}{more}: it goes on with the code it has read, until it is started again"


class EventsMissed(TroubleEvent, frozen=True, kw_only=True):
    """A subscriber failed, or works again."""

    kind = "events missed"

    subscriber: str
    """Its name."""
    failures: int
    """Events that it has missed since the start of the worker."""
