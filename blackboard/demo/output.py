"""What the demo writes: paragraphs, and a table of the board.

On a terminal one table is kept up to date in place, below the paragraphs; in a file or a pipe a
picture of the table follows each act. A frame is written in one go, each line over the one it
replaces, and nothing is erased before: so nothing flickers.
"""

import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from blackboard.display import columns
from blackboard.display.layout import Line, Style, table, text_of, titled
from blackboard.display.layout import cropped as cut
from blackboard.model import Run
from blackboard.protocol.groups import GroupLeases
from blackboard.protocol.status import BoardStatus

WIDTH = 80
"""Columns of a line in a file or a pipe, and of a paragraph at the most."""
INDENT = "   "
_BOARD = ("id", "start", "stop", "running", "outcome", "next", "worker")
_HISTORY = ("stop", "outcome", "took", "fence", "worker", "result or error")
_UP = "\x1b[{}F"
_REST_OF_LINE = "\x1b[K"
_ALL_BELOW = "\x1b[J"
_ALL = "\x1b[2J\x1b[H"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"

NameOf = Callable[[str], str]
"""A worker's short name, from its long one."""


class Output:
    """Where a story is written: here a file or a pipe. A picture has titles first, and a blank and
    a summary last.
    """

    colour = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._picture: Sequence[Line] = ()
        self.pictures: list[Sequence[Line]] = []
        """The board as it was at each pause."""

    @property
    def width(self) -> int:
        """Columns of what is indented, at the most."""
        is_file = not self._stream.isatty()
        return WIDTH - len(INDENT) if is_file else min(_columns(), WIDTH - len(INDENT))

    def write(self, lines: Sequence[str]) -> None:
        """Writes lines that stay."""
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()

    def title(self, text: str) -> None:
        self.write(["", text_of([(text, Style.TITLE)], colour=self.colour)])

    def say(self, text: str) -> None:
        """A paragraph, wrapped to the width."""
        self.write(self._wrapped(" ".join(text.split()), INDENT))

    def rows(self, lines: Iterable[str]) -> None:
        """Lines, each of which goes on further to the right where it is too long."""
        self.write([part for line in lines for part in self._wrapped(line, INDENT * 2)])

    def _wrapped(self, text: str, below: str) -> list[str]:
        return textwrap.wrap(
            text,
            width=min(self.width + len(INDENT), WIDTH),
            initial_indent=INDENT,
            subsequent_indent=below,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def lines(self, lines: Iterable[str]) -> None:
        """Lines without wrapping, such as commands to copy."""
        self.write([f"{INDENT}{line}".rstrip() for line in lines])

    def table(self, table: Sequence[Line]) -> None:
        self.write(indented(table, colour=self.colour))

    def show(self, picture: Sequence[Line]) -> None:
        """Shows the board as it is now: where no table is kept up to date, at the next pause."""
        self._picture = picture

    def pause(self) -> None:
        """Ends an act, or a part of one."""
        self.pictures.append(self._picture)
        self.write(["", *indented(self._picture, colour=False)])

    def close(self) -> None:
        """Leaves the table as it is."""


class TerminalOutput(Output):
    def __init__(self, stream: TextIO, *, colour: bool) -> None:
        super().__init__(stream)
        self.colour = colour
        self._size = shutil.get_terminal_size()
        self._said: list[str] = []
        self._painted: Sequence[str] = ()
        """The lines of the picture on the terminal."""
        stream.write(_HIDE)

    @property
    def width(self) -> int:
        return _columns()

    def write(self, lines: Sequence[str]) -> None:
        self._said += lines
        self._paint(lines, self._painted)

    def show(self, picture: Sequence[Line]) -> None:
        super().show(picture)
        size = shutil.get_terminal_size()
        if size != self._size:  # the terminal has wrapped its lines anew
            self._size = size
            self._stream.write(_ALL)
            self._painted = ()
            self._paint(self._said, ())
        lines = [cut(line, self.width) for line in picture]
        fitting = cropped(lines, size.lines - 1)
        self._paint([], ["", *indented(fitting, colour=self.colour)])

    def _paint(self, lines: Sequence[str], picture: Sequence[str]) -> None:
        """Leave the cursor on the last line of the picture: a line below it would be lost."""
        up = _UP.format(len(self._painted) - 1) if len(self._painted) > 1 else ""
        above = [f"{line}{_REST_OF_LINE}\n" for line in lines]
        below = "\n".join(f"{line}{_REST_OF_LINE}" for line in picture)
        self._stream.write("".join([up, "\r", *above, below, _ALL_BELOW]))
        self._stream.flush()
        self._painted = picture

    def pause(self) -> None:
        self.pictures.append(self._picture)

    def close(self) -> None:
        self._stream.write("\n" + _SHOW if self._painted else _SHOW)
        self._painted = ()
        self._stream.flush()


def _columns() -> int:
    """Columns of a terminal for what is indented. One is left free: a line that ends in the last
    one may or may not wrap.
    """
    return max(shutil.get_terminal_size().columns - 1 - len(INDENT), 1)


def indented(lines: Sequence[Line], *, colour: bool) -> list[str]:
    return [f"{INDENT}{text_of(line, colour=colour)}".rstrip() for line in lines]


def cropped(picture: Sequence[Line], height: int) -> Sequence[Line]:
    """The lines of a picture that fit, with the number of those that are left out."""
    if len(picture) <= height:
        return picture
    kept = max(height - 3, 1)
    left_out = len(picture) - 2 - kept
    return [*picture[:kept], [(f"... and {left_out} more", Style.QUIET)], *picture[-2:]][:height]


def listed(names: Iterable[str]) -> str:
    """Names as a phrase: "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def board_picture(board: BoardStatus, *, name_of: NameOf, width: int) -> list[Line]:
    """The board as in `show`, without the columns that are the same for all items."""
    cells = [columns.item_cells(status, columns.ShownTimes(board.now)) for status in board.statuses]
    rows = _rows(cells, [status.item.owner for status in board.statuses], name_of)
    total = columns.summary(board.statuses, total=len(board.statuses), now=board.now)
    lines = table(*titled(columns.ITEM_COLUMNS, rows, _BOARD), width=width)
    return [*lines, [], [(total, Style.TITLE)]]


def leases_picture(group: GroupLeases, *, name_of: NameOf, width: int) -> list[Line]:
    cells = [columns.partition_cells(group, partition) for partition in group.partitions]
    rows = _rows(cells, [partition.item.owner for partition in group.partitions], name_of)
    lines = table(columns.PARTITION_COLUMNS, rows, width=width)
    return [*lines, [], [(columns.leases_summary(group), Style.TITLE)]]


def leaders_picture(board: BoardStatus, *, name_of: NameOf, width: int) -> list[Line]:
    cells = [
        columns.leader_cells(status, columns.ShownTimes(board.now)) for status in board.statuses
    ]
    rows = _rows(cells, [status.item.owner for status in board.statuses], name_of)
    return table(columns.LEADER_COLUMNS, rows, width=width)


def history_picture(
    runs: Sequence[Run], *, board: BoardStatus, name_of: NameOf, width: int
) -> list[Line]:
    cells = [columns.run_cells(run, columns.ShownTimes(board.now)) for run in runs]
    rows = _rows(cells, [run.worker for run in runs], name_of)
    return table(*titled(columns.RUN_COLUMNS, rows, _HISTORY), width=width)


def _rows(cells: Sequence[Line], owners: Sequence[str], name_of: NameOf) -> list[Line]:
    """The cells of each row, with the short name of its owner."""
    return [
        [
            (name_of(owner) if owner and text == columns.worker_name(owner) else text, style)
            for text, style in line
        ]
        for line, owner in zip(cells, owners, strict=True)
    ]
