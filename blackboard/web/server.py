"""The HTTP server of `blackboard serve`.

It holds so many connections that descriptors are left for the store. One whose request does not
arrive in time is closed. When there are too many, the server closes the one that it has waited for
longest: for a request, or for the client to take an answer of which it takes nothing. What is being
answered otherwise goes on, however slowly it is read and however long it lasts, as live pages do,
which have at most half of the connections (`live.py`).
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from urllib.parse import unquote

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from blackboard.endpoint import QUEUE, within_descriptors
from blackboard.http_messages import origin_form
from blackboard.metrics.server import quiet_shortage

LAST_ANSWERS = 5
"""Seconds that answers under way have when the server ends."""
MOST_CONNECTIONS = 1_000
"""Connections at a time, where the process may have twice as many descriptors."""
WITHIN = 10.0
"""Seconds for a request to arrive, with its body, after the connection or the last answer; uvicorn
waits half as long for the first byte after an answer."""
STALLED = 30.0
"""Seconds after which a client that takes nothing of its answer may have to make room."""
ACCEPTED_AT_ONCE = 8
"""Connections that are accepted before others are closed for them."""
UNFINISHED = (h11.IDLE, h11.SEND_BODY)
"""States of a client whose request has not arrived in full."""
_log = logging.getLogger("blackboard.web")


def most_connections() -> int:
    """How many connections there may be: at most half of what the process may open."""
    return within_descriptors(MOST_CONNECTIONS, share=2)


class PageConnection(H11Protocol):
    """A connection whose client has to be fast enough."""

    _since = 0.0
    """Since when the server has waited for the client, where it does."""
    _unsent = 0
    """Bytes of answers that the client had not taken at the last look."""
    _next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look_later()
        if len(self.connections) > most_connections():
            self._make_room()

    def _should_upgrade(self) -> bool:
        """Answer a request for another protocol, such as WebSocket, as any other: uvicorn would log
        advice to install one.
        """
        return False

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def _is_unfinished(self) -> bool:
        """Whether a request has to arrive, and nothing else is to be done."""
        transport = self.transport
        return (
            self.conn.their_state in UNFINISHED
            and not transport.get_write_buffer_size()
            and not transport.is_closing()
        )

    def _is_awaited(self) -> bool:
        """Whether the server waits for the client, so that the connection may have to make room."""
        if self.transport.get_write_buffer_size():
            return self.loop.time() - self._since >= STALLED
        return self._is_unfinished()

    def _look(self) -> None:
        """Close the connection if its request is late; note whether its answer is being taken."""
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if not self._is_unfinished():
            if not unsent or unsent < self._unsent:
                self._since = now
        elif now - self._since >= WITHIN:
            self.transport.abort()
            return
        self._unsent = unsent
        self._look_later()

    def _look_later(self) -> None:
        self._next_look = self.loop.call_later(WITHIN, self._look)

    def _make_room(self) -> None:
        """Close the connection that the server has waited for longest; the newest is the last."""
        ours = (
            connection for connection in self.connections if isinstance(connection, PageConnection)
        )
        awaited = (connection for connection in ours if connection._is_awaited())  # noqa: SLF001 - of this class
        min(awaited, key=lambda connection: connection._since, default=self).transport.abort()  # noqa: SLF001


class PageServer(uvicorn.Server):
    """Serves pages until SIGINT or SIGTERM, and calls `started` once it does."""

    def __init__(self, pages: ASGIApp, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                _in_origin_form(pages),
                http=PageConnection,
                ws="none",
                log_config=None,
                log_level="error",  # a request that is no HTTP is a fault of its client
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",  # the board closes its pages
                backlog=ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=LAST_ANSWERS,
            )
        )
        self._started = started

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with quiet_shortage(_report_shortage):
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUE)
        if self.started and not self.should_exit:
            self._started()


def _in_origin_form(pages: ASGIApp) -> ASGIApp:
    """Pages whose requests may name their host in the target, as those to a proxy do. Everything
    that looks at the host sees that one.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            target, host = origin_form(scope["raw_path"])
            if host:
                others = [(name, value) for name, value in scope["headers"] if name != b"host"]
                scope["headers"] = [(b"host", host), *others]
                scope["raw_path"], scope["path"] = target, unquote(target.decode("ascii"))
        await pages(scope, receive, send)

    return app


def below(prefix: str, pages: ASGIApp) -> ASGIApp:
    """Pages below a path, such as /board, as a reverse proxy shows them, whether it passes on the
    whole path of a request or what follows the prefix.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            if path == prefix:
                path = f"{prefix}/"
            elif not path.startswith(f"{prefix}/"):
                path = f"{prefix}{path}"
            scope = {**scope, "root_path": prefix, "path": path}
        await pages(scope, receive, send)

    return app


def _report_shortage() -> None:
    _log.warning(
        "no descriptor is left for another connection: end programs that hold many, or allow more"
        " (`ulimit -n`)"
    )
