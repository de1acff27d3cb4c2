"""The address of an Azure table, from a store URL.

`azurite:` is the emulator of this machine, `azurite://HOST:PORT/TABLE` another one;
`https://ACCOUNT.table.core.windows.net/TABLE` an account in any cloud, also under a private or a
custom domain; `https://HOST:PORT/ACCOUNT/TABLE` an emulator that speaks HTTPS.

An address holds no secret, and an error does not repeat one that is refused: a shared access
signature that was typed here is in the history of a shell already, and should not be in a log too.

Cosmos DB for Table has the same interface with weaker promises: a scan is not sorted, a key has 255
bytes at most, a read may be stale. No board was ever tested on it, so it is refused.
"""

import re
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from blackboard.errors import BadInput, StoreProblem

CONNECTION_STRING = "BLACKBOARD_CONNECTION_STRING"
"""The variable that holds an account key or a shared access signature."""

EMULATOR = "devstoreaccount1"
"""The account that every emulator has."""
EMULATOR_AT = "127.0.0.1:10002"

_TABLE = "blackboard"
_FORMS = "azurite:, or https://ACCOUNT.table.core.windows.net/TABLE"
_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_OTHER_SERVICE = re.compile(r"\.(blob|dfs|file|queue|web)\.")
_SECRET = re.compile(
    r"(AccountKey|SharedAccessSignature|(^|[?&;]|%3f|%26)sig)\s*(=|%3d)|://[^@]*:[^@]*@",
    re.IGNORECASE,
)
_COSMOS = re.compile(r"\.cosmos\.|\.cosmosdb\.|\.documents\.azure\.", re.IGNORECASE)


class AzureAddress(Struct, frozen=True, kw_only=True):
    """One table. `account` is "" where a custom domain hides it."""

    endpoint: str
    """The URL of the account: https://ann.table.core.windows.net, http://127.0.0.1:10002/ann."""
    account: str
    table: str
    emulated: bool = False
    """Whether it was written `azurite:`: plain HTTP, with the emulator's well-known key."""

    @property
    def url(self) -> str:
        """The store URL."""
        if self.emulated:
            return f"azurite://{urlsplit(self.endpoint).netloc}/{self.table}"
        return f"{self.endpoint}/{self.table}"


def azure_address(url: str) -> AzureAddress:
    """The table that `url` names.

    Raises BadInput for what is not an address, or holds a secret; StoreProblem for Cosmos DB.
    """
    refuse_secrets(url)
    parts = _split(url)
    if parts.scheme == "azurite":
        return _emulated(parts)
    if parts.scheme != "https":
        problem = "an account is not used over plain HTTP"
        raise BadInput("store", problem, "write https://, or azurite:// for the emulator")
    return _account(parts)


def refuse_secrets(url: str) -> None:
    """Raises BadInput, which repeats nothing of `url`, for a key, a signature or a password in
    it.
    """
    if _SECRET.search(url):
        problem = "it holds a secret, which others can read in the list of processes"
        remedy = f"put it into {CONNECTION_STRING}, and the address alone here"
        raise BadInput("store", problem, remedy)


def refuse_cosmos(host: str) -> None:
    """Raises StoreProblem for a host of Cosmos DB."""
    if _COSMOS.search(f".{host}."):
        raise StoreProblem(
            "Cosmos DB for Table is not supported: its scans are not sorted, its keys have 255 "
            "bytes at most and its reads may be stale, and no board was ever tested on it "
            "(name a table of a storage account)"
        )


def netloc(parts: SplitResult, default_port: int | None = None) -> str:
    """Host and port. `localhost` becomes 127.0.0.1: azure-data-tables takes it for Cosmos DB.

    Raises ValueError for a bad port.
    """
    host = parts.hostname or ""
    if host == "localhost":
        host = "127.0.0.1"
    if ":" in host:
        host = f"[{host}]"
    port = parts.port or default_port
    return f"{host}:{port}" if port else host


def _split(url: str) -> SplitResult:
    """The parts of a URL. Raises BadInput."""
    try:
        parts = urlsplit(url)
        wrong = parts.port == 0 or not (url.isascii() and url.isprintable()) or " " in url
    except ValueError:
        wrong = True
    if wrong or parts.username is not None:
        raise BadInput("store", "this is not an address of a table", _FORMS) from None
    if parts.query or parts.fragment or "?" in url or "#" in url:
        problem = "an address has no ? and no #"
        remedy = f"a shared access signature belongs into {CONNECTION_STRING}"
        raise BadInput("store", problem, remedy)
    return parts


def _emulated(parts: SplitResult) -> AzureAddress:
    segments = _segments(parts)
    if len(segments) > 1 or (segments and not parts.netloc):
        raise BadInput(
            "store", "this is not an address of an emulator", "azurite://HOST:PORT/TABLE"
        )
    at = netloc(parts, 10002) if parts.hostname else EMULATOR_AT
    return AzureAddress(
        endpoint=f"http://{at}/{EMULATOR}",
        account=EMULATOR,
        table=_table(segments[0] if segments else _TABLE),
        emulated=True,
    )


def _account(parts: SplitResult) -> AzureAddress:
    host, segments = parts.hostname or "", _segments(parts)
    if not host:
        raise BadInput("store", "there is no host in it", _FORMS)
    refuse_cosmos(host)
    if _OTHER_SERVICE.search(host):
        raise BadInput("store", f"{host} keeps no tables", "ACCOUNT.table.core.windows.net does")
    endpoint = f"https://{netloc(parts)}"
    if ".table." in host:
        account = _account_name(host.partition(".")[0])
        return AzureAddress(endpoint=endpoint, account=account, table=_only(segments))
    if len(segments) == 2:
        account = _account_name(segments[0])
        return AzureAddress(
            endpoint=f"{endpoint}/{account}", account=account, table=_table(segments[1])
        )
    return AzureAddress(endpoint=endpoint, account="", table=_only(segments))


def _segments(parts: SplitResult) -> list[str]:
    path = parts.path.removeprefix("/").removesuffix("/")
    return path.split("/") if path else []


def _only(segments: list[str]) -> str:
    if len(segments) != 1:
        problem = "one table has to be named behind the host"
        raise BadInput("store", problem, "https://ACCOUNT.table.core.windows.net/TABLE")
    return _table(segments[0])


def _account_name(name: str) -> str:
    if name.removesuffix("-secondary") != name:
        raise BadInput("store", "the secondary copy cannot be written", "leave out -secondary")
    if not _ACCOUNT.fullmatch(name):
        problem = "there can be no account of that name"
        raise BadInput("store", problem, "it has 3 to 24 lower-case letters and digits")
    return name


def _table(name: str) -> str:
    """`name`, checked. An error does not repeat it: it may be the end of a secret."""
    if not _TABLE_NAME.fullmatch(name) or name.lower() == "tables":
        problem = "there can be no table of that name"
        remedy = "it has 3 to 63 letters and digits, a letter first, and is not `tables`"
        raise BadInput("store", problem, remedy)
    return name
