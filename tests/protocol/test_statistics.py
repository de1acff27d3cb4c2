"""The statistics of a board: counted from its rows, and kept in one."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from blackboard.model import VERSION, Statistics, TypeCounts, replace
from blackboard.protocol import keys
from blackboard.protocol.board_table import PAGE
from blackboard.protocol.edits import pause, remove
from blackboard.protocol.status import count, read_statistics, write_statistics
from blackboard.rules.status import CURRENT
from blackboard.table import ANY, Insert, Merge, Value
from tests.support.boards import Scene, story
from tests.support.clocks import START
from tests.support.faults import Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

META = keys.meta_partition("town")
TEN = Statistics(at=START, by="me", term=3, took=0.5, items=10)


async def read(scene: Scene) -> Statistics | None:
    found = await read_statistics(scene.other)
    return found and replace(found, etag="")


async def change(scene: Scene, **columns: Value) -> None:
    await scene.table.table.commit(META, [Merge(keys.STATS_KEY, columns, ANY)])


@story
async def test_the_items_of_a_board_are_counted(scene: Scene) -> None:
    for name in ("a", "b", "c", "d", "gone"):
        await scene.add(name, every="1h", stale_after="10s")
    await scene.add("e", item_type="shell", every="1h")
    for name in ("a", "b"):
        await scene.claimed(name)
    scene.later(minutes=2)
    await scene.claimed("c")
    await pause(scene.other, "d", scene.mark())
    await remove(scene.other, "gone")
    counted = await count(scene.board, by="me", term=2)
    assert (counted.items, counted.active, counted.paused) == (5, 4, 1)
    assert (counted.running, counted.stale, counted.overdue) == (3, 2, 1)
    assert [(one.type, one.items) for one in counted.by_type] == [("feed", 4), ("shell", 1)]
    assert (counted.at, counted.by, counted.term) == (scene.clock.now(), "me", 2)
    assert counted.earliest == START


@pytest.mark.of_each_store
@story
async def test_a_lock_of_a_run_that_began_meanwhile_is_not_taken_for_stale(scene: Scene) -> None:
    await scene.add("a", every="1h", stale_after="10s")
    made = await scene.claimed("a")
    await scene.let_go(made)
    scene.later(hours=1)

    async def claimed_and_silent() -> None:
        await scene.claimed("a", board=scene.other)
        scene.later(minutes=1)

    scene.table.script_reads(claimed_and_silent)
    counted = await count(scene.board)
    assert (counted.running, counted.stale) == (1, 1)
    assert scene.table.quiet


@pytest.mark.of_each_store
@story
async def test_statistics_are_read_as_they_were_written(scene: Scene) -> None:
    assert await read(scene) is None
    await scene.add()
    counted = await count(scene.board, by="me", term=1)
    assert await write_statistics(scene.board, counted)
    assert await read(scene) == counted
    scene.later(minutes=5)
    again = await count(scene.board, by="me", term=1)
    assert await write_statistics(scene.board, again)
    assert await read(scene) == again != counted


@pytest.mark.of_each_store
@story
async def test_statistics_over_those_of_the_same_worker_are_one_request(scene: Scene) -> None:
    first = await write_statistics(scene.board, TEN)
    pages = scene.table.requests.pages
    second = await write_statistics(scene.board, replace(TEN, items=11), over=first)
    assert second is not None
    assert (scene.table.requests.pages, second.items) == (pages, 11)
    await write_statistics(scene.other, replace(TEN, items=12, term=4))
    assert await write_statistics(scene.board, replace(TEN, items=13), over=second) is None
    assert (await read(scene) or TEN).items == 12


@story
async def test_a_late_coordinator_writes_over_no_later_term(scene: Scene) -> None:
    assert await write_statistics(scene.other, TEN)
    assert not await write_statistics(scene.board, replace(TEN, term=2, items=9))
    assert await read(scene) == TEN
    old = replace(TEN, term=2, items=9, at=START + CURRENT + timedelta(seconds=1))
    assert await write_statistics(scene.board, old), "terms began anew, with the elections"
    assert await read(scene) == old


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE])
@story
async def test_of_two_that_write_at_once_one_is_left(scene: Scene, fault: Fault) -> None:
    await write_statistics(scene.other, replace(TEN, items=1))
    scene.table.script(partial(write_statistics, scene.other, replace(TEN, items=2)))
    assert not await write_statistics(scene.board, replace(TEN, items=3))
    assert (await read(scene) or TEN).items == 2
    scene.table.script(fault)
    assert not await write_statistics(scene.board, replace(TEN, items=4)), "nothing is known"
    await write_statistics(scene.other, replace(TEN, items=5))
    await scene.table.land()
    assert (await read(scene) or TEN).items == 5


@pytest.mark.of_each_store
@story
async def test_a_row_of_a_newer_version_is_neither_read_nor_written(scene: Scene) -> None:
    await write_statistics(scene.other, TEN)
    await change(scene, version=VERSION + 1)
    assert await read(scene) is None
    assert not await write_statistics(scene.board, replace(TEN, items=1))
    await change(scene, version=VERSION)
    assert await read(scene) == TEN


@story
async def test_a_row_that_cannot_be_read_is_written_anew(scene: Scene) -> None:
    bad = Insert(keys.STATS_KEY, {"items": "many"})
    await scene.table.table.commit(META, [bad])
    assert await read(scene) is None
    assert await write_statistics(scene.board, TEN)
    assert await read(scene) == TEN


@pytest.mark.of_each_store
@story
async def test_types_whose_names_are_too_long_for_a_row_are_left_out(scene: Scene) -> None:
    types = [TypeCounts(type=f"{number}" * 8_000, items=1) for number in range(10)]
    assert await write_statistics(scene.board, replace(TEN, by_type=tuple(types)))
    found = await read(scene)
    assert found is not None
    assert (found.items, found.by_type) == (10, tuple(types[:2]))


@pytest.mark.of_each_store
@story
async def test_counting_makes_a_pause_after_each_page_and_ends_when_that_raises(
    scene: Scene,
) -> None:
    await scene.fill(PAGE * 2 + 1)
    pauses = []

    async def counted_pause() -> None:
        pauses.append(scene.table.requests.pages)
        await asyncio.sleep(0)

    assert (await count(scene.board, pause=counted_pause)).items == PAGE * 2 + 1
    assert len(pauses) == 2

    async def over() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await count(scene.board, pause=over)
