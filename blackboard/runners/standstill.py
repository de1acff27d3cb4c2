"""A thread of a worker that reports which coroutine keeps the loop from turning, before the worker
is ended.

The guard ends a worker whose loop stands still (`guard.py`), and the traceback that Python writes
then names no item. So shortly before, this thread finds out whose handler the loop stands in, or
that it is in none, and reports it. It needs the interpreter: a handler in C code that holds the
interpreter's lock keeps it from reporting, and only the traceback remains.

A process that was stopped and goes on is no standstill: the thread wakes late then, too, and gives
the loop time to turn.
"""

import math
import sys
import threading
from asyncio.events import Handle
from collections.abc import Callable

from blackboard.clock import Clock
from blackboard.runners.guard import AWAKE, LOOK_AGAIN
from blackboard.runners.inline import RunOfLoop, owner_in

EARLY = 1.0
"""Seconds before the guard ends the worker, at which the standstill is reported."""
STANDS = 0.75
"""Seconds without a turn after which the loop counts as stuck; before, the machine may be busy."""


class LoopWatch:
    """Watches the loop of the thread that makes it, until `turning` is called with infinity.
    `report` is called in another thread, once for each standstill, with the run in whose handler
    the loop stands, or None where it is in no handler.
    """

    def __init__(self, clock: Clock, report: Callable[[RunOfLoop | None], None]) -> None:
        self._clock = clock
        self._report = report
        self._watched = threading.get_ident()
        self._turned = clock.monotonic()
        self._deadline = self._turned + AWAKE
        self._sooner = threading.Event()
        """Set when the deadline has become an earlier one, or the loop has done its work."""
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)

    def turning(self, deadline: float) -> None:
        """The loop turns, and turns again before `deadline`, in monotonic seconds; infinity: it
        has done its work.
        """
        is_sooner = deadline < self._deadline or math.isinf(deadline)
        self._deadline, self._turned = deadline, self._clock.monotonic()
        if is_sooner:
            self._sooner.set()
        if self._thread.ident is None and not math.isinf(deadline):
            self._thread.start()

    def _watch(self) -> None:
        reported, wakes = 0.0, self._clock.monotonic()
        while not math.isinf(self._deadline):
            deadline, now = self._deadline, self._clock.monotonic()
            left = max(deadline - EARLY, self._turned + STANDS) - now
            pause = left if left > 0.0 else LOOK_AGAIN
            if now - wakes > LOOK_AGAIN:
                pause = AWAKE
            elif left <= 0.0 and deadline != reported:
                reported = deadline
                self._report(self._owner())
            wakes = now + pause
            self._sooner.wait(pause)
            self._sooner.clear()

    def _owner(self) -> RunOfLoop | None:
        """The run whose callback, or step of a task, the loop is in."""
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - there is no other way
        while frame is not None:
            if frame.f_code is Handle._run.__code__:  # noqa: SLF001
                return owner_in(frame.f_locals.get("self"))
            frame = frame.f_back
        return None
