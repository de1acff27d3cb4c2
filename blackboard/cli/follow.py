"""Follows a run that was asked for to its end, by reading the board."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from blackboard.model import Item, Outcome, Run, State
from blackboard.phrases import first_line, span
from blackboard.protocol.reading import BoardTable
from blackboard.rules.next_run import serves, slots_in_line
from blackboard.rules.transitions import Requested
from blackboard.worker.membership import takers, workers

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two looks."""
NOBODY_WAIT = 30.0
"""Seconds without a worker that takes the type, after which waiting is given up."""


class End(StrEnum):
    """Why there is no more to follow."""

    ENDED = "ended"
    NOBODY = "nobody runs it"
    LATE = "still waiting"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How it ended; the run if there was one, and what to say."""

    end: End
    words: str
    run: Run | None = None

    @property
    def good(self) -> bool:
        return self.run is not None and self.run.outcome is Outcome.OK


def is_pending(item: Item, slot: datetime) -> bool:
    """Whether the run for `slot` is still to come, or under way, or to be tried again."""
    alive = item.running or item.state is State.ACTIVE
    return alive and any(serves(one, slot) for one in slots_in_line(item))


async def follow(board: BoardTable, asked: Requested, *, patience: float | None) -> Followed:
    """Wait for the run; for `patience` seconds at the most, and no longer than `NOBODY_WAIT` for a
    worker to show up.
    """
    began = alone_since = board.clock.monotonic()
    pause = FIRST_PAUSE
    while True:
        # The item is read first: once it says that the run is over, the history has it.
        item = await board.item(asked.item.id)
        if item is None or item.state is State.REMOVED or item.born != asked.item.born:
            return Followed(end=End.GONE, words="was removed meanwhile")
        if not is_pending(item, asked.slot):
            return await _ended(board, asked, item)
        now = board.clock.monotonic()
        if item.running or takers(await workers(board), item.type):
            alone_since = now
        if now - alone_since > NOBODY_WAIT:
            words = f"waits: no worker takes {item.type!r}; start one with `blackboard worker`"
            return Followed(end=End.NOBODY, words=words)
        if patience is not None and now - began > patience:
            what = f"still runs ({item.owner})" if item.running else "has not been started"
            return Followed(end=End.LATE, words=f"{what} after {span(patience)}; it stays due")
        await board.clock.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


async def _ended(board: BoardTable, asked: Requested, item: Item) -> Followed:
    async for run in board.runs(asked.item.id):
        if serves(run.slot, asked.slot) and run.fence > asked.item.fence - asked.item.running:
            return Followed(end=End.ENDED, words=_told(run), run=run)
    if item.state is State.PAUSED:
        return Followed(end=End.GONE, words="was paused meanwhile")
    return Followed(end=End.GONE, words="has ended, and its history does not have it any more")


def _told(run: Run) -> str:
    line = f"{run.outcome.value} in {span(run.duration)}"
    if run.result:
        line += f": {run.result}"
    said = first_line(run.error)
    return f"{line}: {said}" if said else line
