"""Groups of partitions in simulated worlds: each worker serves them, with pumps that do nothing.
With their invariants, checked at each claim of a partition and every cycle: SHARES, MOVED,
STANDSTILL, UNOWNED.

A pump saves until it is asked to end, saves once more, and returns; where runs fail, a few pumps
fail, return unasked, or pay no attention to being asked.

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

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache

from blackboard.assembly import WorkerSetup, group_worker
from blackboard.board_worker import WorkerSettings
from blackboard.emitter import EventEmitter
from blackboard.handlers.handler import Handler, handlers_of, pump
from blackboard.model import Lock, Outcome
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import group_board, workers_partition
from blackboard.rules.grab import SHORTEST_PER_HELD, Times
from blackboard.rules.shares import (
    CATCHING_UP,
    INITIAL_DELAY,
    LATE,
    Balance,
    names_of,
    shares,
)
from blackboard.runners.runner import HandlerCall, Reporter
from blackboard.sharing.partitions import SHARED, GroupWorker
from blackboard.sharing.races import Races
from blackboard.simulator.changes import AppliedChange, Shadow, Touch, saved_in
from blackboard.simulator.handlers import HandlerRun, SimulatedRunner
from blackboard.simulator.invariants import Violation
from blackboard.simulator.invariants.runs import RATES
from blackboard.simulator.network import BusFault
from blackboard.simulator.processes import Process, stream
from blackboard.simulator.scenario import BOARD, SharedWork
from blackboard.simulator.store import AppliedBatch
from blackboard.simulator.workers import Happening, SharedPart, WorkerProcess
from blackboard.simulator.world import World
from blackboard.table import Delete, Insert, Replace
from tests.support.simulated_bus import SharedBus, SimulatedBus

DRAINS = (0.05, 0.5)
"""The shortest and the longest time of a pump to finish what it has begun, in seconds."""
DEAF = 0.03
"""The share of pumps that do not end when they are asked to."""
FAILS_AFTER = 1_800.0
"""The mean seconds until a pump ends unasked, if all runs failed (`failing` = 1)."""
BUS_TAKES = (0.001, 0.010)
"""The shortest and the longest time of a request to a bus or a message from it, in seconds."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGroup(SharedWork):
    """A group of partitions, which all workers of a world serve. Durations are in seconds."""

    partitions: int
    lease: float = 30.0
    drain: float = 10.0
    balance: Balance = Balance.SHARES
    saves: float = 60.0
    """The longest time between two saves of a pump."""

    @property
    def has_bus(self) -> bool:
        """Whether its partitions are raced for."""
        return self.balance is Balance.GRAB

    @property
    def round(self) -> float:
        return self.lease / 3

    @property
    def times(self) -> Times:
        """The durations of the races, where the balance is `grab`: the defaults for a lease of
        30 s, else in proportion to it. `shutdown` is at least 1.5 times the drain.
        """
        usual, scale = Times(), self.lease / 30.0
        return Times(
            normal=usual.normal * scale,
            maximum=usual.maximum * scale,
            shutdown=max(usual.shutdown * scale, 1.5 * self.drain),
            minimum=usual.minimum * scale,
            per_held=max(usual.per_held * scale, SHORTEST_PER_HELD),
        )

    @property
    def ids(self) -> tuple[str, ...]:
        return _ids(self.name, self.partitions)

    @property
    def group(self) -> str:
        return self.name

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {self.name: self.handler}

    @property
    def grace(self) -> float:
        """A pump goes on for a round."""
        return self.round + self.drain

    def in_world(self, world: World) -> "GroupPart":
        return GroupPart(self, world)

    @property
    def handler(self) -> Handler:
        """Its pump."""

        async def serve(partition: object, ctx: object) -> None:
            """Is never called: the runner only waits."""

        declared = pump(
            self.name,
            partitions=self.ids,
            lease=timedelta(seconds=self.lease),
            drain=timedelta(seconds=self.drain),
            balance=self.balance,
        )
        return handlers_of(declared(serve))[0]


@cache
def _ids(name: str, partitions: int) -> tuple[str, ...]:
    return tuple(f"{name}-{number}" for number in names_of(partitions))


@dataclass(slots=True, kw_only=True, eq=False)
class PumpRun(HandlerRun):
    """A pump that was called."""

    part: "GroupPart"
    drains: float
    """Seconds from being asked to end until its last save; infinity: it ignores the request."""
    is_asked: bool = False
    is_draining: bool = False
    """Whether it was asked to end and has finished what it had begun: one last save follows."""
    _rest: asyncio.Future[None] | None = None

    def ask_to_end(self, reason: str) -> None:
        if not self.is_asked and not math.isinf(self.drains):
            self.process.loop.call_later(self.drains, self._wake)
        self.is_asked = True

    def finish(self, outcome: Outcome) -> None:
        if self.is_draining or self.part.pumps_fail:
            HandlerRun.finish(self, outcome)

    async def save(self, pause: float) -> None:
        """Saves the next positions until it has drained, then a last one, and ends."""
        number, longest = saved_in(self.call.checkpoint).number, pause
        pause /= 10
        while True:
            await self._pause(pause)
            pause, number = min(2 * pause, longest), number + 1
            if not await self._saved(number):
                return
            if self.is_draining:
                self.finish(Outcome.OK)
                return

    async def _pause(self, seconds: float) -> None:
        if self.is_draining:
            return
        self._rest = self.process.loop.create_future()
        call = self.process.loop.call_later(seconds, self._wake_for_a_save)
        try:
            await self._rest
        finally:
            call.cancel()

    def _wake(self) -> None:
        self.is_draining = True
        self._wake_for_a_save()

    def _wake_for_a_save(self) -> None:
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)


@dataclass(slots=True)
class GroupPart(SharedPart):
    """One group in a world."""

    group: SimulatedGroup
    world: World
    bus: SharedBus = field(default_factory=SharedBus)
    pumps_fail: bool = True
    """Whether a pump that is to fail does: until all faults stop."""
    moved: int = 0
    """Moves of partitions from one worker to another."""
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

    # ---- its workers and pumps

    def participant(
        self,
        process: Process,
        seat: int,
        *,
        board: BoardTable,
        settings: WorkerSettings,
        events: EventEmitter,
    ) -> GroupWorker:
        runner = SimulatedRunner(self.world.handler_runs, process, {self.group.name})
        return group_worker(
            board.group(self.group.name),
            WorkerSetup(settings=settings, events=events, inline=runner, process=runner),
            parent=BOARD,
            pump=self.group.handler,
            races=self._races(process) if self.group.has_bus else None,
        )

    def _races(self, process: Process) -> Races:
        def open_bus(
            *, on_away: Callable[[str], None], on_back: Callable[[], None]
        ) -> SimulatedBus:
            clock, chance = process.clock, process.chance
            bus = SimulatedBus(self.bus, clock, chance, on_away=on_away, on_back=on_back)
            bus.usual = BUS_TAKES
            return bus

        return Races(open_bus=open_bus, times=self.group.times)

    def begin(self, process: Process, call: HandlerCall, report: Reporter) -> PumpRun:
        runs = self.world.handler_runs
        chance = stream(runs.seed, f"pump {call.item.id} {call.fence}")
        shortest, longest = DRAINS
        drains = shortest + (longest - shortest) * chance.fraction()
        run = PumpRun(
            part=self,
            runs=runs,
            call=call,
            process=process,
            report=report,
            ended=process.loop.create_future(),
            began=self.world.timeline.now,
            size=1.0,
            drains=math.inf if chance.fraction() < DEAF and runs.failing > 0 else drains,
        )
        if runs.failing > 0 and self.pumps_fail:
            after = -math.log(1.0 - chance.fraction()) * FAILS_AFTER / runs.failing
            unasked = chance.fraction() < 0.5
            outcome = Outcome.OK if unasked else Outcome.FAILED
            run.size = chance.fraction()
            run.timer = process.loop.call_later(after, run.finish, outcome)
        run.start_saving(self.group.saves * (0.5 + chance.fraction() / 2))
        return run

    # ---- events of workers

    def happened(self, member: WorkerProcess, happening: Happening) -> None:
        name, now = member.process.name, self.world.timeline.now
        held, round_ = self._counts({name})[name], self.group.round
        match happening:
            case Happening.STARTS if self._begins:
                self._count.add(name)
                self._most += self._share_of_a_new_one(name)
                in_good_order = False
            case Happening.STARTS:
                self.world.timeline.at(now + COUNTS_AFTER * round_, self._counts_now, name)
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
        if self.group.has_bus:
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
        since = self.world.timeline.now - self.group.round - BEGINS
        return not any(moment < since for moment in self._claimed.values())

    def was_away(self, since: float) -> None:
        self.troubled()
        if self.world.timeline.now > since + LATE * self.group.round * RATES:
            self._away = since, self.world.timeline.now

    def troubled(self) -> None:
        self._upset, self._most = self.world.timeline.now, math.inf
        self._due(self._until_taken + self._rounds_of_a_move + HELD_UP)

    def bus_fails(self, how: BusFault) -> None:
        self.bus.fail(how)
        self._bus_changed()

    def bus_recovers(self) -> None:
        self.bus.recover()
        self._bus_changed()

    def faults_stop(self) -> None:
        self.pumps_fail = False
        if self.group.has_bus:
            self.bus_recovers()

    def _bus_changed(self) -> None:
        """The bus began to fail, or has recovered: it may take longer until all is well, but what
        was well does not move.
        """
        self._upset = self.world.timeline.now
        self._due(self._until_taken + self._rounds_of_a_move)

    def _due(self, seconds: float) -> None:
        self._well = max(self._well, self.world.timeline.now + seconds)

    @property
    def _until_taken(self) -> float:
        """Seconds until the partitions of a dead worker are taken. After a race that comes before
        their locks are stale there is another, and one more if a winner died and left its mark.
        """
        if self.group.has_bus:
            times = self.group.times
            return self.group.lease + 2 * times.normal + times.minimum + SPARE
        return self.group.lease + TAKEOVER_ROUNDS * self.group.round + SPARE

    @property
    def _rounds_of_a_move(self) -> float:
        """Seconds until shares are even. `steal` moves one partition a round, `grab` one a race."""
        if self.group.has_bus:
            return EVEN * self.group.times.normal + self.group.drain + SPARE
        more = self.group.partitions if self.group.balance is Balance.STEAL else 0
        return (ROUNDS + more) * self.group.round + self.group.drain + SPARE

    @property
    def _until_handed_over(self) -> float:
        """Seconds that a partition may be without a pump while it moves. If no node takes part in
        a race, another race is published within a normal lease time.
        """
        if self.group.has_bus:
            return self.group.times.normal + self.group.times.minimum + SPARE
        return HANDOVER + SLOW

    @property
    def longest(self) -> float:
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

    def written(self, batch: AppliedBatch) -> None:
        if batch.partition == workers_partition(group_board(BOARD, self.group.name)):
            for row in batch.after.values():
                self._announced[str(row.data["owner"])] = batch.moment

    def changed(self, change: AppliedChange) -> None:
        if change.id not in self.group.ids:
            return
        if change.shadow.item is not None and change.shadow.item.is_paused:
            self._paused.setdefault(change.id, change.batch.moment)
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
                    self._freed[change.id] = change.batch.moment
                    self._claimed.pop(change.id, None)
                case Insert() | Replace():
                    self._taken(change, touch)

    def _released_for_another(self, change: AppliedChange) -> None:
        """Checks that no more partitions are released for others than the changes require, and none
        that was paused when its worker last looked at the group.
        """
        decided = change.batch.moment - self.group.round - self.group.drain - SLOW
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
        self._owners[change.id], self._claimed[change.id] = new.owner, change.batch.moment
        if isinstance(old, Lock):
            self._due(self._rounds_of_a_move)
            self._may_override(change, old, stale=change.batch.moment - touch.age + old.stale_after)
            self._in_time(change.id, self._gone.get(old.owner, change.batch.moment))
        else:
            self._took.setdefault(new.owner, change.batch.moment)
        if old is None and change.id in self._freed:
            self._in_time(change.id, self._freed.pop(change.id), was_freed=True)
        if before is not None and before != new.owner:
            self.moves += 1
            self.moved += 1
            if self.moves > self._most:
                what = f"{self.moves} partitions of {self.group.name}, {self._most:g} had to"
                raise change.violation("MOVED", what)

    def _may_override(self, change: AppliedChange, old: Lock, *, stale: float) -> None:
        """Checks an override. A lock that was stale before a standstill may be chosen before it."""
        mine, sent = change.sender.name, change.batch.sent
        had_looked = self._took.setdefault(mine, change.batch.moment)
        for began, ended in (self._stood_still.get(mine, self._away), self._away):
            until = ended + CATCHING_UP * self.group.round / RATES
            if not ended <= sent < until or had_looked > began or stale < began:
                continue
            what = f"{mine} overrides a lock of {old.owner}, and has just come back"
            raise change.violation("STANDSTILL", what)
        if self.group.has_bus:
            return
        live, seen = self._live(), sent - 2 * SLOW
        announced = self._announced.get(old.owner, -math.inf)
        was_seen = sent - self.group.lease < announced < seen
        is_its_own = sent < max(stale, self._upset) + self.group.round  # later, any worker's
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
        if self.world.timeline.now > since + bound:
            seconds = self.world.timeline.now - since
            what = f"no worker had it for {seconds:.1f} s, {bound:g} s at the most"
            raise Violation("UNOWNED", what, item=item_id)

    # ---- every cycle

    def check(self) -> None:
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
        return self.world.timeline.now > self._well and not self._missing

    @property
    def _missing(self) -> bool:
        """Whether a worker stands still, or is about to end."""
        return any(
            member.process.loop.stopped or member.asked_to_stop is not None
            for member in self.world.workers.members
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
            member = self.world.workers.by_name[lock.owner]
            group_worker = member.shared[self.group.name]
            assert isinstance(group_worker, GroupWorker)
            released = {
                one.claim.nonce
                for one in group_worker.holdings
                if one.ended  # and its release is under way
            }
            runs = self.world.handler_runs.of(member.process, lock.fence, item_id) is not None
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
            shadow = self.world.shadows.of.get(item_id)
            if shadow is not None and (shadow.lock is not None or shadow.tokens):
                yield item_id, shadow

    def _live(self) -> set[str]:
        return {
            member.process.name
            for member in self.world.workers.members
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
