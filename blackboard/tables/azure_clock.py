"""The clock of Azure's tables, as their replies give it.

Replies give the time to the second. A reply whose `Date` is D, to a request sent at s and received
at r on the local monotonic clock, was written between s and r, when the service's clock showed D or
up to a second more. So that clock is ahead of the local monotonic clock by something between D - r
and D + 1 s - s. The intersection over all replies is a narrow range. Its lower end is used, which
is the safe side: nothing is due early, and no lock is judged older than it is. The stamps of rows,
which have fractions of a second, narrow the range further: when a row is read, the service's clock
has passed its stamp. The range widens as the clocks drift apart.

A reply outside of the range that drift explains means that a clock was set, that this machine was
suspended, or that another machine of the service answers, whose clock differs. From then on a row
counts as no older than that moment, because its stamp and the service's clock may disagree: no lock
is overridden for one lease. The former range is kept for an hour, and a reply that lies in it is no
such moment: machines that answer in turn keep no row from growing old. Any of the clocks whose
ranges are kept may have written a stamp, and the lowest age counts: so a row is not judged older
than it is, whichever of them wrote it.

A stamp far ahead of a range was not written by its clock. One that is far ahead of all of them is
from before the clock was set back, and so at least as old as that moment. One that is a little
ahead may be of a machine that has not answered yet, and counts as just written.

The local wall clock plays no part.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from blackboard.clock import Clock
from blackboard.model import EPOCH, whole_milliseconds

TICK = 1.0
"""Seconds that `Date` may be behind the clock it was read from."""
DRIFT = 200e-6
"""Seconds per second by which two clocks may drift apart."""
JUMP = 2.0
"""Seconds by which the clocks of several machines of one service may differ and count as one."""
AHEAD = 60.0
"""Seconds by which a stamp may be ahead of the clock of a machine that did not write it."""
REMEMBERED = 3600.0
"""Seconds after its last reply for which the range of a clock is kept."""
_SECOND = timedelta(seconds=1)


class _Range(NamedTuple):
    """One clock, as far as replies determine it."""

    low: float
    """The clock's seconds since 1970 minus the local monotonic ones, at least."""
    high: float
    """The same, at most."""
    at: float
    """The time of its last reply, monotonic."""

    def widened(self, now: float) -> "_Range":
        """The range at `now`: the clocks may have drifted apart since the last reply."""
        apart = DRIFT * (now - self.at)
        return _Range(self.low - apart, self.high + apart, now)

    def may_show(self, reply: "_Range") -> bool:
        """Whether a reply may be of this clock."""
        own = self.widened(reply.at)
        return own.low - JUMP <= reply.high and reply.low <= own.high + JUMP

    def narrowed(self, reply: "_Range") -> "_Range":
        """The range after a reply of this clock."""
        own = self.widened(reply.at)
        if reply.low > own.high or reply.high < own.low:
            return _Range(min(reply.low, own.low), max(reply.high, own.high), reply.at)
        return _Range(max(reply.low, own.low), min(reply.high, own.high), reply.at)


class ServiceClock:
    """The service's clock, as far as its replies determine it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ranges: list[_Range] = []
        """Those of the clocks that have answered, the one of the last reply first."""
        self._ahead = 0.0
        """The value in use. It changes as little as possible, so that a sleep until a moment ends
        after that moment."""
        self._since: float | None = None
        """The time, monotonic, of the last reply that was in no range; None: there was none yet."""
        self._jumped = False
        """Whether that was not the first reply."""

    def observe_reply(self, date: datetime, *, sent: float) -> None:
        """Narrows the range by a reply that has just come to a request sent at the monotonic time
        `sent`.
        """
        received, shown = self._clock.monotonic(), _seconds(date)
        reply = _Range(shown - received, shown + TICK - sent, received)
        former = next((other for other in self._ranges if other.may_show(reply)), None)
        if former is None:
            present = reply
            self._jumped, self._since = self._since is not None, received
        else:
            present = former.narrowed(reply)
        if former is None or former is not self._ranges[0]:
            self._ahead = present.low
        others = (other for other in self._ranges if other is not former)
        kept = (other for other in others if received - other.at < REMEMBERED)
        self._ranges = [present, *kept]
        self._ahead = min(max(self._ahead, present.low), present.high)

    def observe_stamp(self, stamp: datetime) -> None:
        """Narrows the range by the stamp of a row in the last reply: the service's clock has passed
        it, unless it was set back since, or another clock wrote it.
        """
        if len(self._ranges) != 1:
            return
        (present,) = self._ranges
        low = _seconds(stamp) - self._clock.monotonic()
        if present.low < low <= present.high:
            self._ranges = [present._replace(low=low)]
            self._ahead = max(self._ahead, low)

    @property
    def is_known(self) -> bool:
        """Whether a reply has given the time."""
        return self._since is not None

    def now(self) -> datetime:
        """What the service's clock shows, or up to a second less. Needs one reply before."""
        return whole_milliseconds(EPOCH + (self._clock.monotonic() + self._ahead) * _SECOND)

    def age(self, stamp: datetime) -> float:
        """Seconds since the service wrote `stamp`, at least."""
        now, written = self._clock.monotonic(), _seconds(stamp)
        clocks = [shown.widened(now) for shown in self._ranges]
        ages = [
            now + clock.low - written for clock in clocks if written <= now + clock.high + AHEAD
        ]
        assert self._since is not None
        if self._jumped or not ages:
            ages.append(now - self._since)
        return max(0.0, min(ages))


def _seconds(moment: datetime) -> float:
    return (moment - EPOCH) / _SECOND
