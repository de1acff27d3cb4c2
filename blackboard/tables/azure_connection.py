"""What a connection string says, as the portal of Azure shows one for copying.

It is the one place where a secret comes from, and nothing of it is ever repeated: not in an error,
and not in what a traceback shows of these objects. Which table is asked, the address says alone;
the string must be of the same account.
"""

import base64
import binascii
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from blackboard.environment import CONNECTION_STRING
from blackboard.errors import BadInput
from blackboard.tables.azure_address import EMULATOR, AzureAddress, netloc, refuse_cosmos

EMULATOR_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""No secret: it is in the documentation, and the same in every emulator."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that its own representation does not show."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What a connection string gives: an account and its key, or a shared access signature."""

    account: str = ""
    """"" where a signature comes without its account."""
    key: Secret | None = None
    signature: Secret | None = None
    host: str = ""
    """Host and port of the table service, where the string names them."""

    @classmethod
    def parse(cls, said: Secret) -> "Connection":
        """What `said` gives.

        Raises BadInput when it cannot be read; StoreProblem when it is of Cosmos DB.
        """
        fields = _fields(said)
        if fields is None:
            raise _unreadable("it is no connection string: NAME=VALUE;NAME=VALUE")
        host = _host(fields)
        if host is None:
            raise _unreadable("its TableEndpoint is no address")
        for one in (host, _text(fields, "endpointsuffix"), _text(fields, "accountendpoint")):
            refuse_cosmos(urlsplit(one).netloc or one)
        if _text(fields, "usedevelopmentstorage").lower() == "true":
            return cls(account=EMULATOR, key=Secret(EMULATOR_KEY))
        found = cls(
            account=_text(fields, "accountname") or _account(host),
            key=fields.get("accountkey"),
            signature=fields.get("sharedaccesssignature"),
            host=host,
        )
        if (found.key is None) == (found.signature is None):
            raise _unreadable("it needs AccountKey or SharedAccessSignature, one of them")
        if found.key and not found.account:
            raise _unreadable("it has an AccountKey and no AccountName")
        if found.key and not _is_key(found.key):
            raise _unreadable("its AccountKey is not whole: a key is base64")
        return found

    def check(self, address: AzureAddress) -> None:
        """Raises BadInput when `address` is of another account."""
        there = netloc(urlsplit(address.endpoint))
        if self.account and address.account and self.account != address.account:
            mine, theirs = f"account {self.account}", f"account {address.account}"
        elif self.host and self.host != there:
            mine, theirs = self.host, there
        else:
            return
        problem = f"it is of {mine}, and the store of {theirs}"
        raise BadInput(CONNECTION_STRING, problem, "unset it, or name a table of its account")


def _unreadable(problem: str) -> BadInput:
    remedy = "copy it from the access keys, or the shared access signature, of the storage account"
    return BadInput(CONNECTION_STRING, problem, remedy)


def _fields(said: Secret) -> dict[str, Secret] | None:
    """Its fields, by their names in lower case; None when it has none, or a name twice."""
    found: dict[str, Secret] = {}
    for part in said.text.strip().strip(";").split(";"):
        name, equals, value = part.partition("=")
        name = name.strip().lower()
        if not name.isalpha() or not equals or not value.strip() or name in found:
            return None
        found[name] = Secret(value.strip())
    return found


def _text(fields: dict[str, Secret], name: str) -> str:
    return fields[name].text if name in fields else ""


def _host(fields: dict[str, Secret]) -> str | None:
    """Host, port and, for an emulator, nothing else of its TableEndpoint; None if it is none."""
    endpoint = _text(fields, "tableendpoint")
    try:
        parts = urlsplit(endpoint)
        found = netloc(parts)
    except ValueError:
        return None
    return None if endpoint and (not parts.hostname or parts.query) else found


def _account(host: str) -> str:
    return host.partition(".")[0] if ".table." in host else ""


def _is_key(key: Secret) -> bool:
    try:
        return bool(base64.b64decode(key.text, validate=True))
    except (binascii.Error, ValueError):
        return False
