"""A walk over a board of which some shards are paused: shard 0 decides, and the others follow."""

from collections.abc import AsyncIterator

import pytest

from blackboard.events import BoardPaused, BoardResumed
from blackboard.protocol.board_pause import pause_board, resume_board
from blackboard.protocol.keys import MAINTENANCE
from blackboard.table import ANY, Delete, Row, Table, Unavailable, read
from blackboard.tables.base import ForwardingTable
from blackboard.worker.worker import Mode
from tests.support.workers import Workplace, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

SHARDS = 3


class Away(ForwardingTable):
    """A table of which one partition cannot be read."""

    def __init__(self, table: Table, partition: str) -> None:
        super().__init__(table)
        self.partition = partition

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        if partition == self.partition:
            raise Unavailable("away")
        return super().scan(partition, first, last, limit)


async def paused(place: Workplace) -> list[bool]:
    """Whether each shard has the row."""
    table = place.other.table
    rows = [await read(table, place.other.shard(one), MAINTENANCE) for one in range(SHARDS)]
    return [row is not None for row in rows]


async def fill(place: Workplace) -> list[str]:
    """Items in all shards."""
    ids = [f"item-{number}" for number in range(10, 20)]
    for one in ids:
        await place.add(one)
    assert len({place.other.partition(one) for one in ids}) == SHARDS
    return ids


async def leave_paused(place: Workplace, *shards: int) -> None:
    """Pause these shards alone, as a command that was killed leaves them."""
    await pause_board(place.other, place.mark())
    for number in set(range(SHARDS)) - set(shards):
        await place.other.table.commit(place.other.shard(number), [Delete(MAINTENANCE, ANY)])


@pytest.mark.cases_of_one_store("what is paused is judged above the store")
@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.UNTIL_IDLE, Mode.FOREVER])
@pytest.mark.parametrize("left", [(1,), (1, 2)])
@pytest.mark.parametrize("shards", [SHARDS])
@with_workers
async def test_what_a_killed_resume_has_left_holds_up_no_item(
    place: Workplace, left: tuple[int, ...], mode: Mode, shards: int
) -> None:
    ids = await fill(place)
    await leave_paused(place, *left)
    worker = await place.worker(mode, at_once=True, slots=16)
    await (worker.walk() if mode is Mode.FOREVER else worker.ended())
    assert sorted(worker.order) == ids
    assert worker.of(BoardPaused) == []
    assert await paused(place) == [False] * shards


@pytest.mark.of_each_store
@pytest.mark.parametrize("shards", [SHARDS])
@with_workers
async def test_a_pause_whose_command_was_killed_holds_up_all_shards_after_a_walk(
    place: Workplace, shards: int
) -> None:
    worker = await place.worker(at_once=True)
    await leave_paused(place, 0)
    await worker.walk()
    assert await paused(place) == [True] * shards
    ids = await fill(place)
    await worker.walk()
    assert worker.order == []
    assert len(worker.of(BoardPaused)) == 1
    await resume_board(place.other)
    await worker.walk()
    for one in ids:
        await worker.run(one)
    assert len(worker.of(BoardResumed)) == 1


@pytest.mark.of_each_store
@pytest.mark.parametrize("shards", [SHARDS])
@with_workers
async def test_a_shard_that_says_it_is_paused_is_while_shard_0_does_not_answer(
    place: Workplace, shards: int
) -> None:
    ids = await fill(place)
    await pause_board(place.other, place.mark())
    at_0 = {one for one in ids if place.other.partition(one) == place.other.shard(0)}
    away = Away(place.other.table, place.other.shard(0))
    worker = await place.worker(board=place.other.using(away), at_once=True)
    await worker.walk()
    assert worker.order == []
    assert await paused(place) == [True] * shards
    assert at_0


@pytest.mark.parametrize("shards", [1, SHARDS])
@with_workers
async def test_a_paused_board_costs_a_worker_no_more_requests_with_each_walk(
    place: Workplace, shards: int
) -> None:
    worker = await place.worker()
    await worker.walk()
    spent = []
    for _ in range(3):
        before = place.table.requests.total
        await worker.walk()
        spent.append(place.table.requests.total - before)
        await pause_board(place.other, place.mark())
    assert spent[2] <= spent[0]
