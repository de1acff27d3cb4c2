"""Follows runs that were requested, until they have ended: for `blackboard run --wait`."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from blackboard.cli.many import AT_ONCE
from blackboard.cli.options import as_typed
from blackboard.cli.output import note
from blackboard.display.columns import run_outcome
from blackboard.model import Item, Mark, Member, Outcome, Run, State
from blackboard.phrases import first_line, plural, span, stamp
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import takers, workers
from blackboard.rules.next_run import serves, slots_in_line
from blackboard.rules.transitions import Requested
from blackboard.table import Busy, Unavailable, Unusable
from blackboard.tasks import in_turns

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks; the first ones follow sooner."""
MOST_READ = 200
"""Items that are read in a second: with many, the looks are further apart."""
SILENT = 1.0
"""Seconds of waiting before its reason is reported."""
NO_WORKER_WAIT, AWAY_WAIT = 30.0, 300.0
"""Seconds without a worker that takes the type, and without the store, after which waiting is given
up."""

Report = Callable[[str, str], None]
"""Called with an id and the reason why its run waits."""


@dataclass(slots=True, kw_only=True)
class Followed:
    """A run that is followed, and at last the result of that."""

    board: BoardTable
    asked: Requested
    patience: float | None
    report: Report
    began: float
    alone_since: float
    """When a worker that takes its type was there last, in monotonic seconds."""
    item: Item | None = None
    reported: str = ""
    """What it waits for, as it was reported last."""
    end: Literal["ended", "no worker", "still waiting", "gone"] | None = None
    """None: it is waited for."""
    words: str = ""
    run: Run | None = None

    @property
    def good(self) -> bool:
        return self.run is not None and self.run.outcome is Outcome.OK

    async def read(self) -> None:
        self.item = await self.board.existing(self.asked.item.id)

    async def look(
        self, *, present: Sequence[Member], paused: Mark | None, at: datetime, now: float
    ) -> None:
        """Sets the result where there is one, else reports what the run waits for."""
        item, waited = self.item, now - self.began
        if item is None or item.born != self.asked.item.born:
            self.end, self.words = "gone", "was removed meanwhile"
            return
        if not is_pending(item, self.asked.slot):
            await self._has_ended(item)
            return
        able = () if item.running else takers(present, item.type)
        if item.running or able:
            self.alone_since = now
        if waited >= SILENT:
            words = _what_it_waits_for(item, able, paused=paused, at=at)
            if words != self.reported:
                self.report(item.id, words)
            self.reported = words
        if now - self.alone_since > NO_WORKER_WAIT:
            start = "start one with `blackboard worker`"
            self.end, self.words = "no worker", f"waits: no worker takes {item.type!r}; {start}"
        elif self.patience is not None and waited > self.patience:
            after = span(self.patience)
            self.end = "still waiting"
            self.words = f"has not been started after {after}; it stays due"
            if item.running:
                self.words = f"still runs ({item.owner}) after {after}, and goes on"

    async def _has_ended(self, item: Item) -> None:
        first = self.asked.item.fence - self.asked.item.running
        async for run in self.board.runs(item.id):
            if serves(run.slot, self.asked.slot) and run.fence > first:
                took = f"{run_outcome(run)[0]} in {span(run.duration)}"
                details = (run.result, first_line(run.error), "; ".join(run.warnings))
                self.run, self.end = run, "ended"
                self.words = ": ".join(filter(None, (took, *details)))
                return
        self.end, self.words = "gone", "has ended, and its history does not have it any more"
        if item.state is State.PAUSED:
            self.words = "was paused meanwhile"


def is_pending(item: Item, slot: datetime) -> bool:
    """Whether the run for `slot` is queued, running, or to be retried."""
    alive = item.running or item.state is State.ACTIVE
    return alive and any(serves(queued, slot) for queued in slots_in_line(item))


def _what_it_waits_for(
    item: Item, able: Sequence[Member], *, paused: Mark | None, at: datetime
) -> str:
    if item.running:
        return f"runs ({item.owner})"
    if item.attempt > 1 and item.ready > at:
        ending = ": ".join(filter(None, (item.outcome or "", first_line(item.error))))
        return f"{ending}; attempt {item.attempt} may start at {stamp(item.ready)}"
    if not able:
        return f"waits for a worker that takes {item.type}: none is at work"
    if paused:
        resume = as_typed("`blackboard resume --board`")
        return f"waits: the board is paused by {paused.by} ({resume})"
    within = span(max(worker.cycle for worker in able))
    return f"waits for a walk of {plural(len(able), 'worker')}, within {within}, and a free slot"


async def follow(
    board: BoardTable,
    requests: Sequence[Requested],
    *,
    patience: float | None,
    report: Report = lambda *_: None,
) -> list[Followed]:
    """Wait for runs, at most `patience` seconds. What is waited for is reported once it takes a
    second. Raises Busy or Unavailable for a store that is away for `AWAY_WAIT`.
    """
    began, pause = board.clock.monotonic(), FIRST_PAUSE
    away_since: float | None = None
    following = left = [
        Followed(
            board=board,
            asked=request,
            patience=patience,
            report=report,
            began=began,
            alone_since=began,
        )
        for request in requests
    ]
    while True:
        try:
            await _look_at(board, left)
        except Unusable:
            raise
        except (Busy, Unavailable) as trouble:
            now = board.clock.monotonic()
            is_over = patience is not None and now - began > patience
            if is_over or (away_since is not None and now - away_since > AWAY_WAIT):
                raise
            if away_since is None:
                note(f"store: {trouble}; it is asked again")
                away_since = now
            for followed in left:
                followed.alone_since = now
        else:
            away_since = None
        left = [followed for followed in left if followed.end is None]
        if not left:
            return following
        wait = max(pause, len(left) / MOST_READ)
        if patience is not None:
            wait = min(wait, max(patience - (board.clock.monotonic() - began), pause))
        await board.clock.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE)


async def _look_at(board: BoardTable, following: Sequence[Followed]) -> None:
    """Reads the items of runs, then what there is besides, and looks at each run."""
    # Items are read first: when one shows that its run is over, the history has the run.
    await in_turns(deque(following), Followed.read, at_once=AT_ONCE)
    look = partial(
        Followed.look,
        present=await workers(board),
        paused=await paused_by(board),
        at=await board.table.now(),
        now=board.clock.monotonic(),
    )
    await in_turns(deque(following), look, at_once=AT_ONCE)
