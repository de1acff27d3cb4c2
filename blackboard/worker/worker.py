"""The worker: wakes, walks the board, runs what it claimed, releases it, sleeps.

A worker calls as many handlers at a time as it has slots, beside the walk. Runs that have ended are
released in batches, and a freed slot is a reason to go on while more is due. No worker needs
another: kill one at any point, and its locks go stale and are overridden.

A worker that is asked to stop claims nothing more, gives its runs their grace, then cancels them
and puts them back: due again at once. Asked twice, it gives no grace.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from blackboard.emitter import EventEmitter
from blackboard.errors import BlackboardError
from blackboard.events import FreedLock, OverdueRun, StoreAway, Walked, WorkerStopping
from blackboard.model import Lock, Token
from blackboard.phrases import plural
from blackboard.protocol.board_row import Remade
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import claims_at_once
from blackboard.protocol.releases import Released
from blackboard.table import TableError, Unusable
from blackboard.tasks import finishing, until_one_ends
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holdings
from blackboard.worker.membership import Membership
from blackboard.worker.permits import Permits
from blackboard.worker.release_queue import LAST_RELEASES, ReleaseQueue
from blackboard.worker.running import Runs
from blackboard.worker.steady_clock import CONFIRMED_AFTER, SteadyClock
from blackboard.worker.wake import Wake
from blackboard.worker.walk import Walk, WalkResult

CROWDED_PAUSE = 0.2
"""Seconds, at the most, until the next walk when other workers were faster. No `Backoff`: a lost
race is no failure, and may be tried again at once."""
IDLE_WALK = 1.0
"""Seconds until the next walk of a worker that waits for the board to be idle."""

GIVEN_UP_AFTER = 60.0
"""Seconds in which no walk was answered by all shards, after which a worker that is to end gives
up."""
LAG = 1.5
"""Seconds by which a worker that has just begun may take the time of the store for earlier than it
is: Azure reports whole seconds, and a reply may take half a second."""


class Mode(StrEnum):
    """When a worker ends."""

    FOREVER = "forever"
    ONCE = "once"
    """After one walk and the runs that it started; what becomes due within LAG is claimed, too."""
    UNTIL_IDLE = "until idle"
    """When nothing is due and nothing runs, of the types it takes."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """One worker. `work` is called once."""

    board: BoardTable
    events: EventEmitter
    wake: Wake
    holdings: Holdings
    heartbeat: Heartbeat
    releases: ReleaseQueue
    runs: Runs
    walk: Walk
    permits: Permits
    membership: Membership
    notify: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Sends notifications until it is cancelled."""
    coordinate: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Takes part in coordinating the board until it is cancelled; with Mode.FOREVER only."""
    steady: SteadyClock
    """The store's clock, as `board` follows it."""
    grace: float
    """Seconds that runs have once the worker is asked to stop."""
    requests: Counter[str] = field(default_factory=Counter)
    """Requests to the store, by kind, as far as this worker has reported them."""
    _mode: Mode = Mode.FOREVER
    _began: float = 0.0
    """When it began, in monotonic seconds."""
    _asked_to_stop: int = 0
    _stop_asked: float = math.inf
    """When it was first asked to stop, in monotonic seconds: the grace counts from then."""
    _more: bool = False
    """Whether the latest walk left something for a slot that becomes free."""
    _failing: tuple[float, TableError] | None = None
    """Since when all walks have met with errors, in monotonic seconds, and the first error."""
    _broken: TableError | BlackboardError | None = None
    """Why a worker that is to end gives up: the latest walk found that the store cannot work, or
    none was answered, or no child process could be started, for `GIVEN_UP_AFTER`."""
    _remade: Remade | None = None

    async def work(self, mode: Mode) -> None:
        """Works until the mode is fulfilled or `stop` is called. Raises TableError when nothing
        runs, the store cannot work, or does not answer for `GIVEN_UP_AFTER`, and the mode is not
        FOREVER, which tries again for ever; BlackboardError where no child process could be started
        for as long. Raises Remade when the board was made anew meanwhile.
        """
        self._began = self.board.clock.monotonic()
        self.walk.takes_turns = mode is not Mode.ONCE
        self.runs.waits = True
        self.releases.worker = asyncio.current_task()
        self._mode = mode
        self.wake.start()
        try:
            async with asyncio.TaskGroup() as group:
                shards = range(self.board.shards)
                beside = [
                    group.create_task(work)
                    for work in (
                        self.heartbeat.run(),
                        self.permits.keep_renewing(),
                        self.permits.keep_giving_back(),
                        self._announce(),
                        *map(self._keep_releasing, shards),
                        *map(self.releases.keep_pruning, shards),
                    )
                ]
                if self.notify is not None:
                    beside.append(group.create_task(self.notify()))
                coordinating = None
                if self.coordinate is not None and mode is Mode.FOREVER:
                    coordinating = group.create_task(self.coordinate())
                await self._cycle(mode)
                if coordinating is not None:
                    coordinating.cancel()  # another worker coordinates while its runs finish
                await self._drain()
                await self.releases.pruned()
                await self.permits.close()
                for task in beside:
                    task.cancel()
        except asyncio.CancelledError:
            await finishing(self._put_back())
            raise
        finally:
            self.wake.stop()
            self.walk.cancel()
            self.releases.cancel()
            await self.runs.close()
        if self._remade is not None:
            raise self._remade
        if self._broken is not None and mode is not Mode.FOREVER:
            raise self._broken

    async def _put_back(self) -> None:
        """Releases what is held when the worker was cancelled with all its tasks, as when its loop
        ends by a second Ctrl-C.
        """
        self.walk.cancel()
        self.releases.cancel()
        await self.runs.close()
        await self.releases.put_back()
        await self.permits.close()

    def stop(self, *, at_once: bool = False, partitions: int = 0) -> None:
        """Asks the worker to stop. Asked once, it claims nothing more, and its runs have their
        grace. Asked again, or `at_once`: no grace. `partitions` is how many are released beside it.
        """
        self._asked_to_stop += 2 if at_once else 1
        self._stop_asked = min(self._stop_asked, self.board.clock.monotonic())
        self.holdings.slots.close()
        self.events.emit(WorkerStopping, message=self._what_may_finish(partitions))
        self.wake.now()
        self.holdings.changed.set()

    def give_up(self, why: Remade) -> None:
        """Stops, because the board was made anew: `work` raises `why` at its end."""
        self._remade = why
        self.events.emit(StoreAway, message=str(why))
        self.stop()

    def _what_may_finish(self, partitions: int) -> str:
        released = f"releases {plural(partitions, 'partition')}" if partitions else ""
        left = sum(not held.ended for held in self.holdings)
        if not left:
            return released or "nothing runs"
        first = f"{released}; " if released else ""
        runs = plural(left, "run")
        if self._asked_to_stop > 1:
            return f"{first}now, {runs} cut short"
        return f"{first}{runs} may finish within {self.grace:g} s; asked again: now"

    @property
    def stopping(self) -> bool:
        return self._asked_to_stop > 0

    async def _announce(self) -> None:
        """Keeps the membership row. Stops when the board was made anew with other shards."""
        try:
            while True:
                paused = self.runs.paused_types()
                await self.membership.announce(running=self.holdings.slots.taken, but=paused)
        except Remade as why:
            self.give_up(why)
        finally:
            await self.membership.leave()

    # ---- the cycle

    async def _cycle(self, mode: Mode) -> None:
        beat = True
        while not self.stopping:
            result = await self._walk(whole=beat, until_idle=mode is Mode.UNTIL_IDLE)
            if self._gives_up(mode):
                return
            has_walked = result is not None and result.answered and not self._may_be_due(result)
            if mode is Mode.ONCE and has_walked:
                return
            if mode is Mode.UNTIL_IDLE and result is not None:
                result, beat_meanwhile = await self._late_answers(result)
                if self._is_idle(result) and not (result.late or self._may_be_due(result)):
                    return
                if beat_meanwhile is not None:
                    beat = beat_meanwhile
                    continue
                self.wake.within(IDLE_WALK)
            beat = await self.wake.wait()

    def _gives_up(self, mode: Mode) -> bool:
        if mode is Mode.FOREVER or len(self.holdings):
            return False
        if problem := self.runs.no_process(GIVEN_UP_AFTER):
            self._broken = self._broken or BlackboardError(problem)
        return self._broken is not None

    def _is_idle(self, result: WalkResult) -> bool:
        """Whether there is nothing to do in the shards that are not late."""
        left = result.due or result.locks or result.claims or result.skipped or result.failed
        return result.whole and not (left or len(self.holdings))

    def _may_be_due(self, result: WalkResult) -> bool:
        """Whether something may be due by the store's clock that is not due yet by this worker's
        estimate of it.
        """
        left = self._began + LAG - self.board.clock.monotonic()
        return result.soonest is not None and result.soonest.total_seconds() <= left

    async def _late_answers(self, result: WalkResult) -> tuple[WalkResult, bool | None]:
        """Waits for the shards that were late in this walk, when they are all that is left: to read
        them again would take as long. Returns the result with their answers, and whether there was
        a beat meanwhile; None: nothing was waited for.
        """
        beat = None
        while self._is_idle(result) and self.walk.awaits(result.late):
            if beat or self.stopping:
                break
            beat = await self.wake.wait()
            result = await self.walk.result()
        return result, beat

    async def _walk(self, *, whole: bool, until_idle: bool) -> WalkResult | None:
        """One walk, over the whole board at a beat or when the last such walk is a cycle ago. None:
        the store did not answer, or its clock is not to be trusted yet.
        """
        before = self.holdings.slots.vacated, self.releases.runs
        self._broken = None
        try:
            if await self.steady.doubts(self.board):
                self.wake.within(CONFIRMED_AFTER)
                return None
            result = None if whole else await self.walk.go_on()
            if result is None or (until_idle and not result.claims and not len(self.holdings)):
                result = await self.walk.walk()
        except TableError as trouble:
            self._note([trouble])
            self.wake.within(self.walk.pause_after(trouble))
            return None
        if result.whole or result.failed:
            self._note([*result.failed.values()])
        self._more = result.more
        if (self.holdings.slots.vacated, self.releases.runs) != before:
            self.fill_slots()  # slots or permits became free in the walk, when no more was due yet
        if result.soonest is not None:
            self.wake.within(result.soonest.total_seconds())
        if result.crowded or result.skipped:
            self.wake.within(CROWDED_PAUSE * self.board.chance.fraction())
        done = self.walk.take_unreported()
        self.events.emit(
            Walked,
            claims=done.claims,
            due=result.due,
            locks=len(result.locks),
            missed=result.missed,
            complete=result.complete,
            requests=self.new_requests(),
            lost=done.lost,
            overdue=tuple(map(_overdue, result.overdue)),
            freed=tuple(map(_freed, done.freed)),
        )
        return result

    def _note(self, troubles: Sequence[TableError]) -> None:
        """Notes the errors that a walk has met with."""
        if not troubles:
            self._failing = None
            return
        now = self.board.clock.monotonic()
        since, first = self._failing = self._failing or (now, troubles[0])
        unusable = (trouble for trouble in troubles if isinstance(trouble, Unusable))
        self._broken = next(unusable, first if now - since >= GIVEN_UP_AFTER else None)

    def new_requests(self) -> dict[str, int]:
        """Requests to the store since the last report, by kind. Of workers that share an open store
        each reports what none has reported, so that their sum is what was sent.
        """
        new = self.board.table.requests.take_unreported().by_kind
        self.requests.update(new)
        return new

    # ---- releases

    async def _keep_releasing(self, number: int) -> None:
        """Releases the runs of a shard that have ended, until it is cancelled."""
        while True:
            await self.releases.next(number, hurry=self.stopping)

    async def landed(self, batch: Mapping[str, Released]) -> None:
        """Gives back the permits of runs that were released, by their nonces, and wakes the worker
        for what became free, and for tokens that are soon due again.
        """
        for nonce in batch:
            self.permits.release(nonce)
        now = await self.board.table.now()
        for released in batch.values():
            if released.ready is not None and released.ready - now < self.walk.cycle:
                # A retry, or a short interval, may be due before the next beat.
                self.walk.expect(released.run.id, released.ready)
                self.wake.within((released.ready - now).total_seconds())
        if (self._more or self._mode is Mode.UNTIL_IDLE) and self._fills_slots():
            self.wake.now()
        self.holdings.changed.set()

    def fill_slots(self) -> None:
        """Wakes the worker for slots that became free, if there is work for them."""
        if self._more and self._fills_slots():
            self.wake.now()

    def _fills_slots(self) -> bool:
        """Whether it is time to fill slots: those that are free are as many as one batch claims, or
        no others are about to become free.
        """
        free = self.holdings.slots.free().left
        return free > 0 and (not self.releases.waiting or free >= claims_at_once(self.board))

    # ---- the end

    async def _drain(self) -> None:
        """Waits for the runs; once asked to stop, no longer than the grace."""
        await self._until(lambda: self.stopping, None)
        if not self._is_busy:
            return
        grace = self._stop_asked + self.grace - self.board.clock.monotonic()
        await self._until(lambda: self._asked_to_stop > 1, max(grace, 0.0))
        for held in self.holdings:
            held.cut_short("the worker is stopping")
        await self._until(lambda: False, LAST_RELEASES)

    async def _until(self, enough: Callable[[], bool], seconds: float | None) -> None:
        """Waits until nothing is held, or `enough` is true, or the time is up."""
        time_is_up = [] if seconds is None else [self.board.clock.sleep(seconds)]
        await until_one_ends(self._none_held(enough), *time_is_up)

    @property
    def _is_busy(self) -> bool:
        """Whether anything runs, or may be claimed by a batch that is not answered yet."""
        return bool(len(self.holdings) or self.board.in_flight)

    async def _none_held(self, enough: Callable[[], bool]) -> None:
        while self._is_busy and not enough():
            self.holdings.changed.clear()
            await self.holdings.changed.wait()


def _overdue(token: Token) -> OverdueRun:
    return OverdueRun(
        id=token.id,
        type=token.type,
        fence=token.fence,
        due=token.slot,
        ready=token.ready,
        attempt=token.attempt,
        failures=token.failures,
    )


def _freed(lock: Lock) -> FreedLock:
    return FreedLock(
        id=lock.id,
        type=lock.type,
        fence=lock.fence,
        due=lock.slot,
        start=lock.since,
        attempt=lock.attempt,
    )
