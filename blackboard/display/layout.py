"""Tables as text: how wide each column is, and what is cut to fit a terminal. Pure.

Ten thousand rows are laid out in the time that a terminal library takes for a few hundred. Any text
of a row stays on one line, and its control characters are escaped (`escaping.py`).
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from blackboard.display.escaping import shown

BETWEEN = 2
"""Spaces between two columns."""
CUT = "…"
MOST_PADDED = 60
"""The most cells of a column where a line may have any length: a longer text sticks out."""


class Style(StrEnum):
    """The meaning of a text. A colour never says more than the words do."""

    PLAIN = ""
    TITLE = "title"
    QUIET = "quiet"
    GOOD = "good"
    BUSY = "busy"
    LATE = "late"
    BAD = "bad"
    LOST = "lost"
    CHOSEN = "chosen"
    """The line to which the keys apply, which is marked as well."""


ANSI = {
    Style.TITLE: "\x1b[1m",
    Style.QUIET: "\x1b[90m",
    Style.GOOD: "\x1b[32m",
    Style.BUSY: "\x1b[36m",
    Style.LATE: "\x1b[33m",
    Style.BAD: "\x1b[31m",
    Style.LOST: "\x1b[35m",
    Style.CHOSEN: "\x1b[7m",
}
RESET = "\x1b[0m"

Cell = tuple[str, Style]
Line = Sequence[Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, and its width where the line is too narrow for all columns."""

    title: str
    least: int
    """The smallest width in cells: below it the column is left out."""
    usual: int
    """The width in cells that it gets before any column gets more than this."""
    worth: int
    """Columns with a higher value get their width first, and are left out last."""
    words: bool = False
    """Whether it is cut between words: "overdue 22m" becomes "overdue"."""
    spare: bool = False
    """Whether it is left out before any column is cut below its usual width."""


def table(
    columns: Sequence[Column],
    rows: Sequence[Line],
    *,
    width: int | None,
    natural: Sequence[int] = (),
) -> list[Line]:
    """A title line and a line for each row, padded; at most `width` wide, if that is possible.
    `natural` are the widths of the columns where later rows count, too; else those of these texts.
    """
    lines = [[(column.title, Style.TITLE) for column in columns], *rows]
    texts = [_all_shown([line[n][0] for line in lines]) for n in range(len(columns))]
    natural = natural or [_widest(column) for column in texts]
    if width is None:
        kept = [(n, min(size, MOST_PADDED)) for n, size in enumerate(natural)]
        padded = [[_padded(text, size) for text in texts[n]] for n, size in kept]
    else:
        fits = _total(natural) <= width
        kept = list(enumerate(natural)) if fits else squeezed(columns, natural, width)
        padded = [_all_fitted(texts[n], size, words=columns[n].words) for n, size in kept]
    styles = [[line[n][1] for line in lines] for n, _ in kept]
    cells = [list(zip(*column, strict=True)) for column in zip(padded, styles, strict=True)]
    return list(zip(*cells, strict=True))


def _all_shown(texts: list[str]) -> list[str]:
    """One check of a whole column is faster than one of each of its texts."""
    return texts if "".join(texts).isprintable() else [shown(text) for text in texts]


def _widest(texts: list[str]) -> int:
    return max(map(len if "".join(texts).isascii() else measure, texts))


def _padded(text: str, size: int) -> str:
    return text + " " * (size - measure(text))


def _all_fitted(texts: list[str], size: int, *, words: bool) -> list[str]:
    if max(map(len, texts)) <= size and "".join(texts).isascii():
        return [text.ljust(size) for text in texts]
    return [fitted(text, size, words=words) for text in texts]


def squeezed(
    columns: Sequence[Column], natural: Sequence[int], width: int
) -> list[tuple[int, int]]:
    """The columns that fit, by number, and the width of each. Spare ones are left out, those of the
    lowest worth first, until the others have their usual widths. Each of these gets its least
    width; if that is too much, columns of the lowest worth are left out. The rest of the line is
    shared by worth, first up to the usual widths, then up to the natural ones.
    """
    least = [min(column.least, size) for column, size in zip(columns, natural, strict=True)]
    usual = [min(column.usual, size) for column, size in zip(columns, natural, strict=True)]
    by_worth = sorted(range(len(columns)), key=lambda n: -columns[n].worth)
    for spare in [n for n in reversed(by_worth) if columns[n].spare]:
        if _total([usual[n] for n in by_worth]) > width:
            by_worth.remove(spare)
    while len(by_worth) > 1 and _total([least[n] for n in by_worth]) > width:
        by_worth.pop()
    sizes = {n: least[n] for n in by_worth}
    room = width - _total(list(sizes.values()))
    for limits in ([column.usual for column in columns], natural):
        for n in by_worth:
            more = min(max(min(limits[n], natural[n]) - sizes[n], 0), max(room, 0))
            sizes[n] += more
            room -= more
    return sorted(sizes.items())


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + BETWEEN * (len(widths) - 1)


def fitted(text: str, size: int, *, words: bool = False) -> str:
    """`text` padded to `size` cells of a terminal, or cut and marked as cut. With `words` it is
    cut after its first word, unmarked, if that fits.
    """
    if words and measure(text) > size:
        first = text.partition(" ")[0]
        text = first if measure(first) <= size else text
    if text.isascii():
        return text.ljust(size) if len(text) <= size else text[: max(size - 1, 0)] + CUT[:size]
    if measure(text) > size:
        text = text[: _fitting(text, size - 1)] + CUT[:size]
    return _padded(text, size)


def _fitting(text: str, size: int) -> int:
    """How many characters of `text` fit into `size` cells."""
    used = 0
    for number, char in enumerate(text):
        used += measure(char)
        if used > size:
            return number
    return len(text)


def cropped(line: Line, width: int) -> Line:
    """A line in at most `width` cells: what is too much is cut and marked as cut."""
    room, kept = width, []
    for text, style in line:
        if room <= 0:
            break
        kept.append((text if measure(text) <= room else fitted(text, room), style))
        room -= measure(text) + BETWEEN
    return kept


def titled(
    columns: Sequence[Column], rows: Sequence[Line], titles: Collection[str]
) -> tuple[Sequence[Column], Sequence[Line]]:
    """The columns with these titles, and their cells of each row."""
    places = [place for place, column in enumerate(columns) if column.title in titles]
    kept = [[line[place] for place in places] for line in rows]
    return [columns[place] for place in places], kept


_WORDS = re.compile(r"( +)")


def wrap(text: str, width: int, *, first: str = "", margin: str | None = None) -> list[str]:
    """A paragraph in lines of at most `width` cells: `first` comes before the first line, `margin`
    before the others, or as many spaces. A word that is longer than a line is cut.
    """
    margin = " " * measure(first) if margin is None else margin
    lines, line, gap, is_empty = [], first, "", True
    least = max(width, measure(margin) + 1, measure(first) + 1)
    for word in _WORDS.split(text):
        if not word.strip(" "):
            gap = word
            continue
        left = word
        if not is_empty and measure(line + gap + left) > least:
            lines.append(line)
            line, gap, is_empty = margin, "", True
        while measure(line + gap + left) > least:
            size = max(_fitting(left, least - measure(line + gap)), 1)
            lines.append(line + gap + left[:size])
            line, gap, left = margin, "", left[size:]
        line, gap, is_empty = line + gap + left, "", not left
    return lines if is_empty and lines else [*lines, line]


def measure(text: str) -> int:
    """The cells of a terminal that a text occupies."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def paragraph(
    text: str,
    width: int | None,
    *,
    first: str = "",
    margin: str | None = None,
    style: Style = Style.PLAIN,
) -> list[Line]:
    """A text in lines of at most `width` cells, one line if there is no width; see `wrap`."""
    if width is None:
        return [[(first + text, style)]]
    return [[(line, style)] for line in wrap(text, width, first=first, margin=margin)]


def folded(columns: Sequence[Column], rows: Sequence[Line], width: int | None) -> Sequence[Line]:
    """Rows of a table whose last column is in words: where it would be cut, it goes on in rows of
    its own.
    """
    if width is None:
        return rows
    titles = [(column.title, Style.TITLE) for column in columns]
    before = [_widest([line[n][0] for line in [titles, *rows]]) for n in range(len(columns) - 1)]
    room = width - _total([*before, 0])
    if room < columns[-1].least:
        return rows
    lines: list[Line] = []
    for *cells, (text, style) in rows:
        first, *more = wrap(text, room)
        lines.append([*cells, (first, style)])
        lines += [[*(("", Style.PLAIN) for _ in cells), (line, style)] for line in more]
    return lines


def text_of(line: Line, *, colour: bool) -> str:
    """A line as text, with the colours of a terminal if `colour` says so."""
    gap = " " * BETWEEN
    if not colour:
        return gap.join([text for text, _ in line]).rstrip()
    return gap.join(
        [f"{ANSI[style]}{text}{RESET}" if style else text for text, style in line]
    ).rstrip()


def texts_of(lines: Iterable[Line], *, colour: bool) -> str:
    return "\n".join([text_of(line, colour=colour) for line in lines])
