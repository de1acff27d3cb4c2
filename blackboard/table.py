"""The contract of a store: a partitioned, ordered table with atomic batches.

A store keeps rows and knows nothing of items, tokens or locks. Everything the scheduler promises
is built above this file, once, from five things that every store must do:

- `commit` applies a batch to one partition, all or nothing, each row at most once in it;
- every write but an insert states the etag it expects, or says ANY;
- an etag is never used twice for a key, also not after delete, insert and restart;
- `scan` yields a key range in key order; it is no snapshot: a row that moves meanwhile may be
  seen twice or not at all;
- `now` and `age` are the store's own clocks. `now` decides what is due, `age` what is stale.

Data is flat: str, int, float, bool and aware datetimes (UTC, kept to the millisecond at least).
None is refused; nested values are JSON text. Merge is shallow and never removes a field.

Whoever writes another store passes `tests/contract/`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

Value = str | int | float | bool | datetime
Data = Mapping[str, Value]
Etag = str

ANY: Final[Etag] = "*"
"""The etag of whoever means to overwrite whatever is there."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row as read. `stamp` is the store's own note of when it was written: for `age` alone."""

    key: str
    etag: Etag
    data: Data
    stamp: Any = None


@dataclass(frozen=True, slots=True)
class Insert:
    """The key must be absent."""

    key: str
    data: Data


@dataclass(frozen=True, slots=True)
class Merge:
    """The row must be there with this etag; its fields are overlaid with `data`."""

    key: str
    data: Data
    etag: Etag


@dataclass(frozen=True, slots=True)
class Replace:
    """The row must be there with this etag; its fields become exactly `data`."""

    key: str
    data: Data
    etag: Etag


@dataclass(frozen=True, slots=True)
class Delete:
    """The row must be there with this etag."""

    key: str
    etag: Etag


Op = Insert | Merge | Replace | Delete


class ConflictKind(StrEnum):
    """Why an operation could not be applied."""

    EXISTS = "exists"
    MISSING = "missing"
    CHANGED = "changed"


class TableError(Exception):
    """Any of the answers below. `commit` raises them; a caller that races handles them."""


class Conflict(TableError):
    """Operation `index` of the batch found another row than it expected; nothing was applied."""

    def __init__(self, index: int, kind: ConflictKind) -> None:
        super().__init__(f"operation {index}: the row {kind.value}")
        self.index = index
        self.kind = kind


class Unknown(TableError):
    """No answer came: the batch may have been applied, may never be, may land up to 30 s later."""


class Busy(TableError):
    """Nothing was applied; try again after `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the store is busy; again in {retry_after:g} s")
        self.retry_after = retry_after


class Unavailable(TableError):
    """The store cannot be reached; nothing was applied."""


class Unusable(Unavailable):
    """The store will not work until somebody mends it: its disk is full, its file damaged or not
    writable, its table missing, or whoever asks is refused.
    """


class Refused(TableError):
    """The store will never take operation `index`: too large, a bad key, a None."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"operation {index}: {reason}")
        self.index = index
        self.reason = reason


@dataclass(slots=True)
class Requests:
    """What a store was asked for, by kind, whatever it answered. Each is one round trip, and on
    Azure one transaction on the bill.
    """

    commits: int = 0
    """Batches."""
    pages: int = 0
    """Pages of scans, empty ones included."""
    others: int = 0
    """What else it took: making a table."""

    @property
    def total(self) -> int:
        return self.commits + self.pages + self.others

    @property
    def by_kind(self) -> dict[str, int]:
        """As an event tells them: by kind, and all together."""
        return {
            "commits": self.commits,
            "pages": self.pages,
            "others": self.others,
            "total": self.total,
        }

    def since(self, earlier: "Requests") -> "Requests":
        """How many more these are."""
        return Requests(
            self.commits - earlier.commits,
            self.pages - earlier.pages,
            self.others - earlier.others,
        )


class Table(Protocol):
    """A store. One object serves one event loop; several processes may open the same table."""

    max_rows: int
    """Operations in one batch, at most."""
    max_bytes: int
    """Bytes of one batch as the store counts them, at most."""
    max_value: int
    """Characters of one string value, at most."""
    resolution: float
    """Seconds by which `age` may be off: a lock is stale only when its age exceeds its lease by
    more than this."""
    requests: Requests
    """Asked for through this object so far."""

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        """Apply `ops` to one partition, all or nothing; the new etags in the same order, "" for a
        delete. An empty batch is an empty answer.

        Raises Conflict, Unknown, Busy, Unavailable or Refused.
        """
        ...

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        """Rows with `first` <= key < `last` in key order (code points), at most `limit`; `last`
        None is the end of the partition. Reads in pages; a caller may stop at any row.

        Raises Busy or Unavailable.
        """
        ...

    async def now(self) -> datetime:
        """Wall time as the store has it: aware, UTC, whole milliseconds."""
        ...

    def age(self, row: Row) -> float:
        """Seconds since the row was last written, on the store's own scale and never overstated
        by more than `resolution`; infinity when the writer's host has booted since. Where a stamp
        says nothing to this reader, for how long it has seen the row unchanged.
        """
        ...

    async def close(self) -> None:
        """Let go of the store. Closing twice is fine."""
        ...


async def read(table: Table, partition: str, key: str) -> Row | None:
    """One row, or None."""
    async for row in table.scan(partition, key, just_after(key), 1):
        return row
    return None


def just_after(key: str) -> str:
    """The end of a range that ends with this key, or the start of one that goes on behind it. All
    of a key can be printed, so none lies between it and itself with a space behind.
    """
    return key + " "


def units(text: str) -> int:
    """The length of a text in UTF-16 code units, which is how `max_value` counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
