"""The waiting tokens that a worker has read and not yet claimed. Pure.

A walk over the board costs a request for each shard, so it brings more tokens than there are free
slots, and those that become ready before the next walk. They are claimed when their time comes and
a slot is free, without another walk. So a run of a worker that is alone costs two requests, its
claim and its release, and an idle worker one request for each shard and cycle. Where a shard has
tokens that were not read, that shard alone is read again when their time comes. Where a reading
ended at ready tokens because it had enough for the slots, it is read on from there, unless a token
before that place is due sooner: one that is left to another worker, or was not answered for.

A worker with a backlog promises as much as one that walks each time. There is a walk every cycle,
whatever the backlog has. A token that moved meanwhile is a lost race, as always. A stale lock that
had to wait for a slot or a permit goes first: once it may have them there is a walk. There also is
one when as many workers have joined as there were: they come first to most of what was read. Tokens
that other workers release, and that people add or ask for, are not in the backlog: the next walk
finds them. How far a shard is read is decided by a `Selection`.

**Turns.** For each token one worker is the first to take it, and each other has its turn a moment
later (`peers.py`). A token for which it is not this worker's turn yet is not in the backlog: it is
read again at that turn, if it is still there. Where a worker has the choice, it takes the tokens of
which it is the first; others before them only if they have waited for much longer. Tokens with a
priority above the usual may be taken by any worker at once: the first worker may have no free slot,
and meanwhile a free slot here would go to a less important run.

**Contention.** In a shard where another worker was faster, further tokens are read only after a
part of a pause: the more workers come first, the larger the part. The pause is a fifth of a second
at first. It is multiplied by eight each time the worker comes for a token and none is left, up to
sixteen cycles, and starts again when the worker gets a token. So each shard is watched closely by a
few workers, and the others read it once a cycle. If those few die, the next worker that reads the
shard gets a token, and watches it from then on. Tokens of the worker's own releases have no pause:
no other worker has read them.

`benchmarks/herds.py` runs these pauses beside a plain retry with jitter, where items become ready
one by one (fifty workers, a hundred items, four shards; the store's requests include the walk of
each cycle, ten for each run; the conflicts are of the first seconds, when peers are not known yet):

    one by one, 50 workers      conflicts a run   requests a run   lateness: median   99 %   latest
    no pause                               0.07             64.1             0.01 s    0.31     0.48
    plain jitter, 0.2 s                    0.07             64.1             0.01      0.31     0.48
    doubling, to 1 cycle                   0.06             34.7             0.01      0.38     0.49
    times 8, to 16 cycles                  0.06             23.5             0.01      0.40     0.49

Where a thousand items are ready in the same second, no policy differs from another (0.01 conflicts
and 16.2 requests a run for a hundred workers): there are tokens enough for all.
"""

import math
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from blackboard.model import LONG_AGO, Token
from blackboard.protocol.permits import Limit
from blackboard.rules.due import Move
from blackboard.spec import RunSettings
from blackboard.worker.peers import FIRST, Turn
from blackboard.worker.slots import FreeSlots

FIRST_PAUSE = 0.2
"""Seconds after a token is ready, at the most, until a contended shard is read. No `Backoff`: the
store has answered, and what grows is the room left to other workers."""
PAUSE_GROWTH = 8.0
"""Factor of the pause each time that no token was left."""
LONGEST_PAUSE = 16.0
"""The longest pause, in cycles: so long that a shard is read by the walk of each cycle only."""
ROUNDING = 0.001
"""Seconds of imprecision of a clock."""
PREFERENCE = timedelta(minutes=1)
"""How much longer a token must have been ready, at the most, to be taken before one of which this
worker is the first."""


class Candidate(Struct, frozen=True, gc=False):
    """A waiting token that the worker may claim, with the settings that it was judged by."""

    token: Token
    settings: RunSettings
    limit: Limit | None = None
    """The limit of the whole board that its run counts for; None: there is none."""
    turn: Turn = FIRST
    """When it is this worker's turn to take it."""

    @property
    def id(self) -> str:
        return self.token.id

    @property
    def ready(self) -> datetime:
        return self.token.ready

    @property
    def counts_from(self) -> datetime:
        """When it became ready; later, where other workers come first. Where its type has a limit
        on the board, the worker that has a permit takes the most overdue: others may get no permit.
        """
        if self.turn is FIRST or self.limit is not None:
            return self.token.ready
        return self.token.ready + self.turn.share * PREFERENCE

    def takes_slot(self, slots: FreeSlots) -> bool:
        """Takes one of some free slots for its run, if there is one for it."""
        return slots.take(self.token.type, self.settings.slots, self.limit)


class Judged(NamedTuple):
    """A ready token that this worker may claim, and what is done about it."""

    candidate: Candidate
    move: Move


class Unread(NamedTuple):
    """Tokens that were not read, or have to be read again before they are claimed."""

    ready: datetime
    """When the first of them is ready."""
    turn: Turn = FIRST
    """They are read when it begins, and after its share of the shard's pause."""
    claimable: bool = True
    """Whether this worker can take one, unless another worker does."""
    key: str = ""
    """That of the first of them, where none before it is meant: the shard is read from there on."""


@dataclass(slots=True)
class _Shard:
    candidates: dict[str, Candidate] = field(default_factory=dict)
    """By the ids of their items, in the order in which they are to be claimed."""
    last_ready: datetime = LONG_AGO
    """When the last of them is ready."""
    unread: list[Unread] = field(default_factory=list)
    read_at: list[datetime] = field(default_factory=list)
    """When to read the shard for what is unread, soonest first."""
    raced: float = -math.inf
    """When another worker was last faster."""
    pause: float = 0.0
    """Seconds for which this worker leaves the shard to others, at the most."""

    def put(self, candidates: Sequence[Candidate]) -> None:
        """Replaces the candidates. Those of one urgency stay in the order given."""
        self.candidates = {each.id: each for each in sorted(candidates, key=urgency)}
        self.last_ready = max((candidate.ready for candidate in candidates), default=LONG_AGO)

    def ready(self, now: datetime) -> Collection[Candidate]:
        """The candidates that are ready, in their order."""
        candidates = self.candidates.values()
        if self.last_ready <= now:  # a busy worker has hundreds of them, and asks for each batch
            return candidates
        return [candidate for candidate in candidates if candidate.ready <= now]

    def next_ready(self, now: datetime) -> Iterator[datetime]:
        """When the candidates are ready that are not ready yet."""
        if self.last_ready <= now:
            return iter(())
        return (candidate.ready for candidate in self.candidates.values() if candidate.ready > now)

    def moment(self, unread: Unread) -> datetime:
        """When to read the shard for these tokens, by the present pause."""
        pause = timedelta(seconds=self.pause * unread.turn.share)
        return max(unread.ready + pause, unread.turn.begins)

    def set_unread(self, unread: list[Unread]) -> None:
        self.unread = unread
        self.read_at = sorted(map(self.moment, unread))

    def set_pause(self, seconds: float) -> None:
        self.pause = seconds
        self.set_unread(self.unread)

    def waits_unread(self, now: datetime) -> bool:
        """Whether a token is ready that this worker can take and has not read."""
        return any(unread.claimable and unread.ready <= now for unread in self.unread)


@dataclass(slots=True, kw_only=True)
class Backlog:
    """Candidates by shard, and when to read a shard for more. Moments of walks and races are
    monotonic seconds, ready times are by the store's clock.
    """

    cycle: float
    """Seconds from one walk over the board to the next, at the most."""
    shards: int
    first_shard: int = 0
    """Where the order of the shards begins, for candidates that are equally overdue."""
    walked: float = -math.inf
    """When the last walk over the board began."""
    _of: list[_Shard] = field(init=False)

    def __post_init__(self) -> None:
        self._of = [_Shard() for _ in range(self.shards)]

    # ---- the walk of each cycle

    def begin(self, now: float) -> None:
        """Forgets all candidates: a walk over the board begins. Pauses stay."""
        self.walked = now
        for shard in self._of:
            shard.put([])
            shard.set_unread([])

    def expire(self) -> None:
        """Requires a walk over the board before the next claim."""
        self.walked = -math.inf

    def lasts(self, now: float) -> float:
        """Seconds until the next walk over the board; 0 when it is time for it."""
        left = self.walked + self.cycle - now
        return left if left > ROUNDING else 0.0

    # ---- what was read

    def put(self, shard: int, candidates: Sequence[Candidate]) -> None:
        """Replaces the candidates of a shard. Those of one urgency stay in the order given."""
        self._of[shard].put(candidates)

    def drop(self, shard: int, ids: Iterable[str]) -> None:
        """Removes candidates that are claimed, or were tried in vain."""
        for item_id in ids:
            self._of[shard].candidates.pop(item_id, None)

    def has(self, shard: int, item_id: str) -> bool:
        """Whether a token of the item was read."""
        return item_id in self._of[shard].candidates

    def ready(self, now: datetime, *, but: Collection[int] = ()) -> list[Candidate]:
        """The candidates that are ready, without those of the shards in `but`: the highest priority
        first and, of one priority, the most overdue, but those of which this worker is the first
        before others that are no more than `PREFERENCE` older.
        What became ready in the same second is in the order of the shards from `first_shard` on:
        where a thousand items are due on the hour, workers begin in different shards.
        """
        if self.shards == 1 and not but:
            return self.ready_in(0, now)
        first = self.first_shard
        order = [*range(first, self.shards), *range(first)]
        ready = chain.from_iterable(
            self.ready_in(shard, now) for shard in order if shard not in but
        )
        return sorted(ready, key=_urgency_by_second)

    def candidates(self, shard: int) -> list[Candidate]:
        """The candidates of one shard, ready or not, in their order."""
        return list(self._of[shard].candidates.values())

    def ready_in(self, shard: int, now: datetime) -> list[Candidate]:
        """The candidates of one shard that are ready, in the same order."""
        return list(self._of[shard].ready(now))

    # ---- what was not read

    def expect(self, shard: int, unread: Unread) -> None:
        """Notes tokens that were not read."""
        part = self._of[shard]
        part.unread.append(unread)
        insort(part.read_at, part.moment(unread))

    def expect_none(self, shard: int) -> None:
        """Forgets what is unread: the shard is being read."""
        self._of[shard].set_unread([])

    def key_to_read_on(self, shard: int) -> str:
        """The key from which the shard is to be read on; empty: what is to be read first begins
        before it, or the shard was read to the end.
        """
        part = self._of[shard]
        first = min(part.unread, key=part.moment, default=None)
        return first.key if first else ""

    def forget_rest(self, shard: int) -> None:
        """Forgets from where to read on."""
        part = self._of[shard]
        part.set_unread([unread for unread in part.unread if not unread.key])

    def read_from_beginning(self, shard: int) -> None:
        """Has a shard read from its beginning, and not on: there is more before that place."""
        part = self._of[shard]
        part.set_unread([unread._replace(key="") for unread in part.unread])

    def expects(self, shard: int, now: datetime) -> bool:
        """Whether it is time to read the shard for a token that this worker can take."""
        part = self._of[shard]
        return any(unread.claimable and part.moment(unread) <= now for unread in part.unread)

    def to_read(self, now: datetime) -> list[tuple[datetime, int]]:
        """The shards to read by now, and since when, most overdue first."""
        return sorted(
            (part.read_at[0], number)
            for number, part in enumerate(self._of)
            if part.read_at and part.read_at[0] <= now
        )

    # ---- both

    def waiting(self, now: datetime) -> int:
        """How many tokens are ready for this worker, at the least, read or not."""
        return sum(len(part.ready(now)) + part.waits_unread(now) for part in self._of)

    def is_empty(self, shard: int, now: datetime, slots: FreeSlots) -> bool:
        """Whether a shard has no ready token that the free slots take, read or not."""
        return not (choose(self.ready_in(shard, now), slots) or self._of[shard].waits_unread(now))

    def next_at(self, now: datetime) -> datetime | None:
        """When there is something to do after `now`: a candidate is ready, or a shard is to be
        read.
        """
        ready = [moment for part in self._of for moment in part.next_ready(now)]
        reads = [moment for part in self._of for moment in part.read_at if moment > now]
        return min(ready + reads, default=None)

    # ---- contention

    def lost_race(self, shard: int, now: float) -> None:
        """Another worker was faster."""
        self._of[shard].raced = now
        self._of[shard].set_pause(max(self._of[shard].pause, FIRST_PAUSE))

    def found_none(self, shard: int, now: float) -> None:
        """Other workers were faster, and no token is left: make the pause longer."""
        longer = max(self._of[shard].pause * PAUSE_GROWTH, FIRST_PAUSE)
        self._of[shard].raced = now
        self._of[shard].set_pause(min(longer, LONGEST_PAUSE * self.cycle))

    def won(self, shard: int, now: float) -> None:
        """A token was claimed. A shard without a lost race for a cycle is contended no more."""
        part = self._of[shard]
        part.set_pause(0.0 if now - part.raced >= self.cycle else FIRST_PAUSE)


def choose(candidates: Iterable[Candidate], slots: FreeSlots) -> list[Candidate]:
    """As many of the candidates, in their order, as the free slots take."""
    chosen: list[Candidate] = []
    for candidate in candidates:
        if not slots.left:
            break
        if candidate.takes_slot(slots):
            chosen.append(candidate)
    return chosen


def urgency(candidate: Candidate) -> tuple[int, datetime]:
    return -candidate.settings.priority, candidate.counts_from


def _urgency_by_second(candidate: Candidate) -> tuple[int, datetime]:
    return -candidate.settings.priority, candidate.counts_from.replace(microsecond=0)
