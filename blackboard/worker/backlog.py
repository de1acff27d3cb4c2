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

**Peers.** Tokens that are left to other workers for a moment (`peers.py`) are not in the backlog.
They are read when they are left no more, if they are there still. To keep as many of its own, a
worker with peers reads further.

**Contention.** In a shard where another worker was faster, what is left to others is read after a
part of a pause, the larger the more of them come first. The pause is a fifth of a second at first.
It is multiplied by eight each time the worker comes for a token and none is left, up to sixteen
cycles, and starts again when the worker gets a token. So each shard is watched closely by a few
workers, and the others read it once a cycle. If those few die, the next worker that reads the shard
gets a token, and watches it from then on. Tokens of the worker's own releases have no pause: no
other worker has read them.

`benchmarks/herds.py` runs these pauses beside a plain retry with jitter, where items become ready
one by one (fifty workers, a hundred items, four shards; the store's requests include the walk of
each cycle, ten for each run; the conflicts are of the first seconds, when no worker knows another):

    one by one, 50 workers      conflicts a run   requests a run   lateness: median   99 %   latest
    no pause                               0.36             63.6             0.01 s    0.33     0.44
    plain jitter, 0.2 s                    0.36             63.6             0.01      0.33     0.44
    doubling, to 1 cycle                   0.38             34.2             0.01      0.34     0.41
    times 8, to 16 cycles                  0.40             23.1             0.01      0.38     0.50

Where a thousand items are ready in the same second, no policy differs from another (0.01 conflicts
and 15.5 requests a run for a hundred workers): there are tokens enough for all.
"""

import math
from bisect import insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from blackboard.model import Token
from blackboard.protocol.permits import Limit
from blackboard.spec import RunSettings
from blackboard.worker.peers import OWN, Left
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
MOST_READ = 1_000
"""Tokens that are read to find as many of this worker's own: one page of any store."""
MUCH_LATER = timedelta(minutes=1)
"""How much longer than its own a token that is left to peers may have been ready, and a worker
takes its own first all the same."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting token that the worker may claim, with the settings that it was judged by."""

    token: Token
    settings: RunSettings
    limit: Limit | None = None
    """What its run is counted by on the whole board."""
    left: Left = OWN
    """How it is left to peers."""

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
    left: Left
    """To peers; they are read after its share of the shard's pause."""
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
        return max(one.ready + timedelta(seconds=self.pause * one.left.share), one.left.until)

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
        self, shard: int, ready: datetime, left: Left = OWN, *, claimable: bool = True
    ) -> None:
        """Note that there are tokens that were not read, from `ready` on, and are left to peers."""
        part, one = self._of[shard], Unread(ready, left, claimable)
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
    """What is kept of one shard while it is read, most overdue token first, and how far it is
    read: until as many are kept as the free slots take, and some ahead.
    """

    def __init__(self, slots: FreeSlots, *, total: int, peers: int = 0) -> None:
        """`slots` are counted down, `total` is what the worker has, free or not. With `peers`, more
        is read to keep as many.
        """
        self.unread: list[tuple[datetime, bool]] = []
        """The first ready token that is not kept, and the first that is not ready yet: its time,
        and whether this worker can take it."""
        self.passed_over = False
        """Whether a slot was missed and its item moved on to the next."""
        self._kept: dict[str, Candidate] = {}
        """By id: a token that moves meanwhile may be read twice."""
        self._runnable: list[Candidate] = []
        """Those that are ready, and for which there is a slot but for others of them."""
        self._left: list[Candidate] = []
        """Those that are left to peers."""
        self._slots = slots
        self._ahead = max(AHEAD, 4 * total)
        self._most = slots.left + self._ahead if slots.left else 0
        self._to_read = max(self._most, min(self._most * (peers + 1), MOST_READ))

    @property
    def candidates(self) -> list[Candidate]:
        return list(self._kept.values())

    def add(self, candidate: Candidate) -> bool:
        """Keep a token that is ready, if there is room. Returns whether to read on."""
        settings, has_slots = candidate.settings, self._slots.left > 0
        takes = self._slots.take(candidate.token.type, settings.slots, candidate.limit)
        if takes or not has_slots:
            self._runnable.append(candidate)
        if takes or len(self._kept) < self._most:
            self._kept[candidate.id] = candidate
            return self._reads_on(candidate)
        self.unread = self.unread or [(candidate.ready, True)]
        return self._slots.left > 0

    def leave(self, candidate: Candidate) -> bool:
        """Leave a token to peers, ready or not. Returns whether to read on."""
        self._left.append(candidate)
        return self._reads_on(candidate)

    def add_later(self, ready: datetime, candidate: Candidate | None) -> bool:
        """Keep a token that is not ready yet; None: this worker cannot take it. Returns whether to
        read on.
        """
        if self._ahead <= 0:
            self.unread.append((ready, candidate is not None))
            return False
        self._ahead -= 1
        if candidate is not None:
            self._kept[candidate.id] = candidate
        return True

    def _reads_on(self, candidate: Candidate) -> bool:
        """Whether to read on after a token: of many that are left to peers, not all are read."""
        self._to_read -= 1
        if self._to_read <= 0 and self._left:
            self.unread = self.unread or [(candidate.ready, True)]
            return False
        return True

    def in_turn(self, now: datetime) -> list[Candidate]:
        """Those that were left to peers for long enough, and are the next that this worker takes:
        it has nothing else to run that became ready at about the same time.
        """
        left = [one for one in self._left if one.left.until <= now]
        found: list[Candidate] = []
        for group in _groups(self._runnable + left):
            first = min(one.left.share for one in group)
            if first > 0.0:  # the last of them first: its peers begin at the other end
                found += [one for one in reversed(group) if one.left.share == first]
        return found[: self._most]

    def still_left(self, now: datetime) -> tuple[datetime, Left] | None:
        """When the first of those that are left to peers is to be taken, after all that is kept and
        ready; None: there are none.
        """
        left = [one for one in self._left if one.id not in self._kept]
        if not left:
            return None
        first = min(left, key=lambda one: one.left.until)
        ready = (one.ready for one in self._kept.values() if one.ready <= now)
        return max(first.ready, max(ready, default=first.ready)), first.left


def choose(candidates: Iterable[Candidate], slots: FreeSlots) -> list[Candidate]:
    """As many of the candidates, in their order, as the free slots take."""
    chosen: list[Candidate] = []
    for one in candidates:
        if not slots.left:
            break
        if slots.take(one.token.type, one.settings.slots, one.limit):
            chosen.append(one)
    return chosen


def _groups(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    """Candidates of one priority that became ready at about the same time, most overdue first: in
    what order they are taken does not matter.
    """
    group: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: (_urgency(one), one.ready)):
        if group and (
            _urgency(one) != _urgency(group[0]) or one.ready - group[0].ready > MUCH_LATER
        ):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _urgency(candidate: Candidate) -> int:
    return -candidate.settings.priority


def _second(candidate: Candidate) -> datetime:
    return candidate.ready.replace(microsecond=0)
