"""The cycle: wake, walk the board, run what was claimed, write it back, sleep.

A worker holds as many runs as it has slots. Handlers run beside the walk; what has ended is let go
in batches, and a freed slot is a reason to walk again while more is due. Nothing of a worker is
needed by another: kill one at any point, and its locks go stale and are overridden.

A worker that is asked to stop claims nothing more, gives what runs its grace, then cancels it and
puts it back: due again at once. Asked twice, it gives no grace.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from blackboard.events import Events, Kind
from blackboard.model import Claim, Ended, Outcome, Run
from blackboard.phrases import plural, stamp
from blackboard.protocol.claims import claims_at_once
from blackboard.protocol.keys import shard_of
from blackboard.protocol.reading import BoardTable, Remade
from blackboard.table import Requests, TableError, Unusable
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.release_queue import Releases
from blackboard.worker.running import Calls, Holding, Holdings, Room
from blackboard.worker.seen import Seen
from blackboard.worker.steady_clock import CONFIRMED_AFTER, SteadyClock
from blackboard.worker.wake import Wake
from blackboard.worker.walk import Walker, pause_after

LAST_RELEASES = 10.0
"""Seconds for writing back what was cut short, before the process ends all the same."""
CROWDED_PAUSE = 0.2
"""Seconds, at the most, until the next walk when others were faster."""
NO_SLOT = "put back: its claim was answered late, and no slot was free any more"
IDLE_LOOK = 1.0
"""Seconds until a worker that waits for the board to be idle looks again."""


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

    board: BoardTable
    events: Events
    wake: Wake
    holdings: Holdings
    walker: Walker
    heartbeat: Heartbeat
    calls: Calls
    releases: Releases
    announce: Callable[[], Any]
    """Coroutine function that keeps the membership row, until it is cancelled."""
    notify: Callable[[], Any] | None = None
    """Coroutine function that tells people what there is to tell, until it is cancelled."""
    steady: SteadyClock
    """The store's clock, as `board` follows it."""
    grace: float
    _group: asyncio.TaskGroup = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _asked_to_stop: int = 0
    _stop_asked: float = math.inf
    """When it was first asked, in monotonic seconds: the grace counts from then."""
    _more: bool = False
    """Whether the last walk left something to look for when a slot becomes free."""
    _told: Requests = field(default_factory=Requests)
    """What the store had been asked for when that was last told."""
    _broken: Unusable | None = None
    """Why the last walk found that the store cannot work."""
    _remade: Remade | None = None

    async def work(self, mode: Mode) -> None:
        """Work until the mode is fulfilled or `stop` is called. Raises Unusable when nothing runs,
        the store cannot work and the mode would have had an end: to try for ever is for daemons.
        Raises Remade when the board is another by now.
        """
        self.wake.start()
        try:
            async with asyncio.TaskGroup() as self._group:
                group = self._group
                beside = [
                    group.create_task(one)
                    for one in (
                        self.heartbeat.run(),
                        self.announce(),
                        *(self._let_go(mode, number) for number in range(self.board.shards)),
                        *map(self.releases.keep_pruning, range(self.board.shards)),
                    )
                ]
                if self.notify is not None:
                    beside.append(group.create_task(self.notify()))
                await self._cycle(mode)
                await self._drain()
                await self.releases.pruned()
                for task in beside:
                    task.cancel()
        finally:
            self.wake.stop()
            self.walker.cancel()
            await self.calls.close()
        if self._remade is not None:
            raise self._remade
        if self._broken is not None and mode is not Mode.FOREVER:
            raise self._broken

    def stop(self) -> None:
        """Asked once: no more claims, and grace for what runs. Asked again: no grace."""
        self._asked_to_stop += 1
        self._stop_asked = min(self._stop_asked, self.board.clock.monotonic())
        self.holdings.slots = 0
        self.events.emit(Kind.STOPPING, self._what_may_finish())
        self.wake.now()
        self._changed.set()

    def give_up(self, why: Remade) -> None:
        """Stop, for the board is another by now: `work` raises `why` at its end."""
        if self._remade is None:
            self._remade = why
            self.events.emit(Kind.STORE, str(why), level=logging.WARNING)
            self.stop()

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
        beat = True
        while not self.stopping:
            seen = await self._walk(whole=beat, until_idle=mode is Mode.UNTIL_IDLE)
            if self._gives_up(mode):
                return
            if mode is Mode.ONCE and seen is not None and not seen.unread:
                return
            if mode is Mode.UNTIL_IDLE and seen is not None:
                beaten = await self._late_answer(seen)
                if self._idle(seen):
                    return
                if beaten is not None:
                    beat = beaten
                    continue
                self.wake.within(IDLE_LOOK)
            beat = await self.wake.wait()

    def _gives_up(self, mode: Mode) -> bool:
        return self._broken is not None and mode is not Mode.FOREVER and not len(self.holdings)

    def _idle(self, seen: Seen) -> bool:
        return self._idle_but_for_late(seen) and not seen.late

    def _idle_but_for_late(self, seen: Seen) -> bool:
        left = seen.due or seen.locks or seen.claims or seen.skipped or seen.failed
        return seen.whole and not (left or len(self.holdings))

    async def _late_answer(self, seen: Seen) -> bool | None:
        """Wait for the shards that this walk has not done with, when they are all that is left: to
        read them again would take as long. Whether there was a beat meanwhile; None: no waiting.
        """
        beat = None
        while self._idle_but_for_late(seen) and self.walker.awaits(seen):
            if beat or self.stopping:
                break
            beat = await self.wake.wait()
            await self.walker.reckon(seen)
        return beat

    async def _walk(self, *, whole: bool, until_idle: bool) -> Seen | None:
        """One walk, over the whole board at a beat or when the last such walk is a cycle ago; what
        it claims is started. None: the store did not answer, or its clock is not to be trusted yet.
        """
        runs = self.releases.runs
        self._broken = None
        try:
            if await self._doubts_the_time():
                self.wake.within(CONFIRMED_AFTER)
                return None
            seen = None if whole else await self.walker.go_on()
            if seen is None or (until_idle and not seen.claims and not len(self.holdings)):
                seen = await self.walker.walk()
        except TableError as trouble:
            self._broken = trouble if isinstance(trouble, Unusable) else None
            self.wake.within(pause_after(trouble))
            return None
        unusable = (one for one in seen.failed.values() if isinstance(one, Unusable))
        self._broken = next(unusable, None)
        self._more = seen.more
        if self._more and self.releases.runs > runs and self._frees_no_more():
            self.wake.now()  # a slot became free meanwhile, and nobody knew of more
        if seen.soonest is not None:
            self.wake.within(seen.soonest.total_seconds())
        if seen.crowded or seen.skipped:
            self.wake.within(CROWDED_PAUSE * self.board.chance.fraction())
        self.events.emit(
            Kind.WALKED,
            level=logging.DEBUG,
            data={
                "claims": seen.claims,
                "due": seen.due,
                "locks": len(seen.locks),
                "requests": self._asked_for(),
            },
            record=seen,
        )
        return seen

    async def _doubts_the_time(self) -> bool:
        """Whether the store's clock has jumped; then it is asked for, and may confirm that."""
        await self.board.table.now()
        if self.steady.doubtful:
            await self.board.check_shards()
            self.steady.looked()
            await self.board.table.now()
        return self.steady.doubtful

    def _asked_for(self) -> dict[str, int]:
        """What the store was asked for since this was last told."""
        now = replace(self.board.table.requests)
        spent, self._told = now.since(self._told), now
        return spent.by_kind

    def start(self, claims: Sequence[Claim]) -> None:
        """Run what was claimed, beside everything else. What has no slot is put back: it was
        claimed late, others have taken the slot meanwhile, or the worker is to stop.
        """
        for claim in claims:
            settings = self.board.resolve(claim.type, claim.spec)
            number = shard_of(claim.id, self.board.shards)
            held = Holding(claim=claim, settings=settings, shard=number)
            has_room = Room(self.holdings, claimed=True).take(claim.type, settings)
            self.holdings.add(held)
            if has_room:
                self._group.create_task(self._run(held))
            else:
                put_back = Ended(outcome=Outcome.CANCELLED, error=NO_SLOT)
                self.releases.add(held, put_back, takes_slot=False)
            again = f", attempt {claim.attempt}" if claim.attempt > 1 else ""
            self.events.emit_of(claim, Kind.CLAIMED, f"due {stamp(claim.slot)}{again}")
        if claims:
            self.heartbeat.beat()  # whoever listens must know the new leases before they run

    async def _run(self, held: Holding) -> None:
        self.releases.add(held, await self.calls.run(held))

    async def _let_go(self, mode: Mode, number: int) -> None:
        """Write back what has ended of a shard, and see that slots that became free are filled."""
        while True:
            let_go = await self.releases.next(number, hurry=self.stopping, stuck=self._slots_freed)
            now = await self.board.table.now()
            for released in let_go:
                if released.ready is not None:
                    self._wake_for(released.run, released.ready, wait=released.ready - now)
            if (self._more or mode is Mode.UNTIL_IDLE) and self._frees_no_more():
                self.wake.now()
            self._changed.set()

    def shard_answered(self) -> None:
        """A shard that was slow may have brought work."""
        self.wake.now()
        self._changed.set()

    def _slots_freed(self) -> None:
        """Runs have ended that cannot be written back at present."""
        if self._more:
            self.wake.now()

    def _frees_no_more(self) -> bool:
        """Whether it is time to fill slots: they are as many as one batch claims, or no others are
        about to become free.
        """
        return not self.releases.waiting or self.holdings.free >= claims_at_once(self.board)

    def _wake_for(self, run: Run, ready: datetime, *, wait: timedelta) -> None:
        """A retry, or a short interval, may be due before the next beat."""
        if wait < self.walker.scanner.horizon:
            self.walker.expect(run.id, ready)
            self.wake.within(wait.total_seconds())

    async def _drain(self) -> None:
        """Wait for what runs; once asked to stop, no longer than the grace."""
        await self._until(lambda: self.stopping, None)
        if not self._is_busy:
            return
        grace = self._stop_asked + self.grace - self.board.clock.monotonic()
        await self._until(lambda: self._asked_to_stop > 1, max(grace, 0.0))
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

    @property
    def _is_busy(self) -> bool:
        """Whether anything runs, or may be claimed by a batch that is not answered yet."""
        return bool(len(self.holdings) or self.board.in_flight)

    async def _none_held(self, enough: Callable[[], bool]) -> None:
        while self._is_busy and not enough():
            self._changed.clear()
            await self._changed.wait()
