"""The fourteen conditions of the protocol. Each can be left out, and then an invariant breaks.

A condition is a switch of the model alone: the product has no way to leave one out.
"""

from typing import NamedTuple


class Conditions(NamedTuple):
    """What is kept to: all of it, unless a test leaves something out."""

    etag: bool = True
    """An etag is never used twice for a key."""
    bump: bool = True
    """Whoever takes a lock from its holder raises the item's fence: unlock, remove, and an
    override that runs nothing."""
    itemcond: bool = True
    """What people do to an item states its etag as it was read."""
    relcond: bool = True
    """A release states the etag of the item it was built from, and is built anew after a doubt."""
    ovread: bool = True
    """An override states the etag of the item that it read."""
    editlock: bool = True
    """An edit of a locked item leaves the lock alone."""
    runkey: bool = True
    """The history has one key for each fence, and whoever is unsure of a release looks there."""
    late: bool = True
    """Who comes late reads the item, drops what another life of it is not to know, and states the
    item's etag."""
    settle: bool = True
    """After a claim or override without an answer the lock is read: the nonce in it says whose it
    is. Left out, no answer is taken for a yes."""
    adopt: bool = True
    """A walk takes up a lock of its own worker that none of its tasks knows."""
    paused: bool = True
    """Nothing waits for, and nobody starts, what was paused while it ran."""
    once: bool = True
    """A request that is tried again stays bound to the life, the lock or the name first read."""
    tomb: bool = True
    """Removing an item leaves a tombstone, which keeps its fence for the next life of the id."""
    saved: bool = True
    """A save states the etag of the item: it lands under the lock that its run still has, or not
    at all."""


ALL = Conditions()


def without(*names: str) -> Conditions:
    return ALL._replace(**dict.fromkeys(names, False))
