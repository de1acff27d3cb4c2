"""The beat of a worker: it renews what is held, and stops whoever has lost its lock.

A renewal is due after a third of the lease, or a minute, and for news of progress. A holder whose
renewals go unanswered trusts its lock until its deadline, which is earlier than anybody may take
it; a worker that stood still longer than that (a paused machine) asks once more before it goes on,
for nobody may have been there to take it. Whoever lost its lock is told, and soon stopped.

Each beat also says that the loop still turns. An `async def` handler that computes keeps the loop,
and so all renewals, from turning: whoever listens to the beat then ends the worker, with a
traceback that shows where it stood.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from blackboard.events import Events, Kind
from blackboard.model import Claim
from blackboard.protocol.claims import renew
from blackboard.protocol.reading import BoardTable
from blackboard.rules.due import renew_every
from blackboard.table import Busy, TableError
from blackboard.worker.running import Holding, Holdings

LONGEST_BEAT = 1.0
SHORTEST_BEAT = 0.1
IDLE_BEAT = 8.0
"""Seconds between two beats while nothing is held."""
STANDSTILL = 2 * LONGEST_BEAT
"""Seconds between two beats that are more than a busy loop explains."""
LONGEST_STANDSTILL = 30.0
"""Seconds for which a loop may stand still when no lease is shorter."""
NEARLY_OVER = 10.0
"""Seconds before a deadline in which a renewal is tried as soon as it is let through."""
LAST_CHANCE = 0.1
"""The part of a lease, after the deadline, in which an answer to a renewal may still come."""
GONE = "its lock was overridden, unlocked or removed"
LOST_GRACE = 2.0
"""Seconds between telling a handler that its lock is lost and stopping it."""

Turning = Callable[[float], None]
"""Is told, at each beat, the monotonic moment before which there has to be another."""


def nobody(_deadline: float) -> None:
    """Listens to no beat."""


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Beats until it is cancelled."""

    board: BoardTable
    holdings: Holdings
    events: Events
    turning: Turning = nobody
    _beaten: float = -math.inf
    _pause: float = LONGEST_BEAT
    """Seconds from this beat to the next."""
    _idle: asyncio.Task[None] | None = None
    """Waits for the next beat while nothing is held."""
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the next renewal is answered."""
    _tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """In the order they were begun."""

    async def run(self) -> None:
        try:
            while True:
                self.beat()
                if len(self.holdings):
                    await self.board.clock.sleep(self._pause)
                else:
                    await self._rest()
        finally:
            self.turning(math.inf)
            if self._idle is not None:
                self._idle.cancel()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _rest(self) -> None:
        """Until something is held, or the loop has to show that it turns."""
        rest = self.board.clock.sleep(IDLE_BEAT)
        self._idle = asyncio.get_running_loop().create_task(rest)
        await asyncio.wait([self._idle])
        self._idle = None

    def beat(self) -> None:
        """One beat: start the renewals that are due, give up the locks that are past hope."""
        now = self.board.clock.monotonic()
        stood_still = now - self._beaten > STANDSTILL
        self._beaten = now
        if not len(self.holdings):
            self.turning(now + LONGEST_STANDSTILL)
            return
        if self._idle is not None:
            self._idle.cancel()
        self._pause = self._pause_for(self.holdings)
        patience, shortest = LONGEST_STANDSTILL, LONGEST_BEAT + self._pause
        for held in self.holdings:
            if held.lost:
                continue
            if stood_still and held.asked is not None:
                held.asked = now  # the answer may be lying there, not yet looked at
            if held.renewal_due(now):
                self.ask(held)
            if held.ended:
                continue  # there is no handler to stop
            chance = LAST_CHANCE * held.claim.stale_after
            if held.asked is not None and now > max(held.deadline, held.asked) + chance:
                self.give_up(held, "its renewals were not answered before its lease ran out")
            patience = min(patience, max(held.deadline + chance - now, shortest))
        self.turning(now + patience)

    def _pause_for(self, holdings: Holdings) -> float:
        shortest = min((renew_every(held.claim.stale_after) for held in holdings), default=math.inf)
        return min(max(shortest / 4, SHORTEST_BEAT), LONGEST_BEAT)

    def ask(self, held: Holding) -> None:
        """Renew a lock now, if nobody is at it; also to learn whether it is still ours."""
        now = self.board.clock.monotonic()
        if held.asking or held.lost or (held.releasing and not held.renewal_due(now)):
            return
        held.asking = True
        held.answered.clear()
        if held.asked is None:
            held.asked = now
        self._start(self._renew(held))

    async def _renew(self, held: Holding) -> None:
        progress = held.progress
        try:
            renewed = await self._renewed(held, progress)
        except TableError as trouble:  # of a store that is away, who asks patiently tells
            await self._pause_after(trouble, held)
            held.asking = False
            if held.renewal_due(self.board.clock.monotonic()) and held in self.holdings:
                self.ask(held)
            return
        held.asking = False
        self._answered.set()
        self._answered = asyncio.Event()
        if renewed is None:
            if held.ended:  # it was let go, or that will find out whose its lock is
                held.lost = held.lost or GONE
            else:
                self.give_up(held, GONE)
            return
        if renewed.sent > held.claim.sent:
            held.asked = None
        held.claim = replace(renewed, item=held.claim.item)
        held.told = progress
        if held.execution is not None:
            held.execution.extend(held.deadline)

    async def _renewed(self, held: Holding, progress: str) -> Claim | None:
        try:
            return await renew(self.board, held.claim, progress=progress)
        finally:
            held.answered.set()

    async def _pause_after(self, trouble: TableError, held: Holding) -> None:
        """Wait until a renewal is tried again. Where the lease is nearly over, it does not miss
        the moment when it is let through, which may be when another is answered; where it has long
        been over, workers do not come back together.
        """
        every = renew_every(held.claim.stale_after)
        left = held.deadline - self.board.clock.monotonic()
        pause = every / 4
        if left < -NEARLY_OVER:
            pause += 3 * pause * self.board.chance.fraction()
        elif isinstance(trouble, Busy) and left < NEARLY_OVER:
            pause = min(pause, max(trouble.retry_after, SHORTEST_BEAT))
        if left > NEARLY_OVER:
            await self.board.clock.sleep(pause)
            return
        loop = asyncio.get_running_loop()
        waiting = [
            loop.create_task(self.board.clock.sleep(pause)),
            loop.create_task(self._answered.wait()),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def give_up(self, held: Holding, reason: str) -> None:
        """Tell a handler that its lock is lost, and stop it if it does not end by itself."""
        if held.lost:
            return
        held.lose(reason)
        self.events.emit_of(held.claim, Kind.LOST, reason, level=logging.WARNING)
        self._start(self._stop(held))

    async def _stop(self, held: Holding) -> None:
        await self.board.clock.sleep(LOST_GRACE)
        held.cut_short(held.lost)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
