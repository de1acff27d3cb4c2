"""How long the history is kept: so many runs of an item, and none older than so much.

Whoever releases a run whose fence divides by sixteen looks, so nobody has to be appointed for it.
An item that runs so often that its runs become too many before they become too old is looked at
every ninety-six: what goes is then one batch of any store, and nearly twice as many may be there.
What a late finisher may come back to stays for an hour in any case: it finds its row by it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard import keys
from blackboard.board import Board
from blackboard.model import Outcome, Run
from blackboard.table import Conflict, Delete, Op, Unknown

LOOK_EVERY = 16
LOOK_SELDOM = 96
YOUNGEST = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """`[board] history` and `history_age`."""

    runs: int = 100
    age: timedelta = timedelta(days=90)


def is_kept(run: Run, *, place: int, retention: Retention, now: datetime) -> bool:
    """Whether a run stays; `place` counts from 0, the newest."""
    age = now - run.stop
    may_come_back = run.outcome in {Outcome.ABANDONED, Outcome.CANCELLED} and age < YOUNGEST
    return may_come_back or (place < retention.runs and age <= retention.age)


def is_time(fence: int, *, retention: Retention, interval: timedelta | None = None) -> bool:
    """Whether the release of this fence is one that looks. `interval` is from its start to the
    item's next run, None when there is none.
    """
    return fence % look_every(retention, interval) == 0


def look_every(retention: Retention, interval: timedelta | None) -> int:
    """Of how many runs of an item one is followed by a look."""
    too_many_first = interval is not None and interval < retention.age / retention.runs
    return min(LOOK_SELDOM if too_many_first else LOOK_EVERY, retention.runs)


async def prune(board: Board, item_id: str, *, retention: Retention) -> int:
    """Delete the runs of an item that are not kept; their number."""
    now = await board.table.now()
    place = pruned = 0
    batch: list[Op] = []
    async for run in board.runs(item_id):
        if not is_kept(run, place=place, retention=retention, now=now):
            batch.append(Delete(keys.run_key(item_id, run.fence), run.etag))
        place += 1
        if len(batch) == board.table.max_rows:
            pruned += await _delete(board, item_id, batch)
            batch = []
    return pruned + await _delete(board, item_id, batch)


async def _delete(board: Board, item_id: str, batch: list[Op]) -> int:
    if not batch:
        return 0
    try:
        await board.table.commit(board.partition(item_id), batch)
    except (Conflict, Unknown):
        return 0  # somebody else prunes, or the next look will
    return len(batch)
