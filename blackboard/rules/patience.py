"""How long a worker leaves a partition alone that is away or busy.

Each partition of the store has a patience of its own: trouble of one is no reason to leave the
others alone. When none is well, the whole account is taken to be away: then no two tries are made
within a second, whichever partitions they are of (`is_away`).

In a partition, renewals come first, because leases depend on them; everything else (walks, claims,
releases, announcements) makes room. So there are two doors. A request that fails closes both of
them, and one that is answered opens its own door and those of lesser need:

    who fails     renewals are tried again    all others are tried again
    others        after 1 s                   after a pause
    renewals      after 1.5 s                 after a pause, or when they would have been anyway

The pause grows exponentially, with full jitter, from 1.5 s to 15 s, and is never below what the
store asked for, as far as that is within 15 s: so work goes on soon after the store is back, and
the first walks of many workers are spread over some seconds. Through a closed door goes a single
request, to try; no two of them within a second, whichever door they take. An answer to a renewal
does not let claims through before what the store has asked for is over.

One batch without an answer is no reason to wait: it is settled by reading. Two in a row are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

SPACING = 1.0
"""Seconds between two tries, at the least."""
SHORTEST = 1.5
"""Seconds between two tries through one door: more than the least, so that neither of the two
keeps the other closed.
"""
LONGEST = 15.0
"""Seconds until the next try, at the most."""
GOOD_NEWS_LASTS = 60.0
"""Seconds for which an answer of one partition shows that the account is there: a worker announces
itself as often, so there is one when all is well but some shard.
"""
DOUBTS = 2
"""Batches without an answer, one after the other, that are a store in trouble."""


class Need(StrEnum):
    """What a request is for."""

    RENEWAL = "renewal"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """What a worker knows of a partition. Moments are monotonic seconds, None an open door."""

    renewals: float | None = None
    others: float | None = None
    failures: int = 0
    """Of others, since one was answered."""
    doubts: int = 0
    """Batches without an answer since one had one."""

    def door(self, need: Need) -> float | None:
        """When a request that is made for this need may be tried; None: it need not ask."""
        return self.renewals if need is Need.RENEWAL else self.others


CALM = Patience()
"""Of a partition that answers."""


@dataclass(frozen=True, slots=True)
class News:
    """The last that was heard of a partition, and when, in monotonic seconds."""

    is_good: bool
    when: float


def is_away(news: Iterable[News], *, since: float, now: float) -> bool:
    """Whether the whole account is, by the last news of each partition: some is in trouble, the
    first of them `since`, and none has answered shortly before that or later.

    Good news grows old. Should this be wrong, the next request to a partition that is well comes a
    second later at the most, and corrects it.
    """
    oldest = max(since - SPACING, now - GOOD_NEWS_LASTS)
    found = tuple(news)
    some_bad = any(not one.is_good for one in found)
    return some_bad and not any(one.is_good and one.when >= oldest for one in found)


def pause(failures: int, *, wanted: float, fraction: float) -> float:
    """Seconds until others are tried again, after so many failures (1 for the first); `wanted` is
    what the store asked for, `fraction` a draw from [0, 1).
    """
    least = min(max(wanted, SHORTEST), LONGEST)
    most = min(2.0 ** min(failures, 10), LONGEST)
    return least + fraction * max(most - least, 0.0)


def tried(before: Patience, *, now: float) -> Patience:
    """A request goes through a closed door. Should it have no answer soon, so does the next."""
    return _pushed(before, now + SPACING)


def failed(before: Patience, need: Need, *, now: float, wanted: float, fraction: float) -> Patience:
    """The partition was away or busy."""
    if need is Need.RENEWAL and before.others is not None:
        return replace(_pushed(before, now + SPACING), renewals=now + SHORTEST)
    failures = before.failures + 1
    return replace(
        before,
        renewals=now + (SHORTEST if need is Need.RENEWAL else SPACING),
        others=now + pause(failures, wanted=wanted, fraction=fraction),
        failures=failures,
    )


def answered(before: Patience, need: Need, *, batch: bool) -> Patience:
    """The partition answered a batch or, if it is none, a page."""
    doubts = 0 if batch else before.doubts
    if need is Need.RENEWAL:
        return replace(before, renewals=None, doubts=doubts)
    if not doubts:
        return CALM
    # Who reads and cannot write has not got far.
    return Patience(failures=before.failures if doubts >= DOUBTS else 0, doubts=doubts)


def doubted(before: Patience) -> Patience:
    """A batch had no answer."""
    return replace(before, doubts=before.doubts + 1)


def _pushed(before: Patience, moment: float) -> Patience:
    """No closed door opens before this moment."""
    renewals, others = before.renewals, before.others
    return replace(
        before,
        renewals=None if renewals is None else max(renewals, moment),
        others=None if others is None else max(others, moment),
    )
