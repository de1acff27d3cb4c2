"""The rows of notices: of any number of workers one sends a notice, and none is forgotten.

Each kind of trouble of an item has a row, which says what became of its notice:

    no row -> sending          Insert; the worker whose Insert succeeds sends
    sending -> accepted        Merge, once a channel has accepted the notice
    sending -> unsent          Merge, by the sender, when no channel has accepted it
    sending -> sending         Replace, by another worker, when the first was silent for HANDOVER
    unsent -> sending          Replace, by any worker, after a pause that grows with each try
    accepted -> sending        Replace, when there is news (`is_news`)
    any -> no row              Delete, when a run ended well: what failed or was overdue is over.
                               The same batch writes the row of the recovery. The worker whose
                               batch succeeds sends that, if any notice was accepted or may be

Each write states the etag that it expects, so of any number of workers one goes on. A lost reply,
or that of a batch which came twice, is settled by reading the row: its nonce names its writer. The
rows of warnings and of wrong clocks stay when the item is well: they say when that was last sent.

Every few minutes one of all workers looks at all rows (`may_look`), and so does the coordinator's:
it sends a notice that no channel has accepted, and an item that is well by then has recovered.
The coordinator deletes the rows of removed items, and those of recoveries.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard import table
from blackboard.errors import BadRow
from blackboard.model import LONG_AGO, VERSION
from blackboard.notify.notices import Notice
from blackboard.notify.settings import NoticeKind
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable, Pause
from blackboard.protocol.rows import version_of
from blackboard.rules.next_run import is_ahead

TRIES = 5
"""Of one write: after so many lost races or replies the next worker that sees the item tries it."""
HANDOVER = 300.0
"""Seconds after which another worker sends a notice that was not accepted. The first one gives up
before.
"""
MOST_DOUBLINGS = 4
"""Of that pause, for a notice that no channel accepts."""
ENDED_BY_RECOVERY = (NoticeKind.FAILED, NoticeKind.OVERDUE)
SENDING, ACCEPTED, UNSENT = "sending", "accepted", "unsent"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRow:
    """The row of one kind of notice of an item, as it was read."""

    key: str
    id: str
    """Of the item."""
    kind: str
    state: str
    """SENDING, ACCEPTED or UNSENT."""
    heard: bool
    """Whether a channel has accepted this or an earlier notice of the row."""
    tries: int
    """How often workers have begun to send it."""
    at: datetime
    fence: int
    failures: int
    nonce: str
    version: int
    etag: table.Etag
    age: float

    @property
    def may_be_taken(self) -> bool:
        """Whether a notice that was not accepted is sent by the worker that finds it."""
        doublings = min(max(self.tries - 1, 0), MOST_DOUBLINGS) if self.state == UNSENT else 0
        return self.state != ACCEPTED and self.age > HANDOVER * 2**doublings

    @property
    def was_heard(self) -> bool:
        """Whether a notice of it was accepted, or may be."""
        return self.heard or (self.state == SENDING and self.age <= HANDOVER)


def is_news(notice: Notice, row: NoticeRow, *, now: datetime, again: timedelta | None) -> bool:
    """Whether a notice is to be sent although there is a row. `again` is how long a lasting problem
    is not sent again; None: for ever. One that was sent in the future, by a clock that was wrong,
    was sent long ago, for all that is known.
    """
    if row.version > VERSION:
        return False
    if row.state != ACCEPTED:
        return row.may_be_taken
    if notice.event is not NoticeKind.WARNED and was_well_since(notice, row):
        return True
    return again is not None and (now - row.at >= again or is_ahead(row.at, now=now))


def was_well_since(notice: Notice, row: NoticeRow) -> bool:
    """Whether the item ran, and its failures in a row began anew, after what was sent."""
    return notice.fence > row.fence and notice.failures <= row.failures


async def begin(board: BoardTable, notice: Notice, *, again: timedelta | None) -> table.Etag | None:
    """Write that the notice is being sent. The etag of the row; None: it was sent, or another
    worker is sending it. Raises what a store raises when it does not answer.
    """
    partition, key = keys.notices_partition(board.name), _key_of(notice)
    nonce, now = board.chance.nonce(), await board.table.now()
    for _ in range(TRIES):
        stored = await table.read(board.table, partition, key)
        row = None if stored is None else notice_row_of(board, stored)
        if row is not None and row.nonce == nonce:
            return row.etag
        if row is not None and not is_news(notice, row, now=now, again=again):
            return None
        tries = row.tries if row is not None and row.state != ACCEPTED else 0
        heard = row is not None and row.heard
        data = _data(notice, SENDING, heard=heard, tries=tries + 1, at=now, nonce=nonce)
        try:
            etags = await board.table.commit(partition, [_write(key, data, row)])
        except (table.Conflict, table.Unknown):
            continue
        return etags[0]
    return None


async def settle(board: BoardTable, notice: Notice, etag: table.Etag, *, accepted: bool) -> None:
    """Write what became of a notice. If this is lost, it is sent once more."""
    partition, key = keys.notices_partition(board.name), _key_of(notice)
    data: dict[str, table.Value] = (
        {"state": ACCEPTED, "heard": True} if accepted else {"state": UNSENT}
    )
    for failures in range(1, TRIES + 1):
        try:
            await board.table.commit(partition, [table.Merge(key, data, etag)])
        except table.Unknown:
            continue
        except (table.Busy, table.Unavailable) as trouble:
            await board.ready(partition, trouble, failures=failures)
            continue
        except table.Conflict:
            return  # it landed, or the item recovered meanwhile
        return


async def end(board: BoardTable, recovery: Notice) -> bool:
    """Delete the rows that the recovery of an item ends. Whether this call did, and a notice of
    theirs was accepted or may be.
    """
    partition, key = keys.notices_partition(board.name), _key_of(recovery)
    nonce, now = board.chance.nonce(), await board.table.now()
    was_heard = False
    for _ in range(TRIES):
        scanned = board.table.scan(partition, *keys.notices_range(recovery.id))
        stored = [notice_row_of(board, row) async for row in scanned]
        last = next((row for row in stored if row.key == key), None)
        if last is not None and last.nonce == nonce:
            return was_heard
        rows = [row for row in stored if _is_ended_by(recovery, row)]
        if not rows or (last is not None and last.version > VERSION):
            return False
        was_heard = any(row.was_heard for row in rows)
        data = _data(recovery, ACCEPTED, heard=was_heard, tries=1, at=now, nonce=nonce)
        deletions = [table.Delete(row.key, row.etag) for row in rows]
        try:
            await board.table.commit(partition, [*deletions, _write(key, data, last)])
        except (table.Conflict, table.Unknown):
            continue
        return was_heard
    return False


def _is_ended_by(recovery: Notice, row: NoticeRow) -> bool:
    """Whether the trouble of a row is over with a recovery: the item has not failed again since."""
    may_end = row.kind in ENDED_BY_RECOVERY and row.version <= VERSION
    return may_end and row.fence <= recovery.fence


def _key_of(notice: Notice) -> str:
    return keys.notice_key(notice.id, notice.event.value)


def _data(
    notice: Notice, state: str, *, heard: bool, tries: int, at: datetime, nonce: str
) -> dict[str, table.Value]:
    return {
        "item": notice.id,
        "state": state,
        "heard": heard,
        "tries": tries,
        "at": at,
        "fence": notice.fence,
        "failures": notice.failures,
        "nonce": nonce,
        "version": VERSION,
    }


def _write(key: str, data: table.Data, row: NoticeRow | None) -> table.Insert | table.Replace:
    """Writes a row in the place of the one that was read: one that was damaged takes no merge."""
    return table.Insert(key, data) if row is None else table.Replace(key, data, row.etag)


# ---- looking after them


async def may_look(board: BoardTable) -> bool:
    """Whether it is time to look after the rows, and for this worker."""
    partition = keys.notices_partition(board.name)
    row = await table.read(board.table, partition, keys.NOTICES_LOOKED)
    data: dict[str, table.Value] = {"at": await board.table.now(), "version": VERSION}
    if row is None:
        write: table.Insert | table.Replace = table.Insert(keys.NOTICES_LOOKED, data)
    elif board.table.age(row) < HANDOVER or version_of(row.data) > VERSION:
        return False
    else:
        write = table.Replace(keys.NOTICES_LOOKED, data, row.etag)
    try:
        await board.table.commit(partition, [write])
    except (table.Conflict, table.Unknown):
        return False
    return True


async def notice_rows(board: BoardTable) -> AsyncIterator[NoticeRow]:
    """The rows of all items, but those of a newer version, and those that do not say whose they
    are.
    """
    async for stored in board.table.scan(
        keys.notices_partition(board.name), keys.NOTICE, keys.end_of(keys.NOTICE)
    ):
        row = notice_row_of(board, stored)
        if row.id and row.version <= VERSION:
            yield row


async def forget_removed(board: BoardTable, *, pause: Pause) -> int:
    """Delete the rows of items that were removed, and those of recoveries; their number. A row that
    was written since it was read stays: it is of a new life of the id.
    """
    forgotten, partition = 0, keys.notices_partition(board.name)
    async for row in notice_rows(board):
        await pause()
        with suppress(BadRow, table.Conflict, table.Unknown):
            is_over = row.kind == NoticeKind.RECOVERED and row.age > HANDOVER
            if is_over or await board.existing(row.id) is None:
                await board.table.commit(partition, [table.Delete(row.key, row.etag)])
                forgotten += 1
    return forgotten


def notice_row_of(board: BoardTable, row: table.Row) -> NoticeRow:
    """The record in a row. Of one that was damaged the notice counts as not sent, long ago."""
    data = row.data
    item_id, at, state = data.get("item"), data.get("at"), data.get("state")
    return NoticeRow(
        key=row.key,
        id=item_id if isinstance(item_id, str) else "",
        kind=row.key.rpartition(":")[2],
        state=state if isinstance(state, str) else UNSENT,
        heard=data.get("heard") is True,
        tries=_number(data.get("tries")),
        at=at if isinstance(at, datetime) and at.tzinfo else LONG_AGO,
        fence=_number(data.get("fence")),
        failures=_number(data.get("failures")),
        nonce=str(data.get("nonce", "")),
        version=version_of(data),
        etag=row.etag,
        age=board.table.age(row),
    )


def _number(value: table.Value | None) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
