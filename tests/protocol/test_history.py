"""Which runs are kept."""

from datetime import timedelta
from typing import Any

import pytest

from blackboard.doctor import Examination, examine
from blackboard.model import VERSION, Item, Outcome, State, replace
from blackboard.protocol import keys
from blackboard.protocol.board_table import PAGE
from blackboard.protocol.edits import cancel, pause, remove
from blackboard.protocol.retention import (
    HISTORIES,
    Pruned,
    Retention,
    is_kept,
    needs_pruning,
    prune,
    prune_all,
    prune_unreleased,
    prunes_after,
)
from blackboard.protocol.rows import data_of
from blackboard.table import ANY, Delete, Insert, Merge
from tests.support import plans
from tests.support.boards import Scene, story
from tests.support.clocks import START
from tests.support.faults import Fault
from tests.support.plans import item as an_item

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

RUN = replace(plans.RUN, slot=START, start=START, stop=START)
TEN = Retention(runs=10, age=timedelta(days=7))


def test_no_run_is_shorter_than_nothing() -> None:
    """A clock that was put back ended it before it began."""
    assert replace(RUN, stop=START + timedelta(seconds=5)).duration == 5
    assert replace(RUN, stop=START - timedelta(days=365)).duration == 0


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
    assert prunes_after(fence, retention=Retention(runs=runs)) is looks


@pytest.mark.parametrize(
    ("fence", "attempt", "looks"), [(17, 2, True), (17, 1, False), (18, 2, False), (18, 3, True)]
)
def test_the_fences_of_the_attempts_before_count(fence: int, attempt: int, *, looks: bool) -> None:
    assert prunes_after(fence, attempt=attempt, retention=Retention()) is looks


@pytest.mark.parametrize(
    ("attempt", "retries", "looks"), [(4, 0, True), (5, 0, False), (40, 0, False), (9, 8, True)]
)
def test_those_of_retries_that_its_handler_asks_for_do_not(
    attempt: int, retries: int, *, looks: bool
) -> None:
    """They were released, and none after the last takeover was abandoned."""
    assert prunes_after(19, attempt=attempt, retries=retries, retention=Retention()) is looks


@pytest.mark.parametrize(
    ("hours", "fence", "looks"),
    [(21, 96, True), (21, 16, False), (22, 16, True), (24 * 366 * 6000, 16, True)],
)
def test_runs_that_are_too_many_before_they_are_too_old_are_looked_at_seldom(
    hours: int, fence: int, *, looks: bool
) -> None:
    """90 days are 100 runs of 21.6 hours."""
    interval = timedelta(hours=hours)
    assert prunes_after(fence, retention=Retention(), interval=interval) is looks


async def history(scene: Scene, count: int) -> None:
    """Runs that ended an hour apart, the last just now; their item was added by itself."""
    scene.trust_clock()
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


@pytest.mark.of_each_store
@story
async def test_as_many_runs_are_read_as_are_asked_for_whatever_lies_between(scene: Scene) -> None:
    await history(scene, 6)
    bad = [Merge(keys.run_key("davis", fence), {"outcome": "soon"}, ANY) for fence in (5, 6)]
    await scene.table.table.commit(scene.board.partition("davis"), bad)
    for limit, fences in ((0, []), (3, [4, 3, 2]), (9, [4, 3, 2, 1]), (None, [4, 3, 2, 1])):
        assert [run.fence async for run in scene.board.runs("davis", limit=limit)] == fences
    assert len(scene.board.unreadable_runs) == 2
    await forgotten(scene)


# ---- histories that no release of their own looks at


async def runs_of(scene: Scene, item_id: str, count: int) -> None:
    for fence in range(1, count + 1):
        run = replace(RUN, id=item_id, fence=fence)
        row = Insert(keys.run_key(item_id, fence), data_of(run))
        await scene.table.table.commit(scene.other.partition(item_id), [row])


async def is_said(scene: Scene, item_id: str, **said: str) -> None:
    """Something that the item says of itself, as a worker has written it."""
    row = Merge(keys.item_key(item_id), said, ANY)
    await scene.table.table.commit(scene.other.partition(item_id), [row])


async def unlooked(scene: Scene) -> None:
    """Items of every kind, each with twenty runs that are too old; "e" is well."""
    for name in ("a", "b", "c", "d", "e"):
        await scene.add(name)
        await runs_of(scene, name, 20)
    await remove(scene.other, "a")
    await pause(scene.other, "b", scene.mark())
    for name in ("c", "d"):
        await is_said(scene, name, outcome="abandoned")
    await runs_of(scene, "nobody", 20)
    scene.later(days=8)


async def left_of(scene: Scene) -> dict[str, int]:
    names = ("a", "b", "c", "d", "e", "nobody")
    return {name: len(await scene.runs(name)) for name in names}


GONE = {"a": 0, "b": 0, "c": 0, "d": 0, "e": 20, "nobody": 0}


async def tidied(scene: Scene) -> None:
    """No history is left that its item knows nothing of."""
    for name in GONE:
        for row in [row async for row in scene.table.table.scan(scene.board.partition(name))]:
            if row.key.startswith(keys.RUN):
                gone = [Delete(row.key, row.etag)]
                await scene.table.table.commit(scene.board.partition(name), gone)


async def no_pause() -> None:
    """Time stands still."""


async def housekept(scene: Scene, **retention: Any) -> Pruned:
    scene.trust_clock()
    said = {"runs": 10, "age": timedelta(days=7), **retention}
    return await prune_unreleased(scene.board, retention=Retention(**said), pause=no_pause)


@pytest.mark.of_each_store
@story
async def test_histories_that_no_release_prunes_are_pruned(scene: Scene) -> None:
    await unlooked(scene)
    assert await housekept(scene) == Pruned(runs=80)
    assert await left_of(scene) == {**dict.fromkeys("abcd", 0), "e": 20, "nobody": 20}
    assert (await scene.item("a")).state is State.REMOVED, "its fence is kept"
    assert await housekept(scene) == Pruned()
    await tidied(scene)


@story
async def test_a_row_that_cannot_be_read_is_not_in_the_way_of_others(scene: Scene) -> None:
    await unlooked(scene)
    bad = [Merge(keys.run_key("a", 20), {"outcome": "soon"}, ANY)]
    await scene.table.table.commit(scene.board.partition("a"), bad)
    assert await housekept(scene) == Pruned(runs=79)
    assert [row.key for row in await scene.rows("run:a:")] == [keys.run_key("a", 20)]
    await tidied(scene)


@story
async def test_runs_of_a_newer_version_are_left_alone(scene: Scene) -> None:
    await unlooked(scene)
    newer = [Merge(keys.run_key("a", 7), {"version": VERSION + 1}, ANY)]
    await scene.table.table.commit(scene.board.partition("a"), newer)
    assert await housekept(scene) == Pruned(runs=79)
    await examine(scene.board, Examination(retention=TEN, repair=True))
    assert [run.fence for run in await scene.runs("a")] == [7]
    await tidied(scene)


@story
async def test_a_repair_prunes_every_history_by_number_alone(scene: Scene) -> None:
    """It has not watched the clock, which may be a year ahead."""
    await unlooked(scene)
    scene.later(days=365)
    told = await examine(scene.board, Examination(retention=TEN))
    assert "history" not in {one.code for one in told.findings}
    assert sum((await left_of(scene)).values()) == 120
    mended = await examine(scene.board, Examination(retention=TEN, repair=True))
    (found,) = [one for one in mended.findings if one.code == "history"]
    assert (found.problem, found.repaired) == ("60 runs more than are kept", True)
    assert set((await left_of(scene)).values()) == {10}
    assert (await scene.item("a")).state is State.REMOVED
    again = await examine(scene.board, Examination(retention=TEN, repair=True))
    assert "history" not in {one.code for one in again.findings}
    await tidied(scene)


@story
async def test_a_foreign_row_hides_no_history_from_a_repair(scene: Scene) -> None:
    await unlooked(scene)
    foreign = [Insert(f"{keys.RUN}{one}", {"x": 1}) for one in ("=", "b", "ba:c")]
    await scene.table.table.commit(scene.board.shard(0), foreign)
    assert await prune_all(scene.board, retention=TEN) == 60
    await scene.table.table.commit(scene.board.shard(0), [Delete(one.key, ANY) for one in foreign])
    await tidied(scene)


async def all_cancelled(scene: Scene) -> None:
    """Twelve runs, two hours apart, each cancelled."""
    await scene.add("davis", every="1h")
    for _ in range(12):
        scene.later(hours=2)
        made = await scene.claimed("davis")
        await cancel(scene.other, "davis", scene.mark(), fence=made.fence)


@pytest.mark.of_one_store("which histories are pruned is judged above the store")
@story
async def test_the_history_of_an_item_whose_runs_are_all_cancelled_is_pruned(
    scene: Scene,
) -> None:
    await all_cancelled(scene)
    scene.later(hours=2)
    assert await housekept(scene) == Pruned(runs=2)


@pytest.mark.of_one_store("which runs are kept is judged above the store")
@story
async def test_a_program_that_has_not_watched_the_clock_prunes_cancelled_runs_by_number(
    scene: Scene,
) -> None:
    """As of an election without a worker: each term that a leader resigns is cancelled."""
    await all_cancelled(scene)
    assert await prune(scene.board, "davis", retention=TEN) == 2
    scene.later(days=365)
    assert await prune(scene.board, "davis", retention=TEN) == 0


@pytest.mark.of_each_store
@story
async def test_what_a_late_finisher_comes_back_to_outlasts_a_removal(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    await remove(scene.other, "davis")
    for hours, left in ((0, 1), (1, 0)):
        scene.later(hours=hours)
        await housekept(scene, runs=0)
        assert len(await scene.runs("davis")) == left


@story
async def test_the_pruning_of_items_without_a_history_takes_one_request(scene: Scene) -> None:
    """But for those that have one: each takes a request to find it and another to read it."""
    for number in range(8):
        await scene.add(f"item-{number}")
        await pause(scene.other, f"item-{number}", scene.mark())
    await runs_of(scene, "item-3", 12)
    await runs_of(scene, "item-5", 12)
    before = scene.table.requests.pages
    assert await housekept(scene) == Pruned(runs=4)
    found = len(["0 to 2", "3", "4", "5", "6 and 7"])
    assert scene.table.requests.pages - before == len(["items"]) + found + len(["3", "5"])
    await tidied(scene)


@pytest.mark.of_one_store("when it rests is decided above the store")
@story
async def test_the_coordinator_rests_once_for_many_short_histories(scene: Scene) -> None:
    """Of items that are paused, and of removed ones whose tombstones have expired."""
    names = [f"item-{number:02d}" for number in range(HISTORIES)]
    for name in names:
        await scene.add(name)
        await runs_of(scene, name, 1)
        await pause(scene.other, name, scene.mark())
    for name in names[10:]:
        await remove(scene.other, name)
    pauses = 0

    async def paused() -> None:
        nonlocal pauses
        pauses += 1

    scene.later(days=100)
    scene.trust_clock()
    pruned = await prune_unreleased(scene.board, retention=Retention(), pause=paused)
    assert (pruned.runs, pruned.tombstones) == (HISTORIES, HISTORIES - 10)
    assert pauses == len(["histories of items", "those of tombstones", "before the deletion"])


@pytest.mark.of_one_store("when it rests is decided above the store")
@story
async def test_the_coordinator_rests_as_often_where_histories_are_long(scene: Scene) -> None:
    names = [f"item-{number}" for number in range(8)]
    for name in names:
        await scene.add(name)
        await runs_of(scene, name, 140)
        await pause(scene.other, name, scene.mark())
    pauses = 0

    async def paused() -> None:
        nonlocal pauses
        pauses += 1

    pruned = await prune_unreleased(scene.board, retention=TEN, pause=paused)
    assert pruned.runs == 8 * 130
    assert pauses > 8 * 140 // PAGE
    await tidied(scene)


@story
async def test_an_id_that_begins_as_another_hides_no_history(scene: Scene) -> None:
    """Items and their runs are not in the same order there."""
    names = ("a", "a-b", "a.c")
    for name in names:
        await scene.add(name)
        await pause(scene.other, name, scene.mark())
        await runs_of(scene, name, 12)
    assert await housekept(scene) == Pruned(runs=6)
    assert [len(await scene.runs(name)) for name in names] == [10, 10, 10]
    await tidied(scene)


@pytest.mark.of_one_store("which histories are read is judged above the store")
@story
async def test_an_item_that_has_run_once_is_pruned_when_its_run_is_too_old(scene: Scene) -> None:
    await scene.add("davis", at="2026-11-21 09:00")
    await scene.let_go(await scene.claimed("davis"))
    assert (await scene.item()).state is State.DONE
    pauses = 0

    async def paused() -> None:
        nonlocal pauses
        pauses += 1

    scene.trust_clock()
    for days, left, so_far in ((7, 1, 0), (0.1, 0, 1)):
        scene.later(days=days)
        await prune_unreleased(scene.board, retention=TEN, pause=paused)
        assert (len(await scene.runs()), pauses) == (left, so_far)


def well(**said: Any) -> Item:
    return replace(an_item(start=START), **{"failures": 0, **said})


def is_left(item: Item, *, hours: float = 0) -> bool:
    """Whether an item is left to prune itself so long after its last start, where runs are kept for
    sixteen days.
    """
    retention = Retention(age=timedelta(days=16))
    return not needs_pruning(item, retention=retention, now=START + timedelta(hours=hours))


def test_an_item_that_is_well_prunes_itself() -> None:
    assert is_left(well())
    for state in (State.PAUSED, State.DONE, State.REMOVED):
        assert not is_left(well(state=state))


def test_an_item_that_runs_too_seldom_to_prune_itself_in_time_is_left_to_the_coordinator() -> None:
    """Its sixteenth run comes when the first is too old, or no run comes at all."""
    assert is_left(well(), hours=24)
    assert not is_left(well(), hours=24.1)
    tomorrow = replace(well(), ready=START + timedelta(days=1))
    assert is_left(tomorrow)
    assert not is_left(replace(tomorrow, ready=START + timedelta(days=1.1)))
    assert is_left(well(start=None, fence=0), hours=999)
    assert not is_left(well(start=None, fence=7)), "it has the history of an earlier life"


@pytest.mark.of_each_store
@story
async def test_the_runs_of_an_item_that_runs_once_a_month_are_pruned_for_their_age(
    scene: Scene,
) -> None:
    await scene.add("davis", every="30d")
    for _ in range(3):
        await scene.let_go(await scene.claimed("davis"))
        scene.later(days=30)
    assert await housekept(scene, age=timedelta(days=40)) == Pruned(runs=2)
    assert [run.fence for run in await scene.runs("davis")] == [3]
