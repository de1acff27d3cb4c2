"""Selects items of a board, and sorts them.

Items are named by ids and globs, several of each. An argument that is the id of an item means that
item, even if it looks like a glob. Otherwise `*`, `?` and `[a-z]` make a glob, which must match at
least one item; `tag:NAME`, `owner:NAME` and `type:NAME` mean the items that have it, `state:NAME`
those in a state. With `exact` every argument is an id.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from blackboard.errors import BadInput, BadRow, Missing, NoneInState
from blackboard.inputs import check_id, check_state
from blackboard.model import Item, Lock, Mark, State, Statistics, Token
from blackboard.patterns import beginning_of, is_glob, is_label, matches, state_in
from blackboard.protocol import keys
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import lost_since, with_silence, workers
from blackboard.protocol.status import BoardStatus, read_status, statistics_if_large
from blackboard.rules.due import is_stale
from blackboard.rules.status import OVERDUE_AFTER, STATES, ItemStatus, counts_of
from blackboard.spec import Labels


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
    states = [state for state in map(state_in, patterns) if state in STATES]
    reading = _Reading(board, removed=removed, states=states, overdue_after=overdue_after)
    chosen: dict[str, Item] = {}
    unmatched = ""
    for pattern in patterns:
        item = await _item_named(board, pattern, removed=removed, damaged=damaged)
        if item is not None:
            meant = [item]
        elif exact or not is_glob(pattern):
            raise Missing(pattern)
        elif state := state_in(pattern):
            meant = await reading.in_state(check_state(state))
            unmatched = unmatched if meant else state
        else:
            meant = await reading.like(pattern)
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


class _Reading:
    """What is read for several patterns: the items in their states once for all, and those that
    begin as a glob does once for all such globs.
    """

    def __init__(
        self, board: BoardTable, *, removed: bool, states: Sequence[str], overdue_after: timedelta
    ) -> None:
        self._board = board
        self._removed = removed
        self._in_states = ItemQuery(states=states, overdue=overdue_after)
        self._statuses: Sequence[ItemStatus] | None = None
        """Of the items in any of the states; None: they were not read."""
        self._by_beginning: dict[str, list[Item]] = {}
        """The items that were read, by the beginning of their ids."""

    async def in_state(self, state: str) -> list[Item]:
        if self._statuses is None:
            self._statuses = (await self._in_states.read(self._board)).items
        return [status.item for status in self._statuses if status.has(state)]

    async def like(self, pattern: str) -> list[Item]:
        """The items that a glob or a label means. Raises BadInput where it means none."""
        beginning = beginning_of(pattern)
        if beginning not in self._by_beginning:
            items = self._board.items(removed=self._removed, beginning=beginning)
            self._by_beginning[beginning] = [item async for item in items]
        matched = [
            item
            for item in self._by_beginning[beginning]
            if matches(
                pattern, item_id=item.id, item_type=item.type, labels=self._board.labels(item)
            )
        ]
        if not matched:
            raise BadInput("id", f"no item matches {pattern!r}", "`blackboard show` lists them")
        return matched


async def read_selected(
    board: BoardTable, patterns: Sequence[str], *, exact: bool, overdue_after: timedelta
) -> BoardStatus:
    """The status of the items that `patterns` mean, of all when there are no patterns; of none
    where no item is in the states that they ask for.
    """
    if not patterns:
        return await read_status(board, overdue_after=overdue_after)
    items: Sequence[Item] = ()
    with suppress(NoneInState):
        items = await select(board, patterns, exact=exact, overdue_after=overdue_after)
    return await read_status(board, items, overdue_after=overdue_after)


ONE_BY_ONE = 1_000
"""Items of a large board that are read one by one at the most, instead of all."""
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
        few = await self._few(board, limit)
        if few is not None:
            read = await read_status(board, few.items, overdue_after=self.overdue)
            shown, left = self.chosen(read.statuses), few.left
            counted, total = few.counted, few.counted.items
        else:
            read = await read_selected(
                board, self.ids, exact=self.exact, overdue_after=self.overdue
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

    async def _few(self, board: BoardTable, limit: int | None) -> "_Few | None":
        """The items to read of a large board; None: all of them."""
        is_plain = self.sort == "id" and self.overdue == OVERDUE_AFTER
        if self.ids or self.words or self.reverse or not is_plain:
            return None
        counted = await statistics_if_large(board)
        if counted is None:
            return None
        if self.states and set(self.states) <= SEEN_BY_WORKERS:
            ids = sorted({row.id async for row in self._held_or_late(board)})
            if len(ids[:limit]) > ONE_BY_ONE:
                return None
            try:
                items = [await board.item(item_id) for item_id in ids[:limit]]
            except BadRow:
                return None  # to read all passes over it, and says so
            there = [item for item in items if item is not None]
            return _Few(there, len(ids) - len(items), counted)
        if self.states or self.types or limit is None or limit >= counted.items:
            return None
        first = await first_items(board, limit)
        if len(first) < limit:
            return None  # the board has lost items since they were counted
        return _Few(first, counted.items - limit, counted)

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


class _Few(NamedTuple):
    """The items of a large board that are read."""

    items: list[Item]
    left: int
    """How many more match."""
    counted: Statistics


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


async def soonest_items(board: BoardTable, limit: int) -> tuple[list[Item], str] | None:
    """The items of a large board that run, and the first `limit` of those that wait; and a key, up
    to which the tokens are those of these items. None where all items are to be read: the board is
    small, or more than `limit` run, each of which would take a request.
    """
    if limit > ONE_BY_ONE or await statistics_if_large(board) is None:
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
