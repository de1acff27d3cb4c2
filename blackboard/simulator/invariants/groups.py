"""Invariants of groups: SHARES, MOVED, UNOWNED. Checked at each claim of a partition, every cycle.

SHARES: some rounds after the last change, no worker holds two partitions more than another, unless
all that it holds are paused.

MOVED: since then, no more partitions have moved than the changes ask for: a worker that is gone,
stands still or leaves gives up what it held, and one that joins gets its share, as soon as it
counts. Without a change nothing moves. A partition that a live worker lost, and has room for, goes
back to that worker: for a round no other worker takes it. One that is paused is not released for
another worker: none could take it.

STANDSTILL: after a worker stood still, or the store was away, the worker overrides nothing for two
rounds.

UNOWNED: no partition is without a worker for longer than a lease and two rounds after its worker is
gone, or than `HANDOVER` after it was released. When all is well, a pump runs under each lock.

A change is anything that happens to a worker. Trouble is a fault in a request about the group, a
store clock that was set, a request of a person, or a pump that failed or was taken over so often
that it has to wait. During trouble only the rows are checked, and after it all times begin anew.

Where partitions are raced for (the balance `grab`), the durations of the races are the bounds. A
race may move more than has to move, and a worker may take what another has just lost: so moves are
not limited until all is well. Once all is well nothing moves, whatever happens to the bus.

`invariants/runs.py` checks for all groups that a fence has one pump, under a trusted lock, and what
was saved.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from blackboard.model import Lock, Outcome
from blackboard.protocol.keys import group_board, workers_partition
from blackboard.rules.shares import CATCHING_UP, INITIAL_DELAY, LATE, Balance, shares
from blackboard.simulator.changes import AppliedChange, Shadow, Shadows, Touch
from blackboard.simulator.handlers import HandlerRuns
from blackboard.simulator.invariants import Violation
from blackboard.simulator.invariants.runs import RATES
from blackboard.simulator.processes import Timeline
from blackboard.simulator.scenario import SimulatedGroup
from blackboard.simulator.store import Written
from blackboard.simulator.workers import BOARD, Happening, WorkerProcess, Workers
from blackboard.table import Delete, Insert, Replace
from blackboard.worker.partitions import SHARED

COUNTS_AFTER = 0.9
"""Rounds until a new worker may count: at its second announcement, by a clock that is fast."""
BEGINS = 2.0
"""Seconds, beyond a round, after the first lock of a group in which each new worker counts."""
ROUNDS = 3
"""Rounds, beyond the drain of a pump, from the last change until all hold their shares."""
EVEN = 3
"""The same for the balance `grab`, in normal lease times of its races."""
TAKEOVER_ROUNDS = 2
"""Rounds, beyond a lease, until the partitions of a dead worker are taken."""
HANDOVER = 3.0
"""Seconds from the release of a partition to its next claim."""
SLOW = 2.0
"""Extra seconds that requests to the store may take."""
SPARE = 5.0
"""Seconds beyond a bound."""
HELD_UP = 60.0
"""Seconds after trouble in which workers may send no requests (a batch is in flight, or a circuit
breaker is open), and in which a partition whose pump failed may not be due.
"""


@dataclass(slots=True)
class GroupInvariants:
    """Checks one group."""

    group: SimulatedGroup
    timeline: Timeline
    shadows: Shadows
    workers: Workers
    handler_runs: HandlerRuns
    on_move: Callable[[], None]
    moves: int = 0
    """Moves of partitions since all was well."""
    _released: int = 0
    """Partitions that were released for other workers since then."""
    _most: float = math.inf
    """The moves that the changes since then require."""
    _well: float = 0.0
    """The moment from which on all must be well."""
    _upset: float = 0.0
    """The moment of the last trouble, or of the last change but a stop or start in good order."""
    _owners: dict[str, str] = field(default_factory=dict)
    """The last owner of each partition."""
    _freed: dict[str, float] = field(default_factory=dict)
    """The moment when each partition that is not held was released."""
    _count: set[str] = field(default_factory=set)
    """The workers that count or have counted for the shares."""
    _paused: dict[str, float] = field(default_factory=dict)
    """The moment when each partition that is paused was paused."""
    _claimed: dict[str, float] = field(default_factory=dict)
    """The moment when each partition that is held was taken."""
    _announced: dict[str, float] = field(default_factory=dict)
    """The moment when each worker last wrote its row."""
    _gone: dict[str, float] = field(default_factory=dict)
    """The moment when each worker was gone, or stood still."""
    _stood_still: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The last standstill of a worker, begin and end, where it was long enough to be late."""
    _away: tuple[float, float] = (math.inf, -math.inf)
    """The last time, begin and end, that the store was away long enough to make all late."""
    _took: dict[str, float] = field(default_factory=dict)
    """The moment when each worker first took a partition: it had read the group by then."""

    # ---- events of workers

    def happened(self, member: WorkerProcess, happening: Happening) -> None:
        """Called before a worker is gone, and after every other event of a worker."""
        name, now = member.process.name, self.timeline.now
        held, round_ = self._counts({name})[name], self.group.round
        match happening:
            case Happening.STARTS if self._begins:
                self._count.add(name)
                self._most += self._share_of_a_new_one(name)
                in_good_order = False
            case Happening.STARTS:
                self.timeline.at(now + COUNTS_AFTER * round_, self._counts_now, name)
                in_good_order = len(self._live()) > 1
            case Happening.GOES_ON:
                since = self._gone.pop(name, now)
                if now > since + LATE * round_ * RATES:
                    self._stood_still[name] = since, now
                self._most += self._share_of_a_new_one(name)
                in_good_order = False
            case Happening.ASKED_TO_STOP:
                self._most += held
                in_good_order = True
            case _ if name in self._gone:
                return  # a worker that stood still has ended
            case _:
                self._gone[name] = now
                self._most += held
                in_good_order = not held and member.asked_to_stop is not None
        if self.group.is_raced_for:
            self._most = math.inf
        if in_good_order:
            self._due(self._rounds_of_a_move)
        else:
            self._upset = now
            self._due(self._until_taken + self._rounds_of_a_move)

    def _counts_now(self, name: str) -> None:
        """Counts a worker that is about to announce itself again, or that holds a partition."""
        if name in self._live() and name not in self._count:
            self._count.add(name)
            self._most += self._share_of_a_new_one(name)

    @property
    def _begins(self) -> bool:
        """Whether no lock has been held for longer than a round: then new workers count at once."""
        since = self.timeline.now - self.group.round - BEGINS
        return not any(moment < since for moment in self._claimed.values())

    def was_away(self, since: float) -> None:
        """Called when the store is back, with the moment since when it was away."""
        self.troubled()
        if self.timeline.now > since + LATE * self.group.round * RATES:
            self._away = since, self.timeline.now

    def troubled(self) -> None:
        self._upset, self._most = self.timeline.now, math.inf
        self._due(self._until_taken + self._rounds_of_a_move + HELD_UP)

    def bus_changed(self) -> None:
        """The bus began to fail, or has recovered: it may take longer until all is well, but what
        was well does not move.
        """
        self._upset = self.timeline.now
        self._due(self._until_taken + self._rounds_of_a_move)

    def _due(self, seconds: float) -> None:
        self._well = max(self._well, self.timeline.now + seconds)

    @property
    def _until_taken(self) -> float:
        """Seconds until the partitions of a dead worker are taken. After a race that comes before
        their locks are stale there is another, and one more if a winner died and left its mark.
        """
        if self.group.is_raced_for:
            times = self.group.times
            return self.group.lease + 2 * times.normal + times.minimum + SPARE
        return self.group.lease + TAKEOVER_ROUNDS * self.group.round + SPARE

    @property
    def _rounds_of_a_move(self) -> float:
        """Seconds until shares are even. `steal` moves one partition a round, `grab` one a race."""
        if self.group.is_raced_for:
            return EVEN * self.group.times.normal + self.group.drain + SPARE
        more = self.group.partitions if self.group.balance is Balance.STEAL else 0
        return (ROUNDS + more) * self.group.round + self.group.drain + SPARE

    @property
    def _until_handed_over(self) -> float:
        """Seconds that a partition may be without a pump while it moves. If no node takes part in
        a race, another race is published within a normal lease time.
        """
        if self.group.is_raced_for:
            return self.group.times.normal + self.group.times.minimum + SPARE
        return HANDOVER + SLOW

    @property
    def longest(self) -> float:
        """Seconds until all is well after any trouble."""
        return self._until_taken + self._rounds_of_a_move + HELD_UP

    def _share_of_a_new_one(self, name: str) -> int:
        """The moves that are required by one more worker."""
        live = self._live() | {name}
        if not self._is_well:
            return math.ceil(self.group.partitions / len(live))
        counts = self._counts(live)
        share = shares(self.group.partitions, counts, self._counts(live, paused=True))
        return sum(max(counts[one] - share[one], 0) for one in live)

    # ---- at each write

    def written(self, written: Written) -> None:
        if written.partition == workers_partition(group_board(BOARD, self.group.name)):
            for row in written.after.values():
                self._announced[str(row.data["owner"])] = written.moment

    def changed(self, change: AppliedChange) -> None:
        if change.id not in self.group.ids:
            return
        if change.shadow.item is not None and change.shadow.item.is_paused:
            self._paused.setdefault(change.id, change.moment)
        else:
            self._paused.pop(change.id, None)
        if change.sender.is_person:
            self.troubled()
        for run in change.recorded if change.frees_lock else ():
            if run.outcome is not Outcome.CANCELLED:
                self.troubled()
            if run.error == SHARED:
                self._released_for_another(change)
        for touch in change.of(Lock):
            match touch.op:
                case Delete():
                    self._freed[change.id] = change.moment
                    self._claimed.pop(change.id, None)
                case Insert() | Replace():
                    self._taken(change, touch)

    def _released_for_another(self, change: AppliedChange) -> None:
        """Checks that no more partitions are released for others than the changes require, and none
        that was paused when its worker last looked at the group.
        """
        decided = change.moment - self.group.round - self.group.drain - SLOW
        if max(self._paused.get(change.id, math.inf), self._upset) < decided:
            raise change.violation("MOVED", "it is paused, and was released for another worker")
        self._released += 1
        if self._released > self._most:
            what = f"{self._released} of {self.group.name} were released, {self._most:g} had to be"
            raise change.violation("MOVED", what)

    def _taken(self, change: AppliedChange, touch: Touch) -> None:
        new, old = touch.new, touch.old
        assert isinstance(new, Lock)
        before = self._owners.get(change.id)
        self._counts_now(new.owner)
        self._owners[change.id], self._claimed[change.id] = new.owner, change.moment
        if isinstance(old, Lock):
            self._due(self._rounds_of_a_move)
            self._may_override(change, old, stale=change.moment - touch.age + old.stale_after)
            self._in_time(change.id, self._gone.get(old.owner, change.moment))
        else:
            self._took.setdefault(new.owner, change.moment)
        if old is None and change.id in self._freed:
            self._in_time(change.id, self._freed.pop(change.id), was_freed=True)
        if before is not None and before != new.owner:
            self.moves += 1
            self.on_move()
            if self.moves > self._most:
                what = f"{self.moves} partitions of {self.group.name}, {self._most:g} had to"
                raise change.violation("MOVED", what)

    def _may_override(self, change: AppliedChange, old: Lock, *, stale: float) -> None:
        """Checks an override. A lock that was stale before a standstill may be chosen before it."""
        mine = change.sender.name
        had_looked = self._took.setdefault(mine, change.moment)
        for began, ended in (self._stood_still.get(mine, self._away), self._away):
            until = ended + CATCHING_UP * self.group.round / RATES
            if not ended <= change.sent < until or had_looked > began or stale < began:
                continue
            what = f"{mine} overrides a lock of {old.owner}, and has just come back"
            raise change.violation("STANDSTILL", what)
        if self.group.is_raced_for:
            return
        live, seen = self._live(), change.sent - 2 * SLOW
        announced = self._announced.get(old.owner, -math.inf)
        was_seen = change.sent - self.group.lease < announced < seen
        is_its_own = change.sent < max(stale, self._upset) + self.group.round  # later, any worker's
        if old.owner in live - {mine} and was_seen and is_its_own and self._upset < seen:
            all_of_it = sum(self._owners[one] == old.owner for one in self._claimed) + 1
            if all_of_it <= self.group.partitions // len(live):
                what = f"{mine} overrides a lock of {old.owner}, which has room for it"
                raise change.violation("MOVED", what)

    def _in_time(self, item_id: str, since: float, *, was_freed: bool = False) -> None:
        """Checks that a partition has not been without a worker for too long."""
        if not self._live():
            return
        bound = self._until_taken
        settled = self._upset + self._until_taken + self._rounds_of_a_move
        if was_freed and since > settled:
            bound = self._until_handed_over
        else:
            since = max(since, self._upset + (HELD_UP if math.isinf(self._most) else INITIAL_DELAY))
        if self.timeline.now > since + bound:
            seconds = self.timeline.now - since
            what = f"no worker had it for {seconds:.1f} s, {bound:g} s at the most"
            raise Violation("UNOWNED", what, item=item_id)

    # ---- every cycle

    def check(self) -> None:
        """Checks what no write shows. To be called every cycle."""
        for item_id, shadow in self._partitions():
            if shadow.lock is None:
                if item_id in self._freed:
                    self._in_time(item_id, self._freed[item_id], was_freed=True)
            elif shadow.lock.owner in self._gone:
                self._in_time(item_id, self._gone[shadow.lock.owner])
        if self._is_well:
            self._check_shares()
            held = sum(self._counts(self._live()).values())
            # If no worker is alive, the next ones take all partitions.
            self.moves, self._released, self._most = 0, 0, sum(1 for _ in self._partitions()) - held

    @property
    def _is_well(self) -> bool:
        return self.timeline.now > self._well and not self._missing

    @property
    def _missing(self) -> bool:
        """Whether a worker stands still, or is about to end."""
        return any(
            member.process.loop.stopped or member.asked_to_stop is not None
            for member in self.workers.members
        )

    def _check_shares(self) -> None:
        live = self._live()
        if not live:
            return
        for item_id, shadow in self._partitions():
            lock = shadow.lock
            if lock is None or lock.owner not in live:
                owner = "no worker" if lock is None else lock.owner
                raise Violation("UNOWNED", f"{owner} has it, and all is well", item=item_id)
            member = self.workers.by_name[lock.owner]
            released = {
                one.claim.nonce
                for one in member.groups[self.group.name].holdings
                if one.ended  # and its release is under way
            }
            runs = self.handler_runs.of(member.process, lock.fence, item_id) is not None
            if not runs and lock.nonce not in released:
                what = f"{lock.owner} has fence {lock.fence}, and runs no pump"
                raise Violation("UNOWNED", what, item=item_id)
        counts, paused = self._counts(live), self._counts(live, paused=True)
        most = max((count for name, count in counts.items() if count > paused[name]), default=0)
        if most - min(counts.values()) > 1:
            what = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            raise Violation("SHARES", f"of {self.group.name}: {what}")

    # ---- the workers and the partitions

    def _partitions(self) -> Iterator[tuple[str, Shadow]]:
        """The partitions that are held or are to be: those that are not paused."""
        for item_id in self.group.ids:
            shadow = self.shadows.of.get(item_id)
            if shadow is not None and (shadow.lock is not None or shadow.tokens):
                yield item_id, shadow

    def _live(self) -> set[str]:
        return {
            member.process.name
            for member in self.workers.members
            if member.process.runs and member.asked_to_stop is None
        }

    def _counts(self, names: set[str], *, paused: bool = False) -> dict[str, int]:
        """How many partitions, or `paused` ones, each of these workers holds."""
        owners = Counter(
            shadow.lock.owner
            for item_id, shadow in self._partitions()
            if shadow.lock and (item_id in self._paused or not paused)
        )
        return {name: owners[name] for name in sorted(names)}
