"""Turns the errors of requests to an Azure table into those of the contract.

A batch is Unavailable only if it was surely not applied. One whose reply is lost, late, or an error
of the service's own is Unknown, whatever azure-core calls it (its asyncio transport calls a lost
reply a request that was not sent). A batch is Refused or a Conflict only where the service says so
of a row. Messages say what to do; none repeats what the service says of keys and signatures.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from azure.core.exceptions import AzureError, HttpResponseError

from blackboard.host_names import is_unresolved_for_now
from blackboard.http_messages import retry_after
from blackboard.table import (
    Busy,
    Conflict,
    ConflictKind,
    Refused,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.tables.azure_address import AzureAddress
from blackboard.tables.azure_credentials import Credential, NoToken
from blackboard.tables.azure_transport import ReplyTooLarge
from blackboard.tables.azure_wire import ServiceAnswer, is_of_the_service

BAD, TOO_LARGE, TOO_MANY = 400, 413, 429
BUSY = 1.0
"""Seconds to wait, at least, and when the service does not say how long."""
LONGEST_BUSY = 30.0
"""Seconds to wait, at most, also where the service asks for more."""

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


class MissingTable(Unusable):
    """The account has no table of that name."""


_OF_THE_TABLE: dict[str, tuple[type[Unavailable], str]] = {
    "TableNotFound": (
        MissingTable,
        "there is no table {table!r} in {account} (make one with `blackboard init`)",
    ),
    "TableBeingDeleted": (
        Unavailable,
        (
            "the table {table!r} is being deleted, which takes Azure a minute; "
            "then `blackboard init` makes a new one"
        ),
    ),
    "AccountIsDisabled": (Unusable, "the account {account} is disabled"),
}
"""Codes that mean the same for a batch and a page: the error, and its message."""


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one table, for one credential."""

    address: AzureAddress
    credential: Credential
    proxy: str | None = None

    def of_commit(self, error: Exception, size: int) -> TableError:
        """The error for a batch of `size` operations. What a proxy answers shows nothing of it."""
        if not isinstance(error, ServiceAnswer):
            return self._unsent(error) or Unknown(self._without_answer(error))
        if answer := self._by_code(error):
            return answer
        is_service = is_of_the_service(error.headers)
        if error.code == "ServerBusy" or (error.status == TOO_MANY and is_service):
            return _busy(error.headers)
        if is_service and (answer := _of_an_operation(error, size)):
            return answer
        if is_service and error.status == BAD and error.code:  # the request itself is wrong
            return Unusable(f"{self._answered(error)}: {error.message}")
        return Unknown(self._answered(error))

    def of_scan(self, error: Exception) -> TableError:
        """The error for a page that could not be read."""
        if not isinstance(error, ServiceAnswer):
            return self._unsent(error) or Unavailable(self._without_answer(error))
        code, status = error.code, error.status
        if answer := self._by_code(error):
            return answer
        if status in {TOO_MANY, 503}:
            return _busy(error.headers)
        if code and status == BAD:
            return Unusable(f"{self._answered(error)}: {error.message}")
        return Unavailable(self._answered(error))

    def _without_answer(self, error: Exception) -> str:
        cause = _cause(error)
        if isinstance(cause, ReplyTooLarge):
            return f"{self.address.url} gave {cause} (a proxy? check HTTPS_PROXY and NO_PROXY)"
        if isinstance(error, AzureError | OSError):
            return f"no answer from {self.address.url}"
        return f"{self.address.url} gave an answer that cannot be read ({type(error).__name__})"

    def _answered(self, error: ServiceAnswer) -> str:
        answer = f"{self.address.url} answered {error.status} {error.code}".rstrip()
        if error.code or is_of_the_service(error.headers):
            return answer
        return f"something before {answer} (a proxy? check HTTPS_PROXY and NO_PROXY)"

    def _by_code(self, error: ServiceAnswer) -> TableError | None:
        if error.code in _OF_THE_TABLE:
            kind, message = _OF_THE_TABLE[error.code]
            account = self.address.account or self.address.endpoint
            return kind(message.format(table=self.address.table, account=account))
        if error.status in {401, 403} and (error.code or is_of_the_service(error.headers)):
            return Unusable(self.credential.refusal(self.address, error.code))
        return None

    def _unsent(self, error: Exception) -> TableError | None:
        """The error for a request that was not sent; None when it may have been."""
        if isinstance(error, NoToken):
            kind = Unavailable if error.may_pass else Unusable
            return kind(self.credential.no_token(self.address, error.why))
        cause = _cause(error)
        host = urlsplit(self.address.endpoint).netloc
        proxy = urlsplit(self.proxy or "").hostname
        match cause:
            case aiohttp.ClientHttpProxyError():
                return Unavailable(f"the proxy {proxy} refuses the way to {host}: {cause.status}")
            case aiohttp.ClientConnectorDNSError():
                is_proxy = bool(proxy) and cause.host == proxy
                name, given = (proxy, "HTTPS_PROXY") if is_proxy else (host, "the account's name")
                if is_unresolved_for_now(cause.os_error):
                    return Unavailable(f"the name {name} cannot be resolved now (check DNS)")
                return Unavailable(f"no host is named {name} (check {given}, and DNS)")
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


def _of_an_operation(error: ServiceAnswer, size: int) -> TableError | None:
    """The error for one of `size` operations of a batch; None: the service answers about none."""
    index = error.index if error.index in range(size) else None
    conflict = _CONFLICTS.get(error.code)
    if conflict is not None and index is not None:
        return Conflict(index, conflict)
    is_of_a_row = index is not None or error.code in _OF_ROWS
    if error.status == TOO_LARGE or (error.status == BAD and is_of_a_row):
        return Refused(index or 0, f"{error.code or 'RequestBodyTooLarge'}: {error.message}")
    return None


def answer_in(error: Exception) -> Exception:
    """An error of the SDK as that of one of our own requests; the error itself, where it has no
    answer of the service. The code may be in the headers alone.
    """
    if not isinstance(error, HttpResponseError) or error.response is None:
        return error
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    code = getattr(error, "error_code", None)
    return ServiceAnswer(
        status=error.status_code or 0,
        code=str(getattr(code, "value", code) or headers.get("x-ms-error-code", "")),
        message=(error.message or "").partition("\n")[0],
        headers=headers,
    )


def _busy(headers: Mapping[str, str]) -> Busy:
    asked = retry_after(headers.get("Retry-After", ""), headers.get("Date", ""))
    return Busy(min(max(asked, BUSY), LONGEST_BUSY))


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
