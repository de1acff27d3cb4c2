"""Many items are added in few batches, and each of them as if it were alone."""

from functools import partial

import pytest

from blackboard.errors import BadInput, BadRow
from blackboard.model import Item, State
from blackboard.protocol.additions import New, add, add_many, add_missing, ensure
from blackboard.protocol.edits import edit, remove
from blackboard.protocol.keys import FLOOR_KEY, item_key, meta_partition
from blackboard.spec import RunSettings, Spec
from blackboard.table import ANY, Delete, Insert, Merge
from tests.support.boards import Scene, disagreements, story
from tests.support.faults import Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

IDS = [f"item-{number:03}" for number in range(120)]


def new(*ids: str) -> list[New]:
    return [New(id=one, type="feed", spec=Spec(every="1h"), declared_by="ann") for one in ids]


async def ids_of(scene: Scene) -> list[str]:
    return sorted([item.id async for item in scene.other.items()])


@story
async def test_many_items_are_added_in_few_batches_and_are_as_if_added_alone(scene: Scene) -> None:
    done: list[Item] = []
    before = scene.table.requests.commits
    await add_many(scene.board, new(*IDS), tombstones={}, on_added=done.extend)
    assert scene.table.requests.commits - before <= 4
    assert sorted(one.id for one in done) == sorted(IDS)
    assert await ids_of(scene) == IDS
    alone = await scene.add("alone", every="1h")
    many = await scene.item(IDS[5])
    same = ("type", "state", "spec", "schedule", "fence", "born")
    assert [getattr(many, name) for name in same] == [getattr(alone, name) for name in same]
    assert many.declared_by == "ann"
    assert await disagreements(scene.board) == []


@story
async def test_an_item_that_is_there_is_refused_and_the_others_of_its_batch_are_added(
    scene: Scene,
) -> None:
    taken = await scene.add("item-004", every="3h")
    with pytest.raises(BadInput, match="item-004"):
        await add_many(scene.board, new(*IDS[:5]), tombstones={})
    assert await ids_of(scene) == IDS[:5]
    assert await scene.item("item-004") == taken
    await ensure(scene.board, IDS[4:9], "feed")
    assert await ids_of(scene) == IDS[:9]
    assert await scene.item("item-004") == taken
    assert await disagreements(scene.board) == []


@story
async def test_those_that_are_missing_are_added_also_where_another_process_adds_some_meanwhile(
    scene: Scene,
) -> None:
    there = await scene.add("item-001", every="3h")
    await scene.add("item-002")
    await remove(scene.other, "item-002")

    async def another_is_faster() -> None:
        await add(scene.other, New(id="item-003", type="feed", spec=Spec(every="3h")))

    scene.table.script(another_is_faster)
    done: list[Item] = []
    assert await add_missing(scene.board, new(*IDS[:6]), on_added=done.extend) == {}
    assert sorted(one.id for one in done) == ["item-000", "item-002", "item-004", "item-005"]
    assert await ids_of(scene) == IDS[:6]
    assert await scene.item("item-001") == there
    assert (await scene.item("item-003")).declared_by == ""
    assert await disagreements(scene.board) == []


@story
async def test_a_few_items_are_added_without_a_reading_of_the_board(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_many(scene.board, new(*IDS[:9]), tombstones={})
    await remove(scene.board, IDS[0])
    monkeypatch.setattr(scene.board, "items", None)
    done: list[Item] = []
    assert await add_missing(scene.board, new("another", *IDS[:2]), on_added=done.extend) == {}
    assert {item.id: item.fence for item in done} == {"another": 0, IDS[0]: 1}
    assert await disagreements(scene.other) == []


@pytest.mark.of_each_store
@story
async def test_a_batch_without_an_answer_adds_each_item_once(scene: Scene) -> None:
    some = {Fault.LOST: IDS[:3], Fault.NEVER: IDS[3:6], Fault.TWICE: IDS[6:9]}
    for fault, ids in some.items():
        scene.table.script(fault)
        await add_many(scene.board, new(*ids), tombstones={})
    assert await ids_of(scene) == IDS[:9]
    assert {item.fence async for item in scene.board.items()} == {0}
    assert await disagreements(scene.board) == []


@pytest.mark.of_each_store
@story
async def test_removed_items_begin_new_lives_in_the_same_batch(scene: Scene) -> None:
    await add_many(scene.board, new(*IDS[:6]), tombstones={})
    for one in IDS[:4]:
        await remove(scene.board, one)
    found = {item.id: item async for item in scene.board.items_and_tombstones(0)}
    tombstones = {one: item for one, item in found.items() if item.state is State.REMOVED}
    assert [*tombstones] == IDS[:4]
    scene.table.script(
        partial(add, scene.other, New(id=IDS[2], type="feed", spec=Spec(every="9h")))
    )
    with pytest.raises(BadInput, match=IDS[2]):
        await add_many(scene.board, new(*IDS[:4]), tombstones=tombstones)
    items = [item async for item in scene.board.items()]
    assert [(item.id, item.born) for item in items[:3]] == [(one, 1) for one in IDS[:3]]
    assert items[2].schedule == "every 9h"
    assert await disagreements(scene.board) == []


@pytest.mark.of_each_store
@story
async def test_a_row_that_is_in_the_way_is_named_and_the_others_are_added(scene: Scene) -> None:
    await add_many(scene.board, new(*IDS[:4]), tombstones={})
    for one in IDS[:4]:
        await remove(scene.board, one)
    partition = scene.other.partition(IDS[1])
    for one, data in ((IDS[1], {"fence": "high"}), (IDS[2], {"version": 2})):
        await scene.other.table.commit(partition, [Merge(item_key(one), data, ANY)])
    found = {item.id: item async for item in scene.board.items_and_tombstones(0)}
    done: list[Item] = []
    left = await add_many(scene.board, new(*IDS[:9]), tombstones=found, on_added=done.extend)
    assert [*left] == IDS[1:3]
    assert "no good fence" in left[IDS[1]]
    assert "newer version (upgrade blackboard)" in left[IDS[2]]
    assert [one.id for one in done] == await ids_of(scene) == [IDS[0], *IDS[3:9]]
    for one in IDS[1:3]:
        await scene.other.table.commit(partition, [Delete(item_key(one), ANY)])


@pytest.mark.of_each_store
@story
async def test_a_floor_that_cannot_be_read_is_named_once(scene: Scene) -> None:
    floor = Insert(FLOOR_KEY, {"fence": "high"})
    await scene.other.table.commit(meta_partition(scene.other.name), [floor])
    before = scene.table.requests.total
    with pytest.raises(BadRow, match="floor"):
        await add_many(scene.board, new(*IDS), tombstones={})
    assert scene.table.requests.total - before <= 2
    with pytest.raises(BadRow, match="floor"):
        await add_many(scene.board, new(IDS[0]), tombstones={})
    assert await ids_of(scene) == []


@story
async def test_what_others_add_meanwhile_costs_another_reading(scene: Scene) -> None:
    async def others() -> None:
        await ensure(scene.other, IDS[:80], "feed")

    scene.table.script(others)
    before = scene.table.requests.total
    await ensure(scene.board, IDS, "feed")
    assert scene.table.requests.total - before <= 12
    assert await ids_of(scene) == IDS


@pytest.mark.parametrize("name", ["town.clicks", "town.leaders"])
@pytest.mark.of_one_store("an item is refused above the store")
@story
async def test_nothing_is_added_to_what_workers_and_candidates_make(
    scene: Scene, name: str
) -> None:
    """They would serve it, though no program names it."""
    board = scene.board.group(name.partition(".")[2])
    refused = pytest.raises(BadInput, match=f"id: {name} has the (partitions|elections)")
    with refused:
        await add(board, New(id="x", type="clicks", spec=Spec()))
    with refused:
        await add_many(board, new("x"), tombstones={})
    await add_many(board, [], tombstones={})
    await ensure(board, ["a"], "clicks")
    assert [item.id async for item in board.items()] == ["a"]


@pytest.mark.of_one_store("an item is refused above the store")
@story
async def test_an_item_is_of_no_type_whose_partitions_workers_make(scene: Scene) -> None:
    """No worker runs it."""
    board = scene.board.using(resolve=lambda *_: RunSettings(endless=True))
    problem = "type: 'clicks' is a pump, .*--board town.clicks show`"
    with pytest.raises(BadInput, match=problem):
        await add(board, New(id="x", type="clicks", spec=Spec()))
    await scene.add("davis")
    with pytest.raises(BadInput, match=problem):
        await edit(board, "davis", lambda spec, _: spec, item_type="clicks")
    left = await add_many(board, [New(id="x", type="clicks", spec=Spec())], tombstones={})
    assert "'clicks' is a pump" in left["x"]
    await ensure(board.group("clicks"), ["a"], "clicks")
    assert await ids_of(scene) == ["davis"]
