"""How long history is kept: a number of runs of each item, none above an age, and of a removed item
its tombstone.

The worker that releases a run prunes the history of its item, if the fence of the run divides by
16; so no worker is appointed for it. The history of an item that runs so often that its runs become
too many before they become too old is pruned every 96 runs: what goes is then one batch of any
store, and nearly twice as many runs may be there. An abandoned or cancelled run stays for an hour
in any case: if it ends late, its worker finds the row of the run.

An item that was removed, paused or is done, or whose worker always dies, has no release that
prunes. The coordinator of the board prunes those (`worker/coordinator.py`), and `doctor --repair`
prunes all.

A tombstone keeps three things of a removed item:

    the fence    the next life of the id is born with it: a run of an earlier life that comes back
                 late is found to be late, and fences never go back
    the names    of additions, so that a sender in doubt adds nothing twice (`rules/applied.py`)
    the history  which no item would own without it

So it is deleted after the names have been forgotten, after its history, and after its fence was
written to the row `floor`, with whose fence all ids are added that are not there. That write is
answered before the deletion is sent; so an addition that misses the tombstone reads a floor that is
high enough. The deletion states the etag of the tombstone: one that was made an item again stays.
Of its history only runs of fences up to its own are deleted: those of a new life are above.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadRow
from blackboard.model import VERSION, Item, Outcome, Run, State
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, Pause, fence_of
from blackboard.rules.applied import REMEMBERED
from blackboard.table import Conflict, Delete, Insert, Merge, Row, Unknown, read, try_delete

PRUNE_EVERY = 16
"""Runs of an item from one pruning to the next."""
PRUNE_SELDOM = 96
"""The same, where runs become too many before they become too old."""
KEPT_FOR_LATE = timedelta(hours=1)
"""The least age of an abandoned or cancelled run that is deleted: it may end late."""
TRIES = 5
"""Of raising the floor, before it is left for later."""


class Retention(Struct, frozen=True, kw_only=True):
    """`[board] history`, `history_age` and `tombstones`."""

    runs: int = 100
    age: timedelta = timedelta(days=90)
    tombstones: timedelta = timedelta(days=90)


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
    """Delete the runs of an item that are not kept; their number. Those of a newer version, and
    rows that cannot be read, stay.
    """
    now = await board.table.now()
    place = pruned = 0
    partition, batch = board.partition(item_id), list[Delete]()
    async for run in board.runs(item_id):
        goes = not is_kept(run, place=place, retention=retention, now=now)
        if goes and run.version <= VERSION:
            batch.append(Delete(keys.run_key(item_id, run.fence), run.etag))
        place += 1
        if len(batch) == board.table.max_rows:
            pruned += await try_delete(board.table, partition, batch)
            batch = []
    return pruned + await try_delete(board.table, partition, batch)


class Pruned(Struct, frozen=True, kw_only=True):
    """How many rows were deleted."""

    runs: int = 0
    tombstones: int = 0
    in_the_way: BadRow | None = None
    """A floor that cannot be read: no tombstone is deleted without one."""

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(
            runs=self.runs + other.runs,
            tombstones=self.tombstones + other.tombstones,
            in_the_way=self.in_the_way or other.in_the_way,
        )


async def prune_unreleased(board: BoardTable, *, retention: Retention, pause: Pause) -> Pruned:
    """Prune the histories of all items that no release prunes, and delete tombstones whose time is
    up. There is a pause before each page of items, before each history, which is then read and
    deleted without another, and before the tombstones of a batch.
    """
    done, now = Pruned(), await board.table.now()
    for number in range(board.shards):
        expired: list[Item] = []
        async for item in board.items_and_tombstones(number, pause=pause):
            if is_expired(item, retention=retention, now=now):
                expired.append(item)
            elif not prunes_itself(item):
                await pause()
                done += Pruned(runs=await prune(board, item.id, retention=retention))
            if len(expired) == board.table.max_rows:
                done += await delete_tombstones(board, expired, pause=pause)
                expired = []
        done += await delete_tombstones(board, expired, pause=pause)
    return done


def is_expired(item: Item, *, retention: Retention, now: datetime) -> bool:
    """Whether it is a tombstone that may be deleted. One of a newer version is left alone."""
    return (
        item.state is State.REMOVED
        and item.version <= VERSION
        and item.stop is not None
        and now - item.stop > max(retention.tombstones, REMEMBERED)
    )


async def delete_tombstones(
    board: BoardTable, tombstones: Sequence[Item], *, pause: Pause
) -> Pruned:
    """Delete tombstones of one shard with their histories, as many as one batch deletes. One that
    was made an item again meanwhile stays, as does one whose history cannot be deleted now, cannot
    be read or is of a newer version; and all of them where the floor cannot be read.
    """
    runs, bare = 0, []
    for one in tombstones:
        await pause()
        partition = board.partition(one.id)
        rows = board.table.scan(partition, *keys.runs_range(one.id))
        history = [board.run_in(row) async for row in rows]
        known = [run for run in history if run is not None and run.version <= VERSION]
        old = [run for run in known if run.fence <= one.fence]
        for start in range(0, len(old), board.table.max_rows):
            some = old[start : start + board.table.max_rows]
            ops = [Delete(keys.run_key(one.id, run.fence), run.etag) for run in some]
            deleted = await try_delete(board.table, partition, ops)
            runs += deleted
            if not deleted:
                break
        else:
            if len(known) == len(history):
                bare.append(one)
    if not bare:
        return Pruned(runs=runs)
    await pause()
    try:
        await raise_floor(board, max(one.fence for one in bare))
    except BadRow as problem:
        return Pruned(runs=runs, in_the_way=problem)
    return Pruned(runs=runs, tombstones=await _delete_each(board, bare))


async def raise_floor(board: BoardTable, fence: int) -> None:
    """See that the floor of the board is at `fence` or above. Raises TableError when it may not
    be, BadRow where it cannot be read.
    """
    partition, key = keys.meta_partition(board.name), keys.FLOOR_KEY
    for _ in range(TRIES):
        row = await read(board.table, partition, key)
        if row is not None and fence_of(row) >= fence:
            return
        data = {"fence": fence}
        write = Insert(key, data) if row is None else Merge(key, data, row.etag)
        with suppress(Conflict, Unknown):  # the next reading shows it
            await board.table.commit(partition, [write])
            return
    raise Unknown


async def _delete_each(board: BoardTable, tombstones: Sequence[Item]) -> int:
    """Delete tombstones in one batch, without those that have changed."""
    left = list(tombstones)
    while left:
        ops = [Delete(keys.item_key(one.id), one.etag) for one in left]
        try:
            await board.table.commit(board.partition(left[0].id), ops)
        except Conflict as refusal:
            del left[refusal.index]
        except Unknown:
            return 0  # the next time shows which of them are left
        else:
            break
    return len(left)


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


def prunes_itself(item: Item) -> bool:
    """Whether an item has runs that end in a release, which prunes its history."""
    return (
        item.state is State.ACTIVE and item.outcome is not Outcome.ABANDONED and item.failures == 0
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
