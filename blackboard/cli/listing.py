"""A list of a board that a command prints, or shows again and again with `--watch`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click
from msgspec import Struct

from blackboard.cli.options import as_typed
from blackboard.cli.output import emit, table_text, wrapped
from blackboard.cli.session import Session
from blackboard.cli.watch import Drawn, PageView, WatchedPage, seconds_of, watched
from blackboard.clock import SystemClock
from blackboard.display.layout import Column, Line, Style, table, wrap
from blackboard.protocol.reading import BoardTable


class Listing(Struct, frozen=True, kw_only=True):
    """A part of a board as a table."""

    columns: Sequence[Column]
    rows: Sequence[Line]
    records: object
    """The same for programs."""
    empty: str
    """The text where the table has no rows."""
    summary: str
    """A summary in words, shown below the table with `--watch`."""
    prints_summary: bool = False
    """Whether the summary is printed without `--watch`, too."""
    is_well: bool = True
    """Whether the exit code is 0; else it is 1."""

    @property
    def text(self) -> str:
        if not self.rows:
            return wrapped(as_typed(self.empty))
        text = table_text(self.columns, self.rows)
        return f"{text}\n\n{as_typed(self.summary)}" if self.prints_summary else text

    def page(self, width: int) -> WatchedPage:
        """The table laid out for a width."""
        if not self.rows:
            return WatchedPage(
                body=[[(text, Style.PLAIN)] for text in wrap(as_typed(self.empty), width)]
            )
        lines = table(self.columns, self.rows, width=width)
        return WatchedPage(body=lines, head=1, summary=as_typed(self.summary))


def listed(
    session: Session, read: Callable[[BoardTable], Awaitable[Listing]], *, watch: str | None
) -> int:
    """Print what is read, or watch it; the exit code."""
    if watch is not None:

        def view(board: BoardTable) -> PageView:
            async def again() -> Drawn:
                return (await read(board)).page

            return PageView(again, SystemClock())

        return watched(session, view, every=seconds_of(watch))

    async def once() -> Listing:
        async with session.board() as board:
            return await read(board)

    found = asyncio.run(once())
    if session.chosen.json:
        emit(found.records)
    else:
        click.echo(found.text)
    return 0 if found.is_well else 1
