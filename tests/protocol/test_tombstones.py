"""Tombstones are deleted when their time is up; fences go on to rise, and no new life is harmed."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from blackboard.doctor import Examination, examine
from blackboard.errors import BadInput, BadRow
from blackboard.model import LARGEST, VERSION, Item, State, replace
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add, ensure
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import remove
from blackboard.protocol.releases import ReleaseOutcome
from blackboard.protocol.rename import rename
from blackboard.protocol.retention import (
    Pruned,
    Retention,
    delete_tombstones,
    is_expired,
    prune_unreleased,
    raise_floor,
)
from blackboard.rules.applied import REMEMBERED
from blackboard.spec import Spec
from blackboard.table import ANY, Delete, Insert, Merge, TableError, Unavailable, Unknown, Value
from tests.support.boards import Scene, story
from tests.support.clocks import START
from tests.support.faults import Fault
from tests.support.plans import item as an_item

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

HOURLY = Retention(tombstones=timedelta(hours=1))
MINUTE = timedelta(minutes=1)
META = keys.meta_partition("town")


async def no_pause() -> None:
    """Time stands still."""


async def housekept(board: BoardTable) -> Pruned:
    board.clock_proven_in = lambda: 0.0
    return await prune_unreleased(board, retention=HOURLY, pause=no_pause)


async def a_life(scene: Scene, item_id: str = "davis", *, runs: int = 2) -> Item:
    """An item that has run, and was removed. Returns its tombstone."""
    await scene.add(item_id)
    for _ in range(runs):
        await scene.let_go(await scene.claimed(item_id, board=scene.other), board=scene.other)
        scene.later(hours=1)
    await remove(scene.other, item_id)
    return await scene.item(item_id)


async def added_anew(scene: Scene, item_id: str = "davis") -> Item:
    """By another process."""
    return (await add(scene.other, New(id=item_id, type="feed", spec=Spec(every="1h")))).item


async def is_gone(scene: Scene, item_id: str = "davis") -> bool:
    return await scene.other.item(item_id) is None


# ---- when


def tombstone(**said: object) -> Item:
    made = replace(an_item(start=START), state=State.REMOVED, stop=START)
    return replace(made, **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("age", "kept", "expired"),
    [
        (timedelta(hours=1), timedelta(hours=1), False),
        (timedelta(hours=1, seconds=1), timedelta(hours=1), True),
        (REMEMBERED, timedelta(seconds=1), False),
        (REMEMBERED + MINUTE, timedelta(seconds=1), True),
        (-MINUTE, timedelta(hours=1), False),
    ],
)
def test_a_tombstone_outlasts_its_time_and_the_names_of_requests(
    age: timedelta, kept: timedelta, *, expired: bool
) -> None:
    gone = tombstone()
    assert gone.stop is not None
    retention = Retention(tombstones=kept)
    assert is_expired(gone, retention=retention, now=gone.stop + age) is expired


@pytest.mark.parametrize("said", [{"state": State.DONE}, {"version": VERSION + 1}, {"stop": None}])
def test_nothing_else_expires(said: dict[str, object]) -> None:
    gone = tombstone()
    assert gone.stop is not None
    late = gone.stop + timedelta(days=1000)
    assert is_expired(gone, retention=HOURLY, now=late)
    assert not is_expired(tombstone(**said), retention=HOURLY, now=late)


# ---- what goes, and what stays


@story
async def test_a_tombstone_goes_with_its_history_when_its_time_is_up(scene: Scene) -> None:
    await a_life(scene)
    await scene.add("elko")
    assert await housekept(scene.board) == Pruned()
    scene.later(hours=1, seconds=1)
    assert await housekept(scene.board) == Pruned(runs=2, tombstones=1)
    assert await is_gone(scene)
    assert await scene.runs() == []
    assert [row.data["item"] for row in await scene.rows()] == ["elko", "elko"]


@story
async def test_fences_rise_over_a_deleted_tombstone(scene: Scene) -> None:
    """Also those of other ids: the board keeps the highest alone."""
    first = await a_life(scene, runs=3)
    await a_life(scene, "elko", runs=1)
    scene.later(hours=2)
    assert (await housekept(scene.board)).tombstones == 2
    assert await scene.other.floor() == first.fence == 4
    for name in ("davis", "elko", "new"):
        made = await added_anew(scene, name)
        assert (made.fence, made.born) == (4, 4)
        assert (await scene.claimed(name)).fence == 5


@story
async def test_fences_rise_where_another_item_gets_the_id_of_a_deleted_tombstone(
    scene: Scene,
) -> None:
    await a_life(scene, runs=3)
    await added_anew(scene, "elko")
    scene.later(hours=2)
    assert (await housekept(scene.board)).tombstones == 1
    made = (await rename(scene.board, "elko", "davis", scene.mark())).item
    assert (made.fence, made.born) == (4, 4)


@story
async def test_the_floor_never_falls(scene: Scene) -> None:
    for runs, floor in ((3, 4), (0, 5), (0, 6)):
        await a_life(scene, f"life-{runs}-{floor}", runs=runs)
        scene.later(hours=2)
        await housekept(scene.board)
        assert await scene.other.floor() == floor, "a new id begins with the floor"


@story
async def test_a_run_of_a_life_whose_tombstone_is_gone_is_dropped(scene: Scene) -> None:
    """It comes back into a new life of its id, and would have the fence of a run there."""
    await scene.add()
    late = await scene.claimed(owner="late")
    await remove(scene.other, "davis")
    scene.later(hours=2)
    assert (await housekept(scene.board)).tombstones == 1
    for _ in range(2):
        done = await scene.let_go(late, result="old")
        assert done.how is ReleaseOutcome.DROPPED
        if await is_gone(scene):
            await added_anew(scene)
    assert (await scene.item()).result == ""
    assert await scene.runs() == []


@pytest.mark.of_each_store
@story
async def test_many_go_in_few_batches(scene: Scene) -> None:
    names = [f"item-{number:03}" for number in range(30)]
    for name in names:
        await a_life(scene, name, runs=0)
    scene.later(hours=2)
    scene.table.max_rows = 20
    assert (await housekept(scene.board)).tombstones == 30
    deletions = [
        batch for batch in scene.table.batches if any(isinstance(op, Delete) for op in batch)
    ]
    assert [len(batch) for batch in deletions] == [20, 10]


@story
async def test_one_whose_history_is_of_a_newer_version_stays_and_the_others_go(
    scene: Scene,
) -> None:
    gone = await a_life(scene)
    await a_life(scene, "elko")
    key = keys.run_key("davis", 1)
    partition = scene.other.partition("davis")
    await scene.table.table.commit(partition, [Merge(key, {"version": VERSION + 1}, ANY)])
    scene.later(hours=2)
    assert await housekept(scene.board) == Pruned(runs=3, tombstones=1)
    assert await scene.item() == gone
    assert [row.key for row in await scene.rows("run:")] == [key]
    for row in await scene.rows("run:"):
        await scene.table.table.commit(partition, [Delete(row.key, row.etag)])


@pytest.mark.of_one_store("rows are judged above the store")
@story
async def test_a_history_that_cannot_be_read_goes_with_its_tombstone(scene: Scene) -> None:
    await a_life(scene)
    damage = [Merge(keys.run_key("davis", 1), {"outcome": "soon"}, ANY)]
    await scene.table.table.commit(scene.other.partition("davis"), damage)
    scene.later(hours=2)
    assert await housekept(scene.board) == Pruned(runs=2, tombstones=1)
    assert await scene.rows() == []


@pytest.mark.of_one_store("rows are judged above the store")
@story
async def test_a_tombstone_above_whose_fence_nothing_could_be_added_stays(scene: Scene) -> None:
    await a_life(scene)
    high = [Merge(keys.item_key("davis"), {"fence": LARGEST}, ANY)]
    await scene.table.table.commit(scene.other.partition("davis"), high)
    scene.later(hours=2)
    assert (await housekept(scene.board)).tombstones == 0
    assert await scene.other.floor() == 0
    assert [one.code for one in (await examine(scene.other, Examination())).findings] == ["D12"]
    with pytest.raises(BadInput, match="'davis' has used up its fences"):
        await scene.add()
    await scene.add("elko")


@story
async def test_a_tombstone_of_a_newer_version_is_left_alone(scene: Scene) -> None:
    await a_life(scene, runs=0)
    newer: dict[str, Value] = {"version": VERSION + 1}
    change = [Merge(keys.item_key("davis"), newer, ANY)]
    await scene.table.table.commit(scene.other.partition("davis"), change)
    scene.later(days=1000)
    assert await housekept(scene.board) == Pruned()


# ---- races


async def deleting(scene: Scene, tombstones: Sequence[Item]) -> Pruned:
    return await delete_tombstones(scene.board, tombstones, pause=no_pause)


@pytest.mark.parametrize("batch", [0, 1, 2])
@story
async def test_one_that_is_made_an_item_again_meanwhile_stays(scene: Scene, batch: int) -> None:
    """Before its history goes, before the floor is raised, before the tombstone goes."""
    gone = await a_life(scene)
    other = await a_life(scene, "elko", runs=0)
    scene.later(hours=2)

    async def again() -> None:
        await added_anew(scene)
        await scene.let_go(await scene.claimed(board=scene.other), board=scene.other)

    scene.table.script(*[Fault.NONE] * batch, again)
    assert await deleting(scene, [gone, other]) == Pruned(runs=2, tombstones=1)
    item = await scene.item()
    assert (item.state, item.born, item.fence) == (State.ACTIVE, gone.fence, gone.fence + 1)
    assert [run.fence for run in await scene.runs()] == [gone.fence + 1], "the new row is there"
    assert await is_gone(scene, "elko")


@pytest.mark.of_each_store
@story
async def test_one_that_was_an_item_again_before_keeps_the_history_of_that(scene: Scene) -> None:
    """A coordinator that stood still has read the tombstone long ago."""
    gone = await a_life(scene)
    await added_anew(scene)
    await scene.let_go(await scene.claimed())
    scene.later(hours=2)
    assert await deleting(scene, [gone]) == Pruned(runs=2)
    assert [run.fence for run in await scene.runs()] == [gone.fence + 1]
    await remove(scene.other, "davis")
    assert await deleting(scene, [gone]) == Pruned(), "it is another tombstone"
    assert (await scene.item()).state is State.REMOVED


@pytest.mark.of_each_store
@story
async def test_a_deletion_that_lands_late_deletes_no_new_item(scene: Scene) -> None:
    gone = await a_life(scene, runs=0)
    scene.later(hours=2)
    scene.table.script(Fault.NONE, Fault.LATE)
    assert await deleting(scene, [gone]) == Pruned()
    await added_anew(scene)
    assert await scene.table.land() == [False]
    assert (await scene.item()).state is State.ACTIVE


@story
async def test_two_at_once_do_no_harm(scene: Scene) -> None:
    for name in ("davis", "elko", "fresno"):
        await a_life(scene, name)
    scene.later(hours=2)

    async def another() -> None:
        assert (await housekept(scene.other)).tombstones == 3

    scene.table.script(Fault.NONE, another)
    done = await housekept(scene.board)
    assert done.tombstones == 0
    assert await scene.rows() == []
    assert (await added_anew(scene)).born == 3


@story
async def test_an_addition_that_misses_the_tombstone_reads_the_floor_after_it(
    scene: Scene,
) -> None:
    """The tombstone is there when the addition begins, and is gone when it is written."""
    gone = await a_life(scene)
    scene.later(hours=2)

    async def another() -> None:
        await housekept(scene.other)

    scene.table.script(another)
    made = await add(scene.board, New(id="davis", type="feed", spec=Spec(every="1h")))
    assert (made.item.born, made.item.fence) == (gone.fence, gone.fence)


@story
async def test_many_that_are_ensured_at_once_begin_at_the_floor(scene: Scene) -> None:
    await a_life(scene, "part-0")
    scene.later(hours=2)
    await housekept(scene.board)
    gone = await a_life(scene, "part-1", runs=3)
    scene.later(hours=2)

    async def another() -> None:
        await housekept(scene.other)

    scene.table.script(another)
    await ensure(scene.board, ["part-0", "part-1", "part-2"], "feed")
    born = {item.id: item.born async for item in scene.other.items()}
    assert born["part-1"] == gone.fence
    assert born["part-0"] == born["part-2"] >= 3


# ---- a store that does not answer


@pytest.mark.of_each_store
@story
async def test_of_two_who_raise_the_floor_at_a_time_the_lower_does_not_win(scene: Scene) -> None:
    """One stands still between its reading and its write."""
    await raise_floor(scene.board, 3)
    scene.table.script(lambda: raise_floor(scene.other, 20))
    await raise_floor(scene.board, 10)
    assert await scene.other.floor() == 20


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE])
@story
async def test_a_floor_without_an_answer_is_read_before_anything_is_deleted(
    scene: Scene, fault: Fault
) -> None:
    gone = await a_life(scene, runs=0)
    scene.later(hours=2)
    scene.table.script(fault)
    assert await deleting(scene, [gone]) == Pruned(tombstones=1)
    await scene.table.land()
    assert await scene.other.floor() == gone.fence


@pytest.mark.of_each_store
@pytest.mark.parametrize(("fault", "trouble"), [(Fault.AWAY, Unavailable), (Fault.NEVER, Unknown)])
@story
async def test_a_floor_that_cannot_be_raised_keeps_the_tombstone(
    scene: Scene, fault: Fault, trouble: type[TableError]
) -> None:
    gone = await a_life(scene, runs=0)
    scene.later(hours=2)
    scene.table.script(*[fault] * (1 if fault is Fault.AWAY else 5))
    with pytest.raises(trouble):
        await deleting(scene, [gone])
    assert await scene.item() == gone


@pytest.mark.parametrize("fence", ["high", -1, 10**12 - 10**9, 10**12, 2**53])
@story
async def test_a_floor_that_cannot_be_read_adds_and_deletes_nothing(
    scene: Scene, fence: str | int
) -> None:
    gone = await a_life(scene, runs=0)
    scene.later(hours=2)
    await scene.table.table.commit(META, [Insert(keys.FLOOR_KEY, {"fence": fence})])
    done = await deleting(scene, [gone])
    assert done.tombstones == 0
    assert "row floor: no good fence" in str(done.in_the_way)
    with pytest.raises(BadRow, match="floor"):
        await scene.add("new")
    assert await scene.item() == gone
    (found,) = (await examine(scene.other, Examination())).findings
    assert (found.code, found.subject, found.grave) == ("D7", "floor", True)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_a_deletion_without_an_answer_is_found_out_the_next_time(
    scene: Scene, fault: Fault
) -> None:
    await a_life(scene, runs=0)
    scene.later(hours=2)
    scene.table.script(Fault.NONE, fault)
    assert await housekept(scene.board) == Pruned()
    again = await housekept(scene.board)
    assert again.tombstones == (fault is Fault.NEVER)
    assert await is_gone(scene)
