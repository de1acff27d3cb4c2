"""Records to rows and back, field by field.

A field of a record is a column of the same name, but for `id`, which is `item` in a row (some
stores keep `id` for themselves). A None is not written; what a row lacks takes the record's
default. Columns that a record does not know are left alone by every Merge.
"""

from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from blackboard.errors import BadRow
from blackboard.model import Item, Lock, Member, Outcome, Run, State, Token
from blackboard.table import Data, Row, Value

Record = TypeVar("Record", Item, Token, Lock, Run, Member)

_READ_ONLY = {"etag", "age"}
_ENUMS: dict[str, type[State | Outcome]] = {"state": State, "outcome": Outcome}


_COLUMNS: dict[type[Any], tuple[tuple[str, str], ...]] = {
    record_type: tuple(
        (field.name, "item" if field.name == "id" else field.name)
        for field in fields(record_type)
        if field.name not in _READ_ONLY
    )
    for record_type in (Item, Token, Lock, Run, Member)
}


def data_of(record: Item | Token | Lock | Run | Member) -> dict[str, Value]:
    """All columns of a record."""
    data: dict[str, Value] = {}
    for name, column in _COLUMNS[type(record)]:
        value = getattr(record, name)
        if value is not None:
            data[column] = value.value if name in _ENUMS else value
    return data


def columns_of(record: Item, *names: str) -> dict[str, Value]:
    """The named columns of an item: what a Merge writes."""
    data = {name: getattr(record, name) for name in names}
    return {
        name: value.value if name in _ENUMS else value
        for name, value in data.items()
        if value is not None
    }


def record_of(record_type: type[Record], row: Row, **extra: float) -> Record:
    """The record in a row. Raises BadRow: rows of a newer version may lack what this one expects,
    or mean something else.
    """
    data = row.data
    known: dict[str, Any] = {"etag": row.etag, **extra}
    try:
        for name, column in _COLUMNS[record_type]:
            if column in data:
                value = data[column]
                known[name] = _ENUMS[name](str(value)) if name in _ENUMS else value
        return record_type(**known)
    except (TypeError, ValueError) as error:
        raise BadRow(row.key, str(error)) from None


def text_of(value: object) -> str:
    """JSON text of a nested value."""
    return msgspec.json.encode(value, order="deterministic").decode()


def version_of(data: Data) -> int:
    """The protocol version a row was written with."""
    version = data.get("version", 1)
    return version if isinstance(version, int) else 1
