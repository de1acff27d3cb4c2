"""How partitions are shared, by each balance, in simulated worlds: seconds, moves, gaps, requests.

Workers start, one more joins, as many join again, as many are killed, half of the rest leave, and
then nothing happens for twenty rounds. No request comes to harm, and none to the bus over which
`grab` races. The figures are those of virtual time, and the same on each machine; from the least to
the most of several worlds. All of it takes a minute or two.

    python -m tests.proof.simulator.balances              the tables
    python -m tests.proof.simulator.balances --record     writes them into docs/sharing.md
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.measure import row, with_block
from blackboard.model import Lock
from blackboard.rules.shares import Balance
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.scenario import FaultPlan, Scenario
from blackboard.simulator.workers import WorkerProcess
from blackboard.simulator.world import World
from blackboard.table import Delete, Insert, Replace
from tests.proof.origin import ROOT
from tests.support.simulated_groups import GroupPart, SimulatedGroup

PAGE = ROOT / "docs" / "sharing.md"
NAME = "clicks"
BALANCES = (Balance.SHARES, Balance.STEAL, Balance.GRAB)
WORLDS = 3
LONGEST = 1_800.0
"""Seconds until a group is given up."""
QUIET_ROUNDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The effects of a change, or of quiet rounds."""

    change: str
    seconds: float = 0.0
    """Until all partitions are held, and no two workers differ by two."""
    moves: int
    gap: float = 0.0
    """Seconds from the release of a partition, or from the last renewal of its dead worker, to the
    next claim, at the most.
    """
    half: float = 0.0
    """Seconds from the last renewal of dead workers until half of their partitions are claimed."""
    requests: float = 0.0
    """Without a change: those of a worker to the store in a minute, its saves left out."""
    bus_requests: float = 0.0
    """The same, to the bus."""


@dataclass(slots=True)
class Watch:
    """Watches the changes of a group."""

    freed: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0
    ages: list[float] = field(default_factory=list)
    """Seconds from the last renewal of each lock to its override."""

    def begin(self) -> None:
        self.gap, self.ages = 0.0, []

    def __call__(self, change: AppliedChange) -> None:
        for touch in change.of(Lock):
            if isinstance(touch.op, Delete):
                self.freed[change.id] = change.batch.moment
            elif isinstance(touch.op, Insert) and change.id in self.freed:
                self.gap = max(self.gap, change.batch.moment - self.freed.pop(change.id))
            elif isinstance(touch.op, Replace):
                self.gap = max(self.gap, touch.age)
                self.ages.append(touch.age)


class Shared(World):
    """A world with one group, whose workers start and end at a call."""

    def __init__(self, partitions: int, workers: int, balance: Balance, seed: int) -> None:
        group = SimulatedGroup(name=NAME, partitions=partitions, balance=balance)
        scenario = Scenario(seed=seed, items=(), workers=workers, shared=(group,), failing=0.0)
        super().__init__(scenario, FaultPlan(injections=(), fated=()))
        self.group = group
        part = self.parts[NAME]
        assert isinstance(part, GroupPart)
        self.part = part
        self.seen = Watch()
        self.watch(self.seen)
        self.workers.on_ended = lambda *_: None
        self._add_items()

    def join(self, seats: Sequence[int]) -> None:
        """Workers start, one after the other within two seconds."""
        for number, seat in enumerate(seats):
            self.timeline.at(
                self.timeline.now + 2.0 * number / len(seats), self.injector.start, seat
            )

    def leave(self, members: Sequence[WorkerProcess]) -> None:
        for member in members:
            member.process.loop.call_soon(self.workers.ask_to_stop, member)

    def kill(self, members: Sequence[WorkerProcess]) -> None:
        for member in members:
            self.workers.kill(member)

    def after(self, change: str, work: Callable[[], None]) -> Outcome:
        """The effects of a change, until all partitions are shared again."""
        began, moves = self.timeline.now, self.part.moved
        self.seen.begin()
        work()
        self._run_on(2.0)
        while not self._is_shared and self.timeline.now < began + LONGEST:
            self._run_on(1.0)
        seconds = self.timeline.now - began
        self._run_on(5 * self.group.round)
        return Outcome(
            change=change,
            seconds=seconds,
            moves=self.part.moved - moves,
            gap=self.seen.gap,
            half=median(self.seen.ages or [0.0]),
        )

    def rest(self, rounds: int) -> Outcome:
        """The moves and requests of rounds without a change."""
        moves, requests, to_bus = self.part.moved, self._requests, self.part.bus.requests
        seconds = rounds * self.group.round
        self._run_on(seconds)
        worker_minutes = len(self.workers.members) * seconds / 60
        return Outcome(
            change=f"{rounds} quiet rounds",
            moves=self.part.moved - moves,
            requests=(self._requests - requests) / worker_minutes,
            bus_requests=(self.part.bus.requests - to_bus) / worker_minutes,
        )

    def _run_on(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now + seconds)
        self.check()

    @property
    def _requests(self) -> int:
        """Requests of the workers that live, about the group, saves left out."""
        return sum(member.process.beside for member in self.workers.members) - self.figures.saves

    @property
    def _is_shared(self) -> bool:
        counts = {one.process.name: 0 for one in self.workers.members if one.asked_to_stop is None}
        for item_id in self.group.ids:
            lock = self.shadows.of[item_id].lock if item_id in self.shadows.of else None
            if lock is None or lock.owner not in counts:
                return False
            counts[lock.owner] += 1
        return max(counts.values()) - min(counts.values()) <= 1


def story(partitions: int, workers: int, balance: Balance, seed: int) -> Iterator[Outcome]:
    """Workers start, join, are killed and leave."""
    world = Shared(partitions, workers, balance, seed)
    more = range(workers + 1, 2 * workers + 1)
    yield world.after(f"{workers} start", lambda: world.join(range(workers)))
    yield world.after("one joins", lambda: world.join([workers]))
    yield world.after(f"{workers} more join", lambda: world.join(more))
    yield world.after(
        f"{workers} are killed", lambda: world.kill([_at(world, seat) for seat in more])
    )
    yield world.after(
        f"{workers // 2} leave",
        lambda: world.leave([_at(world, seat) for seat in range(workers // 2)]),
    )
    yield world.rest(QUIET_ROUNDS)
    world.kill(world.workers.members)


def _at(world: World, seat: int) -> WorkerProcess:
    member = world.workers.seats[seat]
    assert member is not None
    return member


# ---- the tables


def tables(sizes: Sequence[tuple[int, int]]) -> str:
    """Markdown: the effects of each change; then what a balance costs."""
    changes = [
        "| partitions x workers | | balance | seconds until shared | moves | longest gap, s |",
        "|---|---|---|---|---|---|",
    ]
    costs = [
        "| partitions x workers | balance | half is back, s | requests to the store | to the bus |",
        "|---|---|---|---|---|",
    ]
    for partitions, workers in sizes:
        size = f"{partitions:,} x {workers}"
        played = {
            balance: [[*story(partitions, workers, balance, seed)] for seed in range(WORLDS)]
            for balance in BALANCES
        }
        for number, change in enumerate(next(iter(played.values()))[0]):
            for balance, stories in played.items():
                some = [one[number] for one in stories]
                cells = [
                    size,
                    change.change,
                    balance.value,
                    _range([one.seconds for one in some], "{:.0f}"),
                    _range([one.moves for one in some], "{:.0f}"),
                    _range([one.gap for one in some], "{:.1f}"),
                ]
                changes.append(row(*cells))
        for balance, stories in played.items():
            some = [one for outcomes in stories for one in outcomes]
            cells = [
                size,
                balance.value,
                _range([one.half for one in some if one.half], "{:.0f}"),
                _range([one.requests for one in some if one.requests], "{:.0f}"),
                _range([one.bus_requests for one in some if one.requests], "{:.0f}"),
            ]
            costs.append(row(*cells))
    return "\n".join([*changes, "", *costs])


def _range(values: Sequence[float], form: str) -> str:
    """From the least to the most; "-" where all are 0."""
    least, most = form.format(min(values)), form.format(max(values))
    if not max(values) and form != "{:.0f}":
        return "-"
    return least if least == most else f"{least} to {most}"


def main(*arguments: str) -> None:
    text = tables([(73, 10), (64, 8)])
    if "--record" in arguments:
        PAGE.write_text(with_block(PAGE.read_text("utf-8"), "balances", text), "utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
