"""The names of what operators asked for, as an item remembers them. Pure.

A sender that gets no answer sends its request again under the same name, and the item says whether
it was applied. A name is remembered for longer than a sender tries again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from blackboard.model import (
    Applied,
    Item,
)

RETRIED_FOR = timedelta(minutes=5)
"""How long a sender that is in doubt tries again."""
REMEMBERED = timedelta(minutes=10)
"""How long a name is remembered in any case: longer than a sender tries again."""
ALWAYS = 8
"""Names that are remembered however old they are."""
MOST = 200
"""Names that an item holds."""
LONGEST_NAME = 64
"""Characters."""
ADDED = "add:"
"""How the names of additions begin. They outlast the removal of the item: a sender that is in doubt
may find another life of the id."""


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
