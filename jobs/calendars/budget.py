"""Bounds for what a hostile feed may cost the process that reads it.

Processor time is bounded for each series by a timer of this process's own processor time, so a
busy machine refuses nothing that an idle one takes. Whatever does not come back to the interpreter
is ended from outside: the parent kills the process at its deadline.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SERIES_SECONDS = 2.0
HURRY_SECONDS = 0.1
LAST_SECONDS = 0.01
PATIENCE = 5
SERIES_EVENTS = 5_000
FEED_SECONDS = 15.0
"""Of processor time, for all series of a feed that are refused."""
FEED_EVENTS = 50_000
LONG_SERIES = 500
"""Events from which on a series is left out when it would fill nearly all of that."""
FEED_TEXT = 64 * 1024 * 1024
"""Characters, when what an event says is counted once for each time it takes place."""
STEPS = 250_000
"""How far from its start a rule by the second or minute is followed."""

_AGAIN = 0.05


class TooMuch(Exception):
    """A series goes on beyond a bound."""


class Budget:
    """The processor time that each series of one feed is given: plenty, until some had to be
    refused; then little; and next to none when those that were refused have used up what the
    feed is given for them. What can be worked out in time costs the others nothing.
    """

    def __init__(self) -> None:
        self._refused = 0
        self._wasted = 0.0

    @contextmanager
    def series(self, what: str) -> Iterator[None]:
        seconds = SERIES_SECONDS if self._refused < PATIENCE else HURRY_SECONDS
        if self._wasted >= FEED_SECONDS:
            seconds = LAST_SECONDS
        begun = time.process_time()
        try:
            with processor_time(seconds, what):
                yield
        except TooMuch:
            self._refused += 1
            self._wasted += time.process_time() - begun
            raise


@contextmanager
def processor_time(seconds: float, what: str) -> Iterator[None]:
    """Ends the block with TooMuch after so many seconds of processor time. The timer goes on
    ticking until it does: an exception that comes at a bad moment, as in a destructor, is lost.
    """

    def expired(_signal: int, _frame: FrameType | None) -> None:
        raise TooMuch(f"{what} takes more than {seconds:g} s to work out")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
