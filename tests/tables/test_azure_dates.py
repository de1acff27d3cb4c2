"""The dates of requests: the service refuses those that are more than fifteen minutes off."""

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

import pytest

from blackboard.table import Insert, Unknown, Unusable
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import credential_for
from tests.support.clocks import ManualClock
from tests.support.stores import rows_of

SERVICE = datetime(2026, 11, 21, 9, tzinfo=UTC)
MOST = timedelta(minutes=15)
NOTHING = timedelta(0)


async def opened(
    wrong_by: timedelta,
    *,
    tells_its_time: bool = True,
    suspended: timedelta = NOTHING,
    reads: bool = False,
    is_missing: bool = False,
) -> list[timedelta]:
    """How far off the date of each request was, by a clock that is wrong by so much: of those that
    open a table, or make one that `is_missing`, and of a batch, or a page where it `reads`. Before
    the latter the machine is `suspended`: meanwhile its monotonic clock stands still.
    """
    off: list[timedelta] = []
    service = SERVICE

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        found = re.search(r"x-ms-date: ([^\r]+)", head, re.IGNORECASE)
        assert found
        off.append(parsedate_to_datetime(found[1]) - service)
        status, body = 200, b'{"value":[]}'
        if abs(off[-1]) > MOST:
            status, body = 403, b'{"odata.error":{"code":"AuthenticationFailed"}}'
        elif head.startswith("POST") and "/Tables" in head.partition("\r\n")[0]:
            status, body = 201, b'{"TableName":"dates"}'
        elif is_missing and len(off) < 3:
            status, body = 404, b'{"odata.error":{"code":"TableNotFound"}}'
        headers = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if tells_its_time:
            headers += ["x-ms-request-id: 1", f"Date: {format_datetime(service, usegmt=True)}"]
        lines = [f"HTTP/1.1 {status} Said", *headers, "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = azure_address(f"azurite://127.0.0.1:{port}/dates")
        credential = credential_for(address, os.getenv, interactive=False)
        clock = ManualClock(SERVICE + wrong_by)
        table = await AzureTable.open(address, clock, credential=credential, create=is_missing)
        service += suspended
        try:
            if reads:
                assert await rows_of(table, "p") == []
            else:
                with pytest.raises(Unknown):  # it is no answer to a batch
                    await table.commit("p", [Insert("a", {"n": 1})])
        finally:
            await table.close()
    return off


@pytest.mark.parametrize("wrong_by", [timedelta(hours=1), timedelta(days=-4000)])
def test_a_wrong_clock_is_refused_once_and_then_the_dates_are_those_of_the_service(
    wrong_by: timedelta,
) -> None:
    assert asyncio.run(opened(wrong_by)) == [wrong_by, NOTHING, NOTHING]


def test_a_table_is_made_by_the_date_of_the_service_too(monkeypatch: pytest.MonkeyPatch) -> None:
    hour = timedelta(hours=1)
    monkeypatch.setattr("time.time", (SERVICE + hour).timestamp)
    assert asyncio.run(opened(hour, is_missing=True)) == [hour, NOTHING, NOTHING, NOTHING]


def test_a_right_clock_is_never_refused() -> None:
    little = timedelta(seconds=20)
    assert asyncio.run(opened(little)) == [little, NOTHING]


@pytest.mark.parametrize("asked", ["a batch", "a page"])
def test_after_a_machine_was_suspended_a_request_is_dated_anew(asked: str) -> None:
    """It is refused for its date alone, and nothing was applied."""
    hour = timedelta(hours=1)
    off = asyncio.run(opened(NOTHING, suspended=hour, reads=asked == "a page"))
    assert off == [NOTHING, -hour, NOTHING]


def test_a_refusal_for_another_reason_is_not_tried_again() -> None:
    with pytest.raises(Unusable, match="AuthenticationFailed"):
        asyncio.run(opened(timedelta(hours=1), tells_its_time=False))
