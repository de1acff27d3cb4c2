"""What a worker did, as its metrics count it: compared with the history, and event by event."""

import asyncio
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import blackboard
from blackboard import Context, Item, handler
from blackboard.cost import PRICE, price_of
from blackboard.events import (
    BoardEvent,
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
    RunStarted,
    SlotSkipped,
    StoreAway,
    StoreChanged,
    Walked,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from blackboard.metrics import MOST_NAMES, OTHERS
from blackboard.metrics.worker import WorkerMetrics
from blackboard.model import Outcome
from tests.support.clocks import START, ManualClock
from tests.support.events import ended
from tests.support.expositions import PREFIX, families, samples

ITEM = (ended().worker, "davis", "feed", 7)
STARTED = WorkerStarted("w", slots=8, cycle=60.0, types=("clicks", "feed"), groups=("clicks",))


@handler("feed", every="1h", retries=1, backoff="1s")
async def feed(item: Item, ctx: Context) -> None:
    if item.params.get("fails"):
        raise ValueError("as the test has it")


@handler("plain", every="1h")
def plain(item: Item, ctx: Context) -> int:
    return 1


def values(metrics: WorkerMetrics) -> dict[tuple[str, ...], float]:
    return samples(metrics.exposition().body)


def test_a_worker_counts_what_the_history_has(tmp_path: Path) -> None:
    metrics = WorkerMetrics(price=PRICE)

    async def story() -> list[blackboard.Run]:
        async with blackboard.open(
            tmp_path / "town.db", handlers=[feed, plain], create=True
        ) as board:
            await board.add("davis", "feed")
            await board.add("keene", "feed", params={"fails": True}, retries=0)
            for item_id in ("epsom", "derry"):
                await board.add(item_id, "plain")
            board.subscribe(metrics)
            await board.worker(slots=3).work("idle")
            await board.run("davis")
            await board.worker(slots=3).work("idle")
            ids = ("davis", "keene", "epsom", "derry")
            return [run for item_id in ids async for run in board.runs(item_id)]

    history = asyncio.run(story())
    found = values(metrics)
    assert len(history) == 5
    for (item_type, outcome), count in Counter(
        (run.type, run.outcome.value) for run in history
    ).items():
        assert found["runs_total", outcome, item_type] == count
    assert found["runs_total", "failed", "feed"] == 1
    assert found["runs_total", "failed", "plain"] == 0
    for item_type in ("feed", "plain"):
        runs = [run for run in history if run.type == item_type]
        for name, measured in (
            ("duration", [run.duration for run in runs]),
            ("lag", [run.lag for run in runs]),
        ):
            assert found[f"run_{name}_seconds_count", item_type] == len(runs)
            assert found[f"run_{name}_seconds_sum", item_type] == pytest.approx(sum(measured))
        assert found["runs_in_progress", item_type] == 0
        assert found["releases_total", "done", item_type] == len(runs)
    assert found["claims_total",] == 5
    requests = sum(value for key, value in found.items() if "store_requests" in key[0])
    assert requests > 5
    assert found["cost_dollars_total",] == pytest.approx(requests / 1e6 * PRICE)
    assert found["worker_info", blackboard.__version__, history[0].worker] == 1


def test_workers_of_one_open_board_count_each_request_once(tmp_path: Path) -> None:
    """One after the other, and two at a time."""
    metrics = WorkerMetrics()

    async def story() -> int:
        async with blackboard.open(tmp_path / "town.db", handlers=[feed], create=True) as board:
            board.subscribe(metrics)
            for number in range(4):
                await board.add(f"item-{number}", "feed")
                await board.worker().work("idle")
            for number in range(4, 8):
                await board.add(f"item-{number}", "feed")
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(board.worker(slots=1).work("idle"))
            return board._table.table.requests.total

    sent = asyncio.run(story())
    assert (
        sum(value for key, value in values(metrics).items() if "store_requests" in key[0]) == sent
    )


def test_what_a_worker_could_not_release_is_in_progress_no_longer_when_it_has_ended() -> None:
    metrics = WorkerMetrics()
    for event in (
        STARTED,
        RunStarted("w", "davis", "feed", 7, due=START, attempt=1),
        RunStarted("w", "07", "clicks", 3, due=START, attempt=1),
        RunStarted("x", "keene", "feed", 1, due=START, attempt=1),
        WorkerStopped("w", runs=0, requests={}),
    ):
        metrics(event)
    found = values(metrics)
    assert found["runs_in_progress", "feed"] == 1, "that of another worker"
    assert found["partitions_held", "clicks"] == 0


def test_workers_that_have_ended_take_no_memory() -> None:
    """A program may have a worker for each thing that it does."""
    metrics, requests = WorkerMetrics(), {"commits": 5, "pages": 1, "total": 6}
    taken = list[int]()
    tracemalloc.start()
    try:
        for number in range(2_000):
            worker = f"rabbit:7301:{number:08x}"
            metrics(WorkerStarted(worker, slots=8, cycle=60.0, types=("feed",), groups=()))
            metrics(Walked(worker, **WALKED, requests=requests))
            metrics(WorkerStopped(worker, runs=0, requests=requests))
            taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert taken[-1] - taken[999] < 50_000
    assert values(metrics)["store_requests_total", "commits"] == 10_000


def test_a_worker_that_begins_changes_nothing_of_what_another_holds() -> None:
    metrics = WorkerMetrics()
    metrics(STARTED)
    metrics(RunStarted("w", "07", "clicks", 3, due=START, attempt=1))
    metrics(WorkerStarted("x", slots=8, cycle=60.0, types=("clicks", "feed"), groups=("clicks",)))
    metrics(WorkerStarted("y", slots=8, cycle=60.0, types=("feed",), groups=()))
    assert values(metrics)["partitions_held", "clicks"] == 1
    metrics(RunStarted("w", "08", "clicks", 3, due=START, attempt=1))
    assert values(metrics)["partitions_held", "clicks"] == 2


def test_both_formats_are_valid_and_say_the_same() -> None:
    metrics = WorkerMetrics(clock=ManualClock())
    for event in (STARTED, ended(seconds=3.0), ended(Outcome.FAILED)):
        metrics(event)
    kind, body = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert samples(body) == values(metrics)
    assert metrics.exposition().content_type == "text/plain; version=0.0.4; charset=utf-8"
    for family in families(body):
        assert family.name.startswith(PREFIX)
        assert family.documentation.endswith(".")


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=abc",
        "application/openmetrics-text; version=1.x",
        "text/plain; version=",
        "text/plain; version=1.0.0; escaping=odd",
        "\xff;=;,version",
    ],
)
def test_what_accept_cannot_mean_is_answered_in_a_format_that_is_usual(accept: str) -> None:
    kind, body = WorkerMetrics().exposition(accept)
    assert kind.startswith(("text/plain", "application/openmetrics-text"))
    assert list(families(body))


WALKED: dict[str, Any] = {"claims": 0, "due": 0, "locks": 0, "missed": 0, "complete": True}


def walked(**about: Any) -> Walked:
    return Walked("w", **{**WALKED, "requests": {}, **about})


COUNTED: dict[str, tuple[BoardEvent | list[BoardEvent], tuple[str, ...], float]] = {
    "a run begins": (RunStarted(*ITEM, due=START, attempt=1), ("runs_in_progress", "feed"), 1),
    "it ends": (
        [RunStarted(*ITEM, due=START, attempt=1), ended()],
        ("runs_in_progress", "feed"),
        0,
    ),
    "one that never began ends": (ended(), ("runs_in_progress", "feed"), 0),
    "a late one": (ended(release="late"), ("releases_total", "late", "feed"), 1),
    "a long one": (ended(seconds=40.0), ("run_duration_seconds_bucket", "60.0", "feed"), 1),
    "not a short one": (ended(seconds=40.0), ("run_duration_seconds_bucket", "30.0", "feed"), 0),
    "a partition": (
        RunStarted("w", "07", "clicks", 3, due=START, attempt=1),
        ("partitions_held", "clicks"),
        1,
    ),
    "none": (STARTED, ("partitions_held", "clicks"), 0),
    "an override": (LockOverridden(*ITEM, owner="x", age=99.0), ("overrides_total", "feed"), 1),
    "an adoption": (LockAdopted(*ITEM), ("locks_adopted_total", "feed"), 1),
    "a lost lock": (LockLost(*ITEM, message="gone"), ("locks_lost_total", "feed"), 1),
    "a missed slot": (SlotSkipped(*ITEM, due=START), ("slots_missed_total", "feed"), 1),
    "left alone": (ItemLeftAlone(*ITEM, message="odd"), ("items_left_alone_total", "feed"), 1),
    "renewals": (LocksRenewed("w", locks=3, late=1.5), ("renewals_total",), 3),
    "their lateness": (
        LocksRenewed("w", locks=3, late=1.5),
        ("renewal_lateness_seconds_sum",),
        1.5,
    ),
    "the coordinator": (CoordinatorElected("w", term=1), ("worker_is_coordinator",), 1),
    "no longer": (
        [CoordinatorElected("w", term=1), CoordinatorEnded("w", term=1, reason="lost")],
        ("worker_is_coordinator",),
        0,
    ),
    "a notice": (NoticeSent(*ITEM, message="sent"), ("notices_total", "sent"), 1),
    "one that failed": (NoticeFailed("w", message="no"), ("notices_total", "failed"), 1),
    "missed events": (
        [
            EventsMissed("w", message="", subscriber="the log", failures=1),
            EventsMissed("w", message="", subscriber="the log", failures=10),
        ],
        ("events_missed_total", "the log"),
        10,
    ),
    "the store away": (StoreChanged("w", board="b", away=True), ("store_away",), 1),
    "reported": (StoreAway("w", message="away"), ("store_away_reports_total",), 1),
    "back": (
        [StoreChanged("w", board="b", away=True), StoreChanged("w", board="b", away=False)],
        ("store_away",),
        0,
    ),
    "back for a group alone": (
        [
            StoreChanged("w", board="b", away=True),
            StoreChanged("w", board="b.clicks", away=True),
            StoreChanged("w", board="b.clicks", away=False),
            walked(),
        ],
        ("store_away",),
        1,
    ),
    "slots": (STARTED, ("worker_slots",), 8),
    "the start": (STARTED, ("worker_start_time_seconds",), START.timestamp()),
}


@pytest.mark.parametrize("name", COUNTED)
def test_each_event_is_counted(name: str) -> None:
    events, (series, *labels), value = COUNTED[name]
    metrics = WorkerMetrics(clock=ManualClock())
    metrics(STARTED)
    for event in events if isinstance(events, list) else [events]:
        metrics(event)
    assert values(metrics)[series, *labels] == value


def test_a_walk_has_requests_and_the_end_has_the_rest() -> None:
    metrics = WorkerMetrics(price=1e6, clock=ManualClock())
    for event in (
        STARTED,
        walked(requests={"commits": 2, "pages": 1, "total": 3}, claims=2, due=4, lost=1),
        walked(requests={"commits": 1, "pages": 0, "total": 1}),
        WorkerStopped("w", runs=2, requests={"commits": 5, "pages": 1, "total": 6}),
    ):
        metrics(event)
    found = values(metrics)
    assert found["store_requests_total", "commits"] == 5
    assert found["store_requests_total", "pages"] == 1
    assert found["cost_dollars_total",] == 6
    assert found["walks_total",] == 2
    assert found["claims_total",] == 2
    assert found["claims_lost_total",] == 1
    assert found["due_items",] == 0
    assert found["last_walk_timestamp_seconds",] == START.timestamp()


@pytest.mark.parametrize(
    ("url", "price"),
    [
        ("https://ann.table.core.windows.net/town", PRICE),
        ("azurite:", 0),
        ("blackboard.db", 0),
        ("sqlite:a.db", 0),
    ],
)
def test_only_azure_charges(url: str, price: float) -> None:
    assert price_of(url) == price


def test_types_that_are_too_many_count_as_others_and_items_are_no_labels() -> None:
    metrics = WorkerMetrics()
    for number in range(MOST_NAMES + 5):
        metrics(LockAdopted("w", f"item-{number}", f"type-{number}", 1))
    metrics(LockAdopted("w", "item-1", "type-1", 2))
    found = values(metrics)
    assert found["locks_adopted_total", OTHERS] == 5
    assert found["locks_adopted_total", "type-1"] == 2
    assert len([key for key in found if "adopted" in key[0]]) == MOST_NAMES + 1
    assert not any("item-" in label for key in found for label in key)


def test_a_worker_is_ready_when_it_has_walked_and_the_store_answers() -> None:
    metrics = WorkerMetrics()

    def after(event: BoardEvent) -> str:
        metrics(event)
        return metrics.not_ready

    assert metrics.not_ready == "it has not walked the board yet"
    assert after(StoreChanged("w", board="", away=True)) == "the store does not answer"
    assert after(STARTED) == "it has not walked the board yet"
    assert after(walked(complete=False)) == ""
    assert after(StoreChanged("w", board="b", away=True)) == "the store does not answer"
    assert after(walked()) == "the store does not answer", "it answers pages, and no batch"
    assert after(StoreChanged("w", board="b", away=False)) == ""
    metrics(StoreChanged("w", board="b", away=True))
    assert after(STARTED) == "it has not walked the board yet", "a new worker asks for itself"
    assert after(walked()) == ""
    assert after(WorkerStopping("w", message="nothing runs")) == "it is stopping"


def test_a_program_may_have_them_in_a_registry_of_its_own() -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry=registry)
    metrics(LockAdopted(*ITEM))
    assert registry.get_sample_value("blackboard_locks_adopted_total", {"type": "feed"}) == 1
