"""Turns what the SDK raises into answers of the contract, with messages that say what to do.

Only a request that was surely not sent is Unavailable. A batch whose reply is lost, late, or an
error of the service's own is Unknown, whatever the SDK calls it (its asyncio transport calls a lost
reply a request that was not sent). No message repeats what the service says of keys and signatures.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from azure.core.exceptions import AzureError, HttpResponseError
from azure.data.tables import RequestTooLargeError

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
from blackboard.tables.azure_transport import date_of, is_of_the_service

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

    def of_commit(self, error: Exception, size: int) -> TableError:
        """The answer to a batch of `size` operations. An error without a code of the service, or
        with one that is not about rows, may come from a proxy.
        """
        if not isinstance(error, HttpResponseError) or error.response is None:
            return self._unsent(error) or Unknown(self._without_answer(error))
        code, status = code_of(error), error.status_code or 0
        if answer := self._by_code(code, status):
            return answer
        if code == "ServerBusy":
            return Busy(retry_after(_headers(error)))
        index = getattr(error, "index", 0)
        if 0 <= index < size and code in _CONFLICTS:
            return Conflict(index, _CONFLICTS[code])
        is_too_large = isinstance(error, RequestTooLargeError) and is_of_the_service(
            _headers(error)
        )
        if 0 <= index < size and (is_too_large or (code and status == 400)):
            return Refused(index, f"{code or 'RequestBodyTooLarge'}: {_first_line(error)}")
        return Unknown(self._answered(code, status))

    def of_scan(self, error: Exception) -> TableError:
        """Why a page could not be read."""
        if not isinstance(error, HttpResponseError) or error.response is None:
            return self._unsent(error) or Unavailable(self._without_answer(error))
        code, status = code_of(error), error.status_code or 0
        if answer := self._by_code(code, status):
            return answer
        if status in {429, 503}:
            return Busy(retry_after(_headers(error)))
        if code and status == 400:
            return Unusable(f"{self._answered(code, status)}: {_first_line(error)}")
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
            return Unusable(self.credential.no_token(self.address, error.why))
        cause = _cause(error)
        host = urlsplit(self.address.endpoint).netloc
        match cause:
            case aiohttp.ClientConnectorDNSError():
                return Unavailable(f"no host is named {host} (check the account's name, and DNS)")
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
                return Unusable(f"{host} is not trusted: {_reason(cause)}")
            case aiohttp.ClientConnectorError():
                remedy = _START if self.address.emulated else ""
                return Unavailable(f"{host} takes no connection: {_reason(cause)}{remedy}")
            case aiohttp.ConnectionTimeoutError():
                return Unavailable(f"{host} takes no connection in time")
        return None


def code_of(error: HttpResponseError) -> str:
    """The service's code for an error: some that the SDK raises carry it in the headers alone."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or _headers(error).get("x-ms-error-code", ""))


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait, from a header that may have seconds, a date, or anything else."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return min(float(text), LONGEST_BUSY)
    until, now = date_of(text), date_of(headers.get("Date", ""))
    if until is None or now is None:
        return BUSY
    return min(max((until - now).total_seconds(), 0.0), LONGEST_BUSY)


def _headers(error: HttpResponseError) -> Mapping[str, str]:
    """The headers of a reply; their names are not case-sensitive."""
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    return headers


def _cause(error: BaseException) -> BaseException:
    """What aiohttp raised, below the errors of the SDK."""
    while isinstance(error, AzureError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _reason(error: BaseException) -> str:
    below = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    if isinstance(below, ssl.SSLCertVerificationError):
        return below.verify_message
    return getattr(below, "strerror", None) or str(below)


def _first_line(error: HttpResponseError) -> str:
    return (error.message or "").partition("\n")[0]
