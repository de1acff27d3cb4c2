"""Many items of one type are made sure of at once: those that are not there are added."""

from functools import partial

import pytest

from blackboard.model import State
from blackboard.protocol.additions import ensure
from blackboard.protocol.edits import remove
from blackboard.protocol.keys import item_key
from blackboard.table import ANY, Delete, Insert
from tests.support.boards import Scene, disagreements, story
from tests.support.faults import Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

IDS = [f"part-{number:03}" for number in range(120)]


@story
async def test_what_is_missing_is_added_many_in_a_batch_and_the_rest_is_left(
    scene: Scene,
) -> None:
    await ensure(scene.board, IDS[:3], "plain")
    first = await scene.board.item(IDS[0])
    before = scene.table.requests.commits
    await ensure(scene.board, IDS, "plain")
    assert scene.table.requests.commits - before <= 4
    assert await scene.board.item(IDS[0]) == first
    assert [item.id async for item in scene.board.items()] == IDS
    before = scene.table.requests.commits
    await ensure(scene.board, IDS, "plain")
    assert scene.table.requests.commits == before
    assert await disagreements(scene.board) == []


@story
async def test_one_that_was_removed_begins_a_new_life_beside_the_new_ones(scene: Scene) -> None:
    await ensure(scene.board, IDS[:4], "plain")
    await remove(scene.board, IDS[1])
    await ensure(scene.board, IDS[:8], "plain")
    items = [item async for item in scene.board.items()]
    assert [item.id for item in items] == IDS[:8]
    assert {item.state for item in items} == {State.ACTIVE}
    assert items[1].born == 1
    assert await disagreements(scene.board) == []


@story
async def test_a_batch_that_lost_its_race_or_its_answer_is_made_good(scene: Scene) -> None:
    scene.table.script(Fault.LOST)
    await ensure(scene.board, IDS[:5], "plain")
    scene.table.script(partial(ensure, scene.other, IDS[6:8], "plain"))
    await ensure(scene.board, IDS[:9], "plain")
    assert [item.id async for item in scene.board.items()] == IDS[:9]
    assert await disagreements(scene.board) == []


@pytest.mark.of_one_store("the row is read above the store")
@story
async def test_a_row_that_becomes_unreadable_meanwhile_is_named_and_the_others_are_added(
    scene: Scene,
) -> None:
    """Another program writes it just before the batch."""
    bad = Insert(item_key(IDS[0]), {"x": 1})
    partition = scene.board.partition(IDS[0])
    scene.table.script(partial(scene.table.table.commit, partition, [bad]))
    left = await ensure(scene.board, IDS[:3], "plain")
    assert list(left) == IDS[:1]
    assert "cannot be read" in left[IDS[0]]
    assert [item.id async for item in scene.board.items()] == IDS[1:3]
    await scene.table.table.commit(partition, [Delete(bad.key, ANY)])
