"""The HTTP server of `blackboard serve`."""

import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

LAST_ANSWERS = 5
"""Seconds that answers under way have when the server ends."""


class PageServer(uvicorn.Server):
    """Serves pages until SIGINT or SIGTERM, and calls `started` once it does."""

    def __init__(self, pages: ASGIApp, started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                pages,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                timeout_graceful_shutdown=LAST_ANSWERS,
            )
        )
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        if self.started:
            self._started()
