"""A cron-style scheduler with no server: a table of items, and workers that claim what is due.

These are the names a handler's author needs. They are loaded when first used, so that importing
a part of the package, as a child process does, loads no more than that part.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blackboard.context import Context as Context
    from blackboard.context import HandlerItem as Item
    from blackboard.errors import BadInput as BadInput
    from blackboard.handlers import handler as handler

__version__ = "0.1.0"
__all__ = ["BadInput", "Context", "Item", "__version__", "handler"]

_HOMES = {
    "BadInput": ("blackboard.errors", "BadInput"),
    "Context": ("blackboard.context", "Context"),
    "Item": ("blackboard.context", "HandlerItem"),
    "handler": ("blackboard.handlers", "handler"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
