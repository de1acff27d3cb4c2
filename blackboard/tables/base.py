"""The parts of which stores are built: the limits of a batch, the check for conflicts, pages of a
scan, and the base of tables that wrap another one.

The limits of keys, fields, values and rows are those of Azure Table Storage, with sizes counted as
it counts them, so that a board can move there; a file could hold far more. Only batches may be
larger in a local store.
"""

import math
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from blackboard.model import LONGEST_TEXT, YEARS
from blackboard.table import (
    ANY,
    Conflict,
    ConflictKind,
    Data,
    Delete,
    Etag,
    Insert,
    Op,
    Refused,
    Row,
    Table,
    Value,
    just_after,
    units,
)

MAX_ROWS = 1_000
MAX_BYTES = 16 * 2**20
MAX_VALUE = LONGEST_TEXT
"""UTF-16 code units of one string."""
MAX_ROW = 2**20
"""Bytes of one row: two for each UTF-16 unit, eight for each number or time."""
MAX_FIELDS = 252
MAX_KEY = 512
SURELY_FITS = 6 * MAX_FIELDS
"""Characters of a row's JSON text that cannot break a limit of rows: a field takes six at least."""
SURELY_SMALL = (MAX_ROW - MAX_FIELDS * (8 + 2 * 255 + 8)) // 4
"""Characters of all texts of a row that cannot break the limit of its bytes, whatever its fields
are."""
RESERVED = {"PartitionKey", "RowKey", "Timestamp"}
"""The names of properties that every Azure table has."""

_GOOD_KEY = re.compile(rf"[A-Za-z0-9:._=~-]{{1,{MAX_KEY}}}")
_BAD_IN_KEY = re.compile(r"[/\\#?%]")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_OLDEST = datetime(YEARS.start, 1, 1, tzinfo=UTC)
_INT64 = 2**63


Time = Callable[[datetime], Any]
"""Converts a time in UTC to what a store writes."""


def as_it_is(moment: datetime) -> datetime:
    """The `Time` of a store that writes times as they are."""
    return moment


def checked(
    partition: str,
    ops: Sequence[Op],
    *,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    time: Time = as_it_is,
) -> Iterator[dict[str, Any]]:
    """The data of each operation, copied, as plain values, with times as `time` converts them; {}
    for a Delete. One at a time, so that a store which encodes them has not all in memory; what is
    not asked for is not checked.

    Raises Refused for what breaks a limit, ValueError for a key that occurs twice.
    """
    if len(ops) > max_rows:
        raise Refused(max_rows, f"{len(ops):,} operations; a batch holds at most {max_rows:,}")
    if problem := _key_problem(partition):
        raise Refused(0, f"partition {partition[:80]!r}: {problem}")
    total = 0
    for index, op in enumerate(ops):
        if problem := _key_problem(op.key):
            raise Refused(index, f"key {op.key[:80]!r}: {problem}")
        data, size = ({}, 0) if isinstance(op, Delete) else _plain(index, op.data, time)
        total += size + 2 * (len(partition) + len(op.key))
        if total > max_bytes:
            raise Refused(index, f"the batch passes {max_bytes:,} bytes here")
        yield data
    if len({op.key for op in ops}) < len(ops):
        raise ValueError("a key occurs twice in one batch")


def check_merged(index: int, data: Data) -> None:
    """Checks a row as a Merge would leave it. Raises Refused when it breaks a limit."""
    if len(data) > MAX_FIELDS:
        raise Refused(index, f"{len(data)} fields; a row holds at most {MAX_FIELDS}")
    if len("".join([value for value in data.values() if type(value) is str])) > SURELY_SMALL:
        _check_size(index, data)


def first_conflict(ops: Sequence[Op], etags: Mapping[str, Etag]) -> Conflict | None:
    """The first operation that does not find what it expects; `etags` are those of the rows that
    exist.
    """
    for index, op in enumerate(ops):
        etag = etags.get(op.key)
        if isinstance(op, Insert):
            if etag is not None:
                return Conflict(index, ConflictKind.EXISTS)
        elif etag is None:
            return Conflict(index, ConflictKind.MISSING)
        elif op.etag not in (etag, ANY):
            return Conflict(index, ConflictKind.CHANGED)
    return None


def _key_problem(key: str) -> str:
    if _GOOD_KEY.fullmatch(key):
        return ""
    if not key:
        return "empty"
    if units(key) > MAX_KEY:
        return f"{units(key)} characters; a key holds at most {MAX_KEY}"
    if not key.isprintable():
        return "holds a character that cannot be printed"
    bad = _BAD_IN_KEY.search(key)
    return f"holds {bad[0]!r}" if bad else ""


def _plain(index: int, data: Data, time: Time) -> tuple[dict[str, Any], int]:
    """The values to store, and the bytes of the row. The usual values take a short path, all texts
    of a row together: a run writes some eighty values.
    """
    if len(data) > MAX_FIELDS:
        raise Refused(index, f"{len(data)} fields; a row holds at most {MAX_FIELDS}")
    total = _size_of_names(index, tuple(data)) + 8 * len(data)
    plain: dict[str, Any] = dict(data)
    texts: list[str] = []
    unusual: list[str] = []
    for name, value in plain.items():
        kind = type(value)
        if kind is str:
            texts.append(value)
        elif kind is datetime and value.tzinfo is UTC and value > _OLDEST:
            plain[name] = time(value)
        elif not (
            kind is bool
            or (kind is int and -_INT64 <= value < _INT64)
            or (kind is float and math.isfinite(value))
        ):
            unusual.append(name)
    text = "".join(texts)
    if len(text) <= MAX_VALUE and text.isascii():
        total += 2 * len(text) - 4 * len(texts)
    else:
        unusual += [name for name, value in plain.items() if type(value) is str]
    for name in unusual:
        try:
            stored = _stored(data[name])
        except (ValueError, OverflowError) as problem:
            raise Refused(index, f"field {name!r}: {problem}") from None
        plain[name] = time(stored) if isinstance(stored, datetime) else stored
        total += _value_size(stored) - 8
    if total > MAX_ROW:
        _check_size(index, plain)
    return plain, total


def _stored(value: Value) -> Value:
    """The value without its subclass or zone. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise ValueError("an integer beyond 64 bits")
        return int(value)
    if isinstance(value, str):
        return _stored_text(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number")
        return float(value)
    if isinstance(value, datetime):
        return _stored_time(value)
    raise ValueError(f"{type(value).__name__} is refused; nested values are written as JSON text")


def _stored_text(value: str) -> str:
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("half of a surrogate pair is no text")
    if (size := units(value)) > MAX_VALUE:
        raise ValueError(f"{size:,} characters; a value holds at most {MAX_VALUE:,}")
    return str.__str__(value)


def _stored_time(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise ValueError("a time without a zone")
    moment = value.astimezone(UTC)
    if moment < _OLDEST:
        raise ValueError(f"a time before {YEARS.start}")
    if type(moment) is not datetime:
        moment = datetime.combine(moment.date(), moment.time(), UTC)
    return moment


def _size_of_names(index: int, names: tuple[str, ...]) -> int:
    """The bytes of all names. Raises Refused for one that no field may have."""
    try:
        return _names_size(names)
    except ValueError:
        for name in names:
            try:
                _name_size(name)
            except ValueError as problem:
                raise Refused(index, f"field {str(name)[:80]!r}: {problem}") from None
        raise


@lru_cache(maxsize=1024)
def _names_size(names: tuple[str, ...]) -> int:
    """The bytes of the names of one row's fields. Cached, since there are few kinds of rows."""
    return sum(map(_name_size, names))


def _name_size(name: str) -> int:
    """The bytes of a name. Raises ValueError for one that no field may have."""
    if not _FIELD.fullmatch(name):
        raise ValueError("letters, digits and _ make a field's name")
    if name in RESERVED:
        raise ValueError("this name is reserved for the table")
    return 8 + 2 * len(name)


def _value_size(value: Value) -> int:
    return 4 + 2 * units(value) if isinstance(value, str) else 8


def _check_size(index: int, data: Data) -> None:
    sizes = {name: _name_size(name) + _value_size(value) for name, value in data.items()}
    total, largest = sum(sizes.values()), max(sizes, key=lambda name: sizes[name])
    if total > MAX_ROW:
        raise Refused(
            index,
            f"the row has {total:,} bytes, {sizes[largest]:,} of them in field {largest!r}; "
            f"a row holds at most {MAX_ROW:,}",
        )


FIRST_PAGE = 64
"""Rows. Most readers stop early; those that go on read larger and larger pages."""
LARGEST_PAGE = 1_000

AFTER_ALL = "\U0010ffff"
"""Sorts after every key: it is no printable character."""

Fetch = Callable[[str, int], Awaitable[list[Row]]]
"""The rows from a key on, at most so many; fewer only when there are no more."""


class Pages(AsyncIterator[Row]):
    """The rows that `fetch` finds from `first` on, at most `limit`.

    An iterator and not a generator: a reader that stops early, as most readers of one row do,
    leaves nothing behind that the event loop would have to finalise.
    """

    def __init__(
        self, fetch: Fetch, *, first: str, limit: int | None, first_page: int = FIRST_PAGE
    ) -> None:
        self._fetch = fetch
        self._first = first
        self._left = limit
        self._size = first_page
        self._rows: deque[Row] = deque()
        self._ended = False

    async def __anext__(self) -> Row:
        if not self._rows and not self._ended:
            await self._next_page()
        if not self._rows:
            raise StopAsyncIteration
        return self._rows.popleft()

    async def _next_page(self) -> None:
        asked = self._size if self._left is None else min(self._size, self._left)
        self._size = min(4 * self._size, LARGEST_PAGE)
        rows = await self._fetch(self._first, asked) if asked > 0 else []
        self._ended = len(rows) < asked or not rows
        if self._left is not None:
            self._left -= len(rows)
        if rows:
            self._first = just_after(rows[-1].key)
            self._rows.extend(rows)


class ForwardingTable:
    """A table that wraps another one. What a subclass does not override is done by `table`, also
    what only some stores can do, such as `integrity`.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.max_rows = table.max_rows
        self.max_bytes = table.max_bytes
        self.max_value = table.max_value
        self.resolution = table.resolution
        self.requests = table.requests

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        return await self.table.commit(partition, ops)

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        return self.table.scan(partition, first, last, limit)

    async def now(self) -> datetime:
        return await self.table.now()

    def age(self, row: Row) -> float:
        return self.table.age(row)

    async def close(self) -> None:
        await self.table.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)
