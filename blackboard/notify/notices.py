"""Notices of items: what is news, the JSON and the line that are sent, and the row of each.

Params and results are not in a notice: they may be long, or not meant to leave the board.

The row of an item that is not well says what was sent:

    no row -> sending          Insert; the worker whose Insert succeeds sends
    sending -> accepted        Merge, once a way has accepted the notice
    sending -> sending         Merge, by the next worker that sees the item, when the first one was
                               silent for HANDOVER: it died, or no way accepted its notice
    accepted -> sending        Merge, when there is news (`is_news`)
    any -> no row              Delete, when a run ended well; the worker whose Delete succeeds sends

Each write states the etag that it expects, so of any number of workers one goes on. A lost reply is
settled by reading the row: its nonce names its writer. A deletion whose reply was lost and whose
row is gone counts as done.

The row of an item whose recovery was not noticed stays. It does no harm: the item's fence and
failures show that it was well in between. The coordinator deletes the rows of removed items.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import asdict

from blackboard.errors import BadRow
from blackboard.events import FreedLock, OverdueRun, RunEnded
from blackboard.model import LONG_AGO, VERSION, Outcome, replace
from blackboard.notify.settings import NoticeKind
from blackboard.phrases import cut_middle, first_line, iso, plural, span
from blackboard.protocol.keys import NOTICE, end_of, notice_key, notices_partition
from blackboard.protocol.reading import BoardTable, Pause
from blackboard.protocol.releases import ReleaseOutcome
from blackboard.protocol.rows import version_of
from blackboard.rules.transitions import FAILING
from blackboard.spec import Labels
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

Payload = dict[str, Any]
"""What is sent, as JSON."""

LONGEST_ERROR = 2_000
LONGEST_LINE = 300
MOST_NAMED = 100
"""Items that a summary names."""
MOST_IN_TEXT = 10
LAST_LINES = 20
"""Of the output of a run that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One piece of news of one item."""

    event: NoticeKind
    id: str
    type: str
    fence: int
    outcome: str = ""
    """Of the last run."""
    error: str = ""
    """Of the last run; of one that was ok, its warnings."""
    output: str = ""
    """The last of what the handler printed, in a run that failed."""
    due: datetime
    ready: datetime
    start: datetime | None = None
    stop: datetime | None = None
    attempt: int
    failures: int = 0
    """In a row; of an item that recovered: until then."""
    labels: Labels = field(default_factory=Labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composer:
    """Composes what is sent; `board` and `worker` are named in it."""

    board: str
    worker: str

    def payload(self, notice: Notice, *, at: datetime) -> Payload:
        """One notice."""
        about: Payload = {
            "id": _valid(notice.id),
            "type": _valid(notice.type),
            "outcome": notice.outcome or None,
            "error": _valid(cut_middle(notice.error, LONGEST_ERROR)) or None,
            "output": _valid(last_lines(notice.output)) or None,
            "due": iso(notice.due),
            "start": iso(notice.start) if notice.start else None,
            "stop": iso(notice.stop) if notice.stop else None,
            "attempt": notice.attempt,
            "failures": notice.failures,
            "labels": {**asdict(notice.labels), "tags": list(notice.labels.tags)},
        }
        words = f"{notice.id} {_words(notice, at=at)}"
        if notice.labels.owner:
            words = f"{words[:LONGEST_LINE]} (owner: {notice.labels.owner})"
        return self._about(notice.event.value, words, at=at, more=about)

    def summary(self, notices: Sequence[Notice], *, at: datetime) -> Payload:
        """Many notices in one."""
        counts = Counter(one.event.value for one in notices)
        counted = ", ".join(f"{number:,} {event}" for event, number in counts.items())
        named = ", ".join(one.id for one in notices[:MOST_IN_TEXT])
        dots = ", ..." if len(notices) > MOST_IN_TEXT else ""
        about: Payload = {
            "counts": dict(counts),
            "items": [
                {"event": one.event.value, "id": _valid(one.id)} for one in notices[:MOST_NAMED]
            ],
        }
        return self._about("more", f"{counted}: {named}{dots}", at=at, more=about)

    def test(self, *, at: datetime) -> Payload:
        """A test notice: it shows whether notices arrive."""
        return self._about("test", f"a test notice from {self.worker}", at=at, more={})

    def _about(self, event: str, words: str, *, at: datetime, more: Payload) -> Payload:
        """A payload: `more` within the fields of every payload."""
        return {
            "event": event,
            "board": self.board,
            **more,
            "worker": self.worker,
            "at": iso(at),
            "text": _line(f"{self.board}: {words}"),
        }


def of_run(ended: RunEnded, *, overdue_after: timedelta | None) -> Notice | None:
    """The news that the end of a run is, if any. `overdue_after` is how late is late, if overdue
    items are notified. A success after a success is no news, nor is a failure that is retried.
    """
    run = ended.run
    late = overdue_after is not None and run.start - ended.ready >= overdue_after
    if ended.release != ReleaseOutcome.DONE:
        return None
    if run.outcome is Outcome.OK and (ended.failures or late):
        event, failures = NoticeKind.RECOVERED, ended.failures
    elif run.outcome in FAILING and not ended.retried:
        event, failures = NoticeKind.FAILED, ended.failures + 1
    else:
        return None
    return Notice(
        event=event,
        id=run.id,
        type=run.type,
        fence=run.fence,
        outcome=run.outcome.value,
        error=run.error or "",
        output=run.output if event is NoticeKind.FAILED else "",
        due=run.due,
        ready=ended.ready,
        start=run.start,
        stop=run.stop,
        attempt=run.attempt,
        failures=failures,
    )


def of_warnings(ended: RunEnded, *, after: int) -> Notice | None:
    """The warnings of a run that ended well, where so many good runs in a row had some."""
    run = ended.run
    is_well = ended.release == ReleaseOutcome.DONE and run.outcome is Outcome.OK
    if not (is_well and run.warnings and ended.warned + 1 >= after):
        return None
    return Notice(
        event=NoticeKind.WARNED,
        id=run.id,
        type=run.type,
        fence=run.fence,
        outcome=run.outcome.value,
        error="; ".join(run.warnings),
        due=run.due,
        ready=ended.ready,
        start=run.start,
        stop=run.stop,
        attempt=run.attempt,
    )


def of_lock(lock: FreedLock) -> Notice:
    """The notice of a stale lock that was removed without another attempt."""
    return Notice(
        event=NoticeKind.FAILED,
        id=lock.id,
        type=lock.type,
        fence=lock.fence,
        outcome=Outcome.ABANDONED.value,
        due=lock.due,
        ready=lock.due,
        start=lock.start,
        attempt=lock.attempt,
    )


def of_overdue(run: OverdueRun) -> Notice:
    """The notice of a run that is not claimed."""
    return Notice(
        event=NoticeKind.OVERDUE,
        id=run.id,
        type=run.type,
        fence=run.fence,
        due=run.due,
        ready=run.ready,
        attempt=run.attempt,
        failures=run.failures,
    )


def last_lines(output: str) -> str:
    """The end of an output: twenty lines, 2,000 characters at the most."""
    lines = output.rstrip().splitlines()[-LAST_LINES:]
    return "\n".join(lines)[-LONGEST_ERROR:]


def _words(notice: Notice, *, at: datetime) -> str:
    if notice.event is NoticeKind.OVERDUE:
        return f"is overdue: ready for {_span(at - notice.ready)} and not started"
    if notice.event is NoticeKind.FAILED:
        how = "" if notice.outcome == Outcome.FAILED.value else f" ({notice.outcome})"
        times = f", {notice.failures:,} times in a row" if notice.failures > 1 else ""
        error = first_line(notice.error)
        return f"failed{how}{times}" + (f": {error}" if error else "")
    if notice.event is NoticeKind.WARNED:
        return f"warns: {notice.error}"
    if notice.failures:
        return f"recovered after {plural(notice.failures, 'failure')}"
    late = f", {_span(notice.start - notice.ready)} late" if notice.start else ""
    return f"recovered{late}"


def _line(words: str) -> str:
    """One line of bounded length for people, who may read it in a chat."""
    line = " ".join(words.split())
    line = _harmless("".join(one for one in _valid(line) if one.isprintable()))
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..."


def _harmless(text: str) -> str:
    """Text without mentions. Chats notify people for `<!channel>`, `<@name>`, `@everyone` and the
    like, and an error may contain these.
    """
    return re.sub(r"@(?=\w)", "@ ", text.replace("<", "‹"))


def _span(time: timedelta) -> str:
    return span(max(time.total_seconds(), 0.0))


def _valid(text: str) -> str:
    """Text without lone surrogates: receivers refuse these."""
    return text.encode("utf-8", "replace").decode()


TRIES = 5
"""Of one write: after so many lost races or replies the next worker that sees the item tries it."""
HANDOVER = 300.0
"""Seconds after which another worker sends a notice that was not accepted. The first one gives up
before.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRow:
    """The row of an item's notices, as it was read."""

    events: frozenset[str]
    """All kinds that were sent since the item was last well."""
    at: datetime
    fence: int
    failures: int
    nonce: str
    accepted: bool
    """Whether a way accepted the notice."""
    version: int
    etag: Etag
    age: float


def is_news(notice: Notice, row: NoticeRow, *, now: datetime, again: timedelta | None) -> bool:
    """Whether a notice is to be sent although its item has a row. `again` is how long a lasting
    problem is not sent again; None: for ever.
    """
    if row.version > VERSION:
        return False
    if not row.accepted:
        return row.age > HANDOVER
    if notice.event.value not in row.events:
        return True
    if notice.event is not NoticeKind.WARNED and was_well_since(notice, row):
        return True
    return again is not None and now - row.at >= again


def was_well_since(notice: Notice, row: NoticeRow) -> bool:
    """Whether the item ran, and its failures in a row began anew, after what was sent."""
    return notice.fence > row.fence and notice.failures <= row.failures


async def confirmed(board: BoardTable, notice: Notice) -> Notice | None:
    """The notice with what its item says now. None: it is no longer true, or a person has paused
    or removed the item.
    """
    item = await board.existing(notice.id)
    if item is None:
        return None
    notice = replace(notice, labels=board.labels(item))
    if notice.event is NoticeKind.RECOVERED:
        return notice
    if item.is_paused:
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
    """Write that the notice is being sent. The etag of the row; None: it was sent, or another
    worker is sending it. Raises what a store raises when it does not answer.
    """
    partition, key = notices_partition(board.name), notice_key(notice.id)
    nonce, now = board.chance.nonce(), await board.table.now()
    for _ in range(TRIES):
        stored = await read(board.table, partition, key)
        row = None if stored is None else notice_row_of(stored, age=board.table.age(stored))
        events = {notice.event.value}
        if row is not None:
            if row.nonce == nonce:
                return row.etag
            if not is_news(notice, row, now=now, again=again):
                return None
            events |= set() if was_well_since(notice, row) else row.events
        data: dict[str, Value] = {
            "item": notice.id,
            "events": " ".join(sorted(events)),
            "at": now,
            "fence": notice.fence,
            "failures": notice.failures,
            "nonce": nonce,
            "accepted": False,
            "version": VERSION,
        }
        write = Insert(key, data) if row is None else Merge(key, data, row.etag)
        try:
            etags = await board.table.commit(partition, [write])
        except (Conflict, Unknown):
            continue
        return etags[0]
    return None


async def mark_accepted(board: BoardTable, item_id: str, etag: Etag) -> None:
    """Write that the notice was accepted. If this is lost, the notice is sent once more."""
    partition, key = notices_partition(board.name), notice_key(item_id)
    for _ in range(TRIES):
        try:
            await board.table.commit(partition, [Merge(key, {"accepted": True}, etag)])
        except Unknown:
            continue
        except Conflict:
            return  # it landed, or the item recovered meanwhile
        return


async def end(board: BoardTable, item_id: str) -> bool:
    """Delete the row of an item that is well. Whether there was one, and this call deleted it."""
    partition, key = notices_partition(board.name), notice_key(item_id)
    asked = False
    for _ in range(TRIES):
        row = await read(board.table, partition, key)
        if row is None or notice_row_of(row, age=board.table.age(row)).events == {
            NoticeKind.WARNED.value
        }:
            return asked  # there is no recovery from warnings
        try:
            await board.table.commit(partition, [Delete(key, row.etag)])
        except Conflict:
            continue
        except Unknown:
            asked = True
            continue
        return True
    return False


async def forget_removed(board: BoardTable, *, pause: Pause) -> int:
    """Delete the rows of items that were removed; their number. A row that was written since it was
    read stays: it is of a new life of the id.
    """
    forgotten, partition = 0, notices_partition(board.name)
    async for row in board.table.scan(partition, NOTICE, end_of(NOTICE)):
        item_id = row.data.get("item")
        if not isinstance(item_id, str) or version_of(row.data) > VERSION:
            continue
        await pause()
        with suppress(BadRow, Conflict, Unknown):
            if await board.existing(item_id) is None:
                await board.table.commit(partition, [Delete(row.key, row.etag)])
                forgotten += 1
    return forgotten


def notice_row_of(row: Row, *, age: float) -> NoticeRow:
    """The record in a row. One that lacks `at` counts as very old, so its notice is sent again."""
    data = row.data
    at = data.get("at")
    return NoticeRow(
        events=frozenset(str(data.get("events", "")).split()),
        at=at if isinstance(at, datetime) else LONG_AGO,
        fence=int(str(data.get("fence", 0))),
        failures=int(str(data.get("failures", 0))),
        nonce=str(data.get("nonce", "")),
        accepted=data.get("accepted") is True,
        version=version_of(data),
        etag=row.etag,
        age=age,
    )
