"""What a worker reads of its group in a round, and when it looks again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from blackboard.model import Lock, Member, Token
from blackboard.rules.due import is_stale
from blackboard.rules.shares import CATCHING_UP, HURRY, LATE, SLOW, Picture, counting

ROUND = 1 / 3
"""The part of a lease from one look at the group to the next."""
TWICE = 0.5
"""Seconds, at the least, between the first two announcements of a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The rows that a worker reads in a round."""

    now: datetime
    locks: Sequence[Lock]
    tokens: Sequence[Token]
    workers: Sequence[Member]
    late: bool
    """Whether it comes late after the one before, or soon after one that did."""
    slow: bool
    """Whether each look has been late for `SLOW` rounds."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset([lock.id for lock in self.locks] + [token.id for token in self.tokens])

    def picture(self, me: str, *, a_round: float, resolution: float) -> Picture:
        """The group as the worker `me` sees it; `resolution` is that of the store."""
        stale = {
            lock.id: lock.owner for lock in self.locks if is_stale(lock, resolution=resolution)
        }
        held = {lock.id: lock.owner for lock in self.locks if lock.id not in stale}
        live = [
            member for member in self.workers if member.age <= _announced_for(member) + resolution
        ]
        return Picture(
            held=held,
            stale=stale,
            free={
                token.id: (self.now - token.ready).total_seconds()
                for token in self.tokens
                if token.ready <= self.now
            },
            waiting=[token.id for token in self.tokens if token.ready > self.now],
            workers=counting(
                {member.owner: _announced_twice(member) for member in live},
                owners=set(held.values()),
                leaving={member.owner for member in self.workers if not member.slots},
                me=me,
                begins=not any(
                    abs(self.now - lock.since).total_seconds() > a_round
                    for lock in self.locks
                    if lock.id in held
                ),
            ),
        )


def _announced_for(member: Member) -> float:
    """Seconds for which an announcement holds: a lease, as that worker has it. So all workers judge
    it by the same lease, also while another one is being deployed.
    """
    return member.cycle / ROUND


def _announced_twice(member: Member) -> bool:
    """Also where the store's clock was set back between the two."""
    return abs(member.seen - member.started).total_seconds() >= TWICE


@dataclass(slots=True)
class Pace:
    """When a worker looks. All times are monotonic seconds."""

    last: float = 0.0
    """When it last saw the group, or was started."""
    late_until: float = -math.inf
    _late_since: float | None = None
    """Since when each look has been late."""
    _short_since: float | None = None
    """Since when it holds less than its share, and has got no more of it."""
    _short_with: int = 0
    """How many it held then."""

    def looked(self, now: float, *, a_round: float) -> bool:
        """Notes a look. Returns whether it is late."""
        if now - self.last > LATE * a_round:
            self.late_until = now + CATCHING_UP * a_round
        self.last = now
        if now >= self.late_until:
            self._late_since = None
        elif self._late_since is None:
            self._late_since = now
        return now < self.late_until

    def is_slow(self, now: float, *, a_round: float) -> bool:
        return self._late_since is not None and now - self._late_since >= SLOW * a_round

    def pause(
        self, again: float | None, *, now: float, held: int, a_round: float, longest: float
    ) -> float:
        """The seconds until the next look, after a decision to look `again`, by a worker that has
        `held` so many partitions. It hurries for the `longest` time that a partition takes to come
        free, and as long again from each that it gets; no longer: those that it lacks may not come
        free.
        """
        if again != HURRY:
            self._short_since = None
            return a_round if again is None else min(again, a_round)
        if self._short_since is None or held > self._short_with:
            self._short_since, self._short_with = now, held
        return HURRY if now < self._short_since + longest else a_round
