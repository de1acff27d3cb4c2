"""The heartbeat of a worker: renews the locks of its runs, and stops runs whose lock is lost.

A renewal is due after a third of the lease, or a minute if that is sooner, and to write progress. A
holder whose renewals go unanswered trusts its lock until its deadline, which is earlier than any
worker may take it. A worker that stood still for longer than that (a paused machine) asks once more
before it goes on: perhaps no worker has taken the lock. A handler whose lock is lost gets a signal,
and is stopped soon after.

Each beat also shows that the loop still turns. An `async def` handler that computes keeps the loop,
and so all renewals, from turning: the watchdog of the process then ends the worker, with a
traceback that shows where it stood.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blackboard.emitter import EventEmitter
from blackboard.errors import BlackboardError, LeaseLost
from blackboard.events import LockLost, LocksRenewed
from blackboard.model import replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.checkpoints import save
from blackboard.protocol.claims import Claim, renew_all
from blackboard.rules.breaker import renewals
from blackboard.rules.due import renew_every
from blackboard.runners.loop_watch import EARLY, STANDS
from blackboard.table import Busy, Refused, TableError, Unavailable
from blackboard.worker.holdings import Holding, Holdings

LONGEST_BEAT = 1.0
SHORTEST_BEAT = 0.1
IDLE_BEAT = 8.0
"""Seconds between two beats while nothing is held."""
STANDSTILL = 2 * LONGEST_BEAT
"""Seconds between two beats that are more than a busy loop explains."""
LONGEST_STANDSTILL = 30.0
"""Seconds for which a loop may stand still when no lease is shorter."""
NEARLY_OVER = 10.0
"""Seconds before and after a deadline in which a renewal is tried as soon as the breaker lets it
through."""
LAST_CHANCE = 0.1
"""The part of a lease, after the deadline, in which an answer to a renewal may still come."""
GONE = "it was cancelled, or its lock was overridden, unlocked or removed"
LOST_GRACE = 2.0
"""Seconds between the signal to a handler that its lock is lost and its stop."""

Watchdog = Callable[[float], None]
"""Called at each beat with the moment, in monotonic seconds, before which the next one has to come,
or the process is ended; infinity: no further beat comes."""


def no_watchdog(_deadline: float) -> None:
    """Ignores the beats."""


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Beats until it is cancelled."""

    board: BoardTable
    """The board, asked with the priority of renewals."""
    saving: BoardTable
    """The same board, for checkpoints: pumps may save so often that renewals would find no turn at
    a store that answers some requests only."""
    holdings: Holdings
    events: EventEmitter
    watchdog: Watchdog = no_watchdog
    _beaten: float = -math.inf
    _pause: float = LONGEST_BEAT
    """Seconds from this beat to the next."""
    _idle: asyncio.Task[None] | None = None
    """Waits for the next beat while nothing is held."""
    _tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """Renewals and stops under way, in the order they were begun."""

    async def run(self) -> None:
        try:
            while True:
                self.beat()
                if len(self.holdings):
                    await self.board.clock.sleep(self._pause)
                else:
                    await self._rest()
        finally:
            self.watchdog(math.inf)
            if self._idle is not None:
                self._idle.cancel()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _rest(self) -> None:
        """Sleeps until something is held, or the loop has to show that it turns."""
        rest = self.board.clock.sleep(IDLE_BEAT)
        self._idle = asyncio.get_running_loop().create_task(rest)
        await asyncio.wait([self._idle])
        self._idle = None

    def beat(self) -> None:
        """Starts the renewals that are due, and gives up locks without an answer in time."""
        now = self.board.clock.monotonic()
        stood_still = now - self._beaten > STANDSTILL
        self._beaten = now
        if not len(self.holdings):
            self.watchdog(now + LONGEST_STANDSTILL)
            return
        if self._idle is not None:
            self._idle.cancel()
        shortest_lease = min(held.claim.lock.stale_after for held in self.holdings)
        pause = renew_every(shortest_lease) / 4
        self._pause = min(max(pause, SHORTEST_BEAT), LONGEST_BEAT)
        longest, shortest = LONGEST_STANDSTILL, self._pause + STANDS + EARLY
        due: list[Holding] = []
        for held in self.holdings:
            if held.lost:
                continue
            if stood_still and held.asked is not None:
                held.asked = now  # the answer may have come and is not read yet
            if held.renewal_due(now):
                due.append(held)
            if held.ended:
                continue  # there is no handler to stop
            chance = LAST_CHANCE * held.claim.stale_after
            if held.asked is not None and now > max(held.claim.deadline, held.asked) + chance:
                self.give_up(held, "its renewals were not answered before its lease ran out")
            longest = min(longest, max(held.claim.deadline + chance - now, shortest))
        if due:
            self.ask(*due)
        self.watchdog(now + longest)

    def ask(self, *holdings: Holding) -> None:
        """Renews locks now, where no renewal is under way; also to find out whether they are held.
        As many of a shard as fit go into one batch. Two runs of one item, of which one has lost its
        lock, go into two batches: a batch has each row once.
        """
        now = self.board.clock.monotonic()
        groups: dict[tuple[int, int], list[Holding]] = {}
        before = Counter[str]()
        for held in holdings:
            if held.asking or held.lost or (held.releasing and not held.renewal_due(now)):
                continue
            held.asking = True
            held.answered.clear()
            if held.asked is None:
                held.asked = now
            groups.setdefault((held.shard, before[held.claim.id]), []).append(held)
            before[held.claim.id] += 1
        most = self.board.table.max_rows
        for some in groups.values():
            for at in range(0, len(some), most):
                self._start(self._renew(some[at : at + most]))

    async def _renew(self, holdings: Sequence[Holding]) -> None:
        progress = [held.progress for held in holdings]
        try:
            claims = await self._asked(holdings, progress)
        except TableError as trouble:  # the breaker reports it
            await self._wait(min(holdings, key=lambda held: held.claim.deadline), trouble)
            now = self.board.clock.monotonic()
            for held in holdings:
                held.asking = False
            has = self.holdings.has
            self.ask(
                *(held for held in holdings if held.renewal_due(now) and has(held.claim.nonce))
            )
            return
        renewed = {claim.nonce: claim for claim in claims}
        self._report(holdings, renewed)
        for held, text in zip(holdings, progress, strict=True):
            self._renewed(held, renewed.get(held.claim.nonce), text)

    async def _asked(self, holdings: Sequence[Holding], progress: Sequence[str]) -> Sequence[Claim]:
        try:
            claims = [held.claim for held in holdings]
            return await renew_all(self.board, list(zip(claims, progress, strict=True)))
        finally:
            for held in holdings:
                held.answered.set()

    def _report(self, holdings: Sequence[Holding], renewed: Mapping[str, Claim]) -> None:
        """Emits by how much renewals that were acknowledged came after their time."""
        late = [
            max(now.sent - held.claim.sent - renew_every(held.claim.stale_after), 0.0)
            for held in holdings
            if (now := renewed.get(held.claim.nonce)) and now.sent > held.claim.sent
        ]
        if late:
            self.events.emit(LocksRenewed, locks=len(late), late=max(late))

    def _renewed(self, held: Holding, renewed: Claim | None, progress: str) -> None:
        held.asking = False
        if renewed is None:
            self._note_gone(held)
            return
        if renewed.sent > held.claim.sent:
            held.asked = None
        held.claim = replace(held.claim, lock=renewed.lock, sent=renewed.sent)
        held.progress_written = progress
        if held.execution is not None:
            held.execution.extend(held.claim.deadline)

    async def _wait(self, held: Holding, trouble: TableError) -> None:
        """Waits until a failed renewal is tried again: for a pause or, where the lease is nearly
        over, until the breaker lets it through. Where it is long over, the pause has jitter, so
        that workers do not come back together.
        """
        board, backoff = self.board, renewals(renew_every(held.claim.stale_after))
        left = held.claim.deadline - board.clock.monotonic()
        if -NEARLY_OVER <= left < NEARLY_OVER and isinstance(trouble, Busy | Unavailable):
            await board.ready(board.partition(held.claim.id), trouble, failures=1)
        else:
            fraction = board.chance.fraction() if left < -NEARLY_OVER else 0.0
            await board.clock.sleep(backoff.pause(fraction=fraction))

    async def save(self, held: Holding, checkpoint: str) -> None:
        """Saves the checkpoint of a run; one that cannot be saved any more has lost its lock.
        Raises LeaseLost, and BlackboardError when the store will not take it.
        """
        async with held.saving:
            if held.lost:
                raise LeaseLost(held.lost)
            try:
                saved = await save(self.saving, held.claim, checkpoint)
            except Refused as refused:
                problem = f"the store will not take the checkpoint: {refused.reason}"
                raise BlackboardError(problem) from None
            if saved is None:
                self._note_gone(held)
                raise LeaseLost(GONE)
            held.claim = replace(held.claim, item=saved.item, settings=saved.settings)

    def _note_gone(self, held: Holding) -> None:
        """Notes that a lock is not this worker's any more."""
        if held.ended:  # it was released, or its release finds out whose lock it is
            held.lost = held.lost or GONE
        else:
            self.give_up(held, GONE)

    def give_up(self, held: Holding, reason: str) -> None:
        """Signals to a handler that its lock is lost, and stops it if it does not end by itself."""
        if held.lost:
            return
        held.lose(reason)
        self.events.emit_of(held.claim, LockLost, message=reason)
        self._start(self._stop(held))

    async def _stop(self, held: Holding) -> None:
        await self.board.clock.sleep(LOST_GRACE)
        held.cut_short(held.lost)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
