"""Who asks an Azure table, and with what: from the environment to a credential.

The first of these that is there:

1. BLACKBOARD_CONNECTION_STRING, with an account key or a shared access signature;
2. for `azurite:`, the emulator's well-known key;
3. a workload identity (AZURE_FEDERATED_TOKEN_FILE);
4. a service principal (AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH);
5. the managed identity of the host, the one that AZURE_CLIENT_ID names if it has several; where a
   person sits at a terminal, after it the login of `az` or `azd`.

Nothing is asked here: a token is got with the first request, and renewed with later ones. What
azure-identity reads from the environment, it reads from the environment of the process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING

from blackboard.environment import CONNECTION_STRING
from blackboard.errors import BadInput, StoreProblem
from blackboard.tables.azure_address import AzureAddress
from blackboard.tables.azure_connection import EMULATOR_KEY, Connection, Secret

if TYPE_CHECKING:
    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
    from azure.core.credentials_async import AsyncTokenCredential

    from blackboard.tables.azure_tokens import Tokens

Lookup = Callable[[str], str | None]
"""The environment, as `os.getenv` gives it: unlike a mapping it shows nothing of itself."""

ROLE = "Storage Table Data Contributor"

_INSTALL = "pip install 'blackboard-scheduler[azure]'"
_TOKEN_FILE = "AZURE_FEDERATED_TOKEN_FILE"  # noqa: S105 - the name of a variable
_PRINCIPAL = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH")


class Proof(Enum):
    """With what it is proved who asks; the remedy for when that is not enough."""

    KNOWN_KEY = f"it was started with accounts of its own: name its key in {CONNECTION_STRING}"
    KEY = f"check the AccountKey in {CONNECTION_STRING}, and the clock of this host"
    SIGNATURE = (
        f"the signature in {CONNECTION_STRING} must be valid now, for service t, "
        "resource types sco and permissions raud"
    )
    TOKEN = f"it needs the role {ROLE} on the table or its account, which takes up to 30 minutes"


_REMEDIES = {
    "KeyBasedAuthenticationNotPermitted": (
        "the account takes no keys and no signatures: "
        f"unset {CONNECTION_STRING}, and log in with an identity"
    ),
    "PublicAccessNotPermitted": "the account's firewall keeps this host out",
}
"""For error codes that mean the same whoever asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Who asks. Whoever opens one closes it."""

    who: str
    """In words, for messages: `the managed identity of this host`."""
    proof: Proof
    azure: "AzureNamedKeyCredential | AzureSasCredential | Tokens" = field(repr=False)
    """As azure-data-tables' asynchronous client takes it."""
    advice: str = ""
    """What to look at when it gives no token."""

    async def close(self) -> None:
        """Let go of the connections to whoever gives tokens; a key has none. Twice is fine."""
        close = getattr(self.azure, "close", None)
        if close is not None:
            await close()

    def no_token(self, address: AzureAddress, why: str = "") -> str:
        """The line for when `azure` raised NoToken, which knows `why`."""
        told = f": {why}" if why else ""
        return f"{address.url}: no token for {self.who}{told} ({self.advice}; {self.proof.value})"

    def refusal(self, address: AzureAddress, code: str) -> str:
        """The line for when the service answered 401 or 403 with that error code."""
        remedy = _REMEDIES.get(code, self.proof.value)
        if code == "AuthorizationFailure" and not address.emulated:
            remedy += "; or the account's firewall keeps this host out"
        return f"{address.url} refuses {self.who}: {code} ({remedy})"


def credential_for(address: AzureAddress, lookup: Lookup, *, interactive: bool) -> Credential:
    """Who asks for `address`, going by the environment that `lookup` reads: `os.getenv`.

    With `interactive` a person sits there, whose own login will do.

    Raises BadInput, which repeats no secret, for a connection string that cannot be read or is of
    another account, and for an identity that is named by half; StoreProblem when a package is
    missing, or for Cosmos DB.
    """
    if find_spec("aiohttp") is None:
        raise _not_installed("aiohttp")
    said = Secret(lookup(CONNECTION_STRING) or "")
    if said.text:
        found = Connection.parse(said)
        found.check(address)
        return _from_connection(found)
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


def _from_connection(found: Connection, *, who: str = "", proof: Proof = Proof.KEY) -> Credential:
    from azure.core.credentials import (  # noqa: PLC0415 - only who has an Azure table waits for it
        AzureNamedKeyCredential,
        AzureSasCredential,
    )

    if found.key is not None:
        return Credential(
            who=who or f"the account key in {CONNECTION_STRING}",
            proof=proof,
            azure=AzureNamedKeyCredential(found.account, found.key.text),
        )
    assert found.signature is not None
    return Credential(
        who=f"the shared access signature in {CONNECTION_STRING}",
        proof=Proof.SIGNATURE,
        azure=AzureSasCredential(found.signature.text.lstrip("?")),
    )


def _of_a_principal(variable: str) -> Credential:
    from azure.identity import aio  # noqa: PLC0415 - only who has an Azure table waits for it

    from blackboard.tables.azure_tokens import Tokens  # noqa: PLC0415

    try:
        source = (
            aio.WorkloadIdentityCredential()
            if variable == _TOKEN_FILE
            else aio.EnvironmentCredential()
        )
    except (ValueError, OSError):
        problem = "what it names cannot be used"
        raise BadInput(variable, problem, "check it, and AZURE_TENANT_ID") from None
    return Credential(
        who="the application of AZURE_CLIENT_ID",
        proof=Proof.TOKEN,
        azure=Tokens(source),
        advice=f"check AZURE_TENANT_ID, AZURE_CLIENT_ID and {variable}",
    )


def _of_this_host(client_id: str | None, *, interactive: bool) -> Credential:
    from azure.identity import aio  # noqa: PLC0415 - only who has an Azure table waits for it

    from blackboard.tables.azure_tokens import Tokens  # noqa: PLC0415

    who = "the managed identity of " + ("AZURE_CLIENT_ID" if client_id else "this host")
    advice = f"it must be assigned to this host; or set {CONNECTION_STRING}"
    sources: list[AsyncTokenCredential] = [aio.ManagedIdentityCredential(client_id=client_id)]
    if interactive:
        who += ", az or azd"
        advice = f"run az login, or set {CONNECTION_STRING}"
        sources += [aio.AzureCliCredential(), aio.AzureDeveloperCliCredential()]
    # A chain, also of one: only in a chain it is noticed within a second that no host here gives
    # tokens to managed identities, rather than after half a minute of trying.
    return Credential(
        who=who,
        proof=Proof.TOKEN,
        azure=Tokens(aio.ChainedTokenCredential(*sources)),
        advice=advice,
    )
