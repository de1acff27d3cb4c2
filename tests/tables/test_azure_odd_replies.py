"""Replies that no table gives: from what stands in between, or from a service that is not well.

Whatever they are, a batch is then of unknown outcome and a page is not to be had; no worker ends.
"""

import asyncio
import errno
import gzip
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientOSError, ClientRequest
from aiohttp.client_proto import ResponseHandler
from azure.core.exceptions import AzureError
from azure.core.rest import HttpRequest

from blackboard.clock import SystemClock
from blackboard.errors import BadInput
from blackboard.table import Busy, Insert, Refused, TableError, Unavailable, Unknown, Unusable
from blackboard.tables import azure_transport
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import credential_for
from blackboard.tables.azure_transport import AzureTransport, TokenTransport, proxy_of
from tests.support.clocks import START
from tests.support.stores import rows_of

DATE = format_datetime(START, usegmt=True)
JSON = {"Content-Type": "application/json;odata=minimalmetadata"}
SERVICE = {"x-ms-request-id": "1", "x-ms-version": "2019-02-02", "Date": DATE}


def reply(status: int, body: bytes = b"", /, **headers: str) -> bytes:
    """A reply as bytes."""
    said = {"Content-Length": str(len(body)), "Connection": "close"}
    said |= {name.replace("_", "-"): text for name, text in headers.items()}
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {text}" for name, text in said.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


EMPTY = reply(200, b'{"value":[]}', **JSON, **SERVICE)
HTML = {"Content-Type": "text/html"}


def page(text: str) -> bytes:
    return reply(200, text.encode(), **JSON, **SERVICE)


def error(status: int, said: object) -> bytes:
    return reply(status, json.dumps({"odata.error": said}).encode(), **JSON, **SERVICE)


OTHER = {"x-ms-client-request-id": "that of another request"}
ODD_PAGES = {
    "an answer to another request": reply(200, b'{"value":[]}', **JSON, **SERVICE, **OTHER),
    "an empty body": page(""),
    "null": page("null"),
    "no rows": page("{}"),
    "null rows": page('{"value":null}'),
    "a row without a stamp": page('{"value":[{"PartitionKey":"p","RowKey":"a"}]}'),
    "a row without keys": page('{"value":[{"n":1}]}'),
    "deeply nested": page('{"value":' + "[" * 100_000),
    "no gzip": reply(200, b"no gzip", Content_Encoding="gzip", **JSON, **SERVICE),
    "half a gzip": reply(200, gzip.compress(b"x" * 99)[:9], Content_Encoding="gzip", **JSON),
    "a page of HTML": reply(200, b"<html>log in</html>", **HTML),
    "somewhere else": reply(302, Location="https://login.example.org/"),
    "502": reply(502, b"<html>bad gateway</html>", **HTML),
    "403 of a gateway": reply(403, b"<html>blocked</html>", **HTML),
    "401 of a gateway": reply(401, b"<html>log in</html>", **HTML),
}
ODD_BATCHES = {
    "an answer to another request": reply(
        202, b"--b\r\n\nHTTP/1.1 204 No\r\nETag: a\r\n" * 2, **SERVICE, **OTHER
    ),
    "an empty body": reply(202, **SERVICE),
    "no boundary": reply(202, b"x", Content_Type="multipart/mixed", **SERVICE),
    "no parts": reply(202, b"--b--", Content_Type="multipart/mixed; boundary=b", **SERVICE),
    "a page": page('{"value":[]}'),
    "403 of a gateway": reply(403, b"<html>blocked</html>", **HTML),
    "nothing of the service's": reply(404, b"<html>not here</html>", **HTML),
    "a conflict of somebody else": reply(409, b"<html>conflict</html>", **HTML),
    "an account that is being made": error(
        409, {"code": "AccountBeingCreated", "message": {"value": "wait"}}
    ),
    "400 with a code of its own": reply(
        400, b"<html>blocked <code>18.5d2c1702.1</code></html>", **HTML
    ),
    "a conflict of a row that is not named": error(
        409, {"code": "UpdateConditionNotSatisfied", "message": {"value": "changed"}}
    ),
    **{
        f"{status}": reply(status, b"<html>no</html>", **HTML)
        for status in (400, 405, 407, 408, 412, 413, 421, 425, 429, 499, 500, 502, 503, 504)
    },
}
ODD_ERRORS = {
    "no error": error(500, None),
    "no message": error(500, {"code": "InternalError", "message": None}),
    "a message that is text": error(500, {"code": "InternalError", "message": "text"}),
    "a wait that overflows": reply(
        503, Retry_After="Tue, 09 Jun 2026 10:00:00 +9999999999999", **SERVICE
    ),
}


@asynccontextmanager
async def answering(
    said: bytes, *, first: bytes = EMPTY, ends: bool = True
) -> AsyncIterator[AzureTable]:
    """A table that opens, and then has this one answer."""
    answers = iter([first])
    left: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (line for line in head.splitlines() if b"content-length" in line.lower()), b""
        )
        await reader.readexactly(int(length.partition(b":")[2] or 0))
        writer.write(next(answers, said))
        await writer.drain()
        if ends:
            writer.close()
        else:
            left.append(writer)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = azure_address(f"azurite://127.0.0.1:{port}/odd")
        credential = credential_for(address, os.getenv, interactive=False)
        table = await AzureTable.open(address, SystemClock(), credential=credential)
        try:
            yield table
        finally:
            await table.close()
            for writer in left:
                writer.close()


@pytest.mark.parametrize("said", ODD_PAGES.values(), ids=list(ODD_PAGES))
def test_a_page_that_is_none_is_not_to_be_had(said: bytes) -> None:
    async def story() -> None:
        async with answering(said) as table:
            with pytest.raises(Unavailable):
                await rows_of(table, "p")

    asyncio.run(story())


@pytest.mark.parametrize(
    "said", [*ODD_BATCHES.values(), *ODD_ERRORS.values()], ids=[*ODD_BATCHES, *ODD_ERRORS]
)
def test_a_batch_without_an_answer_of_the_service_is_unknown(said: bytes) -> None:
    async def story() -> None:
        async with answering(said) as table:
            with pytest.raises(Unknown):
                await table.commit("p", [Insert("a", {"n": 1}), Insert("b", {"n": 1})])

    asyncio.run(story())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, b"<html>blocked</html>"),
        (200, b"<html>sign in</html>"),
        (200, b'{"value":[]}'),
        (202, b"<html>sign in</html>"),
    ],
    ids=str,
)
def test_a_reply_of_something_in_between_is_not_called_the_services(
    status: int, body: bytes
) -> None:
    """The error names the remedy. No page without rows is read out of it."""
    words = rf"something before .* answered {status} \(a proxy\? check HTTPS_PROXY"

    async def story() -> None:
        async with answering(reply(status, body, **HTML)) as table:
            for asked in (rows_of(table, "p"), table.commit("p", [Insert("a", {"n": 1})])):
                with pytest.raises(TableError, match=words):
                    await asked

    asyncio.run(story())


@pytest.mark.parametrize(
    ("message", "code", "kind"),
    [
        ("The value of a header is wrong", "InvalidHeaderValue", Unusable),
        ("1:The value is wrong", "InvalidInput", Refused),
        ("The entity is larger", "EntityTooLarge", Refused),
    ],
)
def test_a_row_is_refused_where_the_service_says_so_of_a_row(
    message: str, code: str, kind: type[TableError]
) -> None:
    """And a request that is wrong as a whole is no fault of its rows."""
    said = error(400, {"code": code, "message": {"value": message}})

    async def story() -> None:
        async with answering(said) as table:
            with pytest.raises(kind) as caught:
                await table.commit("p", [Insert("a", {"n": 1}), Insert("b", {"n": 1})])
            if isinstance(caught.value, Refused):
                assert caught.value.index == int(message.startswith("1:"))

    asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "kind"), [("InvalidHeaderValue", Unusable), ("EntityTooLarge", Refused)]
)
def test_a_request_that_is_wrong_as_a_whole_is_no_fault_of_the_only_row_in_it(
    code: str, kind: type[TableError]
) -> None:
    said = error(400, {"code": code, "message": {"value": "it is wrong"}})

    async def story() -> None:
        async with answering(said) as table:
            with pytest.raises(kind):
                await table.commit("p", [Insert("a", {"n": 1})])

    asyncio.run(story())


EMPTY_BODIES: list[tuple[int, str, type[TableError], type[TableError]]] = [
    (403, "AuthenticationFailed", Unusable, Unusable),
    (404, "TableNotFound", Unusable, Unusable),
    (409, "TableBeingDeleted", Unavailable, Unavailable),
    (429, "TooManyRequests", Busy, Busy),
    (503, "ServerBusy", Busy, Busy),
    (400, "InvalidHeaderValue", Unusable, Unusable),
    (408, "", Unknown, Unavailable),
    (500, "InternalError", Unknown, Unavailable),
    (504, "", Unknown, Unavailable),
]
"""Status and code of a reply without a body, and what it is for a batch, and for a page."""


@pytest.mark.parametrize(("status", "code", "batch", "page"), EMPTY_BODIES, ids=str)
def test_a_reply_without_a_body_says_as_much_by_its_status_and_headers(
    status: int, code: str, batch: type[TableError], page: type[TableError]
) -> None:
    headers = {"x-ms-error-code": code} if code else {}
    said = reply(status, Retry_After="7", **headers, **SERVICE)

    async def story() -> None:
        async with answering(said) as table:
            with pytest.raises(page) as of_page:
                await rows_of(table, "p")
            with pytest.raises(batch) as of_batch:
                await table.commit("p", [Insert("a", {"n": 1}), Insert("b", {"n": 1})])
            for caught in (of_page.value, of_batch.value):
                assert "no answer" not in str(caught)
                if isinstance(caught, Busy):
                    assert caught.retry_after == 7.0

    asyncio.run(story())


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "something before"),
        ({"Date": DATE}, "something before"),
        ({"x-ms-request-id": "1"}, "no time of the service"),
        ({"x-ms-request-id": "1", "Date": "today"}, "no time of the service"),
    ],
)
def test_a_service_that_does_not_tell_the_time_is_not_opened(
    headers: dict[str, str], words: str
) -> None:
    async def story() -> None:
        first = reply(200, b'{"value":[]}', **JSON, **headers)
        with pytest.raises(Unavailable, match=words):
            async with answering(first, first=first):
                pass

    asyncio.run(story())


def test_a_batch_is_waited_for_to_the_end_of_its_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer than a lease allows."""
    monkeypatch.setattr(AzureTransport, "commit_timeout", 0.5)
    half = reply(202, b"x", Content_Type="multipart/mixed; boundary=b", **SERVICE)
    half = half.replace(b"Content-Length: 1\r\n", b"Content-Length: 1000\r\n")

    async def story() -> float:
        async with answering(half, ends=False) as table:
            begun = time.monotonic()
            with pytest.raises(Unknown):
                await table.commit("p", [Insert("a", {"n": 1})])
            return time.monotonic() - begun

    assert asyncio.run(story()) < azure_transport.PAGE


@pytest.mark.parametrize("said", ["chunks without an end", "a bomb", "of the right length"])
def test_a_reply_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """What stands in between may send gigabytes, or what becomes that when it is decompressed."""
    most = 200_000
    monkeypatch.setattr(azure_transport, "LARGEST_REPLY", most)
    body = b'{"value":[]}'.ljust(2 * most)
    chunked = {"Transfer_Encoding": "chunked", "Connection": "keep-alive"}
    sent = {
        "chunks without an end": reply(200, **chunked, **JSON, **SERVICE).replace(
            b"Content-Length: 0\r\n", b""
        )
        + f"{2 * most:x}\r\n".encode()
        + body,
        "a bomb": reply(200, gzip.compress(body), Content_Encoding="gzip", **JSON, **SERVICE),
        "of the right length": reply(200, body, **JSON, **SERVICE),
    }[said]
    words = r"gave a reply of more than 200,000 bytes \(a proxy\? check HTTPS_PROXY and NO_PROXY\)"

    async def story() -> None:
        async with answering(sent, ends=False) as table:
            with pytest.raises(Unavailable, match=words):
                await rows_of(table, "p")
            with pytest.raises(Unknown, match=words):
                await table.commit("p", [Insert("a", {"n": 1})])

    asyncio.run(story())


def test_an_answer_that_is_sent_twice_is_none_to_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or all further requests of that connection would be answered by the one before."""
    kept = {"Connection": "keep-alive", **SERVICE}
    part = b"--b\r\n\nHTTP/1.1 204 No Content\r\nETag: one\r\n"
    accepted, empty = reply(202, part, **kept), reply(200, b'{"value":[]}', **JSON, **kept)
    connections, repeated = set[asyncio.Task[Any]](), asyncio.Semaphore(0)
    received, data_received = asyncio.Event(), ResponseHandler.data_received

    def receive(protocol: ResponseHandler, data: bytes) -> None:
        data_received(protocol, data)
        received.set()

    monkeypatch.setattr(ResponseHandler, "data_received", receive)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
                await reader.readexactly(int(length or 0))
                if head.startswith(b"POST"):
                    writer.write(accepted)
                    await repeated.acquire()
                    writer.write(accepted)
                else:
                    writer.write(empty)
        writer.close()

    async def repeat() -> None:
        """Has the last answer sent again, after it was read. Returns when its connection has some
        of that.
        """
        received.clear()
        repeated.release()
        await received.wait()

    async def story() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            address = azure_address(f"azurite://127.0.0.1:{port}/odd")
            credential = credential_for(address, os.getenv, interactive=False)
            table = await AzureTable.open(address, SystemClock(), credential=credential)
            assert await table.commit("p", [Insert("a", {"n": 1})]) == ["one"]
            await repeat()
            assert await rows_of(table, "p") == []  # asked again over another connection
            await table.commit("p", [Insert("b", {"n": 1})])
            await repeat()
            with pytest.raises(Unknown):
                await table.commit("p", [Insert("c", {"n": 1})])
            repeated.release()
            await table.close()
            await asyncio.gather(*connections)

    asyncio.run(story())


@asynccontextmanager
async def asking_for_a_token() -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Asks a server that gives each request an id, and not in a header of the request."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply(200, b"{}", **JSON, **OTHER))
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        TokenTransport() as transport,
    ):
        port = server.sockets[0].getsockname()[1]
        yield partial(transport.send, HttpRequest("GET", f"http://127.0.0.1:{port}/token"))


def test_an_answer_may_have_any_id_where_its_request_has_none() -> None:
    async def story() -> None:
        async with asking_for_a_token() as ask:
            assert (await ask()).status_code == 200

    asyncio.run(story())


def test_a_connection_that_is_reset_before_it_is_read_is_called_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = ClientRequest.send

    async def sent(request: ClientRequest, connection: Any) -> Any:
        response = await send(request, connection)
        connection.protocol.connection_lost(ConnectionResetError(errno.ECONNRESET, "reset"))
        return response

    monkeypatch.setattr(ClientRequest, "send", sent)

    async def story() -> None:
        async with asking_for_a_token() as ask:
            with pytest.raises(AzureError) as caught:
                await ask()
            assert isinstance(caught.value.__cause__, ClientOSError)
            assert caught.value.__cause__.errno == errno.ECONNRESET

    asyncio.run(story())


def test_passwords_for_other_programs_are_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert proxy_of("https://account.table.core.windows.net") is None
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:8080")
    assert proxy_of("https://account.table.core.windows.net") == "http://proxy.example.org:8080"
    monkeypatch.setenv("no_proxy", ".core.windows.net")
    assert proxy_of("https://account.table.core.windows.net") is None

    async def story() -> None:
        async with answering(EMPTY) as table:
            assert await rows_of(table, "p") == []

    asyncio.run(story())


def test_a_range_that_goes_on_where_it_was_before_is_given_up_at_once() -> None:
    more = {
        "x-ms-continuation-NextPartitionKey": "p",
        "x-ms-continuation-NextRowKey": "a",
    }
    endless = reply(200, b'{"value":[]}', **JSON, **SERVICE, **more)

    async def story() -> None:
        async with answering(endless) as table:
            before = table.requests.pages
            with pytest.raises(Unavailable, match="odd gives page after page"):
                await rows_of(table, "p")
            assert table.requests.pages == before + 2

    asyncio.run(story())


def test_the_clock_of_what_stands_in_between_says_nothing() -> None:
    """Or an item would run early, for a gateway that is an hour ahead."""
    ahead = reply(502, b"", Date="Sat, 21 Nov 2026 23:00:00 GMT")

    async def story() -> None:
        async with answering(ahead) as table:
            before = await table.now()
            with pytest.raises(Unavailable):
                await rows_of(table, "p")
            assert (await table.now() - before).total_seconds() < 60
            assert abs((await table.now() - START).total_seconds()) < 60

    asyncio.run(story())


@pytest.mark.parametrize(
    "named", ["garbage://secret", "http://me:secret@host:99999", "http://", "http://[secret"]
)
def test_a_proxy_that_is_no_address_is_refused_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("https_proxy", named)
    with pytest.raises(BadInput, match="HTTPS_PROXY: it is not an address of a proxy") as refused:
        proxy_of("https://account.table.core.windows.net")
    assert "secret" not in str(refused.value)


def test_a_proxy_without_a_scheme_is_one_of_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "127.0.0.1:8080")
    assert proxy_of("https://account.table.core.windows.net") == "http://127.0.0.1:8080"
