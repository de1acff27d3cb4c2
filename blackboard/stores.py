"""From what a person writes after `--store` to a table.

A path, or `sqlite:PATH`, is a file; `sqlite:PATH?synchronous=full` flushes it at every batch.
`memory:` is a table that ends with the process. Azure tables are named here and not yet opened.
"""

import re
from urllib.parse import parse_qsl

from blackboard.clock import Clock
from blackboard.errors import BadInput, StoreProblem
from blackboard.table import Table
from blackboard.tables.memory import MemoryTable
from blackboard.tables.sqlite import Opening, SqliteTable

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):(.*)", re.DOTALL | re.IGNORECASE)
_SYNCHRONOUS = {"full": True, "normal": False}


async def open_table(url: str, clock: Clock, *, create: bool = False) -> Table:
    """The table that `url` names; with `create` a missing file is made.

    Raises BadInput for an address that is none, StoreProblem for a store that cannot be opened,
    Busy for one that another program holds.
    """
    scheme = _SCHEME.fullmatch(url)
    if scheme is None:
        return await _sqlite(url, clock, create=create, full=False)
    match scheme[1].lower():
        case "sqlite":
            path, _, options = scheme[2].partition("?")
            return await _sqlite(path, clock, create=create, full=_full(options))
        case "memory":
            return MemoryTable(clock)
        case "azurite" | "http" | "https":
            raise StoreProblem(
                f"{url} is an Azure table, and this version opens SQLite files only "
                "(give --store the path of a file)"
            )
        case other:
            raise BadInput(
                "store", f"no store is named {other!r}", f"a path is written sqlite:{url}"
            )


async def _sqlite(path: str, clock: Clock, *, create: bool, full: bool) -> Table:
    if not path or "\0" in path:
        raise BadInput("store", "no path to a file", "for example sqlite:blackboard.db")
    return await SqliteTable.open(path, clock, Opening(create=create, full=full))


def _full(options: str) -> bool:
    full = False
    for name, value in parse_qsl(options, keep_blank_values=True):
        if name != "synchronous" or value.lower() not in _SYNCHRONOUS:
            raise BadInput("store", f"no option {name}={value}", "synchronous=full or =normal")
        full = _SYNCHRONOUS[value.lower()]
    return full
