"""What has ended and is to be let go: written back in batches, told, and its history pruned.

While other runs of the worker are about to end, what has ended waits for them, about as long as
the writing takes: many are let go with one request, and none much later.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from blackboard.board import Board
from blackboard.errors import BadRow
from blackboard.events import Events, Kind
from blackboard.holdings import Holding, Holdings
from blackboard.model import Ended, Outcome
from blackboard.phrases import first_line
from blackboard.table import TableError
from blackboard.verbs.finished import Finished, Release, Released
from blackboard.verbs.history import Retention, is_time, prune
from blackboard.verbs.release import release, releases_at_once

LONGEST_GATHERING = 0.1
"""Seconds, at the most, that a run which has ended waits for others to be written with it."""
LAST_RENEWAL = 2.0
"""Seconds, at the most, that it waits for the answer to a renewal of its lock."""
LAST_PRUNING = 2.0
"""Seconds, at the most, that a worker which ends goes on to prune."""


@dataclass(slots=True, kw_only=True)
class Releases:
    """The runs of one worker that have ended."""

    board: Board
    events: Events
    holdings: Holdings
    retention: Retention
    runs: int = 0
    """Let go so far."""
    _ended: asyncio.Queue[tuple[Holding, Ended]] = field(default_factory=asyncio.Queue)
    _to_prune: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Items whose history may be too long."""
    _writing: float = 0.0
    """Seconds that the last batch took to write."""

    def add(self, held: Holding, ended: Ended) -> None:
        """A run has ended. Its lock is renewed until it is written."""
        self._ended.put_nowait((held, ended))

    @property
    def waiting(self) -> int:
        """Runs that have ended and are not being written yet."""
        return self._ended.qsize()

    async def next(self, *, hurry: bool) -> list[Released]:
        """Let go of as many as fit one writing, as soon as there is one; with `hurry` nobody waits
        for others.
        """
        batch = await self._gathered(hurry=hurry)
        begun = self.board.clock.monotonic()
        let_go = await release(self.board, batch)
        self._writing = self.board.clock.monotonic() - begun
        for finished, released in zip(batch, let_go, strict=True):
            self.runs += 1
            self.holdings.release(finished.claim.nonce)
            if released.how is Release.DROPPED:
                self.holdings.given_up.add(finished.claim.nonce)
            self._tell(finished, released)
            self._may_prune(released)
        return let_go

    async def _gathered(self, *, hurry: bool) -> list[Finished]:
        """What is to be written now. What was cut short is due again at once."""
        most = releases_at_once(self.board)
        batch = [await self._ended.get()]
        if not hurry and 1 + self.waiting < min(most, len(self.holdings)):
            await self.board.clock.sleep(min(self._writing, LONGEST_GATHERING))
        while len(batch) < most and self.waiting:
            batch.append(self._ended.get_nowait())
        await self._last_renewals([held for held, _ in batch])
        return [
            Finished(
                claim=held.claim,
                ended=ended,
                settings=held.settings,
                requeue=ended.outcome is Outcome.CANCELLED,
            )
            for held, ended in batch
        ]

    async def _last_renewals(self, holdings: Sequence[Holding]) -> None:
        """No renewals from now on; one under way changes the etag that the release states."""
        for held in holdings:
            held.releasing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_RENEWAL):
                for held in holdings:
                    await held.answered.wait()

    # ---- what is too old

    def _may_prune(self, released: Released) -> None:
        run = released.run
        interval = released.ready - run.start if released.ready else None
        if is_time(run.fence, retention=self.retention, interval=interval):
            self._to_prune.put_nowait(run.id)

    async def keep_pruning(self) -> None:
        """Prune what is to be pruned, until it is cancelled. Nobody waits for it."""
        while True:
            item_id = await self._to_prune.get()
            with suppress(TableError, BadRow):  # more goes next time; `doctor` tells of a bad row
                await prune(self.board, item_id, retention=self.retention)
            self._to_prune.task_done()

    async def pruned(self) -> None:
        """Until nothing is to be pruned, or this takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_PRUNING):
                await self._to_prune.join()

    # ---- what is told

    def _tell(self, finished: Finished, released: Released) -> None:
        run, ended = released.run, finished.ended
        good = ended.outcome in {Outcome.OK, Outcome.CANCELLED}
        self.events.emit_of(
            run,
            Kind.ENDED,
            run.outcome.value + (f": {first_line(run.error)}" if run.error else ""),
            level=logging.INFO if good else logging.WARNING,
            data={
                "outcome": run.outcome.value,
                "release": released.how.value,
                "duration": run.duration,
                "lag": run.lag,
                "attempt": run.attempt,
            },
            record=(finished, released),
        )
