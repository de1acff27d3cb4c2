"""The newest runs of items, kept in memory for pictures of many runs.

What was read of an item is kept until the item has another run, without what its handlers printed
and logged: so a page that is looked at again, or by others, costs the store no more than the items
that have run since. A run whose lock was taken away may still be released late, which leaves no
trace in its item: while one is among them, the runs of the item are read again now and then. What
retention deletes meanwhile is still among the runs of an item, until it has another run.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Sequence
from copy import copy
from datetime import datetime
from typing import NamedTuple

from blackboard.display.run_queries import ListedRun, RunCursor, RunQuery, last_heard, newest_runs
from blackboard.model import Item, Outcome, Run, replace
from blackboard.protocol.board_table import BoardTable
from blackboard.table import TableError

OF_AN_ITEM = 50
"""Newest runs of an item that are read."""
MOST_KEPT = 40_000
"""Runs that are kept; fewer, where their results are long."""
ROOM = 1_000
"""Characters of what a run has said that count as another run."""
LONGEST = 5.0
"""Seconds that a search may take to get to the time where it begins, and from there: on a large
board few runs may match."""
ABANDONED_LAST = 60.0
"""Seconds for which runs are kept where one may be released late, at the least."""
ABANDONED_SHARE = 0.1
"""Of the time since then: the longer ago it was, the less likely is its release."""


class _Kept(NamedTuple):
    """The newest runs of an item."""

    version: object
    """Another one when the item has another run."""
    heard: datetime
    until: float
    """Monotonic seconds until which they are kept."""
    runs: Sequence[Run]

    @property
    def size(self) -> int:
        """How much room it takes, as a number of runs."""
        said = (len(text) for run in self.runs for text in (run.result, run.error, *run.warnings))
        return len(self.runs) + sum(said) // ROOM


class RecentRuns:
    """The newest runs of items, kept while nothing is added.

    Where not all are kept, those of the items that were heard of last are. Pages read all items in
    this order each time, so a cache of those that were used last would never hit.
    """

    def __init__(self, board: BoardTable) -> None:
        self._board = board
        self._kept: dict[str, _Kept] = {}
        self._order: list[tuple[datetime, str]] = []
        """When which item was heard of, sorted: pages read many at once, which end in any order."""
        self._number = 0
        self._searching = asyncio.Lock()
        self._failed: tuple[float, TableError] | None = None
        """When the store did not answer a search, in monotonic seconds, and what it raised."""

    async def newest(
        self, items: Sequence[Item], query: RunQuery, *, limit: int
    ) -> tuple[list[ListedRun], RunCursor | None]:
        """The newest runs of items, of each the newest few; cut or refused as `newest_runs` does.
        Searches wait for each other: the next finds what the one before has read, or raises that
        the store did not answer it.
        """
        begun = self._board.clock.monotonic()
        async with self._searching:
            if self._failed is not None and self._failed[0] > begun:
                raise copy(self._failed[1])
            try:
                return await newest_runs(
                    self._board, items, query, limit=limit, runs_of=self._of, longest=LONGEST
                )
            except TableError as problem:
                self._failed = self._board.clock.monotonic(), copy(problem)  # without what it read
                raise

    async def _of(self, item: Item) -> AsyncIterator[Run]:
        version = item.fence, item.stop, item.running
        kept, now = self._kept.get(item.id), self._board.clock.monotonic()
        if kept is None or kept.version != version or now >= kept.until:
            read = self._board.runs(item.id, limit=OF_AN_ITEM)
            runs = [replace(run, output="", log=()) async for run in read]
            kept = _Kept(version, last_heard(item), now + self._good_for(runs), runs)
            self._keep(item.id, kept)
        for run in kept.runs:
            yield run

    def _good_for(self, runs: Sequence[Run]) -> float:
        """Seconds for which the runs of an item are kept while it has no other."""
        left = [run.stop for run in runs if _may_come_back(run)]
        if not left:
            return float("inf")
        since = (self._board.clock.now() - max(left)).total_seconds()
        return max(ABANDONED_LAST, ABANDONED_SHARE * since)

    def _keep(self, item_id: str, kept: _Kept) -> None:
        if item_id in self._kept:  # an older look, or another page has read it meanwhile
            self._drop(item_id)
        self._kept[item_id] = kept
        insort(self._order, (kept.heard, item_id))
        self._number += kept.size
        while self._number > MOST_KEPT:
            self._drop(self._order[0][1])

    def _drop(self, item_id: str) -> None:
        kept = self._kept.pop(item_id)
        del self._order[bisect_left(self._order, (kept.heard, item_id))]
        self._number -= kept.size


def _may_come_back(run: Run) -> bool:
    """Whether another than its holder has ended it: a worker, or an operator, as a note says."""
    return run.outcome is Outcome.ABANDONED or (run.outcome is Outcome.CANCELLED and bool(run.note))
