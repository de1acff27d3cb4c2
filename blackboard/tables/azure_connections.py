"""Connections to Azure, and to the services that give tokens for it.

Names are resolved in threads of their own. aiohttp would do that, and read `~/.netrc`, in those of
`asyncio.to_thread`: handlers may occupy all of them, and then no renewal would reach the store.

Of the environment only the proxies are used: the passwords in `~/.netrc` are for other programs.

Replies are read up to a limit, counted when they are decompressed: a proxy may send anything.
"""

import socket
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp import (
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    DummyCookieJar,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from azure.core.pipeline.transport import AioHttpTransport

from blackboard.errors import BadInput
from blackboard.tasks import in_thread

LARGEST_REPLY = 2**28
"""Bytes that are read of a reply: more than those of a page with the largest rows that ours are."""
_ASKED = socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", socket.AI_ADDRCONFIG)
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for an address, as `HTTPS_PROXY` and `NO_PROXY` do.
    Raises BadInput for what is not an address of one; it is not repeated, since it may hold a
    secret.
    """
    parts = urlsplit(url)
    named = getproxies().get(parts.scheme)
    if not named or proxy_bypass(parts.hostname or ""):
        return None
    address = named if "://" in named else f"http://{named}"
    try:
        proxy = urlsplit(address)
        is_good = proxy.scheme in {"http", "https"} and bool(proxy.hostname) and proxy.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        name = f"{parts.scheme.upper()}_PROXY"
        raise BadInput(name, "it is not an address of a proxy", "as in http://HOST:PORT")
    return address


class ReplyTooLarge(ClientPayloadError):
    """A reply goes on after `LARGEST_REPLY`."""


class _BoundedResponse(ClientResponse):
    async def read(self) -> bytes:
        """Reads the body, once. Raises ReplyTooLarge."""
        parts, left = list[bytes](), LARGEST_REPLY
        try:
            async for part in self.content.iter_any():
                parts.append(part)
                left -= len(part)
                if left < 0:
                    raise ReplyTooLarge(f"a reply of more than {LARGEST_REPLY:,} bytes")
        except BaseException:
            self.close()
            raise
        return b"".join(parts)


class AzureConnections(AioHttpTransport):  # type: ignore[misc] # its module loads it lazily
    """Connections whose names are resolved here, and without the proxies of the environment."""

    session: ClientSession | None

    async def open(self) -> None:
        """Makes the session, as its base does. Called before each request."""
        if not self._has_been_opened and self.session is None:
            self.session = ClientSession(
                connector=TCPConnector(resolver=_Resolver()),
                cookie_jar=DummyCookieJar(),
                response_class=_BoundedResponse,
            )
        await super().open()


class TokenConnections(AzureConnections):
    """Connections to the services that give tokens, by the proxies of the environment."""

    problem = ""
    """Why the last request could not be sent, where the environment is the reason: azure-identity
    says of it no more than that there was no answer."""

    async def send(self, request: Any, **config: Any) -> Any:
        self.problem = ""
        try:
            proxy = proxy_of(request.url)
        except BadInput as problem:
            self.problem = str(problem)
            raise
        return await super().send(request, **config, proxy=proxy)


class _Resolver(AbstractResolver):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=_ASKED)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=of_address,
                proto=proto,
                flags=_NUMERIC,
            )
            for of_address, _, proto, _, address in await in_thread(look_up)
        ]

    async def close(self) -> None:
        """Does nothing: nothing is open."""
