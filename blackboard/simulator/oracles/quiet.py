"""What only time can tell: nobody holds what it does not know, holders are told in time, and once
troubles stop, all that is due starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache

from blackboard.model import Item, Lock
from blackboard.simulator.changes import Change, Shadows, Touch, is_newer
from blackboard.simulator.crew import Crew, Member
from blackboard.simulator.handlers import Stage
from blackboard.simulator.host import Process
from blackboard.simulator.scenario import Scenario
from blackboard.simulator.timeline import Timeline
from blackboard.simulator.violation import Violation
from blackboard.table import Delete, Replace
from blackboard.worker.walk import OF_ITS_TYPE

SPARE = 10.0
"""Seconds beyond a bound for the way to the store and back."""
BEATS = 2.0
"""Seconds beyond its lease in which a holder that hears nothing tells its handler."""
WALKS = 2
"""Whole walks of a worker, within which it finds what it holds."""
LOOKS = 3
"""One after the other, at all of which something lies there and should not. A slot may be free for
a moment only, and that may be the moment of a look.
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """A lock that somebody took from its living holder, at a moment."""

    lock: Lock
    process: Process
    moment: float


@dataclass(slots=True)
class Quiet:
    """Looks every cycle, and at the end."""

    scenario: Scenario
    timeline: Timeline
    shadows: Shadows
    crew: Crew
    stage: Stage
    _unknown: dict[str, int] = field(default_factory=dict)
    """Walks that a worker had made when a lock of its own was first seen that it did not know."""
    _taken: list[Taken] = field(default_factory=list)
    _lying: dict[str, int] = field(default_factory=dict)
    """What is left lying: at so many looks."""

    @property
    def _cycle(self) -> float:
        return self.scenario.cycle.total_seconds()

    # ---- at each write

    def changed(self, change: Change) -> None:
        for touch in change.of(Lock):
            if isinstance(touch.op, Delete | Replace):
                self._was_told(change, touch)

    def _was_told(self, change: Change, touch: Touch) -> None:
        """A handler hears that its lock is lost before another may take it, if its process was
        running all the time.
        """
        old, sender = touch.old, change.sender
        assert isinstance(old, Lock)
        holder = self.crew.by_name.get(old.owner)
        if holder is None or old.owner == sender.name:
            return
        process = holder.process
        self._taken.append(Taken(old, process, change.moment))
        if sender.is_person or not process.runs or process.went_on > change.moment - touch.age:
            return
        handling = self.stage.of(process, old.fence, change.id)
        if handling is not None and handling.told is None:
            what = f"{old.owner} was not told before {sender.name} took fence {old.fence}"
            raise Violation("NOT TOLD", what, item=change.id)

    # ---- every cycle

    def check(self) -> None:
        self._check_told()
        for problem in self.timeline.failures:
            raise Violation("CRASHED", repr(problem))
        seen = set()
        for item_id, shadow in self.shadows.of.items():
            lock = shadow.lock
            if lock is None:
                continue
            holder = self.crew.by_name.get(lock.owner)
            if holder is None or self._knows(holder, lock):
                continue
            seen.add(lock.nonce)
            walks = self._unknown.setdefault(lock.nonce, holder.process.walks)
            if holder.process.runs and holder.process.walks >= walks + WALKS:
                what = f"{lock.owner} has fence {lock.fence} and does not know"
                raise Violation("ORPHAN", what, item=item_id)
        for nonce in self._unknown.keys() - seen:
            del self._unknown[nonce]

    def _check_told(self) -> None:
        """Whoever takes a lock, and however: no renewal is acknowledged any more, so its holder
        tells the handler before the lease would have ended.
        """
        waiting = []
        for one in self._taken:
            process, lock = one.process, one.lock
            handling = self.stage.of(process, lock.fence, lock.id)
            if process.loop.dead or handling is None or handling.told is not None:
                continue
            if process.loop.stopped:
                waiting.append(one)
                continue
            since = max(one.moment, handling.began, process.went_on)
            if self.timeline.now > since + lock.stale_after + BEATS:
                what = f"{lock.owner} goes on with fence {lock.fence}, taken at {one.moment:.3f} s"
                raise Violation("NOT TOLD", what, item=lock.id)
            waiting.append(one)
        self._taken = waiting

    def _knows(self, holder: Member, lock: Lock) -> bool:
        worker = holder.worker
        known = worker.holdings.nonces | worker.board.in_flight | set(worker.holdings.given_up)
        return lock.nonce in known or worker.stopping

    # ---- while nothing goes wrong

    def longest(self) -> float:
        """Seconds until what the dead held is stale, and a little more, once troubles stop."""
        now = self.timeline.now
        left = [
            shadow.lock.stale_after - (now - shadow.touched)
            for shadow in self.shadows.of.values()
            if shadow.lock is not None and shadow.lock.owner not in self.crew.by_name
        ]
        return max([0.0, *left]) + 2 * self._cycle

    @property
    def bound(self) -> float:
        """Seconds within which what is ready, or stale, is taken when a slot is free."""
        return self._cycle + SPARE

    @property
    def enough(self) -> float:
        """Seconds in which there are as many looks as it takes."""
        return LOOKS * self.bound

    def check_left(self) -> None:
        """A look, to be called every `bound`."""
        left = dict([*self._stuck_workers(), *self._left_on_the_board()])
        self._lying = {name: self._lying.get(name, 0) + 1 for name in left}
        for name, looks in self._lying.items():
            if looks >= LOOKS:
                raise Violation("STUCK", left[name])

    def _stuck_workers(self) -> Iterator[tuple[str, str]]:
        """Those that were asked to stop and are still there, and what is held and not run."""
        for member in self.crew.members:
            process = member.process
            if member.worker.stopping:
                yield process.name, f"{process.name} was asked to stop, and has not ended"
            for held in member.worker.holdings:
                claim = held.claim
                if self.stage.of(process, claim.fence, claim.id) is None:
                    what = f"{process.name} holds fence {claim.fence}, which nothing runs under"
                    yield claim.nonce, f"{claim.id}: {what}"

    def _left_on_the_board(self) -> Iterator[tuple[str, str]]:
        """Of what a slot is free for: all stale locks, and the token that has been ready for
        longest, which is next.
        """
        has_room = cache(self._has_room)
        now = self.crew.store.now()
        latest = now - timedelta(seconds=self.bound)
        first: Item | None = None
        for item_id, shadow in self.shadows.of.items():
            item, lock = shadow.item, shadow.lock
            untouched = self.timeline.now - shadow.touched
            if lock is not None and untouched > lock.stale_after + self.bound:
                if has_room(lock.type, is_newer(shadow)):
                    since = f"was not touched for {untouched:.0f} s"
                    yield lock.nonce, f"{item_id}: the lock of {lock.owner} {since}"
            elif (
                item is not None
                and item.waits
                and item.ready < latest
                and has_room(item.type, is_newer(shadow))
            ):
                first = item if first is None or item.ready < first.ready else first
        if first is not None:
            since = f"{(now - first.ready).total_seconds():.0f} s"
            yield f"{first.id} {first.ready}", f"{first.id}: it has been ready for {since}"

    def _has_room(self, item_type: str, newer: bool) -> bool:  # noqa: FBT001 - a key of a cache
        """Whether some worker, of a newer version if it must be, has a free slot for this type."""
        settings = self.crew.resolve(item_type, OF_ITS_TYPE)
        return any(
            member.worker.holdings.slots.free().take(item_type, settings.slots)
            for member in self.crew.members
            if member.process.newer or not newer
        )
