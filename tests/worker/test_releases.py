"""What has ended is let go in batches: who waits for that keeps its lock, and no slot longer."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from unittest.mock import patch

import pytest

from blackboard.events import LockLost, RunEnded
from blackboard.model import Outcome
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.releases import FinishedRun, Landed, Released, Renewals, release
from blackboard.protocol.retention import Retention
from blackboard.rules.due import HOLDERS_SHARE
from blackboard.table import (
    Busy,
    Delete,
    Etag,
    Merge,
    Op,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.worker import release_queue as releases
from blackboard.worker.release_queue import CHEAP, QUICK, STUCK
from tests.support.turns import settled
from tests.support.workers import Workplace, ids_of_shard, until, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")


@with_workers
async def test_a_run_that_has_ended_keeps_its_lock_until_it_is_written(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writing of another takes longer than a lease."""
    for item_id in ("first", "second"):
        await place.add(item_id, every="1h", stale_after="10s")
    worker = await place.worker(slots=2)
    first, second = await worker.run("first"), await worker.run("second")
    written = asyncio.Event()

    async def slowly(
        board: BoardTable, finished: Sequence[FinishedRun], *, renewals: Renewals, landed: Landed
    ) -> list[Released]:
        await written.wait()
        return await release(board, finished, renewals=renewals, landed=landed)

    monkeypatch.setattr(releases, "release", slowly)
    first.end()
    await until(lambda: any(held.ended for held in worker.worker.holdings), "it is written")
    second.end()
    await until(lambda: worker.worker.releases.waiting, "the other waits")
    for renewals in range(1, 5):
        place.later(seconds=4)
        await until(lambda: len(renewed(place, "second")) == renewals, "a renewal")  # noqa: B023
        await until(lambda: not any(held.asking for held in worker.worker.holdings), "its answer")
    written.set()
    assert await place.ended("second") == [(1, "ok")]


@with_workers
async def test_a_run_is_renewed_while_the_store_has_no_time_for_its_release(
    place: Workplace,
) -> None:
    """Its item is not run again, however long that takes, and one release is enough then."""
    await place.add("davis", every="1h", stale_after="10s")
    worker = await place.worker()
    run = await worker.run("davis")
    sent = place.board.table.commit
    refused, touched = 0, [place.clock.monotonic()]

    async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
        nonlocal refused
        if len(ops) > 1 and refused < 10:
            refused += 1
            raise Busy(2.0)
        if ops[0].key == "lock:davis":
            touched.append(place.clock.monotonic())
        return await sent(partition, ops)

    place.table.commit = commit  # type: ignore[method-assign]
    run.end()
    for _ in range(400):
        place.later(seconds=0.25)
        await asyncio.sleep(0.005)
        if worker.of(RunEnded):
            break
    assert refused == 10
    assert max(later - earlier for earlier, later in pairwise(touched)) < HOLDERS_SHARE * 10
    assert await place.outcomes() == [(1, "ok")]
    releases_sent = [batch for batch in place.table.batches if batch[0].key == "lock:davis"]
    assert sum(len(batch) > 1 for batch in releases_sent) == 1


@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [(Unknown(), "failed"), (Unavailable("it answered 403"), "ok"), (Unusable("full"), "ok")],
    ids=["no answer", "refused by what is between", "no room"],
)
def test_one_run_that_the_store_does_not_take_holds_up_no_other(
    *, trouble: TableError, outcome: str, open_table: object
) -> None:
    """Without an answer it is recorded in few words; else as it is, once the store takes it."""

    @with_workers
    async def story(place: Workplace) -> None:
        for item_id in ("bad", "davis", "keene"):
            await place.add(item_id, every="1h", stale_after="1m")
        worker = await place.worker(slots=3)
        runs = {item_id: await worker.run(item_id) for item_id in ("bad", "davis", "keene")}
        sent, takes_all = place.board.table.commit, False

        async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
            said = str([getattr(op, "data", "") for op in ops])
            if "EVIL" in said and not takes_all:
                raise trouble
            return await sent(partition, ops)

        place.table.commit = commit  # type: ignore[method-assign]
        for item_id, run in runs.items():
            run.end(result={"text": "EVIL" if item_id == "bad" else "good"})
        turns = asyncio.create_task(_turned(place))
        try:
            for item_id in ("davis", "keene"):
                assert await place.ended(item_id) == [(1, "ok")]
            assert await place.outcomes("bad") == [] or outcome == "failed"
            takes_all = isinstance(trouble, Unavailable)
            assert await place.ended("bad") == [(1, outcome)]
        finally:
            turns.cancel()
        assert worker.of(LockLost) == []

    story(open_table=open_table)


async def _turned(place: Workplace) -> None:
    """The clock goes on."""
    while True:
        place.later(seconds=0.25)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("lands", [True, False], ids=["lands late", "never lands"])
def test_a_run_is_renewed_while_its_release_has_no_answer(
    *, lands: bool, open_table: object
) -> None:
    """And told once, whichever of the two the store has done first."""

    @with_workers
    async def story(place: Workplace) -> None:
        await place.add("davis", every="1h", stale_after="10s")
        worker = await place.worker()
        run = await worker.run("davis")
        sent, gate = place.board.table.commit, asyncio.Event()
        hanging: list[Sequence[Op]] = []

        async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
            if len(ops) > 1 and not hanging:
                hanging.append(ops)
                await gate.wait()
                if not lands:
                    raise Unknown
            return await sent(partition, ops)

        place.table.commit = commit  # type: ignore[method-assign]
        run.end()
        await until(lambda: hanging, "the release is sent")
        for _ in range(4):
            place.later(seconds=6)
            before = len(renewed(place, "davis"))
            await until(lambda: len(renewed(place, "davis")) > before, "a renewal")  # noqa: B023
            await until(lambda: not any(one.asking for one in worker.worker.holdings), "its answer")
        gate.set()
        await worker.tells(RunEnded)
        assert await place.outcomes() == [(1, "ok")]
        assert worker.of(LockLost) == []

    story(open_table=open_table)


@with_workers
async def test_a_renewal_that_comes_after_the_release_has_landed_is_no_loss(
    place: Workplace,
) -> None:
    """The reply to the release is late, and the lock is gone."""
    await place.add("davis", every="1h", stale_after="10s")
    worker = await place.worker()
    run = await worker.run("davis")
    sent, gate = place.board.table.commit, asyncio.Event()
    landed: list[Sequence[Op]] = []

    async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
        etags = await sent(partition, ops)
        if len(ops) > 1 and not landed:
            landed.append(ops)
            await gate.wait()
        return etags

    place.table.commit = commit  # type: ignore[method-assign]
    run.end()
    await until(lambda: landed, "the release lands")
    spent = len(place.table.batches)
    for _ in range(20):
        place.later(seconds=1)
        await asyncio.sleep(0.005)
    assert len(place.table.batches) == spent + 1, "one renewal finds that it is gone"
    gate.set()
    await worker.tells(RunEnded)
    assert await place.outcomes() == [(1, "ok")]
    assert worker.of(LockLost) == []


def test_a_slow_shard_holds_up_no_release_of_another_and_no_slot(open_table: object) -> None:
    """Its runs have ended: what they wait for is no work."""

    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        assert shards == place.board.shards
        sick, well = ids_of_shard(place.board, 0)[:3], sorted(ids_of_shard(place.board, 1)[:4])
        for item_id in sick:
            await place.add(item_id, every="1h", stale_after="1h")
        place.later(seconds=1)
        for item_id in well:
            await place.add(item_id, every="1h", stale_after="1h")
        worker = await place.worker(slots=3)
        gate, sent = asyncio.Event(), place.board.table.commit

        async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
            if partition == place.board.shard(0):
                await gate.wait()
            return await sent(partition, ops)

        place.table.commit = commit  # type: ignore[method-assign]
        for item_id in sick:
            (await worker.run(item_id)).end()
        await place.sleeps(STUCK)
        place.later(seconds=STUCK)
        runs = [await worker.run(item_id) for item_id in well[:3]]
        for run in runs:
            run.end()
        await worker.tells(RunEnded, 3)
        (await worker.run(well[3])).end()
        await worker.tells(RunEnded, 4)
        gate.set()
        await worker.tells(RunEnded, 7)
        assert {event.run.outcome for event in worker.of(RunEnded)} == {"ok"}

    story(open_table=open_table, shards=4)


@pytest.mark.parametrize("took", [QUICK / 2, QUICK * 2], ids=["quick", "slow"])
def test_the_next_run_begins_while_a_release_is_written_where_that_takes_time(
    took: float, open_table: object
) -> None:
    """The lock is kept until the answer."""

    @with_workers
    async def story(place: Workplace) -> None:
        ids = await place.fill(3)
        releases = SlowReleases(place, took)
        worker = await place.worker(slots=1)
        (await worker.run(ids[0])).end()
        second = await worker.run(ids[1])
        releases.answered.clear()
        second.end()
        await until(lambda: releases.sent == 2, "the second release is sent")
        if took > QUICK:
            await worker.run(ids[2])
            assert [lock.id async for lock in place.other.locks()] == ids[1:]
        await settled()
        assert worker.order == (ids if took > QUICK else ids[:2])
        releases.answered.set()
        await worker.run(ids[2])
        await worker.tells(RunEnded, 2)
        assert [lock.id async for lock in place.other.locks()] == ids[2:]

    story(open_table=open_table)


@with_workers
async def test_a_run_with_a_limit_on_the_board_keeps_its_slot_with_its_permit(
    place: Workplace,
) -> None:
    """Until its release is answered: others of its type would find no permit in its slot."""
    for number in range(4):
        await place.add(f"scarce-{number}", item_type="scarce")
    place.later(seconds=2)
    releases = SlowReleases(place, QUICK * 2)
    worker = await place.worker(slots=1)
    for number in range(2):
        (await worker.run(worker.order[number])).end()
        await until(lambda: len(worker.order) == number + 2, "the next one")  # noqa: B023
    releases.answered.clear()
    (await worker.run(worker.order[2])).end()
    await until(lambda: releases.sent == 3, "the release is sent")
    await settled()
    assert len(worker.order) == 3
    releases.answered.set()
    await until(lambda: len(worker.order) == 4, "the last one")


@with_workers
async def test_a_worker_holds_at_most_twice_as_many_locks_as_it_has_slots(place: Workplace) -> None:
    """Where its claims are answered, and its releases are not."""
    await place.fill(20)
    releases = SlowReleases(place, QUICK * 2)
    worker = await place.worker(slots=1, at_once=True)
    await worker.tells(RunEnded, 2)
    releases.answered.clear()
    for _ in range(5):
        await settled()
        place.later(seconds=STUCK)
    assert len([lock async for lock in place.other.locks()]) == 2
    releases.answered.set()
    await worker.tells(RunEnded, 20)
    assert [lock async for lock in place.other.locks()] == []


class SlowReleases:
    """Has the store take some seconds for each release, which it answers while `answered` is
    set.
    """

    def __init__(self, place: Workplace, took: float) -> None:
        self._place = place
        self._took = took
        self._commit = place.board.table.commit
        self.sent = 0
        self.answered = asyncio.Event()
        self.answered.set()
        place.table.commit = self.commit  # type: ignore[method-assign]

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if isinstance(ops[0], Delete) and ops[0].key.startswith("lock:"):
            self._place.later(seconds=self._took)
            self.sent += 1
            await self.answered.wait()
        return await self._commit(partition, ops)


def renewed(place: Workplace, item_id: str) -> list[Op]:
    key = keys.lock_key(item_id)
    sent = [op for batch in place.table.batches for op in batch]
    return [op for op in sent if isinstance(op, Merge) and op.key == key]


@pytest.mark.parametrize("took", [CHEAP / 2, 0.05], ids=["cheap", "dear"])
def test_a_run_that_has_ended_waits_for_others_where_writing_is_dear(
    took: float, open_table: object
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        for item_id in ("davis", "elko", "fargo"):
            await place.add(item_id, every="1h")
        worker = await place.worker(slots=3)
        davis, elko, fargo = [await worker.run(name) for name in ("davis", "elko", "fargo")]
        sent, written = place.board.table.commit, list[int]()

        async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
            if isinstance(ops[0], Delete) and ops[0].key.startswith("lock:"):
                place.later(seconds=took)
                written.append(sum(isinstance(op, Delete) for op in ops))
            return await sent(partition, ops)

        place.table.commit = commit  # type: ignore[method-assign]
        davis.end()
        await worker.tells(RunEnded)
        elko.end()
        if took > CHEAP:
            await place.sleeps(took)
            fargo.end()
            await until(lambda: worker.worker.releases.waiting, "the other waits, too")
            place.later(seconds=took)
            await worker.tells(RunEnded, 3)
            assert written == [1, 2]
        else:
            await worker.tells(RunEnded, 2)
            assert written == [1, 1]
            fargo.end()

    story(open_table=open_table)


def test_a_worker_that_is_cancelled_releases_what_has_ended_as_it_ended(open_table: object) -> None:
    """Where its queue waits for others to be written with it, too, and while others still run."""

    @with_workers
    async def story(place: Workplace) -> None:
        for item_id in ("davis", "elko", "fargo", "keene"):
            await place.add(item_id, every="1h")
        worker = await place.worker(slots=4)
        davis, elko, fargo, keene = [
            await worker.run(name) for name in ("davis", "elko", "fargo", "keene")
        ]
        sent = place.board.table.commit

        async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
            if isinstance(ops[0], Delete) and ops[0].key.startswith("lock:"):
                place.later(seconds=0.05)
            return await sent(partition, ops)

        place.table.commit = commit  # type: ignore[method-assign]
        davis.end()
        await worker.tells(RunEnded)
        elko.end()
        await place.sleeps(0.05)
        fargo.end(Outcome.FAILED, error="no such feed")
        await until(lambda: worker.worker.releases.waiting, "the other waits, too")
        worker.task.cancel()
        keene.end(Outcome.FAILED, error="CancelledError")
        await asyncio.gather(worker.task, return_exceptions=True)
        place.workers.clear()
        assert await place.ended("elko") == [(1, "ok")]
        assert await place.ended("fargo") == [(1, "failed")]
        assert await place.ended("keene") == [(1, "cancelled")]
        assert (await place.item("keene")).attempt == 1

    story(open_table=open_table)


def test_a_release_under_way_is_sent_once_more_where_its_worker_is_cancelled(
    open_table: object,
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        await place.add("davis", every="1h")
        worker = await place.worker()
        run, sent, under_way = await worker.run("davis"), place.board.table.commit, asyncio.Event()

        async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
            if isinstance(ops[0], Delete) and not under_way.is_set():
                under_way.set()
                await asyncio.Event().wait()
            return await sent(partition, ops)

        place.table.commit = commit  # type: ignore[method-assign]
        run.end()
        await under_way.wait()
        worker.task.cancel()
        await asyncio.gather(worker.task, return_exceptions=True)
        place.workers.clear()
        assert await place.ended("davis") == [(1, "ok")]

    story(open_table=open_table)


def test_a_shard_that_does_not_answer_keeps_no_other_from_being_released_at_the_end(
    open_table: object,
) -> None:
    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        assert shards == place.board.shards
        sick, well = ids_of_shard(place.board, 0)[0], ids_of_shard(place.board, 1)[0]
        for item_id in (sick, well):
            await place.add(item_id, every="1h")
        worker = await place.worker(slots=2)
        for item_id in (sick, well):
            await worker.run(item_id)
        sent = place.board.table.commit

        async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
            if partition == place.board.shard(0):
                await asyncio.Event().wait()
            return await sent(partition, ops)

        place.table.commit = commit  # type: ignore[method-assign]
        worker.task.cancel()
        with patch.object(releases, "LAST_RELEASE", 0.2):
            await asyncio.gather(worker.task, return_exceptions=True)
        place.workers.clear()
        assert await place.ended(well) == [(1, "cancelled")]

    story(open_table=open_table, shards=2)


@with_workers
async def test_runs_that_are_released_at_odd_fences_alone_are_pruned(place: Workplace) -> None:
    """Each is abandoned at first, at the even fence before."""
    await place.add("davis", every="2h", stale_after="60s")
    await place.let_go(await place.claimed())
    worker = await place.worker(retention=Retention(runs=2))
    for number in range(8):
        place.later(hours=2)
        await place.take("davis", owner="dead")
        place.later(minutes=5)
        await worker.walk()
        (await worker.run("davis", number)).end()
        await worker.tells(RunEnded, number + 1)
    assert len(await place.runs("davis")) <= 5


@with_workers
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
    await worker.tells(RunEnded)
    (await worker.run("elko")).end()
    await worker.tells(RunEnded, 2)
    pruned.set()
