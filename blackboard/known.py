"""What a worker knows of the waiting tokens between two looks at the board. Pure.

A look is a request for each shard, so it brings more tokens than there are free slots, and those
that become ready before the next one: these are claimed when their time comes, and when a slot is
free, without another look. So a run costs two requests, its claim and its release, and a worker
that has nothing to do one for each shard and cycle.

It promises as much as looking each time. There is a look every cycle, whatever is known. A token
that was moved meanwhile is a lost race, as always; after one there are others at work on the same
tokens, and for a cycle no look brings more than there are slots for. A look that found a stale
lock, and no slot for it, is good for nothing else: the lock goes first.

Not known, and found by the next look: what others add, release or ask for.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from blackboard.model import Token


@dataclass(slots=True, kw_only=True)
class Known:
    """The tokens of the last look. Moments of a look are monotonic seconds, ready times are by the
    store's clock.
    """

    cycle: float
    """Seconds from a look to the next, at the most."""
    more: bool = False
    """Whether more tokens were ready than are known."""
    unread: datetime | None = None
    """From when on there may be tokens that were not read."""
    _looked: float = -math.inf
    _raced: float = -math.inf
    _tokens: dict[int, list[Token]] = field(default_factory=dict)
    """By shard, most overdue first."""

    def look(self, now: float) -> None:
        """A look begins: what was known before is forgotten."""
        self._looked, self._tokens, self.more, self.unread = now, {}, False, None

    def forget(self) -> None:
        """Look again before the next claim."""
        self._looked = -math.inf

    def race(self, now: float) -> None:
        """Somebody was faster."""
        self._raced = now

    def expect(self, ready: datetime) -> None:
        """There is a token that was not read, ready then."""
        self.unread = min(ready, self.unread or ready)

    def put(self, shard: int, tokens: list[Token]) -> None:
        """What was read of a shard."""
        self._tokens[shard] = tokens

    def drop(self, shard: int, ids: Collection[str]) -> None:
        """These are taken, or were tried in vain."""
        self._tokens[shard] = [one for one in self._tokens[shard] if one.id not in ids]

    def alone(self, now: float) -> bool:
        """Whether nobody has been faster for a cycle."""
        return now - self._raced >= self.cycle

    def until(self, now: float) -> float:
        """Seconds for which nobody need look again: 0 when that is now."""
        return max(self._looked + self.cycle - now, 0.0)

    def all_read(self, moment: datetime) -> bool:
        """Whether all tokens that are ready at `moment` are known, as far as we know."""
        return not self.more and (self.unread is None or self.unread > moment)

    def ready(self, moment: datetime) -> list[Token]:
        """The tokens that are ready at `moment`, most overdue first."""
        found = [one for some in self._tokens.values() for one in some if one.ready <= moment]
        return sorted(found, key=_ready)

    def of_shard(self, shard: int, moment: datetime) -> list[Token]:
        """Those of one shard."""
        return [one for one in self._tokens[shard] if one.ready <= moment]

    def next(self, moment: datetime) -> datetime | None:
        """When the next token after `moment` is ready, read or not."""
        later = [one.ready for some in self._tokens.values() for one in some if one.ready > moment]
        if self.unread is not None and self.unread > moment:
            later.append(self.unread)
        return min(later, default=None)


def _ready(token: Token) -> datetime:
    return token.ready
