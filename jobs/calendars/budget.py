"""The bounds of what a hostile feed may cost its reader.

The processor time of each series, and of each time zone that a feed defines, is limited by a timer
of this process's own processor time, so a busy machine refuses nothing that an idle one takes. Code
that does not return to the interpreter is ended from outside: the kernel kills the process when a
feed has used up its processor time.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SERIES_SECONDS = 2.0
HURRY_SECONDS = 0.1
LAST_SECONDS = 0.01
REFUSED_BEFORE_HURRY = 5
SERIES_EVENTS = 5_000
FEED_SECONDS = 15.0
"""Seconds of processor time for all series and zones of a feed. After that, each has LAST_SECONDS.
"""
FEED_EVENTS = 50_000
LONG_SERIES = 500
"""Events from which on a series is left out when it would use up nearly all of FEED_EVENTS."""
FEED_TEXT = 64 * 1024 * 1024
"""Characters, when what an event says is counted once for each time it takes place."""

_AGAIN = 0.05
"""Seconds of processor time until the timer goes off again."""


class TooMuch(BaseException):
    """A series or a zone exceeds a bound. It is no Exception, as the timer raises it anywhere: what
    a library, or code around it, does with its own errors must not drop it.
    """


class Budget:
    """The processor time that each series and each zone of one feed is given: plenty, until some
    had to be refused; then little; and what a usual one needs when all together have used up what
    the feed is given.
    """

    def __init__(self) -> None:
        self._refused = 0
        self._used = 0.0
        self.is_cut = False
        """Whether some events are left out because there are too many."""

    @contextmanager
    def bounded(self, subject: str) -> Iterator[None]:
        """Ends the block with TooMuch when its time is over."""
        seconds = SERIES_SECONDS if self._refused < REFUSED_BEFORE_HURRY else HURRY_SECONDS
        if self._used >= FEED_SECONDS:
            seconds = LAST_SECONDS
        begun = process_time()
        try:
            with processor_time(seconds, subject):
                yield
        except TooMuch:
            self._refused += 1
            raise
        finally:
            self._used += process_time() - begun


@contextmanager
def processor_time(seconds: float, subject: str) -> Iterator[None]:
    """Ends the block with TooMuch after so many seconds of processor time. Where Python drops the
    exception, as in a destructor or in a callback of a weak reference or of the garbage collector,
    nothing is reported, and the timer goes off again.
    """

    def expired(_signal: int, _frame: FrameType | None) -> None:
        raise TooMuch(f"{subject} takes more than {seconds:g} s to work out")

    def dropped(unraisable: "UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, TooMuch):
            report(unraisable)

    report, sys.unraisablehook = sys.unraisablehook, dropped
    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        sys.unraisablehook = report
