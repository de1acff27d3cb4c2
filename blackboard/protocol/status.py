"""The status of the items of a board, and its statistics: counted from all of its items, and kept
in one row.

No decision depends on the row. One that is missing, old, of a newer version or unreadable is not
shown; the items are counted instead.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.model import VERSION, Item, Lock, Statistics, replace
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable, Pause
from blackboard.protocol.rows import data_of, readable, text_of, version_of
from blackboard.rules.status import OVERDUE_AFTER, ItemStatus, Tally, is_current, status_of
from blackboard.table import Conflict, Insert, Replace, Row, Unknown, read, units

LARGE = 1_000
"""Items. Of a board that has more, the current statistics are shown, and not all items are read to
count them."""


class BoardStatus(Struct, frozen=True, kw_only=True):
    """Items as they were at `now`, the store's time, in the order of their ids."""

    statuses: Sequence[ItemStatus]
    now: datetime


async def read_status(
    board: BoardTable,
    items: Sequence[Item] | None = None,
    *,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> BoardStatus:
    """The status of `items`, or of all items of the board. Items are read before locks: a run that
    started in between has a lock with another fence, and such a lock is ignored.
    """
    if items is None:
        items = [item async for item in board.items()]
    locks = await _locks(board, [item.id for item in items if item.running])
    now = await board.table.now()
    statuses = (
        status_of(
            item,
            locks.get(item.id),
            now=now,
            resolution=board.table.resolution,
            overdue_after=overdue_after,
        )
        for item in sorted(items, key=lambda item: item.id)
    )
    return BoardStatus(statuses=tuple(statuses), now=now)


async def _locks(board: BoardTable, ids: Sequence[str]) -> dict[str, Lock]:
    """The locks of items, by id: read one by one where that takes fewer requests than
    `BoardTable.locks`.
    """
    if len(ids) > board.shards:
        return {lock.id: lock async for lock in board.locks()}
    rows = [
        await read(board.table, board.partition(item_id), keys.lock_key(item_id)) for item_id in ids
    ]
    locks = [readable(Lock, row, age=board.table.age(row)) for row in rows if row is not None]
    return {lock.id: lock for lock in locks if lock is not None}


async def count(
    board: BoardTable,
    *,
    by: str = "",
    term: int = 0,
    pause: Pause | None = None,
    each: Callable[[ItemStatus], None] = lambda _: None,
) -> Statistics:
    """Counts all items, with a pause after each page; `each` is called with the status of every
    item. Locks are read when the first item is found to be running; a lock of another fence than
    its item is ignored.
    """
    began = board.clock.monotonic()
    now, resolution, tally = await board.table.now(), board.table.resolution, Tally()
    locks: dict[str, Lock] | None = None
    async for item in board.items(pause=pause):
        if item.running and locks is None:
            locks = {lock.id: lock async for lock in board.locks()}
        lock = locks.get(item.id) if locks else None
        status = status_of(item, lock, now=now, resolution=resolution)
        tally.add(status)
        each(status)
    took = round(board.clock.monotonic() - began, 3)
    return tally.statistics(at=await board.table.now(), by=by, term=term, took=took)


async def read_statistics(board: BoardTable) -> Statistics | None:
    """The statistics as they were written last, however old; None: there are none."""
    return readable(Statistics, await _row(board))


async def statistics_if_large(board: BoardTable) -> Statistics | None:
    """The statistics of a large board; None: it is small, or was not counted lately."""
    counted = await read_statistics(board)
    if counted is None or counted.items <= LARGE:
        return None
    return counted if is_current(counted, now=await board.table.now()) else None


async def write_statistics(
    board: BoardTable, counted: Statistics, *, over: Statistics | None = None
) -> Statistics | None:
    """Writes statistics over those that this worker wrote before (`over`), or over those that
    exist; but not over current ones of a later term, nor over a row of a newer version. Returns
    what was written; None: nothing was, or that is in doubt.
    """
    etag = over.etag if over is not None else ""
    if not etag:
        row = await _row(board)
        stored = readable(Statistics, row)
        is_newer = row is not None and version_of(row.data) > VERSION
        is_late = (
            stored is not None and stored.term > counted.term and is_current(stored, now=counted.at)
        )
        if is_newer or is_late:
            return None
        etag = row.etag if row is not None else ""
    while units(text_of(counted.by_type)) > board.table.max_value:  # types have long names
        counted = replace(counted, by_type=counted.by_type[: len(counted.by_type) // 2])
    data, key = data_of(counted), keys.STATS_KEY
    write = Replace(key, data, etag) if etag else Insert(key, data)
    try:
        etags = await board.table.commit(keys.meta_partition(board.name), [write])
    except (Conflict, Unknown):
        return None
    return replace(counted, etag=etags[0])


async def _row(board: BoardTable) -> Row | None:
    return await read(board.table, keys.meta_partition(board.name), keys.STATS_KEY)
