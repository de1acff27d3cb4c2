"""When a worker wakes: every cycle, and earlier when something is due sooner.

APScheduler gives the beat and nothing else: due times are the board's, cron is our own. Its timer
sets an event that the worker waits for, so a walk that takes longer than a cycle is followed by
one walk, never overlapped by another.

APScheduler goes by the wall clock, which can jump. Forwards, as when a machine was suspended: the
beats that were missed are one beat, and the next is reckoned from now (`Beat`). APScheduler's own
interval would compute each of them. Backwards: the next beat would be as far away as the jump, so
a cycle without one, by the loop's own time, counts as a beat, and the next is reckoned from now.
"""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from blackboard.clock import Chance

_EXECUTOR = "blackboard"
_LOG = logging.getLogger(f"apscheduler.executors.{_EXECUTOR}")
_LOG.setLevel(logging.WARNING)  # else each beat is two lines in the log of a program
SPREAD = 0.05
"""The part of a cycle by which a beat comes sooner or later than the mean, so that workers do not
march in step. The mean is that much shorter than the cycle: no beat is later than promised."""


class Wake:
    """What a worker waits for between two walks: `now`, the earliest moment set by `within`, and a
    beat, a cycle after the last one at the latest. A subclass beats by a timer.
    """

    def __init__(self, cycle: float) -> None:
        self._cycle = cycle
        self._event = asyncio.Event()
        self._beaten = False
        self._beaten_at: float | None = None
        """When the last beat was, by the loop's time; before there was one, the first `wait`."""
        self._early: asyncio.TimerHandle | None = None
        self._early_at = 0.0
        """When that wakes, by the loop's time; a handle of uvloop does not always tell."""

    def start(self) -> None:
        """Starts the timer."""

    def now(self) -> None:
        """Wakes at once; a `wait` that is not begun yet returns at once."""
        self._event.set()

    def within(self, seconds: float) -> None:
        """Wakes after so many seconds at the latest. Only the earliest of these calls counts."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, 0.0)
        if self._early is not None and self._early_at <= when:
            return
        self._forget()
        self._early_at = when
        self._early = loop.call_at(when, self.now)

    def beat(self) -> None:
        self._beaten, self._beaten_at = True, asyncio.get_running_loop().time()
        self.now()

    def beat_is_missing(self) -> None:
        """Called after a cycle without a beat: the timer is to be started again."""

    async def wait(self) -> bool:
        """Returns at the next beat, or at the earliest moment set since the last return; and
        whether there was a beat.
        """
        loop = asyncio.get_running_loop()
        if self._beaten_at is None:
            self._beaten_at = loop.time()
        self.within(self._cycle)
        await self._event.wait()
        self._event.clear()
        self._forget()
        if loop.time() - self._beaten_at >= self._cycle:
            self.beat_is_missing()
            self._beaten, self._beaten_at = True, loop.time()
        beaten, self._beaten = self._beaten, False
        return beaten

    def stop(self) -> None:
        self._forget()

    def _forget(self) -> None:
        if self._early is not None:
            self._early.cancel()
            self._early = None


def until_beat(cycle: float, chance: Chance) -> float:
    """Seconds from one beat to the next, drawn anew for each."""
    spread = SPREAD * (2 * chance.fraction() - 1)
    return cycle * (1 - SPREAD + spread)


class Beat(BaseTrigger):  # type: ignore[misc] # APScheduler has no types
    """When APScheduler's timer is to beat: once more after so many seconds, whenever it asks."""

    def __init__(self, cycle: float, chance: Chance) -> None:
        self._cycle = cycle
        self._chance = chance

    def get_next_fire_time(
        self,
        previous_fire_time: datetime | None,  # noqa: ARG002 - may be years ago, or years ahead
        now: datetime,
    ) -> datetime:
        return now + timedelta(seconds=until_beat(self._cycle, self._chance))


class CycleWake(Wake):
    """Beats by APScheduler's timer."""

    def __init__(self, cycle: float, chance: Chance) -> None:
        super().__init__(cycle)
        self._beats = Beat(cycle, chance)
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            logger=_LOG,
            # They call from the loop, not from a thread. A default one would be imported else.
            executors={"default": DebugExecutor(), _EXECUTOR: DebugExecutor()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._job = self._scheduler.add_job(self.beat, self._beats, executor=_EXECUTOR)

    def start(self) -> None:
        self._scheduler.start()

    def beat_is_missing(self) -> None:
        self._job.reschedule(self._beats)

    def stop(self) -> None:
        super().stop()
        self._scheduler.shutdown(wait=False)
