"""Reads items of a board with their status at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.model import Item
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import OVERDUE_AFTER, ItemStatus, statuses_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardStatus:
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
    locks = {}
    if any(item.running for item in items):
        locks = {lock.id: lock async for lock in board.locks()}
    now = await board.table.now()
    found = statuses_of(
        sorted(items, key=lambda item: item.id),
        locks,
        now=now,
        resolution=board.table.resolution,
        overdue_after=overdue_after,
    )
    return BoardStatus(statuses=tuple(found), now=now)
