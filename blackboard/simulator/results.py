"""The results of a world: figures, and a trace with a line for each event.

The fingerprint covers all lines; the last ones are kept to explain a violation. Times are the
world's own, not those of the clocks of its processes.
"""

import hashlib
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from blackboard.model import Item, Lock, Outcome, Run, State, Token
from blackboard.protocol.keys import NEXT, next_until
from blackboard.protocol.rows import record_of
from blackboard.simulator.changes import AppliedChange, Touch, saved_of
from blackboard.simulator.handlers import HandlerRuns
from blackboard.simulator.store import Store
from blackboard.simulator.workers import Workers
from blackboard.table import Delete, Insert, Merge, Replace, Requests

KEPT_LINES = 4_000


@dataclass(slots=True)
class Figures:
    """Counts and durations, up to the end of the faults."""

    claims: int = 0
    overrides: int = 0
    renewals: int = 0
    saves: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Outcomes of the runs in the history, as first written."""
    late: int = 0
    """Runs that ended after they had lost their locks."""
    lags: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds from ready to start, of every claim and override."""
    waits: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds since ready, of every ready token that waits at the end."""
    troubles: Counter[str] = field(default_factory=Counter)
    requests: Requests = field(default_factory=Requests)
    handled: int = 0
    overlaps: int = 0
    overlapped: float = 0.0
    worked: float = 0.0
    """Seconds of all handlers, also of those that have not ended."""
    seconds: float = 0.0

    def count(self, fault: str) -> None:
        self.troubles[fault] += 1

    def changed(self, change: AppliedChange) -> None:
        """Counts a change, until `measure` is called."""
        if self.seconds:
            return
        for touch in change.of(Lock):
            self._lock_written(change, touch)
        self.saves += change.is_save
        for touch in change.of(Run):
            if isinstance(touch.op, Insert) and isinstance(touch.new, Run):
                self.outcomes[touch.new.outcome.value] += 1
        self.late += sum(run.outcome is Outcome.SUPERSEDED for run in change.recorded)

    def _lock_written(self, change: AppliedChange, touch: Touch) -> None:
        match touch.op:
            case Insert():
                self.claims += 1
            case Replace():
                self.overrides += 1
            case Merge():
                self.renewals += 1
        if isinstance(touch.op, Insert | Replace) and change.before is not None:
            self.lags.append((change.batch.now - change.before.ready).total_seconds())

    def measure(self, workers: Workers, handler_runs: HandlerRuns, seconds: float) -> None:
        """Takes the figures that exist only at the end of the faults."""
        self.requests = workers.requests
        self.handled, self.overlaps = handler_runs.count, handler_runs.overlaps
        self.overlapped = handler_runs.overlapped
        self.worked = handler_runs.worked + sum(seconds - run.began for run in handler_runs)
        self.waits = array("d", _waits(workers.store))
        self.seconds = seconds

    def lag(self, share: float) -> float:
        """The quantile of the lags at `share` (0 to 1), in seconds. Waiting tokens count, too."""
        ordered = sorted([*self.lags, *self.waits])
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0

    def later_than(self, seconds: float) -> int:
        """Runs that started, or still wait, more than so many seconds after they were ready."""
        return sum(lag > seconds for lag in (*self.lags, *self.waits))


def _waits(store: Store) -> Iterator[float]:
    now = store.now()
    for partition in store.contents.parts:
        for row in store.page(partition, NEXT, next_until(now), sys.maxsize):
            yield (now - record_of(Token, row).ready).total_seconds()


class Trace:
    """Lines of text, each with a moment and an actor."""

    def __init__(self, sink: Callable[[str], None] | None = None) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self.lines = 0
        self.last: deque[str] = deque(maxlen=KEPT_LINES)

    def add(self, moment: float, who: str, words: str) -> None:
        line = f"{moment:13.3f}  {who:<12}  {words}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self.lines += 1
        self.last.append(line)
        if self._sink is not None:
            self._sink(line)

    @property
    def fingerprint(self) -> str:
        """A hash of all lines. Equal seeds have equal fingerprints."""
        return self._digest.hexdigest()


def described(change: AppliedChange) -> str:
    """What a batch did to one item, in words."""
    if change.sender.is_person:
        return f"{change.sender.verb} {change.id}{_now(change.shadow.item)}"
    for touch in change.of(Lock):
        match touch.op, touch.new or touch.old:
            case Insert(), Lock() as lock:
                return f"claims {change.id}, fence {lock.fence}"
            case Replace(), Lock() as lock:
                return f"overrides {change.id}, untouched for {touch.age:.1f} s, fence {lock.fence}"
            case Merge(), Lock() as lock:
                return f"renews {change.id}, fence {lock.fence}"
            case Delete(), Lock() as lock:
                return f"{_freed(change)} {change.id}, fence {lock.fence}{_now(change.shadow.item)}"
    for touch in change.of(Run):
        if isinstance(touch.new, Run):
            return f"records {change.id}, fence {touch.new.fence}: {touch.new.outcome.value}"
        return f"prunes {change.id}"
    if change.is_save and change.shadow.item is not None:
        number, fence = saved_of(change.shadow.item)
        return f"saves {number} for {change.id}, fence {fence}"
    return f"moves {change.id}{_now(change.shadow.item)}"


def _freed(change: AppliedChange) -> str:
    outcome = next((run.outcome for run in change.recorded), None)
    return "frees" if outcome is Outcome.ABANDONED else f"releases ({outcome})"


def _now(item: Item | None) -> str:
    """The state of the item, or when it is due, as the end of a line; "" while it runs."""
    if item is None or item.state is not State.ACTIVE:
        return f": {item.state.value if item else 'deleted'}"
    return "" if item.running else f": due {item.ready:%d %H:%M:%S}"
