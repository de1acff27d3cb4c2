"""Watches whether the loop of a worker stands still, and reports whose handler it stands in.

The guard ends a worker whose loop stands still (`guard.py`), and the traceback that Python writes
then names no item. So shortly before, a thread finds out whose handler the loop stands in, or that
it is in none, and reports it. It needs the interpreter: a handler in C code that holds the
interpreter's lock keeps it from reporting, and only the traceback remains.

The guard ends before the loop does, which closes what handlers leave behind: resources, tasks,
generators. Any of these may block the loop for ever; then that thread ends the process in place of
the guard.
"""

import asyncio
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from blackboard.clock import Clock
from blackboard.runners.guard import ABORTS_WITHIN, AWAKE, LOOK_AGAIN
from blackboard.runners.loop import RunOfLoop, owner_in_frames

EARLY = 1.0
"""Seconds before the guard ends the worker, at which the standstill is reported."""
STANDS = 0.75
"""Seconds without a turn after which the loop counts as stuck; before, the machine may be busy."""
CLOSES_WITHIN = 30.0
"""Seconds for which a loop whose work is done may stand still."""


class LoopWatch:
    """Watches the loop of the thread that makes it, until `loop_turns` is called with infinity, or
    after `work_is_done` until the loop is closed. `report` is called in another thread, once for
    each standstill, with the run in whose handler the loop stands, or None where it is in no
    handler.

    A process that was stopped and goes on is no standstill: the thread wakes late then, too, and
    gives the loop time to turn.
    """

    def __init__(self, clock: Clock, report: Callable[[RunOfLoop | None], None]) -> None:
        self._clock = clock
        self._report = report
        self._watched = threading.get_ident()
        self._turned = clock.monotonic()
        self._deadline = self._turned + AWAKE
        self._sooner = threading.Event()
        """Set when the deadline has become an earlier one, or the loop has done its work."""
        self._closing: asyncio.AbstractEventLoop | None = None
        """The loop, when its work is done."""
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)

    def loop_turns(self, deadline: float) -> None:
        """Notes that the loop turns, and will turn again before `deadline`, in monotonic seconds;
        infinity: it has done its work.
        """
        is_sooner = deadline < self._deadline or math.isinf(deadline)
        self._deadline, self._turned = deadline, self._clock.monotonic()
        if is_sooner:
            self._sooner.set()
        if self._thread.ident is None and not math.isinf(deadline):
            self._thread.start()

    def work_is_done(self) -> None:
        """Notes that the running loop has done its work, and is to be closed. Where it stands still
        for `CLOSES_WITHIN` before that, its process is ended by SIGABRT, and if that does not help
        by SIGKILL.
        """
        self._closing = asyncio.get_running_loop()
        self._turn_until_closed(self._closing)

    def _turn_until_closed(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop_turns(self._clock.monotonic() + CLOSES_WITHIN)
        loop.call_later(CLOSES_WITHIN / 4, self._turn_until_closed, loop)

    @property
    def _is_over(self) -> bool:
        return math.isinf(self._deadline) or (
            self._closing is not None and self._closing.is_closed()
        )

    def _watch(self) -> None:
        reported, wakes = 0.0, self._clock.monotonic()
        while not self._is_over:
            deadline, now = self._deadline, self._clock.monotonic()
            left = max(deadline - EARLY, self._turned + STANDS) - now
            pause = left if left > 0.0 else LOOK_AGAIN
            if now - wakes > LOOK_AGAIN:
                pause = AWAKE
            elif left <= 0.0 and deadline != reported:
                reported = deadline
                self._report(self._owner())
            elif now > deadline and self._closing is not None:
                os.kill(os.getpid(), signal.SIGABRT)
                self._sooner.wait(ABORTS_WITHIN)
                os.kill(os.getpid(), signal.SIGKILL)
            wakes = now + pause
            self._sooner.wait(pause)
            self._sooner.clear()

    def _owner(self) -> RunOfLoop | None:
        """The run whose callback, or step of a task, the loop is in."""
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - there is no other way
        owner = None if frame is None else owner_in_frames(traceback.walk_stack(frame))
        return None if owner is None else owner.about
