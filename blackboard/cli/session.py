"""What every command needs: the settings that apply, and the board that was chosen."""

import asyncio
import json as json_text
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from blackboard import settings as settings_file
from blackboard.assembly import Location, is_there, name_of, store_of
from blackboard.cli.options import Chosen, common
from blackboard.display.layout import one_line
from blackboard.errors import BadInput, BlackboardError
from blackboard.handlers import load
from blackboard.model import replace
from blackboard.protocol.reading import BoardTable

__all__ = ["Chosen", "Session", "common", "emit", "is_there", "note", "run", "warn"]

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Location):
    """One call of a command: its settings and where its board is."""

    chosen: Chosen

    @classmethod
    def start(cls, chosen: Chosen) -> "Session":
        """Raises BadInput when the settings cannot be used."""
        found, folder = settings_file.find(chosen.config, folder=Path.cwd())
        return cls(
            chosen=chosen,
            settings=found,
            folder=folder,
            store=store_of(chosen.store, found, folder),
            name=name_of(chosen.board, found),
        )

    def with_jobs(self, jobs: Sequence[str] = ()) -> "Session":
        """With the handlers of `jobs`, which start from here, or else of `[board] jobs`. Raises
        BadInput when one cannot be loaded.
        """
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
            warn(f"{problem}; the defaults of its handlers do not count here")
            return self

    def board(self, *, create: bool = False) -> AbstractAsyncContextManager[BoardTable]:
        """The board, opened, with however many shards it has. If `create` says so and it is not
        there, it is made first, with one shard, and a note on stderr says so.
        """
        made = f"made the board {self.name!r} in {self.store}, with 1 shard"
        return self.open(create=create, on_made=lambda: note(made))


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
