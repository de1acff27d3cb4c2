"""Store URLs: opens the table that a user names after `--store`.

A path, or `sqlite:PATH`, is a file. `sqlite:PATH?synchronous=full` flushes it at every batch;
`?trust_filesystem=1` opens it on a file system that is otherwise refused: options stand behind the
last `?` of the file's name, not of its folders. `azurite:` and
`https://ACCOUNT...` are Azure tables (`tables/azure_address.py`), whose modules are imported only
for them. `memory:` is a table that ends when it is closed.
"""

import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import parse_qsl

from blackboard.clock import Clock
from blackboard.errors import BadInput
from blackboard.inputs import check_utf8
from blackboard.table import Busy, Table, Unavailable
from blackboard.tables.azure_address import azure_address, refuse_secrets
from blackboard.tables.memory import MemoryTable
from blackboard.tables.retrying import Retries
from blackboard.tables.sqlite import SqliteTable, file_at
from blackboard.tables.sqlite_open import Opening
from blackboard.tables.sqlite_wake import listening, wake_listeners

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):(.*)", re.DOTALL | re.IGNORECASE)
_SQLITE_OPTIONS = {
    "synchronous": {"full": True, "normal": False},
    "trust_filesystem": {"1": True, "0": False},
}
_WITH_OPTIONS = re.compile(r"(.*)\?([^?/]*)", re.DOTALL)
_FILES = {"path", "sqlite"}


async def open_table(url: str, clock: Clock, *, create: bool = False) -> Table:
    """Opens the table that `url` names; `create` makes it if it is missing.

    Raises BadInput for a bad URL, or one that holds a secret, which the error does not repeat;
    MissingStore for a missing store, another StoreProblem for one that cannot be opened, Busy for
    one that another program holds; Unavailable or Unusable for one on another host that does not
    answer, or refuses.
    """
    kind, rest = _parts(url)
    match kind:
        case "path":
            _check_no_options(rest)
            return await SqliteTable.open(_checked(rest), clock, Opening(create=create))
        case "sqlite":
            path, options = _split(rest)
            chosen = _options(options)
            opening = Opening(
                create=create,
                full=chosen.get("synchronous", False),
                trusted=chosen.get("trust_filesystem", False),
            )
            return await SqliteTable.open(_checked(path), clock, opening)
        case "memory":
            return MemoryTable(clock)
        case "azurite" | "http" | "https":
            return await _azure(url, clock, create=create)
        case other:
            raise BadInput("store", f"no store is named {other!r}", "a path is written sqlite:PATH")


def is_new(url: str) -> bool:
    """Whether the store is made when it is opened, so that nothing is in it yet."""
    return _parts(url)[0] == "memory"


def _check_no_options(path: str) -> None:
    """Refuses a path that ends like `?synchronous=full`: it would be the name of the file."""
    name, options = _split(path)
    if name and "=" in options:
        remedy = f"write sqlite:{path}, or sqlite:{path}? for a file of that name"
        raise BadInput("store", f"{path!r} has options, as only a URL has", remedy)


def wake_workers(url: str) -> None:
    """Wakes the workers of this host that work on a file. Workers of other stores find a change in
    their next walk.
    """
    if file := _file_of(url):
        wake_listeners(file)


def when_woken(url: str, callback: Callable[[], None]) -> AbstractContextManager[None]:
    """Calls `callback`, on the running loop, whenever the workers of a store are woken."""
    file = _file_of(url)
    return listening(file, callback) if file else nullcontext()


def beside(url: str, name: str) -> str | None:
    """Another file in the folder of a store that is a file, with the same options."""
    file = _file_of(url)
    if file is None:
        return None
    kind, rest = _parts(url)
    another = str(file.parent / name)
    return another if kind == "path" else f"sqlite:{another}?{_split(rest)[1]}"


def remove_file(url: str) -> None:
    """Removes the file of a store, and those that SQLite keeps beside it."""
    file = _file_of(url)
    assert file is not None
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)


def _file_of(url: str) -> Path | None:
    kind, rest = _parts(url)
    if kind not in _FILES:
        return None
    path = rest if kind == "path" else _split(rest)[0]
    return file_at(_checked(path))


def _split(rest: str) -> tuple[str, str]:
    """A path, and the options behind it."""
    match = _WITH_OPTIONS.fullmatch(rest)
    return (match[1], match[2]) if match else (rest, "")


def resolve_path(url: str, folder: Path) -> str:
    """`url`, with the relative path of a file joined to `folder`; others are unchanged."""
    kind, rest = _parts(url)
    if kind not in _FILES or rest.startswith(("~", "?", ":memory:")) or not rest.strip():
        return url
    return url.removesuffix(rest) + str(folder / rest)


def _parts(url: str) -> tuple[str, str]:
    """The kind of store, in lower case, and the rest of the URL. A path is of kind `path`. Raises
    BadInput for a URL that holds a secret, whatever is to be done with it.
    """
    refuse_secrets(url)
    scheme = _SCHEME.fullmatch(url)
    return (scheme[1].lower(), scheme[2]) if scheme else ("path", url)


async def _azure(url: str, clock: Clock, *, create: bool) -> Table:
    from blackboard.tables.azure_credentials import credential_for  # noqa: PLC0415 - for Azure alone

    address, retries = azure_address(url), Retries(clock)
    at_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    while True:
        credential = credential_for(address, os.getenv, interactive=at_terminal)
        try:
            from blackboard.tables.azure import AzureTable  # noqa: PLC0415 - needs aiohttp, checked

            return await AzureTable.open(address, clock, credential=credential, create=create)
        except (Busy, Unavailable) as refused:
            await retries.wait(refused)


def _checked(path: str) -> str:
    if not path.strip() or "\0" in path:
        raise BadInput("store", "no path to a file", "for example sqlite:blackboard.db")
    if path == ":memory:":
        raise BadInput("store", f"{path!r} is not a path to a file", "memory: ends with its board")
    check_utf8("store", path, "rename what is not")  # else no answer in JSON could name it
    return path


def _options(text: str) -> dict[str, bool]:
    chosen = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        meanings = _SQLITE_OPTIONS.get(name, {})
        if value.lower() not in meanings:
            remedy = "synchronous=full or =normal, trust_filesystem=1 or =0, with & between"
            raise BadInput("store", f"no option {name}={value}", remedy)
        chosen[name] = meanings[value.lower()]
    return chosen
