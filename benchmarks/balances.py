"""How partitions are shared, by each balance: seconds, moves and gaps, in simulated worlds.

Workers start, one more joins, as many join again, as many are killed, half of the rest leave, and
then nothing happens for twenty rounds. No request comes to harm. The figures are those of virtual
time, and the same on each machine; from the least to the most of several worlds.

    python -m benchmarks.balances              the table
    python -m benchmarks.balances --record     writes it into docs/sharing.md
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blackboard.model import Lock
from blackboard.rules.shares import Balance
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.scenario import FaultPlan, Scenario, SimulatedGroup
from blackboard.simulator.workers import WorkerProcess
from blackboard.simulator.world import World
from blackboard.table import Delete, Insert, Replace

PAGE = Path(__file__).parents[1] / "docs" / "sharing.md"
BLOCK = re.compile(r"(<!-- figures: balances -->\n\n).*?(<!-- end -->)", re.DOTALL)
NAME = "clicks"
BALANCES = (Balance.SHARES, Balance.STEAL)
WORLDS = 3
LONGEST = 1_800.0
"""Seconds until a group is given up."""
QUIET_ROUNDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What follows of a change."""

    change: str
    seconds: float
    """Until all partitions are held, and no two workers differ by two."""
    moves: int
    gap: float
    """Seconds from the release of a partition, or from the last renewal of its dead worker, to the
    next claim, at the most.
    """
    requests: int


@dataclass(slots=True)
class Watch:
    """Watches the changes of a group."""

    freed: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0

    def __call__(self, change: AppliedChange) -> None:
        for touch in change.of(Lock):
            if isinstance(touch.op, Delete):
                self.freed[change.id] = change.moment
            elif isinstance(touch.op, Insert) and change.id in self.freed:
                self.gap = max(self.gap, change.moment - self.freed.pop(change.id))
            elif isinstance(touch.op, Replace):
                self.gap = max(self.gap, touch.age)


class Shared(World):
    """A world with one group, whose workers start and end when they are told to."""

    def __init__(self, partitions: int, workers: int, balance: Balance, seed: int) -> None:
        group = SimulatedGroup(name=NAME, partitions=partitions, balance=balance)
        scenario = Scenario(seed=seed, items=(), workers=workers, groups=(group,), failing=0.0)
        super().__init__(scenario, FaultPlan(injections=(), fated=()))
        self.group = group
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
        """What follows of a change, until all is well."""
        began, moves, requests = self.timeline.now, self.figures.moves, self._requests
        self.seen.gap = 0.0
        work()
        self._run_on(2.0)
        while not self._is_shared and self.timeline.now < began + LONGEST:
            self._run_on(1.0)
        seconds = self.timeline.now - began
        self._run_on(5 * self.group.round)
        return Outcome(
            change=change,
            seconds=seconds,
            moves=self.figures.moves - moves,
            gap=self.seen.gap,
            requests=self._requests - requests,
        )

    def rest(self, rounds: int) -> Outcome:
        """What happens while nothing happens."""
        moves, requests = self.figures.moves, self._requests
        self._run_on(rounds * self.group.round)
        return Outcome(
            change=f"{rounds} quiet rounds",
            seconds=0.0,
            moves=self.figures.moves - moves,
            gap=0.0,
            requests=self._requests - requests,
        )

    def _run_on(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now + seconds)
        self.liveness.check()
        for group in self.groups.values():
            group.check()

    @property
    def _requests(self) -> int:
        """Of the workers that live, about the group."""
        return sum(member.process.beside for member in self.workers.members)

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


# ---- the table


def table(sizes: Sequence[tuple[int, int]]) -> str:
    """Markdown."""
    lines = [
        "| partitions x workers | | balance | seconds until shared | moves | longest gap, s |",
        "|---|---|---|---|---|---|",
    ]
    for partitions, workers in sizes:
        told = {
            balance: [[*story(partitions, workers, balance, seed)] for seed in range(WORLDS)]
            for balance in BALANCES
        }
        for number, change in enumerate(next(iter(told.values()))[0]):
            for balance, stories in told.items():
                some = [one[number] for one in stories]
                cells = [
                    f"{partitions:,} x {workers}",
                    change.change,
                    balance.value,
                    _range([one.seconds for one in some], "{:.0f}"),
                    _range([one.moves for one in some], "{:.0f}"),
                    _range([one.gap for one in some], "{:.1f}"),
                ]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _range(values: Sequence[float], form: str) -> str:
    """From the least to the most; "-" where all are 0."""
    least, most = form.format(min(values)), form.format(max(values))
    if not max(values) and form != "{:.0f}":
        return "-"
    return least if least == most else f"{least} to {most}"


def main(*arguments: str) -> None:
    text = table([(73, 10), (64, 8)])
    if "--record" in arguments:
        page, count = BLOCK.subn(
            lambda found: f"{found[1]}{text}\n\n{found[2]}", PAGE.read_text("utf-8")
        )
        assert count == 1, f"{PAGE} has {count} places for the table"
        PAGE.write_text(page, "utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
