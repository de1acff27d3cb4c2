"""The credential for an Azure table, from the environment. The first of these that is set:

1. BLACKBOARD_CONNECTION_STRING, with an account key or a shared access signature;
2. for `azurite:`, the emulator's well-known key;
3. a workload identity (AZURE_FEDERATED_TOKEN_FILE);
4. a service principal (AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH);
5. the managed identity of the host, the one that AZURE_CLIENT_ID names if it has several; at a
   terminal, after it the login of `az` or `azd`.

Nothing is sent here: a token is requested with the first request to the table, and renewed with
later ones. azure-identity reads the environment of the process.

No secret of a connection string is repeated: not in an error, and not in what a traceback shows of
these objects. The address alone says which table is used; the string must be of the same account.

The service that gives tokens speaks HTTP too, so its failure carries a response of its own, and
quotes from it. Here it becomes `NoToken`, which has no response and repeats none of its text.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError

from blackboard.clock import Clock, SystemClock
from blackboard.errors import BadInput, StoreProblem
from blackboard.tables.azure_address import (
    CONNECTION_STRING,
    EMULATOR,
    AzureAddress,
    netloc,
    refuse_cosmos,
)
from blackboard.tasks import cancel_all

EMULATOR_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Not a secret: it is documented, and the same in every emulator."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that its own representation does not show."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection string: an account and its key, or a shared access signature."""

    account: str = ""
    """Empty where a signature comes without its account."""
    key: Secret | None = None
    signature: Secret | None = None
    host: str = ""
    """Host and port of the table service, where the string names them."""

    @classmethod
    def parse(cls, given: Secret) -> "Connection":
        """Reads a connection string.

        Raises BadInput when it cannot be read; StoreProblem when it is of Cosmos DB.
        """
        fields = _fields(given)
        if fields is None:
            raise _unreadable("it is no connection string: NAME=VALUE;NAME=VALUE")
        host = _host(fields)
        if host is None:
            raise _unreadable("its TableEndpoint is not an address")
        for address in (host, _text(fields, "endpointsuffix"), _text(fields, "accountendpoint")):
            refuse_cosmos(address.rpartition("//")[2])
        if _text(fields, "usedevelopmentstorage").lower() == "true":
            return cls(account=EMULATOR, key=Secret(EMULATOR_KEY))
        account = host.partition(".")[0] if ".table." in host else ""
        connection = cls(
            account=_text(fields, "accountname") or account,
            key=fields.get("accountkey"),
            signature=fields.get("sharedaccesssignature"),
            host=host,
        )
        if (connection.key is None) == (connection.signature is None):
            raise _unreadable("it needs AccountKey or SharedAccessSignature, one of them")
        if connection.key and not connection.account:
            raise _unreadable("it has an AccountKey and no AccountName")
        if connection.key and not _is_key(connection.key):
            raise _unreadable("its AccountKey is not whole: a key is base64")
        return connection

    def check(self, address: AzureAddress) -> None:
        """Raises BadInput when `address` is of another account."""
        place = netloc(urlsplit(address.endpoint))
        if self.account and address.account and self.account != address.account:
            own, other = f"account {self.account}", f"account {address.account}"
        elif self.host and self.host != place:
            own, other = self.host, place
        else:
            return
        problem = f"it is of {own}, and the store of {other}"
        raise BadInput(CONNECTION_STRING, problem, "unset it, or name a table of its account")


def _unreadable(problem: str) -> BadInput:
    remedy = "copy it from the access keys, or the shared access signature, of the storage account"
    return BadInput(CONNECTION_STRING, problem, remedy)


def _fields(given: Secret) -> dict[str, Secret] | None:
    """Its fields, by their names in lower case; None when it has none, or a name twice."""
    fields: dict[str, Secret] = {}
    for part in given.text.strip().strip(";").split(";"):
        name, equals, value = part.partition("=")
        name = name.strip().lower()
        if not name.isalpha() or not equals or not value.strip() or name in fields:
            return None
        fields[name] = Secret(value.strip())
    return fields


def _text(fields: dict[str, Secret], name: str) -> str:
    return fields[name].text if name in fields else ""


def _host(fields: dict[str, Secret]) -> str | None:
    """Host and port of its TableEndpoint, "" without one; None if that is not an address."""
    endpoint = _text(fields, "tableendpoint")
    try:
        parts = urlsplit(endpoint)
        host = netloc(parts)
    except ValueError:
        return None
    return None if endpoint and (not parts.hostname or parts.query) else host


def _is_key(key: Secret) -> bool:
    try:
        return bool(base64.b64decode(key.text, validate=True))
    except (binascii.Error, ValueError):
        return False


Lookup = Callable[[str], str | None]
"""The environment, as `os.getenv` gives it: unlike a mapping, it has no repr with secrets."""

ROLE = "Storage Table Data Contributor"

_INSTALL = "pip install 'blackboard-scheduler[azure]'"
_TOKEN_FILE = "AZURE_FEDERATED_TOKEN_FILE"  # noqa: S105 - the name of a variable
_CERTIFICATE = "AZURE_CLIENT_CERTIFICATE_PATH"
_PASSWORD = "AZURE_CLIENT_CERTIFICATE_PASSWORD"  # noqa: S105 - the name of a variable
_PRINCIPAL = ("AZURE_CLIENT_SECRET", _CERTIFICATE)


TOKEN_WITHIN = 10.0
"""Seconds to wait for a token: `az` takes several. The time limit of the request that waits for it
begins when that is sent."""
VALID_WAITS = 2.0
"""Seconds that a request waits for a new token while the last one is valid: where the service that
gives tokens is in trouble, azure-identity asks it for long, and all renewals would wait for that.
"""

ASK_AGAIN = 5.0
"""Seconds after a failure until a token is asked for again."""

_ENTRA_CODE = re.compile(r"\bAADSTS\d+\b")


class NoToken(ClientAuthenticationError):
    """There is no token, and no request was sent. `why` is "" when the reason is unknown;
    `may_pass`: the service that gives tokens is away or in trouble, and may give one later.
    """

    def __init__(self, why: str = "", *, may_pass: bool = False) -> None:
        super().__init__(message=why or "no token")
        self.why = why
        self.may_pass = may_pass


class Tokens(AsyncTokenCredential):
    """`source` with a time limit; every failure is a NoToken. All requests wait for one answer.

    While it fails, or takes long, the last token is used as long as it is valid. Without one, the
    failure is raised again for `ASK_AGAIN` seconds, so that requests that wait for a token fail
    together and not one after the other.
    """

    def __init__(
        self,
        source: AsyncTokenCredential,
        clock: Clock | None = None,
        *,
        failure: Callable[[], NoToken | None] = lambda: None,
    ) -> None:
        """`failure` returns how the last request for a token failed, where that is known."""
        self._source = source
        self._failure = failure
        self._clock = clock or SystemClock()
        self._last: AccessToken | None = None
        self._failed: tuple[float, NoToken] | None = None
        """When the source last failed, monotonic, and how."""
        self._asking: asyncio.Task[AccessToken | None] | None = None

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        asking = self._asking
        if options.get("claims") or (asking is None and not self._has_just_failed):
            # In a context of its own: it is no part of the run whose request comes first.
            asking = asyncio.create_task(self._ask(*scopes, **options), context=Context())
            self._asking = asking
        if asking is not None:
            if self._valid is not None:
                await asyncio.wait([asking], timeout=VALID_WAITS)
            if self._valid is None:  # it may have expired meanwhile
                await asyncio.wait([asking])
            if asking.done() and (token := asking.result()) is not None:
                return token  # it is valid also where this host's clock is wrong
        if (valid := self._valid) is not None:
            return valid
        assert self._failed is not None
        raise self._failed[1]

    @property
    def _has_just_failed(self) -> bool:
        return self._failed is not None and (self._clock.monotonic() <= self._failed[0] + ASK_AGAIN)

    async def _ask(self, *scopes: str, **options: Any) -> AccessToken | None:
        """Asks for a token. Notes how that ends, also where no request waits for it any more."""
        try:
            self._last, self._failed = await self._asked(*scopes, **options), None
        except NoToken as failure:
            self._failed = self._clock.monotonic(), failure
            return None
        finally:
            if self._asking is asyncio.current_task():
                self._asking = None
        return self._last

    @property
    def _valid(self) -> AccessToken | None:
        """The last token, while it is valid by the clock of this host."""
        last = self._last
        is_valid = last is not None and last.expires_on > self._clock.now().timestamp()
        return last if is_valid else None

    async def _asked(self, *scopes: str, **options: Any) -> AccessToken:
        try:
            async with asyncio.timeout(TOKEN_WITHIN):
                return await self._source.get_token(*scopes, **options)
        except TimeoutError:
            known = self._failure()
            why = known.why if known is not None else ""
            raise NoToken(why or f"no answer within {TOKEN_WITHIN:g} s", may_pass=True) from None
        except OSError as error:
            raise NoToken(
                error.strerror or "", may_pass=isinstance(error, ConnectionError)
            ) from None
        except (AzureError, ValueError, BadInput) as error:
            code = _ENTRA_CODE.search(str(error))
            raise self._failure() or NoToken(code[0] if code else "") from None

    async def close(self) -> None:
        await cancel_all([self._asking] if self._asking is not None else [])
        await self._source.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Proof(Enum):
    """The kinds of credentials; the values are the remedies for when they are refused."""

    KNOWN_KEY = f"it was started with accounts of its own: name its key in {CONNECTION_STRING}"
    KEY = f"check the AccountKey in {CONNECTION_STRING}, and the clock of this host"
    SIGNATURE = (
        f"the signature in {CONNECTION_STRING} must be valid now, for service t, "
        "resource types sco and permissions raud (and c, to make the table)"
    )
    TOKEN = f"it needs the role {ROLE} on the table or its account, which takes up to 30 minutes"


_REMEDIES = {
    "KeyBasedAuthenticationNotPermitted": (
        "the account takes no keys and no signatures: "
        f"unset {CONNECTION_STRING}, and log in with an identity"
    ),
    "PublicAccessNotPermitted": "the account's firewall keeps this host out",
}
"""For error codes that mean the same for every kind of credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A credential as a table uses it. The table that is opened with it closes it."""

    who: str
    """What it is, for messages: `the managed identity of this host`."""
    proof: Proof
    azure: AzureNamedKeyCredential | AzureSasCredential | Tokens = field(repr=False)
    """As azure-data-tables' asynchronous client takes it."""
    advice: str = ""
    """What to check when it gives no token."""

    async def close(self) -> None:
        """Closes the connections that tokens come from; a key has none. May be called twice."""
        close = getattr(self.azure, "close", None)
        if close is not None:
            await close()

    def no_token(self, address: AzureAddress, why: str = "") -> str:
        """The message for a NoToken with that `why`."""
        reason = f": {why}" if why else ""
        return f"{address.url}: no token for {self.who}{reason} ({self.advice}; {self.proof.value})"

    def refusal(self, address: AzureAddress, code: str) -> str:
        """The message for an answer 401 or 403 with that error code."""
        remedy = _REMEDIES.get(code, self.proof.value)
        if code == "AuthorizationFailure" and not address.emulated:
            remedy += "; or the account's firewall keeps this host out"
        reason = f": {code}" if code else ""
        return f"{address.url} refuses {self.who}{reason} ({remedy})"


def credential_for(address: AzureAddress, lookup: Lookup, *, interactive: bool) -> Credential:
    """The credential for `address`, from the environment that `lookup` reads: `os.getenv`.
    `interactive` says that a person is at a terminal, whose own login may be used.

    Raises BadInput, which repeats no secret, for a connection string that cannot be read or is of
    another account, and for an incomplete identity; StoreProblem when a package is
    missing, or for Cosmos DB.
    """
    if find_spec("aiohttp") is None:
        raise _not_installed("aiohttp")
    given = Secret(lookup(CONNECTION_STRING) or "")
    if given.text:
        connection = Connection.parse(given)
        connection.check(address)
        return _from_connection(connection)
    if address.emulated:
        known = Connection(account=address.account, key=Secret(EMULATOR_KEY))
        return _from_connection(known, who="the emulator's well-known key", proof=Proof.KNOWN_KEY)
    if find_spec("azure.identity") is None:
        raise _not_installed("azure-identity")
    principal = next((name for name in (_TOKEN_FILE, *_PRINCIPAL) if lookup(name)), None)
    if principal is None:
        return _of_this_host(lookup("AZURE_CLIENT_ID"), interactive=interactive)
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID"):
        if not lookup(name):
            raise BadInput(name, f"it is not set, and {principal} is", "set both, or neither")
    return _of_a_principal(principal)


def _not_installed(package: str) -> StoreProblem:
    return StoreProblem(f"{package} is not installed, and an Azure table needs it ({_INSTALL})")


def _from_connection(
    connection: Connection, *, who: str = "", proof: Proof = Proof.KEY
) -> Credential:
    if connection.key is not None:
        return Credential(
            who=who or f"the account key in {CONNECTION_STRING}",
            proof=proof,
            azure=AzureNamedKeyCredential(connection.account, connection.key.text),
        )
    assert connection.signature is not None
    return Credential(
        who=f"the shared access signature in {CONNECTION_STRING}",
        proof=Proof.SIGNATURE,
        azure=AzureSasCredential(connection.signature.text.lstrip("?")),
    )


def _of_a_principal(variable: str) -> Credential:
    from azure.identity import aio  # noqa: PLC0415 - an optional package, just checked

    from blackboard.tables.azure_transport import TokenTransport  # noqa: PLC0415 - it needs aiohttp, of that package

    transport = TokenTransport()
    try:
        source = (
            aio.WorkloadIdentityCredential(transport=transport)
            if variable == _TOKEN_FILE
            else aio.EnvironmentCredential(transport=transport)
        )
    except (ValueError, TypeError, OSError):  # a TypeError: its key needs a password, or has none
        problem = "what it names cannot be used"
        also = f"{_PASSWORD} and AZURE_TENANT_ID" if variable == _CERTIFICATE else "AZURE_TENANT_ID"
        raise BadInput(variable, problem, f"check it, and {also}") from None
    return Credential(
        who="the application of AZURE_CLIENT_ID",
        proof=Proof.TOKEN,
        azure=Tokens(source, failure=transport.take_failure),
        advice=f"check AZURE_TENANT_ID, AZURE_CLIENT_ID and {variable}",
    )


def _of_this_host(client_id: str | None, *, interactive: bool) -> Credential:
    from azure.identity import aio  # noqa: PLC0415 - an optional package, just checked

    from blackboard.tables.azure_transport import TokenTransport  # noqa: PLC0415 - it needs aiohttp, of that package

    who = "the managed identity of " + ("AZURE_CLIENT_ID" if client_id else "this host")
    advice = f"it must be assigned to this host; or set {CONNECTION_STRING}"
    transport = TokenTransport()
    try:
        managed = aio.ManagedIdentityCredential(client_id=client_id, transport=transport)
    except ValueError:
        problem = "this host has one identity, which cannot be named (is it a cloud shell?)"
        raise BadInput("AZURE_CLIENT_ID", problem, "unset it") from None
    sources: list[AsyncTokenCredential] = [managed]
    if interactive:
        who += ", az or azd"
        advice = f"run az login, or set {CONNECTION_STRING}"
        sources += [aio.AzureCliCredential(), aio.AzureDeveloperCliCredential()]
    # A chain, also of one: a managed identity that is not in a chain is tried for half a minute on
    # a host that has none; in a chain, for a second.
    return Credential(
        who=who,
        proof=Proof.TOKEN,
        azure=Tokens(aio.ChainedTokenCredential(*sources), failure=transport.take_failure),
        advice=advice,
    )
