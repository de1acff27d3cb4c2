"""The cycle: wake, walk the board, run what was claimed, write it back, sleep.

A worker holds as many runs as it has slots. Handlers run beside the walk; what has ended is let go
in batches, and a freed slot is a reason to walk again while more is due. Nothing of a worker is
needed by another: kill one at any point, and its locks go stale and are overridden.

A worker that is asked to stop claims nothing more, gives what runs its grace, then cancels it and
puts it back: due again at once. Asked twice, it gives no grace.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from blackboard.board import Board
from blackboard.calls import Calls
from blackboard.events import Events, Kind
from blackboard.heartbeat import Heartbeat
from blackboard.holdings import Holding, Holdings
from blackboard.model import Claim, Outcome
from blackboard.phrases import first_line, plural, stamp
from blackboard.table import Busy, TableError, Unusable
from blackboard.verbs.history import Retention, is_time, prune
from blackboard.verbs.release import Finished, Released, release
from blackboard.wake import Wake
from blackboard.walk import Seen, Walker

LAST_RELEASES = 10.0
"""Seconds for writing back what was cut short, before the process ends all the same."""
STORE_PAUSE = 5.0
"""Seconds until the next walk after one that the store did not answer."""
IDLE_LOOK = 1.0
"""Seconds until a worker that waits for the board to be idle looks again."""
CROWDED_PAUSE = 0.2
"""Seconds, at the most, until the next walk when others were faster all the time."""


class Mode(StrEnum):
    """When a worker is done."""

    FOREVER = "forever"
    ONCE = "once"
    """After one walk and the runs that it started."""
    UNTIL_IDLE = "until idle"
    """When nothing is due and nothing runs, of the types it takes."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """One worker. `work` is called once."""

    board: Board
    events: Events
    wake: Wake
    holdings: Holdings
    walker: Walker
    heartbeat: Heartbeat
    calls: Calls
    announce: Callable[[], Any]
    """Coroutine function that keeps the membership row, until it is cancelled."""
    grace: float
    retention: Retention
    _group: asyncio.TaskGroup = field(init=False)
    _ended: asyncio.Queue[Finished] = field(default_factory=asyncio.Queue)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _asked_to_stop: int = 0
    _more: bool = False
    """Whether the last walk left something that is due."""

    _broken: Unusable | None = None
    """Why the last walk found that the store cannot work."""

    async def work(self, mode: Mode) -> None:
        """Work until the mode is fulfilled or `stop` is called. Raises Unusable when nothing runs,
        the store cannot work and the mode would have had an end: to try for ever is for daemons.
        """
        self.wake.start()
        try:
            async with asyncio.TaskGroup() as self._group:
                group = self._group
                beside = [
                    group.create_task(one)
                    for one in (self.heartbeat.run(), self._let_go(mode), self.announce())
                ]
                await self._cycle(mode)
                await self._drain()
                for task in beside:
                    task.cancel()
        finally:
            self.wake.stop()
            await self.calls.close()
        if self._broken is not None and mode is not Mode.FOREVER:
            raise self._broken

    def stop(self) -> None:
        """Asked once: no more claims, and grace for what runs. Asked again: no grace."""
        self._asked_to_stop += 1
        self.holdings.slots = 0
        self.events.emit(Kind.STOPPING, self._what_may_finish())
        self.wake.now()
        self._changed.set()

    def _what_may_finish(self) -> str:
        if not len(self.holdings):
            return "nothing runs"
        runs = plural(len(self.holdings), "run")
        if self._asked_to_stop > 1:
            return f"now, {runs} cut short"
        return f"{runs} may finish within {self.grace:g} s; asked again: now"

    @property
    def stopping(self) -> bool:
        return self._asked_to_stop > 0

    async def _cycle(self, mode: Mode) -> None:
        while not self.stopping:
            seen = await self._walk()
            if self._gives_up(mode):
                return
            if mode is Mode.ONCE and seen is not None:
                return
            if mode is Mode.UNTIL_IDLE and seen is not None:
                if self._idle(seen):
                    return
                self.wake.within(IDLE_LOOK)
            await self.wake.wait()

    def _gives_up(self, mode: Mode) -> bool:
        return self._broken is not None and mode is not Mode.FOREVER and not len(self.holdings)

    def _idle(self, seen: Seen) -> bool:
        return not (seen.due or seen.locks or seen.claims or seen.skipped or len(self.holdings))

    async def _walk(self) -> Seen | None:
        """One walk; what it claims is started. None: the store did not answer."""
        before = list(self.holdings)
        self._broken = None
        try:
            seen = await self.walker.walk()
        except TableError as trouble:
            self.events.emit(Kind.STORE, f"walk: {trouble}", level=logging.WARNING)
            self._broken = trouble if isinstance(trouble, Unusable) else None
            pause = trouble.retry_after if isinstance(trouble, Busy) else STORE_PAUSE
            self.wake.within(min(pause, STORE_PAUSE))
            return None
        for held in before:
            if held.claim.nonce not in seen.mine:
                self.heartbeat.ask(held)  # unlocked, cancelled, removed or overridden: find out
        self._more = seen.due > 0
        if seen.soonest is not None:
            self.wake.within(seen.soonest.total_seconds())
        if seen.crowded or seen.skipped:
            self.wake.within(CROWDED_PAUSE * self.board.chance.fraction())
        self.events.emit(
            Kind.WALKED,
            level=logging.DEBUG,
            data={"claims": seen.claims, "due": seen.due, "locks": seen.locks},
        )
        return seen

    def start(self, claims: Sequence[Claim]) -> None:
        """Run what was claimed, beside everything else."""
        for claim in claims:
            settings = self.board.resolve(claim.type, claim.spec)
            held = Holding(claim=claim, settings=settings)
            self.holdings.add(held)
            self._group.create_task(self._run(held))
            self.events.emit(
                Kind.CLAIMED,
                f"due {stamp(claim.slot)}" + (f", attempt {n}" if (n := claim.attempt) > 1 else ""),
                item=claim.id,
                type=claim.type,
                fence=claim.fence,
            )
        if claims:
            self.heartbeat.beat()  # whoever listens must know the new leases before they run

    async def _run(self, held: Holding) -> None:
        ended = await self.calls.run(held)
        held.releasing = True
        requeue = ended.outcome is Outcome.CANCELLED
        self._ended.put_nowait(
            Finished(claim=held.claim, ended=ended, settings=held.settings, requeue=requeue)
        )

    async def _let_go(self, mode: Mode) -> None:
        """Write back what has ended, as much at a time as there is."""
        while True:
            batch = [await self._ended.get()]
            while not self._ended.empty():
                batch.append(self._ended.get_nowait())
            for finished, released in zip(batch, await release(self.board, batch), strict=True):
                self.holdings.release(finished.claim.nonce)
                self._tell(finished, released)
                await self._prune(released)
                if released.ready is not None:
                    self._wake_for(released)
            if self._more or mode is Mode.UNTIL_IDLE:
                self.wake.now()
            self._changed.set()

    def _wake_for(self, released: Released) -> None:
        """A retry, or a short interval, may be due before the next beat."""
        assert released.ready is not None
        wait = released.ready - released.run.stop
        if wait < self.walker.horizon:
            self.wake.within(wait.total_seconds())

    async def _prune(self, released: Released) -> None:
        run = released.run
        if not is_time(run.fence, retention=self.retention):
            return
        try:
            await prune(self.board, run.id, retention=self.retention)
        except TableError as trouble:
            self.events.emit(Kind.STORE, f"pruning {run.id}: {trouble}", level=logging.WARNING)

    def _tell(self, finished: Finished, released: Released) -> None:
        run, ended = released.run, finished.ended
        good = ended.outcome in {Outcome.OK, Outcome.CANCELLED}
        data: Mapping[str, Any] = {
            "outcome": run.outcome.value,
            "release": released.how.value,
            "duration": run.duration,
            "lag": run.lag,
            "attempt": run.attempt,
        }
        self.events.emit(
            Kind.ENDED,
            run.outcome.value + (f": {first_line(run.error)}" if run.error else ""),
            level=logging.INFO if good else logging.WARNING,
            item=run.id,
            type=run.type,
            fence=run.fence,
            data=data,
        )

    async def _drain(self) -> None:
        """Wait for what runs; once asked to stop, no longer than the grace."""
        await self._until(lambda: self.stopping, None)
        if not len(self.holdings):
            return
        await self._until(lambda: self._asked_to_stop > 1, self.grace)
        for held in self.holdings:
            held.cut_short("the worker is stopping")
        await self._until(lambda: False, LAST_RELEASES)

    async def _until(self, enough: Callable[[], bool], seconds: float | None) -> None:
        """Wait until nothing is held, or enough is enough, or the time is up."""
        waiting = [self._group.create_task(self._none_held(enough))]
        if seconds is not None:
            waiting.append(self._group.create_task(self.board.clock.sleep(seconds)))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    async def _none_held(self, enough: Callable[[], bool]) -> None:
        while len(self.holdings) and not enough():
            self._changed.clear()
            await self._changed.wait()
