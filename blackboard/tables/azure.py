"""A table in an account of Azure Table Storage, or in its emulator Azurite.

A batch is one entity group transaction. Its reply may be lost, and it may be applied up to 30
seconds after the client stopped waiting; both are reported as Unknown, and no batch is sent twice.
The service's clock decides what is due, its stamps what is stale (`azure_clock.py`).

A row is an entity with the row's fields as properties of plain types (String, Int32 or Int64,
Double, Boolean, DateTime), so that any reader of tables can read a board.

Not promised: anything for Cosmos DB for Table, which has the same interface: its scans are not
sorted, its keys end at 255 bytes, and its reads may be stale. It is refused.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from azure.core import AsyncPipelineClient
from azure.core.pipeline.policies import ContentDecodePolicy
from azure.core.rest import HttpRequest

from blackboard.clock import Clock
from blackboard.errors import MissingStore
from blackboard.table import Etag, Op, Row, Unavailable
from blackboard.tables.azure_address import AzureAddress
from blackboard.tables.azure_credentials import Credential
from blackboard.tables.azure_errors import Errors, MissingTable, answer_in
from blackboard.tables.azure_transport import AzureTransport, policies, proxy_of
from blackboard.tables.azure_wire import (
    ACCEPTED,
    OK,
    ServiceAnswer,
    etags_of,
    is_of_the_service,
    page_of,
    page_request,
    transaction,
)
from blackboard.tables.base import MAX_VALUE, Pages, checked

RANGE = 60.0
"""Seconds to read a page of ours, at most."""
FORBIDDEN = 403
SKEW = timedelta(minutes=5)
"""How far off the date of a request may be. If it is more off, one that was refused is sent again:
its date may be the reason."""
FIRST_PAGE = 250
"""Rows: enough for the locks and tokens of an idle board; of a busy board not all are needed."""


class AzureTable:
    """A store (`blackboard.table.Table`) in one table of an account."""

    max_rows = 100
    max_bytes = 5 * 2**18
    """A transaction has room for 4 MiB of JSON, where a character takes up to three times the bytes
    that it is counted as."""
    max_value = MAX_VALUE
    resolution = 0.5

    def __init__(
        self, address: AzureAddress, transport: AzureTransport, *, credential: Credential
    ) -> None:
        self._address = address
        self._transport = transport
        self._credential = credential
        self._client = AsyncPipelineClient[Any, Any](
            address.endpoint,
            policies=policies(credential.azure, transport.now),
            transport=transport,
        )
        self._url = f"{address.endpoint}/{address.table}"
        self._errors = Errors(address, credential, proxy=transport.proxy)
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
        if transport is None:
            proxy = None if address.emulated else proxy_of(address.endpoint)
            transport = AzureTransport(clock, proxy=proxy)
        table = cls(address, transport, credential=credential)
        try:
            await table._check(create=create)
        except BaseException:
            await table.close()
            raise
        return table

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = list(checked(partition, ops, max_rows=self.max_rows, max_bytes=self.max_bytes))
        self._check_open()
        if not ops:
            return []
        request = transaction(self._url, partition, ops, datas)
        try:
            return etags_of(*await self._sent(request), ops)
        except Exception as error:  # noqa: BLE001 - whatever it is, the batch may be applied
            raise self._errors.of_commit(error, len(ops)) from None

    async def _sent(self, request: HttpRequest) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of the answer, which the transport has read to its end. Raises
        ServiceAnswer for one that says OK and is not the service's, such as a page to sign in at.

        A request that is refused because of its date was not applied, and is sent again with the
        date of the reply: the clock of this host is wrong, or it was suspended since the request
        before.
        """
        dated = self._transport.now()
        response = await self._client.send_request(request, stream=True)
        if response.status_code == FORBIDDEN and abs(self._transport.now() - dated) > SKEW:
            response = await self._client.send_request(request, stream=True)
        status, headers = response.status_code, response.headers
        if status in {OK, ACCEPTED} and not is_of_the_service(headers):
            raise ServiceAnswer(status, headers=headers)
        return status, headers, response.content

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
            try:
                await self._client.close()
            finally:
                await self._credential.close()

    async def _rows(self, partition: str, first: str, last: str | None, count: int) -> list[Row]:
        """The first `count` rows of a range. A page of the service may have fewer rows than asked
        for, or none, and yet not be the last. A place that it has named before is no progress.
        """
        rows: list[Row] = []
        following: tuple[str, ...] = ()
        passed = set[tuple[str, ...]]()
        until = self._transport.monotonic() + RANGE
        try:
            while following not in passed and self._transport.monotonic() <= until:
                passed.add(following)
                request = page_request(
                    self._url, partition, first, last, count=count, following=following
                )
                page, following = page_of(*await self._sent(request))
                if page:
                    self._transport.store_clock.observe_stamp(max(row.stamp for row in page))
                rows += page
                if len(rows) >= count or not following:
                    return rows[:count]
        except Exception as error:  # noqa: BLE001 - an odd reply can make anything raise
            raise self._errors.of_scan(error) from None
        raise Unavailable(f"{self._address.url} gives page after page of a range, and no end of it")

    async def _check(self, *, create: bool) -> None:
        """Checks that the table exists, by reading an empty range. The reply also gives the time of
        the service.
        """
        try:
            await self._rows("", "", "", 1)
        except MissingTable as missing:
            if not create:
                raise MissingStore(str(missing)) from None
            await self._create()
        if not self._transport.store_clock.is_known:
            problem = "the replies have no time of the service"
            raise Unavailable(
                f"{self._address.url}: {problem} (does a proxy remove their headers?)"
            )

    async def _create(self) -> None:
        from azure.data.tables.aio import TableClient  # noqa: PLC0415 - slow to import

        client = TableClient(
            self._address.endpoint,
            self._address.table,
            credential=self._credential.azure,
            transport=self._transport,
            # Ours: its own would date the request by the clock of this host.
            policies=[
                *policies(self._credential.azure, self._transport.now),
                ContentDecodePolicy(),
            ],
        )
        try:
            await client.create_table()
        except Exception as error:  # noqa: BLE001 - as for a page
            answer = answer_in(error)
            if not (isinstance(answer, ServiceAnswer) and answer.code == "TableAlreadyExists"):
                raise self._errors.of_scan(answer) from None

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the table is closed")
