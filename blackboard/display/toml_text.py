"""TOML as it is written by hand: what `export` prints and `apply` reads back the same. Pure.

The reader is in Python's library, a writer is not. Written are text, whole numbers, floats,
booleans, lists, and tables: the ones within values inline.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from blackboard.errors import BadInput

LINE = 88
"""The longest line, in characters: a longer list is written with one value a line."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPED_IN_LINES = re.compile(r'[\x00-\x09\x0b-\x1f\x7f\\]|"(?="")|"$')


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
            return f"[{', '.join(value_text(one, where) for one in value)}]"
        case dict():
            pairs = (f"{key_text(k)} = {value_text(v, f'{where}.{k}')}" for k, v in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case _:
            raise BadInput(where, f"TOML has no {json.dumps(value)}", "use --json")


def _top_level(value: Any, key: str) -> str:
    if isinstance(value, str) and "\n" in value:
        inner = _ESCAPED_IN_LINES.sub(_escape, value)
        return f'"""\n{inner}"""'
    try:
        line = value_text(value, key)
    except RecursionError:
        raise BadInput(key, "it is nested too deeply", "use --json") from None
    if not isinstance(value, list) or len(line) <= LINE:
        return line
    inner = "".join(f"  {value_text(one, key)},\n" for one in value)
    return f"[\n{inner}]"


def _text(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    one = match[0]
    return f"\\{one}" if one in '"\\' else f"\\u{ord(one):04X}"
