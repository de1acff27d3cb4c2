"""How long history is kept: of each item the latest runs, up to a number and an age; of a removed
item its tombstone.

The worker that releases a run prunes the history of its item, if the fence of the run is divisible
by 16, or that of an attempt before it, which may have been abandoned and not released: no election
is needed for that. An item that runs so often that its runs become too many before they become too
old is pruned every 96 runs: the deleted rows then fit one batch of any store, and there may be
nearly twice as many runs. An abandoned or cancelled run stays for an hour in any case: if it ends
late, its worker finds the row of the run.

What is deleted cannot be mended, and the store's clock may be years ahead for a while. So a worker
deletes nothing for its age before it has watched that clock go on for an hour without a jump; until
then it prunes by number alone. A command watches no clock: `doctor --repair` prunes so, too, and a
worker that is gone sooner, as with `--once`, leaves what is too old to others.

An item that is removed, paused or done, or whose runs are always abandoned or cancelled, has no
release that prunes; and one that runs seldom has it too late: sixteen runs of a monthly item take
longer than its history is kept. The coordinator of the board prunes those
(`sharing/coordinator.py`).

A tombstone keeps three things of a removed item:

    the fence    the next life of the id is born with it: a run of an earlier life that comes back
                 late is found to be late, and fences never go back
    the names    of additions, so that a sender in doubt adds nothing twice (`rules/applied.py`)
    the history  which no item would own without it

So it is deleted after the names have been forgotten, after its history, and after its fence was
written to the row `floor`: an id without a row is added with the fence of that row. That write is
answered before the deletion is sent; so an addition that misses the tombstone reads a floor that is
high enough. The deletion states the etag of the tombstone: one that became an item again stays. Of
its history only runs of fences up to its own are deleted: those of a new life are above.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadRow
from blackboard.model import HIGHEST_FLOOR, VERSION, Item, Outcome, Run, State, replace
from blackboard.protocol import keys
from blackboard.protocol.board_table import PAGE, BoardTable, Pause, fence_of
from blackboard.protocol.rows import version_of
from blackboard.rules.applied import REMEMBERED
from blackboard.rules.due import may_take_over
from blackboard.table import (
    Conflict,
    Delete,
    Insert,
    Merge,
    Row,
    Unknown,
    just_after,
    read,
    try_delete,
)

PRUNE_EVERY = 16
"""Runs of an item from one pruning to the next."""
PRUNE_SELDOM = 96
"""The same, where runs become too many before they become too old."""
KEPT_FOR_LATE = timedelta(hours=1)
"""The least age of an abandoned or cancelled run that is deleted: it may end late."""
HISTORIES = 20
"""Short histories that are read between two pauses: each costs a request, whatever it has."""
TRIES = 5
"""Tries to raise the floor, before that is left for later."""


class Retention(Struct, frozen=True, kw_only=True):
    """`[board] history`, `history_age` and `tombstones`."""

    runs: int = 100
    age: timedelta = timedelta(days=90)
    tombstones: timedelta = timedelta(days=90)

    def without_age(self) -> "Retention":
        """The same by number alone."""
        return replace(self, age=timedelta.max, tombstones=timedelta.max)


def is_kept(run: Run, *, place: int, retention: Retention, now: datetime) -> bool:
    """Whether a run stays; `place` counts from 0, the newest."""
    age = now - run.stop
    may_come_back = run.outcome in {Outcome.ABANDONED, Outcome.CANCELLED} and age < KEPT_FOR_LATE
    return may_come_back or (place < retention.runs and age <= retention.age)


def prunes_after(
    fence: int,
    *,
    attempt: int = 1,
    retries: int = 0,
    retention: Retention,
    interval: timedelta | None = None,
) -> bool:
    """Whether the release of this fence is followed by a pruning. `interval` is from its start to
    the item's next run, None when there is none. The fences of the attempts before it count, too,
    where they may have been abandoned: each of an item's runs may be abandoned at an even fence,
    and released at an odd one. `retries` are those of the item: an attempt that was not to be taken
    over was released, as by a handler that asks for one retry after the other.
    """
    counted = attempt if may_take_over(attempt - 1, retries=retries) else 1
    return fence % prune_every(retention, interval) < counted


def prune_every(retention: Retention, interval: timedelta | None) -> int:
    """The number of runs of an item from one pruning to the next."""
    too_many_first = interval is not None and interval < retention.age / retention.runs
    return min(PRUNE_SELDOM if too_many_first else PRUNE_EVERY, retention.runs)


class Rests:
    """Awaits `pause` at first, and whenever so much was read since: `PAGE` runs, or `HISTORIES`
    histories.
    """

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._read = PAGE

    async def before(self, *, runs: int = 0, histories: int = 0) -> None:
        self._read += runs + histories * PAGE // HISTORIES
        if self._read >= PAGE:
            self._read = 0
            await self._pause()


async def prune(
    board: BoardTable, item_id: str, *, retention: Retention, rests: Rests | None = None
) -> int:
    """Deletes the runs of an item that are not kept, and returns how many. Those of a newer version
    stay. A row that cannot be read is kept by its place alone.
    """
    now, place, ops = await board.table.now(), 0, list[Delete]()
    if board.clock_proven_in():
        retention = retention.without_age()
    partition = board.partition(item_id)
    async for row in board.table.scan(partition, *keys.runs_range(item_id)):
        if rests is not None:
            await rests.before(runs=1)
        run = board.run_in(row)
        kept = place < retention.runs
        if run is not None:
            kept = is_kept(run, place=place, retention=retention, now=now)
        if not kept and version_of(row.data) <= VERSION:
            ops.append(Delete(row.key, row.etag))
        place += 1
    return await try_delete(board.table, partition, ops)


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
    """Prunes the histories of all items that no release prunes in time, and deletes expired
    tombstones. Awaits `pause` after each page of items, as `Rests` before histories, and before
    the tombstones of a batch are deleted.
    """
    done, now, rests = Pruned(), await board.table.now(), Rests(pause)
    if board.clock_proven_in():
        retention = retention.without_age()
    for number in range(board.shards):
        expired: list[Item] = []
        histories = _Histories(board, number, rests)
        async for item in board.items_and_tombstones(number, pause=pause):
            if is_expired(item, retention=retention, now=now):
                expired.append(item)
            elif needs_pruning(item, retention=retention, now=now) and await histories.has(item.id):
                runs = await prune(board, item.id, retention=retention, rests=rests)
                done += Pruned(runs=runs)
            if len(expired) == board.table.max_rows:
                done += await delete_tombstones(board, expired, pause=pause)
                expired = []
        done += await delete_tombstones(board, expired, pause=pause)
    return done


@dataclass(slots=True)
class _Histories:
    """Finds out which items of a shard have a history, asked in the order of their keys. One
    request answers that for all items up to the next one that has.
    """

    _board: BoardTable
    _shard: int
    _rests: Rests
    _without: tuple[str, str] = ("", "")
    """Two keys between which there is no run."""

    async def has(self, item_id: str) -> bool:
        begin, end = keys.runs_range(item_id)
        first, last = self._without
        if first <= begin and end <= last:
            return False
        await self._rests.before(histories=1)
        row = await _first_run(self._board, self._shard, begin)
        self._without = begin, keys.end_of(keys.RUN) if row is None else row.key
        return row is not None and row.key < end


def is_expired(item: Item, *, retention: Retention, now: datetime) -> bool:
    """Whether it is a tombstone that may be deleted. One of a newer version is left alone, and so
    is one above whose fence nothing could be added.
    """
    return (
        item.state is State.REMOVED
        and item.version <= VERSION
        and item.fence < HIGHEST_FLOOR
        and item.stop is not None
        and now - item.stop > max(retention.tombstones, REMEMBERED)
    )


async def delete_tombstones(
    board: BoardTable, tombstones: Sequence[Item], *, pause: Pause
) -> Pruned:
    """Deletes tombstones of one shard with their histories, as many as one batch deletes. A
    tombstone stays if it became an item again meanwhile, or if its history cannot be deleted now or
    is of a newer version; all of them stay where the floor cannot be read.
    """
    runs, bare, rests = 0, [], Rests(pause)
    for tombstone in tombstones:
        await rests.before(histories=1)
        partition, count, ops = board.partition(tombstone.id), 0, list[Delete]()
        async for row in board.table.scan(partition, *keys.runs_range(tombstone.id)):
            await rests.before(runs=1)
            if (keys.fence_in(row.key) or 0) <= tombstone.fence:
                count += 1
                if version_of(row.data) <= VERSION:
                    ops.append(Delete(row.key, row.etag))
        deleted = await try_delete(board.table, partition, ops)
        runs += deleted
        if deleted == count:
            bare.append(tombstone)
    if not bare:
        return Pruned(runs=runs)
    await pause()
    try:
        await raise_floor(board, max(tombstone.fence for tombstone in bare))
    except BadRow as problem:
        return Pruned(runs=runs, in_the_way=problem)
    return Pruned(runs=runs, tombstones=await _delete_each(board, bare))


async def raise_floor(board: BoardTable, fence: int) -> None:
    """Raises the floor of the board to `fence`, if it is lower. Raises TableError when it may still
    be lower, BadRow where it cannot be read.
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
    """Deletes tombstones in one batch, without those that have changed, and returns how many."""
    left = list(tombstones)
    while left:
        ops = [Delete(keys.item_key(tombstone.id), tombstone.etag) for tombstone in left]
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
    """Prunes every history of a board, and returns the number of runs deleted."""
    pruned = 0
    for number in range(board.shards):
        key = keys.RUN
        while (row := await _first_run(board, number, key)) is not None:
            key, item_id = just_after(row.key), row.data.get("item")
            if isinstance(item_id, str) and row.key.startswith(keys.runs_range(item_id)[0]):
                key = keys.runs_range(item_id)[1]
                pruned += await prune(board, item_id, retention=retention)
    return pruned


async def _first_run(board: BoardTable, shard: int, key: str) -> Row | None:
    """The newest run of the first history of a shard from `key` on."""
    async for row in board.table.scan(board.shard(shard), key, keys.end_of(keys.RUN), 1):
        return row
    return None


def needs_pruning(item: Item, *, retention: Retention, now: datetime) -> bool:
    """Whether an item may have runs that are not kept, and that no release prunes in time."""
    is_short = has_one_young_run(item, retention=retention, now=now)
    return not is_short and not prunes_itself(item, retention=retention, now=now)


def has_one_young_run(item: Item, *, retention: Retention, now: datetime) -> bool:
    """Whether the history of an item is one run, which is kept: as of an item that runs once."""
    return item.fence == 1 and item.stop is not None and now - item.stop <= retention.age


def prunes_itself(item: Item, *, retention: Retention, now: datetime) -> bool:
    """Whether an item has runs that end in a release, which prunes its history, and has them often
    enough: one that waits longer for its next run, or whose run has not come, is left to others.
    """
    if item.state is not State.ACTIVE or item.failures:
        return False
    if item.outcome in {Outcome.ABANDONED, Outcome.CANCELLED}:
        return False
    if item.start is None:
        return item.fence == 0  # else it may have the history of an earlier life
    return max(item.ready, now) - item.start <= retention.age / PRUNE_EVERY
