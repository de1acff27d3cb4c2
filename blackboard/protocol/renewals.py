"""Renews locks and permits: the rows by which a process holds something for the length of a lease.

The row carries the nonce of its holder. So a renewal without an answer is settled by reading the
rows again: one with another nonce, or none, is lost.

**Deadlines.** A holder trusts its row for a share of the lease, counted from when it sent the last
renewal that is known to be applied: the store has stamped the row no earlier than that. Where the
reply is lost, the row has to say which renewal was applied. Its nonce and a new etag do not: an
earlier renewal may have landed late, and another process may have marked the lock
(`mark_standstill`). So each renewal writes into the row when it was sent, by the monotonic clock of
the holder, and a row that is read back counts from that time. Any later write of the row only makes
it younger for other workers. Only the process that wrote this time uses it, because it alone has
the nonce.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self, TypeVar

from blackboard.protocol.board_table import BoardTable
from blackboard.table import Conflict, Merge, Refused, Row, Unknown, Value, just_after

RENEWALS = 3
"""Batches sent for one renewal, at most, before it is left to the next one."""


class Held(Protocol):
    """A lock or a permit of this process, as its row was last read or written."""

    @property
    def row_key(self) -> str: ...

    @property
    def row_etag(self) -> str: ...

    @property
    def nonce(self) -> str: ...

    @property
    def sent(self) -> float:
        """Monotonic seconds at the send of the last write of it that is known to be applied."""
        ...

    def renewed(self, row_etag: str, *, sent: float) -> Self:
        """The same, after a renewal: its row has this etag."""
        ...

    def found(self, row_etag: str, *, sent: float) -> Self:
        """The same, read again after a refusal or no answer: its row has this etag."""
        ...


AnyHeld = TypeVar("AnyHeld", bound=Held)


async def renew_rows(
    board: BoardTable,
    partition: str,
    held: Sequence[AnyHeld],
    *,
    beside: Mapping[str, Mapping[str, Value]] | None = None,
) -> tuple[AnyHeld, ...]:
    """Renews rows of one partition in one batch, each with the columns that `beside` has for its
    nonce. What is not returned is lost. The others are renewed all the same, also where the store
    refuses one: that is returned as it was, or, where it is the only one, Refused is raised. One
    whose `sent` is as before has no renewal that is known to be applied.
    """
    beside = beside or {}
    left, done = tuple(held), tuple[AnyHeld, ...]()
    doubts = 0
    while left and doubts < RENEWALS:  # each refusal shortens the list
        sent = board.clock.monotonic()
        ops = [
            Merge(one.row_key, {"sent": sent, **beside.get(one.nonce, {})}, one.row_etag)
            for one in left
        ]
        try:
            etags = await board.table.commit(partition, ops)
        except (Conflict, Unknown):
            doubts += 1
            before = {one.nonce: one.sent for one in left}
            current = await landed(board, partition, left)
            done += tuple(one for one in current if one.sent > before[one.nonce])
            left = tuple(one for one in current if one.sent == before[one.nonce])
        except Refused as trouble:
            if len(left) == 1 and not done:
                raise
            done += (left[trouble.index],)
            left = left[: trouble.index] + left[trouble.index + 1 :]
        else:
            renewed = (one.renewed(etag, sent=sent) for one, etag in zip(left, etags, strict=True))
            return (*renewed, *done)
    return left + done


async def landed(board: BoardTable, partition: str, held: Sequence[AnyHeld]) -> tuple[AnyHeld, ...]:
    """Those whose rows carry their nonces, after a batch that was refused or not answered. They
    have the present etags of the rows, and count from the last renewal that has landed. Reads one
    range.
    """
    by_key = {one.row_key: one for one in held}
    rows = board.table.scan(partition, min(by_key), just_after(max(by_key)))
    carrying = [
        row
        async for row in rows
        if row.key in by_key and row.data.get("nonce") == by_key[row.key].nonce
    ]
    now = board.clock.monotonic()
    return tuple(
        by_key[row.key].found(row.etag, sent=sent_in(row, before=by_key[row.key].sent, now=now))
        for row in carrying
    )


def sent_in(row: Row, *, before: float, now: float) -> float:
    """When the last renewal that wrote a lock or a permit was sent: a row with the nonce of this
    process has the time of its own monotonic clock. `before`, the latest send that is known to have
    been applied, where the row has no later one; damage is passed over.
    """
    sent = row.data.get("sent")
    if isinstance(sent, bool) or not isinstance(sent, int | float):
        return before
    return sent if before < sent <= now else before
