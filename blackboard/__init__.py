"""A cron-style scheduler with no server: a table of items, and workers that claim what is due.

    async with blackboard.open("app.db", handlers=[feed]) as board: ...     # docs/python.md
    with blackboard.open_blocking("app.db", handlers=[feed]) as board: ...  # without an event loop

These are the names a program needs. They are loaded when first used, so that importing a part of
the package, as a child process does, loads no more than that part.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blackboard.blocking import (
        BlockingBoard,
        BlockingElection,
        BlockingTerm,
        BlockingWorker,
        open_blocking,
    )
    from blackboard.board import Board
    from blackboard.board import open_board as open  # noqa: A004 - said as blackboard.open
    from blackboard.board_worker import BoardWorker
    from blackboard.errors import (
        AlreadyThere,
        BadInput,
        BlackboardError,
        LeaseLost,
        Missing,
        MissingStore,
        StoreProblem,
    )
    from blackboard.handlers.context import Context, Fail, Retry, Skip
    from blackboard.handlers.context import HandlerItem as Item
    from blackboard.handlers.handler import handler, pump
    from blackboard.model import LogLine, Outcome, State
    from blackboard.records import AnnouncedWorker, AskedRun, BoardItem, as_json
    from blackboard.records import BoardAction as Action
    from blackboard.records import BoardRun as Run
    from blackboard.sharing.election import Election, Term
    from blackboard.table import TableError

__version__ = "0.1.0"

_HOMES = {
    "Action": ("blackboard.records", "BoardAction"),
    "AlreadyThere": ("blackboard.errors", "AlreadyThere"),
    "AnnouncedWorker": ("blackboard.records", "AnnouncedWorker"),
    "AskedRun": ("blackboard.records", "AskedRun"),
    "BadInput": ("blackboard.errors", "BadInput"),
    "BlackboardError": ("blackboard.errors", "BlackboardError"),
    "BlockingBoard": ("blackboard.blocking", "BlockingBoard"),
    "BlockingElection": ("blackboard.blocking", "BlockingElection"),
    "BlockingTerm": ("blackboard.blocking", "BlockingTerm"),
    "BlockingWorker": ("blackboard.blocking", "BlockingWorker"),
    "Board": ("blackboard.board", "Board"),
    "BoardItem": ("blackboard.records", "BoardItem"),
    "BoardWorker": ("blackboard.board_worker", "BoardWorker"),
    "Context": ("blackboard.handlers.context", "Context"),
    "Election": ("blackboard.sharing.election", "Election"),
    "Fail": ("blackboard.handlers.context", "Fail"),
    "Item": ("blackboard.handlers.context", "HandlerItem"),
    "LeaseLost": ("blackboard.errors", "LeaseLost"),
    "LogLine": ("blackboard.model", "LogLine"),
    "Missing": ("blackboard.errors", "Missing"),
    "MissingStore": ("blackboard.errors", "MissingStore"),
    "Outcome": ("blackboard.model", "Outcome"),
    "Retry": ("blackboard.handlers.context", "Retry"),
    "Run": ("blackboard.records", "BoardRun"),
    "Skip": ("blackboard.handlers.context", "Skip"),
    "State": ("blackboard.model", "State"),
    "StoreProblem": ("blackboard.errors", "StoreProblem"),
    "TableError": ("blackboard.table", "TableError"),
    "Term": ("blackboard.sharing.election", "Term"),
    "as_json": ("blackboard.records", "as_json"),
    "handler": ("blackboard.handlers.handler", "handler"),
    "open": ("blackboard.board", "open_board"),
    "open_blocking": ("blackboard.blocking", "open_blocking"),
    "pump": ("blackboard.handlers.handler", "pump"),
}
__all__ = [
    "Action",
    "AlreadyThere",
    "AnnouncedWorker",
    "AskedRun",
    "BadInput",
    "BlackboardError",
    "BlockingBoard",
    "BlockingElection",
    "BlockingTerm",
    "BlockingWorker",
    "Board",
    "BoardItem",
    "BoardWorker",
    "Context",
    "Election",
    "Fail",
    "Item",
    "LeaseLost",
    "LogLine",
    "Missing",
    "MissingStore",
    "Outcome",
    "Retry",
    "Run",
    "Skip",
    "State",
    "StoreProblem",
    "TableError",
    "Term",
    "__version__",
    "as_json",
    "handler",
    "open",
    "open_blocking",
    "pump",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
