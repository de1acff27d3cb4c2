"""PRIORITY: what is stale goes first.

A worker that reads a stale lock takes it over; has it no slot free, it reads the shard again before
it claims another item of that type from it. So no claim comes after a walk that read a lock, was
not disturbed, and did nothing about it. A worker that lost a race, or had no answer, may know less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from blackboard.model import Lock
from blackboard.protocol.keys import LOCK, lock_key
from blackboard.simulator.changes import Change, Shadows, is_newer
from blackboard.simulator.crew import Crew
from blackboard.simulator.host import Process
from blackboard.simulator.violation import Violation
from blackboard.table import Insert, Op

RESOLUTION = 1.0
"""Seconds beyond its lease until every worker takes a lock for stale."""


@dataclass(slots=True)
class Looks:
    """What a worker has read, in walks that are over."""

    reads: dict[str, float] = field(default_factory=dict)
    """When a partition was last read, by its name."""
    over: float = 0.0
    """When the last of these walks was over."""
    tried: set[str] = field(default_factory=set)
    """Keys of locks that it did something about."""
    disturbed: bool = False
    """In this walk: it may have read again, for other tokens alone."""


class Priority:
    """Looks at every claim, and hears of walks, and of requests that came to nothing."""

    def __init__(self, shadows: Shadows, crew: Crew, partition_of: Callable[[str], str]) -> None:
        self._shadows = shadows
        self._crew = crew
        self._partition_of = partition_of
        self._looks: dict[str, Looks] = {}

    def __call__(self, change: Change) -> None:
        member = self._crew.by_name.get(change.sender.name)
        for touch in change.of(Lock):
            if member is not None and isinstance(touch.op, Insert) and isinstance(touch.new, Lock):
                self._claims(member.process, touch.new, sent=change.sent)

    def _claims(self, process: Process, claimed: Lock, *, sent: float) -> None:
        looks = self._looks.get(process.name)
        if looks is None or sent < looks.over:
            return
        for item_id, shadow in self._shadows.of.items():
            lock = shadow.lock
            if lock is None or lock.type != claimed.type or lock_key(item_id) in looks.tried:
                continue
            if is_newer(shadow) and not process.newer:
                continue
            stale = shadow.touched + lock.stale_after + RESOLUTION
            partition = self._partition_of(item_id)
            is_there = self._partition_of(claimed.id) == partition
            if is_there and looks.reads.get(partition, 0.0) > stale:
                what = f"{process.name} claims others, and has seen {lock.owner}'s stale lock"
                raise Violation("PRIORITY", what, item=item_id)

    def walked(self, process: Process, moment: float) -> None:
        """A walk is over."""
        looks = self._looks.setdefault(process.name, Looks())
        if not looks.disturbed:
            looks.reads |= process.reads
            looks.over = moment
        looks.disturbed = False
        process.reads.clear()

    def troubled(self, process: Process, ops: Sequence[Op]) -> None:
        """A request of a process lost a race, or had no answer."""
        looks = self._looks.setdefault(process.name, Looks())
        looks.disturbed = True
        looks.reads.clear()
        looks.tried |= {op.key for op in ops if op.key.startswith(LOCK)}
