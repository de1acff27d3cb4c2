"""A table in an account of Azure Table Storage, or in its emulator Azurite.

A batch is one entity group transaction. Its reply may be lost, and it may be applied up to 30
seconds after the client stopped waiting; both are reported as Unknown, and no batch is sent twice.
The service's clock decides what is due, its stamps what is stale (`azure_transport.py`).

A row is an entity with the row's fields as properties of plain types (String, Int32 or Int64,
Double, Boolean, DateTime), so that any reader of tables can read a board.

Not promised: anything for Cosmos DB for Table, which has the same interface: its scans are not
sorted, its keys end at 255 bytes, and its reads may be stale. It is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError
from azure.data.tables import EdmType, EntityProperty, TableEntity, UpdateMode
from azure.data.tables.aio import TableClient

from blackboard.clock import Clock
from blackboard.errors import MissingStore
from blackboard.table import ANY, Delete, Etag, Insert, Merge, Op, Row, Unavailable, Value
from blackboard.tables.azure_address import AzureAddress
from blackboard.tables.azure_credentials import Credential
from blackboard.tables.azure_transport import AzureTransport, Errors, MissingTable, code_of
from blackboard.tables.base import MAX_VALUE, Pages, checked

Operation = tuple[str, dict[str, Any], dict[str, Any]]
"""One part of a transaction, as the client takes it: verb, entity, conditions."""

_INT32 = 2**31


def operations(
    partition: str, ops: Sequence[Op], datas: Sequence[Mapping[str, Value]]
) -> Iterator[Operation]:
    """The parts of a transaction; `datas` are the checked values of `ops`."""
    for op, data in zip(ops, datas, strict=True):
        entity = {name: _property(value) for name, value in data.items()}
        entity |= {"PartitionKey": partition, "RowKey": op.key}
        match op:
            case Insert():
                yield "create", entity, {}
            case Merge():
                yield "update", entity, {"mode": UpdateMode.MERGE, **_expecting(op.etag)}
            case Delete():
                yield "delete", entity, _expecting(op.etag)
            case _:
                yield "update", entity, {"mode": UpdateMode.REPLACE, **_expecting(op.etag)}


def row_of(entity: TableEntity) -> Row:
    """The row that an entity is."""
    key = entity.pop("RowKey")
    del entity["PartitionKey"]
    data = {name: _value(found) for name, found in entity.items()}
    return Row(key, entity.metadata["etag"] or "", data, entity.metadata["timestamp"])


def _expecting(etag: Etag) -> dict[str, Any]:
    """The condition of an update; without one it would make an entity that is missing."""
    if etag == ANY:
        return {"match_condition": MatchConditions.Unconditionally}  # If-Match: *
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _property(value: Value) -> Any:
    if type(value) is int and not -_INT32 <= value < _INT32:
        return EntityProperty(value, EdmType.INT64)
    return value


def _value(found: Any) -> Value:
    """The value of a property. A kind that rows do not have becomes text."""
    if isinstance(found, EntityProperty):
        found = found.value
    if isinstance(found, datetime):
        return datetime.combine(found.date(), found.time(), UTC)
    return found if isinstance(found, str | int | float | bool) else str(found)


WHOLE = 30.0
"""Seconds for a whole request, from getting a token to the end of the reply."""
FIRST_PAGE = 250
"""Rows: enough for the locks and tokens of an idle board; of a busy board not all are needed."""

MOST_PAGES = 1_000
"""Of the service for one page of ours: it may reply with fewer rows, or none, and have more."""


class AzureTable:
    """The contract over one table of an account."""

    max_rows = 100
    max_bytes = 5 * 2**18
    """A transaction has room for 4 MiB of JSON, where a character takes up to three times the bytes
    that it is counted as."""
    max_value = MAX_VALUE
    resolution = 0.5

    def __init__(
        self,
        client: TableClient,
        transport: AzureTransport,
        *,
        credential: Credential,
        errors: Errors,
    ) -> None:
        self._client = client
        self._transport = transport
        self._credential = credential
        self._errors = errors
        self._closed = False
        self.requests = transport.requests

    @classmethod
    async def open(
        cls,
        address: AzureAddress,
        clock: Clock,
        *,
        credential: Credential,
        create: bool = False,
        transport: AzureTransport | None = None,
    ) -> "AzureTable":
        """Opens the table at `address`, and makes it if it is missing and `create` is set. The
        table closes `credential` when it is closed. `transport` replaces the usual transport.

        Raises MissingStore; Unavailable, Unusable or Busy.
        """
        transport = transport or AzureTransport(clock, use_env_settings=not address.emulated)
        client = TableClient(
            address.endpoint,
            address.table,
            credential=credential.azure,
            transport=transport,
            retry_total=0,
        )
        table = cls(client, transport, credential=credential, errors=Errors(address, credential))
        try:
            await table._check(create=create)
        except BaseException:
            await table.close()
            raise
        return table

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = checked(partition, ops, max_rows=self.max_rows, max_bytes=self.max_bytes)
        self._check_open()
        if not ops:
            return []
        try:
            async with asyncio.timeout(WHOLE):
                answers = await self._client.submit_transaction(operations(partition, ops, datas))
            return [
                "" if isinstance(op, Delete) else answer["etag"]
                for op, answer in zip(ops, answers, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - whatever it is, the batch may be applied
            raise self._errors.of_commit(error, len(ops)) from None

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        async def fetch(start: str, count: int) -> list[Row]:
            self._check_open()
            return await self._rows(partition, start, last, count)

        return Pages(fetch, first=first, limit=limit, first_page=FIRST_PAGE)

    async def now(self) -> datetime:
        self._check_open()
        return self._transport.store_clock.now()

    def age(self, row: Row) -> float:
        return self._transport.store_clock.age(row.stamp)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._client.close()
            await self._credential.close()

    async def _rows(self, partition: str, first: str, last: str | None, count: int) -> list[Row]:
        """The first `count` rows of a range. A page of the service may have fewer rows than asked
        for, or none, and yet not be the last.
        """
        range_ = "PartitionKey eq @partition and RowKey ge @first"
        bounds = {"partition": partition, "first": first}
        if last is not None:
            range_ += " and RowKey lt @last"
            bounds["last"] = last
        query = self._client.query_entities(range_, parameters=bounds, results_per_page=count)
        rows: list[Row] = []
        pages = query.by_page()
        try:
            for _ in range(MOST_PAGES):
                async with asyncio.timeout(WHOLE):
                    page = await anext(pages, None)
                if page is None:
                    return rows
                found = [row_of(entity) async for entity in page]
                if found:
                    self._transport.store_clock.observe_stamp(max(row.stamp for row in found))
                rows += found
                if len(rows) >= count:
                    return rows[:count]
        except Exception as error:  # noqa: BLE001 - an odd reply can make the SDK raise anything
            raise self._errors.of_scan(error) from None
        raise Unavailable(f"no end of a range after {MOST_PAGES:,} pages")

    async def _check(self, *, create: bool) -> None:
        """Checks that the table exists. The reply also gives the time of the service."""
        try:
            await self._rows("", "", "", 1)
        except MissingTable as missing:
            if not create:
                raise MissingStore(str(missing)) from None
            await self._create()

    async def _create(self) -> None:
        try:
            async with asyncio.timeout(WHOLE):
                await self._client.create_table()
        except ResourceExistsError as error:
            if code_of(error) != "TableAlreadyExists":
                raise self._errors.of_scan(error) from None
        except Exception as error:  # noqa: BLE001 - as for a page
            raise self._errors.of_scan(error) from None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the table is closed")
