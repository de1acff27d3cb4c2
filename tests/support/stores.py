"""The stores that tests run on. Another store is one more line in `STORES`."""

import os
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from blackboard.clock import Clock
from blackboard.table import Row, Table
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import credential_for
from blackboard.tables.azure_transport import AzureTransport
from blackboard.tables.azurite import Emulator
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening

T = TypeVar("T")
OpenTable = Callable[[Clock], Awaitable[Table]]
"""Opens the store of this test, with the same rows each time."""


class Run(Protocol):
    """Runs a coroutine to its end, in the one event loop of this test."""

    def __call__(self, main: Coroutine[Any, Any, T], /) -> T: ...


def _memory(_folder: Callable[[], Path], _emulator: Callable[[], Emulator]) -> OpenTable:
    contents = Contents()

    async def open_table(clock: Clock) -> Table:
        return MemoryTable(clock, contents)

    return open_table


def _sqlite(folder: Callable[[], Path], _emulator: Callable[[], Emulator]) -> OpenTable:
    path = folder() / "blackboard.db"

    async def open_table(clock: Clock) -> Table:
        return await SqliteTable.open(path, clock, Opening(create=True))

    return open_table


class TurnedWire(AzureTransport):
    """Sends the time of a test's clock to the emulator, so that tests advance its clock, too."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.clock = clock

    async def send(self, request: Any, **config: Any) -> Any:
        passed = self.clock.now() - datetime(1970, 1, 1, tzinfo=UTC)
        request.headers["x-blackboard-clock"] = str(passed // timedelta(milliseconds=1))
        return await super().send(request, **config)


def _azurite(_folder: Callable[[], Path], emulator: Callable[[], Emulator]) -> OpenTable:
    address = azure_address(emulator().store(f"test{uuid4().hex}"))

    async def open_table(clock: Clock) -> Table:
        return await AzureTable.open(
            address,
            clock,
            credential=credential_for(address, os.getenv, interactive=False),
            create=True,
            transport=TurnedWire(clock),
        )

    return open_table


STORES: dict[str, Callable[[Callable[[], Path], Callable[[], Emulator]], OpenTable]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "azurite": _azurite,
}
"""What opens each. The folder of a test is made for the store that has files."""
LASTING = ("sqlite", "azurite")
"""The stores that several processes can open by their URLs."""


def address(store: str, folder: Callable[[], Path], emulator: Callable[[], Emulator]) -> str:
    """The value of `--store` for a store of that name, which does not exist yet."""
    if store == "azurite":
        return emulator().store(f"test{uuid4().hex}")
    return str(folder() / "blackboard.db")


async def rows_of(
    table: Table,
    partition: str,
    first: str = "",
    last: str | None = None,
    limit: int | None = None,
) -> list[Row]:
    """All rows of a range."""
    return [row async for row in table.scan(partition, first, last, limit)]
