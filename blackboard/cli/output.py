"""What commands print: tables and lines for people, JSON for programs, notes on stderr.

In JSON, times are ISO 8601 in UTC with Z, durations are seconds, and what is absent is null. JSON
text in a row is decoded.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
import msgspec

from blackboard.cli.options import as_typed
from blackboard.display.escaping import one_line, shown, shown_json
from blackboard.display.layout import Column, Line, Style, folded, paragraph, table, text_of, wrap
from blackboard.errors import BadInput
from blackboard.model import Mark
from blackboard.phrases import exactly, some
from blackboard.records import as_json

JSON = dict[str, Any]
Thing = TypeVar("Thing")
MOST_NAMED = 5
"""Names in a line that may be about many items or rows."""
MOST_LINES = 20
"""The most lines of one kind, where there may be as many as there are items."""


# ---- for people, and on stderr


def few_of(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    return shown(some(names, MOST_NAMED))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def colour() -> bool:
    """Whether to use colours: on a terminal that has some, unless NO_COLOR is set."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def width() -> int | None:
    """The columns that fit; None for a file or a pipe, which take lines of any length."""
    if is_terminal() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def wrapped(text: str, *, first: str = "", margin: str | None = None) -> str:
    """A paragraph as wide as the terminal, one line where there is none. `first` comes before its
    first line, `margin` before the others, or as many spaces.
    """
    columns = width()
    if columns is None:
        return first + text
    return "\n".join(wrap(text, columns, first=first, margin=margin))


def hung(line: str) -> str:
    """A line as wide as the terminal; the rest follows below it, with the same indent."""
    text = line.lstrip(" ")
    return wrapped(text, first=line[: len(line) - len(text)])


def first_of_each(
    things: Sequence[Thing], kind_of: Callable[[Thing], object]
) -> Iterator[tuple[Thing, int]]:
    """The first things of each kind, `MOST_LINES` at the most; the last of them with the number of
    those that are left out.
    """
    total, so_far = Counter(map(kind_of, things)), Counter[object]()
    for record in things:
        kind = kind_of(record)
        so_far[kind] += 1
        if so_far[kind] <= MOST_LINES:
            yield record, total[kind] - MOST_LINES if so_far[kind] == MOST_LINES else 0


def table_text(columns: Sequence[Column], rows: Sequence[Line], *, fold: bool = False) -> str:
    """A table as wide as the terminal, in colours where it has some. With `fold` its last column
    is wrapped instead of cut.
    """
    return "\n".join(table_lines(columns, folded(columns, rows, width()) if fold else rows))


def table_lines(columns: Sequence[Column], rows: Sequence[Line]) -> list[str]:
    in_colour = colour()
    return [text_of(line, colour=in_colour) for line in table(columns, rows, width=width())]


def echo_paged(text: str) -> None:
    """Prints text; on a terminal through a pager ($PAGER, else less) where it has more lines than
    the screen.
    """
    if is_terminal() and text.count("\n") + 1 >= shutil.get_terminal_size().lines:
        # None: click decides; it tells less to show colours.
        click.echo_via_pager(text, color=None if colour() else False)
    else:
        click.echo(text)


def note(message: str, *, verbatim: bool = False) -> None:
    """One line on stderr that is no error, with its commands as they are to be typed, unless the
    words may be a handler's.
    """
    text = message if verbatim else as_typed(message)
    echo_beside(f"blackboard: {one_line(text)}")


def echo_beside(text: str, stream: TextIO | None = None) -> None:
    """Prints text on stderr, or a stream in its place. What it does not take, such as on a full
    disk, is lost, and keeps the command from nothing.
    """
    with suppress(OSError):
        click.echo(text, file=stream or sys.stderr)


def warn(message: str) -> None:
    note(f"warning: {message}")


@contextmanager
def if_writable(stream: TextIO) -> Iterator[None]:
    """Around what a server prints of itself: it serves also where the stream does not take that.
    What is left of it is not tried again as Python ends.
    """
    try:
        yield
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def writable(file: Path, option: str) -> Iterator[None]:
    """Raises BadInput naming an option when its file cannot be written."""
    try:
        yield
    except OSError as error:
        remedy = "name a file that can be written"
        raise BadInput(option, f"{shown(str(file))}: {error.strerror}", remedy) from None


def paused_words(mark: Mark, now: datetime) -> str:
    reason = f": {shown(mark.reason)}" if mark.reason else ""
    who = f"{shown(mark.by)} at {exactly(mark.at, now)}{reason}"
    return f"the board is paused, by {who}; {as_typed('`blackboard resume --board`')} ends that"


QUOTED = {"labels", "progress", "checkpoint", "last run"}
"""Facts in the words of users and handlers."""


def why_lines(headline: str, facts: Collection[tuple[str, str]], columns: int | None) -> list[Line]:
    """Why an item runs or does not, in at most so many columns."""
    margin = max((len(label) for label, _ in facts), default=0) + 4
    lines = paragraph(shown(headline), columns, style=Style.TITLE)
    for label, fact in facts:
        words = shown(fact if label in QUOTED else as_typed(fact))
        lines += paragraph(words, columns, first=f"  {label}".ljust(margin))
    return lines


# ---- for programs, and for both


def prints_to_stderr(*, when: bool) -> AbstractContextManager[Any]:
    """Around the import of jobs: what these print goes to stderr, `when` stdout is for JSON."""
    return redirect_stdout(sys.stderr) if when else nullcontext()


def emit(value: Any, *, in_a_line: bool = False) -> None:
    """Prints a record, or a value that contains records, as JSON in UTF-8."""
    text = msgspec.json.encode(as_json(value))
    lines = msgspec.json.format(text, indent=0 if in_a_line else 2)
    click.echo(shown_json(lines.decode()).encode())


def emit_toml(lines: str) -> None:
    """Prints lines of TOML in UTF-8, whatever the locale: TOML has no other encoding."""
    click.echo(lines.encode(), nl=False)
