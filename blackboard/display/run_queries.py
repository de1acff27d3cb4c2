"""Finds the newest runs of items without reading the whole history."""

import asyncio
import math
import re
from bisect import insort
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter

from blackboard.clock import Clock
from blackboard.display.item_queries import select
from blackboard.errors import BadInput
from blackboard.model import LONG_AGO, Item, Outcome, Run, State
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.next_run import is_ahead
from blackboard.tasks import in_thread

ANY_TIME = datetime.max.replace(tzinfo=UTC)
AT_ONCE = 16
"""Items whose runs are read at a time."""

RunsOf = Callable[[Item], AsyncIterator[Run]]
RunCursor = tuple[float, str, int]
"""The place of a run in a list, as `cursor_of` has it: places compare as the runs are listed."""
ListedRun = tuple[RunCursor, Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    outcomes: Collection[Outcome] = ()
    """A run matches if it has any of them; all runs match if there are none."""
    types: Collection[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    """Runs stopped in between, both included."""
    begun_by: datetime | None = None
    """Runs started by then."""
    after: RunCursor | None = None
    """Runs that follow this place in the list."""
    pattern: re.Pattern[str] | None = None
    """Must be found in the result, the error, the output, a warning or a line of the log."""

    @property
    def selects(self) -> bool:
        """Whether any of its conditions may leave out runs."""
        times = self.since or self.until or self.begun_by or self.after
        return bool(self.outcomes or self.types or times or self.pattern)

    @property
    def begins(self) -> float:
        """The time, as a timestamp, of the newest runs that may match."""
        times = [moment for moment in (self.until, self.begun_by, ANY_TIME) if moment]
        after = [] if self.after is None else [-self.after[0]]
        return min([*after, *(moment.timestamp() for moment in times)])

    def matches(self, run: Run) -> bool:
        if self.outcomes and run.outcome not in self.outcomes:
            return False
        if (self.since and run.stop < self.since) or (self.until and run.stop > self.until):
            return False
        if self.begun_by and run.start > self.begun_by:
            return False
        logged = (line.text for line in run.log)
        texts = (run.result, run.error, run.output, *run.warnings, *logged)
        return self.pattern is None or any(map(self.pattern.search, texts))


async def newest_runs(
    board: BoardTable,
    items: Iterable[Item],
    query: RunQuery,
    *,
    limit: int,
    runs_of: RunsOf | None = None,
    longest: float = math.inf,
) -> tuple[list[ListedRun], RunCursor | None]:
    """The newest `limit` runs of `items` that match, by when they stopped; those of one item in the
    order of their fences (`_listed`). The items that have run since the newest run that may match
    are read too. That may take `longest` seconds; it raises BadInput where it takes longer. After
    as many seconds more the search is cut: then these are the runs up to the place that is returned
    with them, else None, and the next search goes on there.

    Items are read in the order of their latest runs, and reading stops when no other item can have
    a newer run than those found. A late run, which ended after its item had moved on, is found with
    the others of its item. `runs_of` reads the runs of an item, the newest first, where that is not
    to be the whole history.
    """
    read = runs_of or (lambda item: board.runs(item.id))
    now = await board.table.now()
    in_turn = iter(await in_thread(_in_turn, [*items], query, now))
    newest: list[ListedRun] = []
    search_time = _SearchTime(board.clock, longest, begins=query.begins)
    at_once = 1
    while next_items := [*islice(in_turn, at_once)]:
        if len(newest) == limit:
            (stop, _, _), _ = newest[-1]
            next_items = [item for item in next_items if _latest(item, now).timestamp() >= -stop]
        if not next_items:
            break
        latest = _latest(next_items[0], now).timestamp()
        if search_time.is_over(latest):
            place = (-latest, "", 0)
            return [(cursor, run) for cursor, run in newest if cursor < place], place
        at_once = min(2 * at_once, AT_ONCE)
        for listed in await _matching(next_items, query, read, now=now, limit=limit):
            if len(newest) < limit or listed[0] < newest[-1][0]:
                insort(newest, listed, key=itemgetter(0))
                del newest[limit:]
    return newest, None


class _SearchTime:
    """The time that a search takes: `longest` seconds for the items that have run since the newest
    run that may match, and as many for the others.
    """

    def __init__(self, clock: Clock, longest: float, *, begins: float) -> None:
        self._clock = clock
        self._longest = longest
        self._begins = begins
        self._until = clock.monotonic() + longest
        self._is_beyond = False
        """Whether the search has come to the others."""

    def is_over(self, latest: float) -> bool:
        """Whether the search is to be cut before the items whose latest runs are of that time.
        Raises BadInput where it is to be cut before it has come to any run that may match.
        """
        if latest < self._begins and not self._is_beyond:
            self._until, self._is_beyond = self._clock.monotonic() + self._longest, True
            return False
        if self._clock.monotonic() < self._until:
            return False
        if not self._is_beyond:
            problem = f"more items have run since then than are read in {self._longest:g} seconds"
            raise BadInput("runs", problem, "choose an item or a type, or a later time")
        return True


async def items_with_history(
    board: BoardTable, ids: Sequence[str], *, exact: bool = False
) -> list[Item]:
    """The items that `ids` mean, all when there are none. History outlives its item, so removed
    items count too.
    """
    if not ids:
        return [item async for item in board.items(removed=True)]
    return await select(board, ids, exact=exact, removed=True)


def last_heard(item: Item) -> datetime:
    """The latest moment at which an item's newest run can have stopped or been taken over. The item
    of an id that was added again does not have the end of its earlier life.
    """
    if item.born and item.stop is None:
        return ANY_TIME
    started = item.start if item.running or item.state is State.REMOVED else None
    return max(item.stop or LONG_AGO, started or LONG_AGO)


def cursor_of(run: Run, stop: datetime) -> RunCursor:
    """The place of a run that is listed as if it had stopped then: the newest is first; runs that
    stopped together go by id and fence.
    """
    return -stop.timestamp(), run.id, -run.fence


def _latest(item: Item, now: datetime) -> datetime:
    """As `last_heard`; of an item that was heard of in the future it is not known."""
    moment = last_heard(item)
    return ANY_TIME if is_ahead(moment, now=now) else moment


def _in_turn(items: Iterable[Item], query: RunQuery, now: datetime) -> list[Item]:
    """The items that may have runs that match, in the order of their latest runs. Of few items all
    are read: a late run may have stopped after its item was heard of last.
    """
    items = [*items]
    since = (query.since or LONG_AGO) if len(items) > AT_ONCE else LONG_AGO
    chosen = [
        item
        for item in items
        if (not query.types or item.type in query.types) and LONG_AGO != last_heard(item) >= since
    ]
    return sorted(chosen, key=lambda item: _latest(item, now), reverse=True)


async def _matching(
    items: Iterable[Item], query: RunQuery, read: RunsOf, *, now: datetime, limit: int
) -> list[ListedRun]:
    """The runs of some items that match: of each item the newest."""

    async def of(item: Item) -> list[ListedRun]:
        matching: list[ListedRun] = []
        async for listed in _listed(read(item), now=now, heard=_latest(item, now)):
            if len(matching) == limit:
                break
            cursor, run = listed
            if query.matches(run) and (query.after is None or cursor > query.after):
                matching.append(listed)
        return matching

    return [run for runs in await asyncio.gather(*map(of, items)) for run in runs]


async def _listed(
    runs: AsyncIterator[Run], *, now: datetime, heard: datetime
) -> AsyncIterator[ListedRun]:
    """The runs of an item, the highest fence first, with their places, which have the same order: a
    run that stopped later than the next one is listed with that, and one that stopped in the
    future, by a clock that was wrong, with the one before it. Such a run hides no other. A late run
    is listed no later than its item was `heard` of, by which items are read in turn.
    """
    ahead, stop = list[Run](), ANY_TIME
    async for run in runs:
        ahead.append(run)
        if run.outcome is Outcome.SUPERSEDED:
            stop = min(stop, heard)
        if not is_ahead(run.stop, now=now):
            stop = min(stop, run.stop)
            for waiting in ahead:
                yield cursor_of(waiting, stop), waiting
            ahead.clear()
    for waiting in ahead:
        yield cursor_of(waiting, LONG_AGO), waiting
