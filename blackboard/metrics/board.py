"""Figures of a board as a whole, for Prometheus: what no single worker can count.

They are the names of what an overview has. Its items are those of the statistics that the
coordinator has counted, at most a quarter of an hour ago.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from blackboard import metrics
from blackboard.display.health import Overview
from blackboard.model import ItemCounts, Statistics
from blackboard.protocol.groups import GroupLeases
from blackboard.rules.groups import PartitionState

STATES = ("active", "paused", "done")
"""Each item has one of them."""
CONDITIONS = ("running", "stale", "overdue", "failing", "warned")
"""Several may hold of one item."""
GAUGES = {
    "items": ("Items by type and state.", "type", "state"),
    "items_running": ("Items that a worker runs.", "type"),
    "items_stale": ("Items whose lock was not renewed for longer than its lease.", "type"),
    "items_overdue": (
        "Items that wait although they have been ready for more than a minute.",
        "type",
    ),
    "items_failing": ("Items whose last run was no success.", "type"),
    "items_warned": ("Items whose last run was ok and had warnings.", "type"),
    "oldest_ready_seconds": ("How long an item has been ready, the longest time.",),
    "statistics_age_seconds": ("Age of these counts of items.",),
    "workers": ("Workers: alive, or lost.", "state"),
    "slots": ("Slots of the workers that are alive.",),
    "slots_taken": ("Runs in these slots, up to a minute ago.",),
    "partitions": ("Partitions: held, free, or paused.", "group", "state"),
    "partition_free_seconds": (
        "How long a partition has had no worker, the longest time.",
        "group",
    ),
    "leader": (
        "1 where an election has a leader, else 0; without elections that are paused.",
        "election",
    ),
    "paused": ("1 while the whole board is paused, else 0.",),
}
"""What each shows, and its labels."""
Values = float | Mapping[str, float] | Mapping[tuple[str, str], float]
"""One value, or one for each value of the label, or of the two."""


def board_metrics(overview: Overview) -> Iterator[Metric]:
    values = _values(overview)
    for name, (meaning, *labels) in GAUGES.items():
        metric = GaugeMetricFamily(f"blackboard_board_{name}", meaning, labels=labels)
        of_labels = values[name]
        for key, value in (
            of_labels.items() if isinstance(of_labels, Mapping) else [((), of_labels)]
        ):
            metric.add_metric(key if isinstance(key, tuple) else (key,), value)
        yield metric


def _values(overview: Overview) -> Mapping[str, Values]:
    counted = overview.counted
    by_type = _by_type(counted)
    waited = (counted.at - counted.earliest).total_seconds() if counted.earliest else 0.0
    alive = [worker for worker in overview.present if not worker.lost]
    groups = overview.groups[: metrics.MOST_NAMES]
    elections = [each for each in overview.elections.statuses if not each.item.is_paused]
    led = {election.item.id: bool(election.holder) for election in elections}
    return {
        "items": {(name, state): by_type[name][state] for name in by_type for state in STATES},
        **{
            f"items_{condition}": {name: by_type[name][condition] for name in by_type}
            for condition in CONDITIONS
        },
        "oldest_ready_seconds": max(waited, 0),
        "statistics_age_seconds": overview.age,
        "workers": {"alive": len(alive), "lost": len(overview.present) - len(alive)},
        "slots": sum(worker.slots for worker in alive),
        "slots_taken": sum(worker.running for worker in alive),
        "partitions": {
            (group.name, state): n for group in groups for state, n in _shares(group).items()
        },
        "partition_free_seconds": {group.name: group.free.total_seconds() for group in groups},
        "leader": dict(sorted(led.items())[: metrics.MOST_NAMES]),
        "paused": overview.paused is not None,
    }


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
