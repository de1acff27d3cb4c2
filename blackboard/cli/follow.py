"""Follows runs that were requested, until they have ended: for `blackboard run --wait`."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from blackboard.cli.many import AT_ONCE
from blackboard.cli.options import as_typed
from blackboard.cli.store_away import AskedAgain
from blackboard.display.columns import run_outcome
from blackboard.model import Item, Mark, Member, Outcome, Run, State
from blackboard.phrases import first_line, plural, span, stamp
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import takers, workers
from blackboard.rules.next_run import serves, slots_in_line
from blackboard.rules.transitions import Requested
from blackboard.tasks import in_turns

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""The most seconds between two looks; the first ones follow sooner. Nothing fails: no backoff."""
MOST_READ = 200
"""The most items that are read in a second: with many, the looks are further apart."""
SILENT = 1.0
"""Seconds of waiting before its reason is reported."""
NO_WORKER_WAIT = 30.0
"""Seconds without a worker that takes the type, after which waiting is given up."""
AWAY_WAIT = 300.0
"""Seconds for which the store may be away, after which waiting is given up."""

End = Literal["ended", "no worker", "still waiting", "gone"]
"""Why following a run has ended."""

Report = Callable[[str, str], None]
"""Called with an id and the reason why its run waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """What is read once for all runs that are followed."""

    present: Sequence[Member]
    paused: Mark | None
    at: datetime
    """The store's time."""
    now: float
    """The monotonic time of this process, in seconds."""


@dataclass(slots=True, kw_only=True)
class Followed:
    """A run that is followed, and at last the result of that."""

    board: BoardTable
    asked: Requested
    patience: float | None
    report: Report
    began: float
    """The monotonic time of this process at the beginning, in seconds."""
    alone_since: float
    """The last monotonic time at which a worker that takes its type was present."""
    item: Item | None = None
    """As it was read last."""
    reported: str = ""
    """What it waits for, as it was reported last."""
    end: End | None = None
    """None: it is waited for."""
    words: str = ""
    """The result for people."""
    run: Run | None = None
    """None: there was none."""

    @property
    def good(self) -> bool:
        return self.run is not None and self.run.outcome is Outcome.OK

    async def read(self) -> None:
        self.item = await self.board.existing(self.asked.item.id)

    async def look(self, around: _Around) -> None:
        """Sets the result where there is one, else reports what the run waits for."""
        item, waited = self.item, around.now - self.began
        if item is None or item.born != self.asked.item.born:
            self._ends("gone", "was removed meanwhile")
            return
        if not is_pending(item, self.asked.slot):
            await self._has_ended(item)
            return
        able = () if item.running else takers(around.present, item.type)
        if item.running or able:
            self.alone_since = around.now
        if waited >= SILENT:
            words = _what_it_waits_for(item, able, around)
            if words != self.reported:
                self.report(item.id, words)
            self.reported = words
        if around.now - self.alone_since > NO_WORKER_WAIT:
            start = "start one with `blackboard worker`"
            self._ends("no worker", f"waits: no worker takes {item.type!r}; {start}")
        elif self.patience is not None and waited > self.patience:
            after = span(self.patience)
            words = f"has not been started after {after}; it stays due"
            if item.running:
                words = f"still runs ({item.owner}) after {after}, and goes on"
            self._ends("still waiting", words)

    async def _has_ended(self, item: Item) -> None:
        first = self.asked.item.fence - self.asked.item.running
        async for run in self.board.runs(item.id):
            if serves(run.slot, self.asked.slot) and run.fence > first:
                self.run = run
                self._ends("ended", _outcome_words(run))
                return
        if item.state is State.PAUSED:
            self._ends("gone", "was paused meanwhile")
        else:
            self._ends("gone", "has ended, and its history does not have it any more")

    def _ends(self, end: End, words: str) -> None:
        self.end, self.words = end, words


def is_pending(item: Item, slot: datetime) -> bool:
    """Whether the run for `slot` is queued, running, or to be retried."""
    alive = item.running or item.state is State.ACTIVE
    return alive and any(serves(queued, slot) for queued in slots_in_line(item))


def _what_it_waits_for(item: Item, able: Sequence[Member], around: _Around) -> str:
    if item.running:
        return f"runs ({item.owner})"
    if item.attempt > 1 and item.ready > around.at:
        ending = ": ".join(filter(None, (item.outcome or "", first_line(item.error))))
        return f"{ending}; attempt {item.attempt} may start at {stamp(item.ready)}"
    if not able:
        return f"waits for a worker that takes {item.type}: none is at work"
    if around.paused:
        resume = as_typed("`blackboard resume --board`")
        return f"waits: the board is paused by {around.paused.by} ({resume})"
    within = span(max(worker.cycle for worker in able))
    return f"waits for a walk of {plural(len(able), 'worker')}, within {within}, and a free slot"


async def follow(
    board: BoardTable,
    requests: Sequence[Requested],
    *,
    patience: float | None,
    report: Report = lambda *_: None,
) -> list[Followed]:
    """Wait for runs: at most `patience` seconds, and at most `NO_WORKER_WAIT` for a worker that
    takes the type. What is waited for is reported once it takes a second. A store that is away is
    asked again, for `AWAY_WAIT` at most; then Busy or Unavailable is raised.
    """
    began, pause = board.clock.monotonic(), FIRST_PAUSE
    until = math.inf if patience is None else began + patience
    store = AskedAgain(board.clock, longest=AWAY_WAIT, until=until)
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
        with store.asking():
            await _look_at(board, left)
        if store.is_away:
            for followed in left:
                followed.alone_since = board.clock.monotonic()
        left = [followed for followed in left if followed.end is None]
        if not left:
            return following
        wait = max(pause, len(left) / MOST_READ)
        await board.clock.sleep(min(wait, max(until - board.clock.monotonic(), pause)))
        pause = min(2 * pause, LONGEST_PAUSE)


async def _look_at(board: BoardTable, following: Sequence[Followed]) -> None:
    """Reads the items of runs, then what there is besides, and looks at each run."""
    # Items are read first: when one shows that its run is over, the history has the run.
    await in_turns(deque(following), Followed.read, at_once=AT_ONCE)
    around = _Around(
        present=await workers(board),
        paused=await paused_by(board),
        at=await board.table.now(),
        now=board.clock.monotonic(),
    )
    await in_turns(deque(following), partial(Followed.look, around=around), at_once=AT_ONCE)


def _outcome_words(run: Run) -> str:
    details = (run.result, first_line(run.error), "; ".join(run.warnings))
    return ": ".join(filter(None, (f"{run_outcome(run)[0]} in {span(run.duration)}", *details)))
