"""Progress and load, checked at each write, at each walk, every cycle, and after the faults.

NOT NOTIFIED, ORPHAN: a holder notifies its handler in time when its lock is lost, and finds every
lock of its own. STUCK: once faults stop, workers end their walks, and all that is due starts where
a slot is free.

PRIORITY: stale locks go first. A worker that reads a stale lock takes it over, or has no free slot
for it and reads the shard again before it claims another item of that type there. So no claim may
follow a walk that read a stale lock, met no fault, and did not try to take it; unless a permit that
it would need has become free since.

REFUSED, REQUESTS: no sender repeats a batch that is always refused, and a worker sends as many
requests as it has work.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from blackboard.events import Walked
from blackboard.model import Item, Lock
from blackboard.protocol.keys import BOARD_KEY, LOCK, lock_key
from blackboard.simulator.changes import AppliedChange, Shadow, Shadows, Touch, is_newer
from blackboard.simulator.handlers import HandlerRuns
from blackboard.simulator.invariants import Violation
from blackboard.simulator.invariants.runs import LimitInvariants
from blackboard.simulator.processes import Process, Timeline
from blackboard.simulator.scenario import Scenario
from blackboard.simulator.store import AppliedBatch
from blackboard.simulator.workers import WorkerProcess, Workers
from blackboard.table import Conflict, Delete, Insert, Op, Replace, TableError
from blackboard.worker.stale_locks import EMPTY_SPEC
from blackboard.worker.walk import REREADINGS

SPARE = 10.0
"""Seconds beyond a bound, for requests to the store."""
NOTICE = 2.0
"""Seconds, beyond the lease of a lost lock, within which its holder notifies the handler."""
WALKS = 2
"""The complete walks in which a worker finds each lock of its own."""
CHECKS = 3
"""Consecutive checks that find the same thing stuck: a slot may be free only for a moment."""


@dataclass(frozen=True, slots=True)
class TakenLock:
    lock: Lock
    process: Process
    moment: float


@dataclass(slots=True)
class Liveness:
    """Checks every change of a lock, every cycle, and after the faults."""

    scenario: Scenario
    timeline: Timeline
    shadows: Shadows
    workers: Workers
    handler_runs: HandlerRuns
    has_permit: Callable[[Item], bool]
    """Whether a permit is left for an item."""
    _unknown: dict[str, int] = field(default_factory=dict)
    """By nonce of a lock that its owner lacks: the owner's complete walks when that was noticed."""
    _taken: list[TakenLock] = field(default_factory=list)
    _stuck: dict[str, int] = field(default_factory=dict)
    """By what is stuck: the consecutive checks that found it."""

    @property
    def _cycle(self) -> float:
        return self.scenario.cycle.total_seconds()

    @property
    def _types(self) -> Collection[str]:
        """The types of items: shared work has invariants of its own."""
        return self.scenario.types.handlers.keys()

    # ---- at each write

    def changed(self, change: AppliedChange) -> None:
        for touch in change.of(Lock):
            if isinstance(touch.op, Delete | Replace):
                self._must_be_notified(change, touch)

    def _must_be_notified(self, change: AppliedChange, touch: Touch) -> None:
        """Checks that the handler is notified before another worker takes the lock, unless its
        process was stopped meanwhile.
        """
        old, sender = touch.old, change.sender
        assert isinstance(old, Lock)
        holder = self.workers.by_name.get(old.owner)
        if holder is None or old.owner == sender.name:
            return
        process = holder.process
        moment = change.batch.moment
        self._taken.append(TakenLock(old, process, moment))
        if sender.is_person or not process.runs or process.went_on > moment - touch.age:
            return
        handler_run = self.handler_runs.of(process, old.fence, change.id)
        if handler_run is not None and handler_run.notified is None:
            problem = f"{old.owner} was not notified before {sender.name} took fence {old.fence}"
            raise change.violation("NOT NOTIFIED", problem)

    # ---- every cycle

    def check(self) -> None:
        """Checks what no write shows. To be called every cycle."""
        self._check_notified()
        for problem in self.timeline.failures:
            raise Violation("CRASHED", repr(problem))
        unheld = set()
        for item_id, shadow in self.shadows.of.items():
            lock = shadow.lock
            if lock is None or lock.type not in self._types:
                continue
            holder = self.workers.by_name.get(lock.owner)
            if holder is None or self._has(holder, lock):
                continue
            unheld.add(lock.nonce)
            walks = self._unknown.setdefault(lock.nonce, holder.process.walks)
            if holder.process.runs and holder.process.walks >= walks + WALKS:
                orphan = f"{lock.owner} has fence {lock.fence} and does not hold it"
                raise Violation("ORPHAN", orphan, item=item_id)
        for nonce in self._unknown.keys() - unheld:
            del self._unknown[nonce]

    def _check_notified(self) -> None:
        """After any loss of a lock no renewal succeeds, so the holder notifies its handler before
        the lease would have ended.
        """
        waiting = []
        for claim in self._taken:
            process, lock = claim.process, claim.lock
            handler_run = self.handler_runs.of(process, lock.fence, lock.id)
            if process.loop.dead or handler_run is None or handler_run.notified is not None:
                continue
            since = max(claim.moment, handler_run.began, process.went_on)
            if not process.loop.stopped and self.timeline.now > since + lock.stale_after + NOTICE:
                problem = (
                    f"{lock.owner} goes on with fence {lock.fence}, taken at {claim.moment:.3f} s"
                )
                raise Violation("NOT NOTIFIED", problem, item=lock.id)
            waiting.append(claim)
        self._taken = waiting

    def _has(self, holder: WorkerProcess, lock: Lock) -> bool:
        worker, nonce = holder.worker, lock.nonce
        if worker.stopping or nonce in worker.board.in_flight:
            return True
        return nonce in worker.holdings.nonces or nonce in worker.holdings.given_up

    # ---- after the faults

    def longest(self) -> float:
        """Seconds until the locks of all dead workers are stale, and two cycles more."""
        now = self.timeline.now
        left = [
            shadow.lock.stale_after - (now - shadow.touched)
            for shadow in self.shadows.of.values()
            if shadow.lock is not None and shadow.lock.owner not in self.workers.by_name
        ]
        return max([0.0, *left]) + 2 * self._cycle

    @property
    def bound(self) -> float:
        """Seconds within which a ready token or a stale lock is taken, where a slot is free."""
        return self._cycle + SPARE

    @property
    def enough(self) -> float:
        """Seconds in which `check_left` is called as often as it needs to report stuck work."""
        return CHECKS * self.bound

    def check_left(self) -> None:
        """Checks what is stuck. To be called every `bound`, while there are no faults."""
        left = dict([*self._stuck_workers(), *self._stuck_locks(), *self._stuck_token()])
        self._stuck = {name: self._stuck.get(name, 0) + 1 for name in left}
        for name, checks in self._stuck.items():
            if checks >= CHECKS:
                raise Violation("STUCK", left[name])

    def _stuck_workers(self) -> Iterator[tuple[str, str]]:
        """Workers that do not end, or walk no more, and locks under which no handler runs."""
        for member in self.workers.members:
            process = member.process
            if member.worker.stopping:
                yield process.name, f"{process.name} was asked to stop, and has not ended"
            else:
                problem = f"{process.name} has ended no walk since {process.walked:.1f} s"
                yield f"{process.name} {process.walked}", problem
            for held in member.worker.holdings:
                claim = held.claim
                if self.handler_runs.of(process, claim.fence, claim.id) is None:
                    problem = f"{process.name} holds fence {claim.fence}, which nothing runs under"
                    yield claim.nonce, f"{claim.id}: {problem}"

    def _stuck_locks(self) -> Iterator[tuple[str, str]]:
        """All locks that have been stale for longer than the bound, and that a worker could take
        over.
        """
        for item_id, shadow in self.shadows.of.items():
            lock = shadow.lock
            if lock is None:
                continue
            untouched = self.timeline.now - shadow.touched
            if untouched > lock.stale_after + self.bound and self._can_start(shadow, lock.type):
                problem = f"the lock of {lock.owner} was not touched for {untouched:.0f} s"
                yield lock.nonce, f"{item_id}: {problem}"

    def _stuck_token(self) -> Iterator[tuple[str, str]]:
        """Of the tokens that have been ready for longer than the bound, and that a worker could
        claim, the one that was ready first: the others may be behind it.
        """
        now = self.workers.store.now()
        latest = now - timedelta(seconds=self.bound)
        stuck = [
            item
            for shadow in self.shadows.of.values()
            if (item := shadow.item) is not None
            and item.waits
            and item.ready < latest
            and self._can_start(shadow, item.type)
        ]
        if stuck:
            first = min(stuck, key=lambda item: item.ready)
            waited = (now - first.ready).total_seconds()
            yield f"{first.id} {first.ready}", f"{first.id}: it has been ready for {waited:.0f} s"

    def _can_start(self, shadow: Shadow, item_type: str) -> bool:
        """Whether an item could start now, as one of this type: it is no shared work, a permit is
        left for it, and a worker that understands its row has a free slot.
        """
        item = shadow.item
        if item is not None and (item.type not in self._types or not self.has_permit(item)):
            return False
        most = self.workers.resolve(item_type, EMPTY_SPEC).slots
        return any(
            member.worker.holdings.slots.free().take(item_type, most)
            for member in self.workers.members
            if member.process.newer or not is_newer(shadow)
        )


RESOLUTION = 1.0
"""Seconds beyond the lease, after which a lock is stale for every worker."""


@dataclass(slots=True)
class LocksRead:
    reads: dict[str, float] = field(default_factory=dict)
    """By partition: the moment when it was last read."""
    ended: float = 0.0
    """The moment when the last of these walks ended."""
    tried: set[str] = field(default_factory=set)
    """Keys of locks that it tried to write."""
    disturbed: bool = False
    """Whether this walk met a fault: the worker may have read again, and only the tokens."""


class Priority:
    """Checks every claim against the walks of its worker before."""

    def __init__(
        self,
        shadows: Shadows,
        workers: Workers,
        partition_of: Callable[[str], str],
        limits: LimitInvariants,
    ) -> None:
        self._shadows = shadows
        self._workers = workers
        self._limits = limits
        self._partition_of = partition_of
        self._read: dict[str, LocksRead] = {}

    def __call__(self, change: AppliedChange) -> None:
        member, lock = self._workers.by_name.get(change.sender.name), change.claimed
        if member is None or lock is None:
            return
        if lock.type in self._workers.scenario.types.handlers:
            self._claims(member, lock, sent=change.batch.sent)

    def _claims(self, member: WorkerProcess, claimed: Lock, *, sent: float) -> None:
        process = member.process
        read = self._read.get(process.name)
        if read is None or sent < read.ended:
            return
        partition = self._partition_of(claimed.id)
        when = read.reads.get(partition, 0.0)
        for item_id, shadow in self._shadows.of.items():
            lock = shadow.lock
            if lock is None or when <= shadow.touched + lock.stale_after + RESOLUTION:
                continue  # it was not stale when it was read
            if lock.type != claimed.type or lock_key(item_id) in read.tried:
                continue
            if is_newer(shadow) and not process.newer:
                continue
            if self._partition_of(item_id) != partition:
                continue
            if self._is_limited_apart(item_id, claimed.id):
                continue
            if lock.nonce in member.worker.holdings.nonces:
                continue  # its run goes on here, or is being stopped
            if shadow.item is not None and self._limits.freed(shadow.item) > when:
                continue  # there may have been none when it was read
            problem = f"{process.name} claims others, and has read {lock.owner}'s stale lock"
            raise Violation("PRIORITY", problem, item=item_id)

    def _is_limited_apart(self, *ids: str) -> bool:
        """Whether the items have different limits, so that only one of them may have a permit."""
        items = [self._shadows.of[item_id].item for item_id in ids]
        return len({item and self._limits.limit_of(item) for item in items}) > 1

    def walked(self, process: Process, moment: float) -> None:
        """Notes what a worker has read in a walk that has ended."""
        read = self._read.setdefault(process.name, LocksRead())
        if not read.disturbed:
            read.reads |= process.reads
            read.ended = moment
        read.disturbed = False
        process.reads.clear()

    def troubled(self, process: Process, ops: Sequence[Op]) -> None:
        read = self._read.setdefault(process.name, LocksRead())
        read.disturbed = True
        read.reads.clear()
        read.tried |= {op.key for op in ops if op.key.startswith(LOCK)}


A_WALK, A_SHARD, A_RUN, A_SECOND = 20, 2 + 2 * REREADINGS, 12, 3
"""Requests of a worker in a cycle, at most: in any case, for each shard, for each run or lock, and
for each second (a store without answers is asked again).
"""
LONG_READ = 200
"""About the number of rows in the longest read: an item's history before it is pruned."""
MOST_REFUSALS = 3
"""The most refusals of one sender for one etag of a row, while its requests meet no fault."""


class Refusals:
    """REFUSED: no sender repeats a batch that is always refused."""

    def __init__(self) -> None:
        self._times: dict[str, Counter[tuple[str, str, str]]] = {}
        """Refusals by key; then by process, sender and expected etag."""

    def refused(
        self, process: Process, sender: str, ops: Sequence[Op], problem: TableError
    ) -> None:
        if not isinstance(problem, Conflict):
            return
        op = ops[problem.index]
        if op.key == BOARD_KEY:
            return  # each part of a worker makes its board, if it is not there
        times = self._times.setdefault(op.key, Counter())
        expected = (process.name, sender, "" if isinstance(op, Insert) else op.etag)
        times[expected] += 1
        if times[expected] > MOST_REFUSALS:
            refused = f"{times[expected]} times for {op.key}: {problem.kind.value}"
            raise Violation("REFUSED", f"{sender} {refused}")

    def troubled(self, process: Process) -> None:
        """A request of a process met a fault: it may repeat what it sent."""
        for times in self._times.values():
            for sent in [key for key in times if key[0] == process.name]:
                del times[sent]

    def written(self, batch: AppliedBatch) -> None:
        for op in batch.ops:
            self._times.pop(op.key, None)


@dataclass(slots=True)
class ProcessWork:
    """The work of a process since its last check."""

    began: float
    sent: int
    """The requests of the process until `began`."""
    runs: int = 0
    """Starts and ends of runs."""
    most: int = 0
    """The highest number of runs, locks and missed slots in one walk."""


class Walks:
    """REQUESTS: a worker sends as many requests as it has work. Checked every cycle."""

    def __init__(self, scenario: Scenario, timeline: Timeline) -> None:
        self._shards, self._cycle = scenario.shards, scenario.cycle.total_seconds()
        self._page_rows = scenario.page_rows
        self._timeline = timeline
        self._since: dict[str, ProcessWork] = {}

    def ran(self, process: Process) -> None:
        """Counts a run of the process that was claimed, or has ended."""
        if process.name in self._since:
            self._since[process.name].runs += 1

    def walked(self, process: Process, walk: Walked, held: int, sent: int) -> None:
        """Called at the end of a walk, with the number of runs held and of requests sent so far."""
        now = self._timeline.now
        since = self._since.setdefault(process.name, ProcessWork(now, sent))
        since.most = max(since.most, held + walk.locks + walk.missed)
        asked, seconds = sent - since.sent, now - since.began
        if seconds < self._cycle:
            return
        self._since[process.name] = ProcessWork(now, sent)
        runs = since.runs + since.most
        pages = 1 + LONG_READ // self._page_rows
        most = (
            A_WALK * pages
            + A_SHARD * pages * self._shards
            + A_RUN * pages * runs
            + A_SECOND * seconds
        )
        if asked > most:
            problem = f"{process.name} asked {asked} times in {seconds:.1f} s, about {runs} runs"
            raise Violation("REQUESTS", problem)
