"""The newest runs of items, found without reading the whole history."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from blackboard.inputs import check_id
from blackboard.model import Item, Outcome, Run, State
from blackboard.patterns import is_glob
from blackboard.protocol import keys
from blackboard.protocol.edits import Missing
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import record_of
from blackboard.queries import select

NEVER = datetime.min.replace(tzinfo=UTC)
ANY_TIME = datetime.max.replace(tzinfo=UTC)
AT_ONCE = 16
"""Items whose runs are read at a time."""

RunsOf = Callable[[Item], AsyncIterator[Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to show."""

    limit: int
    outcomes: Collection[Outcome] = ()
    """Any of them; none: all."""
    types: Collection[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    """Runs stopped in between, both included."""
    pattern: re.Pattern[str] | None = None
    """Found in the result, the error or the output."""

    @property
    def selects(self) -> bool:
        """Whether it leaves out runs by what they are."""
        return bool(self.outcomes or self.types or self.since or self.until or self.pattern)

    def matches(self, run: Run) -> bool:
        if self.outcomes and run.outcome not in self.outcomes:
            return False
        if (self.since and run.stop < self.since) or (self.until and run.stop > self.until):
            return False
        logged = (line.text for line in run.log)
        texts = (run.result, run.error, run.output, *run.warnings, *logged)
        return self.pattern is None or any(map(self.pattern.search, texts))


async def newest_runs(
    board: BoardTable, items: Iterable[Item], query: RunQuery, *, runs_of: RunsOf | None = None
) -> list[Run]:
    """The newest runs of `items`, by when they stopped.

    Items are read in the order of their latest runs, and reading stops when no other item can have
    a newer run than those found. A late run, which ended after its item had moved on, is found with
    the others of its item. `runs_of` reads the runs of an item, the newest first, where that is not
    to be the whole history.
    """
    read = runs_of or (lambda item: board.runs(item.id))
    wanted = [item for item in items if not query.types or item.type in query.types]
    left = deque(sorted(wanted, key=last_heard, reverse=True))
    found: list[Run] = []
    at_once = 1
    while left:
        some: list[Item] = []
        while left and len(some) < at_once:
            heard = last_heard(left[0])
            full = len(found) == query.limit and heard < found[-1].stop
            if heard == NEVER or full or (query.since and heard < query.since):
                left.clear()
                break
            some.append(left.popleft())
        at_once = min(2 * at_once, AT_ONCE)
        for runs in await asyncio.gather(*(_matching(read(item), query) for item in some)):
            found += runs
        found = sorted(found, key=_age_order)[: query.limit]
    return found


async def items_with_history(
    board: BoardTable, ids: Sequence[str], *, exact: bool = False
) -> list[Item]:
    """The items that `ids` mean, all when there are none. History outlives its item, so removed
    items count too.
    """
    if not ids:
        return [
            record_of(Item, row)
            for number in range(board.shards)
            async for row in board.table.scan(
                board.shard(number), keys.ITEM, keys.end_of(keys.ITEM)
            )
        ]
    found: dict[str, Item] = {}
    for pattern in ids:
        one = await board.item(check_id(pattern))
        if one is not None:
            found[one.id] = one
        elif exact or not is_glob(pattern):
            raise Missing(pattern)
        else:
            found |= {item.id: item for item in await select(board, [pattern])}
    return list(found.values())


def last_heard(item: Item) -> datetime:
    """The latest moment at which an item's newest run can have stopped or been taken over. The item
    of an id that was added again does not have the end of its earlier life.
    """
    if item.born and item.stop is None:
        return ANY_TIME
    started = item.start if item.running or item.state is State.REMOVED else None
    return max(item.stop or NEVER, started or NEVER)


def _age_order(run: Run) -> tuple[float, str, int]:
    """Newest first; runs that stopped at the same time by id and fence."""
    return -run.stop.timestamp(), run.id, -run.fence


async def _matching(runs: AsyncIterator[Run], query: RunQuery) -> list[Run]:
    found: list[Run] = []
    async for one in runs:
        if len(found) == query.limit:
            break
        if query.matches(one):
            found.append(one)
    return found
