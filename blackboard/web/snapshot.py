"""The items of a board in memory, kept up to date while a page is open: one reader for all viewers.

A store has no query for "the failed ones, by name". So the items are read once, and then what has
changed. How that is found depends on what a full reading takes:

    a small board    all items are read again, each time
    a large board    locks and due tokens are read, as a worker's walk reads them, and the record of
                     what people did. They show what began, ended, came due or was changed since the
                     last look; those items alone are read. All items are read again now and then,
                     for what leaves no such trace: an item that is new and not due

If more items have changed than one look may read, the next full reading is made early; until then
each look reads some of the changed items.

A look takes a fifth of the time at the most, where the store does not answer half of it, a full
reading of a large board a twentieth. Nothing is read while no page is open. What is shown carries
the time at which it was read; it decides nothing.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TypeVar

from blackboard.errors import BadRow, BlackboardError
from blackboard.model import Action, Item, Lock, Mark, Member, State, Token
from blackboard.protocol.actions import actions
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import workers
from blackboard.rules.status import STATES, ItemStatus, status_of
from blackboard.spec import Labels
from blackboard.table import TableError, Unavailable, Unusable
from blackboard.tasks import cancel_all, in_turns

_log = logging.getLogger("blackboard.web")
T = TypeVar("T")
LOOK_EVERY = 1.0
"""Seconds between two looks, at the least."""
SHARE_OF_A_LOOK, SHARE_OF_A_READING = 5, 20
"""A look, and a full reading, may take the time once in so many."""
QUICK = 0.05
"""Seconds of a full reading that replaces all looks."""
SMALL = 200
"""Items that are always read whole: on a busy machine that takes longer than `QUICK` at times."""
MOST_ACTIONS = 50
"""Actions that a look reads; where there are more new ones, all items are read."""
READ_EVERY = 30.0
"""Seconds between two full readings of a large board, at the least, while looks read the rest."""
MOST_TRACES = 20_000
"""Locks and due tokens that a look reads; where there are more, all items are read now and then."""
MOST_CHANGES = 2_000
"""Items that a look reads; where more have changed, all are read when that may be."""
AT_ONCE = 32
"""Reads under way at a time."""
PART = 500
"""Items whose status is computed in one go; then others on the event loop have their turn."""

Trace = tuple[type[Lock | Token], int, datetime | None]
"""What shows of an item that is locked or due: which, the fence, and since when it is due."""

ReadItem = ItemStatus | Item | None
"""An item, a tombstone, or None: there is no row, or one that cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An item as it was read, and what it is found by."""

    status: ItemStatus
    labels: Labels
    states: frozenset[str]
    """All of `STATES` that hold."""
    text: str
    """What a search looks through, in lower case."""

    @property
    def item(self) -> Item:
        return self.status.item

    def facets(self) -> Iterator[tuple[str, str]]:
        """All that it is counted under."""
        for state in self.states:
            yield "state", state
        yield "type", self.item.type
        for tag in self.labels.tags:
            yield "tag", tag


def entry_of(status: ItemStatus, labels: Labels) -> Entry:
    item = status.item
    return Entry(
        status,
        labels,
        frozenset(state for state in STATES if status.has(state)),
        "\n".join((item.id, item.type, labels.description, labels.owner, *labels.tags)).lower(),
    )


class Snapshot:
    """The items of one board, by id."""

    def __init__(self, board: BoardTable) -> None:
        self.board = board
        self.entries: dict[str, Entry] = {}
        self.removed: dict[str, Item] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """Of items, by facet: ("state", "failed"), ("type", "feed"), ("tag", "eu")."""
        self.version = 0
        """Another one each time that something has changed."""
        self.changes_here = 0
        """How often viewers have changed items."""
        self.looks = 0
        """Looks that have ended."""
        self.at: datetime | None = None
        """The store's time at which it was read last; None: never."""
        self.problem: TableError | None = None
        self.paused: Mark | None = None
        self.present: Sequence[Member] = ()
        self._clock = board.clock
        self._ids: Sequence[str] | None = None
        self._traces: dict[str, Trace] = {}
        """What the last look saw of the items that were locked or due."""
        self._unread: set[str] = set()
        """Items that the next look reads, whatever shows of them. A look removes them before it
        reads them: one that is in here again when it has read it was changed meanwhile."""
        self._actions: AbstractSet[Action] = frozenset()
        """Those that the last look has read."""
        self._is_behind = False
        """Whether something has changed that only a full reading shows."""
        self._coming: list[tuple[datetime, str]] = []
        self._full_at = -READ_EVERY
        self._full_took = 0.0
        self._look_took = 0.0
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._viewers = 0
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def ids(self) -> Sequence[str]:
        if self._ids is None or len(self._ids) != len(self.entries):
            self._ids = sorted(self.entries)
        return self._ids

    def in_order(self) -> Iterator[Entry]:
        """All items, in the order of their ids."""
        return (self.entries[item_id] for item_id in self.ids)

    def get(self, item_id: str) -> Entry | Item | None:
        """An item, or its tombstone; None: there is neither."""
        return self.entries.get(item_id) or self.removed.get(item_id)

    @property
    def trouble(self) -> str:
        """Why the last look failed, in words; "": it did not."""
        return str(self.problem or "")

    @property
    def age(self) -> float:
        return self._clock.monotonic() - self._looked_at

    @property
    def is_old(self) -> bool:
        """Whether a page should say of when it is."""
        return self.age > READ_EVERY

    @property
    def _is_small(self) -> bool:
        """Whether each look reads all items."""
        return self._full_took <= QUICK or len(self.entries) <= SMALL

    @property
    def _share(self) -> int:
        """How many times as long as the last look the next pause is. A store that did not answer
        may be back soon; with any other problem, as where it is busy, it is spared.
        """
        is_away = isinstance(self.problem, Unavailable) and not isinstance(self.problem, Unusable)
        return 1 if is_away else SHARE_OF_A_LOOK

    # ---- being looked at

    async def fresh(self, *, oldest: float = float("inf")) -> None:
        """Wait until it is as new as a look every so often makes it. A large board that was read
        within `oldest` seconds is not waited for: what is there is shown with its age, and read
        again meanwhile. Raises TableError where nothing could be read yet.
        """
        await self._renew(oldest)
        if self.at is None and self.problem is not None:
            raise copy(self.problem)

    async def _renew(self, oldest: float) -> None:
        if self._viewers and self.at is not None and not self.trouble:
            return
        if self.age < max(LOOK_EVERY, self._look_took):
            return
        if self.at is None or self._is_small or self.age > oldest:
            await self.look(since=self.looks)
        elif self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    @contextlib.asynccontextmanager
    async def viewed(self) -> AsyncIterator[None]:
        """Keep it up to date meanwhile."""
        self._viewers += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._viewers -= 1

    async def change(self, *, since: int, within: float) -> None:
        """Wait until the version is another one than `since`, or for so many seconds."""
        if self.version == since:
            changed = self._changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await changed.wait()

    async def _watch(self) -> None:
        """Looks once, and again as long as there are viewers."""
        try:
            await self.look()
            while self._viewers:
                await self._clock.sleep(max(LOOK_EVERY, self._share * self._look_took))
                if self._viewers:
                    await self.look()
        finally:
            self._watching = None

    async def close(self) -> None:
        if self._watching is not None:
            await cancel_all([self._watching])

    # ---- looking

    async def look(self, *, since: int | None = None) -> None:
        """Read what has changed. What the store does not answer is kept as `problem`. `since` is
        how many looks had ended: a caller who has waited for another one needs no more.
        """
        async with self._looking:
            if since is not None and self.looks != since:
                return
            began = self._clock.monotonic()
            before = self.version
            try:
                await self._look(began)
                await self._look_around()
                self._has(None)
            except (BlackboardError, TableError) as problem:
                self._has(problem)
            except Exception as problem:  # noqa: BLE001 - the next look may succeed
                fault = f"a fault of the server, which is in its log: {problem!r}"
                if fault != self.trouble:
                    _log.exception("the board cannot be read")
                self._has(TableError(fault))
            self._looked_at = self._clock.monotonic()
            self.looks += 1
            if self._is_small or self._full_at < began:  # else the next look is no such reading
                self._look_took = self._looked_at - began
            self._announce(since=before)

    async def _look_around(self) -> None:
        """Read what is not an item: the workers, and whether the board is paused."""
        was = self.paused, [(worker.owner, worker.lost) for worker in self.present]
        self.paused = await paused_by(self.board)
        self.present = await workers(self.board)
        if was != (self.paused, [(worker.owner, worker.lost) for worker in self.present]):
            self.version += 1

    async def reread(self, ids: Iterable[str]) -> None:
        """Read some items now: they were changed by a viewer, who does not wait for a look that is
        under way. What the store does not answer is kept as `problem`: they are changed.
        """
        before, ids = self.version, set(ids)
        self._unread |= ids
        try:
            self._put_all(await self._read(ids, {}, await self.board.table.now()))
        except (BlackboardError, TableError) as problem:
            self._has(problem)
        self.changes_here += 1
        self._unread |= ids  # a look may have read them later than this, and put them before
        self._announce(since=before)

    def _has(self, problem: BlackboardError | TableError | None) -> None:
        """Keep why the board cannot be read; None: it can be."""
        was = self.trouble
        if isinstance(problem, BlackboardError):
            problem = TableError(str(problem))
        self.problem = copy(problem)  # which refers to nothing of what was read until then
        self.version += self.trouble != was

    def _announce(self, *, since: int) -> None:
        """Wake those that wait for another version, if there is one."""
        if self.version != since:
            self._changed.set()
            self._changed = asyncio.Event()

    async def _look(self, began: float) -> None:
        if self._is_small and self.at is not None:
            await self._read_all(began)
            return
        acted = frozenset(await actions(self.board, limit=MOST_ACTIONS))
        now = await self.board.table.now()
        locks, traces = await self._walk(now)
        self._note(acted, traces, now)
        rest = SHARE_OF_A_READING * self._full_took
        if not (self._is_behind or len(self._unread) > MOST_CHANGES):
            rest = max(READ_EVERY, rest)
        if began - self._full_at >= rest:
            await self._read_all(began)
            self._traces, self._is_behind = traces or {}, False
            return
        if traces is None:
            return  # too many are due: the next full reading shows them
        unchanged = traces.keys() - self._unread
        with self._taken_out(set(islice(self._unread, MOST_CHANGES))) as changed:
            read = await self._read(changed, locks, now)
        read |= await self._aged(unchanged, locks, now)
        self._put_all({item_id: read[item_id] for item_id in read.keys() - self._unread})
        self.at = now

    @contextlib.contextmanager
    def _taken_out(self, ids: set[str]) -> Iterator[set[str]]:
        """Items that are read meanwhile; what could not be read is read by the next look."""
        self._unread -= ids
        try:
            yield ids
        except BaseException:
            self._unread |= ids
            raise

    def _note(
        self, acted: AbstractSet[Action], traces: dict[str, Trace] | None, now: datetime
    ) -> None:
        """The items that have changed count as unread."""
        new, self._actions = acted - self._actions, acted
        are_named = all(
            len(change.ids) == change.count and change.verb != "rename" for change in new
        )
        self._is_behind |= len(new) == MOST_ACTIONS or not are_named
        self._unread |= {item_id for change in new for item_id in change.ids}
        if traces is not None:
            was, self._traces = self._traces, traces
            either = traces.keys() | was.keys()
            self._unread |= {
                item_id for item_id in either if traces.get(item_id) != was.get(item_id)
            }
            while self._coming and self._coming[0][0] <= now:
                ready, due_id = heappop(self._coming)
                entry = None if due_id in traces else self.entries.get(due_id)
                if entry is not None and entry.status.waiting and entry.item.ready == ready:
                    self._unread.add(due_id)  # it came due and is taken, or put off, since

    async def _walk(self, now: datetime) -> tuple[dict[str, Lock], dict[str, Trace] | None]:
        """The locks, and what shows of each item that is locked or due; None: it is too much."""
        locks: dict[str, Lock] = {}
        traces: dict[str, Trace] = {}
        for number in range(self.board.shards):
            async for token_or_lock in self.board.walk(number, until=now):
                if isinstance(token_or_lock, Token):
                    traces[token_or_lock.id] = Token, token_or_lock.fence, token_or_lock.ready
                else:
                    locks[token_or_lock.id] = token_or_lock
                    traces[token_or_lock.id] = Lock, token_or_lock.fence, None
                if len(traces) > MOST_TRACES:
                    return locks, None
        return locks, traces

    async def _read(
        self, ids: set[str], locks: Mapping[str, Lock], now: datetime
    ) -> dict[str, ReadItem]:
        items: dict[str, ReadItem] = {}

        async def read(item_id: str) -> None:
            items[item_id] = await self._read_one(item_id, locks.get(item_id), now)

        await in_turns(deque(ids), read, at_once=AT_ONCE)
        return items

    async def _read_one(self, item_id: str, lock: Lock | None, now: datetime) -> ReadItem:
        item = await _readable(self.board.item(item_id))
        if item is None or item.state is State.REMOVED:
            return item
        if lock is None and item.running:
            lock = await _readable(self.board.lock(item_id))
        return status_of(item, lock, now=now, resolution=self.board.table.resolution)

    async def _read_all(self, began: float) -> None:
        """Read all items. Raises Remade when the board was made anew with other shards."""
        with self._taken_out(set(self._unread)):
            await self.board.check_shards()
            every = [item async for item in self.board.items(removed=True, pause=_others)]
            removed = {item.id: item for item in every if item.state is State.REMOVED}
            items = {item.id: item for item in every if item.state is not State.REMOVED}
            locks: dict[str, Lock] = {}
            if any(item.running for item in items.values()):
                locks = {lock.id: lock async for lock in self.board.locks()}
            now, resolution = await self.board.table.now(), self.board.table.resolution
        late = {item_id: item for item_id, item in self.removed.items() if item_id in self._unread}
        self.removed = late | {
            item_id: removed[item_id] for item_id in removed.keys() - self._unread
        }
        for gone in self.entries.keys() - items.keys() - self._unread:
            self._remove(gone)
        for number, item in enumerate(items.values()):
            if number % PART == PART - 1:
                await _others()
            if item.id not in self._unread:
                self._put(status_of(item, locks.get(item.id), now=now, resolution=resolution))
        present = [entry.item for entry in self.entries.values()]
        self._coming = [(item.ready, item.id) for item in present if item.waits]
        heapify(self._coming)
        self._full_at = self._clock.monotonic()
        self._full_took = self._full_at - began
        self.at = now

    def _put_all(self, read: Mapping[str, ReadItem]) -> None:
        for item_id, item in read.items():
            if isinstance(item, ItemStatus):
                self._put(item)
                continue
            self._remove(item_id)
            if item is not None:
                self.removed[item_id] = item

    def _put(self, status: ItemStatus) -> None:
        item = status.item
        self.removed.pop(item.id, None)
        was = self.entries.get(item.id)
        if was is not None and _shown(was.status) == _shown(status):
            return
        entry = entry_of(status, self.board.labels(item))
        if was is None:
            self._ids = None
        else:
            self._uncount(was)
        self.counts.update(entry.facets())
        self.entries[item.id] = entry
        if item.waits:
            heappush(self._coming, (item.ready, item.id))
        self.version += 1

    def _remove(self, item_id: str) -> None:
        was = self.entries.pop(item_id, None)
        if was is not None:
            self._uncount(was)
            self._ids = None
            self.version += 1

    def _uncount(self, entry: Entry) -> None:
        """Counts an item no longer. A tag or a type may be that of one item, and not come again."""
        self.counts.subtract(entry.facets())
        for facet in entry.facets():
            if not self.counts[facet]:
                del self.counts[facet]

    async def _aged(
        self, ids: Iterable[str], locks: Mapping[str, Lock], now: datetime
    ) -> dict[str, ReadItem]:
        """Items that were not written become overdue, their locks stale; runs make progress."""
        resolution = self.board.table.resolution
        aged: dict[str, ReadItem] = {}
        for number, item_id in enumerate(ids):
            if number % PART == PART - 1:
                await _others()
            if (entry := self.entries.get(item_id)) is not None:
                lock = locks.get(item_id)
                aged[item_id] = status_of(entry.item, lock, now=now, resolution=resolution)
        return aged


def _shown(status: ItemStatus) -> tuple[object, ...]:
    """What pages show of an item, but for the age of its lock."""
    lock = status.lock
    progress = None if lock is None else lock.progress
    return status.stale, status.overdue, lock is None, progress, status.item


async def _readable(read: Awaitable[T | None]) -> T | None:
    """What is read; None also for a row that cannot be: all others are shown, and `doctor` names
    it.
    """
    try:
        return await read
    except BadRow:
        return None


async def _others() -> None:
    """Let others on the event loop have their turn."""
    await asyncio.sleep(0)
