"""The stream that keeps a page live: server-sent events, each the page's live part anew.

A stream begins with the mark of the server: where the page has another one, the server takes no
form of it, and scripts load it anew. Then it sends the part each time that its text is another one,
until the connection, which browsers keep while their tab is visible, the visit or the server ends.

Each stream holds a connection, so there are `most_streams` at a time, and a few of one browser: it
has six connections to a host, and with all of them in use it would load nothing more. A page for
which there is no stream is polled: its script asks for the part every `QUIET` seconds, and the
answer ends with it.
"""

import asyncio
import hashlib
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from blackboard.endpoint import within_descriptors
from blackboard.errors import BlackboardError
from blackboard.table import TableError
from blackboard.tasks import cancel_all
from blackboard.web.access import visitor_of
from blackboard.web.site import PageFunction, Signature, Site, WebPage, trouble_page, zone_name

QUIET = 15.0
"""Seconds after which a stream without news says that it is there, and the page is made anew."""
APART = 0.8
"""Seconds from one event to the next, at the least."""
SHARE = 5
"""A part is not made anew before so many times as long as it took have passed."""
STATE_EVERY = 1.0
"""Seconds after which a stream looks again whether it is over, and at what its page depends on."""
MOST_STREAMS = 500
"""Streams at a time: half of the connections of `blackboard serve`."""
OF_A_BROWSER = 4
"""Streams of one browser at a time."""
AGAIN = 0.5
"""Seconds after which a page opens a stream again that was cut."""
MOST_CACHED = 8_000_000
"""Bytes of parts that are kept, with their addresses."""
STILL_THERE = "event: still-there\ndata:\n\n"
"""An event and no comment: scripts see it, and by its absence that the connection is gone."""


def most_streams() -> int:
    return within_descriptors(MOST_STREAMS, share=4)


class Fragment(NamedTuple):
    """The live part of a page."""

    of: object
    """The state that it was made for."""
    rests_until: float
    """Monotonic seconds before which it is not made anew, for any viewer."""
    digest: str
    """Another one for another text."""
    event: bytes
    """What a stream sends."""


_Key = tuple[str, str, str]


class Fragments:
    """The live parts of pages, made once for all viewers of one address. The latest of each address
    is kept while a stream is open, so many bytes of them.
    """

    def __init__(self) -> None:
        self._making: dict[_Key, asyncio.Task[Fragment]] = {}
        self._made: dict[_Key, Fragment] = {}
        self._viewers = 0
        self._sessions = Counter[str]()

    @property
    def size(self) -> int:
        """Bytes of those that are kept, and of their addresses."""
        return sum(len(key[1]) + len(made.event) for key, made in self._made.items())

    @contextmanager
    def viewed(self, session: str = "") -> Iterator[bool]:
        """Keeps parts while a stream is open; yields whether the stream may stay. `session` is that
        of the browser; "": it has none.
        """
        self._viewers += 1
        self._sessions[session] += 1
        try:
            is_fair = not session or self._sessions[session] <= OF_A_BROWSER
            yield is_fair and self._viewers <= most_streams()
        finally:
            self._viewers -= 1
            self._sessions[session] -= 1
            self._sessions += Counter()  # keeps those that have a stream
            self._drop()

    def get(
        self, site: Site, request: Request, page: PageFunction, state: object
    ) -> asyncio.Future[Fragment]:
        """The live part of the page that a request shows: for this state or, where that rests or is
        being made, for an earlier one. Others wait for it too: it is not to be cancelled.
        """
        key = (request.url.path, request.url.query, zone_name(request))
        making = self._making.get(key)
        if making is not None:
            return making
        made = self._made.get(key)
        now = site.board.clock.monotonic()
        if made is not None and (made.of == state or now < made.rests_until):
            kept: asyncio.Future[Fragment] = asyncio.get_running_loop().create_future()
            kept.set_result(made)
            return kept
        making = self._making[key] = asyncio.create_task(_fragment(site, request, page, state))
        making.add_done_callback(partial(self._keep, key))
        return making

    def _keep(self, key: _Key, making: asyncio.Task[Fragment]) -> None:
        del self._making[key]
        if not making.cancelled() and making.exception() is None:
            self._made.pop(key, None)  # the newest are last
            self._made[key] = making.result()
            self._drop()

    def _drop(self) -> None:
        if not self._viewers:
            self._made.clear()
        while self.size > MOST_CACHED:
            del self._made[next(iter(self._made))]

    async def close(self) -> None:
        """Stop making those that are not ready."""
        await cancel_all(self._making.values())


async def _fragment(site: Site, request: Request, page: PageFunction, state: object) -> Fragment:
    began = site.board.clock.monotonic()
    try:
        web_page: WebPage = await page(site, request)
    except (BlackboardError, TableError) as problem:
        web_page = trouble_page(str(problem), title="Trouble")
    html = site.fragment(request, web_page).encode("utf-8", "replace")
    digest = hashlib.sha256(html).hexdigest()[:12]
    lines = b"".join(b"data: %s\n" % line for line in html.splitlines())
    ended = site.board.clock.monotonic()
    return Fragment(
        of=state,
        rests_until=ended + SHARE * (ended - began),
        digest=digest,
        event=b"id: %s\n%s\n" % (digest.encode(), lines),
    )


def stream(
    site: Site, request: Request, page: PageFunction, signature: Signature, fragments: Fragments
) -> Response:
    """The answer that goes on while the page is looked at."""
    headers = {"x-accel-buffering": "no", "content-type": "text/event-stream; charset=utf-8"}
    if request.method == "HEAD":
        return Response(headers=headers)
    opened = _Stream(site, request, page, signature, fragments)
    return StreamingResponse(opened.events(), headers=headers)


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream: of one viewer, of one page."""

    site: Site
    request: Request
    page: PageFunction
    signature: Signature
    fragments: Fragments

    async def events(self) -> AsyncIterator[str | bytes]:
        visitor = visitor_of(self.request)
        session = visitor.session if visitor else ""
        async with self.site.snapshot.viewed():
            with self.fragments.viewed(session) as may_stay:
                event, again = ("server", AGAIN) if may_stay else ("polled", QUIET)
                mark = self.site.sessions.mark
                yield f"retry: {1000 * again:.0f}\nevent: {event}\ndata: {mark}\n\n"
                async for said in self._live() if may_stay else self._polled():
                    yield said

    async def _live(self) -> AsyncIterator[str | bytes]:
        """The part, and each other one that it becomes."""
        sent = self._seen
        while not self._is_over:
            state, turn = self._state(), self._turn
            making = self.fragments.get(self.site, self.request, self.page, state)
            while not (await self._is_made(making) or self._is_over):
                if self._turn != turn:  # it takes long, as where the store is away
                    turn = self._turn
                    yield STILL_THERE
            if not making.done():
                return
            part = making.result()
            made_for, rests_until = part.of, part.rests_until
            if part.digest == sent or (not sent and made_for != state):
                yield STILL_THERE  # the page as it was loaded may be newer than the part
            else:
                sent = part.digest
                yield part.event
            del part, making  # else each open stream would hold its part meanwhile
            await asyncio.sleep(APART)
            await self._change(made_for, rests_until, turn)

    async def _polled(self) -> AsyncIterator[str | bytes]:
        """The part, unless the page has it, or it takes too long."""
        clock = self.site.board.clock
        ends = clock.monotonic() + QUIET
        making = self.fragments.get(self.site, self.request, self.page, self._state())
        while not (await self._is_made(making) or self._is_over or clock.monotonic() >= ends):
            pass
        part = making.result() if making.done() else None
        yield part.event if part and part.digest != self._seen else STILL_THERE

    @property
    def _seen(self) -> str:
        """The digest of the part that the page has; "": it shows what it was loaded with."""
        return self.request.headers.get("last-event-id", "")

    async def _is_made(self, making: asyncio.Future[Fragment]) -> bool:
        """Whether a part is there, for which it waits a moment."""
        await asyncio.wait([making], timeout=STATE_EVERY)
        return making.done()

    async def _change(self, made_for: object, rests_until: float, turn: int) -> None:
        """Waits until the page may have changed, or for a turn at the most."""
        snapshot, clock = self.site.snapshot, self.site.board.clock
        while not self._is_over and self._turn == turn:
            if self._state() != made_for and clock.monotonic() >= rests_until:
                break
            await snapshot.change(since=snapshot.version, within=STATE_EVERY)

    @property
    def _is_over(self) -> bool:
        visitor = visitor_of(self.request)
        return is_server_ending() or (
            visitor is not None and self.site.sessions.is_ended(visitor.session)
        )

    @property
    def _turn(self) -> int:
        """The number of this part of time, `QUIET` long: in each a stream says something."""
        return int(self.site.board.clock.monotonic() / QUIET)

    def _state(self) -> object:
        """What the page depends on."""
        around = self.site.snapshot.trouble, self.site.snapshot.paused
        return self.signature(self.site, self.request), around, self._turn


def is_server_ending() -> bool:
    """Whether the server around this, `blackboard serve` or the uvicorn of another application, is
    to stop. Uvicorn ends its applications only when all answers have ended, and streams do not end
    by themselves; but it handles the signals itself.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
