"""Reads of a board what `show` and `check` are about: items, their locks, how they stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.cli.selection import select
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import OVERDUE_AFTER, ItemStatus, statuses_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Items as they stood at `now`, the store's time, in the order of their ids."""

    statuses: Sequence[ItemStatus]
    now: datetime


async def gather(
    board: BoardTable,
    ids: Sequence[str] = (),
    *,
    exact: bool = False,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> Gathered:
    """All items, or those that `ids` mean. Items are read before locks: a run that started in
    between has a lock of another fence, which says nothing.
    """
    items = await select(board, ids, exact=exact) if ids else [one async for one in board.items()]
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
    return Gathered(statuses=tuple(found), now=now)
