"""The stream that keeps a page live: server-sent events, each the page's live part anew.

A stream begins with the mark of the server: where the page has another one, the server takes no
form of it, and scripts load it anew. Then the stream waits for the snapshot that all
viewers share, asks the page for its signature, and sends the part when its text is another one. It
ends with the connection, which browsers keep while their tab is visible, when the visitor signs
out, or with the server.
"""

import asyncio
import hashlib
import signal
from collections.abc import AsyncIterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from blackboard.errors import BlackboardError
from blackboard.table import TableError
from blackboard.web.access import visitor_of
from blackboard.web.site import ZONE_COOKIE, PageFunction, Signature, Site, WebPage, trouble_page

QUIET = 15.0
"""Seconds after which a stream without news says that it is there, and the page is made anew."""
APART = 0.8
"""Seconds from one event to the next, at the least."""
STATE_EVERY = 1.0
"""Seconds after which a stream looks again whether it is over, and at what its page depends on."""
MOST_CACHED = 64
STILL_THERE = "event: still-there\ndata:\n\n"
"""An event and no comment: scripts see it, and by its absence that the connection is gone."""


class Fragments:
    """The live parts of pages, made once for all viewers of one address."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], asyncio.Task[str]] = {}
        """Also those that are being made."""

    async def get(self, site: Site, request: Request, page: PageFunction, signature: object) -> str:
        """The live part of the page that a request shows."""
        key = (request.url.path, request.url.query, request.cookies.get(ZONE_COOKIE), signature)
        making = self._made.get(key)
        if making is None:
            if len(self._made) >= MOST_CACHED:
                self._made = {one: made for one, made in self._made.items() if not made.done()}
            making = self._made[key] = asyncio.create_task(_fragment(site, request, page))
            making.add_done_callback(partial(self._drop_failed, key))
        return await asyncio.shield(making)  # others wait for it, when this viewer is gone

    def _drop_failed(self, key: tuple[object, ...], made: asyncio.Task[str]) -> None:
        failed = made.cancelled() or made.exception() is not None
        if failed and self._made.get(key) is made:
            del self._made[key]

    async def close(self) -> None:
        """Stop making those that are not ready."""
        making = [one for one in self._made.values() if not one.done()]
        for one in making:
            one.cancel()
        await asyncio.gather(*making, return_exceptions=True)


async def _fragment(site: Site, request: Request, page: PageFunction) -> str:
    try:
        found: WebPage = await page(site, request)
    except (BlackboardError, TableError) as problem:
        found = trouble_page(str(problem), title="Trouble")
    return site.fragment(request, found)


def stream(
    site: Site, request: Request, page: PageFunction, signature: Signature, fragments: Fragments
) -> Response:
    """The answer that goes on while the page is looked at."""
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    if request.method == "HEAD":
        return Response(headers=headers, media_type="text/event-stream")

    visitor = visitor_of(request)

    def is_over() -> bool:
        return is_server_ending() or (
            visitor is not None and site.sessions.is_ended(visitor.session)
        )

    def state() -> object:
        around = site.snapshot.trouble, site.snapshot.paused
        turn = int(site.clock.monotonic() / QUIET)
        return signature(site, request), around, turn

    async def events() -> AsyncIterator[str]:
        sent = ""
        async with site.snapshot.viewed():
            yield f"event: server\ndata: {site.sessions.mark}\n\n"
            while not is_over():
                made_for = state()
                html = await fragments.get(site, request, page, made_for)
                digest = hashlib.sha256(html.encode("utf-8", "replace")).hexdigest()
                if digest != sent:
                    sent = digest
                    yield _event(html, digest)
                else:
                    yield STILL_THERE
                await asyncio.sleep(APART)
                while state() == made_for and not is_over():
                    await site.snapshot.change(since=site.snapshot.version, within=STATE_EVERY)

    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def is_server_ending() -> bool:
    """Whether the server around this, `blackboard serve` or the uvicorn of another application, is
    to stop. Uvicorn ends its applications only when all answers have ended, and streams do not end
    by themselves; but it handles the signals itself.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))


def _event(html: str, digest: str) -> str:
    lines = "\n".join(f"data: {line}" for line in html.splitlines())
    return f"id: {digest[:12]}\n{lines}\n\n"
