"""What time it is in a store that says so in its replies, to the second.

A reply whose `Date` is D, sent for at s and received at r on our own monotonic clock, was written
by the store somewhere between s and r, and the store's clock then showed D or up to a second more.
So the store is ahead of our monotonic clock by something between D - r and D + 1 s - s; what all
replies allow is a narrow range, and its lower end errs against taking: nothing is ever due early,
no lock is ever thought older than it is. The stamps of rows, which have all digits, narrow it
further: whoever has just read a row is not behind whoever wrote it. The range widens as clocks
drift apart.

A reply that no drift explains says that one of the two clocks was set, or that this machine was
suspended. From then on a row is at most as old as that moment, for its stamp and the store's clock
may be of two minds: a lock is not overridden for one lease. A stamp later than the store's own
time is from before the clock was set back, and so at least as old as our knowledge of that.

Our own wall clock plays no part.
"""

from datetime import UTC, datetime, timedelta

from blackboard.clock import Clock
from blackboard.model import whole_milliseconds

TICK = 1.0
"""Seconds that `Date` may be behind the clock it was read from."""
DRIFT = 200e-6
"""Seconds a second by which two clocks may drift apart."""
JUMP = 2.0
"""Seconds of disagreement that several machines of one service explain, and no more."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


class StoreClock:
    """The store's clock as its replies allow it to be known."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._low = self._high = 0.0
        """The store's seconds since 1970 less our monotonic ones: at least, and at most."""
        self._ahead = 0.0
        """What we take it for. It changes no more than it must: who slept until a moment finds
        that it has come."""
        self._at = 0.0
        """When that was so, by our monotonic clock."""
        self._since: float | None = None
        """From when on the store's clock is known to have gone evenly."""
        self._jumped = False

    def heard(self, date: datetime, *, sent: float) -> None:
        """A reply that has just come, to a request sent at the monotonic moment `sent`."""
        received, shown = self._clock.monotonic(), _seconds(date)
        low, high = shown - received, shown + TICK - sent
        apart = self._apart(received)
        mine_low, mine_high = self._low - apart, self._high + apart
        jumped = low > mine_high + JUMP or high < mine_low - JUMP
        if self._since is None or jumped:
            self._jumped = self._since is not None
            self._low, self._high, self._since = low, high, received
            self._ahead = low
        elif low > mine_high or high < mine_low:
            self._low, self._high = min(low, mine_low), max(high, mine_high)
        else:
            self._low, self._high = max(low, mine_low), min(high, mine_high)
        self._ahead = min(max(self._ahead, self._low), self._high)
        self._at = received

    def saw(self, stamp: datetime) -> None:
        """A row in the last reply was written at `stamp`: the store's clock shows that by now. Not
        so when the clock has been set back since.
        """
        low = _seconds(stamp) - self._clock.monotonic()
        if self._low < low <= self._high:
            self._low, self._ahead = low, max(self._ahead, low)

    def now(self) -> datetime:
        """What the store's clock shows, or up to a second less. There has to have been a reply."""
        return whole_milliseconds(_EPOCH + (self._clock.monotonic() + self._ahead) * _SECOND)

    def age(self, stamp: datetime) -> float:
        """Seconds since the store wrote `stamp`, at least."""
        now = self._clock.monotonic()
        apart, written = self._apart(now), _seconds(stamp)
        assert self._since is not None
        if written > now + self._high + apart + JUMP:
            return now - self._since
        age = now + self._low - apart - written
        return max(0.0, min(age, now - self._since) if self._jumped else age)

    def _apart(self, now: float) -> float:
        """What the clocks may have drifted apart since the last reply."""
        return DRIFT * (now - self._at)


def _seconds(moment: datetime) -> float:
    return (moment - _EPOCH) / _SECOND
