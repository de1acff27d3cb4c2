"""Releases the runs that have ended, in batches; then emits their ends and prunes their histories.

A run that has ended waits for other runs of its shard that may end soon, for about as long as the
last write took: so one request releases many runs. Where writes are cheap, as to a file, it does
not wait: the runs that end while a batch is written are the next batch. Each shard is written by
itself.

Runs keep their locks until their batch is answered, but give up their slots when it is sent, so the
next runs are claimed meanwhile. On Azurite, 16 ms away, 8 slots do 1.6 times as many runs without
work as when slots wait for the answer, 32 slots 1.3 times and 100 slots 1.1 times. Where writes are
quick, as to a file, they do wait: nothing is gained, and a run costs a tenth more CPU. So does a
run with a limit on the board: it has its permit until then, and others would not find one.

Where a write takes long, the runs that end meanwhile are written concurrently: a run that the store
does not accept delays no other. On a board of several shards they give up their slots as they end;
on a board of one they keep them, so a worker holds at most twice as many locks as it has slots.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from blackboard.emitter import EventEmitter
from blackboard.events import RunEnded
from blackboard.model import Ended, Outcome, replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.releases import (
    FinishedRun,
    Released,
    ReleaseOutcome,
    Renewals,
    each_for_itself,
    release,
    releases_at_once,
)
from blackboard.protocol.retention import Retention, prune, prunes_after
from blackboard.records import run_record
from blackboard.table import TableError
from blackboard.tasks import cancel_all, until_one_ends
from blackboard.worker.holdings import Holding, Holdings

LONGEST_WAIT = 0.1
"""Seconds, at the most, that a run which has ended waits for others to be written with it."""
CHEAP = 0.001
"""Seconds of writing for each run of a batch up to which no run waits for others."""
QUICK = 0.00025
"""Seconds of writing for each run of a batch up to which runs keep their slots meanwhile."""
LAST_RENEWAL = 2.0
"""Seconds, at the most, that a release waits for the answer to a renewal of its lock."""
STUCK = 0.7
"""Seconds of writing after which a batch is late: the next ones are written beside it."""
LAST_RELEASES = 10.0
"""Seconds for releasing runs that were cut short, before a worker ends all the same."""
LAST_RELEASE = 3.0
"""Seconds for releasing what a worker held that was cancelled with all its tasks."""
LAST_PRUNING = 2.0
"""Seconds, at the most, that a worker which ends goes on to prune."""
_CUT = Ended(outcome=Outcome.CANCELLED, error="the worker was cancelled")


@dataclass(slots=True, kw_only=True)
class _Shard:
    """The runs of one shard that are to be written."""

    ended: deque[tuple[Holding, Ended]] = field(default_factory=deque)
    some: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when one has ended."""
    to_prune: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Items whose history may be too long."""
    took: float = 0.0
    """Seconds that the last batch took to write that was not late."""
    took_each: float = 0.0
    """The same, for each of its runs."""
    late: int = 0
    """How many batches are being written that take too long."""


@dataclass(slots=True, kw_only=True)
class ReleaseQueue:
    """The runs of one worker that have ended. Each shard has a queue of its own."""

    board: BoardTable
    events: EventEmitter
    holdings: Holdings
    retention: Retention
    landed: Callable[[Mapping[str, Released]], Awaitable[None]]
    """Called with runs as soon as they are released, by the nonces of their claims."""
    slots_freed: Callable[[], None]
    """Called when runs give up their slots."""
    worker: asyncio.Task[Any] | None = None
    """The task of the worker. While that is being cancelled, and with it all tasks of the loop, a
    run that does not end well counts as cut short."""
    runs: int = 0
    """How many were released so far."""
    _shards: list[_Shard] = field(init=False)
    _writing: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._shards = [_Shard() for _ in range(self.board.shards)]

    def add(self, held: Holding, ended: Ended) -> None:
        """Queues a run that has ended, or was not begun. Until it is written, its lock is kept."""
        if ended.outcome is not Outcome.OK and self.worker is not None and self.worker.cancelling():
            ended = replace(ended, outcome=_CUT.outcome, error=_CUT.error)
        shard = self._shards[held.shard]
        held.end()
        shard.ended.append((held, ended))
        shard.some.set()
        if shard.late and self.board.shards > 1:
            self._free_slots([held])

    @property
    def waiting(self) -> int:
        """The number of runs that have ended and whose slots become free with the next batches."""
        return sum(len(shard.ended) for shard in self._shards if not shard.late)

    async def next(self, number: int, *, hurry: bool) -> None:
        """Waits until a run of a shard has ended, and releases it, with as many others as fit one
        batch; with `hurry` it does not wait for others. Returns while a batch that takes long is
        still being written.
        """
        shard, batch = self._shards[number], await self._batch(number, hurry=hurry)
        writing = asyncio.get_running_loop().create_task(self._write(shard, batch))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        if shard.took_each > QUICK and not shard.late:
            self._free_slots(held for held, _ in batch if held.claim.settings.concurrency is None)
        await until_one_ends(asyncio.shield(writing), self.board.clock.sleep(STUCK))
        if not writing.done():
            shard.late += 1
            writing.add_done_callback(lambda _: self._not_late(shard))
            if self.board.shards > 1:
                ended = [held for held in self.holdings if held.ended and held.shard == number]
                self._free_slots(ended)

    def cancel(self) -> None:
        """Cancels the batches that are still being written."""
        for task in self._writing:
            task.cancel()

    async def put_back(self) -> None:
        """Releases all that is still held, if the store answers soon: a run that has not ended is
        due again at once. For a worker that was cancelled with all its tasks.
        """
        await cancel_all(self._writing)  # what they have not written is queued again
        ended = {held for shard in self._shards for held, _ in shard.ended}
        for held in self.holdings:
            if held not in ended:
                self._shards[held.shard].ended.append((held, _CUT))
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_RELEASE):
                await asyncio.gather(*map(self._write_all, range(len(self._shards))))

    async def _write_all(self, number: int) -> None:
        shard = self._shards[number]
        while shard.ended:
            await self._write(shard, await self._batch(number, hurry=True))

    async def _write(self, shard: _Shard, batch: Sequence[tuple[Holding, Ended]]) -> None:
        begun, landed = self.board.clock.monotonic(), partial(self._landed, shard)
        finished = [_finished(held, ended) for held, ended in batch]
        renewals = HeldRenewals([held for held, _ in batch])
        write = partial(release, self.board, renewals=renewals, landed=landed)
        try:
            results = await each_for_itself(write, finished)
        except asyncio.CancelledError:
            left = [each for each in batch if self.holdings.has(each[0].claim.nonce)]
            shard.ended.extendleft(reversed(left))
            raise
        took = self.board.clock.monotonic() - begun
        if took <= STUCK:  # runs do not wait for a batch that takes longer
            shard.took, shard.took_each = took, took / len(batch)
        await landed(list(zip(finished, results, strict=True)))  # those that were dropped, too

    async def _landed(self, shard: _Shard, results: Sequence[tuple[FinishedRun, Released]]) -> None:
        """Notes that runs were released, unless that was noted before."""
        new = [
            (finished, released)
            for finished, released in results
            if self.holdings.has(finished.claim.nonce)
        ]
        for finished, released in new:
            self.runs += 1
            self.holdings.release(finished.claim.nonce)
            if released.how is ReleaseOutcome.DROPPED:
                self.holdings.given_up.add(finished.claim.nonce)
            self._emit(finished, released)
            self._may_prune(shard, released, retries=finished.claim.settings.retries)
        if new:
            await self.landed({finished.claim.nonce: released for finished, released in new})

    def _not_late(self, shard: _Shard) -> None:
        shard.late -= 1

    def _free_slots(self, holdings: Iterable[Holding]) -> None:
        for held in holdings:
            self.holdings.slots.vacate(held.claim.nonce)
        self.slots_freed()

    async def _batch(self, number: int, *, hurry: bool) -> list[tuple[Holding, Ended]]:
        """The runs to write next. Without `hurry` it waits a little for further ones."""
        shard, most = self._shards[number], releases_at_once(self.board)
        while not shard.ended:
            shard.some.clear()
            await shard.some.wait()
        batch = [shard.ended.popleft()]
        if not hurry and 1 + len(shard.ended) < most and self._some_run(number):
            pause = min(shard.took, LONGEST_WAIT) if shard.took_each > CHEAP else 0.0
            try:
                await self.board.clock.sleep(pause)
            except asyncio.CancelledError:
                shard.ended.extendleft(batch)
                raise
        while shard.ended and len(batch) < most:
            batch.append(shard.ended.popleft())
        return batch

    def _some_run(self, number: int) -> bool:
        """Whether runs of a shard have not ended yet."""
        return any(held.shard == number and not held.ended for held in self.holdings)

    # ---- what is too old

    def _may_prune(self, shard: _Shard, released: Released, *, retries: int) -> None:
        run = released.run
        if prunes_after(
            run.fence,
            attempt=run.attempt,
            retries=retries,
            retention=self.retention,
            interval=released.ready - run.start if released.ready else None,
        ):
            shard.to_prune.put_nowait(run.id)

    async def keep_pruning(self, number: int) -> None:
        """Prunes the histories of a shard that may be too long, until it is cancelled."""
        to_prune = self._shards[number].to_prune
        while True:
            item_id = await to_prune.get()
            with suppress(TableError):  # more goes next time
                await prune(self.board, item_id, retention=self.retention)
            to_prune.task_done()

    async def pruned(self) -> None:
        """Waits until nothing is to be pruned, or this takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_PRUNING):
                for shard in self._shards:
                    await shard.to_prune.join()

    # ---- events

    def _emit(self, finished: FinishedRun, released: Released) -> None:
        item = finished.claim.item
        self.events.emit_of(
            released.run,
            RunEnded,
            run=run_record(released.run),
            release=released.how.value,
            ready=item.ready,
            failures=item.failures,
            warned=item.warned,
            retried=released.retried,
        )


def _finished(held: Holding, ended: Ended) -> FinishedRun:
    return FinishedRun(claim=held.claim, ended=ended, requeue=ended.outcome is Outcome.CANCELLED)


class HeldRenewals(Renewals):
    """The renewals of runs that a worker holds and releases."""

    def __init__(self, holdings: Sequence[Holding]) -> None:
        self._held = {held.claim.nonce: held for held in holdings}

    async def pause(self, finished: Sequence[FinishedRun]) -> list[FinishedRun]:
        """Pauses renewals as the base class, and waits a little for those under way."""
        holdings = [self._held[finished_run.claim.nonce] for finished_run in finished]
        for held in holdings:
            held.releasing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_RENEWAL):
                for held in holdings:
                    await held.answered.wait()
        return [
            replace(finished_run, claim=held.claim)
            for finished_run, held in zip(finished, holdings, strict=True)
        ]

    def resume(self, finished: Sequence[FinishedRun]) -> None:
        for finished_run in finished:
            self._held[finished_run.claim.nonce].releasing = False
