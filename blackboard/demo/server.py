"""A web server for the demo's feeds: on this machine alone, at a port that is free, and slow, as
the servers of small towns are.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from blackboard.clock import Clock

HOST = "127.0.0.1"
PATIENCE = 10.0
"""Seconds for a request to come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is at an address, and the seconds that pass before it is handed out."""

    body: bytes
    kind: str
    delay: float


@asynccontextmanager
async def serving(pages: Mapping[str, Page], clock: Clock) -> AsyncIterator[str]:
    """Serve pages by their paths ("/town/group.ics"); the value is the address of the root, without
    a slash at its end.
    """
    site = _Site(pages, clock)
    server = await asyncio.start_server(site.answer, HOST, 0, backlog=128)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await site.close()


class _Site:
    def __init__(self, pages: Mapping[str, Page], clock: Clock) -> None:
        self._pages = pages
        self._clock = clock
        self._answering: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            async with asyncio.timeout(PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
            writer.write(await self._response(request))
            await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            return  # whoever asked is gone (killed, for one), asks nonsense, or the demo is over
        finally:
            self._answering.discard(task)
            writer.close()

    async def _response(self, request: bytes) -> bytes:
        method, path, *_ = [*request.decode("latin-1").partition("\r\n")[0].split(" "), "", ""]
        page = self._pages.get(path)
        if method != "GET" or page is None:
            return _message("404 Not Found", "text/plain", b"There is no such calendar.\n")
        await self._clock.sleep(page.delay)
        return _message("200 OK", page.kind, page.body)

    async def close(self) -> None:
        for task in tuple(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)


def _message(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode("latin-1") + body
