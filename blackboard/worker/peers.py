"""The peers of a worker, and which tokens it leaves to them for a moment.

Each token belongs to one of the workers that take its type: to the first in the order of their
hashes of it (rendezvous hashing). Each worker claims its own tokens first, so those that have free
slots at the same time do not meet at the same ones. Nothing has to be agreed on: where two know
different peers, one of them loses a race, as it may at any time. And no token waits for a worker
that is dead or has no free slot: the second in its order takes it a moment later, then the third.

A worker knows its peers from the membership rows, and from the locks that it reads.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zlib import crc32

from blackboard.model import Token

REMEMBERED = 330.0
"""Seconds for which a worker is a peer after it was heard of: until the membership rows were read
again, and a little."""
LEFT = timedelta(seconds=0.25)
"""How long a token is left to each peer, also after that one claimed another before it: more than
it takes to claim it."""
LONGEST = timedelta(seconds=2)
"""How long after it became ready a token is left to peers at the most."""
NEVER = datetime.min.replace(tzinfo=UTC)
GOLDEN = 0x9E3779B1
"""2**32 by the golden ratio: spreads hashes that differ in a few bits (Knuth)."""


class Left(NamedTuple):
    """How a token is left to peers."""

    share: float
    """The part of a pause for which it is left to them, in [0, 1): how many of all workers come
    before this one."""
    until: datetime
    """Until when it is left to them at the least."""


OWN = Left(0.0, NEVER)
"""It is not: this worker is the first to take it."""


@dataclass(slots=True, eq=False)
class _Peer:
    hash: int
    seen: float
    """When it was last heard of."""
    claimed: datetime = NEVER
    """When it claimed the latest of the tokens that it was seen to have claimed."""


class Peers:
    """The peers of one worker, by type. Moments are monotonic seconds, but for those of claims."""

    def __init__(self, owner: str, types: Iterable[str]) -> None:
        self._owner = owner
        self._hash = _hash(owner)
        self._by_owner: dict[str, _Peer] = {}
        self._by_type: dict[str, list[_Peer]] = {one: [] for one in types}

    def note(self, owner: str, types: Iterable[str], now: float, claimed: datetime = NEVER) -> None:
        """Note that a worker takes some types, and that it `claimed` a token."""
        if owner == self._owner:
            return
        peer = self._by_owner.get(owner)
        if peer is None:
            peer = self._by_owner[owner] = _Peer(_hash(owner), now)
        peer.seen, peer.claimed = now, max(peer.claimed, claimed)
        for item_type in self._by_type.keys() & types:
            if peer not in self._by_type[item_type]:
                self._by_type[item_type].append(peer)

    def forget_lost(self, now: float) -> None:
        """Forget those that were not heard of for long."""
        lost = {name for name, one in self._by_owner.items() if now - one.seen > REMEMBERED}
        if lost:
            gone = [self._by_owner.pop(name) for name in lost]
            for item_type, peers in self._by_type.items():
                self._by_type[item_type] = [one for one in peers if one not in gone]

    @property
    def most(self) -> int:
        """How many there are of the type that has the most."""
        return max(map(len, self._by_type.values()), default=0)

    def left(self, token: Token) -> Left:
        """To what extent a token is left to peers."""
        peers = self._by_type[token.type]
        if not peers:
            return OWN
        item = _hash(token.id)
        own = _weight(self._hash, item)
        first = [one for one in peers if _weight(one.hash, item) > own]
        if not first:
            return OWN
        latest = max(one.claimed for one in first)
        until = min(max(token.ready, latest) + len(first) * LEFT, token.ready + LONGEST)
        return Left(len(first) / (len(peers) + 1), until)


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def _weight(worker: int, item: int) -> int:
    return (worker ^ item) * GOLDEN & 0xFFFFFFFF
