"""How long the history is kept: a number of runs of each item, and none above an age.

The worker that releases a run prunes the history of its item, if the fence of the run divides by
16; so no worker is appointed for it. The history of an item that runs so often that its runs become
too many before they become too old is pruned every 96 runs: what goes is then one batch of any
store, and nearly twice as many runs may be there. An abandoned or cancelled run stays for an hour
in any case: if it ends late, its worker finds the row of the run.

An item that was removed, paused or is done, or whose worker always dies, has no release that
prunes. So after each pruning one more history of the shard is pruned, the next in the order of
keys after the last one; and `doctor --repair` prunes all of them. Tombstones stay: they keep
fences.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.errors import BadRow
from blackboard.model import Item, Outcome, Run, State
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable
from blackboard.table import Conflict, Delete, Op, Row, Unknown

PRUNE_EVERY = 16
"""Runs of an item from one pruning to the next."""
PRUNE_SELDOM = 96
"""The same, where runs become too many before they become too old."""
KEPT_FOR_LATE = timedelta(hours=1)
"""The least age of an abandoned or cancelled run that is deleted: it may end late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """`[board] history` and `history_age`."""

    runs: int = 100
    age: timedelta = timedelta(days=90)


def is_kept(run: Run, *, place: int, retention: Retention, now: datetime) -> bool:
    """Whether a run stays; `place` counts from 0, the newest."""
    age = now - run.stop
    may_come_back = run.outcome in {Outcome.ABANDONED, Outcome.CANCELLED} and age < KEPT_FOR_LATE
    return may_come_back or (place < retention.runs and age <= retention.age)


def prunes_after(fence: int, *, retention: Retention, interval: timedelta | None = None) -> bool:
    """Whether the release of this fence is followed by a pruning. `interval` is from its start to
    the item's next run, None when there is none.
    """
    return fence % prune_every(retention, interval) == 0


def prune_every(retention: Retention, interval: timedelta | None) -> int:
    """Of how many runs of an item one is followed by a pruning."""
    too_many_first = interval is not None and interval < retention.age / retention.runs
    return min(PRUNE_SELDOM if too_many_first else PRUNE_EVERY, retention.runs)


async def prune(board: BoardTable, item_id: str, *, retention: Retention) -> int:
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


async def prune_next(board: BoardTable, shard: str, *, after: str, retention: Retention) -> str:
    """Prune the next history of a shard, behind the key `after`, unless the releases of its item
    do so. Returns the key behind which to go on: "" when it was the last.
    """
    row = await _first(board, shard, max(after, keys.RUN))
    if row is None:
        return ""
    with suppress(BadRow):
        if not prunes_itself(await board.item(_item_of(row))):
            await prune(board, _item_of(row), retention=retention)
    return _behind(row)


async def prune_all(board: BoardTable, *, retention: Retention) -> int:
    """Prune every history of a board; the number of runs that went."""
    pruned = 0
    for number in range(board.shards):
        shard, key = board.shard(number), keys.RUN
        while (row := await _first(board, shard, key)) is not None:
            key = _behind(row)
            with suppress(BadRow):  # `doctor` reports it
                pruned += await prune(board, _item_of(row), retention=retention)
    return pruned


async def _first(board: BoardTable, shard: str, key: str) -> Row | None:
    """The newest run of the first history of a shard from `key` on."""
    async for row in board.table.scan(shard, key, keys.end_of(keys.RUN), 1):
        return row
    return None


def prunes_itself(item: Item | None) -> bool:
    """Whether an item has runs that end in a release, which prunes its history."""
    return (
        item is not None
        and item.state is State.ACTIVE
        and item.outcome is not Outcome.ABANDONED
        and item.failures == 0
    )


def _item_of(row: Row) -> str:
    """The id of a run. Raises BadRow when its row does not say."""
    item_id = row.data.get("item")
    if not isinstance(item_id, str):
        raise BadRow(row.key, "no good item")
    return item_id


def _behind(row: Row) -> str:
    """The end of the history that a run is of: all of its keys begin alike."""
    return row.key.rpartition(":")[0] + ";"


async def _delete(board: BoardTable, item_id: str, batch: list[Op]) -> int:
    if not batch:
        return 0
    try:
        await board.table.commit(board.partition(item_id), batch)
    except (Conflict, Unknown):
        return 0  # another worker prunes, or this one does the next time
    return len(batch)
