"""Selects items and runs of a board, and sorts them.

Items are named by ids and globs, several of each. An argument that is the id of an item means that
item, even if it looks like a glob. Otherwise `*`, `?` and `[a-z]` make a glob, which must match at
least one item; `tag:NAME`, `owner:NAME` and `type:NAME` mean the items that have it, `state:NAME`
those in a state. With `exact` every argument is an id. The newest runs of items are found without
reading the whole history.
"""

import asyncio
import math
import re
from bisect import insort
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from msgspec import Struct

from blackboard.errors import BadInput, BadRow, Missing, NoneInState
from blackboard.inputs import check_id, check_state
from blackboard.model import LONG_AGO, Item, Lock, Mark, Outcome, Run, State, Statistics, Token
from blackboard.patterns import beginning_of, is_glob, is_label, matches, state_in
from blackboard.protocol import keys
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import lost_since, with_silence, workers
from blackboard.protocol.status import BoardStatus, read_statistics, read_status
from blackboard.rules.due import is_stale
from blackboard.rules.next_run import is_ahead
from blackboard.rules.status import OVERDUE_AFTER, ItemStatus, counts_of, is_current
from blackboard.spec import Labels
from blackboard.tasks import in_thread

# ---- the items of a command


async def select(
    board: BoardTable,
    patterns: Sequence[str],
    *,
    exact: bool = False,
    removed: bool = False,
    damaged: bool = False,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> list[Item]:
    """The items that `patterns` mean, each once, in the order of the patterns and, within a glob,
    of the board; with `removed` also those that were removed; with `damaged` a stand-in for each
    that is named and whose row cannot be read. Raises BadInput when one of the patterns means
    nothing, BadRow for one that is damaged. States that no item is in are passed over; raises
    NoneInState where nothing is left.
    """
    chosen: dict[str, Item] = {}
    read: dict[str, list[Item]] = {}
    unmatched = ""
    for pattern in patterns:
        item = await _item_named(board, pattern, removed=removed, damaged=damaged)
        if item is not None:
            meant = [item]
        elif exact or not is_glob(pattern):
            raise Missing(pattern)
        elif state := state_in(pattern):
            query = ItemQuery(states=[check_state(state)], overdue=overdue_after)
            meant = [status.item for status in (await query.read(board)).items]
            unmatched = unmatched if meant else state
        else:
            meant = await _items_like(board, pattern, read, removed=removed)
        for item in meant:
            chosen.setdefault(item.id, item)
    if unmatched and not chosen:
        raise NoneInState(unmatched)
    return list(chosen.values())


async def _item_named(
    board: BoardTable, item_id: str, *, removed: bool, damaged: bool
) -> Item | None:
    try:
        item = await board.item(check_id(item_id))
    except BadRow:
        if not damaged:
            raise
        return await board.stand_in(item_id)
    is_removed = item is not None and item.state is State.REMOVED
    return None if is_removed and not removed else item


async def _items_like(
    board: BoardTable, pattern: str, read: dict[str, list[Item]], *, removed: bool
) -> list[Item]:
    """The items that a glob or a label means; `read` are those that were read, by the beginning of
    their ids.
    """
    beginning = beginning_of(pattern)
    if beginning not in read:
        items = board.items(removed=removed, beginning=beginning)
        read[beginning] = [item async for item in items]
    matched = [
        item
        for item in read[beginning]
        if matches(pattern, item_id=item.id, item_type=item.type, labels=board.labels(item))
    ]
    if not matched:
        raise BadInput("id", f"no item matches {pattern!r}", "`blackboard show` lists them")
    return matched


async def read_selected(
    board: BoardTable,
    patterns: Sequence[str] = (),
    *,
    exact: bool = False,
    may_be_none: bool = False,
    overdue_after: timedelta = OVERDUE_AFTER,
) -> BoardStatus:
    """The status of the items that `patterns` mean, of all when there are none. Where no item is in
    a state, that of none, if there `may_be_none`; else raises NoneInState.
    """
    items: list[Item] | None = None
    try:
        if patterns:
            items = await select(board, patterns, exact=exact, overdue_after=overdue_after)
    except NoneInState:
        if not may_be_none:
            raise
        items = []
    return await read_status(board, items, overdue_after=overdue_after)


LARGE = 1_000
"""The size of a board, in items, above which only the items that are shown are read, if its
statistics are current."""
SEEN_BY_WORKERS = {"running", "stale", "overdue"}
"""States that are found from the locks and due tokens alone, without reading items."""
SORTS: dict[str, Callable[[ItemStatus], Any]] = {
    "id": lambda status: status.item.id,
    "type": lambda status: status.item.type,
    "schedule": lambda status: status.item.schedule,
    "state": lambda status: status.item.state,
    "start": lambda status: status.item.start,
    "stop": lambda status: status.item.stop,
    "outcome": lambda status: status.item.outcome,
    "next": lambda status: status.item.ready if status.waiting else None,
    "worker": lambda status: status.item.owner or None,
    "failures": lambda status: status.item.failures,
    "runs": lambda status: status.item.runs,
}
"""Keys to sort by. An item whose key is None comes last."""
Thing = TypeVar("Thing")


def in_order(things: Sequence[Thing], key: Callable[[Thing], Any], *, reverse: bool) -> list[Thing]:
    """Sorted by a key; what has none comes last."""
    have = [thing for thing in things if key(thing) is not None]
    # Not pairs of a key and a thing: 100,000 new tuples would start a collection of garbage, which
    # takes longer than the sort.
    have.sort(key=key, reverse=reverse)
    return have + [thing for thing in things if key(thing) is None]


class ItemQuery(Struct, frozen=True, kw_only=True):
    """Which items to show, and in which order."""

    ids: Sequence[str] = ()
    exact: bool = False
    may_be_none: bool = False
    """Whether it finds none where no item is in a state of `ids`; else `read` raises NoneInState.
    """
    types: Sequence[str] = ()
    states: Sequence[str] = ()
    """An item matches if it is in any of them; all items match if there are none."""
    words: Sequence[str] = ()
    """Each is a part of the id, in any case of its letters, or a pattern of the item."""
    sort: str = "id"
    reverse: bool = False
    overdue: timedelta = OVERDUE_AFTER

    async def read(self, board: BoardTable, *, limit: int | None = None) -> "ItemsFound":
        """The first `limit` items that match. On a large board no others are read, where their keys
        can be computed; the summary then has the numbers of the board's statistics.
        """
        counted = await self._counted(board)
        few = None if counted is None else await self._few(board, counted, limit)
        if counted is not None and few is not None:
            items, left = few
            read = await read_status(board, items, overdue_after=self.overdue)
            shown, total = self.chosen(read.statuses), counted.items
        else:
            read = await read_selected(
                board,
                self.ids,
                exact=self.exact,
                may_be_none=self.may_be_none,
                overdue_after=self.overdue,
            )
            chosen = self.chosen(read.statuses)
            for word in self.words:
                chosen = [status for status in chosen if _has_word(board, status.item, word)]
            shown, left = chosen[:limit], len(chosen[limit:]) if limit is not None else 0
            counted, total = counts_of(chosen, now=read.now), len(read.statuses)
        present = await workers(board) if any(status.running for status in shown) else ()
        lost = lost_since(present)
        return ItemsFound(
            items=[with_silence(status, lost) for status in shown],
            left=left,
            now=read.now,
            counted=counted,
            total=total,
            paused=await paused_by(board),
            held=bool(keys.group_of(board.name)),
        )

    async def _counted(self, board: BoardTable) -> Statistics | None:
        """The statistics of a large board; None where they do not replace reading its items."""
        if (
            self.ids
            or self.words
            or self.reverse
            or self.sort != "id"
            or self.overdue != OVERDUE_AFTER
        ):
            return None
        return await _statistics_if_large(board)

    async def _few(
        self, board: BoardTable, counted: Statistics, limit: int | None
    ) -> tuple[list[Item], int] | None:
        """The items to read of a large board, and how many more match; None: all of them."""
        if self.states and set(self.states) <= SEEN_BY_WORKERS:
            ids = sorted({row.id async for row in self._held_or_late(board)})
            if len(ids[:limit]) > LARGE:
                return None
            try:
                items = [await board.item(item_id) for item_id in ids[:limit]]
            except BadRow:
                return None  # to read all passes over it, and says so
            return [item for item in items if item is not None], len(ids) - len(items)
        if self.states or self.types or limit is None or limit >= counted.items:
            return None
        first = await first_items(board, limit)
        if len(first) < limit:
            return None  # the board has lost items since they were counted
        return first, counted.items - limit

    async def _held_or_late(self, board: BoardTable) -> AsyncIterator[Lock | Token]:
        """The locks and the tokens of the items that are in one of the states."""
        until = await board.table.now() - self.overdue
        for number in range(board.shards):
            async for row in board.walk(number, until=until):
                if self.types and row.type not in self.types:
                    continue
                if isinstance(row, Token):
                    is_shown = "overdue" in self.states and row.ready < until
                elif "running" in self.states:
                    is_shown = True
                else:
                    is_late = is_stale(row, resolution=board.table.resolution)
                    is_shown = "stale" in self.states and is_late
                if is_shown:
                    yield row

    def chosen(self, statuses: Sequence[ItemStatus]) -> list[ItemStatus]:
        """The items that match, sorted."""
        chosen = [
            status
            for status in statuses
            if (not self.types or status.item.type in self.types)
            and (not self.states or any(status.has(state) for state in self.states))
        ]
        return in_order(chosen, SORTS[self.sort], reverse=self.reverse)


def _has_word(board: BoardTable, item: Item, word: str) -> bool:
    if not is_glob(word) or word.casefold() in item.id.casefold():
        return word.casefold() in item.id.casefold()
    labels = board.labels(item) if is_label(word) else Labels()
    return matches(word, item_id=item.id, item_type=item.type, labels=labels)


class ItemsFound(Struct, frozen=True, kw_only=True):
    items: Sequence[ItemStatus]
    left: int
    """The number of items that match and are not in `items`."""
    now: datetime
    counted: Statistics
    """Of all items that match; or, where not all were read, the coordinator's of the board."""
    total: int
    """The number of items among which the query searched."""
    paused: Mark | None = None
    held: bool = False
    """Whether these are partitions or elections, which have no schedule."""


async def _statistics_if_large(board: BoardTable) -> Statistics | None:
    """The statistics of a large board; None: it is small, or was not counted lately."""
    counted = await read_statistics(board)
    if counted is None or counted.items <= LARGE:
        return None
    return counted if is_current(counted, now=await board.table.now()) else None


async def soonest_items(board: BoardTable, limit: int) -> tuple[list[Item], str] | None:
    """The items of a large board that run, and the first `limit` of those that wait; and a key, up
    to which the tokens are those of these items. None where all items are to be read: the board is
    small, or more than `limit` run, each of which would take a request.
    """
    if limit > LARGE or await _statistics_if_large(board) is None:
        return None
    running = set[str]()
    async for lock in board.locks():
        running.add(lock.id)
        if len(running) > limit:
            return None
    tokens: list[tuple[str, str]] = []
    for number in range(board.shards):
        rows = board.table.scan(board.shard(number), keys.NEXT, keys.end_of(keys.NEXT), limit)
        tokens += [(row.key, str(row.data.get("item"))) async for row in rows]
    first = sorted(tokens)[:limit]
    items = list[Item]()
    for item_id in running | {item_id for _, item_id in first}:
        with suppress(BadRow):  # `check` reports it
            items += filter(None, [await board.item(item_id)])
    return items, first[-1][0] if len(first) == limit else keys.end_of(keys.NEXT)


async def first_items(board: BoardTable, limit: int, *, beginning: str = "") -> list[Item]:
    """The first items of a board whose ids begin so."""
    items: list[Item] = []
    for number in range(board.shards):
        of_shard = 0
        async for item in board.items_and_tombstones(number, beginning=beginning):
            if item.state is not State.REMOVED and item.id.startswith(beginning):
                items.append(item)
                of_shard += 1
            if of_shard == limit:
                break
    return sorted(items, key=lambda item: item.id)[:limit]


# ---- the newest runs

ANY_TIME = datetime.max.replace(tzinfo=UTC)
AT_ONCE = 16
"""Items whose runs are read at a time."""

RunsOf = Callable[[Item], AsyncIterator[Run]]
RunCursor = tuple[float, str, int]
"""The place of a run in a list, as `cursor_of` has it: places compare as the runs are listed."""
ListedRun = tuple[RunCursor, Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to show."""

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
    until, is_there = board.clock.monotonic() + longest, False
    at_once = 1
    while next_items := [*islice(in_turn, at_once)]:
        if len(newest) == limit:
            (stop, _, _), _ = newest[-1]
            next_items = [item for item in next_items if _latest(item, now).timestamp() >= -stop]
        if not next_items:
            break
        latest = _latest(next_items[0], now).timestamp()
        if latest < query.begins and not is_there:
            until, is_there = board.clock.monotonic() + longest, True
        elif board.clock.monotonic() >= until:
            if not is_there:
                problem = f"more items have run since then than are read in {longest:g} seconds"
                raise BadInput("runs", problem, "choose an item or a type, or a later time")
            place = (-latest, "", 0)
            return [(cursor, run) for cursor, run in newest if cursor < place], place
        at_once = min(2 * at_once, AT_ONCE)
        for listed in await _matching(next_items, query, read, now=now, limit=limit):
            if len(newest) < limit or listed[0] < newest[-1][0]:
                insort(newest, listed, key=itemgetter(0))
                del newest[limit:]
    return newest, None


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
