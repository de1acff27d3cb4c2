"""On which line of a TOML text a value stands, which TOML readers do not keep.

Shorter and shorter beginnings of the text are read until the value is missing, so that this needs
no syntax of its own. Of an array of tables only the table that is meant is read so.
"""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

_STATEMENT = re.compile(r"""\s*(\[|["']?[\w-])""")
"""The beginning of a line that may be a statement."""

KeyPath = Sequence[str | int]


def line_of(text: str, path: KeyPath) -> int:
    """The line, counted from 1, on which the statement begins that first gives the value at `path`
    or, when there is none, the longest part of it there is. `text` is valid TOML.
    """
    data: Any = tomllib.loads(text)
    while path and not _has(data, path):
        path = path[:-1]
    if not path:
        return 1
    lines = text.split("\n")
    match path:
        case [str(name), int(number), *rest] if number or len(data[name]) > 1:
            heads = [at for at, line in enumerate(lines) if line.strip() == f"[[{name}]]"]
            if len(heads) == len(data[name]):  # each table has one, and nothing else looks so
                end = heads[number + 1] if number + 1 < len(heads) else None
                block = "\n".join(lines[heads[number] : end])
                return heads[number] + line_of(block, [name, 0, *rest])
    starts = [number for number, line in enumerate(lines) if _STATEMENT.match(line)]
    before, after = 0, len(lines)
    """The path is absent in the lines up to `before`, present in those up to `after`."""
    while inside := [number for number in starts if before < number < after]:
        middle = len(inside) // 2
        for number in inside[middle:] + inside[:middle][::-1]:
            beginning = _read(lines[:number])
            if beginning is not None:
                break
        else:
            break
        if _has(beginning, path):
            after = number
        else:
            before = number
    return next((number for number in starts if number >= before), before) + 1


def _read(lines: Sequence[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _has(value: Any, path: KeyPath) -> bool:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
