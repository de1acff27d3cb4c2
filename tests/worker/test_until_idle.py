"""`worker --until-idle` works until nothing is due and nothing runs, and no longer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from blackboard.events import ItemLeftAlone
from blackboard.protocol import keys
from blackboard.table import ANY, Delete, Etag, Merge, Op, Row, Unavailable
from blackboard.tables.base import ForwardingTable
from blackboard.worker.worker import GIVEN_UP_AFTER, Mode
from tests.support.faults import Fault
from tests.support.stores import OpenTable
from tests.support.workers import (
    WorkerScene,
    Workplace,
    beside_a_stray_token,
    beside_an_odd_lock,
    ids_of_shard,
    taking_no_change,
    until,
    with_workers,
)

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")


async def waiting(place: Workplace, **settings: Any) -> WorkerScene:
    """A worker that has looked, and waits for another's end."""
    working = asyncio.ensure_future(place.worker(Mode.UNTIL_IDLE, **settings))
    await until(
        lambda: place.workers and (place.workers[0].wake.waiting or place.workers[0].task.done()),
        "it has looked",
    )
    (worker,) = place.workers
    assert not worker.task.done(), "it has ended"
    working.add_done_callback(lambda done: done.result())
    return worker


@with_workers
async def test_until_idle_waits_for_what_another_was_faster_at(place: Workplace) -> None:
    await place.add("davis")
    place.later(seconds=1)
    claims = []

    async def another_is_faster() -> None:
        claims.append(await place.claimed("davis", board=place.other, owner="another"))

    place.table.script(another_is_faster)
    worker = await waiting(place)
    (made,) = claims
    await place.let_go(made, board=place.other)
    worker.wake.now()
    await worker.ended()


def test_until_idle_leaves_nothing_that_is_due_to_others(open_table: OpenTable) -> None:
    """Another worker was faster in one shard; the other shard is read again a little later."""

    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        first, second = (ids_of_shard(place.board, number)[0] for number in range(shards))
        for item_id in (first, second):
            await place.add(item_id)
            place.later(seconds=1)

        async def another_is_faster() -> None:
            made = await place.claimed(first, board=place.other, owner="another")
            await place.let_go(made, board=place.other)

        place.table.script(another_is_faster)
        worker = await waiting(place, slots=1)
        place.later(seconds=1)
        worker.wake.now()
        (await worker.run(second)).end()
        await worker.ended()

    story(open_table=open_table, shards=2)


@with_workers
async def test_until_idle_does_not_wait_for_a_lock_that_cannot_be_taken_over(
    place: Workplace,
) -> None:
    async with beside_an_odd_lock(place):
        worker = await waiting(place)
        while not worker.task.done():
            assert worker.wake.rounds < 5
            await worker.looks_again()


@with_workers
async def test_until_idle_waits_for_a_lock_that_was_written_with_one_that_cannot_be_taken_over(
    place: Workplace,
) -> None:
    """Rows of one batch may have the same etag."""
    await place.add("odd", every="8h", stale_after="3s")
    await place.add("other", every="8h", stale_after="60s")
    await place.take("odd", "other", board=place.other, owner="dead")
    place.later(seconds=10)
    with taking_no_change(place, "odd"):
        worker = await waiting(place)
        await worker.looks_again()
        place.later(seconds=60)
        place.table.script(Fault.NEVER)
        await worker.looks_again()
        assert place.table.quiet
        place.later(seconds=1)
        await worker.looks_again()
        (await worker.run("other")).end()
        await worker.ended()


@with_workers
async def test_until_idle_looks_before_it_ends(place: Workplace) -> None:
    """It knows of nothing that is due, and another is still at work."""
    await place.add("other", every="1h")
    other = await place.claimed("other", board=place.other, owner="another")
    worker = await waiting(place)
    await worker.looks_again()
    assert not worker.task.done()
    await place.let_go(other, board=place.other)
    worker.wake.now()
    await worker.ended()


@with_workers
async def test_until_idle_does_not_wait_for_a_token_that_nobody_can_take(place: Workplace) -> None:
    """It is that of a missed slot, beside the one that its item has."""
    async with beside_a_stray_token(place):
        worker = await place.worker(Mode.UNTIL_IDLE)
        while not worker.task.done():
            assert worker.wake.rounds < 5
            await worker.looks_again()


@with_workers
async def test_until_idle_does_not_wait_for_a_lock_that_nobody_can_take_over(
    place: Workplace,
) -> None:
    """Its holder is dead, and of its item no settings can be computed."""
    await place.add("odd", every="1h", stale_after="3s")
    await place.claimed("odd", board=place.other, owner="dead")
    partition, row = place.other.partition("odd"), keys.item_key("odd")
    await place.other.table.commit(partition, [Merge(row, {"spec": "{"}, ANY)])
    place.later(seconds=10)
    worker = await place.worker(Mode.UNTIL_IDLE)
    await worker.ended()
    assert len(worker.of(ItemLeftAlone)) == 1


class Unreadable(ForwardingTable):
    """A store that answers batches, and no pages."""

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        await self._refuse()
        async for row in super().scan(partition, first, last, limit):
            yield row

    async def _refuse(self) -> None:
        raise Unavailable


@pytest.mark.cases_of_one_store("errors are the same above any store")
@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.UNTIL_IDLE])
@with_workers
async def test_a_store_that_does_not_answer_for_a_minute_is_given_up(
    place: Workplace, mode: Mode
) -> None:
    await place.add("davis")
    began = place.clock.monotonic()
    board = place.board.using(Unreadable(place.board.table))
    worker = await place.worker(mode, board=board)
    while not worker.task.done():
        assert place.clock.monotonic() - began < 2 * GIVEN_UP_AFTER
        await worker.looks_again()
        place.later(seconds=10)
    place.workers.remove(worker)
    with pytest.raises(Unavailable):
        await worker.ended()
    assert place.clock.monotonic() - began > GIVEN_UP_AFTER


@pytest.mark.parametrize("seconds", [0.6, 1.4])
@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.UNTIL_IDLE])
@with_workers
async def test_what_may_be_due_by_the_clock_of_the_store_is_waited_for(
    place: Workplace, mode: Mode, seconds: float
) -> None:
    """Who has just come takes the time of Azure for up to a second less than it is, and for what
    its reply took.
    """
    await place.add("davis")
    behind = timedelta(seconds=seconds)

    async def now() -> datetime:
        return await place.table.table.now() - behind

    setattr(place.table, "now", now)  # noqa: B010 - mypy would not have a method replaced
    worker = await place.worker(mode, at_once=True)
    await until(lambda: worker.wake.waiting or worker.task.done(), "the first walk")
    assert worker.order == []
    place.later(seconds=seconds)
    await worker.looks_again()
    await worker.ended()
    assert worker.order == ["davis"]


@with_workers
async def test_a_worker_does_not_wait_for_the_claims_of_another_on_its_board(
    place: Workplace,
) -> None:
    """As of two workers that a program has on the board that it has opened."""
    await place.add("davis")
    place.later(seconds=1)
    sent, answered, claims = place.board.table.commit, asyncio.Event(), list[Sequence[Op]]()

    async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
        if isinstance(ops[0], Delete) and ops[0].key.startswith("next:"):
            claims.append(ops)
            if len(claims) == 1:
                await answered.wait()
        return await sent(partition, ops)

    place.table.commit = commit  # type: ignore[method-assign]
    slow = asyncio.ensure_future(place.worker(owner="slow"))
    await until(lambda: claims, "its claim is sent")
    quick = await place.worker(Mode.ONCE, owner="quick", at_once=True)
    await quick.ended()
    assert quick.order == ["davis"]
    answered.set()
    assert (await slow).order == []
