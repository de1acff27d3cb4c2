"""One partition in trouble is the trouble of its own items, and of no others."""

from collections import defaultdict
from datetime import timedelta

import pytest

from blackboard.model import Lock
from blackboard.protocol.keys import shard_of
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.network import ShardFault
from blackboard.simulator.scenario import Fault, FaultPlan, Injection, Scenario, synthetic
from blackboard.simulator.world import World
from blackboard.table import Insert, Replace

SHARDS, SICK = 4, 1
LATEST = 75.0
"""Seconds: a cycle, and what a request takes."""


@pytest.mark.parametrize("how", tuple(ShardFault), ids=lambda how: how.name.lower())
def test_the_items_of_other_partitions_start_when_they_are_due(how: ShardFault) -> None:
    """One of four is in trouble for twenty minutes, from the fifth minute on."""
    trouble = Injection(at=300.0, fault=Fault.SHARD, target=SICK, seconds=1200.0, how=how.value)
    scenario = Scenario(
        seed=6,
        items=synthetic(24, every=timedelta(minutes=2), takes=2.0),
        workers=2,
        hours=0.5,
        shards=SHARDS,
        faults=frozenset({Fault.SHARD}),
        failing=0.0,
    )
    world = World(scenario, FaultPlan(injections=(trouble,), fated=()))
    lags: defaultdict[int, list[float]] = defaultdict(list)
    overridden: set[int] = set()

    def seen(change: AppliedChange) -> None:
        shard = shard_of(change.id, SHARDS)
        for touch in change.of(Lock):
            if isinstance(touch.op, Insert) and change.before is not None:
                lags[shard].append((change.batch.now - change.before.ready).total_seconds())
            elif isinstance(touch.op, Replace):
                overridden.add(shard)

    world.watch(seen)
    world.run()
    assert overridden <= {SICK}
    assert lags.keys() == set(range(SHARDS))
    for shard in lags.keys() - {SICK}:
        assert len(lags[shard]) > 40
        assert max(lags[shard]) < LATEST
