"""What a board looks like to whatever else reads tables, and what it makes of what others wrote."""

import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from azure.data.tables import EdmType, EntityProperty, TableEntity
from azure.data.tables.aio import TableClient

from blackboard.clock import SystemClock
from blackboard.model import Item
from blackboard.protocol.additions import New, add
from blackboard.protocol.rows import record_of
from blackboard.spec import Spec
from blackboard.table import ANY, Insert, Merge, read
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import credential_for
from blackboard.tables.azurite import Emulator
from tests.support.boards import make_board
from tests.support.clocks import ManualClock
from tests.support.stores import Run

SPEC = Spec(every="1h", params={"feeds": ["one", "two"]})

Story = Callable[[AzureTable, TableClient], Awaitable[None]]


@pytest.fixture
def told(azurite: Emulator, run: Run) -> Callable[[Story], None]:
    """Runs a story on a table of its own, with a client that knows nothing of boards."""

    async def opened(story: Story) -> None:
        address = azure_address(azurite.store(f"t{uuid4().hex}"))
        mine = credential_for(address, os.getenv, interactive=False)
        theirs = credential_for(address, os.getenv, interactive=False).azure
        table = await AzureTable.open(address, SystemClock(), credential=mine, create=True)
        try:
            async with TableClient(address.endpoint, address.table, credential=theirs) as client:
                await story(table, client)
        finally:
            await table.close()

    return lambda story: run(opened(story))


def test_an_item_is_one_entity_of_plain_typed_properties(
    told: Callable[[Story], None],
) -> None:
    async def story(table: AzureTable, client: TableClient) -> None:
        board = await make_board(table, ManualClock(), seed=1)
        await add(board, New(id="davis", type="feed", spec=SPEC))
        found = await client.get_entity("town", "item:davis")
        kinds = {name: type(value) for name, value in found.items()}
        assert kinds["item"] is kinds["type"] is kinds["spec"] is kinds["state"] is str
        assert kinds["running"] is bool
        assert issubclass(kinds["ready"], datetime)
        assert kinds["fence"] is int
        assert found["item"] == "davis"
        assert found["spec"].startswith("{")
        assert all(isinstance(value, str | int | float | datetime) for value in found.values())

    told(story)


def test_numbers_are_int32_while_they_fit_and_int64_beyond(
    told: Callable[[Story], None],
) -> None:
    async def story(table: AzureTable, client: TableClient) -> None:
        data = {"small": 2**31 - 1, "large": 2**31, "low": -(2**31), "lower": -(2**31) - 1}
        await table.commit("p", [Insert("a", data)])
        found = await client.get_entity("p", "a")
        assert (found["small"], found["low"]) == (2**31 - 1, -(2**31))
        assert found["large"] == EntityProperty(2**31, EdmType.INT64)
        assert found["lower"] == EntityProperty(-(2**31) - 1, EdmType.INT64)

    told(story)


def test_what_others_add_to_a_row_is_kept(told: Callable[[Story], None]) -> None:
    """Columns of a newer version, or somebody's notes, of kinds that rows do not have."""

    async def story(table: AzureTable, client: TableClient) -> None:
        board = await make_board(table, ManualClock(), seed=1)
        await add(board, New(id="davis", type="feed", spec=SPEC))
        number = UUID(int=7)
        notes: dict[str, Any] = {"note": "call ann", "guid": number, "raw": b"\x00\xff"}
        notes |= {"PartitionKey": "town", "RowKey": "item:davis"}
        await client.update_entity(TableEntity(notes))
        row = await read(table, "town", "item:davis")
        assert row is not None
        assert row.data["note"] == "call ann"
        assert row.data["guid"] == str(number)
        assert isinstance(row.data["raw"], str)
        assert record_of(Item, row).id == "davis"
        await table.commit("town", [Merge(row.key, {"runs": 3}, ANY)])
        found = await client.get_entity("town", "item:davis")
        assert (found["runs"], found["note"], found["guid"]) == (3, "call ann", number)
        assert found["raw"] == b"\x00\xff"

    told(story)


def test_a_time_that_others_wrote_with_more_digits_is_read(
    told: Callable[[Story], None],
) -> None:
    async def story(table: AzureTable, client: TableClient) -> None:
        at = EntityProperty("2026-03-29T01:30:00.1234567Z", EdmType.DATETIME)
        await client.create_entity({"PartitionKey": "p", "RowKey": "a", "at": at})
        row = await read(table, "p", "a")
        assert row is not None
        assert row.data["at"] == datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
        assert type(row.data["at"]) is datetime

    told(story)
