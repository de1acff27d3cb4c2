"""The names of operators' requests, as an item remembers them: none is applied twice. Pure.

A sender that gets no answer reads the item: if the name of its request is there, the request was
applied, whatever was done to the item since; else it is sent again under the same name. A name is
remembered for longer than a sender tries again, by the store's clock, which the sender reads once:
a name has the time at which its request began.

So a request counts twice only if the clocks of two readers are five minutes apart (`REMEMBERED`
less `RETRIED_FOR`) and eight more requests (`ALWAYS`) came in between.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from blackboard.model import Applied, Item

RETRIED_FOR = timedelta(minutes=5)
"""How long a sender without an answer tries again, before it gives up with an error."""
REMEMBERED = timedelta(minutes=10)
"""How long a name is remembered at least."""
ALWAYS = 8
"""The latest names are remembered however old they are: so many."""
MOST = 200
"""Names that an item holds; one request more is refused meanwhile."""
LONGEST_NAME = 64
"""Characters."""
ADDED = "add:"
"""How the names of additions begin. They are kept when the item is removed: a sender without an
answer may find another life of the id."""


def is_applied(item: Item, name: str) -> bool:
    """Whether the event of this name was applied to the item."""
    return any(one.name == name for one in item.applied)


def additions(item: Item | None) -> tuple[Applied, ...]:
    """What a new life of an id remembers of the one before."""
    return tuple(one for one in item.applied if one.name.startswith(ADDED)) if item else ()


def remembering(
    before: Sequence[Applied], name: str, *, now: datetime
) -> tuple[Applied, ...] | None:
    """The names of an item after one more event was applied. None: there is no room for it, since
    all names are too young to be forgotten.
    """
    kept = [
        one for place, one in enumerate(before, 1) if place < ALWAYS or now - one.at <= REMEMBERED
    ]
    if len(kept) >= MOST:
        return None
    return Applied(name=name, at=now), *kept


def may_retry(*, first: datetime, now: datetime) -> bool:
    """Whether a sender that read the store's clock at `first` may still trust the names that it
    has read at `now`.
    """
    return now - first <= RETRIED_FOR
