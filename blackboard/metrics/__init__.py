"""Metrics for Prometheus: of a worker (`worker.py`), of a board (`board.py`), and their server.

A program that embeds a worker counts with the same class as `blackboard worker --metrics`:

    from blackboard.metrics.worker import WorkerMetrics

    metrics = WorkerMetrics()
    board.subscribe(metrics)
    async with board.worker():
        ...
        content_type, body = metrics.exposition(request.headers["Accept"])

Labels are types, outcomes and names that are declared in code. No label is the id of an item.
`docs/metrics.md` lists every metric.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from blackboard.errors import BadInput

try:
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as problem:
    raise BadInput(
        "metrics",
        "the client of Prometheus is not installed",
        "pip install 'blackboard-scheduler[metrics]'",
    ) from problem

MOST_NAMES = 200
"""Values of one label. What comes on top counts as `OTHERS`."""
OTHERS = "other"


class Exposition(NamedTuple):
    """Metrics as they are sent."""

    content_type: str
    body: bytes


def exposition(metrics: Iterable[Metric], accept: str = "") -> Exposition:
    """Metrics in the format that an `Accept` header asks for: OpenMetrics, else Prometheus text."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # its version is not a number
        encode, content_type = choose_encoder("")
    return Exposition(content_type, encode(_WithoutCreated(metrics)))


@dataclass(frozen=True)
class _WithoutCreated(Collector):
    """Leaves out when a series began: as text, each is one more series."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        for metric in self.metrics:
            metric.samples = [
                sample for sample in metric.samples if not sample.name.endswith("_created")
            ]
            yield metric
