"""Serves the metrics of a worker over HTTP, and whether it is alive and ready.

    /metrics    200, in the format that `Accept` asks for
    /healthz    200 as long as the worker's loop turns: it is the loop that answers
    /readyz     200 once the worker has walked the board and the store answers; 503 with the reason

It answers GET and HEAD, one request of a connection, within a few seconds, and nothing else. There
is no TLS and no password: what can reach the port can read it. It listens on 127.0.0.1 unless a
host is given. Where the process has no descriptor left, connections wait, and nothing is logged.
"""

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Any, NamedTuple

from blackboard.endpoint import Endpoint
from blackboard.http_messages import origin_form
from blackboard.metrics.worker import WorkerMetrics

WITHIN = 5.0
"""Seconds for a request to arrive, and for its answer to be taken."""
LARGEST = 8_192
"""Bytes of a request."""
MOST_CONNECTIONS = 32
"""Connections at a time."""
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Why a connection cannot be accepted now."""
REPORT_EVERY = 60.0
"""Seconds from one report of a shortage to the next, at the least."""
TEXT = "text/plain; charset=utf-8"
_LINE = re.compile(rb"([A-Z]{1,20}) ([!-~]+) HTTP/1\.[01]\r\n")
_ACCEPT = re.compile(rb"^accept:[ \t]*(.*?)[ \t]*\r$", re.IGNORECASE | re.MULTILINE)


class ServedPage(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes

    def head(self) -> bytes:
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Allow: GET, HEAD",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def words(status: HTTPStatus, text: str = "") -> ServedPage:
    """A page of one line."""
    return ServedPage(status, TEXT, f"{text or status.phrase}\n".encode())


Pages = Mapping[str, Callable[[str], ServedPage]]
"""By path. Each is made from the `Accept` header of the request."""


def pages_of(metrics: WorkerMetrics) -> Pages:
    """What is served of a worker."""

    def measured(accept: str) -> ServedPage:
        return ServedPage(HTTPStatus.OK, *metrics.exposition(accept))

    def ready(_accept: str) -> ServedPage:
        why = metrics.not_ready
        return words(HTTPStatus.SERVICE_UNAVAILABLE, why) if why else words(HTTPStatus.OK)

    return {"/metrics": measured, "/healthz": lambda _: words(HTTPStatus.OK), "/readyz": ready}


@asynccontextmanager
async def serving(pages: Pages, endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    """Serves the pages for the length of the block; yields where. Raises BadInput when that is
    taken, or is not an address of this host.
    """
    connections = dict[asyncio.Task[Any], asyncio.StreamWriter]()
    """By the task that answers."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections[task] = writer
        try:
            if len(connections) <= MOST_CONNECTIONS:
                with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
                    await _answer(pages, reader, writer)
        finally:
            del connections[task]
            writer.transport.abort()

    listeners = endpoint.listeners("metrics")
    servers = [
        await asyncio.start_server(answer, limit=LARGEST, backlog=MOST_CONNECTIONS, sock=listener)
        for listener in listeners
    ]
    try:
        with quiet_shortage():
            yield endpoint._replace(port=listeners[0].getsockname()[1])
    finally:
        for server in servers:
            server.close()
        for writer in connections.values():
            writer.transport.abort()
        await asyncio.gather(*connections, return_exceptions=True)


@contextmanager
def quiet_shortage(report: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While servers of the running loop cannot accept connections, for want of descriptors or
    memory, calls `report` once a minute; asyncio by itself logs many tracebacks a second.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    reported_at = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal reported_at
        problem = context.get("exception")
        if "socket" in context and isinstance(problem, OSError) and problem.errno in SHORTAGES:
            if loop.time() - reported_at >= REPORT_EVERY:
                reported_at = loop.time()
                report()
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


async def _answer(pages: Pages, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request. Raises TimeoutError, ConnectionError or IncompleteReadError where there
    is none, or its answer is not taken.
    """
    async with asyncio.timeout(WITHIN):
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            page, is_head = words(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
        else:
            page, is_head = _page(pages, request), request.startswith(b"HEAD ")
        writer.write(page.head() + (b"" if is_head else page.body))
        writer.close()
        await writer.wait_closed()


def _page(pages: Pages, request: bytes) -> ServedPage:
    line = _LINE.match(request)
    target, _ = origin_form(line[2]) if line else (b"", b"")
    if line is None or not target.startswith(b"/"):
        return words(HTTPStatus.BAD_REQUEST)
    if line[1] not in {b"GET", b"HEAD"}:
        return words(HTTPStatus.METHOD_NOT_ALLOWED)
    page = pages.get(target.decode().partition("?")[0])
    if page is None:
        return words(HTTPStatus.NOT_FOUND, f"there are: {', '.join(pages)}")
    accept = _ACCEPT.search(request, line.end())
    return page(accept[1].decode("latin-1") if accept else "")
