"""Which requests of operators were applied to an item, so that each of them counts once.

Every verb of an operator carries a name, drawn for it, and the batch that applies the verb adds the
name to the item's `applied`. A sender without an answer reads the item: a name that is there was
applied, and is not applied again, whatever was done to the item since.

Names must be forgotten some day, and never too soon. So the memory is bound to the time in which a
sender may still try again:

    a sender that is in doubt tries again for       5 minutes, then gives up with an error
    a name is remembered for at least              10 minutes
    the latest names are remembered for ever        8
    an item remembers at the most                 200 names; a verb more is refused meanwhile

All by the store's clock, as sender and forgetter read it when they have read the item. A name is
missing from an item only if its verb was not applied, or was applied more than ten minutes before
by the clock of a later sender. So a verb counts twice only if the clocks of two
readers are five minutes apart and eight more verbs came in between.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from blackboard.model import Applied, Item

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


def applied_to(item: Item | None) -> tuple[Applied, ...]:
    """The names that an item remembers, newest first."""
    if item is None or not item.applied:
        return ()
    return msgspec.json.decode(item.applied, type=tuple[Applied, ...])


def is_applied(item: Item | None, name: str) -> bool:
    """Whether the request of this name was applied to the item."""
    return any(one.name == name for one in applied_to(item))


def additions(item: Item | None) -> tuple[Applied, ...]:
    """What a new life of an id remembers of the one before."""
    return tuple(one for one in applied_to(item) if one.name.startswith(ADDED))


def remembering(before: Sequence[Applied], name: str, *, now: datetime) -> str | None:
    """The names of an item, as they stand in its column, after one more request was applied. None:
    there is no room for it, since all names are too young to be forgotten.
    """
    kept = [
        one for place, one in enumerate(before, 1) if place < ALWAYS or now - one.at <= REMEMBERED
    ]
    if len(kept) >= MOST:
        return None
    return msgspec.json.encode([Applied(name=name, at=now), *kept]).decode()


def may_retry(*, first: datetime, now: datetime) -> bool:
    """Whether a sender that read the store's clock at `first` may still trust the names that it
    has read at `now`.
    """
    return now - first <= RETRIED_FOR
