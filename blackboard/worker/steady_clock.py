"""The store's clock, as a worker follows it."""

import logging
from datetime import datetime, timedelta

from blackboard.clock import Clock
from blackboard.emitter import EventEmitter
from blackboard.events import ClockJumped
from blackboard.model import EPOCH, whole_milliseconds
from blackboard.phrases import span
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.next_run import TOLERANCE

CONFIRMED_AFTER = 10.0
"""The least seconds from the first reading of the clock that is off to one that confirms it."""
PROVEN_AFTER = 3600.0
"""Seconds in which the store's clock has to go on without a jump before it is trusted."""
_SECOND = timedelta(seconds=1)
_JUMP = TOLERANCE / _SECOND


class SteadyClock:
    """Follows the store's clock. A jump counts when it is confirmed.

    A worker reads the store's time again and again, and compares it with its own monotonic clock. A
    time that is off by more than a minute means that the clock was set, that the machine was
    suspended, or that the clock is wrong for a moment. Items that are claimed or planned by a wrong
    time are set back by as much (`rules/wrong_clock.py`). So the worker goes on by the time that it
    had, and claims nothing, until it asks the store again some seconds later, and that is off by
    the same. (Between two replies the time of a remote store is only estimated. An estimate
    confirms nothing.)

    All stores are treated alike; on SQLite the clock is that of the host, and needs it most. The
    cost is one more request after a machine was suspended.

    Not promised: a clock that stays wrong is followed, and so is one that was wrong from the start.
    So two things are done only by a clock that has gone on for an hour without a jump. Rows are
    deleted for their age (`proven_in`). And where such a clock jumps ahead, and is back later, what
    was planned meanwhile is planned anew (`returned`); for by one that is behind all items wait for
    too long, and slots would run twice.
    """

    def __init__(self, clock: Clock, events: EventEmitter) -> None:
        self._clock = clock
        self._events = events
        self._ahead: float | None = None
        """Seconds of the store's clock since 1970 less monotonic seconds, as it is followed."""
        self._elsewhere: float | None = None
        """The same after a jump that is not confirmed; None: there is none."""
        self._since = 0.0
        """When that jump was first read, in monotonic seconds."""
        self._looked = 0.0
        """When the store last answered a request that was made to confirm a jump."""
        self._followed_since = clock.monotonic()
        """Since when the clock has not jumped, in monotonic seconds."""
        self._proven: float | None = None
        """Where the clock was, as `_ahead`, when it had gone on for an hour and jumped ahead; None:
        it has not, or it is there again."""
        self.returned: float | None = None
        """When the clock came back from ahead, in monotonic seconds. None: it did not, it has
        jumped since, or what was planned meanwhile was planned anew."""

    def proven_in(self) -> float:
        """Seconds until rows may be deleted for their age; 0: they may be."""
        followed = self._clock.monotonic() - self._followed_since
        return max(PROVEN_AFTER - followed, 0.0)

    @property
    def doubtful(self) -> bool:
        """Whether the clock has jumped, and that is not confirmed."""
        return self._elsewhere is not None

    async def doubts(self, board: BoardTable) -> bool:
        """Whether the store's clock has jumped; then it is read again, and may confirm that."""
        await board.table.now()
        if self.doubtful:
            await board.check_shards()
            self.looked()
            await board.table.now()
        return self.doubtful

    def looked(self) -> None:
        """Notes that the store has just answered: the next reading may confirm a jump."""
        self._looked = self._clock.monotonic()

    def follow(self, shown: datetime) -> datetime:
        """What counts as now when the clock shows `shown`."""
        now = self._clock.monotonic()
        ahead = (shown - EPOCH) / _SECOND - now
        if self._ahead is None or abs(ahead - self._ahead) <= _JUMP:
            self._settle(ahead, "shows again what it should")
        elif self._elsewhere is None or abs(ahead - self._elsewhere) > _JUMP:
            self._doubt(ahead, now)
        elif self._looked - self._since >= CONFIRMED_AFTER:
            self._followed_since = self._since
            self._settle(ahead, "still shows the same, which counts from now on")
        else:
            self._elsewhere = ahead
        if self._elsewhere is None:
            return shown
        assert self._ahead is not None
        return whole_milliseconds(EPOCH + (now + self._ahead) * _SECOND)

    def _settle(self, ahead: float, how: str) -> None:
        if self._ahead is not None and self._elsewhere is not None:
            self._events.emit(ClockJumped, message=f"the store's clock {how}")
            if self._proven is not None and abs(ahead - self._proven) <= _JUMP:
                self.returned, self._proven = self._clock.monotonic(), None
            elif abs(ahead - self._ahead) > _JUMP:
                self.returned = None
        self._ahead, self._elsewhere = ahead, None

    def _doubt(self, ahead: float, now: float) -> None:
        assert self._ahead is not None
        self._elsewhere, self._since = ahead, now
        by = ahead - self._ahead
        if by > 0 and now - self._followed_since >= PROVEN_AFTER:
            self._proven = self._ahead
        self._events.emit(
            ClockJumped,
            message=f"the store's clock jumped {'ahead' if by > 0 else 'back'} by {span(abs(by))}: "
            f"nothing is claimed until it shows the same in {CONFIRMED_AFTER:g} s",
            level=logging.WARNING,
        )
