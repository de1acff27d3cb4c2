"""What every command needs: the settings that apply, and the board that was chosen."""

import asyncio
import json as json_text
import os
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import click

from blackboard import settings as settings_file
from blackboard.cli.options import Chosen, common
from blackboard.cli.text import one_line
from blackboard.clock import Chance, Clock, SystemChance, SystemClock
from blackboard.errors import BadInput, BlackboardError, MissingStore
from blackboard.handlers import Handler
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.settings import Settings, resolver
from blackboard.stores import open_table, resolve_path
from blackboard.table import Table, read

__all__ = ["Chosen", "Session", "common", "emit", "is_there", "note", "run", "warn"]

Answer = TypeVar("Answer")

DEFAULT_STORE = "blackboard.db"
DEFAULT_BOARD = "blackboard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One call of a command: its settings and where its board is."""

    chosen: Chosen
    settings: Settings
    folder: Path
    """Where relative paths of the settings start from."""
    handlers: Mapping[str, Handler] = field(default_factory=dict)

    @classmethod
    def start(cls, chosen: Chosen) -> "Session":
        """Raises BadInput when the settings cannot be used."""
        found, folder = settings_file.find(chosen.config, folder=Path.cwd())
        return cls(chosen=chosen, settings=found, folder=folder)

    def with_jobs(self, jobs: Sequence[str] = ()) -> "Session":
        """With the handlers of `jobs`, which start from here, or else of `[board] jobs`. Raises
        BadInput when one cannot be loaded.
        """
        if not jobs and not self.settings.board.jobs:
            return self
        from blackboard.registry import load  # noqa: PLC0415 - most commands load no jobs

        if jobs:
            return replace(self, handlers=load(jobs, Path.cwd()))
        return replace(self, handlers=load(self.settings.board.jobs, self.folder))

    def with_defaults(self) -> "Session":
        """With the handlers of `[board] jobs`, for the defaults they declare. Jobs that cannot be
        loaded here are a warning: it is the worker that needs them.
        """
        try:
            return self.with_jobs()
        except BadInput as problem:
            warn(f"{problem}; the defaults of its handlers are not known here")
            return self

    @property
    def store(self) -> str:
        """`--store`, else BLACKBOARD_STORE, else `[board] store`, else blackboard.db here."""
        said = self.chosen.store
        if said is None:
            said = os.environ.get("BLACKBOARD_STORE") or None
        if said is not None:
            return said
        declared = self.settings.board.store
        return DEFAULT_STORE if declared is None else resolve_path(declared, self.folder)

    @property
    def name(self) -> str:
        """`--board`, else `[board] name`, else blackboard."""
        return self.chosen.board or self.settings.board.name or DEFAULT_BOARD

    @asynccontextmanager
    async def board(self, *, create: bool = False) -> AsyncIterator[BoardTable]:
        """The board, opened, with however many shards it has. If `create` says so and it is not
        there, it is made first, with one shard, and a note on stderr says so.
        """
        async with self.table(create=create) as table:
            if create and not await is_there(table, self.name):
                board = await self.made(table, shards=1)
                note(f"made the board {self.name!r} in {self.store}, with 1 shard")
                yield board
                return
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
        return await BoardTable.open(table, name=self.name, **self._parts)

    async def made(self, table: Table, *, shards: int) -> BoardTable:
        """The board, made if it is not there. Raises BadInput when it has other shards."""
        return await BoardTable.create(table, name=self.name, shards=shards, **self._parts)

    @property
    def resolve(self) -> Resolve:
        """What a run of an item is run with, as far as it is known here."""
        return resolver(self.settings, self.handlers)

    @property
    def _parts(self) -> "_Parts":
        return {"clock": SystemClock(), "chance": SystemChance(), "resolve": self.resolve}


class _Parts(TypedDict):
    clock: Clock
    chance: Chance
    resolve: Resolve


async def is_there(table: Table, name: str) -> bool:
    """Whether the store has a board of that name."""
    return await read(table, keys.meta_partition(name), keys.BOARD_KEY) is not None


def run(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a command's work on an event loop of its own."""
    return asyncio.run(work)


def emit(value: Any) -> None:
    """JSON for programs: times are ISO 8601 in UTC with Z."""
    try:
        text = json_text.dumps(value, ensure_ascii=False, indent=2)
    except RecursionError:
        raise BlackboardError("JSON that is nested so deeply cannot be written") from None
    click.echo(text)


def note(message: str) -> None:
    """One line on stderr that is no error: what else happened."""
    click.echo(f"blackboard: {one_line(message)}", err=True)


def warn(message: str) -> None:
    """One line on stderr about what will probably not do what was meant."""
    note(f"warning: {message}")
