"""What there is to tell of an item, and the JSON and the line in which it is told. Pure.

Params and results are not in it: they may be long, and nobody said that they may leave the board.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from blackboard.model import Lock, Outcome, Token
from blackboard.notify.table import NoticeKind
from blackboard.phrases import cut_middle, first_line, iso, plural, span
from blackboard.protocol.releases import FinishedRun, Released, ReleaseOutcome
from blackboard.results import warnings_in
from blackboard.rules.transitions import FAILING

Payload = dict[str, Any]
"""What is sent, as JSON."""

LONGEST_ERROR = 2_000
LONGEST_LINE = 300
MOST_NAMED = 100
"""Items that a summary names."""
MOST_IN_TEXT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to be told of one item."""

    event: NoticeKind
    id: str
    type: str
    fence: int
    outcome: str = ""
    """Of the last run."""
    error: str = ""
    """Of the last run; of one that was ok, its warnings."""
    due: datetime
    ready: datetime
    start: datetime | None = None
    stop: datetime | None = None
    attempt: int
    failures: int = 0
    """In a row; of an item that recovered: until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Who tells, and of which board."""

    board: str
    worker: str

    def payload(self, notice: Notice, *, at: datetime) -> Payload:
        """One notice."""
        about: Payload = {
            "id": _valid(notice.id),
            "type": _valid(notice.type),
            "outcome": notice.outcome or None,
            "error": _valid(cut_middle(notice.error, LONGEST_ERROR)) or None,
            "due": iso(notice.due),
            "start": iso(notice.start) if notice.start else None,
            "stop": iso(notice.stop) if notice.stop else None,
            "attempt": notice.attempt,
            "failures": notice.failures,
        }
        words = f"{notice.id} {_words(notice, at=at)}"
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
        """For whoever wants to see whether notices arrive."""
        return self._about("test", f"a test notice from {self.worker}", at=at, more={})

    def _about(self, event: str, words: str, *, at: datetime, more: Payload) -> Payload:
        """What every payload says, around what only this one does."""
        return {
            "event": event,
            "board": self.board,
            **more,
            "worker": self.worker,
            "at": iso(at),
            "text": _line(f"{self.board}: {words}"),
        }


def of_run(
    finished: FinishedRun, released: Released, *, overdue_after: timedelta | None
) -> Notice | None:
    """What the end of a run may be news of. `overdue_after` is how late is late, if that is told.
    That what was well ended well is no news, nor is a failure that is tried again.
    """
    claim, run = finished.claim, released.run
    late = overdue_after is not None and run.start - claim.item.ready >= overdue_after
    if released.how is not ReleaseOutcome.DONE:
        return None
    if run.outcome is Outcome.OK and (claim.item.failures or late):
        event, failures = NoticeKind.RECOVERED, claim.item.failures
    elif run.outcome in FAILING and run.attempt > finished.settings.retries:
        event, failures = NoticeKind.FAILED, claim.item.failures + 1
    else:
        return None
    return Notice(
        event=event,
        id=run.id,
        type=run.type,
        fence=run.fence,
        outcome=run.outcome.value,
        error=run.error,
        due=run.slot,
        ready=claim.item.ready,
        start=run.start,
        stop=run.stop,
        attempt=run.attempt,
        failures=failures,
    )


def of_warnings(finished: FinishedRun, released: Released) -> Notice | None:
    """What a run that ended well warns of."""
    run = released.run
    warnings = warnings_in(run.result)
    if released.how is not ReleaseOutcome.DONE or run.outcome is not Outcome.OK or not warnings:
        return None
    return Notice(
        event=NoticeKind.WARNED,
        id=run.id,
        type=run.type,
        fence=run.fence,
        outcome=run.outcome.value,
        error="; ".join(warnings),
        due=run.slot,
        ready=finished.claim.item.ready,
        start=run.start,
        stop=run.stop,
        attempt=run.attempt,
    )


def of_lock(lock: Lock) -> Notice:
    """Of a stale lock that was taken away, and nothing is run."""
    return Notice(
        event=NoticeKind.FAILED,
        id=lock.id,
        type=lock.type,
        fence=lock.fence,
        outcome=Outcome.ABANDONED.value,
        due=lock.slot,
        ready=lock.slot,
        start=lock.since,
        attempt=lock.attempt,
    )


def of_token(token: Token) -> Notice:
    """Of a token that nobody takes."""
    return Notice(
        event=NoticeKind.OVERDUE,
        id=token.id,
        type=token.type,
        fence=token.fence,
        due=token.slot,
        ready=token.ready,
        attempt=token.attempt,
        failures=token.failures,
    )


def _words(notice: Notice, *, at: datetime) -> str:
    if notice.event is NoticeKind.OVERDUE:
        return f"is overdue: ready for {_span(at - notice.ready)} and not started"
    if notice.event is NoticeKind.FAILED:
        how = "" if notice.outcome == Outcome.FAILED.value else f" ({notice.outcome})"
        times = f", {notice.failures:,} times in a row" if notice.failures > 1 else ""
        said = first_line(notice.error)
        return f"failed{how}{times}" + (f": {said}" if said else "")
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
    """Chats call people for `<!channel>`, `<@name>`, `@everyone` and the like, and an error may
    hold these. It is not for an error to say who is called.
    """
    return re.sub(r"@(?=\w)", "@ ", text.replace("<", "‹"))


def _span(time: timedelta) -> str:
    return span(max(time.total_seconds(), 0.0))


def _valid(text: str) -> str:
    """Without what no UTF-8 text has: receivers refuse it."""
    return text.encode("utf-8", "replace").decode()
