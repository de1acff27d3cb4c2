"""Counts what a worker does: a subscriber of its events, with metrics for Prometheus.

It counts and decides nothing. What no event has, it does not count: requests to the store are those
up to the latest walk. Counters begin with the process. One object serves one worker; with several,
its counters are sums, and its gauges those of the worker that was heard last.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Histogram, Info

from blackboard import __version__, events, metrics
from blackboard.clock import Clock, SystemClock
from blackboard.model import Outcome
from blackboard.protocol.releases import ReleaseOutcome

PREFIX = "blackboard"
MILLION = 1e6

COUNTERS = {
    "runs": ("Runs that were released.", "type", "outcome"),
    "releases": (
        (
            "Releases of runs: done; late, their lock had been taken away; dropped, the item is "
            "gone or the store refused."
        ),
        "type",
        "release",
    ),
    "overrides": ("Stale locks that it took over from other workers.", "type"),
    "locks_adopted": ("Its own locks whose claim had no answer.", "type"),
    "locks_lost": ("Locks that runs have lost.", "type"),
    "slots_missed": ("Slots that were missed and are not made up for.", "type"),
    "items_left_alone": ("Items that were due and could not be taken.", "type"),
    "renewals": ("Locks that were renewed.",),
    "walks": ("Walks over the board, or over what was read of it.",),
    "claims": ("Items that were claimed, taken over or adopted.",),
    "claims_lost": ("Batches of claims at which another worker was faster.",),
    "store_requests": ("Requests to the store, up to the last walk.", "kind"),
    "cost_dollars": ("The list price of these requests, in US dollars.",),
    "store_away_reports": ("Reports that the store does not answer, one a minute.",),
    "notices": ("Notices: sent through one channel, or failed.", "result"),
    "events_missed": ("Events that a subscriber missed, as far as it was reported.", "subscriber"),
}
"""What each counts, and its labels."""
OF_EVENTS = {
    events.LockOverridden: "overrides",
    events.LockAdopted: "locks_adopted",
    events.LockLost: "locks_lost",
    events.SlotSkipped: "slots_missed",
    events.ItemLeftAlone: "items_left_alone",
}
"""The counters that count an event by the type of its item."""
GAUGES = {
    "worker_start_time_seconds": ("When the worker began to work, in seconds since 1970.",),
    "worker_slots": ("Runs that the worker may have at a time.",),
    "worker_is_coordinator": ("1 while it is the coordinator, else 0.",),
    "runs_in_progress": ("Runs that were not released yet.", "type"),
    "partitions_held": ("Partitions that it holds.", "group"),
    "last_walk_timestamp_seconds": ("When the last walk ended, in seconds since 1970.",),
    "due_items": ("Items that the last walk left although they were due.",),
    "store_away": ("1 while the store, or a part of it, does not answer, else 0.",),
}
"""What each shows, and its labels."""
HISTOGRAMS = {
    "run_duration_seconds": ("From the start of a run to its stop.", "type"),
    "run_lag_seconds": ("From the time when a run was ready to its start.", "type"),
    "renewal_lateness_seconds": ("By how much the last renewal of a batch came after its time.",),
}
"""What each measures, and its labels."""
BUCKETS = {
    "run_duration_seconds": (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400),
    "run_lag_seconds": (0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 900, 3600),
    "renewal_lateness_seconds": (0.1, 0.5, 1, 2, 5, 10, 20, 40, 60),
}
"""In seconds."""


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

        self._info = Info("blackboard_worker", "The worker and its version.", registry=registry)
        self._counters = {
            name: prometheus_client.Counter(name, meaning, labels, PREFIX, registry=registry)
            for name, (meaning, *labels) in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(name, meaning, labels, PREFIX, registry=registry)
            for name, (meaning, *labels) in GAUGES.items()
        }
        self._histograms = {
            name: Histogram(name, meaning, labels, PREFIX, registry=registry, buckets=BUCKETS[name])
            for name, (meaning, *labels) in HISTOGRAMS.items()
        }

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

    def __call__(self, event: events.BoardEvent) -> None:
        """Count an event."""
        if isinstance(event, events.BoardItemEvent) and (name := OF_EVENTS.get(type(event))):
            self._counters[name].labels(self._label(event)).inc()
        match event:
            case events.RunStarted():
                self._began(event)
            case events.RunEnded():
                self._ended(event)
            case events.LocksRenewed(locks=locks, late=late):
                self._counters["renewals"].inc(locks)
                self._histograms["renewal_lateness_seconds"].observe(late)
            case events.Walked():
                self._has_walked_now(event)
            case events.NoticeSent():
                self._counters["notices"].labels("sent").inc()
            case events.NoticeFailed():
                self._counters["notices"].labels("failed").inc()
            case _:
                self._count_of_worker(event)

    def _count_of_worker(self, event: events.BoardEvent) -> None:
        """Count an event that is about the worker and its store, not about its work."""
        match event:
            case events.WorkerStarted():
                self._begins(event)
            case events.WorkerStopping():
                self._is_stopping = True
            case events.WorkerStopped(worker=worker, requests=requests):
                counted = self._requested
                self._count(
                    worker, {kind: requests[kind] - counted[worker, kind] for kind in requests}
                )
                for kind in requests:  # a program may have a worker for each thing that it does
                    del counted[worker, kind]
                self._drop_runs(worker)
            case events.CoordinatorElected():
                self._gauges["worker_is_coordinator"].set(True)
            case events.CoordinatorEnded():
                self._gauges["worker_is_coordinator"].set(False)
            case events.StoreAway():
                self._counters["store_away_reports"].inc()
            case events.StoreChanged(board=board, away=away):
                self._is_away(board, away=away)
            case events.EventsMissed(worker=worker, subscriber=name, failures=failures):
                more = failures - self._missed[worker, name]
                self._counters["events_missed"].labels(name).inc(more)
                self._missed[worker, name] = failures

    def _is_away(self, board: str, *, away: bool) -> None:
        if away:
            self._boards_away.add(board)
        else:
            self._boards_away.discard(board)
        self._gauges["store_away"].set(bool(self._boards_away))

    # ---- runs

    def _label(self, event: events.BoardItemEvent) -> str:
        """The type of an event, as long as there are not too many of them."""
        if event.type not in self._types:
            if len(self._types) >= metrics.MOST_NAMES:
                return metrics.OTHERS
            self._types.add(event.type)
        return event.type

    def _began(self, event: events.RunStarted) -> None:
        shown = self._shown(event)
        self._running[shown].add((event.worker, event.id, event.fence))
        shown.set(len(self._running[shown]))

    def _ended(self, event: events.RunEnded) -> None:
        label, run, shown = self._label(event), event.run, self._shown(event)
        self._running[shown].discard((event.worker, event.id, event.fence))
        shown.set(len(self._running[shown]))
        self._counters["runs"].labels(label, run.outcome.value).inc()
        self._counters["releases"].labels(label, event.release).inc()
        self._histograms["run_duration_seconds"].labels(label).observe(run.duration)
        self._histograms["run_lag_seconds"].labels(label).observe(max(run.lag, 0.0))

    def _shown(self, event: events.BoardItemEvent) -> Gauge:
        """Where a run is shown. A partition that is held is a run that takes no slot."""
        name = "partitions_held" if event.type in self._groups else "runs_in_progress"
        return self._gauges[name].labels(self._label(event))

    def _drop_runs(self, worker: str) -> None:
        """Those that a worker which has ended could not release are in progress no longer."""
        for shown, runs in self._running.items():
            runs -= {key for key in runs if key[0] == worker}
            shown.set(len(runs))

    # ---- the worker, its walks, the store

    def _begins(self, event: events.WorkerStarted) -> None:
        self._info.info({"worker": event.worker, "version": __version__})
        self._gauges["worker_start_time_seconds"].set(self._clock.now().timestamp())
        self._gauges["worker_slots"].set(event.slots)
        self._groups |= set(event.groups)
        for name in event.groups:
            self._gauges["partitions_held"].labels(name)
        for name in event.types[: metrics.MOST_NAMES]:
            self._types.add(name)
            self._show_from_the_start(name)
        self._has_walked = self._is_stopping = False
        self._boards_away.clear()
        self._gauges["store_away"].set(0)

        for result in ("sent", "failed"):
            self._counters["notices"].labels(result)

    def _show_from_the_start(self, name: str) -> None:
        """Counters of a type that count from 0: the first event is an increase, too."""
        for outcome in Outcome:
            self._counters["runs"].labels(name, outcome.value)
        for release in ReleaseOutcome:
            self._counters["releases"].labels(name, release.value)
        for of_events in OF_EVENTS.values():
            self._counters[of_events].labels(name)
        for of_runs in ("run_duration_seconds", "run_lag_seconds"):
            self._histograms[of_runs].labels(name)
        if name not in self._groups:
            self._gauges["runs_in_progress"].labels(name)

    def _has_walked_now(self, event: events.Walked) -> None:
        self._has_walked = True
        self._counters["walks"].inc()
        self._gauges["last_walk_timestamp_seconds"].set(self._clock.now().timestamp())
        self._gauges["due_items"].set(event.due)
        self._counters["claims"].inc(event.claims)
        self._counters["claims_lost"].inc(event.lost)
        self._count(event.worker, event.requests)

    def _count(self, worker: str, requests: Mapping[str, int]) -> None:
        """Count more requests, by kind and in total."""
        for kind, count in requests.items():
            self._requested[worker, kind] += count
            if kind != "total":
                self._counters["store_requests"].labels(kind).inc(count)
        self._counters["cost_dollars"].inc(requests.get("total", 0) / MILLION * self._price)
