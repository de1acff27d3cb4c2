"""Notices of items: what they say, and the JSON and the line that are sent.

Params and results are not in a notice: they may be long, or not meant to leave the board.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import asdict

from blackboard.errors import BadInput
from blackboard.events import FreedLock, OverdueRun, RunEnded, TimesPutRight
from blackboard.model import Item, Outcome, Run, replace
from blackboard.notify.settings import NoticeKind
from blackboard.phrases import cut_middle, first_line, iso, plural, span
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.releases import ReleaseOutcome
from blackboard.rules.due import TAKEOVERS, may_take_over
from blackboard.rules.transitions import FAILING
from blackboard.schedule.times import LONGEST
from blackboard.spec import Labels

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
    """Of the last run; of one that was ok, its warnings; of a wrong clock, what was wrong."""
    output: str = ""
    """The last of what the handler printed, in a run that failed."""
    due: datetime
    ready: datetime
    start: datetime | None = None
    stop: datetime | None = None
    attempt: int | None = None
    """None: it is not known, or the notice is about no run."""
    failures: int = 0
    """In a row; of an item that recovered: until then."""
    labels: Labels = field(default_factory=Labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composer:
    """Composes what is sent; `board` and `worker` are named in it."""

    board: str
    worker: str

    def payload(self, notice: Notice, *, at: datetime) -> Payload:
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
        owner = f" (owner: {notice.labels.owner})" if notice.labels.owner else ""
        return self._about(notice.event.value, words, at=at, more=about, end=owner)

    def summary(self, notices: Sequence[Notice], *, at: datetime) -> Payload:
        """Many notices in one."""
        counts = Counter(notice.event.value for notice in notices)
        counted = ", ".join(f"{number:,} {event}" for event, number in counts.items())
        named = ", ".join(notice.id for notice in notices[:MOST_IN_TEXT])
        dots = ", ..." if len(notices) > MOST_IN_TEXT else ""
        about: Payload = {
            "counts": dict(counts),
            "items": [
                {"event": notice.event.value, "id": _valid(notice.id)}
                for notice in notices[:MOST_NAMED]
            ],
        }
        return self._about("more", f"{counted}: {named}{dots}", at=at, more=about)

    def test(self, *, at: datetime) -> Payload:
        """A test notice: it shows whether notices arrive."""
        return self._about("test", f"a test notice from {self.worker}", at=at, more={})

    def _about(
        self, event: str, words: str, *, at: datetime, more: Payload, end: str = ""
    ) -> Payload:
        """A payload: `more` within the fields of every payload. The `end` of its line is whole,
        however long its words are.
        """
        return {
            "event": event,
            "board": self.board,
            **more,
            "worker": self.worker,
            "at": iso(at),
            "text": _line(f"{self.board}: {words}", end),
        }


def of_run(ended: RunEnded, *, overdue_after: timedelta | None) -> Notice | None:
    """The notice that the end of a run causes, or None: a success after a success is no news, nor
    is a failure that is retried. Where a handler has asked for many retries, `confirmed` decides.
    `overdue_after` is how late is late, if overdue items send some.
    """
    run, output = ended.run, ""
    late = overdue_after is not None and run.start - ended.ready >= overdue_after
    if ended.release != ReleaseOutcome.DONE:
        return None
    if run.outcome is Outcome.OK and (ended.failures or late):
        event, failures = NoticeKind.RECOVERED, ended.failures
    elif run.outcome in FAILING and (not ended.retried or run.attempt > TAKEOVERS):
        event, failures, output = NoticeKind.FAILED, ended.failures + 1, last_lines(run.output)
    else:
        return None
    return _of_ended(ended, event, run.error or "", output=output, failures=failures)


def of_warnings(ended: RunEnded, *, after: int) -> Notice | None:
    """The warnings of a run that ended well, where so many good runs in a row had some."""
    run = ended.run
    is_well = ended.release == ReleaseOutcome.DONE and run.outcome is Outcome.OK
    if not (is_well and run.warnings and ended.warned + 1 >= after):
        return None
    return _of_ended(ended, NoticeKind.WARNED, "; ".join(run.warnings))


def _of_ended(
    ended: RunEnded, event: NoticeKind, error: str, *, output: str = "", failures: int = 0
) -> Notice:
    run = ended.run
    return Notice(
        event=event,
        id=run.id,
        type=run.type,
        fence=run.fence,
        outcome=run.outcome.value,
        error=cut_middle(error, LONGEST_ERROR),
        output=output,
        due=run.due,
        ready=ended.ready,
        start=run.start,
        stop=run.stop,
        attempt=run.attempt,
        failures=failures,
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


def of_times_put_right(event: TimesPutRight) -> Notice:
    """The notice of an item whose times were those of a wrong clock."""
    return Notice(
        event=NoticeKind.CLOCK,
        id=event.id,
        type=event.type,
        fence=event.fence,
        error=event.message,
        due=event.due,
        ready=event.ready,
    )


def of_item(item: Item, last: Run | None = None) -> Notice | None:
    """The notice of an item of which no event came, or None. `last` is its newest run."""
    if item.outcome is None or item.start is None or item.is_paused:
        return None
    if item.outcome is Outcome.OK and not item.failures:
        event = NoticeKind.RECOVERED
    elif item.outcome in FAILING and item.failures and item.attempt <= 1:
        event = NoticeKind.FAILED
    else:
        return None
    is_failure = event is NoticeKind.FAILED
    lag = min(max(last.lag, 0.0), LONGEST.total_seconds()) if last is not None else 0.0
    return Notice(
        event=event,
        id=item.id,
        type=item.type,
        fence=item.fence,
        outcome=item.outcome.value,
        error=cut_middle(item.error, LONGEST_ERROR),
        output=last_lines(last.output) if last is not None and is_failure else "",
        due=last.slot if last is not None else item.start,
        ready=item.start - timedelta(seconds=lag),
        start=item.start,
        stop=item.stop,
        attempt=last.attempt if last is not None else None,
        failures=item.failures,
    )


def last_lines(output: str) -> str:
    """The end of an output: twenty lines, 2,000 characters at the most."""
    lines = output.rstrip().splitlines()[-LAST_LINES:]
    return "\n".join(lines)[-LONGEST_ERROR:]


def _words(notice: Notice, *, at: datetime) -> str:
    match notice.event:
        case NoticeKind.OVERDUE:
            return f"is overdue: ready for {_span(at - notice.ready)} and not started"
        case NoticeKind.FAILED:
            how = "" if notice.outcome == Outcome.FAILED.value else f" ({notice.outcome})"
            times = f", {notice.failures:,} times in a row" if notice.failures > 1 else ""
            error = first_line(notice.error)
            return f"failed{how}{times}" + (f": {error}" if error else "")
        case NoticeKind.WARNED:
            return f"warns: {notice.error}"
        case NoticeKind.CLOCK:
            return notice.error
        case NoticeKind.RECOVERED if notice.failures:
            return f"recovered after {plural(notice.failures, 'failure')}"
        case NoticeKind.RECOVERED:
            late = f", {_span(notice.start - notice.ready)} late" if notice.start else ""
            return f"recovered{late}"


def _line(words: str, end: str) -> str:
    """One line of bounded length for people, who may read it in a chat."""
    line, end = _for_people(words), _for_people(end)
    end = f" {end}" if end else ""
    most = max(LONGEST_LINE - len(end), 0)
    line = line if len(line) <= most else line[: max(most - 3, 0)] + "..."
    return (line + end)[:LONGEST_LINE]


def _for_people(text: str) -> str:
    """Text on one line, without mentions. Chats notify people for `<!channel>`, `<@name>`,
    `@everyone` and the like, and an error may contain these.
    """
    text = "".join(char for char in _valid(" ".join(text.split())) if char.isprintable())
    return re.sub(r"@(?=\w)", "@ ", text.replace("<", "‹"))


def _span(time: timedelta) -> str:
    return span(max(time.total_seconds(), 0.0))


def _valid(text: str) -> str:
    """Text without lone surrogates: receivers refuse these."""
    return text.encode("utf-8", "replace").decode()


async def confirmed(board: BoardTable, notice: Notice) -> Notice | None:
    """The notice with what its item says now. None: it is no longer true, or a person has paused
    or removed the item.
    """
    item = await board.existing(notice.id)
    if item is None or item.is_paused:
        return None
    notice = replace(notice, labels=board.labels(item))
    match notice.event:
        case NoticeKind.RECOVERED:
            return None if item.failures else notice
        case NoticeKind.CLOCK:
            return notice
        case NoticeKind.WARNED:
            error = notice.error or cut_middle("; ".join(item.warnings), LONGEST_ERROR)
            return replace(notice, error=error)
        case NoticeKind.OVERDUE:
            return _still_overdue(item, notice)
        case NoticeKind.FAILED:
            return _still_failed(board, item, notice)


def _still_overdue(item: Item, notice: Notice) -> Notice | None:
    if not item.waits or item.ready != notice.ready:
        return None
    outcome = item.outcome.value if item.outcome else ""
    return replace(notice, outcome=outcome, error=item.error, start=item.start, stop=item.stop)


def _still_failed(board: BoardTable, item: Item, notice: Notice) -> Notice | None:
    """A notice without the end of a run is of a lock that was freed: the item says when it was."""
    if not item.failures or _may_still_succeed(board, item):
        return None
    if notice.stop is not None:
        return replace(notice, error=notice.error or cut_middle(item.error, LONGEST_ERROR))
    if item.outcome is not Outcome.ABANDONED or item.stop is None:
        return None
    failures, fence = item.failures, item.fence
    return replace(notice, stop=item.stop, error=item.error, failures=failures, fence=fence)


def _may_still_succeed(board: BoardTable, item: Item) -> bool:
    """Whether the item waits for a retry or a takeover that its settings promise. More attempts
    than that are those that a handler asks for, however often it has failed.
    """
    if item.attempt <= 1:
        return False
    try:
        retries = board.resolve(item.type, item.spec).retries
    except (BadInput, ValueError):
        return True
    return may_take_over(item.attempt - 1, retries=retries)
