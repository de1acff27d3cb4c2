"""Which types there are, as far as can be known without a worker."""

import difflib
from collections.abc import Iterable

from blackboard.cli.session import Session, warn
from blackboard.handlers import shipped


def warn_unknown(session: Session, types: Iterable[str]) -> None:
    """Say on stderr which types nothing here knows: they may be a slip, or known to a worker."""
    known = {*shipped(), *session.settings.types, *session.handlers}
    for name in sorted(set(types) - known):
        near = difflib.get_close_matches(name, sorted(known), 1)
        meant = f": did you mean {near[0]!r}?" if near else ""
        warn(f"nothing here knows the type {name!r}; its items wait for a worker that does{meant}")
