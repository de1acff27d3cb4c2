"""The stores that tests run on. Another store is one more line in `STORES`."""

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from blackboard.clock import Clock
from blackboard.table import Row, Table
from blackboard.tables.memory import MemoryTable, Shelf
from blackboard.tables.sqlite import Opening, SqliteTable

T = TypeVar("T")
OpenTable = Callable[[Clock], Awaitable[Table]]
"""Opens the store of this test, the same rows each time."""


class Run(Protocol):
    """Runs a coroutine to its end, in the one event loop of this test."""

    def __call__(self, main: Coroutine[Any, Any, T], /) -> T: ...


def _memory(folder: Path) -> OpenTable:
    shelf = Shelf()

    async def open_table(clock: Clock) -> Table:
        return MemoryTable(clock, shelf)

    return open_table


def _sqlite(folder: Path) -> OpenTable:
    async def open_table(clock: Clock) -> Table:
        return await SqliteTable.open(folder / "blackboard.db", clock, Opening(create=True))

    return open_table


STORES: dict[str, Callable[[Path], OpenTable]] = {
    "memory": _memory,
    "sqlite": _sqlite,
}


async def rows_of(
    table: Table,
    partition: str,
    first: str = "",
    last: str | None = None,
    limit: int | None = None,
) -> list[Row]:
    """A whole range at once."""
    return [row async for row in table.scan(partition, first, last, limit)]
