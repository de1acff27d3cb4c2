"""Tables as text: how wide each column is, and what is cut to fit a terminal. Pure.

Ten thousand rows are laid out in the time that a terminal library takes for a few hundred. Any text
of a row stays on one line, and its control characters are escaped.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


def shown(text: str) -> str:
    """`text` on one line: control characters, lone surrogates and other characters that are not
    printable are written as escapes.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def one_line(text: str) -> str:
    """A message on one line."""
    return shown(" ".join(text.splitlines()))


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode()


BETWEEN = 2
"""Spaces between two columns."""
CUT = "…"


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


ANSI = {
    Style.TITLE: "\x1b[1m",
    Style.QUIET: "\x1b[90m",
    Style.GOOD: "\x1b[32m",
    Style.BUSY: "\x1b[36m",
    Style.LATE: "\x1b[33m",
    Style.BAD: "\x1b[31m",
    Style.LOST: "\x1b[35m",
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
    """Cut between words: "overdue 22m" becomes "overdue"."""
    spare: bool = False
    """Left out before any column is cut below its usual width."""


def table(columns: Sequence[Column], rows: Sequence[Line], *, width: int | None) -> list[Line]:
    """A title line and a line for each row, padded; at most `width` wide, if that is possible."""
    lines = [[(column.title, Style.TITLE) for column in columns], *rows]
    texts = [_all_shown([line[n][0] for line in lines]) for n in range(len(columns))]
    natural = [_widest(column) for column in texts]
    if width is None or _total(natural) <= width:
        kept = list(enumerate(natural))
    else:
        kept = squeezed(columns, natural, width)
    padded = [_all_fitted(texts[n], size, words=columns[n].words) for n, size in kept]
    styles = [[line[n][1] for line in lines] for n, _ in kept]
    cells = [list(zip(*column, strict=True)) for column in zip(padded, styles, strict=True)]
    return list(zip(*cells, strict=True))


def _all_shown(texts: list[str]) -> list[str]:
    """One check of a whole column is faster than one of each of its texts."""
    return texts if "".join(texts).isprintable() else [shown(text) for text in texts]


def _widest(texts: list[str]) -> int:
    return max(map(len if "".join(texts).isascii() else measure, texts))


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
        kept, used = "", 0
        for one in text:
            used += measure(one)
            if used > size - 1:
                break
            kept += one
        text = kept + CUT[:size]
    return text + " " * (size - measure(text))


def measure(text: str) -> int:
    """The cells of a terminal that a text occupies."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(one: str) -> int:
    if unicodedata.category(one) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(one) in {"W", "F"} else 1


def text_of(line: Line, *, colour: bool) -> str:
    """A line as text, with the colours of a terminal if `colour` says so."""
    gap = " " * BETWEEN
    if not colour:
        return gap.join([text for text, _ in line]).rstrip()
    return gap.join(
        [f"{ANSI[style]}{text}{RESET}" if style else text for text, style in line]
    ).rstrip()


def texts_of(lines: Iterable[Line], *, colour: bool) -> str:
    """Lines as one text."""
    return "\n".join([text_of(line, colour=colour) for line in lines])
