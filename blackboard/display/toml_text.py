"""TOML as it is written by hand: what `export` prints and `apply` reads back the same; and on which
line of a text a value stands. Pure.

The reader is in Python's library, a writer is not. Written are text, whole numbers, floats,
booleans, lists, and tables: the ones within values inline.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
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

_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_TABLE = re.compile(r"\s*\[(\[?)(.+?)\]?\]\s*(?:#.*)?")
_VALUE = re.compile(rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*=")

KeyPath = Sequence[str | int]


def line_of(text: str, path: KeyPath) -> int:
    """The line, counted from 1, on which the statement begins that gives the value at `path` or,
    when there is none, the longest part of it there is. `text` is valid TOML.
    """
    best, longest = 1, 0
    table: list[str | int] = []
    numbers: dict[KeyPath, int] = {}
    """Of the last table of each array."""

    def placed(keys: Sequence[str]) -> list[str | int]:
        place: list[str | int] = []
        for key in keys:
            place.append(key)
            if tuple(place) in numbers:
                place.append(numbers[tuple(place)])
        return place

    for number, begins, keys in _statements(text):
        if begins == "[[":
            array = (*placed(keys[:-1]), keys[-1])
            numbers[array] = numbers.get(array, -1) + 1
        place = [*table, *keys] if begins == "" else placed(keys)
        if begins:
            table = place
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(place, path, strict=False))
        if (length := len([*alike])) > longest:
            best, longest = number, length
    return best


def _statements(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """The line of each statement that is not in a text of several lines; the brackets with which
    the head of a table begins, or "" for a value; and its keys.
    """
    names, open_quotes = {*tomllib.loads(text)}, ""
    for number, line in enumerate(text.split("\n"), 1):
        is_inside = bool(open_quotes)
        for quotes in ('"""', "'''"):
            if line.count(quotes) % 2 and open_quotes in {"", quotes}:
                open_quotes = "" if open_quotes else quotes
        if is_inside:
            continue
        if (head := _TABLE.fullmatch(line.rstrip("\r"))) and (keys := _keys(head[2])):
            if keys[0] in names:  # a list in a list looks like a head
                yield number, f"[{head[1]}", keys
        elif value := _VALUE.match(line):
            yield number, "", _keys(value[1])


def _keys(text: str) -> list[str]:
    """The keys of a dotted key; none where it is none."""
    try:
        value: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return []
    keys = []
    while isinstance(value, dict):
        [(key, value)] = value.items()
        keys.append(key)
    return keys
