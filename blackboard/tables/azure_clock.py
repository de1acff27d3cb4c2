"""The clock of Azure's tables, as their replies give it.

Replies give the time to the second. A reply whose `Date` is D, to a request sent at s and received
at r on the local monotonic clock, was written between s and r, when the service's clock showed D or
up to a second more. So that clock is ahead of the local monotonic clock by something between D - r
and D + 1 s - s. The intersection over all replies is a narrow range. Its lower end is used, which
is the safe side: nothing is due early, and no lock is judged older than it is. The stamps of rows,
which have fractions of a second, narrow the range further: when a row is read, the service's clock
has passed its stamp. The range widens as the clocks drift apart.

A reply outside of the range that drift explains means that one of the clocks was set, or that this
machine was suspended. From then on a row counts as no older than that moment, because its stamp and
the service's clock may disagree: no lock is overridden for one lease. A stamp later than the
service's present time is from before the clock was set back, and so at least as old as that moment.

The local wall clock plays no part.
"""

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from blackboard.clock import Clock
from blackboard.model import EPOCH, whole_milliseconds

TICK = 1.0
"""Seconds that `Date` may be behind the clock it was read from."""
DRIFT = 200e-6
"""Seconds per second by which two clocks may drift apart."""
JUMP = 2.0
"""Seconds by which the clocks of several machines of one service may differ: more is a jump."""
_SECOND = timedelta(seconds=1)


class ServiceClock:
    """The service's clock, as far as its replies determine it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._low = self._high = 0.0
        """The service's seconds since 1970 minus the local monotonic ones: at least, at most."""
        self._ahead = 0.0
        """The value in use. It changes as little as possible, so that a sleep until a moment ends
        after that moment."""
        self._at = 0.0
        """When the range was computed, monotonic."""
        self._since: float | None = None
        """The time, monotonic, since which no clock was set; None: there was no reply yet."""
        self._jumped = False

    def observe_reply(self, date: datetime, *, sent: float) -> None:
        """Narrows the range by a reply that has just come to a request sent at the monotonic time
        `sent`.
        """
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

    def observe_stamp(self, stamp: datetime) -> None:
        """Narrows the range by the stamp of a row in the last reply: the service's clock has passed
        it, unless it was set back since.
        """
        low = _seconds(stamp) - self._clock.monotonic()
        if self._low < low <= self._high:
            self._low, self._ahead = low, max(self._ahead, low)

    @property
    def is_known(self) -> bool:
        """Whether a reply has given the time."""
        return self._since is not None

    def now(self) -> datetime:
        """What the service's clock shows, or up to a second less. Needs one reply before."""
        return whole_milliseconds(EPOCH + (self._clock.monotonic() + self._ahead) * _SECOND)

    def age(self, stamp: datetime) -> float:
        """Seconds since the service wrote `stamp`, at least."""
        now = self._clock.monotonic()
        apart, written = self._apart(now), _seconds(stamp)
        assert self._since is not None
        if written > now + self._high + apart + JUMP:
            return now - self._since
        age = now + self._low - apart - written
        return max(0.0, min(age, now - self._since) if self._jumped else age)

    def _apart(self, now: float) -> float:
        """Seconds by which the clocks may have drifted apart since the last reply."""
        return DRIFT * (now - self._at)


def _seconds(moment: datetime) -> float:
    return (moment - EPOCH) / _SECOND


def date_of(text: str) -> datetime | None:
    """The time in a header; None when it cannot be read or has no zone."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else None
