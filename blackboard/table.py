"""The contract of a store: a partitioned, ordered table with atomic batches.

A store keeps rows and has no knowledge of items, tokens or locks. All promises of the scheduler are
built above this file, once, from five things that every store must do:

- `commit` applies a batch to one partition, all or nothing, each row at most once in it;
- every write but an insert states the etag it expects, or says ANY;
- an etag is never used twice for a key, also not after delete, insert and restart; rows of one
  batch may have the same;
- `scan` yields a key range in key order; it is not a snapshot: a row that moves meanwhile may be
  seen twice or not at all;
- `now` and `age` are the store's own clocks. `now` decides what is due, `age` what is stale.

Data is flat: str, int, float, bool and aware datetimes (UTC, kept to the millisecond at least).
None is refused; nested values are JSON text. Merge is shallow and never removes a field.

Another store must pass `tests/contract/`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from msgspec import Struct

from blackboard.errors import Copyable

Value = str | int | float | bool | datetime
Data = Mapping[str, Value]
Etag = str

ANY: Final[Etag] = "*"
"""The etag that every row has: the write overwrites what is there."""
TRIES = 3
"""Times that `commit_again` sends a batch."""


class Row(Struct, frozen=True, gc=False):
    """One row as read. `stamp` says when it was written, in a form of the store's own: for
    `age`.
    """

    key: str
    etag: Etag
    data: Data
    stamp: Any = None


class Insert(Struct, frozen=True, gc=False):
    """Makes a row. The key must be absent."""

    key: str
    data: Data


class Merge(Struct, frozen=True, gc=False):
    """Sets the fields in `data`. The row must exist with this etag."""

    key: str
    data: Data
    etag: Etag


class Replace(Struct, frozen=True, gc=False):
    """Makes `data` the fields of the row, which must exist with this etag."""

    key: str
    data: Data
    etag: Etag


class Delete(Struct, frozen=True, gc=False):
    """Deletes the row, which must exist with this etag."""

    key: str
    etag: Etag


Op = Insert | Merge | Replace | Delete


class ConflictKind(StrEnum):
    """Why an operation could not be applied."""

    EXISTS = "exists"
    MISSING = "missing"
    CHANGED = "changed"


class TableError(Copyable):
    """The base of the errors below, which `commit` raises and its callers handle."""

    def __str__(self) -> str:
        return super().__str__() or "the store does not answer"


class Conflict(TableError):
    """Operation `index` of the batch found another row than it expected; nothing was applied."""

    def __init__(self, index: int, kind: ConflictKind) -> None:
        super().__init__(f"operation {index}: the row {kind.value}")
        self.index = index
        self.kind = kind


class Unknown(TableError):
    """No answer came: the batch may have been applied, may be within 30 s, or may never be."""


class Busy(TableError):
    """Nothing was applied; try again after `retry_after` seconds. `why` is for people."""

    def __init__(self, retry_after: float, why: str = "") -> None:
        because = f": {why}" if why else ""
        super().__init__(f"the store is busy{because}; again in {retry_after:g} s")
        self.retry_after = retry_after


class Unavailable(TableError):
    """The store cannot be reached; nothing was applied."""


class Unusable(Unavailable):
    """The store needs repair: its disk is full, its file damaged or not writable, its table
    missing, or the credential is refused.
    """


class Refused(TableError):
    """The store will never take operation `index`: too large, a bad key, a None."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"operation {index}: {reason}")
        self.index = index
        self.reason = reason


class Replaced(Unusable):
    """The store is another one than the one that was opened: it has to be opened again."""


@dataclass(slots=True)
class Requests:
    """How many requests a store was sent, by kind. Each is one round trip, and on Azure one
    transaction on the bill.
    """

    commits: int = 0
    """Batches."""
    pages: int = 0
    """Pages of scans, empty ones included."""
    others: int = 0
    """Other requests: those that make a table."""
    _reported: "Requests | None" = field(default=None, init=False, repr=False, compare=False)

    @property
    def total(self) -> int:
        return self.commits + self.pages + self.others

    @property
    def by_kind(self) -> dict[str, int]:
        """The numbers by kind and in total, as events have them."""
        return {
            "commits": self.commits,
            "pages": self.pages,
            "others": self.others,
            "total": self.total,
        }

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(
            self.commits + other.commits, self.pages + other.pages, self.others + other.others
        )

    def since(self, earlier: "Requests") -> "Requests":
        """The requests since an earlier count."""
        return Requests(
            self.commits - earlier.commits, self.pages - earlier.pages, self.others - earlier.others
        )

    def take_unreported(self) -> "Requests":
        """The requests since the last call, by whichever worker that shares the store."""
        now = Requests(self.commits, self.pages, self.others)
        new, self._reported = now.since(self._reported or Requests()), now
        return new


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
    """Requests sent through this object so far."""

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        """Applies `ops` to one partition, all or nothing. Returns the new etags in the same order,
        "" for a delete.

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
        means nothing to this reader: the time for which it has read the row unchanged.
        """
        ...

    async def close(self) -> None:
        """Closes the store. May be called twice."""
        ...


async def read(table: Table, partition: str, key: str) -> Row | None:
    """One row, or None."""
    match = None  # read to its end: a scan that is left early is closed by a separate task
    async for row in table.scan(partition, key, just_after(key), 1):
        match = row
    return match


async def try_delete(
    table: Table,
    partition: str,
    ops: Sequence[Delete],
    *,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Deletes rows, many in a batch, with a `pause` before each batch; returns how many. Where a
    row of a batch has changed or is gone, or no answer came, that batch is left for the next time.
    """
    deleted = 0
    for start in range(0, len(ops), table.max_rows):
        batch = ops[start : start + table.max_rows]
        if pause is not None:
            await pause()
        with suppress(Conflict, Unknown):
            await table.commit(partition, batch)
            deleted += len(batch)
    return deleted


async def commit_again(table: Table, partition: str, ops: Sequence[Op]) -> None:
    """Commits a batch, and sends it again while it has no answer. An inserted row that exists is a
    sign that the batch was applied: a reply was lost, or the batch came twice. On a later try
    so does a deleted row that is missing. Where others use the same keys, the caller reads the rows
    afterwards.
    """
    for number in range(TRIES):
        try:
            await table.commit(partition, ops)
        except Unknown:
            if number == TRIES - 1:
                raise
        except Conflict as found:
            if found.kind is ConflictKind.EXISTS or (number and found.kind is ConflictKind.MISSING):
                return
            raise
        else:
            return


def just_after(key: str) -> str:
    """The end of a range that ends with this key, or the start of one that goes on after it. Keys
    have only printable characters, so none sorts between a key and the same with a space after it.
    """
    return key + " "


def units(text: str) -> int:
    """The length of a text in UTF-16 code units, which is how `max_value` counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
