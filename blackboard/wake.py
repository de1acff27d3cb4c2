"""When a worker wakes: every cycle, and earlier when it knows of something due sooner.

APScheduler gives the beat and nothing else: due times are the board's, cron is our own. Its timer
sets an event that the worker waits for, so a walk that takes longer than a cycle is followed by
one walk, never overlapped by another.
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

    async def wait(self) -> None:
        """Return at the next beat, or at the earliest wish since the last return."""
        ...

    def stop(self) -> None: ...


class CycleWake:
    """Beats by APScheduler's timer."""

    def __init__(self, cycle: float) -> None:
        self._event = asyncio.Event()
        self._early: asyncio.TimerHandle | None = None
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            executors={"default": DebugExecutor()},  # calls from the loop, not from a thread
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._scheduler.add_job(
            self.now,
            IntervalTrigger(seconds=cycle * (1 - SPREAD), jitter=cycle * SPREAD, timezone=UTC),
        )

    def start(self) -> None:
        self._scheduler.start()

    def now(self) -> None:
        self._event.set()

    def within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + max(seconds, 0.0)
        if self._early is not None and not self._early.cancelled() and self._early.when() <= when:
            return
        self._forget()
        self._early = loop.call_at(when, self.now)

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()
        self._forget()

    def stop(self) -> None:
        self._forget()
        self._scheduler.shutdown(wait=False)

    def _forget(self) -> None:
        if self._early is not None:
            self._early.cancel()
            self._early = None
