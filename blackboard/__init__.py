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
    "blocking": "BlockingBoard BlockingElection BlockingTerm BlockingWorker open_blocking",
    "board": "Board open",
    "board_worker": "BoardWorker",
    "errors": "AlreadyThere BadInput BlackboardError LeaseLost Missing MissingStore StoreProblem",
    "handlers.context": "Context Fail Item Retry Skip",
    "handlers.handler": "handler pump",
    "model": "LogLine Outcome State",
    "records": "Action AnnouncedWorker AskedRun BoardItem Run as_json",
    "sharing.election": "Election Term",
    "table": "TableError",
}
"""The modules that have these names."""
_THERE = {"Action": "BoardAction", "Item": "HandlerItem", "Run": "BoardRun", "open": "open_board"}
"""Names that are others there."""
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
    for module, names in _HOMES.items():
        if name in names.split():
            home = importlib.import_module(f"{__name__}.{module}")
            return getattr(home, _THERE.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
