"""How old the rows of a file are, for one reader of it.

A stamp is a time on the monotonic clock of one boot. Of a reader's own boot it says the age. Of an
earlier boot of this host it says that whatever wrote it has ended, so the row is infinitely old.

Any other stamp says nothing by itself. Its writer may be alive in a container that is shown another
boot id or a clock that is set off; or the reader's machine was set back to a snapshot, and the
stamp lies in what is now its future. Such a row is as old as the time for which the reader has seen
it unchanged, on the reader's own clock, as client-go and the DynamoDB lock client reckon all ages.
That is never more than its age: a lock that is renewed never goes stale, and one that is not does,
one lease after it was first seen.

Not promised: that a command, which looks once, sees such a lock as stale.
"""

import math
from dataclasses import dataclass

from blackboard.clock import Clock
from blackboard.table import Etag, Row
from blackboard.tables.boot import one_has_ended

MANY = 10_000
"""Rows whose first sight is remembered before those that are not asked for any more go."""
FORGOTTEN_AFTER = 3600.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a row was written: seconds on the monotonic clock of one boot."""

    boot: str
    touched: float


@dataclass(slots=True)
class _Sight:
    """When a row was first seen as it is."""

    first: float
    last: float
    """When it was last asked for."""


class Ages:
    """The ages that one reader gives to rows. `boot` is its own."""

    def __init__(self, boot: str, clock: Clock) -> None:
        self._boot = boot
        self._clock = clock
        self._sights: dict[tuple[str, Etag], _Sight] = {}
        """By the keys and etags of the rows. The boards of one file have rows of the same key, but
        no etag is ever used for two batches of it.
        """
        self._many = MANY

    def of(self, row: Row) -> float:
        """Seconds since the row was written, at least; infinity when its writer's boot is over."""
        now, stamp = self._clock.monotonic(), row.stamp
        assert isinstance(stamp, Stamp)
        if one_has_ended(stamp.boot, self._boot):
            return math.inf
        if stamp.boot == self._boot and stamp.touched <= now:
            return now - stamp.touched
        return now - self._first_seen(row, now)

    def _first_seen(self, row: Row, now: float) -> float:
        sight = self._sights.get((row.key, row.etag))
        if sight is None or sight.first > now:
            self._forget_some(now)
            sight = self._sights[row.key, row.etag] = _Sight(now, now)
        sight.last = now
        return sight.first

    def _forget_some(self, now: float) -> None:
        if len(self._sights) < self._many:
            return
        kept = {key: one for key, one in self._sights.items() if now - one.last < FORGOTTEN_AFTER}
        self._sights, self._many = kept, max(MANY, 2 * len(kept))
