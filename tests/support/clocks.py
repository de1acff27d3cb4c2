"""A clock that tests advance, waking by it, and random numbers that repeat."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count

from blackboard.clock import SeededChance
from blackboard.model import whole_milliseconds
from blackboard.worker.wake import Wake

__all__ = ["START", "ManualClock", "SeededChance", "TurnedWake"]

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


class ManualClock:
    """A clock that only `advance` moves; `jump` moves the wall clock alone."""

    def __init__(self, now: datetime = START, monotonic: float = 1000.0) -> None:
        self._now = now
        self._monotonic = monotonic
        self._sleepers: list[tuple[float, int, float, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> datetime:
        return whole_milliseconds(self._now)

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Returns when the clock has been advanced so far; for 0, after other tasks have run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake = asyncio.get_running_loop().create_future()
        sleeper = (self._monotonic + seconds, next(self._order), self._monotonic, wake)
        heappush(self._sleepers, sleeper)
        await wake

    def advance(self, seconds: float) -> bool:
        """Moves both clocks on; sleeps that have ended return, the earliest first. Returns whether
        there were any.
        """
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
        ended = False
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            *_, wake = heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
                ended = True
        return ended

    def begun(self) -> list[float]:
        """The seconds of each sleep that began at this moment and was not cancelled."""
        return [
            when - began
            for when, _, began, wake in self._sleepers
            if began == self._monotonic and not wake.done()
        ]

    def jump(self, seconds: float) -> None:
        """Sets the wall clock ahead, or back."""
        self._now += timedelta(seconds=seconds)


class TurnedWake(Wake):
    """Beats by a clock that is turned by hand, as `CycleWake` does by the real one."""

    def __init__(self, clock: ManualClock, *, every: float) -> None:
        super().__init__(every)
        self._clock = clock
        self._beating: asyncio.Task[None] | None = None
        self._waking: asyncio.Task[None] | None = None
        self._early_at = math.inf

    def start(self) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._beats())

    def within(self, seconds: float) -> None:
        when = self._clock.monotonic() + seconds
        if when < self._early_at:
            self._forget()
            self._early_at = when
            self._waking = asyncio.get_running_loop().create_task(self._wakes_after(seconds))

    async def wait(self) -> bool:
        await self._event.wait()
        self._event.clear()
        self._forget()
        beaten, self._beaten = self._beaten, False
        return beaten

    def stop(self) -> None:
        self._forget()
        if self._beating is not None:
            self._beating.cancel()

    async def _beats(self) -> None:
        while True:
            await self._clock.sleep(self._cycle)
            self._beaten = True
            self.now()

    async def _wakes_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.now()

    def _forget(self) -> None:
        self._early_at = math.inf
        if self._waking is not None:
            self._waking.cancel()
