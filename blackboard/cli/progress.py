"""Progress bars for long work: on stderr, only on a terminal, and not where JSON is asked for.

A bar appears when the work has taken a second, or at once for many things, and is erased at the
end. It costs nothing where it is not shown.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager

import click

from blackboard.cli.options import JSON_ASKED
from blackboard.clock import Clock, SystemClock
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.status import read_statistics
from blackboard.table import Row, Table
from blackboard.tables.base import ForwardingTable

MANY = 200
"""The number of things from which a bar is shown at once."""
QUICK = 1.0
"""Seconds before the bar of fewer things is shown."""
BETWEEN_DRAWINGS = 0.1
"""Seconds between two drawings of a bar, at least."""


def is_shown() -> bool:
    context = click.get_current_context(silent=True)
    return sys.stderr.isatty() and not (context and context.meta.get(JSON_ASKED))


class ProgressBar:
    def __init__(
        self, label: str, total: int | None, *, at_once: bool, stack: ExitStack, clock: Clock
    ) -> None:
        self._label = label
        self._total = total
        self._stack = stack
        self._clock = clock
        self.number = 0
        self._share: float | None = None if total is None else 0.0
        self._shown = is_shown()
        self._begun = clock.monotonic() if self._shown else 0.0
        self._drawn = 0.0
        self._draw: Callable[[str, float | None], None] | None = None
        if at_once or (total is not None and total >= MANY):
            self._show(at_once=True)

    def expect(self, total: int) -> None:
        """Sets the number of things, as far as it is known; 0: it is not known."""
        if total:
            self._total, self._share = total, 0.0

    def moved(self, number: int = 1) -> None:
        self.number += number
        if self._total:
            self._share = min(self.number / self._total, 1.0)
        self._show()

    def reached(self, share: float) -> None:
        self._share = share
        self._show()

    def begun(self, label: str, *, share: float) -> None:
        """Names the next step, which begins after this share of the work."""
        self._label, self._share = label, share
        self._show(at_once=self._draw is not None)

    def _show(self, *, at_once: bool = False) -> None:
        if not self._shown:
            return
        now = self._clock.monotonic()
        is_whole = self._share == 1.0 and self._draw is not None
        if not (at_once or is_whole) and (
            now - self._drawn < BETWEEN_DRAWINGS
            or (self._draw is None and now - self._begun < QUICK)
        ):
            return
        if self._draw is None:
            from blackboard.cli.render import bar  # noqa: PLC0415 - rich is slow to import

            self._draw = self._stack.enter_context(bar(sys.stderr))
        self._drawn = now
        number = f" {self.number:,}" if self._share is None else ""
        self._draw(f"{self._label}{number}", self._share)


@contextmanager
def progress(
    label: str, total: int | None = None, *, at_once: bool = False, clock: Clock | None = None
) -> Iterator[ProgressBar]:
    """A bar for work on `total` things; None: an unknown number. `at_once` shows it at once, for
    work that is known to take long.
    """
    with ExitStack() as stack:
        yield ProgressBar(label, total, at_once=at_once, stack=stack, clock=clock or SystemClock())


@asynccontextmanager
async def counted(
    board: BoardTable, label: str, *, whole: bool = False
) -> AsyncIterator[BoardTable]:
    """A board whose items are counted as they are read, for a bar whose total is in the board's
    statistics. With `whole`, all rows are counted, and there is no total.
    """
    if not is_shown():
        yield board
        return
    statistics = None if whole else await read_statistics(board)
    with progress(label) as done:
        done.expect(statistics.items if statistics is not None else 0)
        yield board.using(CountedTable(board.table, done, "" if whole else keys.ITEM))


@asynccontextmanager
async def reading(
    opened: AbstractAsyncContextManager[BoardTable], label: str, *, whole: bool = False
) -> AsyncIterator[BoardTable]:
    """A board that is opened to be read, with a bar as of `counted`."""
    async with opened as board, counted(board, label, whole=whole) as through:
        yield through


class CountedTable(ForwardingTable):
    def __init__(self, table: Table, progress: ProgressBar, prefix: str) -> None:
        super().__init__(table)
        self._progress = progress
        self._prefix = prefix

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        async for row in self.table.scan(partition, first, last, limit):
            if row.key.startswith(self._prefix):
                self._progress.moved()
            yield row
