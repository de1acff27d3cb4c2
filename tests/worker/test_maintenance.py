"""A board that is paused: nothing is claimed or taken over, and what runs goes on."""

import pytest

from blackboard.doctor import Examination, examine
from blackboard.events import BoardPaused, BoardResumed
from blackboard.model import Mark
from blackboard.protocol.board_pause import pause_board, paused_by, resume_board
from blackboard.worker.worker import Mode
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.workers import Workplace, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")


@with_workers
async def test_nothing_is_claimed_while_the_board_is_paused(place: Workplace, shards: int) -> None:
    for number in range(6):
        await place.add(f"item-{number}")
    await pause_board(place.other, place.mark("moving"))
    worker = await place.worker()
    await worker.walk()
    assert worker.order == []
    (paused,) = worker.of(BoardPaused)
    assert paused.reason == "moving"
    await resume_board(place.other)
    await worker.walk()
    for number in range(6):
        await worker.run(f"item-{number}")
    assert len(worker.of(BoardResumed)) == 1


test_nothing_is_claimed_while_the_board_is_paused = pytest.mark.parametrize("shards", [1, 3])(
    test_nothing_is_claimed_while_the_board_is_paused
)


@with_workers
async def test_what_runs_goes_on_and_is_released(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    run = await worker.run("davis")
    await pause_board(place.other, place.mark())
    await worker.walk()
    run.end()
    assert await place.ended("davis") == [(1, "ok")]
    place.later(hours=2)
    await worker.walk()
    assert len(worker.order) == 1


@pytest.mark.of_each_store
@with_workers
async def test_a_stale_lock_is_left_until_the_board_is_resumed(place: Workplace) -> None:
    await place.add("davis", every="1h", stale_after="3s")
    await place.claimed("davis", board=place.other, owner="dead")
    place.later(seconds=10)
    await pause_board(place.other, place.mark())
    worker = await place.worker()
    await worker.walk()
    assert worker.order == []
    assert (await place.lock()).owner == "dead"
    idle = await place.worker(Mode.UNTIL_IDLE, owner="you")
    await idle.ended()
    await resume_board(place.other)
    await worker.walk()
    await worker.run("davis")
    assert (await place.lock()).owner == "me"


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.TWICE])
@story
async def test_a_pause_is_made_whatever_gets_lost(scene: Scene, fault: Fault) -> None:
    scene.table.script(fault)
    assert await pause_board(scene.board, scene.mark("one"))
    assert not await pause_board(scene.board, scene.mark("two"))
    found = await paused_by(scene.other)
    assert isinstance(found, Mark)
    assert found.reason == "one"
    report = await examine(scene.other, Examination())
    assert report.findings == []
    scene.table.script(fault)
    assert await resume_board(scene.board)
    assert not await resume_board(scene.board)
    assert await paused_by(scene.other) is None
