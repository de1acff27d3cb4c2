"""What has ended and is to be let go: written back in batches, told, and its history pruned.

While other runs of the worker are about to end, what has ended waits for them, about as long as
the writing takes: many are let go with one request, and none much later.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

from blackboard.board import Board
from blackboard.errors import BadRow
from blackboard.events import Events, Kind
from blackboard.holdings import Holding, Holdings
from blackboard.model import Ended, Outcome
from blackboard.phrases import first_line
from blackboard.table import TableError
from blackboard.verbs.history import Retention, is_time, prune
from blackboard.verbs.release import Finished, Release, Released, release, releases_at_once

LONGEST_GATHERING = 0.1
"""Seconds, at the most, that a run which has ended waits for others to be written with it."""


@dataclass(slots=True, kw_only=True)
class Releases:
    """The runs of one worker that have ended."""

    board: Board
    events: Events
    holdings: Holdings
    retention: Retention
    runs: int = 0
    """Let go so far."""
    _ended: asyncio.Queue[Finished] = field(default_factory=asyncio.Queue)
    _writing: float = 0.0
    """Seconds that the last batch took to write."""

    def add(self, held: Holding, ended: Ended) -> None:
        """A run has ended. What was cut short is due again at once."""
        requeue = ended.outcome is Outcome.CANCELLED
        self._ended.put_nowait(
            Finished(claim=held.claim, ended=ended, settings=held.settings, requeue=requeue)
        )

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
            await self._prune(released)
        return let_go

    async def _gathered(self, *, hurry: bool) -> list[Finished]:
        most = releases_at_once(self.board)
        batch = [await self._ended.get()]
        if not hurry and 1 + self.waiting < min(most, len(self.holdings)):
            await self.board.clock.sleep(min(self._writing, LONGEST_GATHERING))
        while len(batch) < most and self.waiting:
            batch.append(self._ended.get_nowait())
        return batch

    async def _prune(self, released: Released) -> None:
        run = released.run
        interval = released.ready - run.start if released.ready else None
        if not is_time(run.fence, retention=self.retention, interval=interval):
            return
        with suppress(TableError, BadRow):  # the next look prunes more; `doctor` tells of a bad row
            await prune(self.board, run.id, retention=self.retention)

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
