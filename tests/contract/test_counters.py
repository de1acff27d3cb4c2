"""ME05: counters that nothing protects but etags come out exact, whoever races."""

import asyncio
from contextlib import suppress

import pytest

from blackboard.table import Busy, Conflict, Insert, Merge, Table, read
from tests.support.clocks import ManualClock
from tests.support.stores import OpenTable, Run

P = "town"
COUNTERS = ("left", "right")
EACH = 40
"""Increments of a task."""


async def count_up(table: Table, name: str) -> int:
    """One increment; how often it was lost to somebody else first."""
    lost = 0
    while True:
        row = await read(table, P, name)
        assert row is not None
        count = row.data["count"]
        assert isinstance(count, int)
        try:
            await table.commit(P, [Merge(name, {"count": count + 1}, row.etag)])
        except (Conflict, Busy):
            lost += 1
        else:
            return lost


async def counts(table: Table) -> list[object]:
    rows = [await read(table, P, name) for name in COUNTERS]
    return [row and row.data["count"] for row in rows]


@pytest.mark.case("ME05")
def test_me05_eight_tasks_count_two_counters_exactly(
    table: Table, open_table: OpenTable, clock: ManualClock, run: Run
) -> None:
    async def task(number: int, own: Table) -> int:
        return sum([await count_up(own, COUNTERS[number % 2]) for _ in range(EACH)])

    async def race() -> int:
        other = await open_table(clock)
        await table.commit(P, [Insert(name, {"count": 0}) for name in COUNTERS])
        try:
            losses = await asyncio.gather(
                *(task(number, other if number % 4 < 2 else table) for number in range(8))
            )
        finally:
            await other.close()
        return sum(losses)

    assert run(race()) > 0, "nobody raced"
    assert run(counts(table)) == [4 * EACH] * 2


def test_a_caller_cancelled_at_any_point_leaves_a_whole_batch_or_none(
    table: Table, run: Run
) -> None:
    async def raise_both(start: int) -> None:
        await asyncio.sleep(0)
        left, right = await read(table, P, "left"), await read(table, P, "right")
        assert left is not None
        assert right is not None
        ops = [
            Merge("left", {"count": start}, left.etag),
            Merge("right", {"count": start}, right.etag),
        ]
        await table.commit(P, ops)

    async def story() -> None:
        await table.commit(P, [Insert(name, {"count": 0}) for name in COUNTERS])
        for start in range(60):
            task = asyncio.create_task(raise_both(start + 1))
            for _ in range(start % 12):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            left, right = await counts(table)
            assert left == right
        await raise_both(1000)

    run(story())
    assert run(counts(table)) == [1000, 1000]
