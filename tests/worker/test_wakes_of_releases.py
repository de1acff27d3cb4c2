"""Who lets an item go knows when it is ready again, and comes for it in time."""

import asyncio
from collections.abc import Sequence

import pytest

from blackboard.events import RunEnded
from blackboard.model import Outcome
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.releases import FinishedRun, Landed, Released, Renewals, release
from blackboard.worker import release_queue as releases
from blackboard.worker.backlog import PAUSE_GROWTH
from tests.support.faults import Fault
from tests.support.workers import Workplace, until, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")


@with_workers
async def test_an_item_is_run_again_in_time_though_the_reply_to_its_release_was_lost(
    place: Workplace,
) -> None:
    await place.add("davis", every="5s", stale_after="10s")
    worker = await place.worker()
    running = await worker.run("davis")
    place.table.script(Fault.LOST)
    running.end()
    await until(lambda: worker.wake.wishes, "a wish")
    place.later(seconds=6)
    worker.wake.now()
    await worker.run("davis", 1)


@with_workers
async def test_a_release_that_took_long_makes_nothing_late(place: Workplace) -> None:
    """What is next counts from now, not from the end of the run."""
    await place.add("davis", every="20s", stale_after="40s")
    worker = await place.worker()
    running = await worker.run("davis")

    async def slowly() -> None:
        place.later(seconds=4)

    place.table.script(*[Fault.BUSY] * 3, slowly)
    running.end()
    for _ in range(100):
        await asyncio.sleep(0.001)
        if worker.wake.wishes:
            break
        place.later(seconds=0.5)
    left = (await place.token()).ready - place.clock.now()
    assert min(worker.wake.wishes) <= left.total_seconds() < 20


@with_workers
async def test_a_retry_of_ones_own_waits_for_nobody(place: Workplace) -> None:
    """However often others were faster: they do not know of it."""
    await place.add("davis", every="1h", retries=1, backoff="4s")
    worker = await place.worker()
    running = await worker.run("davis")
    for _ in range(5):
        worker.worker.walk.backlog.found_none(0, place.clock.monotonic())
    running.end(Outcome.FAILED, error="no answer")
    await until(lambda: worker.wake.wishes, "a wish")
    assert min(worker.wake.wishes) <= 4 < PAUSE_GROWTH
    place.later(seconds=4)
    worker.wake.now()
    await worker.run("davis", 1)


@with_workers
async def test_a_token_that_was_read_before_its_release_was_told_is_expected_once(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, it would be missing the second time, and a worker that is alone take others for
    faster.
    """
    await place.add("davis", every="5s", stale_after="60s")
    worker = await place.worker(slots=1)
    running = await worker.run("davis")

    async def read_before_it_is_told(
        board: BoardTable, finished: Sequence[FinishedRun], *, renewals: Renewals, landed: Landed
    ) -> list[Released]:
        assert landed is not None
        released = await release(board, finished, renewals=renewals)
        await worker.walk()
        return released

    monkeypatch.setattr(releases, "release", read_before_it_is_told)
    running.end()
    await worker.tells(RunEnded)
    monkeypatch.undo()
    place.later(seconds=6)
    worker.wake.now()
    (await worker.run("davis", 1)).end()
    await worker.tells(RunEnded, 2)
    place.later(seconds=6)
    worker.wake.now()
    await worker.run("davis", 2)
    assert worker.worker.walk.backlog._of[0].pause == 0
