"""Commands and programs ask a store again that is busy or away; workers do not, whose breaker
spares it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from blackboard.clock import SystemChance
from blackboard.emitter import EventEmitter
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.breaker import Need
from blackboard.table import Busy, Etag, Insert, Op, Row, Table, Unavailable, Unusable
from blackboard.tables.memory import MemoryTable
from blackboard.tables.retrying import LONGEST, PAUSES, RetryingTable
from blackboard.worker.store_breaker import StoreBreaker
from tests.support.boards import TurningClock, make_board
from tests.support.faults import RETRY_AFTER, Fault, FaultyTable
from tests.support.stores import Run, rows_of

P = "town"


@pytest.fixture
def clock() -> TurningClock:
    return TurningClock()


def test_a_batch_that_was_refused_as_busy_is_written_when_the_store_says(
    clock: TurningClock, run: Run
) -> None:
    faulty = FaultyTable(MemoryTable(clock))
    faulty.script(Fault.BUSY, Fault.BUSY)
    before = clock.monotonic()
    run(RetryingTable(faulty, clock).commit(P, [Insert("a", {"n": 1})]))
    assert clock.monotonic() - before == 2 * RETRY_AFTER


def test_a_scan_goes_on_where_the_store_was_busy(clock: TurningClock, run: Run) -> None:
    class OftenBusy(MemoryTable):
        """A page of one row, then it is busy."""

        async def scan(
            self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
        ) -> AsyncIterator[Row]:
            async for row in super().scan(partition, first, last, limit):
                yield row
                raise Busy(LONGEST / 2)

    memory = OftenBusy(clock)
    run(memory.commit(P, [Insert(f"k{n}", {"n": n}) for n in range(5)]))
    table = RetryingTable(memory, clock)
    assert [row.key for row in run(rows_of(table, P))] == [f"k{n}" for n in range(5)]

    async def three() -> list[str]:
        return [row.key async for row in table.scan(P, "k1", limit=3)]

    assert run(three()) == ["k1", "k2", "k3"]


def test_a_store_that_stays_busy_is_reported(clock: TurningClock, run: Run) -> None:
    faulty = FaultyTable(MemoryTable(clock))
    faulty.script(*[Fault.BUSY] * 20)
    before = clock.monotonic()
    with pytest.raises(Busy):
        run(RetryingTable(faulty, clock).commit(P, [Insert("a", {"n": 1})]))
    assert clock.monotonic() - before <= LONGEST


@pytest.mark.parametrize("times", [len(PAUSES), len(PAUSES) + 1])
def test_a_store_that_is_away_is_asked_again_a_few_times(
    clock: TurningClock, run: Run, times: int
) -> None:
    faulty = FaultyTable(MemoryTable(clock))
    table = RetryingTable(faulty, clock)
    faulty.script(*[Fault.AWAY] * times)
    faulty.script_reads(*[Fault.AWAY] * times)
    answers: Any = nullcontext() if times == len(PAUSES) else pytest.raises(Unavailable)
    for asked in (table.commit(P, [Insert("a", {"n": 1})]), rows_of(table, P)):
        before = clock.monotonic()
        with answers:
            run(asked)
        assert clock.monotonic() - before == sum(PAUSES)
    assert faulty.quiet


def test_a_store_that_has_to_be_repaired_is_asked_once(clock: TurningClock, run: Run) -> None:
    class Damaged(MemoryTable):
        async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
            raise Unusable

    before = clock.monotonic()
    with pytest.raises(Unusable):
        run(RetryingTable(Damaged(clock), clock).commit(P, []))
    assert clock.monotonic() == before


def test_a_worker_asks_the_store_itself(clock: TurningClock, run: Run) -> None:
    async def board_of(table: Table) -> BoardTable:
        return await make_board(table, clock, seed=1)

    memory = MemoryTable(clock)
    board = run(board_of(RetryingTable(memory, clock)))
    breaker = StoreBreaker(clock, SystemChance(), EventEmitter("worker"))
    asked = breaker.board(board, Need.RENEWAL).table
    assert getattr(asked, "table", None) is memory
