"""One board of a table: `BoardTable` reads its rows as records, and commits batches of changes.

A board has a name and a number of shards, fixed when it is made. An item is in the shard that its
id hashes to, with all rows that belong to it. The other modules of the protocol read and change a
board through this one.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import copy
from datetime import datetime
from typing import TypeVar

from blackboard.clock import Chance, Clock
from blackboard.errors import BadInput, BadRow, BlackboardError, Missing
from blackboard.model import (
    HIGHEST_FLOOR,
    NEVER,
    VERSION,
    Item,
    Lock,
    Mark,
    Run,
    State,
    Token,
    decoded_as,
)
from blackboard.protocol import keys
from blackboard.protocol.batches import overwriting
from blackboard.protocol.board_row import (
    TRIES_TO_CREATE,
    BoardGone,
    Remade,
    check_made,
    check_new,
    made_with,
    own_row,
)
from blackboard.protocol.rows import Record, readable, record_in, version_of
from blackboard.rules.breaker import STORE
from blackboard.spec import Labels, RunSettings
from blackboard.table import (
    Busy,
    Conflict,
    Delete,
    Etag,
    Insert,
    Op,
    Row,
    Table,
    TableError,
    Unknown,
    Value,
    just_after,
    read,
    try_delete,
)

Resolve = Callable[[str, str], RunSettings]
"""Settings of a run from an item's type and spec. Raises BadInput when they cannot be computed."""


Read = TypeVar("Read")
Pause = Callable[[], Awaitable[None]]
"""A long operation awaits it again and again: it may take time, or raise to end the operation."""
PAGE = 500
"""Rows that a long operation reads between two calls of `pause`."""
FEW_ROWS = 250
"""Rows that cost less than another request."""
Breaker = Callable[[str], Awaitable[None]]
"""Waits until a circuit breaker would let a request to a partition through."""


class BoardTable:
    def __init__(
        self,
        table: Table,
        *,
        name: str = "blackboard",
        shards: int = 1,
        clock: Clock,
        chance: Chance,
        resolve: Resolve,
    ) -> None:
        self.table = table
        self.name = keys.check_board_name(name)
        self.shards = shards
        self.clock = clock
        self.chance = chance
        self.resolve = resolve
        self.breaker: Breaker | None = None
        self.clock_proven_in: Callable[[], float] = lambda: math.inf
        """Seconds until rows may be deleted for their age; 0: they may be. Only a worker may, once
        it has watched the store's clock for an hour: a wrong clock may be right again soon."""
        self.created: datetime | None = None
        """When the board was made, by its own row; None: that was not read, or does not say it."""
        self.was_made_here = False
        """Whether this object has made the board, which was not there."""
        self.in_flight: set[str] = set()
        """Nonces of claims whose answer has not come."""
        self.unreadable_runs = set[str]()
        """Keys of rows of the history that could not be read."""
        self._unreadable_items: dict[int, dict[str, bool]] = {}
        """By shard, the keys of item rows that could not be read when each of them was read last,
        and whether a newer version wrote them."""

    def using(
        self,
        table: Table | None = None,
        *,
        resolve: Resolve | None = None,
        breaker: Breaker | None = None,
        clock_proven_in: Callable[[], float] | None = None,
    ) -> "BoardTable":
        """A copy of this board that uses another table, settings, circuit breaker or trust in the
        store's clock. Both share the claims that are in flight, so that neither adopts a lock that
        the other is claiming.
        """
        other = copy(self)
        other.table = table or self.table
        other.resolve = resolve or self.resolve
        other.breaker = breaker or self.breaker
        other.clock_proven_in = clock_proven_in or self.clock_proven_in
        return other

    def of_worker(self) -> "BoardTable":
        """A copy of this board for one of several workers: each waits for its own claims."""
        other = copy(self)
        other.in_flight = set()
        return other

    def group(self, group: str) -> "BoardTable":
        """The board of a group of partitions, beside this one: one shard of the same table. Raises
        BadInput where this one is of a group itself.
        """
        keys.check_own_board(self.name)
        other = copy(self)
        other.name = keys.check_board_name(keys.group_board(self.name, group))
        other.shards, other.created, other.was_made_here = 1, None, False
        other.in_flight, other._unreadable_items, other.unreadable_runs = set(), {}, set()  # noqa: SLF001
        return other

    def labels(self, item: Item) -> Labels:
        """Description, owner and tags of an item, or of its type; none where its spec is bad."""
        try:
            return self.resolve(item.type, item.spec).labels
        except (BadInput, ValueError):
            return Labels()

    async def ready(self, partition: str, trouble: TableError, *, failures: int) -> None:
        """Waits, after so many failed requests to a partition, until the next one may be made:
        until the circuit breaker lets it through; without one, for a backoff.
        """
        if self.breaker is not None:
            await self.breaker(partition)
            return
        asked = trouble.retry_after if isinstance(trouble, Busy) else 0.0
        pause = STORE.pause(failures, asked=asked, fraction=self.chance.fraction())
        await self.clock.sleep(pause)

    # ---- the board's own row

    @classmethod
    async def create(
        cls, table: Table, *, name: str, shards: int, clock: Clock, chance: Chance, resolve: Resolve
    ) -> "BoardTable":
        """Makes a board, or opens it when it exists with as many shards."""
        board = cls(table, name=name, shards=shards, clock=clock, chance=chance, resolve=resolve)
        await board.make()
        return board

    async def make(self) -> None:
        """Makes the board's row, unless it exists with as many shards. Raises BadInput when it has
        another number, or is missing and the board's items fit another number better.
        """
        check_new(self.shards)
        if not keys.group_of(self.name):  # that of a group always has one shard
            await check_made(self.table, self.name, shards=self.shards)
        now = await self.table.now()
        made: dict[str, Value] = {"version": VERSION, "shards": self.shards, "created": now}
        partition, is_in_doubt = keys.meta_partition(self.name), False
        for tries in range(TRIES_TO_CREATE):
            try:
                await self.table.commit(partition, [Insert(keys.BOARD_KEY, made)])
            except Conflict:
                break
            except Unknown:
                is_in_doubt = True
                if await self.own_row() is not None:
                    break
                if tries + 1 == TRIES_TO_CREATE:
                    raise
            else:
                self.created, self.was_made_here = now, True
                return
        shards, self.created = await made_with(self.table, self.name)
        self.was_made_here = is_in_doubt and self.created == now
        if shards != self.shards:
            raise BadInput(
                "shards",
                f"board {self.name!r} was made with {shards}",
                "the number is fixed; make a board of another name",
            )

    @classmethod
    async def open(
        cls, table: Table, *, name: str, clock: Clock, chance: Chance, resolve: Resolve
    ) -> "BoardTable":
        """Opens a board that exists. Raises BadInput or BadRow."""
        shards, created = await made_with(table, keys.check_board_name(name))
        board = cls(table, name=name, shards=shards, clock=clock, chance=chance, resolve=resolve)
        board.created = created
        return board

    async def own_row(self) -> Row | None:
        """The row of the board itself, which says its shards."""
        return await own_row(self.table, self.name)

    async def check_shards(self) -> None:
        """Raises Remade when the board has another number of shards by now, BoardGone while it is
        gone.
        """
        row = await self.own_row()
        if row is None:
            init = f"`blackboard --board {self.name} init --shards {self.shards}`"
            raise BoardGone(f"the board {self.name!r} is gone ({init} makes it anew)")
        if row.data.get("shards") != self.shards:
            raise Remade(
                f"the board {self.name!r} was made anew with shards: {row.data.get('shards')}, not "
                f"{self.shards} (start this program again)"
            )

    # ---- reading

    @property
    def trouble(self) -> str:
        """What keeps the store from being as it should, as far as it can say; "": nothing."""
        return getattr(self.table, "trouble", "")

    async def revision(self) -> int | None:
        """A number that changes with each write to the table; None: the store has none."""
        ask = getattr(self.table, "revision", None)
        return await ask() if ask else None

    def partition(self, item_id: str) -> str:
        """The partition of an item, and of all rows that belong to it."""
        return self.shard(keys.shard_of(item_id, self.shards))

    def shard(self, number: int) -> str:
        return keys.partition(self.name, number, self.shards)

    async def item(self, item_id: str) -> Item | None:
        """An item, or the tombstone of one, or None."""
        row = await read(self.table, self.partition(item_id), keys.item_key(item_id))
        return None if row is None else record_in(Item, row)

    async def stand_in(self, item_id: str) -> Item | None:
        """An item in the place of one whose row cannot be read, with its version and, as far as
        they can be read, its type and fence: good for removing it alone. None: there is no row.
        Raises BlackboardError where the row can be read by now.
        """
        row = await read(self.table, self.partition(item_id), keys.item_key(item_id))
        if row is None:
            return None
        if readable(Item, row) is not None:
            raise BlackboardError(f"{item_id} was changed meanwhile: look at it, and try again")
        return Item(
            id=item_id,
            type=str(row.data.get("type", "")),
            state=State.ACTIVE,
            spec="{}",
            fence=known_fence(row),
            slot=NEVER,
            ready=NEVER,
            planned=NEVER,
            version=version_of(row.data),
            etag=row.etag,
        )

    async def existing(self, item_id: str) -> Item | None:
        """An item. None: there is none, or it was removed."""
        item = await self.item(item_id)
        return None if item is None or item.state is State.REMOVED else item

    async def found(self, item_id: str) -> Item:
        """An item. Raises Missing: there is none, or it was removed."""
        item = await self.existing(item_id)
        if item is None:
            raise Missing(item_id)
        return item

    async def items(
        self, *, removed: bool = False, pause: Pause | None = None, beginning: str = ""
    ) -> AsyncIterator[Item]:
        """All items, shard by shard, in the order of their keys; with `removed` the tombstones of
        removed ones, too. With a `beginning` of ids, no rows are read of items whose ids begin
        otherwise, but of very long ids. Rows that cannot be read are passed over, and so are those
        in a wrong shard, where no command or worker looks for them.
        """
        for number in range(self.shards):
            async for item in self.items_and_tombstones(number, pause=pause, beginning=beginning):
                if removed or item.state is not State.REMOVED:
                    yield item

    async def items_and_tombstones(
        self, shard: int, *, pause: Pause | None = None, beginning: str = ""
    ) -> AsyncIterator[Item]:
        """As `items`, of one shard, with the tombstones of removed ones."""
        first, last = keys.items_range(beginning)
        unreadable, found = self._unreadable_items.setdefault(shard, {}), set[str]()
        rows = self.table.scan(self.shard(shard), first, last)
        async for row in paged(rows, pause):
            item = _readable(Item, row)
            if item is None or keys.shard_of(item.id, self.shards) != shard:
                unreadable[row.key] = version_of(row.data) > VERSION
                found.add(row.key)
            else:
                unreadable.pop(row.key, None)
                yield item
        for key in [key for key in unreadable if key.startswith(first) and key not in found]:
            del unreadable[key]

    @property
    def unreadable(self) -> list[str]:
        """The keys of item rows that were found to be damaged when items were last read."""
        return self._passed_over(newer=False)

    @property
    def newer(self) -> list[str]:
        """The keys of item rows that a newer version wrote, and that this one cannot read, when
        items were last read.
        """
        return self._passed_over(newer=True)

    def _passed_over(self, *, newer: bool) -> list[str]:
        shards = self._unreadable_items.values()
        return sorted(
            key for of_shard in shards for key, is_newer in of_shard.items() if is_newer is newer
        )

    async def floor(self) -> int:
        """The fence that an item is added with where its id has no tombstone: at least that of any
        tombstone that was deleted. It holds for an id that was found missing before this was read.
        """
        row = await read(self.table, keys.meta_partition(self.name), keys.FLOOR_KEY)
        return 0 if row is None else fence_of(row)

    async def lock(self, item_id: str) -> Lock | None:
        row = await read(self.table, self.partition(item_id), keys.lock_key(item_id))
        return None if row is None else record_in(Lock, row, age=self.table.age(row))

    async def locks(self) -> AsyncIterator[Lock]:
        """All locks, shard by shard, but those that cannot be read or are of a newer version."""
        for number in range(self.shards):
            async for row in self.table.scan(self.shard(number), keys.LOCK, keys.NEXT):
                lock = self._lock_or_token(row)
                if isinstance(lock, Lock):
                    yield lock

    async def run(self, item_id: str, fence: int) -> Run | None:
        row = await read(self.table, self.partition(item_id), keys.run_key(item_id, fence))
        return None if row is None else record_in(Run, row)

    async def runs(self, item_id: str, *, limit: int | None = None) -> AsyncIterator[Run]:
        """The history of an item, newest first: `limit` runs, or all. Rows that cannot be read are
        passed over.
        """
        partition, between = self.partition(item_id), keys.runs_range(item_id)
        async for run in readings(self.table, partition, between, self.run_in, limit=limit):
            yield run

    def run_in(self, row: Row) -> Run | None:
        """The run in a row of the history; None: it cannot be read."""
        run = _readable(Run, row)
        if run is None:
            self.unreadable_runs.add(row.key)
        return run

    async def walk(self, shard: int, *, until: datetime) -> AsyncIterator[Lock | Token]:
        """All locks of a shard and its tokens that are ready by `until`, the most overdue first.
        Rows of a newer version, and rows that cannot be read, are passed over; so are those in a
        wrong shard, which no worker could claim.
        """
        async for record in self.read_shard(shard, until=until):
            if not isinstance(record, Mark):
                yield record

    async def read_shard(
        self, shard: int, *, until: datetime, first: str = keys.LOCK, expected: int | None = None
    ) -> AsyncIterator[Lock | Token | Mark]:
        """As `walk`, from the key `first` on; where the board is paused, the mark of the pause
        comes after the locks. Of many rows, those far beyond the number that is `expected` to be
        read are fetched only once they are asked for; None: all may be fetched.
        """
        last = keys.next_until(until)
        limits = [max(expected * 5 // 4, FEW_ROWS)] if expected else []
        for limit in (*limits, None):
            count, begin = 0, first
            async for row in self.table.scan(self.shard(shard), begin, last, limit):
                count, first = count + 1, row.key
                if row.key == keys.MAINTENANCE:
                    yield mark_in(row)
                    continue
                record = self._lock_or_token(row)
                if record is not None and keys.shard_of(record.id, self.shards) == shard:
                    yield record
            if count != limit:
                return  # that was the last row
            first = just_after(first)

    def _lock_or_token(self, row: Row) -> Lock | Token | None:
        if row.key.startswith(keys.LOCK):
            return readable(Lock, row, age=self.table.age(row))
        return readable(Token, row)

    async def commit(self, item_id: str, ops: Sequence[Op]) -> dict[str, Etag]:
        """Commits a batch that states the etag of an item, and returns the new etags by key. Tokens
        and runs in its way that contradict the item are overwritten (`overwriting`). Raises as
        `Table.commit`.
        """
        while True:
            try:
                etags = await self.table.commit(self.partition(item_id), ops)
            except Conflict as lost:
                forced = overwriting(ops, lost)
                if forced is None:
                    raise
                ops = forced
            else:
                return {op.key: etag for op, etag in zip(ops, etags, strict=True)}

    async def delete(self, item_id: str, key: str, etag: str) -> None:
        """Deletes one row that belongs to no item, if it is still the one that was read."""
        await try_delete(self.table, self.partition(item_id), [Delete(key, etag)])


def _readable(record_type: type[Record], row: Row) -> Record | None:
    """As `readable`, also of a newer version."""
    try:
        return record_in(record_type, row)
    except BadRow:
        return None  # one bad row must not stop a worker; `doctor` reports it


UNREADABLE_MARK = Mark(by="unknown", at=NEVER)
"""The mark of a paused board, where it cannot be read."""


def mark_in(row: Row) -> Mark:
    """Who paused a board, when and why; a mark that cannot be read pauses it all the same."""
    return decoded_as(Mark, str(row.data.get("mark"))) or UNREADABLE_MARK


async def readings(
    table: Table,
    partition: str,
    between: tuple[str, str],
    reading: Callable[[Row], Read | None],
    *,
    limit: int | None,
) -> AsyncIterator[Read]:
    """What `reading` returns for the rows of a range: at most `limit` results. Rows for which it
    returns None are passed over.
    """
    first, last = between
    while limit is None or limit > 0:
        asked, number = limit, 0
        async for row in table.scan(partition, first, last, asked):
            number, first = number + 1, just_after(row.key)
            record = reading(row)
            if record is None:
                continue
            if limit is not None:
                limit -= 1
            yield record
        if asked is None or number < asked:
            return


async def paged(rows: AsyncIterator[Row], pause: Pause | None) -> AsyncIterator[Row]:
    """The rows, with a pause after each `PAGE` of them."""
    number = 0
    async for row in rows:
        yield row
        number += 1
        if pause is not None and number % PAGE == 0:
            await pause()


def fence_of(row: Row) -> int:
    """The fence in a row. Raises BadRow, also for one that is too high to run an item with."""
    fence = row.data.get("fence")
    if type(fence) is not int or not 0 <= fence < HIGHEST_FLOOR:
        raise BadRow(row.key, "no good fence")
    return fence


def known_fence(row: Row) -> int:
    """The fence in a row; 0 where it says none that a run can have."""
    try:
        return fence_of(row)
    except BadRow:
        return 0
