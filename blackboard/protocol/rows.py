"""Turns records into rows and back, field by field.

A field of a record is a column of the same name, but for `id`, which is `item` in a row (some
stores reserve `id`). A None is not written; a column that a row lacks takes the record's default.
Columns that a record does not have are left alone by every Merge. Lists of records are JSON in a
row, "" when they are empty.

A row is read only if every column has a valid value for its field. Any program may have written it,
and one value of a wrong type, or a time at the end of the calendar, would end a worker that
computes with it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from blackboard.errors import BadInput, BadRow
from blackboard.model import (
    LARGEST,
    VERSION,
    YEARS,
    Action,
    Applied,
    Identifier,
    Item,
    Lock,
    LogLine,
    Member,
    Message,
    MessageKind,
    Outcome,
    Permit,
    QueuedRun,
    Run,
    State,
    Statistics,
    Token,
    TypeCounts,
    decoded_as,
)
from blackboard.protocol import keys
from blackboard.schedule.times import LONGEST
from blackboard.table import Data, Row, Value

Record = TypeVar("Record", Item, Token, Lock, Permit, Run, Member, Message, Statistics, Action)

_READ_ONLY = {"etag", "age"}
SHORTEST_CYCLE = 0.001
"""Seconds of the cycle in a worker's row, at least."""

# ---- from a row: each of these returns the value of a field, None for one that is not valid

Reader = Callable[[object], Any]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= LARGEST else None


def _number(value: object) -> float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _count(value)


def _cycle(value: object) -> float | None:
    number = _number(value)
    is_one = number is not None and SHORTEST_CYCLE <= number <= LONGEST.total_seconds()
    return number if is_one else None


def _version(value: object) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 1 <= value <= LARGEST else None


def _time(value: object) -> datetime | None:
    if isinstance(value, datetime) and value.tzinfo is not None and value.year in YEARS:
        return value
    return None


def _one_of(kind: type[State | Outcome | MessageKind]) -> Reader:
    values: dict[object, State | Outcome | MessageKind] = {one.value: one for one in kind}
    return lambda value: values.get(value) if isinstance(value, str) else None


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, str):
        return None
    return decoded_as(tuple[str, ...], value) if value else ()


def _list_of(
    kind: type[QueuedRun | Applied | LogLine | Identifier | TypeCounts], field: str, good: Reader
) -> Reader:
    """Reads a JSON list of records; `good` must accept the `field` of each."""
    decode = msgspec.json.Decoder(tuple[kind, ...]).decode  # type: ignore[valid-type] # a variable

    def read(value: object) -> Any:
        if not isinstance(value, str):
            return None
        try:
            found: tuple[Any, ...] = decode(value) if value else ()
        except (ValueError, RecursionError):
            return None
        for one in found:
            if good(getattr(one, field)) is None:
                return None
        return found

    return read


_READERS: dict[Any, Reader] = {
    str: _text,
    bool: _flag,
    int: _count,
    float: _number,
    datetime: _time,
    State: _one_of(State),
    Outcome: _one_of(Outcome),
    MessageKind: _one_of(MessageKind),
    tuple[str, ...]: _texts,
    tuple[QueuedRun, ...]: _list_of(QueuedRun, "slot", _time),
    tuple[Applied, ...]: _list_of(Applied, "at", _time),
    tuple[LogLine, ...]: _list_of(LogLine, "at", _time),
    tuple[Identifier, ...]: _list_of(Identifier, "rank", _count),
    tuple[TypeCounts, ...]: _list_of(TypeCounts, "items", _count),
}
"""Readers by the type of a field."""
_BY_NAME: dict[str, Reader] = {"version": _version, "cycle": _cycle}
"""Readers by the name of a field, where not all values of its type are valid. `stale_after` is not
here: a lock with a lease of years must be readable, so that `blackboard doctor` can free its item.
"""
_PLAIN = {str, bool, int}
"""Types whose values need no reader: all are valid, except integers out of range."""


class _Column(NamedTuple):
    """A field and its column."""

    field: str
    name: str
    plain: type[Any] | None
    """The type of the field, if its values need no reader."""
    read: Reader
    may_be_odd: bool
    """Whether the record may have a value here that a row cannot have: None, a list, an
    enumeration."""


def _columns(record_type: type[Any]) -> Iterator[_Column]:
    for field, hint in get_type_hints(record_type).items():
        if field not in _READ_ONLY:
            kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint
            plain = kind if kind in _PLAIN and field not in _BY_NAME else None
            may_be_odd = kind is not hint or kind not in _PLAIN | {float, datetime}
            name = "item" if field == "id" else field
            read = _BY_NAME.get(field, _READERS[kind])
            yield _Column(field, name, plain, read, may_be_odd)


class _Form(NamedTuple):
    """How the records of a type are written and read."""

    columns: tuple[_Column, ...]
    names: tuple[str, ...]
    """The names of the columns."""
    values: Callable[[Any], tuple[Any, ...]]
    """Returns the values of a record in the order of the columns."""
    odd: tuple[str, ...]
    """Columns that may be None in a record, or are lists or enumerations there."""
    rare: tuple[str, ...]
    """Columns that most rows do not have."""


def _form(record_type: type[Any], *rare: str) -> _Form:
    columns = tuple(_columns(record_type))
    return _Form(
        columns=columns,
        names=tuple(one.name for one in columns),
        values=attrgetter(*(one.field for one in columns)),
        odd=tuple(one.name for one in columns if one.may_be_odd),
        rare=rare,
    )


_FORMS: dict[type[Any], _Form] = {
    Item: _form(
        Item, "checkpoint", "warned", "warnings", "declared_by", "acknowledged", "put_back"
    ),
    Token: _form(Token, "checkpoint", "warned"),
    Run: _form(Run, "warnings", "log"),
    Member: _form(Member, "rank"),
    Lock: _form(Lock, "stood_still"),
    Permit: _form(Permit, "value"),
    Message: _form(Message),
    Statistics: _form(Statistics),
    Action: _form(Action),
}


def record_of(record_type: type[Record], row: Row, **extra: float) -> Record:
    """The record in a row. Raises BadRow, which also says where a newer version wrote the row."""
    data = row.data
    found: dict[str, Any] = {"etag": row.etag, **extra}
    wrong: list[str] = []
    for field, name, plain, read, _ in _FORMS[record_type].columns:
        if name in data:
            value: Any = data[name]
            if type(value) is not plain:
                value = read(value)
                if value is None:
                    wrong.append(name)
            elif plain is int and not 0 <= value <= LARGEST:
                wrong.append(name)
            found[field] = value
    problem = f"no good {', '.join(wrong)}" if wrong else "cannot be read"
    if not wrong:
        with suppress(TypeError):  # a column is missing
            return record_type(**found)
    if version_of(data) > VERSION:
        problem = "a newer version wrote it: upgrade blackboard"
    raise BadRow(row.key, problem)


_KEYS: dict[type[Any], Callable[[Any], str]] = {
    Item: lambda item: keys.item_key(item.id),
    Lock: lambda lock: keys.lock_key(lock.id),
    Token: lambda token: keys.next_key(token.ready, token.id),
    Run: lambda run: keys.run_key(run.id, run.fence),
    Member: lambda member: keys.worker_key(member.owner),
}
"""Computes the key of a row from its record. A row under another key could not be claimed, released
or changed."""


class WrongKey(BadRow):
    """A row lies under another key than its columns make."""


def record_in(record_type: type[Record], row: Row, **extra: float) -> Record:
    """The record in a row. Raises BadRow as `record_of`, and WrongKey."""
    found = record_of(record_type, row, **extra)
    if (key_of := _KEYS.get(record_type)) and key_of(found) != row.key:
        raise WrongKey(row.key, "its key does not match its columns")
    return found


def readable(record_type: type[Record], row: Row | None, **extra: float) -> Record | None:
    """As `record_in`; None for no row, one of a newer version, and one that cannot be read."""
    if row is None or version_of(row.data) > VERSION:
        return None
    try:
        return record_in(record_type, row, **extra)
    except BadRow:
        return None


# ---- to a row


def data_of(record: Record) -> dict[str, Value]:
    """All columns of a record, for a row that is inserted or replaced. Rare columns are left out
    where they are empty.
    """
    form = _FORMS[type(record)]
    data = dict(zip(form.names, form.values(record), strict=True))
    for name in form.rare:
        if not data[name]:
            del data[name]
    return _written(data, form.odd)


def columns_of(record: Item, *names: str) -> dict[str, Value]:
    """The named columns of an item: what a Merge writes."""
    values, odd = _getters(names)
    return _written(dict(zip(names, values(record), strict=True)), odd)


@lru_cache(maxsize=1024)
def _getters(names: tuple[str, ...]) -> tuple[Callable[[Item], tuple[Any, ...]], tuple[str, ...]]:
    """A function that reads these columns of an item, and those whose values need conversion."""
    odd = tuple(name for name in names if name in _FORMS[Item].odd)
    if len(names) > 1:
        return attrgetter(*names), odd
    return lambda item: tuple(getattr(item, name) for name in names), odd


def _written(data: dict[str, Any], odd: Iterable[str]) -> dict[str, Value]:
    """The values as a row has them. `odd` names the columns whose values need conversion."""
    for name in odd:
        value = data.get(name, "")
        if value is None:
            del data[name]
        elif isinstance(value, tuple):
            data[name] = text_of(value) if value else ""
        elif isinstance(value, StrEnum):
            data[name] = value.value
    return data


def check_version(item: Item) -> None:
    """Raises BadInput for an item, or a tombstone, that a newer version wrote: it is left alone."""
    if item.version > VERSION:
        problem = f"{item.id!r} was written by a newer version"
        raise BadInput("id", problem, "upgrade blackboard")


def text_of(value: object) -> str:
    """JSON text of a nested value."""
    return msgspec.json.encode(value, order="deterministic").decode()


def version_of(data: Data) -> int:
    """The protocol version a row was written with. A Double without a fraction is an integer. 0:
    the column is no version, and the row is damaged.
    """
    version = data.get("version", 1)
    if type(version) is float and version.is_integer():
        version = int(version)
    return min(version, LARGEST) if type(version) is int and version >= 1 else 0
