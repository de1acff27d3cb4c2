"""Many at once: a thousand items due in the same second, and half the workers cut off at a time."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from blackboard.model import Lock, Outcome, Run
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.network import LinkFault
from blackboard.simulator.processes import WORLD_START, Process
from blackboard.simulator.scenario import Fault, FaultPlan, Injection, Scenario, SimulatedItem
from blackboard.simulator.world import World
from blackboard.spec import Spec
from blackboard.table import Op, TableError


@pytest.mark.case("HERD01", on="memory")
def test_herd01_a_thousand_items_on_the_hour_are_shared_by_a_hundred_workers() -> None:
    """All of them want the same tokens at the same moment. Nearly all items start within seconds,
    and on the way a worker loses a handful of claims to others.
    """
    spec = Spec(cron="0 * * * *", stale_after="2m")
    first = WORLD_START + timedelta(minutes=5)
    items = [
        SimulatedItem(id=f"item-{number}", spec=spec, takes=1.0, first=first)
        for number in range(1000)
    ]
    scenario = Scenario(seed=3, items=items, workers=100, hours=0.12, shards=16, slots=16)
    world = World(scenario)
    lost: Counter[str] = Counter()

    may_refuse = world.network.on_refused

    def refused(process: Process, sender: str, ops: Sequence[Op], problem: TableError) -> None:
        may_refuse(process, sender, ops, problem)
        lost[ops[0].key[:5]] += 1

    world.network.on_refused = refused
    world.run()
    assert world.figures.claims == 1000
    assert world.figures.lag(0.99) <= 5.0
    assert lost["next:"] < 5 * scenario.workers


@pytest.mark.case("HERD01", on="memory")
def test_herd01_each_item_keeps_its_phase_when_all_workers_are_replaced() -> None:
    """Of the minute that they have, items take their own part of it, the same every hour."""
    spec = Spec(cron="0 * * * *", jitter="1m", stale_after="2m")
    first = WORLD_START + timedelta(minutes=5)
    items = [
        SimulatedItem(id=f"item-{number}", spec=spec, takes=1.0, first=first)
        for number in range(50)
    ]
    scenario = Scenario(
        seed=4, items=items, workers=3, hours=2.1, faults=frozenset({Fault.REDEPLOY}), failing=0.0
    )
    replaced = tuple(
        Injection(at=5400.0 + 60 * seat, fault=Fault.REDEPLOY, target=seat) for seat in range(3)
    )
    world = World(scenario, FaultPlan(injections=replaced, fated=()))
    phases: dict[str, list[timedelta]] = {}

    def seen(change: AppliedChange) -> None:
        if change.before is not None and any(one.old is None for one in change.of(Lock)):
            phases.setdefault(change.id, []).append(change.before.ready - change.before.slot)

    world.watch(seen)
    world.run()
    assert all(len(mine) == 3 and len(set(mine[1:])) == 1 for mine in phases.values())
    assert len({mine[1] for mine in phases.values()}) > 40


@pytest.mark.case("NP04", on="memory")
def test_np04_every_target_is_met_although_half_the_workers_are_cut_off_by_turns() -> None:
    """Every 200 s another half can reach nothing for 200 s; then 400 s are quiet. Each minute's
    slot of each item has its run, or is covered by one that started after it.
    """
    halves = [range(0, 8, 2), range(1, 8, 2)]
    cut = tuple(
        Injection(
            at=200.0 * turn,
            fault=Fault.PARTITION,
            target=seat,
            seconds=200.0,
            how=LinkFault.BOTH.value,
        )
        for turn in range(1, 9)
        for seat in halves[turn % 2]
    )
    spec = Spec(cron="* * * * *", stale_after="20s")
    items = [SimulatedItem(id=f"item-{number}", spec=spec, takes=2.0) for number in range(20)]
    scenario = Scenario(
        seed=5,
        items=items,
        workers=8,
        hours=(200 * 9 + 400) / 3600,
        cycle=timedelta(seconds=20),
        faults=frozenset({Fault.PARTITION}),
        failing=0.0,
    )
    world = World(scenario, FaultPlan(injections=cut, fated=()))
    good: dict[str, list[Run]] = {}

    def seen(change: AppliedChange) -> None:
        for touch in change.of(Run):
            if isinstance(touch.new, Run) and touch.new.outcome is Outcome.OK:
                good.setdefault(change.id, []).append(touch.new)

    world.watch(seen)
    world.run()
    assert len(good) == len(items)
    for runs in good.values():
        starts = [run.start for run in runs]
        for minute in range(1, 36):
            target = WORLD_START + timedelta(minutes=minute)
            late = min(start - target for start in starts if start >= target)
            assert late <= timedelta(seconds=60 + 20 + 20 + 10), f"{target}: {late}"
