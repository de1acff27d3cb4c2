"""The tables of docs/metrics.md, written from the metrics themselves.

python -m tests.support.metrics_page       writes them
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Metric

from blackboard.display.health import Overview
from blackboard.events import WorkerStarted
from blackboard.metrics.board import board_metrics
from blackboard.metrics.worker import WorkerMetrics
from blackboard.model import Statistics
from blackboard.protocol.leaders import Elections
from tests.support.clocks import START

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
HEAD = "| metric | type | labels | meaning |\n|---|---|---|---|\n"
EMPTY_BOARD = Overview(
    counted=Statistics(at=START, by="", term=0, took=0.0),
    is_now=True,
    present=(),
    elections=Elections(statuses=(), now=START),
    age=0.0,
    paused=None,
    now=START,
)


@dataclass(frozen=True)
class Described:
    """A metric, as its page shows it."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def row(self) -> str:
        labels = ", ".join(f"`{one}`" for one in self.labels) or "-"
        return f"| `{self.name}` | {self.type} | {labels} | {self.meaning} |\n"


def of_worker() -> list[Described]:
    """The metrics of a worker, in the order in which they are served."""
    metrics = WorkerMetrics()
    metrics(WorkerStarted("w", slots=1, cycle=60.0, types=()))
    labels = {made._name: made._labelnames for made in metrics.registry._collector_to_names}  # type: ignore[attr-defined]
    return [_described(one, labels[one.name]) for one in metrics.registry.collect()]


def of_board() -> list[Described]:
    """The metrics of a board."""
    return [_described(one, one._labelnames) for one in board_metrics(EMPTY_BOARD)]  # type: ignore[attr-defined]


def described() -> list[Described]:
    return [*of_worker(), *of_board()]


def _described(metric: Metric, labels: Iterable[str]) -> Described:
    """A metric as in Prometheus' text format: an info is a gauge, with the labels of its sample."""
    if metric.type == "info":
        [sample] = metric.samples
        return Described(sample.name, "gauge", tuple(sample.labels), metric.documentation)
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    return Described(name, metric.type, tuple(labels), metric.documentation)


def tables() -> Iterator[str]:
    """The tables of the page, in its order."""
    for metrics in (of_worker(), of_board()):
        yield HEAD + "".join(one.row for one in metrics)


def page(text: str) -> str:
    """The page, with its tables written anew."""
    made = tables()
    pattern = re.escape(HEAD) + r"(?:\|.*\n)*"
    written, count = re.subn(pattern, lambda _: next(made), text)
    assert count == 2
    return written


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")
