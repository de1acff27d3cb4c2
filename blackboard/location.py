"""Which board is meant: found from arguments, the environment and the settings, and opened."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackboard.clock import Clock, SystemChance, SystemClock
from blackboard.errors import BadInput, MissingStore
from blackboard.handlers.handler import Handler
from blackboard.protocol import keys
from blackboard.protocol.board_row import check_new
from blackboard.protocol.board_table import BoardTable, Resolve
from blackboard.settings import Settings, resolver
from blackboard.stores import is_new, open_table, resolve_path, wake_workers
from blackboard.table import Table, read
from blackboard.tables.retrying import RetryingTable
from blackboard.tables.sqlite import SqliteTable

DEFAULT_STORE = "blackboard.db"
DEFAULT_BOARD = "blackboard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Which board is meant, with the settings and handlers of its runs."""

    settings: Settings
    folder: Path
    """Where relative paths of the settings start from."""
    store: str
    name: str
    handlers: Mapping[str, Handler] = field(default_factory=dict)
    unread: str = ""
    """Why the handlers could not be read, where items are changed: an item whose schedule may be
    theirs cannot be computed then."""
    clock: Clock = field(default_factory=SystemClock)
    cwd: Path = field(default_factory=Path.cwd)
    """Where a relative path of the store starts from, also when jobs change the current folder."""
    resolve: Resolve = field(init=False, repr=False, compare=False)
    """The function that computes the settings of a run, by the handlers of this process."""

    def __post_init__(self) -> None:
        resolve = resolver(self.settings, self.handlers, unread=self.unread)
        object.__setattr__(self, "resolve", resolve)

    @property
    def url(self) -> str:
        """The store, as any process finds it, whatever its current folder."""
        return resolve_path(self.store, self.cwd)

    def check_params(self, item_type: str, params: Mapping[str, Any]) -> None:
        """Refuses params that the type's handler does not take, as far as it declares them and is
        at hand. Raises BadInput naming the field.
        """
        handler = self.handlers.get(item_type)
        if handler is not None and handler.params is not None:
            handler.params.check(params)

    def wake_workers(self) -> None:
        """Wakes the workers of this host, where the store is a file."""
        wake_workers(self.url)

    @asynccontextmanager
    async def open(
        self, *, create: bool = False, shards: int = 1, on_made: Callable[[], None] = lambda: None
    ) -> AsyncIterator[BoardTable]:
        """The board, opened, with the shards that it has. With `create`, and in memory, a board
        that is not there is made first, and `on_made` called. Raises BadInput for a number of
        shards that no board has before a store is made.
        """
        async with AsyncExitStack() as stack:
            yield await self.enter(stack, create=create, shards=shards, on_made=on_made)

    async def enter(
        self,
        stack: AsyncExitStack,
        *,
        create: bool = False,
        shards: int = 1,
        on_made: Callable[[], None] = lambda: None,
    ) -> BoardTable:
        """As `open`, until `stack` is closed."""
        create = create or is_new(self.url)
        if create:
            check_new(shards)
        table = await self._enter_table(stack, create=create)
        if not create or await is_there(table, self.name):
            return await self.opened(table)
        board = await self.made(table, shards=shards)
        if board.was_made_here:
            on_made()
        return board

    @asynccontextmanager
    async def table(self, *, create: bool = False) -> AsyncIterator[Table]:
        """The store, opened; with `create` it is made first where it is not there. Raises BadInput
        where the board that would be made in it is one of a group or of elections.
        """
        async with AsyncExitStack() as stack:
            yield await self._enter_table(stack, create=create)

    async def _enter_table(self, stack: AsyncExitStack, *, create: bool) -> Table:
        keys.check_board_name(self.name)
        if create and keys.group_of(self.name) and not await self.has_board():
            keys.check_own_board(self.name)
        table = await open_table(self.url, clock=self.clock, create=create)
        stack.push_async_callback(table.close)
        # A file is waited for by its own table.
        return table if isinstance(table, SqliteTable) else RetryingTable(table, self.clock)

    async def has_board(self) -> bool:
        """Whether the board is there. Raises StoreProblem when it could not be made either."""
        try:
            async with self.table() as table:
                return await is_there(table, self.name)
        except MissingStore:
            return False

    async def opened(self, table: Table) -> BoardTable:
        """The board, which must be there."""
        return await BoardTable.open(
            table, name=self.name, clock=self.clock, chance=SystemChance(), resolve=self.resolve
        )

    async def made(self, table: Table, *, shards: int) -> BoardTable:
        """The board, made if it is not there. Raises BadInput when it has other shards."""
        return await BoardTable.create(
            table,
            name=self.name,
            shards=shards,
            clock=self.clock,
            chance=SystemChance(),
            resolve=self.resolve,
        )


def store_of(named: str | None, settings: Settings, folder: Path) -> str:
    """The named store, else BLACKBOARD_STORE, else `[board] store`, else blackboard.db beside the
    settings.
    """
    if named is None:
        named = os.environ.get("BLACKBOARD_STORE") or None
    if named is not None:
        return named
    declared = settings.board.store
    if declared == "":
        raise BadInput("store", "it is empty in [board]", "name a store, or leave it out")
    if declared is None and folder == Path.cwd():
        return DEFAULT_STORE
    return resolve_path(declared or DEFAULT_STORE, folder)


def name_of(named: str | None, settings: Settings) -> str:
    """The given name, else `[board] name`, else blackboard."""
    return named or settings.board.name or DEFAULT_BOARD


async def is_there(table: Table, name: str) -> bool:
    """Whether the store has a board of that name."""
    return await read(table, keys.meta_partition(name), keys.BOARD_KEY) is not None
