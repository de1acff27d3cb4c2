"""What the demo writes: paragraphs, and a table of the board.

On a terminal one table is kept up to date in place, below the paragraphs; in a file or a pipe a
picture of the table follows each act. A frame is written in one go, each line over the one it
replaces, and nothing is erased before: so nothing flickers.
"""

import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TextIO

from blackboard.display.columns import (
    ITEM_COLUMNS,
    LEADER_COLUMNS,
    PARTITION_COLUMNS,
    RUN_COLUMNS,
    item_cells,
    leader_cells,
    leases_summary,
    partition_cells,
    run_cells,
    summary,
    worker_name,
)
from blackboard.display.layout import ANSI, RESET, Column, Line, Style, table, text_of
from blackboard.model import Run
from blackboard.protocol.groups import GroupLeases
from blackboard.protocol.reading import BoardStatus

WIDTH = 78
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


class Output(Protocol):
    """Where a story is written. A picture has titles first, and a blank and a summary last."""

    colour: bool

    @property
    def width(self) -> int:
        """Columns of what is indented, at the most."""
        ...

    def say(self, lines: Sequence[str]) -> None:
        """Writes lines that stay."""
        ...

    def show(self, picture: Sequence[Line]) -> None:
        """Shows the board as it is now."""
        ...

    def pause(self) -> None:
        """Called at the end of an act: an output without a moving table writes the table now."""
        ...

    def close(self) -> None:
        """Leaves the table as it is."""
        ...


class TextOutput:
    """A file or a pipe."""

    colour = False
    width = WIDTH - len(INDENT)

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._picture: Sequence[Line] = ()

    def say(self, lines: Sequence[str]) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()

    def show(self, picture: Sequence[Line]) -> None:
        self._picture = picture

    def pause(self) -> None:
        self.say(["", *indented(self._picture, colour=False)])

    def close(self) -> None:
        return


class TerminalOutput:
    """A terminal."""

    def __init__(self, stream: TextIO, *, colour: bool) -> None:
        self.colour = colour
        self._stream = stream
        self._size = shutil.get_terminal_size()
        self._said: list[str] = []
        self._picture: Sequence[str] = ()
        stream.write(_HIDE)

    @property
    def width(self) -> int:
        """One column is left free: a line that ends in the last one may or may not wrap."""
        return max(self._size.columns - 1 - len(INDENT), 1)

    def say(self, lines: Sequence[str]) -> None:
        self._said += lines
        self._paint(lines, self._picture)

    def show(self, picture: Sequence[Line]) -> None:
        size = shutil.get_terminal_size()
        if size != self._size:  # the terminal has wrapped its lines anew
            self._size = size
            self._stream.write(_ALL)
            self._picture = ()
            self._paint(self._said, ())
        fitting = cropped(picture, size.lines - 1)
        self._paint([], ["", *indented(fitting, colour=self.colour)])

    def _paint(self, said: Sequence[str], picture: Sequence[str]) -> None:
        """Leave the cursor on the last line of the picture: a line below it would be lost."""
        up = _UP.format(len(self._picture) - 1) if len(self._picture) > 1 else ""
        above = [f"{line}{_REST_OF_LINE}\n" for line in said]
        below = "\n".join(f"{line}{_REST_OF_LINE}" for line in picture)
        self._stream.write("".join([up, "\r", *above, below, _ALL_BELOW]))
        self._stream.flush()
        self._picture = picture

    def pause(self) -> None:
        return

    def close(self) -> None:
        self._stream.write("\n" + _SHOW if self._picture else _SHOW)
        self._picture = ()
        self._stream.flush()


class RecordingOutput:
    """Passes everything to another output, and keeps the picture at the end of one act."""

    def __init__(self, output: Output, *, act: int) -> None:
        self.colour = output.colour
        self.picture: Sequence[Line] = ()
        """The picture at the end of that act; before that, the latest one."""
        self._output = output
        self._acts_left = act - 1
        """The number of pauses before that act: the first act has none."""

    @property
    def width(self) -> int:
        return self._output.width

    def say(self, lines: Sequence[str]) -> None:
        self._output.say(lines)

    def show(self, picture: Sequence[Line]) -> None:
        if self._acts_left > 0:
            self.picture = picture
        self._output.show(picture)

    def pause(self) -> None:
        self._acts_left -= 1
        self._output.pause()

    def close(self) -> None:
        self._output.close()


def indented(lines: Sequence[Line], *, colour: bool) -> list[str]:
    return [f"{INDENT}{text_of(line, colour=colour)}".rstrip() for line in lines]


def cropped(picture: Sequence[Line], height: int) -> Sequence[Line]:
    """The lines of a picture that fit, with the number of those that are left out."""
    if len(picture) <= height:
        return picture
    kept = max(height - 3, 1)
    left_out = len(picture) - 2 - kept
    return [*picture[:kept], [(f"... and {left_out} more", Style.QUIET)], *picture[-2:]][:height]


class Writer:
    """Writes titles, paragraphs and tables to an output."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def title(self, text: str) -> None:
        bold = f"{ANSI[Style.TITLE]}{text}{RESET}" if self.output.colour else text
        self.output.say(["", bold])

    def say(self, text: str) -> None:
        """A paragraph, wrapped to the width."""
        self.output.say(
            textwrap.wrap(
                " ".join(text.split()),
                width=min(self.output.width, WIDTH) + len(INDENT),
                initial_indent=INDENT,
                subsequent_indent=INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )

    def lines(self, lines: Iterable[str]) -> None:
        """Lines without wrapping, such as commands to copy."""
        self.output.say([f"{INDENT}{line}".rstrip() for line in lines])

    def table(self, table: Sequence[Line]) -> None:
        self.output.say(indented(table, colour=self.output.colour))


def listed(names: Iterable[str]) -> str:
    """Names as a phrase: "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def board_picture(board: BoardStatus, *, name_of: NameOf, width: int) -> list[Line]:
    """The board as in `show`, without the columns that are the same for all items."""
    cells = [item_cells(one, now=board.now, absolute=False) for one in board.statuses]
    rows = _rows(cells, [one.item.owner for one in board.statuses], name_of)
    total = summary(board.statuses, total=len(board.statuses), now=board.now)
    return [*_chosen(ITEM_COLUMNS, rows, _BOARD, width), [], [(total, Style.TITLE)]]


def leases_picture(group: GroupLeases, *, name_of: NameOf, width: int) -> list[Line]:
    """The partitions of a group as in `leases`."""
    cells = [partition_cells(group, one) for one in group.partitions]
    rows = _rows(cells, [one.item.owner for one in group.partitions], name_of)
    lines = table(PARTITION_COLUMNS, rows, width=width)
    return [*lines, [], [(leases_summary(group), Style.TITLE)]]


def leaders_picture(board: BoardStatus, *, name_of: NameOf, width: int) -> list[Line]:
    """The elections of a board as in `leader`."""
    cells = [leader_cells(one, now=board.now, absolute=False) for one in board.statuses]
    rows = _rows(cells, [one.item.owner for one in board.statuses], name_of)
    return table(LEADER_COLUMNS, rows, width=width)


def history_picture(
    runs: Sequence[Run], *, board: BoardStatus, name_of: NameOf, width: int
) -> list[Line]:
    """Runs as in `log`."""
    cells = [run_cells(one, now=board.now, absolute=False) for one in runs]
    rows = _rows(cells, [one.worker for one in runs], name_of)
    return _chosen(RUN_COLUMNS, rows, _HISTORY, width)


def _rows(cells: Sequence[Line], owners: Sequence[str], name_of: NameOf) -> list[Line]:
    """The cells of each row, with the short name of its owner."""
    return [_renamed(line, owner, name_of) for line, owner in zip(cells, owners, strict=True)]


def _renamed(line: Line, owner: str, name_of: NameOf) -> Line:
    long = worker_name(owner)
    return [(name_of(owner) if text == long and owner else text, style) for text, style in line]


def _chosen(
    columns: Sequence[Column], rows: Sequence[Line], titles: Sequence[str], width: int
) -> list[Line]:
    places = [place for place, column in enumerate(columns) if column.title in titles]
    kept = [[line[place] for place in places] for line in rows]
    return table([columns[place] for place in places], kept, width=width)
