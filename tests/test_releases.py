"""What has ended is let go in batches: who waits for that keeps its lock, and no slot longer."""

import asyncio
from collections.abc import Sequence

import pytest

from blackboard import keys, releases
from blackboard.board import Board
from blackboard.events import Kind
from blackboard.table import Merge, Op
from blackboard.verbs.finished import Finished, Released
from blackboard.verbs.history import Retention
from blackboard.verbs.release import release
from tests.working import Workplace, at_work, until


@at_work
async def test_a_run_that_has_ended_keeps_its_lock_until_it_is_written(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writing of another takes longer than a lease."""
    for item_id in ("first", "second"):
        await place.add(item_id, every="1h", stale_after="10s")
    worker = await place.worker(slots=2)
    first, second = await worker.run("first"), await worker.run("second")
    written = asyncio.Event()

    async def slowly(board: Board, finished: Sequence[Finished]) -> list[Released]:
        await written.wait()
        return await release(board, finished)

    monkeypatch.setattr(releases, "release", slowly)
    first.end()
    await until(lambda: any(held.releasing for held in worker.worker.holdings), "it is written")
    second.end()
    await until(lambda: worker.worker.releases.waiting, "the other waits")
    for renewals in range(1, 5):
        place.later(seconds=4)
        await until(lambda: len(renewed(place, "second")) == renewals, "a renewal")  # noqa: B023
        await until(lambda: not any(held.asking for held in worker.worker.holdings), "its answer")
    written.set()
    assert await place.ended("second") == [(1, "ok")]


def renewed(place: Workplace, item_id: str) -> list[Op]:
    key = keys.lock_key(item_id)
    sent = [op for batch in place.table.batches for op in batch]
    return [op for op in sent if isinstance(op, Merge) and op.key == key]


@at_work
async def test_pruning_keeps_no_slot(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = asyncio.Event()

    async def slowly(*_: object, **__: object) -> int:
        await pruned.wait()
        return 0

    monkeypatch.setattr(releases, "prune", slowly)
    await place.add("davis", every="5s", stale_after="60s")
    await place.add("elko")
    worker = await place.worker(slots=1, retention=Retention(runs=1))
    (await worker.run("davis")).end()
    await worker.tells(Kind.ENDED)
    (await worker.run("elko")).end()
    await worker.tells(Kind.ENDED, 2)
    pruned.set()
