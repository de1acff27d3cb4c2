"""Which runs are kept."""

from dataclasses import replace
from datetime import timedelta

import pytest

from blackboard import keys
from blackboard.model import Outcome, Run
from blackboard.rows import data_of
from blackboard.table import Delete, Insert
from blackboard.verbs.history import Retention, is_kept, is_time, prune
from tests.boards import Scene, story
from tests.clocks import START
from tests.faults import Fault

RUN = Run(
    id="davis",
    type="feed",
    fence=1,
    attempt=1,
    slot=START,
    start=START,
    stop=START,
    lag=0.0,
    outcome=Outcome.OK,
    worker="me",
    nonce="n",
)
TEN = Retention(runs=10, age=timedelta(days=7))


@pytest.mark.parametrize(
    ("age", "place", "kept"),
    [
        (timedelta(hours=2), 0, True),
        (timedelta(hours=2), 9, True),
        (timedelta(hours=2), 10, False),
        (timedelta(days=7), 0, True),
        (timedelta(days=7, seconds=1), 0, False),
        (timedelta(minutes=1), 10, False),
        (timedelta(minutes=-5), 9, True),
    ],
)
def test_runs_are_kept_by_number_and_age(age: timedelta, place: int, *, kept: bool) -> None:
    assert is_kept(RUN, place=place, retention=TEN, now=START + age) is kept


@pytest.mark.parametrize("outcome", [Outcome.ABANDONED, Outcome.CANCELLED])
@pytest.mark.parametrize(
    ("age", "kept"),
    [(timedelta(minutes=59), True), (timedelta(hours=1), False), (timedelta(minutes=-5), True)],
)
def test_a_run_that_may_come_back_late_is_never_dropped_young(
    outcome: Outcome, age: timedelta, *, kept: bool
) -> None:
    """A late finisher finds its row by it."""
    run = replace(RUN, outcome=outcome)
    assert is_kept(run, place=10_000, retention=TEN, now=START + age) is kept


@pytest.mark.parametrize(
    ("fence", "runs", "looks"),
    [(16, 100, True), (17, 100, False), (32, 100, True), (3, 3, True), (4, 3, False), (1, 1, True)],
)
def test_every_sixteenth_fence_looks_or_as_many_as_are_kept(
    fence: int, runs: int, *, looks: bool
) -> None:
    assert is_time(fence, retention=Retention(runs=runs)) is looks


@pytest.mark.parametrize(
    ("hours", "fence", "looks"),
    [(21, 96, True), (21, 16, False), (22, 16, True), (24 * 366 * 6000, 16, True)],
)
def test_runs_that_are_too_many_before_they_are_too_old_are_looked_at_seldom(
    hours: int, fence: int, *, looks: bool
) -> None:
    """90 days are 100 runs of 21.6 hours."""
    interval = timedelta(hours=hours)
    assert is_time(fence, retention=Retention(), interval=interval) is looks


async def history(scene: Scene, count: int) -> None:
    """Runs that ended an hour apart, the last just now; their item was added by itself."""
    await scene.add()
    rows = [
        Insert(
            keys.run_key("davis", fence),
            data_of(replace(RUN, fence=fence, stop=START + timedelta(hours=fence))),
        )
        for fence in range(1, count + 1)
    ]
    for row in rows:
        await scene.table.table.commit(scene.other.partition("davis"), [row])
    scene.later(hours=count)


async def forgotten(scene: Scene) -> None:
    for row in await scene.rows("run:"):
        await scene.table.table.commit(scene.other.partition("davis"), [Delete(row.key, row.etag)])


@story
async def test_pruning_keeps_the_newest(scene: Scene) -> None:
    await history(scene, 30)
    assert await prune(scene.board, "davis", retention=TEN) == 20
    assert [run.fence for run in await scene.runs()] == list(range(30, 20, -1))
    assert await prune(scene.board, "davis", retention=TEN) == 0
    await forgotten(scene)


@story
async def test_pruning_a_long_history_takes_several_batches(scene: Scene) -> None:
    await history(scene, 30)
    scene.table.max_rows = 8
    assert await prune(scene.board, "davis", retention=TEN) == 20
    assert [len(batch) for batch in scene.table.batches[1:]] == [8, 8, 4]
    await forgotten(scene)


@story
async def test_who_prunes_at_the_same_time_leaves_it_to_the_other(scene: Scene) -> None:
    await history(scene, 12)

    async def another_is_faster() -> None:
        await prune(scene.other, "davis", retention=TEN)

    scene.table.script(another_is_faster)
    assert await prune(scene.board, "davis", retention=TEN) == 0
    scene.table.script(Fault.NEVER)
    assert await prune(scene.board, "davis", retention=Retention(runs=3)) == 0
    assert len(await scene.runs()) == 10
    await forgotten(scene)
