"""Turns records into rows and back, field by field.

A field of a record is a column of the same name, but for `id`, which is `item` in a row (some
stores reserve `id`). A None is not written; a column that a row lacks takes the record's default.
Columns that a record does not have are left alone by every Merge. Lists of records are JSON in a
row, "" when they are empty.

A row is read only if every column has a valid value for its field. Any program may have written it,
and one value of a wrong type, or a time at the end of the calendar, would end a worker that
computes with it.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from blackboard.errors import BadInput, BadRow
from blackboard.model import (
    LARGEST,
    VERSION,
    YEARS,
    Action,
    Item,
    Lock,
    Member,
    Message,
    Permit,
    Run,
    Statistics,
    Token,
)
from blackboard.protocol import keys
from blackboard.table import Data, Row, Value

Record = TypeVar("Record", Item, Token, Lock, Permit, Run, Member, Message, Statistics, Action)

# ---- from a row

_NOT_WRITTEN = {"etag", "age"}
_NATIVE = (datetime,)
"""Types that a row holds beside those of JSON."""
_NOT_OF_THE_TYPE = (msgspec.ValidationError, UnicodeEncodeError)
"""Raised by msgspec for a value of another type: the second for text with half of a surrogate pair.
"""
Reader = Callable[[object], Any]
"""Returns the list in the text of a column; None where the text is not good."""


class _Odd(NamedTuple):
    """Columns whose values are not the same in a row."""

    optional: tuple[str, ...]
    """They may be None in a record."""
    lists: tuple[str, ...]
    enums: tuple[str, ...]

    def among(self, names: Iterable[str]) -> "_Odd":
        """Those of some columns."""
        return _Odd(*(tuple(name for name in names if name in kind) for kind in self))


class _Form(NamedTuple):
    """How the records of a type are written and read."""

    types: dict[str, Any]
    """The types of the fields, with what is demanded of their values."""
    columns: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    """Returns the values of a record in the order of the columns."""
    odd: _Odd
    rare: tuple[str, ...]
    """Columns that most rows do not have."""
    lists: tuple[tuple[str, Reader], ...]
    """Columns that are lists in a record, and what reads their text."""
    times: tuple[str, ...]


def _form(record_type: type[Any], *rare: str) -> _Form:
    hints = get_type_hints(record_type, include_extras=True)
    types = {name: hint for name, hint in hints.items() if name not in _NOT_WRITTEN}
    kinds = {name: _kind(hint) for name, hint in types.items()}
    lists = [name for name, kind in kinds.items() if get_origin(kind) is tuple]
    return _Form(
        types=types,
        columns=tuple("item" if name == "id" else name for name in types),
        values=attrgetter(*types),
        odd=_Odd(
            optional=tuple(name for name, hint in types.items() if NoneType in get_args(hint)),
            lists=tuple(lists),
            enums=tuple(name for name, kind in kinds.items() if _is_enum(kind)),
        ),
        rare=rare,
        lists=tuple((name, _list_reader(types[name])) for name in lists),
        times=tuple(name for name, kind in kinds.items() if kind is datetime),
    )


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def _kind(hint: Any) -> Any:
    """A type without None and without what is demanded of its values."""
    if NoneType in get_args(hint):
        return _kind(get_args(hint)[0])
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _list_reader(hint: Any) -> Reader:
    decode = msgspec.json.Decoder(hint).decode
    kind, _ = get_args(hint)
    times = [name for name, of_field in get_type_hints(kind).items() if of_field is datetime]

    def read(text: object) -> tuple[Any, ...] | None:
        if text == "":
            return ()
        try:
            values: tuple[Any, ...] = decode(text)  # type: ignore[arg-type] # it raises TypeError
        except (TypeError, ValueError, RecursionError):
            return None
        is_far = any(getattr(record, name).year not in YEARS for record in values for name in times)
        return None if is_far else values

    return read


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


def record_of(record_type: type[Record], row: Row, *, age: float = 0.0) -> Record:
    """The record in a row. Raises BadRow, which also says where a newer version wrote the row."""
    form = _FORMS[record_type]
    data: dict[str, Any] = {**row.data, "etag": row.etag, "age": age}
    data["id"] = data.pop("item", None)
    if type(data.get("version")) is float:
        data["version"] = version_of(data)
    for name, read in form.lists:
        if name in data:
            data[name] = read(data[name])
    try:
        record = msgspec.convert(data, record_type, builtin_types=_NATIVE)
    except _NOT_OF_THE_TYPE:
        raise _bad(row, form, data) from None
    for name in form.times:
        moment = getattr(record, name)
        if moment is not None and moment.year not in YEARS:
            raise _bad(row, form, data)
    return record


def _bad(row: Row, form: _Form, data: dict[str, Any]) -> BadRow:
    """What is wrong with a row whose `data` are no good record of this form."""
    if version_of(data) > VERSION:
        return BadRow(row.key, "a newer version wrote it: upgrade blackboard")
    wrong = [
        column
        for column, (name, hint) in zip(form.columns, form.types.items(), strict=True)
        if name in data and not _is_good(data[name], hint)
    ]
    return BadRow(row.key, f"no good {', '.join(wrong)}" if wrong else "cannot be read")


def _is_good(value: object, hint: Any) -> bool:
    try:
        converted = msgspec.convert(value, hint, builtin_types=_NATIVE)
    except _NOT_OF_THE_TYPE:
        return False
    return not isinstance(converted, datetime) or converted.year in YEARS


_FITS: dict[type[Any], Callable[[Any, str], bool]] = {
    Item: lambda item, key: key == keys.item_key(item.id),
    Lock: lambda lock, key: key == keys.lock_key(lock.id),
    Token: lambda token, key: keys.is_next_key(key, token.ready, token.id),
    Run: lambda run, key: key == keys.run_key(run.id, run.fence),
    Member: lambda member, key: key == keys.worker_key(member.owner),
}
"""Whether a record's row has this key. A row under another key could not be claimed, released or
changed."""


class WrongKey(BadRow):
    """A row lies under another key than its columns make."""


def record_in(record_type: type[Record], row: Row, *, age: float = 0.0) -> Record:
    """The record in a row. Raises BadRow as `record_of`, and WrongKey."""
    record = record_of(record_type, row, age=age)
    if (fits := _FITS.get(record_type)) and not fits(record, row.key):
        raise WrongKey(row.key, "its key does not match its columns")
    return record


def readable(record_type: type[Record], row: Row | None, *, age: float = 0.0) -> Record | None:
    """As `record_in`; None for no row, one of a newer version, and one that cannot be read."""
    if row is None or version_of(row.data) > VERSION:
        return None
    try:
        return record_in(record_type, row, age=age)
    except BadRow:
        return None


# ---- to a row


def data_of(record: Record, *, kind: type[Token] | None = None) -> dict[str, Value]:
    """All columns of a record, for a row that is inserted or replaced; with `kind`, those that an
    item has in common with its waiting token. Rare columns are left out where they are empty.
    """
    form = _FORMS[kind or type(record)]
    data = dict(zip(form.columns, form.values(record), strict=True))
    for name in form.rare:
        if not data[name]:
            del data[name]
    return _written(data, form.odd)


def columns_of(record: Item, *names: str) -> dict[str, Value]:
    """The named columns of an item: what a Merge writes."""
    values, odd = _getters(names)
    return _written(dict(zip(names, values(record), strict=True)), odd)


@lru_cache(maxsize=1024)
def _getters(names: tuple[str, ...]) -> tuple[Callable[[Item], tuple[Any, ...]], _Odd]:
    """A function that reads these columns of an item, and those whose values need conversion."""
    odd = _FORMS[Item].odd.among(names)
    if len(names) > 1:
        return attrgetter(*names), odd
    return lambda item: tuple(getattr(item, name) for name in names), odd


def _written(data: dict[str, Any], odd: _Odd) -> dict[str, Value]:
    """The values as a row has them."""
    for name in odd.optional:
        if data.get(name, "") is None:
            del data[name]
    for name in odd.lists:
        if name in data:
            data[name] = text_of(data[name]) if data[name] else ""
    for name in odd.enums:
        if name in data:
            data[name] = data[name].value
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
