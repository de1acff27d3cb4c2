"""The newest runs of items, kept in memory for pictures of many runs.

What was read of an item is kept until the item has another run, without what its handlers printed
and logged: so a page that is looked at again, or by others, costs the store no more than the items
that have run since.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

from blackboard.display.queries import RunQuery, last_heard, newest_runs
from blackboard.model import Item, Run, replace
from blackboard.protocol.reading import BoardTable

OF_AN_ITEM = 50
"""Newest runs of an item that are read."""
MOST_KEPT = 40_000
"""Runs that are kept."""


class _Kept(NamedTuple):
    """The newest runs of an item."""

    version: object
    """Another one when the item has another run."""
    heard: datetime
    runs: Sequence[Run]


class RecentRuns:
    """The newest runs of items, kept while nothing is added.

    Where not all are kept, those of the items that were heard of last are: each page reads these
    first, and the rest in the same order each time, so that what was used last is of no use next.
    """

    def __init__(self, board: BoardTable) -> None:
        self._board = board
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        """About in the order in which the items were heard of."""
        self._number = 0

    async def newest(self, items: Sequence[Item], query: RunQuery, *, limit: int) -> list[Run]:
        """The newest runs of items, of each the newest few."""
        return await newest_runs(self._board, items, query, limit=limit, runs_of=self._of)

    async def _of(self, item: Item) -> AsyncIterator[Run]:
        version = item.fence, item.stop, item.running
        kept = self._kept.get(item.id)
        if kept is None or kept.version != version:
            read = self._board.runs(item.id, limit=OF_AN_ITEM)
            runs = [replace(run, output="", log=()) async for run in read]
            kept = _Kept(version, last_heard(item), runs)
            self._keep(item.id, kept)
        for run in kept.runs:
            yield run

    def _keep(self, item_id: str, kept: _Kept) -> None:
        others = self._kept.pop(item_id, None)  # another page may have read it meanwhile
        if others is not None:
            self._number -= len(others.runs)
        oldest = next(iter(self._kept.values()), kept)
        self._kept[item_id] = kept
        self._kept.move_to_end(item_id, last=kept.heard > oldest.heard)
        self._number += len(kept.runs)
        while self._number > MOST_KEPT:
            _, dropped = self._kept.popitem(last=False)
            self._number -= len(dropped.runs)
