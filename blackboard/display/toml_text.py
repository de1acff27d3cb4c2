"""TOML as it is written by hand: what `export` prints and `apply` reads back the same; and on which
line of a text a value stands. Pure.

The reader is in Python's library, a writer is not. Written are text, whole numbers, floats,
booleans, lists, and tables: the ones within values inline. A reader does not keep on which line it
has found a value.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from blackboard.display.escaping import escaped
from blackboard.errors import BadInput

LINE = 88
"""The longest line, in characters: a longer list is written with one value a line."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r'[\n"\\]')
_ESCAPED_IN_LINES = re.compile(r'\\|"(?="")|"$')


def lines_of(table: Mapping[str, Any]) -> Iterator[str]:
    """Yields `key = value` for each key. Raises BadInput for a value that TOML cannot have."""
    for key, value in table.items():
        yield f"{key_text(key)} = {_top_level(value, key)}"


def key_text(key: str) -> str:
    """A key, in quotes if it needs them."""
    return key if _BARE.fullmatch(key) else _text(key)


def value_text(value: Any, where: str) -> str:
    """A value on one line. Raises BadInput, which names `where`, if TOML cannot have it."""
    match value:
        case str():
            return _text(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return json.dumps(value, allow_nan=False)
        case list():
            return f"[{', '.join(value_text(inner, where) for inner in value)}]"
        case dict():
            pairs = (f"{key_text(k)} = {value_text(v, f'{where}.{k}')}" for k, v in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case _:
            raise BadInput(where, f"TOML has no {json.dumps(value)}", "use --json")


def _top_level(value: Any, key: str) -> str:
    if isinstance(value, str) and "\n" in value:
        inner = escaped(_ESCAPED_IN_LINES.sub(_escape, value), _escape_of)
        return f'"""\n{inner}"""'
    try:
        line = value_text(value, key)
    except RecursionError:
        raise BadInput(key, "it is nested too deeply", "use --json") from None
    if not isinstance(value, list) or len(line) <= LINE:
        return line
    inner = "".join(f"  {value_text(entry, key)},\n" for entry in value)
    return f"[\n{inner}]"


def _text(text: str) -> str:
    return f'"{escaped(_ESCAPED.sub(_escape, text), _escape_of)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return f"\\{char}" if char in '"\\' else _escape_of(char)


def _escape_of(char: str) -> str:
    return f"\\u{ord(char):04X}" if ord(char) < 0x10000 else f"\\U{ord(char):08X}"


# ---- lines

_STATEMENT = re.compile(r"""\s*(\[|["']?[\w-])""")
"""The beginning of a line that may be a statement."""

_HEAD = re.compile(r"""\s*\[\[\s*([\w-]+|"[\w-]+"|'[\w-]+')\s*\]\]\s*(?:#.*)?""")
"""A line that begins the next table of an array."""

KeyPath = Sequence[str | int]


def line_of(text: str, path: KeyPath) -> int:
    """The line, counted from 1, on which the statement begins that first gives the value at `path`
    or, when there is none, the longest part of it there is. `text` is valid TOML.

    Shorter and shorter beginnings of the text are read until the value is missing, so that this
    needs no syntax of its own. Of an array of tables only the table that is meant is read so.
    """
    data: Any = tomllib.loads(text)
    while path and not _has(data, path):
        path = path[:-1]
    if not path:
        return 1
    lines = text.replace("\r\n", "\n").split("\n")
    match path:
        case [str(name), int(number), *rest] if number or len(data[name]) > 1:
            if block := _lines_of_table(lines, name, number, tables=data[name]):
                begin, end = block
                return begin + line_of("\n".join(lines[begin:end]), [name, 0, *rest])
    return _first_line_with(lines, path)


def _lines_of_table(
    lines: Sequence[str], name: str, number: int, *, tables: Sequence[Any]
) -> tuple[int, int] | None:
    """The lines of one of the `tables` of an array: the first, and the first after them. None:
    something else in the text looks like the head of a table.
    """
    heads = [at for at, line in enumerate(lines) if _head_of(line) == name]
    if len(heads) != len(tables):
        return None
    begin, end = heads[number], heads[number + 1] if number + 1 < len(heads) else len(lines)
    alone = _read(lines[begin:end]) or {}
    return (begin, end) if alone.get(name) == [tables[number]] else None


def _first_line_with(lines: Sequence[str], path: KeyPath) -> int:
    """The line, counted from 1, of the statement that first gives the value at `path`."""
    starts = [number for number, line in enumerate(lines) if _STATEMENT.match(line)]
    # The path is absent in the lines up to `before`, and present in those up to `after`.
    before, after = 0, len(lines)
    while inside := [number for number in starts if before < number < after]:
        middle = len(inside) // 2
        beginnings = (
            (number, _read(lines[:number])) for number in inside[middle:] + inside[:middle][::-1]
        )
        number, beginning = next((each for each in beginnings if each[1] is not None), (0, None))
        if beginning is None:
            break
        if _has(beginning, path):
            after = number
        else:
            before = number
    return next((number for number in starts if number >= before), before) + 1


def _head_of(line: str) -> str | None:
    """The name of the array whose next table the line begins, if it looks like such a line."""
    head = _HEAD.fullmatch(line)
    return head[1].strip("\"'") if head else None


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
