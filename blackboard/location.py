"""Which board is meant, and how it is opened: from arguments, the environment and the settings."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blackboard.clock import SystemChance, SystemClock
from blackboard.errors import MissingStore
from blackboard.handlers import Handler
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.settings import Settings, resolver
from blackboard.stores import open_table, resolve_path
from blackboard.table import Table, read

DEFAULT_STORE = "blackboard.db"
DEFAULT_BOARD = "blackboard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Which board is meant, and what its runs are run with."""

    settings: Settings
    folder: Path
    """Where relative paths of the settings start from."""
    store: str
    name: str
    handlers: Mapping[str, Handler] = field(default_factory=dict)

    @property
    def resolve(self) -> Resolve:
        """What a run of an item is run with, as far as the handlers of this process say."""
        return resolver(self.settings, self.handlers)

    @asynccontextmanager
    async def open(
        self, *, create: bool = False, shards: int = 1, on_made: Callable[[], None] = lambda: None
    ) -> AsyncIterator[BoardTable]:
        """The board, opened, with however many shards it has. If `create` says so and it is not
        there, it is made first, and `on_made` called.
        """
        async with self.table(create=create) as table:
            if create and not await is_there(table, self.name):
                board = await self.made(table, shards=shards)
                on_made()
                yield board
            else:
                yield await self.opened(table)

    @asynccontextmanager
    async def table(self, *, create: bool = False) -> AsyncIterator[Table]:
        """The store, opened; made first if `create` says so and it is not there."""
        keys.check_board_name(self.name)
        table = await open_table(self.store, clock=SystemClock(), create=create)
        try:
            yield table
        finally:
            await table.close()

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
            table,
            name=self.name,
            clock=SystemClock(),
            chance=SystemChance(),
            resolve=self.resolve,
        )

    async def made(self, table: Table, *, shards: int) -> BoardTable:
        """The board, made if it is not there. Raises BadInput when it has other shards."""
        return await BoardTable.create(
            table,
            name=self.name,
            shards=shards,
            clock=SystemClock(),
            chance=SystemChance(),
            resolve=self.resolve,
        )


def store_of(said: str | None, settings: Settings, folder: Path) -> str:
    """What was said, else BLACKBOARD_STORE, else `[board] store`, else blackboard.db here."""
    if said is None:
        said = os.environ.get("BLACKBOARD_STORE") or None
    if said is not None:
        return said
    declared = settings.board.store
    return DEFAULT_STORE if declared is None else resolve_path(declared, folder)


def name_of(said: str | None, settings: Settings) -> str:
    """What was said, else `[board] name`, else blackboard."""
    return said or settings.board.name or DEFAULT_BOARD


async def is_there(table: Table, name: str) -> bool:
    """Whether the store has a board of that name."""
    return await read(table, keys.meta_partition(name), keys.BOARD_KEY) is not None
