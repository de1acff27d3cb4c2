"""Selects tokens of one shard while it is read, and decides how far it is read. Pure.

The most overdue tokens come first. A shard is read until the free slots are filled, and some tokens
more, which fill the page. It is read until there are as many tokens as the worker has claimed since
the walk before, also where no slot is free at that moment: else a busy worker, whose slots are free
for moments only, would read each shard once more after each walk. A worker with peers reads as many
times further as there are workers, to find enough of its own for its slots: each takes a part.

What is not kept is noted: from where to read on, or when to read again.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from blackboard.model import LONG_AGO, Token
from blackboard.worker.backlog import Candidate, Judged, Unread, urgency
from blackboard.worker.peers import FIRST, HEAD_START, Turn
from blackboard.worker.slots import FreeSlots

AHEAD = 48
"""Tokens that are read beyond those that the free slots take, where slots are few: with their locks
they are one page of any store."""
FEW_SLOTS = 8
AHEAD_OF_A_SLOT = 8
"""Further tokens for each slot beyond `FEW_SLOTS`: they fill the larger pages that many slots need.
"""
MOST_READ = 1_000
"""Tokens that a worker with peers reads at the most to find those of which it is the first."""
MOST_FOR_A_CYCLE = 4_000
"""Tokens that a worker reads of a shard at the most to have enough until the next walk."""


class Selection:
    """The tokens of one reading of a shard."""

    def __init__(
        self, free: Callable[[int], FreeSlots], *, total: int, workers: int = 1, pace: int = 0
    ) -> None:
        """`free(n)` returns the free slots n times; `total` is the number of slots, free or not.
        `workers` is the number of all workers, with this one; `pace` how many tokens of the shard
        it claims in a cycle.
        """
        self.missed: list[Judged] = []
        """Ready tokens that are not to be run now, some of the most overdue."""
        self._slots = free(1)
        self._ahead = AHEAD + AHEAD_OF_A_SLOT * max(total - FEW_SLOTS, 0)
        times = max(min(workers, MOST_READ // (self._slots.left + self._ahead)), 1)
        self._ahead *= times
        self._to_fill = free(times)
        """Counted down while tokens are read."""
        self._most = min(pace * workers, MOST_FOR_A_CYCLE)
        if self._to_fill.left:
            self._most = max(self._most, self._to_fill.left + self._ahead)
        self.expected = max(self._most, self._ahead) + 1
        """How many tokens are read at the most, unless many are of types without a free slot."""
        self._ready: dict[str, Candidate] = {}
        """By id: a token that moves meanwhile may be read twice."""
        self._later: dict[str, Candidate] = {}
        """Those that are not ready yet, of which this worker is the first."""
        self._deferred: list[Candidate] = []
        """Those of which another worker is the first, and that are not ready, or not to be run."""
        self.rest: Token | None = None
        """The first ready token that is not kept."""
        self.reads_on = False
        """Whether the shard is to be read on from there, as what comes before was read; else it is
        read again."""
        self.later: tuple[datetime, bool] | None = None
        """When the first token is ready that is not ready yet and was not read, and whether this
        worker can take it."""

    def keep(self, candidates: Iterable[Candidate], now: datetime) -> None:
        """Keeps candidates of the backlog, where the shard is read on."""
        for candidate in candidates:
            if candidate.ready > now:
                self._later[candidate.id] = candidate
            else:
                self._ready[candidate.id] = candidate
                candidate.takes_slot(self._to_fill)

    # ---- while the shard is read; each returns whether to read further

    def add(self, candidate: Candidate) -> bool:
        """Adds a token that is ready and is to be run, if there is room."""
        if candidate.takes_slot(self._to_fill) or len(self._ready) < self._most:
            self._ready[candidate.id] = candidate
            return True
        self.rest = self.rest or candidate.token
        self.reads_on = self._to_fill.left <= 0  # else it is of a type without a free slot
        return not self.reads_on

    def add_later(self, ready: datetime, candidate: Candidate | None) -> bool:
        """Adds a token that is not ready yet; None: this worker cannot take it."""
        if self._ahead <= 0:
            self.later = ready, candidate is not None
            return False
        self._ahead -= 1
        if candidate is not None and candidate.turn is FIRST:
            self._later[candidate.id] = candidate
        elif candidate is not None:
            self._deferred.append(candidate)
        return True

    def add_missed(self, missed: Judged) -> bool:
        """Notes a ready token that is not to be run now."""
        if len(self.missed) < MOST_READ:
            self.missed.append(missed)
        return True

    def defer(self, candidate: Candidate) -> bool:
        """Notes a ready token for which it is not this worker's turn yet."""
        self._deferred.append(candidate)
        return True

    # ---- when it was read

    def settle(self, now: datetime) -> tuple[list[Candidate], list[Unread]]:
        """The candidates that are kept, in order, and the tokens to read again. A candidate of
        which another worker is the first is kept if it is this worker's turn, a slot is free for
        it, and none of this worker's own comes before: a batch is lost whole, so its own would be
        lost with one at which another is faster. Those that follow are read again a little later,
        or once the slots are filled, but not before the rest if that is more urgent.
        """
        first, others, deferred = [], [], list(self._deferred)
        for candidate in self._ready.values():
            if candidate.turn is FIRST:
                first.append(candidate)
            elif candidate.turn.begins <= now:
                others.append(candidate)
            else:
                deferred.append(candidate)
        # The last of the others first: the workers that come first begin at the other end.
        order = sorted([*first, *reversed(others)], key=urgency)
        kept, after_own = list[Candidate](), False
        again = [_next_turn(deferred)] if deferred else []
        for place, candidate in enumerate(order):
            is_free = self._slots.left > 0
            takes = candidate.takes_slot(self._slots)
            if candidate.turn is FIRST:
                after_own |= takes
            elif not is_free or (takes and after_own):
                left = order[place:]
                due = min(map(_due, left))
                latest = max((before.ready for before in kept), default=LONG_AGO)
                after = now + HEAD_START if is_free else max(latest, min(due, now))
                again.append(_next_turn(left, after=after))
                if is_free and self.rest is not None and due <= self.rest.ready:
                    self.reads_on = False
                break
            kept.append(candidate)
        return [*kept, *self._later.values()], again


def _next_turn(some: Sequence[Candidate], after: datetime = LONG_AGO) -> Unread:
    """The first turn of this worker at one of some tokens, but not before `after`."""
    turn = min((candidate.turn for candidate in some), key=lambda turn: turn.begins)
    ready = min(candidate.ready for candidate in some)
    return Unread(ready, Turn(turn.share, max(turn.begins, after)))


def _due(candidate: Candidate) -> datetime:
    """When it comes before tokens that are ready then, and of which this worker is the first."""
    return candidate.ready if candidate.settings.priority > 0 else candidate.counts_from
