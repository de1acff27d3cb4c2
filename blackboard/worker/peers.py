"""The peers of a worker, and which of the workers is the first to take a token.

The workers that take a type have an order for each token: that of their hashes of it (rendezvous
hashing). The first claims it as soon as it is ready, the second may a quarter of a second later,
then the third. So workers that have free slots at the same time do not meet at the same tokens.
Workers need not agree on who their peers are: where they differ, one loses a race, as it may at any
time. And no token waits for a worker that is dead or has no free slot for longer than until the
next one reads the shard.

The peers of a worker are those in the membership rows, and the owners of the locks that it reads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from zlib import crc32

from blackboard.model import LONG_AGO, Token

HEAD_START = timedelta(seconds=0.25)
"""The time from the turn of one worker to that of the next, longer than a claim takes. The first
turn begins when the token is ready, or when a worker that comes before has claimed another one."""
LONGEST = timedelta(seconds=2)
"""The time after a token became ready from which any worker may claim it."""
GOLDEN = 0x9E3779B1
"""2**32 by the golden ratio: spreads hashes that differ in a few bits (Knuth)."""
BITS = 0xFFFFFFFF


class Turn(NamedTuple):
    """When it is this worker's turn to take a token."""

    share: float
    """The share of all workers that come before this one, in [0, 1)."""
    begins: datetime
    """The time before which this worker leaves it to others."""


FIRST = Turn(0.0, LONG_AGO)
"""The turn of the worker that is the first to take a token."""


@dataclass(slots=True, eq=False)
class _Peer:
    hash: int
    types: set[str]
    claimed: datetime = LONG_AGO
    """When it claimed the latest of the tokens that it was seen to have claimed."""


class Peers:
    """The peers of one worker, by type."""

    def __init__(self, owner: str, types: Iterable[str]) -> None:
        self._owner = owner
        self._hash = _hash(owner)
        self._by_owner: dict[str, _Peer] = {}
        self._by_type: dict[str, list[_Peer]] = {item_type: [] for item_type in types}

    def met(self, types: Mapping[str, Iterable[str]]) -> None:
        """Replaces the peers by those of the membership rows, by owner with the types that they
        take. A type that one took before, or has a lock of, stays: a row may not hold all.
        """
        for owner in self._by_owner.keys() - types.keys():
            gone = self._by_owner.pop(owner)
            for item_type in gone.types:
                self._by_type[item_type].remove(gone)
        for owner, its in types.items():
            self.note(owner, its)

    def note(self, owner: str, types: Iterable[str], claimed: datetime = LONG_AGO) -> None:
        """Notes that a worker takes some types, and that it `claimed` a token."""
        if owner == self._owner:
            return
        peer = self._by_owner.get(owner)
        if peer is None:
            peer = self._by_owner[owner] = _Peer(_hash(owner), set())
        peer.claimed = max(peer.claimed, claimed)
        for item_type in (self._by_type.keys() & types) - peer.types:
            peer.types.add(item_type)
            self._by_type[item_type].append(peer)

    @property
    def most(self) -> int:
        """How many peers there are of the type that has the most."""
        return max(map(len, self._by_type.values()), default=0)

    def turn(self, token: Token, *, urgent: bool = False) -> Turn:
        """When it is this worker's turn to take a token; at once if it is `urgent`."""
        peers = self._by_type[token.type]
        if not peers:
            return FIRST
        item = _hash(token.id)
        own = (self._hash ^ item) * GOLDEN & BITS
        before, latest = 0, token.ready
        for peer in peers:  # a loop, as a worker with peers judges many tokens of others
            if (peer.hash ^ item) * GOLDEN & BITS > own:
                before += 1
                latest = max(latest, peer.claimed)
        if not before:
            return FIRST
        share = before / (len(peers) + 1)
        if urgent:
            return Turn(share, LONG_AGO)
        return Turn(share, min(latest + before * HEAD_START, token.ready + LONGEST))


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))
