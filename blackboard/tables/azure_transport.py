"""Sends requests to an Azure table, each once, counted and timed; computes the service's clock, and
turns what goes wrong into answers of the contract.

Nothing is sent again here, for a write without an answer may have been applied: one request is one
on the bill.

**The clock.** Replies give the time to the second. A reply whose `Date` is D, to a request sent at
s and received at r on the local monotonic clock, was written between s and r, when the service's
clock showed D or up to a second more. So that clock is ahead of the local monotonic clock by
something between D - r and D + 1 s - s. The intersection over all replies is a narrow range, and
its lower end is used, which errs against taking: nothing is ever due early, and no lock is judged
older than it is. The stamps of rows, which have all digits, narrow the range further: a reader of a
row is not behind its writer. The range widens as the clocks drift apart.

A reply outside of what drift explains means that one of the clocks was set, or that this machine
was suspended. From then on a row is at most as old as that moment, because its stamp and the
service's clock may disagree: no lock is overridden for one lease. A stamp later than the service's
present time is from before the clock was set back, and so at least as old as that moment.

The local wall clock dates the first request alone, of which the service wants to know when it was
sent; later ones have the service's time.

**Errors.** Only a request that was surely not sent is Unavailable. A batch whose reply is lost,
late, or an error of the service's own is Unknown, whatever azure-core calls it (its asyncio
transport calls a lost reply a request that was not sent). Messages say what to do; none repeats
what the service says of keys and signatures.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
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
from blackboard.model import whole_milliseconds
from blackboard.table import (
    Busy,
    Conflict,
    ConflictKind,
    Refused,
    Requests,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.tables.azure_address import AzureAddress
from blackboard.tables.azure_credentials import Credential, NoToken, Tokens
from blackboard.tables.azure_wire import ServiceAnswer

TICK = 1.0
"""Seconds that `Date` may be behind the clock it was read from."""
DRIFT = 200e-6
"""Seconds a second by which two clocks may drift apart."""
JUMP = 2.0
"""Seconds by which the clocks of several machines of one service may differ."""
SCOPE = "https://storage.azure.com/.default"
"""What a token is asked for."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


class ServiceClock:
    """The service's clock, as far as its replies determine it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._low = self._high = 0.0
        """The service's seconds since 1970 minus the local monotonic ones: at least, at most."""
        self._ahead = 0.0
        """The value in use. It changes as little as possible, so that a sleep until a moment ends
        after that moment."""
        self._at = 0.0
        """When the range was computed, monotonic."""
        self._since: float | None = None
        """Since when the service's clock was not set, monotonic."""
        self._jumped = False

    def observe_reply(self, date: datetime, *, sent: float) -> None:
        """Takes in a reply that has just come to a request sent at the monotonic time `sent`."""
        received, shown = self._clock.monotonic(), _seconds(date)
        low, high = shown - received, shown + TICK - sent
        apart = self._apart(received)
        mine_low, mine_high = self._low - apart, self._high + apart
        jumped = low > mine_high + JUMP or high < mine_low - JUMP
        if self._since is None or jumped:
            self._jumped = self._since is not None
            self._low, self._high, self._since = low, high, received
            self._ahead = low
        elif low > mine_high or high < mine_low:
            self._low, self._high = min(low, mine_low), max(high, mine_high)
        else:
            self._low, self._high = max(low, mine_low), min(high, mine_high)
        self._ahead = min(max(self._ahead, self._low), self._high)
        self._at = received

    def observe_stamp(self, stamp: datetime) -> None:
        """Takes in the stamp of a row in the last reply, which the service's clock has passed,
        unless it was set back since.
        """
        low = _seconds(stamp) - self._clock.monotonic()
        if self._low < low <= self._high:
            self._low, self._ahead = low, max(self._ahead, low)

    @property
    def is_known(self) -> bool:
        """Whether a reply has said the time."""
        return self._since is not None

    def now(self) -> datetime:
        """What the service's clock shows, or up to a second less. Needs one reply before."""
        return whole_milliseconds(_EPOCH + (self._clock.monotonic() + self._ahead) * _SECOND)

    def age(self, stamp: datetime) -> float:
        """Seconds since the service wrote `stamp`, at least."""
        now = self._clock.monotonic()
        apart, written = self._apart(now), _seconds(stamp)
        assert self._since is not None
        if written > now + self._high + apart + JUMP:
            return now - self._since
        age = now + self._low - apart - written
        return max(0.0, min(age, now - self._since) if self._jumped else age)

    def _apart(self, now: float) -> float:
        """Seconds by which the clocks may have drifted apart since the last reply."""
        return DRIFT * (now - self._at)


def _seconds(moment: datetime) -> float:
    return (moment - _EPOCH) / _SECOND


CONNECT = 3.0
"""Seconds for a connection."""
COMMIT = 5.0
"""Seconds until a batch is answered: two renewals fit a lease of ten seconds."""
PAGE = 10.0
"""Seconds until anything else is answered; the service ends a page after five."""

logging.getLogger("azure").addHandler(logging.NullHandler())  # errors are raised, not logged


def proxy_of(endpoint: str) -> str | None:
    """The proxy that the environment names for an account, as `HTTPS_PROXY` and `NO_PROXY` do.
    Nothing else of the environment is used: the passwords in `~/.netrc` are for other programs.
    """
    parts = urlsplit(endpoint)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


class AzureTransport(AioHttpTransport):  # type: ignore[misc] # its module loads it lazily
    """The connections to one account."""

    def __init__(self, clock: Clock, *, proxy: str | None = None, **config: Any) -> None:
        super().__init__(
            connection_timeout=CONNECT, read_timeout=PAGE, use_env_settings=False, **config
        )
        self.proxy = proxy
        self.requests = Requests()
        self.store_clock = ServiceClock(clock)
        self._clock = clock

    async def send(self, request: Any, **config: Any) -> Any:
        """Sends one request, takes in the time of its reply and reads it to its end."""
        is_commit = request.method == "POST" and _path(request).endswith("/$batch")
        self.requests.commits += is_commit
        self.requests.pages += request.method == "GET"
        self.requests.others += not is_commit and request.method != "GET"
        sent = self._clock.monotonic()
        async with asyncio.timeout(COMMIT if is_commit else PAGE):
            response = await super().send(request, **config, proxy=self.proxy)
            if is_of_the_service(response.headers):  # a proxy has a clock of its own
                date = date_of(response.headers.get("Date", ""))
                if date is not None:
                    self.store_clock.observe_reply(date, sent=sent)
            if isinstance(request, HttpRequest):  # and none of the SDK, which reads by itself
                await response.read()
        return response

    def now(self) -> datetime:
        """The service's time; until a reply has said it, that of this host."""
        return self.store_clock.now() if self.store_clock.is_known else self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    @property
    def wrong_by(self) -> float:
        """Seconds that the clock of this host is ahead of the service's, if that is known."""
        return (self._clock.now() - self.now()).total_seconds()


# ---- whose requests they are


def policies(
    who: AzureNamedKeyCredential | AzureSasCredential | Tokens, now: Callable[[], datetime]
) -> list[Any]:
    """What each request goes through on its way: a date, and the proof of who sends it."""
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


def is_of_the_service(headers: Mapping[str, str]) -> bool:
    """Whether the service answers, and not a proxy."""
    return "x-ms-request-id" in headers


def _path(request: Any) -> str:
    path: str = request.url.partition("?")[0]
    return path


def date_of(text: str) -> datetime | None:
    """The time in a header; None when it cannot be read or has no zone."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else None


# ---- what errors mean

BAD, TOO_LARGE = 400, 413
BUSY = 1.0
"""Seconds to wait when the service does not say how long."""
LONGEST_BUSY = 30.0
"""Seconds: the service may ask for more, but no more are waited."""

_START = " (`blackboard azurite` starts an emulator)"
_CONFLICTS = {
    "EntityAlreadyExists": ConflictKind.EXISTS,
    "ResourceAlreadyExists": ConflictKind.EXISTS,
    "ResourceNotFound": ConflictKind.MISSING,
    "EntityNotFound": ConflictKind.MISSING,
    "UpdateConditionNotSatisfied": ConflictKind.CHANGED,
    "ConditionNotMet": ConflictKind.CHANGED,
}
_OF_ROWS = {
    "EntityTooLarge",
    "PropertyNameInvalid",
    "PropertyNameTooLong",
    "PropertyValueTooLarge",
    "TooManyProperties",
    "OutOfRangeInput",
    "KeyValueTooLarge",
}
"""Codes of a batch in which a row is wrong, whether or not the message says which."""
_MESSAGES = {
    "TableNotFound": "there is no table {table!r} in {account} (make one with `blackboard init`)",
    "TableBeingDeleted": "the table {table!r} is being deleted, which takes Azure a minute; "
    "then `blackboard init` makes a new one",
    "AccountIsDisabled": "the account {account} is disabled",
}


class MissingTable(Unusable):
    """The account has no table of that name."""


_KIND_OF: dict[str, type[Unavailable]] = {
    "TableNotFound": MissingTable,
    "TableBeingDeleted": Unavailable,  # until the deletion ends
}


@dataclass(frozen=True, slots=True)
class Errors:
    """The answers of one table, for one credential."""

    address: AzureAddress
    credential: Credential
    proxy: str | None = None

    def of_commit(self, error: Exception, size: int) -> TableError:
        """The answer to a batch of `size` operations. An error without a code of the service, or
        with one that is not about rows, may come from a proxy.
        """
        if not isinstance(error, ServiceAnswer):
            return self._unsent(error) or Unknown(self._without_answer(error))
        code, status = error.code, error.status
        if answer := self._by_code(code, status):
            return answer
        if code == "ServerBusy":
            return Busy(retry_after(error.headers))
        if not is_of_the_service(error.headers):
            return Unknown(self._answered(code, status))
        index = 0 if error.index is None and size == 1 else error.index
        if index is not None and 0 <= index < size and code in _CONFLICTS:
            return Conflict(index, _CONFLICTS[code])
        if status == TOO_LARGE or (status == BAD and (index is not None or code in _OF_ROWS)):
            index = index if index is not None and 0 <= index < size else 0
            return Refused(index, f"{code or 'RequestBodyTooLarge'}: {error.message}")
        if status == BAD and code:  # the request is wrong, whatever its rows are
            return Unusable(f"{self._answered(code, status)}: {error.message}")
        return Unknown(self._answered(code, status))

    def of_scan(self, error: Exception) -> TableError:
        """Why a page could not be read."""
        if not isinstance(error, ServiceAnswer):
            return self._unsent(error) or Unavailable(self._without_answer(error))
        code, status = error.code, error.status
        if answer := self._by_code(code, status):
            return answer
        if status in {429, 503}:
            return Busy(retry_after(error.headers))
        if code and status == 400:
            return Unusable(f"{self._answered(code, status)}: {error.message}")
        return Unavailable(self._answered(code, status))

    def _without_answer(self, error: Exception) -> str:
        if isinstance(error, AzureError | OSError):
            return f"no answer from {self.address.url}"
        return f"{self.address.url} gave an answer that cannot be read ({type(error).__name__})"

    def _answered(self, code: str, status: int) -> str:
        return f"{self.address.url} answered {status} {code}".rstrip()

    def _by_code(self, code: str, status: int) -> TableError | None:
        if code in _MESSAGES:
            account = self.address.account or self.address.endpoint
            message = _MESSAGES[code].format(table=self.address.table, account=account)
            return _KIND_OF.get(code, Unusable)(message)
        if status in {401, 403}:
            return Unusable(self.credential.refusal(self.address, code))
        return None

    def _unsent(self, error: Exception) -> TableError | None:
        """The answer to a request that was not sent; None when it may have been."""
        if isinstance(error, NoToken):
            kind = Unavailable if error.may_pass else Unusable
            return kind(self.credential.no_token(self.address, error.why))
        cause = _cause(error)
        host = urlsplit(self.address.endpoint).netloc
        proxy = urlsplit(self.proxy or "").hostname
        match cause:
            case aiohttp.ClientHttpProxyError():
                return Unavailable(f"the proxy {proxy} refuses the way to {host}: {cause.status}")
            case aiohttp.ClientConnectorDNSError() if proxy and cause.host == proxy:
                return Unavailable(f"no host is named {proxy} (check HTTPS_PROXY, and DNS)")
            case aiohttp.ClientConnectorDNSError():
                return Unavailable(f"no host is named {host} (check the account's name, and DNS)")
            case aiohttp.ClientProxyConnectionError():
                return Unavailable(f"cannot connect to the proxy {proxy}: {_reason(cause)}")
            case aiohttp.ClientConnectorCertificateError():
                return Unusable(f"{host} is not trusted: {_reason(cause)}")
            case aiohttp.ClientConnectorSSLError():
                return Unavailable(f"no TLS connection to {host}: {_reason(cause)}")
            case aiohttp.ClientConnectorError():
                remedy = _START if self.address.emulated else ""
                return Unavailable(f"cannot connect to {host}: {_reason(cause)}{remedy}")
            case aiohttp.ConnectionTimeoutError():
                return Unavailable(f"cannot connect to {proxy or host} in time")
        return None


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait, from a header that may have seconds, a date, or anything else."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return min(float(text), LONGEST_BUSY)
    until, now = date_of(text), date_of(headers.get("Date", ""))
    if until is None or now is None:
        return BUSY
    return min(max((until - now).total_seconds(), 0.0), LONGEST_BUSY)


def _cause(error: BaseException) -> BaseException:
    """What aiohttp raised, below the errors of the SDK."""
    while isinstance(error, AzureError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _reason(error: BaseException) -> str:
    below = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    if isinstance(below, ssl.SSLCertVerificationError):
        return below.verify_message
    if isinstance(below, OSError) and below.errno and not isinstance(below, ssl.SSLError):
        return os.strerror(below.errno)
    return getattr(below, "strerror", None) or str(below)
