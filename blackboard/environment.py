"""What of the environment opens the store, and that nobody else is handed it."""

from collections.abc import Mapping

CONNECTION_STRING = "BLACKBOARD_CONNECTION_STRING"
"""The variable that holds an account key or a shared access signature."""


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for processes that handlers run in, or start: without what opens the store.
    A job that needs that too can be given it under another name.
    """
    return {name: text for name, text in environ.items() if name != CONNECTION_STRING}
