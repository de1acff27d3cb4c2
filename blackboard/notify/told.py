"""What the board keeps of what was told: one row for each item that is not well.

    nothing -> being told      Insert; whoever's Insert succeeds tells
    being told -> told         Merge, once somebody took the notice
    being told -> being told   Merge, by whoever sees the item next, when the first teller was
                               not heard of for long: it died, or nobody took its notice
    told -> being told         Merge, when there is news (`is_news`)
    any -> nothing             Delete, when a run ended well; whoever's Delete succeeds tells

Each write states the etag it expects, so of any number of workers one goes on. A lost reply is
settled by reading the row: the nonce in it says whose it is. A deletion whose reply was lost and
whose row is gone counts as done.

The row of an item whose recovery nobody saw to stays. It does no harm: that the item was well in
between shows in its fence and its failures.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from blackboard.model import VERSION, Outcome, State, replace
from blackboard.notify.notices import Notice
from blackboard.notify.table import NoticeKind
from blackboard.protocol.keys import notice_key, notices_partition
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import version_of
from blackboard.table import (
    Conflict,
    Delete,
    Etag,
    Insert,
    Merge,
    Row,
    Unknown,
    Value,
    read,
)

TRIES = 5
"""Of one write: so many lost races or replies in a row are trouble that lasts, and work for whoever
sees the item next.
"""
LONG_AGO = datetime.min.replace(tzinfo=UTC)
HANDOVER = 300.0
"""Seconds after which a notice that nobody took is told by another. Its teller gives up before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A row as it was read."""

    events: frozenset[str]
    """All that was told since the item was last well."""
    at: datetime
    fence: int
    failures: int
    nonce: str
    taken: bool
    """Whether somebody took the notice."""
    version: int
    etag: Etag
    age: float


def is_news(notice: Notice, told: Told, *, now: datetime, again: timedelta | None) -> bool:
    """Whether a notice is to be told although the board keeps something of its item. `again` is
    how long a thing is not told again while it lasts; None: for ever.
    """
    if told.version > VERSION:
        return False
    if not told.taken:
        return told.age > HANDOVER
    if notice.event.value not in told.events:
        return True
    if notice.event is not NoticeKind.WARNED and was_well_since(notice, told):
        return True
    return again is not None and now - told.at >= again


def was_well_since(notice: Notice, told: Told) -> bool:
    """Whether the item ran, and its failures in a row began anew, after what was told."""
    return notice.fence > told.fence and notice.failures <= told.failures


async def confirmed(board: BoardTable, notice: Notice) -> Notice | None:
    """The notice with what its item says now. None: there is nothing to tell any more, or a person
    has seen to the item: it is paused or gone.
    """
    if notice.event is NoticeKind.RECOVERED:
        return notice
    item = await board.item(notice.id)
    if item is None or item.is_paused or item.state is State.REMOVED:
        return None
    if notice.event is NoticeKind.WARNED:
        return notice
    if notice.event is NoticeKind.OVERDUE:
        if not item.waits or item.ready != notice.ready:
            return None
        outcome = item.outcome.value if item.outcome else ""
        return replace(notice, outcome=outcome, error=item.error, start=item.start, stop=item.stop)
    if not item.failures or item.attempt > 1:
        return None
    if notice.stop is not None:
        return notice
    if item.outcome is not Outcome.ABANDONED or item.stop is None:
        return None
    failures, fence = item.failures, item.fence
    return replace(notice, stop=item.stop, error=item.error, failures=failures, fence=fence)


async def begin(board: BoardTable, notice: Notice, *, again: timedelta | None) -> Etag | None:
    """Write that the notice is being told. The etag of the row; None: it was told, or somebody else
    is telling it. Raises what a store raises when it does not answer.
    """
    partition, key = notices_partition(board.name), notice_key(notice.id)
    nonce, now = board.chance.nonce(), await board.table.now()
    for _ in range(TRIES):
        row = await read(board.table, partition, key)
        told = None if row is None else told_of(row, age=board.table.age(row))
        events = {notice.event.value}
        if told is not None:
            if told.nonce == nonce:
                return told.etag
            if not is_news(notice, told, now=now, again=again):
                return None
            events |= set() if was_well_since(notice, told) else told.events
        data: dict[str, Value] = {
            "item": notice.id,
            "told": " ".join(sorted(events)),
            "at": now,
            "fence": notice.fence,
            "failures": notice.failures,
            "nonce": nonce,
            "taken": False,
            "version": VERSION,
        }
        write = Insert(key, data) if told is None else Merge(key, data, told.etag)
        try:
            etags = await board.table.commit(partition, [write])
        except (Conflict, Unknown):
            continue
        return etags[0]
    return None


async def taken(board: BoardTable, item_id: str, etag: Etag) -> None:
    """Write that somebody took the notice. Should this be lost, it is told once more."""
    partition, key = notices_partition(board.name), notice_key(item_id)
    for _ in range(TRIES):
        try:
            await board.table.commit(partition, [Merge(key, {"taken": True}, etag)])
        except Unknown:
            continue
        except Conflict:
            return  # it landed, or the item recovered meanwhile
        return


async def end(board: BoardTable, item_id: str) -> bool:
    """Delete the row of an item that is well. Whether there was one, and nobody else deleted it."""
    partition, key = notices_partition(board.name), notice_key(item_id)
    asked = False
    for _ in range(TRIES):
        row = await read(board.table, partition, key)
        if row is None or told_of(row, age=board.table.age(row)).events == {
            NoticeKind.WARNED.value
        }:
            return asked  # what an item that is well warned of is no failure to recover from
        try:
            await board.table.commit(partition, [Delete(key, row.etag)])
        except Conflict:
            continue
        except Unknown:
            asked = True
            continue
        return True
    return False


def told_of(row: Row, *, age: float) -> Told:
    """What a row says. One that lacks something is as old as can be, and told anew."""
    data = row.data
    at = data.get("at")
    return Told(
        events=frozenset(str(data.get("told", "")).split()),
        at=at if isinstance(at, datetime) else LONG_AGO,
        fence=int(str(data.get("fence", 0))),
        failures=int(str(data.get("failures", 0))),
        nonce=str(data.get("nonce", "")),
        taken=data.get("taken") is True,
        version=version_of(data),
        etag=row.etag,
        age=age,
    )
