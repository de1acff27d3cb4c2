"""Records to rows and back, field by field.

A field of a record is a column of the same name, but for `id`, which is `item` in a row (some
stores keep `id` for themselves). A None is not written; what a row lacks takes the record's
default. Columns that a record does not have are left alone by every Merge. Lists of records are
JSON in a row, "" when they are empty.

A row is read only if every column is what its field says. Any program may have written it, and one
value of another kind, or a time for which no calendar goes on, would end a worker that computes
with it.
"""

import math
from collections.abc import Callable, Iterator
from datetime import datetime
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from blackboard.errors import BadInput, BadRow
from blackboard.model import (
    VERSION,
    Applied,
    Item,
    Lock,
    Member,
    Outcome,
    QueuedRun,
    Run,
    State,
    Token,
)
from blackboard.table import Data, Row, Value

Record = TypeVar("Record", Item, Token, Lock, Run, Member)

_READ_ONLY = {"etag", "age"}
_ENUMS: dict[str, type[State | Outcome]] = {"state": State, "outcome": Outcome}
_STATES, _OUTCOMES = frozenset(State), frozenset(Outcome)
_YEARS = range(1000, 9100)
"""Schedules are computed for the years up to 9000; a jitter or a backoff adds ten at the most."""
_LARGEST = 10**12
"""The keys of the history have no room for higher fences."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_number(value: object) -> bool:
    return _is_count(value) or (isinstance(value, float) and math.isfinite(value))


def _is_time(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None and value.year in _YEARS


def _is_state(value: object) -> bool:
    return isinstance(value, str) and value in _STATES


def _is_outcome(value: object) -> bool:
    return isinstance(value, str) and value in _OUTCOMES


def _requests(value: object) -> tuple[QueuedRun, ...] | None:
    """Runs that a release of the item will go by; None: no good JSON of any."""
    found: tuple[QueuedRun, ...] | None = _decoded(value, tuple[QueuedRun, ...])
    return found if found is not None and all(_is_time(one.slot) for one in found) else None


def _applied(value: object) -> tuple[Applied, ...] | None:
    """Names that a request for the item will go by; None: no good JSON of any."""
    found: tuple[Applied, ...] | None = _decoded(value, tuple[Applied, ...])
    return found if found is not None and all(_is_time(one.at) for one in found) else None


def _decoded(value: object, kind: Any) -> Any:
    """JSON text as `kind`; None when it is none."""
    if not isinstance(value, str):
        return None
    try:
        return msgspec.json.decode(value, type=kind) if value else ()
    except (ValueError, RecursionError):
        return None


_GOOD: dict[type[Any], Callable[[object], bool]] = {
    str: _is_text,
    bool: _is_flag,
    int: _is_count,
    float: _is_number,
    datetime: _is_time,
    State: _is_state,
    Outcome: _is_outcome,
}
_LISTS: dict[str, Callable[[object], Any]] = {"requests": _requests, "applied": _applied}
"""Fields that are JSON in a row."""


def _columns(record_type: type[Any]) -> Iterator[tuple[str, str, Callable[[object], bool]]]:
    """Of each field its name, its column, and what is good in it."""
    for name, hint in get_type_hints(record_type).items():
        if name not in _READ_ONLY:
            kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint
            is_good = _is_text if name in _LISTS else _GOOD[kind]
            yield name, "item" if name == "id" else name, is_good


_COLUMNS: dict[type[Any], tuple[tuple[str, str, Callable[[object], bool]], ...]] = {
    record_type: tuple(_columns(record_type)) for record_type in (Item, Token, Lock, Run, Member)
}


def data_of(record: Item | Token | Lock | Run | Member) -> dict[str, Value]:
    """All columns of a record."""
    data: dict[str, Value] = {}
    for name, column, _ in _COLUMNS[type(record)]:
        value = getattr(record, name)
        if value is not None:
            data[column] = _written(name, value)
    return data


def columns_of(record: Item, *names: str) -> dict[str, Value]:
    """The named columns of an item: what a Merge writes."""
    data = {name: getattr(record, name) for name in names}
    return {name: _written(name, value) for name, value in data.items() if value is not None}


def _written(name: str, value: Any) -> Value:
    """The value of a field as it stands in a row."""
    if name in _ENUMS:
        return str(value.value)
    if name in _LISTS:
        return text_of(value) if value else ""
    written: Value = value
    return written


def record_of(record_type: type[Record], row: Row, **extra: float) -> Record:
    """The record in a row. Raises BadRow: rows of a newer version may lack what this one expects,
    or mean something else.
    """
    data = row.data
    found: dict[str, Any] = {"etag": row.etag, **extra}
    wrong: list[str] = []
    for name, column, is_good in _COLUMNS[record_type]:
        if column not in data:
            continue
        value: Any = data[column]
        if not is_good(value):
            wrong.append(column)
        elif name in _LISTS:
            value = _LISTS[name](value)
            if value is None:
                wrong.append(column)
        elif name in _ENUMS:
            value = _ENUMS[name](value)
        found[name] = value
    if wrong:
        raise BadRow(row.key, f"no good {', '.join(wrong)}")
    try:
        return record_type(**found)
    except TypeError:
        raise BadRow(row.key, "cannot be read") from None


def check_version(item: Item) -> None:
    """Raises BadInput for an item, or a tombstone, that a newer version wrote: it is left alone."""
    if item.version > VERSION:
        problem = f"{item.id!r} was written by a newer version"
        raise BadInput("id", problem, "upgrade blackboard")


def text_of(value: object) -> str:
    """JSON text of a nested value."""
    return msgspec.json.encode(value, order="deterministic").decode()


def version_of(data: Data) -> int:
    """The protocol version a row was written with."""
    version = data.get("version", 1)
    return version if isinstance(version, int) else 1
