"""Figures of a board as a whole, for Prometheus: what no single worker can count.

They are the names of what an overview has. Its items are those of the statistics that the
coordinator has counted, at most a quarter of an hour ago.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from blackboard import metrics
from blackboard.display.health import Overview
from blackboard.model import ItemCounts, Statistics
from blackboard.protocol.groups import GroupLeases
from blackboard.rules.groups import PartitionState

STATES = ("active", "paused", "done")
"""Each item has one of them."""
CONDITIONS = {
    "running": "Items that a worker runs.",
    "stale": "Items whose lock was not renewed for longer than its lease.",
    "overdue": "Items that wait although they have been ready for more than a minute.",
    "failing": "Items whose last run was no success.",
    "warned": "Items whose last run was ok and had warnings.",
}
"""Several may hold of one item."""


def board_metrics(overview: Overview) -> Iterator[Metric]:
    """Every metric of a board."""
    counted = overview.counted
    by_type = _by_type(counted)
    yield _gauge(
        "items",
        "Items by type and state.",
        {(name, state): counts[state] for name, counts in by_type.items() for state in STATES},
        "type",
        "state",
    )
    for condition, meaning in CONDITIONS.items():
        values = {name: counts[condition] for name, counts in by_type.items()}
        yield _gauge(f"items_{condition}", meaning, values, "type")
    waited = (counted.at - counted.earliest).total_seconds() if counted.earliest else 0.0
    meaning = "How long an item has been ready, the longest time."
    yield _gauge("oldest_ready_seconds", meaning, max(waited, 0))
    yield _gauge("statistics_age_seconds", "Age of these counts of items.", overview.age)
    alive = [worker for worker in overview.present if not worker.lost]
    present = {"alive": len(alive), "lost": len(overview.present) - len(alive)}
    yield _gauge("workers", "Workers: alive, or lost.", present, "state")
    slots, running = sum(worker.slots for worker in alive), sum(worker.running for worker in alive)
    yield _gauge("slots", "Slots of the workers that are alive.", slots)
    yield _gauge("slots_taken", "Runs in these slots, up to a minute ago.", running)
    groups = overview.groups[: metrics.MOST_NAMES]
    yield _gauge(
        "partitions",
        "Partitions: held, free, or paused.",
        {(group.name, state): n for group in groups for state, n in _shares(group).items()},
        "group",
        "state",
    )
    yield _gauge(
        "partition_free_seconds",
        "How long a partition has had no worker, the longest time.",
        {group.name: group.free.total_seconds() for group in groups},
        "group",
    )
    elections = [
        election for election in overview.elections.statuses if not election.item.is_paused
    ]
    led = {election.item.id: bool(election.holder) for election in elections}
    yield _gauge(
        "leader",
        "1 where an election has a leader, else 0; without elections that are paused.",
        dict(sorted(led.items())[: metrics.MOST_NAMES]),
        "election",
    )
    yield _gauge(
        "paused", "1 while the whole board is paused, else 0.", overview.paused is not None
    )


def _by_type(counted: Statistics) -> Mapping[str, Counter[str]]:
    """The items of each type; those of types that are not counted one by one are of others, as are
    those of a type of that name.
    """
    counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
    left = _counter(counted)
    for type_counts in counted.by_type:
        counters[type_counts.type] += _counter(type_counts)
        left -= _counter(type_counts)
    if left["items"]:
        counters[metrics.OTHERS] += left
    return counters


def _counter(counts: ItemCounts) -> Counter[str]:
    return Counter({name: getattr(counts, name) for name in ItemCounts.__struct_fields__})


def _shares(group: GroupLeases) -> Mapping[str, int]:
    """How many partitions are in each state. One that was paused while its pump runs is held."""
    held, paused = len(group.those(PartitionState.HELD)), len(group.those(PartitionState.PAUSED))
    return {"held": held, "free": len(group.partitions) - held - paused, "paused": paused}


def _gauge(name: str, meaning: str, values: Mapping[Any, float] | float, *labels: str) -> Metric:
    """A gauge with one value, or with one for each value of its label, or tuple of those."""
    made = GaugeMetricFamily(f"blackboard_board_{name}", meaning, labels=labels)
    if not isinstance(values, Mapping):
        values = {(): values}
    for key, value in values.items():
        made.add_metric(key if isinstance(key, tuple) else (key,), value)
    return made
