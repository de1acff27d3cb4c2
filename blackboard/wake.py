"""When a worker wakes: every cycle, and earlier when it knows of something due sooner.

APScheduler gives the beat and nothing else: due times are the board's, cron is our own. Its timer
sets an event that the worker waits for, so a walk that takes longer than a cycle is followed by
one walk, never overlapped by another. It goes by the wall clock: when that is set back, a beat may
be a day away, so nobody waits for longer than a cycle by the loop's own time.
"""

import asyncio
from datetime import UTC
from typing import Protocol

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

SPREAD = 0.05
"""The part of a cycle by which a beat comes sooner or later than the mean, so that workers do not
march in step. The mean is that much shorter than the cycle: no beat is later than promised."""


class Wake(Protocol):
    """What a worker waits for between two walks."""

    def start(self) -> None: ...

    def now(self) -> None:
        """Wake at once; or do not fall asleep, if nobody is asleep."""
        ...

    def within(self, seconds: float) -> None:
        """Wake after so many seconds at the latest. Only the earliest such wish counts."""
        ...

    async def wait(self) -> bool:
        """Return at the next beat, or at the earliest wish since the last return; and whether there
        was a beat.
        """
        ...

    def stop(self) -> None: ...


class Wishes:
    """Waits until it is told to wake, or for the earliest wish; for a cycle at the longest."""

    def __init__(self, cycle: float) -> None:
        self._cycle = cycle
        self._event = asyncio.Event()
        self._beaten = False
        self._early: asyncio.TimerHandle | None = None

    def now(self) -> None:
        self._event.set()

    def within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, 0.0)
        if self._early is not None and not self._early.cancelled() and self._early.when() <= when:
            return
        self._forget()
        self._early = loop.call_at(when, self.now)

    def beat(self) -> None:
        self._beaten = True
        self.now()

    async def wait(self) -> bool:
        self.within(self._cycle)
        await self._event.wait()
        self._event.clear()
        self._forget()
        beaten, self._beaten = self._beaten, False
        return beaten

    def stop(self) -> None:
        self._forget()

    def _forget(self) -> None:
        if self._early is not None:
            self._early.cancel()
            self._early = None


class CycleWake(Wishes):
    """Beats by APScheduler's timer."""

    def __init__(self, cycle: float) -> None:
        super().__init__(cycle)
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            executors={"default": DebugExecutor()},  # calls from the loop, not from a thread
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._scheduler.add_job(
            self.beat,
            IntervalTrigger(seconds=cycle * (1 - SPREAD), jitter=cycle * SPREAD, timezone=UTC),
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        super().stop()
        self._scheduler.shutdown(wait=False)
