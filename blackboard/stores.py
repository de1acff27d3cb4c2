"""Store URLs: opens the table that a user names after `--store`.

A path, or `sqlite:PATH`, is a file. `sqlite:PATH?synchronous=full` flushes it at every batch;
`?trust_filesystem=1` opens it on a file system that is otherwise refused. `azurite:` and
`https://ACCOUNT...` are Azure tables (`tables/azure_address.py`), whose modules are imported only
for them. `memory:` is a table that ends with the process.
"""

import os
import re
import sys
from pathlib import Path
from urllib.parse import parse_qsl

from blackboard.clock import Clock
from blackboard.errors import BadInput
from blackboard.table import Table
from blackboard.tables.azure_address import azure_address, refuse_secrets
from blackboard.tables.memory import MemoryTable
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):(.*)", re.DOTALL | re.IGNORECASE)
_SQLITE_OPTIONS = {
    "synchronous": {"full": True, "normal": False},
    "trust_filesystem": {"1": True, "0": False},
}
_FILES = {"path", "sqlite"}


async def open_table(url: str, clock: Clock, *, create: bool = False) -> Table:
    """Opens the table that `url` names; `create` makes it if it is missing.

    Raises BadInput for a bad URL, or one that holds a secret, which the error does not repeat;
    MissingStore for a missing store, another StoreProblem for one that cannot be opened, Busy for
    one that another program holds; Unavailable or Unusable for one on another host that does not
    answer, or refuses.
    """
    refuse_secrets(url)
    kind, rest = _parts(url)
    match kind:
        case "path":
            return await _sqlite(rest, clock, Opening(create=create))
        case "sqlite":
            path, _, options = rest.partition("?")
            chosen = _options(options)
            opening = Opening(
                create=create,
                full=chosen.get("synchronous", False),
                trusted=chosen.get("trust_filesystem", False),
            )
            return await _sqlite(path, clock, opening)
        case "memory":
            return MemoryTable(clock)
        case "azurite" | "http" | "https":
            return await _azure(url, clock, create=create)
        case other:
            raise BadInput("store", f"no store is named {other!r}", "a path is written sqlite:PATH")


def resolve_path(url: str, folder: Path) -> str:
    """`url`, with the relative path of a file joined to `folder`; others are unchanged."""
    kind, rest = _parts(url)
    if kind not in _FILES or rest.startswith(("~", "?")) or not rest:
        return url
    return url.removesuffix(rest) + str(folder / rest)


def _parts(url: str) -> tuple[str, str]:
    """The kind of store, in lower case, and the rest of the URL. A path is of kind `path`."""
    scheme = _SCHEME.fullmatch(url)
    return (scheme[1].lower(), scheme[2]) if scheme else ("path", url)


async def _azure(url: str, clock: Clock, *, create: bool) -> Table:
    from blackboard.tables.azure_credentials import credential_for  # noqa: PLC0415 - for Azure alone

    address = azure_address(url)
    credential = credential_for(address, os.getenv, interactive=_at_a_terminal())
    from blackboard.tables.azure import AzureTable  # noqa: PLC0415 - needs aiohttp, now checked

    return await AzureTable.open(address, clock, credential=credential, create=create)


def _at_a_terminal() -> bool:
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


async def _sqlite(path: str, clock: Clock, opening: Opening) -> Table:
    if not path or "\0" in path:
        raise BadInput("store", "no path to a file", "for example sqlite:blackboard.db")
    return await SqliteTable.open(path, clock, opening)


def _options(text: str) -> dict[str, bool]:
    chosen = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        known = _SQLITE_OPTIONS.get(name, {})
        if value.lower() not in known:
            remedy = "synchronous=full or =normal, trust_filesystem=1 or =0, with & between"
            raise BadInput("store", f"no option {name}={value}", remedy)
        chosen[name] = known[value.lower()]
    return chosen
