"""The circuit breaker in front of the store: when a partition in trouble is asked again.

Each partition of the store has a circuit of its own: trouble of one is no reason to leave the
others alone. When none of them answers, the whole account is taken to be away: then no two tries
are made within a second, whichever partitions they are of (`account_is_away`).

In a partition there are two priorities. Renewals come first, because leases depend on them; all
other requests (walks, claims, checkpoints, releases, announcements) make room. A request that fails
holds up both. An answer to a renewal lets renewals through, one to another request lets both:

    what fails    renewals are tried again    other requests are tried again
    another       after 1 s                   after a pause
    a renewal     after 1.5 s                 after a pause; as planned, if already held up

The pause doubles with each failure, with full jitter, from 1.5 s to 15 s, and is never below what
the store asked for, as far as that is within 15 s: so work goes on soon after the store is back,
and the first walks of many workers are spread over some seconds. While a priority is held up, a
single request is let through at the end of its pause, to try; no two of them within a second,
whatever their priorities. An answer to a renewal does not let claims through before what the store
has asked for is over.

One batch without an answer is no reason to wait: it is settled by reading. Two in a row are.

Failures expire. A partition that is asked for once a day is not away until then because it failed
once: after little more than a minute in which it was not asked again, it counts as if it had not
failed.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from blackboard.model import replace

SPACING = 1.0
"""The least seconds between two tries."""
SHORTEST = 1.5
"""The least seconds between two tries of one priority: more than `SPACING`, so that neither
priority keeps the other from its turn.
"""
LONGEST = 15.0
"""The most seconds until the next try."""
ANSWER_LASTS = 60.0
"""Seconds for which an answer of one partition shows that the account is there: a worker announces
itself as often, so there is such an answer while only shards are in trouble.
"""
FAILURE_LASTS = ANSWER_LASTS + LONGEST
"""Seconds for which a failure shows that a partition is away, unless it is asked again: a partition
that work needs is asked once a minute, and may be put off by the longest pause.
"""
DOUBTS_LAST = 300.0
"""The same for batches without an answer in a partition that answers pages: a worker that reads
does not write each minute.
"""
DOUBTS = 2
"""So many batches in a row without an answer count as a failure of the partition."""


MANY = 10
"""The number of failures after which a pause doubles no more."""


class Backoff(Struct, frozen=True, kw_only=True):
    """Pauses between tries, in seconds: 2, 4, 8 and so on with each failure, but never less than
    `shortest` nor more than `longest`. With jitter a pause is drawn between `shortest` and that.
    Where the two bounds are the same, all pauses are.
    """

    shortest: float
    longest: float

    def pause(self, failures: int = MANY, *, asked: float = 0.0, fraction: float = 1.0) -> float:
        """The pause after so many failures (1 for the first). `asked` is what the store asked for,
        `fraction` a draw from [0, 1); without one the pause is as long as it may be.
        """
        least = min(max(asked, self.shortest), self.longest)
        most = min(2.0 ** min(failures, MANY), self.longest)
        return least + fraction * max(most - least, 0.0)


STORE = Backoff(shortest=SHORTEST, longest=LONGEST)
"""Pauses between two tries of a store that is away or busy."""
REFUSED = Backoff(shortest=5.0, longest=5.0)
"""Pauses between two requests that the store refuses. They do not grow: an operator ends the
trouble, and work goes on soon after."""
RELEASES = Backoff(shortest=1.0, longest=10.0)
"""Pauses between two tries of a release that failed several times, on top of the breaker's: other
releases, which the store takes, go first."""
NOTICES = Backoff(shortest=2.0, longest=30.0)
"""Pauses between two tries to send a notice."""
NOTICE_ROWS = Backoff(shortest=5.0, longest=5.0)
"""Pauses between two tries to read or write the row of a notice: runs need the store more."""
HOUSEKEEPING = Backoff(shortest=LONGEST, longest=900.0)
"""Pauses between two tries of a duty of the coordinator: soon, because a partition that failed
counts as away until it is asked again; then seldom, because each try begins from the start."""
RESTARTS = Backoff(shortest=1.0, longest=30.0)
"""Pauses between two starts of a worker process that ends by itself, and after a child process that
cannot be started."""


def renewals(every: float) -> Backoff:
    """Pauses between two tries to renew a lock that is renewed each `every` seconds."""
    return Backoff(shortest=every / 4, longest=every)


class Need(StrEnum):
    """What a request is for: its priority."""

    RENEWAL = "renewal"
    OTHER = "other"


class Circuit(Struct, frozen=True, kw_only=True):
    """The state of one partition. Moments are monotonic seconds; None: requests are let through."""

    renewals_at: float | None = None
    """When a renewal may be tried."""
    others_at: float | None = None
    """When anything else may be tried."""
    failures: int = 0
    """Failures that lengthen the pause of `others_at`, since one of the others was answered."""
    doubts: int = 0
    """Batches without an answer, since one was answered."""

    def retry_at(self, need: Need) -> float | None:
        """When a request for this need may be tried; None: at any time."""
        return self.renewals_at if need is Need.RENEWAL else self.others_at


CLOSED = Circuit()
"""The circuit of a partition that answers: all requests are let through."""


class LastReply(Struct, frozen=True):
    """The last reply of a partition, or failure to reply, and when, in monotonic seconds."""

    is_good: bool
    when: float


def account_is_away(replies: Iterable[LastReply], *, since: float, now: float) -> bool:
    """Whether the whole account is away, by the last reply of each partition: some are in trouble,
    the first of them `since`, and none has answered shortly before that or later.

    Good replies expire. If this is wrong, the next request to a partition that is well comes a
    second later at the most, and corrects it.
    """
    oldest = max(since - SPACING, now - ANSWER_LASTS)
    results = tuple(replies)
    some_bad = any(not result.is_good for result in results)
    return some_bad and not any(result.is_good and result.when >= oldest for result in results)


def tried(before: Circuit, *, now: float) -> Circuit:
    """The circuit after a held-up request was let through: the next one may be, `SPACING` later."""
    return _put_off(before, now + SPACING)


def failed(before: Circuit, need: Need, *, now: float, asked: float, fraction: float) -> Circuit:
    """The circuit after the partition was away or busy."""
    if need is Need.RENEWAL and before.others_at is not None:
        return replace(_put_off(before, now + SPACING), renewals_at=now + SHORTEST)
    failures = before.failures + 1
    return replace(
        before,
        renewals_at=now + (SHORTEST if need is Need.RENEWAL else SPACING),
        others_at=now + STORE.pause(failures, asked=asked, fraction=fraction),
        failures=failures,
    )


def answered(before: Circuit, need: Need, *, batch: bool) -> Circuit:
    """The circuit after the partition answered a `batch`, or else a page."""
    doubts = 0 if batch else before.doubts
    if need is Need.RENEWAL:
        return replace(before, renewals_at=None, doubts=doubts)
    if not doubts:
        return CLOSED
    # Pages are answered and batches are not: the next failure is not the first.
    return Circuit(failures=before.failures if doubts >= DOUBTS else 0, doubts=doubts)


def is_well(circuit: Circuit) -> bool:
    """Whether a partition that was in trouble has answered as it should."""
    return circuit.others_at is None and circuit.doubts < DOUBTS


def has_expired(circuit: Circuit, *, failed_at: float, now: float) -> bool:
    """Whether the last failure of a partition is too old to show that it is away."""
    answers_pages = circuit.others_at is None
    return now - failed_at > (DOUBTS_LAST if answers_pages else FAILURE_LASTS)


def doubted(before: Circuit) -> Circuit:
    """The circuit after a batch had no answer."""
    return replace(before, doubts=before.doubts + 1)


def _put_off(before: Circuit, moment: float) -> Circuit:
    """The circuit in which no held-up request is let through before this moment."""
    renewals, others = before.renewals_at, before.others_at
    return replace(
        before,
        renewals_at=None if renewals is None else max(renewals, moment),
        others_at=None if others is None else max(others, moment),
    )
