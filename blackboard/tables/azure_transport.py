"""Sends requests to an Azure table, counted, timed and signed.

Nothing is sent again here, for a write without an answer may have been applied. So each request is
one on the bill, but for a page on a kept connection that was closed: aiohttp sends that once more.
Only the first request is dated by the local wall clock (the service requires a date); later ones
have the service's time (`azure_clock.py`).
"""

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime
from typing import Any, ClassVar
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import (
    AsyncBearerTokenCredentialPolicy,
    AzureSasCredentialPolicy,
    SansIOHTTPPolicy,
)
from azure.core.rest import HttpRequest

from blackboard.clock import Clock
from blackboard.table import Requests
from blackboard.tables.azure_clock import ServiceClock, date_of
from blackboard.tables.azure_connections import AzureConnections
from blackboard.tables.azure_credentials import Tokens
from blackboard.tables.azure_wire import is_of_the_service

CONNECT = 3.0
"""Seconds for a connection."""
COMMIT = 5.0
"""Seconds until a batch is answered: two renewals fit a lease of ten seconds."""
PAGE = 10.0
"""Seconds until anything else is answered; the service ends a page after five."""
SCOPE = "https://storage.azure.com/.default"
"""The scope for which tokens are requested."""

logging.getLogger("azure").addHandler(logging.NullHandler())  # errors are raised, not logged


class AzureTransport(AzureConnections):
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
    who: AzureNamedKeyCredential | AzureSasCredential | Tokens, now: Callable[[], datetime]
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
