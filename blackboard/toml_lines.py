"""Which line of a TOML file a value stands on: readers forget lines, and people need them.

The first statements of a file are a file too. So the statement that makes a path appear is found
by reading shorter and shorter beginnings: whatever TOML is written like, tables inline or not,
text over several lines, the reader itself decides.
"""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

_STATEMENT = re.compile(r"""\s*(\[|["']?[\w-])""")
"""What a line may begin with if a statement begins there."""

Path = Sequence[str | int]


def line_of(text: str, path: Path) -> int:
    """The line, counted from 1, on which the statement begins that first gives the value at `path`
    or, when there is none, the longest part of it there is. `text` is valid TOML.
    """
    while path and not _has(tomllib.loads(text), path):
        path = path[:-1]
    if not path:
        return 1
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _STATEMENT.match(line)]
    before, after = 0, len(lines)
    """The path is absent from the lines up to `before`, present in those up to `after`."""
    while inside := [number for number in starts if before < number < after]:
        middle = len(inside) // 2
        for number in inside[middle:] + inside[:middle][::-1]:
            known = _read(lines[:number])
            if known is not None:
                break
        else:
            break
        if _has(known, path):
            after = number
        else:
            before = number
    return next((number for number in starts if number >= before), before) + 1


def _read(lines: Sequence[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _has(value: Any, path: Path) -> bool:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
