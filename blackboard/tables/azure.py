"""A table in an account of Azure Table Storage, or in its emulator Azurite.

A batch is one entity group transaction. Its reply may be lost, and it may land up to 30 seconds
after we stopped waiting; both are told as Unknown, and nothing here sends a batch twice. What is
due goes by the service's clock and what is stale by its stamps (`azure_clock.py`).

Not promised: anything for Cosmos DB for Table, which speaks the same language: its scans are not
sorted, its keys end at 255 bytes, and what it reads may be stale. It is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from azure.core.exceptions import ResourceExistsError
from azure.data.tables.aio import TableClient

from blackboard.clock import Clock
from blackboard.errors import MissingStore
from blackboard.table import Delete, Etag, Op, Row, Unavailable
from blackboard.tables import checks
from blackboard.tables.azure_address import AzureAddress
from blackboard.tables.azure_entities import operations, row_of
from blackboard.tables.azure_errors import Errors, MissingTable, code_of
from blackboard.tables.azure_identity import Credential
from blackboard.tables.azure_wire import Wire
from blackboard.tables.pages import Pages

WHOLE = 30.0
"""Seconds for a request with all that belongs to it: a token first, the end of its reply last."""
FIRST_PAGE = 250
"""Rows: an idle board's locks and tokens fit; a busy board's are not all wanted."""

MOST_PAGES = 1_000
"""For what is asked as one page: the service may answer with less of it, or nothing, and more to
come."""


class AzureTable:
    """The contract over one table of an account."""

    max_rows = 100
    max_bytes = 5 * 2**18
    """A transaction has room for 4 MiB of JSON, where a character takes up to three times what
    it is counted as."""
    max_value = checks.MAX_VALUE
    resolution = 0.5

    def __init__(
        self, client: TableClient, wire: Wire, *, credential: Credential, errors: Errors
    ) -> None:
        self._client = client
        self._wire = wire
        self._credential = credential
        self._errors = errors
        self._closed = False
        self.requests = wire.requests

    @classmethod
    async def open(
        cls,
        address: AzureAddress,
        clock: Clock,
        *,
        credential: Credential,
        create: bool = False,
        wire: Wire | None = None,
    ) -> "AzureTable":
        """Open the table at `address`, make it if `create` says so and it is missing; close
        `credential` when it is closed. `wire` is how requests are sent, if not the usual way.

        Raises MissingStore; Unavailable, Unusable or Busy.
        """
        wire = wire or Wire(clock, use_env_settings=not address.emulated)
        client = TableClient(
            address.endpoint,
            address.table,
            credential=credential.azure,
            transport=wire,
            retry_total=0,
        )
        table = cls(client, wire, credential=credential, errors=Errors(address, credential))
        try:
            await table._check(create=create)
        except BaseException:
            await table.close()
            raise
        return table

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = checks.checked(partition, ops, max_rows=self.max_rows, max_bytes=self.max_bytes)
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
        return self._wire.store_clock.now()

    def age(self, row: Row) -> float:
        return self._wire.store_clock.age(row.stamp)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._client.close()
            await self._credential.close()

    async def _rows(self, partition: str, first: str, last: str | None, count: int) -> list[Row]:
        """The first `count` rows of a range. A page may have fewer than it was asked for, or
        none, and yet not be the last.
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
                    self._wire.store_clock.saw(max(row.stamp for row in found))
                rows += found
                if len(rows) >= count:
                    return rows[:count]
        except Exception as error:  # noqa: BLE001 - also what the SDK makes of an odd reply
            raise self._errors.of_scan(error) from None
        raise Unavailable(f"no end of a range after {MOST_PAGES:,} pages")

    async def _check(self, *, create: bool) -> None:
        """See that the table is there; what time it has is learnt by the way."""
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
