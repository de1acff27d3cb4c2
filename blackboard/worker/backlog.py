"""The waiting tokens that a worker has read and not yet claimed. Pure.

A walk over the board costs a request for each shard, so it brings more tokens than there are free
slots, and those that become ready before the next walk. They are claimed when their time comes and
a slot is free, without another walk. So a run of a worker that is alone costs two requests, its
claim and its release, and an idle worker one request for each shard and cycle. Where a shard has
tokens that were not read, that shard alone is read again when their time comes.

The backlog promises as much as a walk each time. There is a walk every cycle, whatever the backlog
has. A token that moved meanwhile is a lost race, as always. A walk that found a stale lock and no
slot for it expires the backlog: the lock goes first. Not in the backlog, and found by the next
walk: what other workers release, and what people add or ask for.

**Contention.** In a shard where another worker was faster, the backlog keeps no more than the free
slots take, and the shard is read a random part of a pause after a token is ready. The pause is a
fifth of a second at first. It is multiplied by eight each time the worker comes for a token and
none is left, up to sixteen cycles, and starts again when the worker gets a token. So each shard is
watched closely by a few workers, any of them, and the others read it once a cycle. If those few
die, the next worker that reads the shard gets a token, and watches it from then on. Tokens of the
worker's own releases have no pause: no other worker has read them.

These pauses pay where items become ready one by one. `benchmarks/herds.py` runs them beside a plain
retry with jitter (fifty workers, a hundred items, four shards; the store's requests include the
walk of each cycle, ten for each run):

    one by one, 50 workers      conflicts a run   requests a run   lateness: median   99 %   latest
    no pause                              48.07            111.2             0.00 s    0.00     0.13
    plain jitter, 0.2 s                    4.27             72.2             0.04      0.08     0.13
    doubling, to 1 cycle                   0.46             28.1             0.01      0.33     0.73
    times 8, to 16 cycles                  0.44             17.9             0.01      0.33     0.42

Where a thousand items are ready in the same second, no policy differs from plain jitter (0.26
conflicts and 15.8 requests a run for a hundred workers): there are tokens enough for all.
"""

import math
from bisect import insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from blackboard.model import Token
from blackboard.protocol.permits import Limit
from blackboard.spec import RunSettings
from blackboard.worker.running import FreeSlots

FIRST_PAUSE = 0.2
"""Seconds after a token is ready, at the most, until a contended shard is read. No `Backoff`: the
store has answered, and what grows is the room left to other workers."""
PAUSE_GROWTH = 8.0
"""Factor of the pause each time that no token was left."""
LONGEST_PAUSE = 16.0
"""Cycles: long enough that a shard is read by the walk of each cycle only."""
ROUNDING = 0.001
"""Seconds of imprecision of a clock."""
AHEAD = 48
"""Tokens read beyond those that the free slots take, or four times the slots if that is more. With
the locks of a few slots that is still one page of any store."""
CHOICE = 4
"""Tokens for each free slot that are read of a contended shard, to choose among them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting token that the worker may claim, with the settings that it was judged by."""

    token: Token
    settings: RunSettings
    limit: Limit | None = None
    """What its run is counted by on the whole board."""

    @property
    def id(self) -> str:
        return self.token.id

    @property
    def ready(self) -> datetime:
        return self.token.ready


class Unread(NamedTuple):
    """Tokens that were not read."""

    ready: datetime
    """Of the first of them."""
    share: float
    """The part of the shard's pause after which they are read, in [0, 1)."""
    claimable: bool
    """Whether this worker can take one, unless another worker does."""


@dataclass(slots=True)
class _Shard:
    """The backlog of one shard."""

    candidates: list[Candidate] = field(default_factory=list)
    """Most overdue first."""
    unread: list[Unread] = field(default_factory=list)
    read_at: list[datetime] = field(default_factory=list)
    """When to read the shard for what is unread, soonest first."""
    raced: float = -math.inf
    """When another worker was last faster."""
    pause: float = 0.0
    """Seconds left to other workers, at the most."""

    def moment(self, one: Unread) -> datetime:
        """When to read the shard for it, by the present pause."""
        return one.ready + timedelta(seconds=self.pause * one.share)

    def set_pause(self, seconds: float) -> None:
        self.pause = seconds
        self.read_at = sorted(map(self.moment, self.unread))

    def waits_unread(self, now: datetime) -> bool:
        """Whether a token is ready that this worker can take and has not read."""
        return any(one.claimable and one.ready <= now for one in self.unread)


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
    _walked: float = -math.inf
    _of: list[_Shard] = field(init=False)

    def __post_init__(self) -> None:
        self._of = [_Shard() for _ in range(self.shards)]

    # ---- the walk of each cycle

    def begin(self, now: float) -> None:
        """Forget all candidates: a walk over the board begins. Pauses stay."""
        self._walked = now
        for shard in self._of:
            shard.candidates, shard.unread, shard.read_at = [], [], []

    def expire(self) -> None:
        """Require a walk over the board before the next claim."""
        self._walked = -math.inf

    def lasts(self, now: float) -> float:
        """Seconds until the next walk over the board; 0 when it is time for it."""
        left = self._walked + self.cycle - now
        return left if left > ROUNDING else 0.0

    # ---- what was read

    def put(self, shard: int, candidates: list[Candidate]) -> None:
        """Replace the candidates of a shard."""
        self._of[shard].candidates = candidates

    def drop(self, shard: int, ids: Collection[str]) -> None:
        """Remove candidates that are claimed, or were tried in vain."""
        kept = [one for one in self._of[shard].candidates if one.id not in ids]
        self._of[shard].candidates = kept

    def has(self, shard: int, item_id: str) -> bool:
        """Whether a token of the item was read."""
        return any(one.id == item_id for one in self._of[shard].candidates)

    def ready(self, now: datetime, *, but: Collection[int] = ()) -> list[Candidate]:
        """The candidates that are ready, the highest priority first and, of one priority, the most
        overdue, without those of the shards in `but`.
        What became ready in the same second is in the order of the shards from `first_shard` on:
        where a thousand items are due on the hour, workers begin in different shards.
        """
        if self.shards == 1 and not but:
            return self.ready_in(0, now)
        first = self.first_shard
        order = [*range(first, self.shards), *range(first)]
        found = [one for shard in order if shard not in but for one in self.ready_in(shard, now)]
        return sorted(found, key=lambda one: (-one.settings.priority, _second(one)))

    def ready_in(self, shard: int, now: datetime) -> list[Candidate]:
        """The candidates of one shard that are ready, the highest priority first and, of one
        priority, the most overdue.
        """
        ready = [one for one in self._of[shard].candidates if one.ready <= now]
        return sorted(ready, key=_urgency)

    # ---- what was not read

    def expect(
        self, shard: int, ready: datetime, *, share: float = 0.0, claimable: bool = True
    ) -> None:
        """Note that there are tokens that were not read, from `ready` on."""
        part, one = self._of[shard], Unread(ready, share, claimable)
        part.unread.append(one)
        insort(part.read_at, part.moment(one))

    def expect_none(self, shard: int) -> None:
        """Forget what is unread: the shard is being read."""
        self._of[shard].unread, self._of[shard].read_at = [], []

    def expects(self, shard: int, now: datetime) -> bool:
        """Whether it is time to read the shard for a token that this worker can take."""
        part = self._of[shard]
        return any(one.claimable and part.moment(one) <= now for one in part.unread)

    def to_read(self, now: datetime) -> list[tuple[datetime, int]]:
        """The shards to read by now, and since when, most overdue first."""
        parts = enumerate(self._of)
        return sorted(
            (one.read_at[0], n) for n, one in parts if one.read_at and one.read_at[0] <= now
        )

    # ---- both

    def waiting(self, now: datetime) -> int:
        """How many tokens are ready for this worker, at the least, read or not."""
        ready = sum(one.ready <= now for part in self._of for one in part.candidates)
        return ready + sum(part.waits_unread(now) for part in self._of)

    def is_empty(self, shard: int, now: datetime) -> bool:
        """Whether a shard has no ready token for this worker, read or not."""
        return not (self.ready_in(shard, now) or self._of[shard].waits_unread(now))

    def next_at(self, now: datetime) -> datetime | None:
        """When there is something to do after `now`: a candidate is ready, or a shard is to be
        read.
        """
        ready = [one.ready for part in self._of for one in part.candidates if one.ready > now]
        reads = [moment for part in self._of for moment in part.read_at if moment > now]
        return min(ready + reads, default=None)

    # ---- contention

    def contended(self, shard: int) -> bool:
        """Whether other workers claim tokens of the shard."""
        return self._of[shard].pause > 0.0

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


class Selection:
    """What is kept of one shard while it is read, most overdue token first, and how far it is read.
    Of a contended shard less is kept: other workers claim it before slots become free.
    """

    def __init__(self, slots: FreeSlots, *, total: int, contended: bool) -> None:
        """`slots` are counted down, `total` is what the worker has, free or not."""
        self.unread: list[tuple[datetime, bool]] = []
        """The first ready token that is not kept, and the first that is not ready yet: its time,
        and whether this worker can take it."""
        self.passed_over = False
        """Whether a slot was missed and its item moved on to the next."""
        self._kept: dict[str, Candidate] = {}
        """By id: a token that moves meanwhile may be read twice."""
        self._contended = contended
        self._slots = slots
        self._ahead = max(AHEAD, 4 * total)
        self._most = CHOICE * slots.left if contended else slots.left + self._ahead
        if not slots.left:
            self._most = 0

    @property
    def candidates(self) -> list[Candidate]:
        return list(self._kept.values())

    def add(self, candidate: Candidate) -> bool:
        """Keep a token that is ready, if there is room. Returns whether to read on."""
        if (
            self._slots.take(candidate.token.type, candidate.settings.slots, candidate.limit)
            or len(self._kept) < self._most
        ):
            self._kept[candidate.id] = candidate
            return True
        self.unread = self.unread or [(candidate.ready, True)]
        return self._slots.left > 0

    def add_later(self, ready: datetime, candidate: Candidate | None) -> bool:
        """Keep a token that is not ready yet; None: this worker cannot take it. Returns whether to
        read on.
        """
        claimable = candidate is not None
        if self._ahead <= 0 or (claimable and self._contended):
            self.unread.append((ready, claimable))
            return False
        self._ahead -= 1
        if candidate is not None:
            self._kept[candidate.id] = candidate
        return True


def choose(candidates: Iterable[Candidate], slots: FreeSlots) -> list[Candidate]:
    """As many of the candidates, in their order, as the free slots take."""
    chosen: list[Candidate] = []
    for one in candidates:
        if not slots.left:
            break
        if slots.take(one.token.type, one.settings.slots, one.limit):
            chosen.append(one)
    return chosen


def rotated(candidates: list[Candidate], by: float) -> list[Candidate]:
    """Those that became ready in the same second as the first, rotated by a fraction of their
    number; then the others. A higher priority goes first.
    """
    ties = sum(_second(one) == _second(candidates[0]) for one in candidates)
    middle = int(by * ties)
    return sorted(candidates[middle:ties] + candidates[:middle] + candidates[ties:], key=_urgency)


def _urgency(candidate: Candidate) -> int:
    return -candidate.settings.priority


def _second(candidate: Candidate) -> datetime:
    return candidate.ready.replace(microsecond=0)
