"""The names of operators' requests, which an item remembers so that none is applied twice. Pure.

A sender that gets no answer reads the item: if the name of its request is there, the request was
applied, whatever was done to the item since; else it is sent again under the same name. A name is
remembered for longer than a sender retries, by the store's clock: it carries the time at which its
request began. A time that is as far in the future, where a clock was ahead, counts as long past.

A name that a program chose, a trigger, may come again much later: a webhook may be delivered once
more after hours. So a name is also remembered while its run is in hand or in the queue, and until
`ALWAYS` others came after it. The request of the run in hand is found by the run's slot, which is
the time of the request; but of two requests within two milliseconds the second has a later slot,
and its name may be forgotten. A sender in doubt misses its name only if `ALWAYS` others came
meanwhile and the clocks of two readers are five minutes apart (`REMEMBERED` less `RETRIED_FOR`).
"""

from datetime import datetime, timedelta

from blackboard.model import Applied, Item
from blackboard.rules.next_run import serves

RETRIED_FOR = timedelta(minutes=5)
"""How long a sender without an answer tries again, before it gives up with an error."""
REMEMBERED = timedelta(minutes=10)
"""How long a name is remembered at least."""
ALWAYS = 64
"""So many of the latest names are remembered however old they are. They fit a row in any case."""
MOST = 200
"""The most names that an item holds: a further request is refused until one may be forgotten."""
LONGEST_NAME = 64
"""The most characters of a name."""
ADDED = "add:"
"""The prefix of the names of additions. They are kept when the item is removed: a sender without an
answer may find a later life of the id."""
COPIED, MOVED = "rename:", "renamed:"
"""The prefixes of the names of renames: in the copy, and in the tombstone of the old item."""
OWN = (ADDED, COPIED, MOVED)
"""The prefixes that no trigger may have."""


def is_applied(item: Item, name: str) -> bool:
    """Whether the request of this name was applied to the item."""
    names = {applied.name for applied in item.applied} | {request.name for request in item.requests}
    return name in names


def additions(item: Item | None) -> tuple[Applied, ...]:
    """The names of an item that the next life of its id keeps."""
    applied_so_far = item.applied if item else ()
    return tuple(applied for applied in applied_so_far if applied.name.startswith(ADDED))


def requests_of(item: Item) -> tuple[Applied, ...]:
    """The names that a renamed item keeps: those of no addition and no rename."""
    return tuple(applied for applied in item.applied if not applied.name.startswith(OWN))


def remembering(item: Item, name: str, *, now: datetime) -> tuple[Applied, ...] | None:
    """The names of an item after one more request was applied. None: there is no room for its name,
    since none of the others may be forgotten yet.
    """
    in_hand = next(
        (applied for applied in reversed(item.applied) if serves(item.slot, applied.at)), None
    )
    kept = [
        applied
        for place, applied in enumerate(item.applied, 1)
        if place < ALWAYS or abs(now - applied.at) <= REMEMBERED or applied is in_hand
    ]
    if len(kept) >= MOST:
        return None
    return Applied(name=name, at=now), *kept


def may_retry(*, first: datetime, now: datetime) -> bool:
    """Whether a sender that read the store's clock at `first` may still trust the names that it
    has read at `now`.
    """
    return abs(now - first) <= RETRIED_FOR
