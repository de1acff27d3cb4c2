"""How long the history is kept: so many runs of an item, and none older than so much.

A worker that releases a run whose fence divides by sixteen looks, so no worker is appointed for it.
An item that runs so often that its runs become too many before they become too old is looked at
every ninety-six: what goes is then one batch of any store, and nearly twice as many may be there.
What a late finisher may come back to stays for an hour in any case: it finds its row by it.

An item that was removed, paused or is done, or whose worker always dies, has no release that looks.
So each look goes on to one more history of its shard, the next in the order of keys after the last
one it went on to; and `doctor --repair` looks at all of them. Tombstones stay: they keep fences.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.errors import BadRow
from blackboard.model import Item, Outcome, Run, State
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable
from blackboard.table import Conflict, Delete, Op, Row, Unknown

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
    """Prune the next history of a shard, behind the key `after`, unless its item does so itself.
    The key behind which to go on: "" when it was the last.
    """
    async for row in board.table.scan(shard, max(after, keys.RUN), keys.end_of(keys.RUN), 1):
        await _prune_unlooked(board, row, retention=retention)
        return _behind(row)
    return ""


async def prune_all(board: BoardTable, *, retention: Retention) -> int:
    """Prune every history of a board; the number of runs that went."""
    pruned = 0
    for number in range(board.shards):
        shard = board.shard(number)
        async for row in _histories(board, shard):
            with suppress(BadRow):  # `doctor` reports it
                pruned += await prune(board, _item_of(row), retention=retention)
    return pruned


async def _histories(board: BoardTable, shard: str) -> AsyncIterator[Row]:
    """The newest run of each history of a shard."""
    key = keys.RUN
    while key:
        found = [row async for row in board.table.scan(shard, key, keys.end_of(keys.RUN), 1)]
        key = _behind(found[0]) if found else ""
        for row in found:
            yield row


async def _prune_unlooked(board: BoardTable, row: Row, *, retention: Retention) -> None:
    with suppress(BadRow):
        item = await board.item(_item_of(row))
        if not looks_itself(item):
            await prune(board, _item_of(row), retention=retention)


def looks_itself(item: Item | None) -> bool:
    """Whether an item has runs that end in a release, which looks at its history."""
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
        return 0  # another worker prunes, or the next look does
    return len(batch)
