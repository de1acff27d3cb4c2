"""Many workers at the same tokens: what their pauses for each other cost and save.

In simulated worlds, so figures are exact and the same on each machine. A hundred workers share a
board of a thousand items that are due in the same second; fifty share one of items that become
ready one by one. The pauses of `worker/backlog.py` run beside a plain retry with jitter, beside
pauses that double, and beside none.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from blackboard.simulator.processes import WORLD_START, Process
from blackboard.simulator.scenario import Scenario, SimulatedItem
from blackboard.simulator.world import World
from blackboard.spec import Spec
from blackboard.table import Conflict, Op, TableError
from blackboard.worker import backlog

POLICIES = {
    "no pause": (0.0, 1.0, 1.0),
    "plain jitter, 0.2 s": (0.2, 1.0, 1.0),
    "doubling, to 1 cycle": (0.2, 2.0, 1.0),
    "times 8, to 16 cycles": (0.2, 8.0, 16.0),
}
"""First pause in seconds, its growth, and the longest one in cycles."""


def on_the_hour() -> Scenario:
    spec = Spec(cron="0 * * * *", stale_after="2m")
    first = WORLD_START + timedelta(minutes=5)
    items = [SimulatedItem(id=f"item-{n}", spec=spec, takes=1.0, first=first) for n in range(1000)]
    return Scenario(seed=3, items=items, workers=100, hours=0.1, shards=16, slots=16, failing=0.0)


def one_by_one() -> Scenario:
    spec = Spec(every="5m", stale_after="2m")
    items = [
        SimulatedItem(
            id=f"item-{n}", spec=spec, takes=1.0, first=WORLD_START + timedelta(seconds=3 * n)
        )
        for n in range(100)
    ]
    return Scenario(seed=4, items=items, workers=50, hours=0.5, shards=4, failing=0.0)


WORLDS = {"1,000 on the hour, 100 workers": on_the_hour, "one by one, 50 workers": one_by_one}


@contextmanager
def policy(first: float, growth: float, longest: float) -> Iterator[None]:
    before = backlog.FIRST_PAUSE, backlog.PAUSE_GROWTH, backlog.LONGEST_PAUSE
    backlog.FIRST_PAUSE, backlog.PAUSE_GROWTH, backlog.LONGEST_PAUSE = first, growth, longest
    try:
        yield
    finally:
        backlog.FIRST_PAUSE, backlog.PAUSE_GROWTH, backlog.LONGEST_PAUSE = before


def measured(scenario: Scenario) -> str:
    """Lost claims and requests for each run, and how late runs start."""
    world = World(scenario)
    lost: Counter[str] = Counter()
    honest = world.network.on_refused

    def refused(process: Process, sender: str, ops: Sequence[Op], problem: TableError) -> None:
        honest(process, sender, ops, problem)
        if isinstance(problem, Conflict):
            lost[ops[0].key[:5]] += 1

    world.network.on_refused = refused
    world.run()
    figures = world.figures
    runs = figures.claims
    requests = figures.requests
    all_of_them = requests.commits + requests.pages
    return (
        f"{runs:>6,} {lost['next:'] / runs:>9.2f} {all_of_them / runs:>9.1f} "
        f"{figures.lag(0.5):>8.2f} {figures.lag(0.99):>8.2f} {figures.lag(1.0):>8.2f}"
    )


def main() -> None:
    head = f"{'':24} {'runs':>6} {'conflicts':>9} {'requests':>9} {'median':>8} {'99 %':>8}"
    for title, make in WORLDS.items():
        sys.stdout.write(f"\n{title}\n{head} {'latest':>8}\n")
        for name, constants in POLICIES.items():
            with policy(*constants):
                sys.stdout.write(f"{name:<24} {measured(make())}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
