"""The store's clock as a worker follows it: a jump only when it is confirmed.

A worker reads the store's time again and again, and compares it with its own monotonic clock. A
reading that is off by more than a minute means that the clock was set, that the machine was
suspended, or that the clock is wrong for a moment. Items that are claimed or planned by
a wrong time are set back by as much (`rules/next_run.py`). So the worker goes on by the time that
it had, and claims nothing, until it asks the store again some seconds later, and that is off by the
same. (Between two replies the time of a store on another host is extrapolated, and confirms
nothing.)

All stores are treated alike; on SQLite the clock is that of the host, and needs it most. The cost
is one more request after a machine was suspended.

Not promised: a clock that stays wrong is followed, and so is one that was wrong from the start.
"""

import logging
from datetime import UTC, datetime, timedelta

from blackboard.clock import Clock
from blackboard.events import Events, Kind
from blackboard.model import whole_milliseconds
from blackboard.phrases import span
from blackboard.rules.next_run import TOLERANCE

CONFIRMED_AFTER = 10.0
"""Seconds from the first reading that is off to one that confirms it, at the least."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_JUMP = TOLERANCE / _SECOND


class SteadyClock:
    """Follows one clock by its readings."""

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._ahead: float | None = None
        """Seconds since 1970 less monotonic ones, as they are followed."""
        self._elsewhere: float | None = None
        """The same, where the clock has jumped to."""
        self._since = 0.0
        """When that was first read, in monotonic seconds."""
        self._looked = 0.0
        """When the store last answered a request that was made to confirm a jump."""

    @property
    def doubtful(self) -> bool:
        """Whether the clock has jumped, and that is not confirmed."""
        return self._elsewhere is not None

    def looked(self) -> None:
        """The store has just answered: its next reading may confirm a jump."""
        self._looked = self._clock.monotonic()

    def follow(self, shown: datetime) -> datetime:
        """What counts as now when the clock shows `shown`."""
        now = self._clock.monotonic()
        ahead = (shown - _EPOCH) / _SECOND - now
        if self._ahead is None or abs(ahead - self._ahead) <= _JUMP:
            self._settle(ahead, "shows again what it should")
        elif self._elsewhere is None or abs(ahead - self._elsewhere) > _JUMP:
            self._doubt(ahead, now)
        elif self._looked - self._since >= CONFIRMED_AFTER:
            self._settle(ahead, "still shows the same, which counts from now on")
        else:
            self._elsewhere = ahead
        if self._elsewhere is None:
            return shown
        assert self._ahead is not None
        return whole_milliseconds(_EPOCH + (now + self._ahead) * _SECOND)

    def _settle(self, ahead: float, how: str) -> None:
        if self._elsewhere is not None:
            self._events.emit(Kind.CLOCK, f"the store's clock {how}")
        self._ahead, self._elsewhere = ahead, None

    def _doubt(self, ahead: float, now: float) -> None:
        assert self._ahead is not None
        self._elsewhere, self._since = ahead, now
        by = ahead - self._ahead
        self._events.emit(
            Kind.CLOCK,
            f"the store's clock jumped {'ahead' if by > 0 else 'back'} by {span(abs(by))}: nothing "
            f"is claimed until it shows the same in {CONFIRMED_AFTER:g} s",
            level=logging.WARNING,
        )
