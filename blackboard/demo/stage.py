"""Where the story is told: on a terminal with one table that is kept up to date in place, below
what has been said; in a file or a pipe with a picture of the table after each act.

A frame is written in one go, each line over the one it replaces, and nothing is erased before: so
nothing flickers.
"""

import shutil
from collections.abc import Sequence
from typing import Protocol, TextIO

from blackboard.cli.layout import Line, Style, text_of

WIDTH = 78
"""Columns of a line where nobody says how many there are."""
INDENT = "   "
_UP = "\x1b[{}F"
_REST_OF_LINE = "\x1b[K"
_ALL_BELOW = "\x1b[J"
_ALL = "\x1b[2J\x1b[H"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"


class Stage(Protocol):
    """What a story needs. A picture's first line is a title, its last two a blank and a sum."""

    colour: bool

    @property
    def width(self) -> int:
        """Columns of what is indented, at the most."""
        ...

    def say(self, lines: Sequence[str]) -> None:
        """Lines that stay."""
        ...

    def show(self, picture: Sequence[Line]) -> None:
        """The board as it is now."""
        ...

    def pause(self) -> None:
        """The end of an act: whoever cannot follow a moving table gets to see it now."""
        ...

    def close(self) -> None:
        """The table stays as it is."""
        ...


class Paper:
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


class Screen:
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
        if size != self._size:  # what was on it has been wrapped anew, nobody knows to where
            self._size = size
            self._stream.write(_ALL)
            self._picture = ()
            self._paint(self._said, ())
        fitting = cropped(picture, size.lines - 1)
        self._paint([], ["", *indented(fitting, colour=self.colour)])

    def _paint(self, said: Sequence[str], picture: Sequence[str]) -> None:
        """Leaves the cursor on the last line of the picture: a line below it would be lost."""
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


class Drawing:
    """Another stage, of which the picture at the end of one act is kept."""

    def __init__(self, stage: Stage, *, act: int) -> None:
        self.colour = stage.colour
        self.picture: Sequence[Line] = ()
        """As it was at the end of that act; before, the latest."""
        self._stage = stage
        self._acts_left = act - 1
        """Acts before that one that have a pause: the first has no board yet."""

    @property
    def width(self) -> int:
        return self._stage.width

    def say(self, lines: Sequence[str]) -> None:
        self._stage.say(lines)

    def show(self, picture: Sequence[Line]) -> None:
        if self._acts_left > 0:
            self.picture = picture
        self._stage.show(picture)

    def pause(self) -> None:
        self._acts_left -= 1
        self._stage.pause()

    def close(self) -> None:
        self._stage.close()


def indented(lines: Sequence[Line], *, colour: bool) -> list[str]:
    return [f"{INDENT}{text_of(line, colour=colour)}".rstrip() for line in lines]


def cropped(picture: Sequence[Line], height: int) -> Sequence[Line]:
    """As much of a picture as fits; how much does not is told."""
    if len(picture) <= height:
        return picture
    kept = max(height - 3, 1)
    left_out = len(picture) - 2 - kept
    return [*picture[:kept], [(f"... and {left_out} more", Style.QUIET)], *picture[-2:]][:height]
