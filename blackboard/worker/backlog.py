"""What a worker knows of the waiting tokens between two looks at the board. Pure.

A look is a request for each shard, so it brings more tokens than there are free slots, and those
that become ready before the next one: these are claimed when their time comes, and when a slot is
free, without another look. So a run of a worker that is alone costs two requests, its claim and its
release, and a worker that has nothing to do one for each shard and cycle. Where a shard has tokens
that were not read, that shard alone is read again when their time comes.

It promises as much as looking each time. There is a look every cycle, whatever is known. A token
that was moved meanwhile is a lost race, as always. A look that found a stale lock, and no slot for
it, is good for nothing else: the lock goes first.

Others at the same tokens. In a shard where somebody was faster, a worker remembers no more than
its free slots take, and leaves others room: it reads the shard a while after a token is ready. That
is a part of a fifth of a second at first. Each time when it comes for a token and nothing is left,
it is eight times that; when it gets something, it begins anew. So each shard is watched closely by
a few workers, whoever they are, and the others come by once a cycle: a board with a hundred workers
is not asked a hundred times for each token. Should those few die, the next to come by gets
something, and watches.

What it lets go itself it expects without a pause: nobody else knows of that. Not known, and found
by the next look: what others add, release or ask for.
"""

import math
from bisect import insort
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from blackboard.model import Token

FIRST_PAUSE = 0.2
"""Seconds that others are left, at the most, where somebody was faster."""
PAUSE_GROWTH = 8
"""Times as much, when nothing was left."""
LONGEST_PAUSE = 16
"""Cycles: enough for a shard to be read with the whole board only."""
MOMENT = 0.001
"""Seconds that no clock can be trusted with."""


class Expected(NamedTuple):
    """Tokens that were not read."""

    ready: datetime
    """The first of them."""
    share: float
    """Of the pause that is made for others, in [0, 1)."""
    is_for_us: bool
    """Whether there is one that this worker can take, unless others do."""


@dataclass(slots=True)
class Part:
    """What is known of one shard."""

    tokens: list[Token] = field(default_factory=list)
    """Most overdue first."""
    expected: list[Expected] = field(default_factory=list)
    unread: list[datetime] = field(default_factory=list)
    """When to look for what is expected, soonest first."""
    raced: float = -math.inf
    """When somebody was faster."""
    pause: float = 0.0
    """Seconds left to others, at the most."""

    def when(self, one: Expected) -> datetime:
        """The moment to look for it, by the pause as it is now."""
        return one.ready + timedelta(seconds=self.pause * one.share)

    def make_pause(self, seconds: float) -> None:
        self.pause = seconds
        self.unread = sorted(map(self.when, self.expected))


@dataclass(slots=True, kw_only=True)
class Known:
    """The tokens of the last look. Moments of a look are monotonic seconds, ready times are by the
    store's clock.
    """

    cycle: float
    """Seconds from a look to the next, at the most."""
    shards: int
    first_shard: int = 0
    """Where this worker begins, of what is equally overdue."""
    _looked: float = -math.inf
    _parts: list[Part] = field(init=False)

    def __post_init__(self) -> None:
        self._parts = [Part() for _ in range(self.shards)]

    def look(self, now: float) -> None:
        """A look begins: the tokens that were known are forgotten."""
        self._looked = now
        for part in self._parts:
            part.tokens, part.expected, part.unread = [], [], []

    def forget(self) -> None:
        """Look again before the next claim."""
        self._looked = -math.inf

    def until(self, now: float) -> float:
        """Seconds for which nobody need look again: 0 when that is now, or as good as now."""
        left = self._looked + self.cycle - now
        return left if left > MOMENT else 0.0

    def put(self, shard: int, tokens: list[Token]) -> None:
        """What was read of a shard; all there is, but for what is expected."""
        self._parts[shard].tokens = tokens

    def drop(self, shard: int, ids: Collection[str]) -> None:
        """These are taken, or were tried in vain."""
        part = self._parts[shard]
        part.tokens = [one for one in part.tokens if one.id not in ids]

    def expect(
        self, shard: int, ready: datetime, *, share: float = 0.0, is_for_us: bool = True
    ) -> None:
        """There are tokens that were not read, from `ready` on."""
        part, one = self._parts[shard], Expected(ready, share, is_for_us)
        part.expected.append(one)
        insort(part.unread, part.when(one))

    def expects(self, shard: int, moment: datetime) -> bool:
        """Whether a token that was not read is there at `moment`, and for this worker."""
        part = self._parts[shard]
        return any(one.is_for_us and part.when(one) <= moment for one in part.expected)

    def waits(self, moment: datetime) -> int:
        """How much is there to be taken, at `moment` or after a pause for others, at the least."""
        ready = sum(one.ready <= moment for part in self._parts for one in part.tokens)
        return ready + sum(self._has_unread(shard, moment) for shard in range(self.shards))

    def is_empty(self, shard: int, moment: datetime) -> bool:
        """Whether there is nothing that this worker could take, now or after a pause."""
        return not (self.of_shard(shard, moment) or self._has_unread(shard, moment))

    def _has_unread(self, shard: int, moment: datetime) -> bool:
        expected = self._parts[shard].expected
        return any(one.is_for_us and one.ready <= moment for one in expected)

    def has(self, shard: int, item_id: str) -> bool:
        """Whether a token of the item was read."""
        return any(one.id == item_id for one in self._parts[shard].tokens)

    def expect_no_more(self, shard: int) -> None:
        """It is being read."""
        part = self._parts[shard]
        part.expected, part.unread = [], []

    def alone(self, shard: int) -> bool:
        """Whether nobody else seems to be at a shard's tokens."""
        return self._parts[shard].pause == 0.0

    def raced(self, shard: int, now: float) -> None:
        """Somebody was faster."""
        part = self._parts[shard]
        part.raced = now
        part.make_pause(max(part.pause, FIRST_PAUSE))

    def lost(self, shard: int, now: float) -> None:
        """Somebody was faster, and nothing is left."""
        part = self._parts[shard]
        part.raced = now
        longer = max(part.pause * PAUSE_GROWTH, FIRST_PAUSE)
        part.make_pause(min(longer, LONGEST_PAUSE * self.cycle))

    def won(self, shard: int, now: float) -> None:
        """Tokens were there for the taking. Who was not raced for a cycle is alone."""
        part = self._parts[shard]
        part.make_pause(0.0 if now - part.raced >= self.cycle else FIRST_PAUSE)

    def unread(self, moment: datetime) -> list[tuple[datetime, int]]:
        """The shards that have more than is known, and since when, most overdue first."""
        parts = enumerate(self._parts)
        return sorted([(p.unread[0], n) for n, p in parts if p.unread and p.unread[0] <= moment])

    def ready(self, moment: datetime, *, but: Collection[int] = ()) -> list[Token]:
        """The tokens that are ready at `moment`, most overdue first. What became ready in the same
        second is in the order of the shards from `first_shard` on: where a thousand items are due
        on the hour, workers begin in different places and not all with the same token. Those of
        the shards in `but` are left out.
        """
        first = self.first_shard
        parts = [
            part for number, part in enumerate(self._parts[first:], first) if number not in but
        ]
        parts += [part for number, part in enumerate(self._parts[:first]) if number not in but]
        found = [one for part in parts for one in part.tokens if one.ready <= moment]
        return sorted(found, key=_second)

    def of_shard(self, shard: int, moment: datetime) -> list[Token]:
        """Those of one shard."""
        return [one for one in self._parts[shard].tokens if one.ready <= moment]

    def next(self, moment: datetime) -> datetime | None:
        """When there is something to do after `moment`: a token is ready, or is to be read."""
        ready = [one.ready for part in self._parts for one in part.tokens if one.ready > moment]
        unread = [when for part in self._parts for when in part.unread if when > moment]
        return min(ready + unread, default=None)


def turned(tokens: list[Token], by: float) -> list[Token]:
    """Those that became ready in the same second as the first, turned by a fraction of their
    number; then the others.
    """
    ties = sum(_second(one) == _second(tokens[0]) for one in tokens)
    middle = int(by * ties)
    return tokens[middle:ties] + tokens[:middle] + tokens[ties:]


def _second(token: Token) -> datetime:
    return token.ready.replace(microsecond=0)
