"""Counts what a worker does: a subscriber of its events, with metrics for Prometheus.

It counts and decides nothing. What no event has, it does not count: requests to the store are those
up to the latest walk. Counters begin with the process. One object serves one worker; with several,
its counters are sums, and its gauges those of the worker that was heard last.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Histogram, Info

from blackboard import __version__, metrics
from blackboard.clock import Clock, SystemClock
from blackboard.events import (
    BoardEvent,
    BoardItemEvent,
    CoordinatorElected,
    CoordinatorEnded,
    EventsMissed,
    ItemLeftAlone,
    LockAdopted,
    LockLost,
    LockOverridden,
    LocksRenewed,
    NoticeFailed,
    NoticeSent,
    RunEnded,
    RunStarted,
    SlotSkipped,
    StoreAway,
    StoreChanged,
    Walked,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from blackboard.model import Outcome
from blackboard.protocol.releases import ReleaseOutcome

DURATIONS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400)
LAGS = (0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 900, 3600)
LATENESSES = (0.1, 0.5, 1, 2, 5, 10, 20, 40, 60)
"""Buckets of histograms, in seconds."""
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class _Metrics:
    """Makes metrics in a registry."""

    _registry: CollectorRegistry

    def total(self, name: str, meaning: str, *labels: str) -> prometheus_client.Counter:
        full = f"blackboard_{name}"
        return prometheus_client.Counter(full, meaning, labels, registry=self._registry)

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"blackboard_{name}", meaning, labels, registry=self._registry)

    def histogram(
        self, name: str, meaning: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        full = f"blackboard_{name}"
        return Histogram(full, meaning, labels, registry=self._registry, buckets=buckets)


class WorkerMetrics:
    """The metrics of one worker: `board.subscribe(WorkerMetrics())`."""

    def __init__(
        self,
        *,
        price: float = 0.0,
        clock: Clock | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`price`: what the store charges for a million requests, in US dollars (`cost.price_of`).
        `registry`: where the metrics are to be found; a registry of their own if none is given.
        """
        self.registry = registry = registry or CollectorRegistry()
        self._price = price
        self._clock = clock or SystemClock()
        self._has_walked = self._is_stopping = False
        self._boards_away = set[str]()
        """Those that do not answer, or parts of which do not; "": the store, before the start."""
        self._types = set[str]()
        """Those that are labels."""
        self._groups = frozenset[str]()
        self._running = defaultdict[Gauge, set[tuple[str, str, int]]](set)
        """Worker, item and fence of the runs in progress, by the gauge that shows them."""
        self._requested = Counter[tuple[str, str]]()
        """Requests that are counted, by worker and kind."""
        self._missed = Counter[tuple[str, str]]()
        """Events that are counted, by worker and the subscriber that missed them."""

        made = _Metrics(registry)
        self._info = Info("blackboard_worker", "The worker and its version.", registry=registry)
        self._started = made.gauge(
            "worker_start_time_seconds", "When the worker began to work, in seconds since 1970."
        )
        self._slots = made.gauge("worker_slots", "Runs that the worker may have at a time.")
        self._leads = made.gauge("worker_is_coordinator", "1 while it is the coordinator, else 0.")

        self._in_progress = made.gauge(
            "runs_in_progress", "Runs that were not released yet.", "type"
        )
        self._runs = made.total("runs", "Runs that were released.", "type", "outcome")
        self._releases = made.total(
            "releases",
            "Releases of runs: done; late, their lock had been taken away; dropped, the item is "
            "gone or the store refused.",
            "type",
            "release",
        )
        self._durations = made.histogram(
            "run_duration_seconds", "From the start of a run to its stop.", DURATIONS, "type"
        )
        self._lags = made.histogram(
            "run_lag_seconds", "From the time when a run was ready to its start.", LAGS, "type"
        )
        self._partitions = made.gauge("partitions_held", "Partitions that it holds.", "group")

        self._by_type = {
            LockOverridden: made.total(
                "overrides", "Stale locks that it took over from other workers.", "type"
            ),
            LockAdopted: made.total(
                "locks_adopted", "Its own locks whose claim had no answer.", "type"
            ),
            LockLost: made.total("locks_lost", "Locks that runs have lost.", "type"),
            SlotSkipped: made.total(
                "slots_missed", "Slots that were missed and are not made up for.", "type"
            ),
            ItemLeftAlone: made.total(
                "items_left_alone", "Items that were due and could not be taken.", "type"
            ),
        }
        self._renewals = made.total("renewals", "Locks that were renewed.")
        self._lateness = made.histogram(
            "renewal_lateness_seconds",
            "By how much the last renewal of a batch came after its time.",
            LATENESSES,
        )

        self._walks = made.total("walks", "Walks over the board, or over what was read of it.")
        self._walked = made.gauge(
            "last_walk_timestamp_seconds", "When the last walk ended, in seconds since 1970."
        )
        self._due = made.gauge("due_items", "Items that the last walk left although they were due.")
        self._claims = made.total("claims", "Items that were claimed, taken over or adopted.")
        self._claims_lost = made.total(
            "claims_lost", "Batches of claims at which another worker was faster."
        )
        self._requests = made.total(
            "store_requests", "Requests to the store, up to the last walk.", "kind"
        )
        self._cost = made.total("cost_dollars", "The list price of these requests, in US dollars.")
        self._away = made.gauge(
            "store_away", "1 while the store, or a part of it, does not answer, else 0."
        )
        self._absences = made.total(
            "store_away_reports", "Reports that the store does not answer, one a minute."
        )

        self._notices = made.total(
            "notices", "Notices: sent through one channel, or failed.", "result"
        )
        self._events_missed = made.total(
            "events_missed",
            "Events that a subscriber missed, as far as it was reported.",
            "subscriber",
        )

    def exposition(self, accept: str = "") -> metrics.Exposition:
        """The metrics, in the format that an `Accept` header asks for."""
        return metrics.exposition(self.registry.collect(), accept)

    @property
    def not_ready(self) -> str:
        """Why the worker cannot work now; "" when it can."""
        if self._is_stopping:
            return "it is stopping"
        if self._boards_away:
            return "the store does not answer"
        return "" if self._has_walked else "it has not walked the board yet"

    def __call__(self, event: BoardEvent) -> None:
        """Count an event."""
        if isinstance(event, BoardItemEvent) and type(event) in self._by_type:
            self._by_type[type(event)].labels(self._label(event)).inc()
        match event:
            case RunStarted():
                self._began(event)
            case RunEnded():
                self._ended(event)
            case LocksRenewed(locks=locks, late=late):
                self._renewals.inc(locks)
                self._lateness.observe(late)
            case Walked():
                self._has_walked_now(event)
            case StoreAway():
                self._absences.inc()
            case StoreChanged(board=board, away=away):
                self._is_away(board, away=away)
            case WorkerStarted():
                self._begins(event)
            case _:
                self._count_other(event)

    def _count_other(self, event: BoardEvent) -> None:
        match event:
            case WorkerStopping():
                self._is_stopping = True
            case WorkerStopped(worker=worker, requests=requests):
                counted = self._requested
                more = {kind: requests[kind] - counted[worker, kind] for kind in requests}
                self._count(worker, more)
                self._drop_runs(worker)
            case CoordinatorElected() | CoordinatorEnded():
                self._leads.set(isinstance(event, CoordinatorElected))
            case NoticeSent() | NoticeFailed():
                self._notices.labels("sent" if isinstance(event, NoticeSent) else "failed").inc()
            case EventsMissed(worker=worker, subscriber=name, failures=failures):
                self._events_missed.labels(name).inc(failures - self._missed[worker, name])
                self._missed[worker, name] = failures

    # ---- runs

    def _label(self, event: BoardItemEvent) -> str:
        """The type of an event, as long as there are not too many of them."""
        if event.type not in self._types:
            if len(self._types) >= metrics.MOST_NAMES:
                return metrics.OTHERS
            self._types.add(event.type)
        return event.type

    def _began(self, event: RunStarted) -> None:
        shown = self._shown(event)
        self._running[shown].add((event.worker, event.id, event.fence))
        shown.set(len(self._running[shown]))

    def _ended(self, event: RunEnded) -> None:
        label, run, shown = self._label(event), event.run, self._shown(event)
        self._running[shown].discard((event.worker, event.id, event.fence))
        shown.set(len(self._running[shown]))
        self._runs.labels(label, run.outcome.value).inc()
        self._releases.labels(label, event.release).inc()
        self._durations.labels(label).observe(max(run.duration, 0.0))
        self._lags.labels(label).observe(max(run.lag, 0.0))

    def _shown(self, event: BoardItemEvent) -> Gauge:
        """Where a run is shown. A partition that is held is a run that takes no slot."""
        gauge = self._partitions if event.type in self._groups else self._in_progress
        return gauge.labels(self._label(event))

    def _drop_runs(self, worker: str) -> None:
        """Those that a worker which has ended could not release are in progress no longer."""
        for shown, runs in self._running.items():
            runs -= {key for key in runs if key[0] == worker}
            shown.set(len(runs))

    # ---- the worker, its walks, the store

    def _begins(self, event: WorkerStarted) -> None:
        self._info.info({"worker": event.worker, "version": __version__})
        self._started.set(self._clock.now().timestamp())
        self._slots.set(event.slots)
        self._groups |= set(event.groups)
        for name in event.groups:
            self._partitions.labels(name)
        for name in event.types[: metrics.MOST_NAMES]:
            self._types.add(name)
            self._show_from_the_start(name)
        self._has_walked = self._is_stopping = False
        self._boards_away.clear()
        self._away.set(0)

        for result in ("sent", "failed"):
            self._notices.labels(result)

    def _show_from_the_start(self, name: str) -> None:
        """Counters of a type that count from 0: the first event is an increase, too."""
        for outcome in Outcome:
            self._runs.labels(name, outcome.value)
        for release in ReleaseOutcome:
            self._releases.labels(name, release.value)
        for shown in (self._durations, self._lags, *self._by_type.values()):
            shown.labels(name)
        if name not in self._groups:
            self._in_progress.labels(name)

    def _has_walked_now(self, event: Walked) -> None:
        self._has_walked = True
        self._walks.inc()
        self._walked.set(self._clock.now().timestamp())
        self._due.set(event.due)
        self._claims.inc(event.claims)
        self._claims_lost.inc(event.lost)
        self._count(event.worker, event.requests)

    def _count(self, worker: str, requests: Mapping[str, int]) -> None:
        """Count more requests, by kind and in total."""
        for kind, count in requests.items():
            self._requested[worker, kind] += count
            if kind != "total":
                self._requests.labels(kind).inc(count)
        self._cost.inc(requests.get("total", 0) / MILLION * self._price)

    def _is_away(self, board: str, *, away: bool) -> None:
        (self._boards_away.add if away else self._boards_away.discard)(board)
        self._away.set(bool(self._boards_away))
