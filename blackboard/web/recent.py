"""The newest runs of items, kept in memory for pictures of many runs.

What was read of an item is kept until the item has another run, without what its handlers printed
and logged: so a page that is looked at again, or by others, costs the store no more than the items
that have run since.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from blackboard.display.queries import RunQuery, newest_runs
from blackboard.model import Item, Run, replace
from blackboard.protocol.reading import BoardTable

OF_AN_ITEM = 50
"""Newest runs of an item that are read."""
MOST_KEPT = 40_000
"""Runs that are kept."""


class RecentRuns:
    """The newest runs of items, kept while nothing is added."""

    def __init__(self, board: BoardTable) -> None:
        self._board = board
        self._kept: OrderedDict[str, tuple[object, list[Run]]] = OrderedDict()
        self._number = 0

    async def newest(self, items: Sequence[Item], query: RunQuery) -> list[Run]:
        """The newest runs of items, of each the newest few."""
        return await newest_runs(self._board, items, query, runs_of=self._of)

    async def _of(self, item: Item) -> AsyncIterator[Run]:
        version = item.fence, item.stop, item.running
        kept = self._kept.get(item.id)
        if kept is None or kept[0] != version:
            read = self._board.runs(item.id, limit=OF_AN_ITEM)
            runs = [replace(run, output="", log=()) async for run in read]
            others = self._kept.pop(item.id, None)  # another page may have read it meanwhile
            if others is not None:
                self._number -= len(others[1])
            kept = version, runs
            self._kept[item.id] = kept
            self._number += len(runs)
            while self._number > MOST_KEPT:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._number -= len(dropped)
        elif item.id in self._kept:
            self._kept.move_to_end(item.id)
        for run in kept[1]:
            yield run
