"""Which types there are, as far as can be known without a worker."""

import difflib
from collections.abc import Iterable

from blackboard.cli.session import Session, warn
from blackboard.errors import BadInput
from blackboard.registry import shipped


def check_type(name: str) -> str:
    """A type is a word that a handler could have."""
    if not name or not name.isprintable() or "," in name:
        problem = "a type is printable text without commas"
        raise BadInput("type", problem, "a short word, as in @handler")
    return name


def warn_unknown(session: Session, types: Iterable[str]) -> None:
    """Say on stderr which types nothing here knows: they may be a slip, or known to a worker."""
    known = {*shipped(), *session.settings.types, *session.handlers}
    for name in sorted(set(types) - known):
        near = difflib.get_close_matches(name, sorted(known), 1)
        meant = f": did you mean {near[0]!r}?" if near else ""
        warn(f"nothing here knows the type {name!r}; its items wait for a worker that does{meant}")
