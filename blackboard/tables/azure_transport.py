"""Sends requests to an Azure table, counted, timed and signed; and those for tokens.

Nothing is sent again here, for a write without an answer may have been applied. So each request is
one on the bill, but for a page on a kept connection that was closed: aiohttp sends that once more.
Only the first request is dated by the local wall clock (the service requires a date); later ones
have the service's time (`azure_clock.py`).

Names are resolved in threads of their own. aiohttp would do that, and read `~/.netrc`, in those of
`asyncio.to_thread`: handlers may occupy all of them, and then no renewal would reach the store. Of
the environment only the proxies are used: the passwords in `~/.netrc` are for other programs.

Replies are read up to a limit, counted when they are decompressed: a proxy may send anything.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import socket
from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from uuid import uuid4

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientPayloadError,
    ClientResponse,
    ClientSession,
    ConnectionTimeoutError,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import (
    AsyncBearerTokenCredentialPolicy,
    AzureSasCredentialPolicy,
    SansIOHTTPPolicy,
)
from azure.core.pipeline.transport import AioHttpTransport
from azure.core.rest import HttpRequest

from blackboard.clock import Clock
from blackboard.errors import BadInput
from blackboard.http_messages import date_of
from blackboard.table import Requests
from blackboard.tables.azure_clock import ServiceClock
from blackboard.tables.azure_credentials import NoToken
from blackboard.tables.azure_wire import is_of_the_service
from blackboard.tasks import in_thread

CONNECT = 3.0
"""Seconds for a connection."""
COMMIT = 5.0
"""Seconds until a batch is answered: two renewals fit a lease of ten seconds."""
PAGE = 10.0
"""Seconds until anything else is answered; the service ends a page after five."""
SCOPE = "https://storage.azure.com/.default"
"""The scope for which tokens are requested."""
LARGEST_REPLY = 2**28
"""Bytes that are read of a reply: more than those of a page with the largest rows that ours are."""
REQUEST_ID = "x-ms-client-request-id"
"""The service repeats it in its answer; Azurite does not for a batch."""
PASSING = {408, 410, 429}
"""Answers of a service that gives tokens that may pass, besides its own errors. It gives 410 while
it is updated."""
OF_MACHINES = "169.254.169.254"
"""Where a machine of Azure asks for the tokens of its identity. Other clouds have a service of
their own there, which gives none.
"""
_SERVICE_OF_MACHINES = "IMDS/"
"""How the `Server` header of each answer from there begins, in Azure."""
_ASKED = socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", socket.AI_ADDRCONFIG)
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV

logging.getLogger("azure").addHandler(logging.NullHandler())  # errors are raised, not logged


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
    """An answer to its own request, read up to a limit."""

    async def start(self, connection: Any) -> ClientResponse:
        """Raises ServerDisconnectedError for an answer to another request, which something in
        between has sent twice: it was there before the request, or has the id of the other one.
        Raises what has ended the connection, where that has ended without an answer.
        """
        protocol = connection.protocol
        has_ended = protocol.exception() is not None and len(protocol) == 0
        if has_ended or not protocol.should_close:
            await super().start(connection)
            own = self.request_info.headers.get(REQUEST_ID)
            if own is None or self.headers.get(REQUEST_ID, own) == own:
                return self
        protocol.close()
        raise ServerDisconnectedError("an answer to another request")

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


class _Connections(AioHttpTransport):  # type: ignore[misc] # its module loads it lazily
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


class TokenTransport(_Connections):
    """The connections to the services that give tokens, by the proxies of the environment."""

    _failure: NoToken | None = None
    _is_of_azure = False
    """Whether something has answered as it does in Azure."""

    def take_failure(self) -> NoToken | None:
        """How the last request failed, once: azure-identity often says no more than that there is
        no token. None where it was answered for good, be that with a refusal, and where it is not
        known whether there is a service that gives them.
        """
        failure, self._failure = self._failure, None
        return failure

    async def send(self, request: Any, **config: Any) -> Any:
        self._failure = None
        host = urlsplit(request.url).netloc
        try:
            response = await super().send(request, **config, proxy=proxy_of(request.url))
        except BadInput as problem:
            self._failure = NoToken(str(problem))
            raise
        except AzureError as error:
            self._failure = self._unanswered(host, error.__cause__)
            raise
        server = response.headers.get("Server", "")
        if response.status_code == 200 or server.startswith(_SERVICE_OF_MACHINES):
            self._is_of_azure = True
        may_pass = response.status_code in PASSING or 500 <= response.status_code < 600
        if may_pass and (host != OF_MACHINES or self._is_of_azure):  # else a proxy answers
            self._failure = NoToken(f"{host} answered {response.status_code}", may_pass=True)
        return response

    def _unanswered(self, host: str, cause: BaseException | None) -> NoToken | None:
        """None where OF_MACHINES is not reached, and has not answered as in Azure before: this host
        may be no machine of Azure.
        """
        match cause:
            case ClientConnectorCertificateError():
                return NoToken(f"{host} is not trusted")
            case ClientConnectorError() | ConnectionTimeoutError() if host == OF_MACHINES:
                if not self._is_of_azure:
                    return None
        return NoToken(f"no answer from {host}", may_pass=True)


class AzureTransport(_Connections):
    """The connections to one account."""

    commit_timeout: ClassVar[float] = COMMIT
    page_timeout: ClassVar[float] = PAGE

    def __init__(self, clock: Clock, *, proxy: str | None = None, **config: Any) -> None:
        super().__init__(connection_timeout=CONNECT, read_timeout=self.page_timeout, **config)
        self.proxy = proxy
        self.requests = Requests()
        self.store_clock = ServiceClock(clock)
        self._clock = clock

    async def send(self, request: Any, **config: Any) -> Any:
        """Sends one request, gives `store_clock` the time of its reply and reads it to its end."""
        is_commit = request.method == "POST" and request.url.partition("?")[0].endswith("/$batch")
        self.requests.commits += is_commit
        self.requests.pages += request.method == "GET"
        self.requests.others += not is_commit and request.method != "GET"
        request.headers[REQUEST_ID] = uuid4().hex
        sent = self._clock.monotonic()
        async with asyncio.timeout(self.commit_timeout if is_commit else self.page_timeout):
            response = await super().send(request, **config, proxy=self.proxy)
            if is_of_the_service(response.headers):  # a proxy has a clock of its own
                date = date_of(response.headers.get("Date", ""))
                if date is not None:
                    self.store_clock.observe_reply(date, sent=sent)
            if isinstance(request, HttpRequest):  # one of the SDK reads its reply itself
                await response.read()
        return response

    def now(self) -> datetime:
        """The service's time; until a reply has given it, that of this host."""
        return self.store_clock.now() if self.store_clock.is_known else self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()


# ---- the date and the proof of a request


def policies(
    who: AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential,
    now: Callable[[], datetime],
) -> list[Any]:
    """The policies that each request passes: they set its date, and prove who sends it."""
    dated = Dated(now)
    match who:
        case AzureNamedKeyCredential():
            return [dated, SharedKey(who)]
        case AzureSasCredential():
            return [dated, AzureSasCredentialPolicy(who)]
    return [dated, AsyncBearerTokenCredentialPolicy(who, SCOPE)]


class Dated(SansIOHTTPPolicy[Any, Any]):
    """Sets the date of a request, which must be within fifteen minutes of the service's time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def on_request(self, request: PipelineRequest[Any]) -> None:
        request.http_request.headers["x-ms-date"] = format_datetime(self._now(), usegmt=True)


class SharedKey(SansIOHTTPPolicy[Any, Any]):
    """Signs with the key of an account: the verb, type, date and path of a request."""

    def __init__(self, who: AzureNamedKeyCredential) -> None:
        self._who = who

    def on_request(self, request: PipelineRequest[Any]) -> None:
        sent = request.http_request
        account, key = self._who.named_key
        kind, date = sent.headers.get("Content-Type", ""), sent.headers["x-ms-date"]
        signed = f"{sent.method}\n\n{kind}\n{date}\n/{account}{urlsplit(sent.url).path}"
        code = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
        sent.headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(code).decode()}"
