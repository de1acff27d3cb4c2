"""Rows as entities, and batches as entity group transactions.

An entity has the row's fields as properties of plain types (String, Int32 or Int64, Double,
Boolean, DateTime), so that whatever reads tables can read a board.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.data.tables import EdmType, EntityProperty, TableEntity, UpdateMode

from blackboard.table import ANY, Delete, Etag, Insert, Merge, Op, Row, Value

Operation = tuple[str, dict[str, Any], dict[str, Any]]
"""What the client makes one part of a transaction of: verb, entity, conditions."""

_INT32 = 2**31


def operations(
    partition: str, ops: Sequence[Op], datas: Sequence[Mapping[str, Value]]
) -> Iterator[Operation]:
    """The parts of a transaction; `datas` are the checked values of `ops`."""
    for op, data in zip(ops, datas, strict=True):
        entity = {name: _property(value) for name, value in data.items()}
        entity |= {"PartitionKey": partition, "RowKey": op.key}
        match op:
            case Insert():
                yield "create", entity, {}
            case Merge():
                yield "update", entity, {"mode": UpdateMode.MERGE, **_expecting(op.etag)}
            case Delete():
                yield "delete", entity, _expecting(op.etag)
            case _:
                yield "update", entity, {"mode": UpdateMode.REPLACE, **_expecting(op.etag)}


def row_of(entity: TableEntity) -> Row:
    """The row that an entity is."""
    key = entity.pop("RowKey")
    del entity["PartitionKey"]
    data = {name: _value(found) for name, found in entity.items()}
    return Row(key, entity.metadata["etag"] or "", data, entity.metadata["timestamp"])


def _expecting(etag: Etag) -> dict[str, Any]:
    """Without a condition an update would make the entity that it does not find."""
    if etag == ANY:
        return {"match_condition": MatchConditions.Unconditionally}  # If-Match: *
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _property(value: Value) -> Any:
    if type(value) is int and not -_INT32 <= value < _INT32:
        return EntityProperty(value, EdmType.INT64)
    return value


def _value(found: Any) -> Value:
    """What was not written here may be of a kind that rows do not have: it becomes text."""
    if isinstance(found, EntityProperty):
        found = found.value
    if isinstance(found, datetime):
        return datetime.combine(found.date(), found.time(), UTC)
    return found if isinstance(found, str | int | float | bool) else str(found)
