"""Sends notices in one way, and pings the dead-man address, beside the worker's work.

Each way has a line of its own: one that fails, or hangs, holds up no other. A way that does not
accept a notice is tried again with pauses, for two minutes; what comes meanwhile is sent with it in
one summary. So is up to 100 of what waits with the last request of a minute, by `at_most`, and
where a way is slow. What no way has accepted is noted on the board as unsent. A ping that fails is
not repeated; the next walk pings again. What goes wrong is an event, at most one a minute for each
way.
"""

import asyncio
import math
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

from blackboard.clock import Clock
from blackboard.events import NoticeFailed, NoticeSent
from blackboard.notify.notice_rows import HANDOVER, settle
from blackboard.notify.notices import MOST_NAMED, Composer, Notice, Payload
from blackboard.notify.settings import LONGEST_TIMEOUT
from blackboard.notify.ways import Address, NotSent, Way
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import NOTICES
from blackboard.subscribers import Events
from blackboard.table import Etag
from blackboard.tasks import until_one_ends

TROUBLE_EVERY = 60.0
"""Seconds between two events of the same way: it is tried more often."""


class Ending(asyncio.Event):
    """Set when the worker ends."""

    async def cuts_short(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Wait until `waiting` is done or the worker ends."""
        await until_one_ends(waiting, self.wait())


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingTrouble:
    """Emits what went wrong, once a minute for each way."""

    events: Events
    clock: Clock
    _reported: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def reported(self, way: Way) -> Iterator[None]:
        """Report what goes wrong with a way; the worker goes on."""
        try:
            yield
        except NotSent as problem:
            self.report(label_of(way), str(problem))
        except Exception as problem:  # noqa: BLE001 - whatever it is
            self.report(way.name, type(problem).__name__)

    def check(self, way: Way) -> None:
        """Report what a way lacks when the worker starts, not when something is to be sent."""
        with self.reported(way):
            way.check()

    def report(self, what: str, problem: str) -> None:
        now = self.clock.monotonic()
        if now - self._reported.get(what, -math.inf) >= TROUBLE_EVERY:
            self._reported[what] = now
            self.events.emit(NoticeFailed, message=f"{what}: {problem}")


def label_of(way: Way) -> str:
    """A way in events: its name, and where it leads."""
    return f"{way.name} {way.where()}".rstrip()


PING_EVERY = 10.0
"""Least seconds between two pings: walks may follow each other within seconds, and a dead-man timer
counts in minutes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinger:
    """Pings until the worker ends."""

    dead_man: Address
    clock: Clock
    ending: Ending
    trouble: SendingTrouble
    _walked: asyncio.Event = field(default_factory=asyncio.Event)

    def walked(self) -> None:
        """A walk has succeeded: ping."""
        self._walked.set()

    async def run(self) -> None:
        """A walk before the end is still pinged."""
        self.trouble.check(self.dead_man)
        while self._walked.is_set() or not self.ending.is_set():
            if not self._walked.is_set():
                await self.ending.cuts_short(self._walked.wait())
                continue
            self._walked.clear()
            with self.trouble.reported(self.dead_man):
                await self.dead_man.ping()
            await self.ending.cuts_short(self.clock.sleep(PING_EVERY))


MOST_WAITING = 1000
"""Notices in a line: a large board that fails as a whole must not fill the memory."""
MINUTE = 60.0
LONGEST_LAST_PAUSE = 1.0
"""Seconds between two tries of a worker that ends."""
GIVE_UP_AFTER = 120.0
"""Seconds from the row of a notice to the last pause before a try: that ends before HANDOVER."""


BEHIND = 30.0
"""Seconds since the row of a notice from which on all that waits is sent as one summary: its way is
slow.
"""
LATEST_TRY = HANDOVER - LONGEST_TIMEOUT.total_seconds() - 10.0
"""Seconds from the row of a notice to its first try, at the most."""


class WayAnswer(Enum):
    """How a way answered."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """For good."""
    LATER = "later"
    """Another try may be accepted."""


@dataclass(slots=True, eq=False)
class BegunNotice:
    """A notice that this worker is to send. All ways that it is sent in share it."""

    notice: Notice
    etag: Etag
    """Of its row, until the board knows what became of it; empty also if it has none."""
    since: float
    """When its row was written, in monotonic seconds."""
    ways: int
    """Those that may still accept it."""


@dataclass(slots=True, kw_only=True)
class NoticeSender:
    """Sends the notices of its line in one way, in their order."""

    way: Way
    board: BoardTable
    events: Events
    at_most: int
    """Requests a minute."""
    ending: Ending
    trouble: SendingTrouble
    _line: deque[BegunNotice] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _is_closed: bool = False
    _failures: int = 0
    """Tries in a row that the way did not answer."""
    _retry_after: float = 0.0
    """Seconds for which it has asked to be left alone."""
    _sent: deque[float] = field(default_factory=deque)
    """When notices were sent, in the last minute."""

    async def put(self, begun: BegunNotice) -> None:
        if len(self._line) >= MOST_WAITING:
            what = label_of(self.way)
            self.trouble.report(what, f"more than {MOST_WAITING:,} wait; the rest is sent later")
            await self._settle([begun], accepted=False)
            return
        self._line.append(begun)
        self._news.set()

    async def give_up(self) -> None:
        """Note what waits as unsent."""
        left, self._line = [*self._line], deque()
        await self._settle(left, accepted=False)

    def close(self) -> None:
        """Nothing more is put into the line."""
        self._is_closed = True
        self._news.set()

    async def run(self) -> None:
        """Send until the line is closed and empty."""
        self.trouble.check(self.way)
        while self._line or not self._is_closed:
            if not self._line:
                self._news.clear()
                await self._news.wait()
                continue
            if not (room := self._room()):
                left = self._sent[0] + MINUTE - self.board.clock.monotonic()
                await self.ending.cuts_short(self.board.clock.sleep(left))
                if not self.ending.is_set():
                    continue
            await self._drop(older_than=LATEST_TRY)
            if not self._line:
                continue
            waited = self.board.clock.monotonic() - self._line[0].since
            are_many = room <= 1 or self._failures > 0 or waited >= BEHIND
            batch = [*islice(self._line, MOST_NAMED if are_many else 1)]
            answer = await self._try(batch)
            if answer is WayAnswer.LATER:
                await self._pause()
                continue
            self._failures = 0
            self._sent.append(self.board.clock.monotonic())
            for _ in batch:
                self._line.popleft()
            is_accepted = answer is WayAnswer.ACCEPTED
            if is_accepted:
                self._emit(batch)
            await self._settle(batch, accepted=is_accepted)

    async def _drop(self, *, older_than: float) -> None:
        """Note as unsent what has waited for so long since its row was written."""
        now, late = self.board.clock.monotonic(), list[BegunNotice]()
        while self._line and now - self._line[0].since >= older_than:
            late.append(self._line.popleft())
        await self._settle(late, accepted=False)

    def _room(self) -> int:
        """How many more requests may be sent in this minute."""
        now = self.board.clock.monotonic()
        while self._sent and now - self._sent[0] >= MINUTE:
            self._sent.popleft()
        return max(self.at_most - len(self._sent), 0)

    async def _pause(self) -> None:
        """Wait after a try that failed. What was tried for long enough is given up."""
        self._failures += 1
        await self._drop(older_than=GIVE_UP_AFTER)
        pause = NOTICES.pause(self._failures, fraction=self.board.chance.fraction())
        pause = max(pause, min(self._retry_after, GIVE_UP_AFTER))
        if not self.ending.is_set():
            await self.ending.cuts_short(self.board.clock.sleep(pause))
        else:
            await self.board.clock.sleep(min(pause, LONGEST_LAST_PAUSE))

    async def _try(self, batch: Sequence[BegunNotice]) -> WayAnswer:
        try:
            payload = await self._payload([one.notice for one in batch])
        except Exception as problem:  # noqa: BLE001 - such as no time from the store
            self.trouble.report("notices", type(problem).__name__)
            return WayAnswer.LATER
        try:
            await self.way.send(payload)
        except NotSent as problem:
            self.trouble.report(label_of(self.way), str(problem))
            self._retry_after = problem.retry_after
            return WayAnswer.REFUSED if problem.final else WayAnswer.LATER
        except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
            self.trouble.report(self.way.name, type(problem).__name__)
            self._retry_after = 0.0
            return WayAnswer.LATER
        return WayAnswer.ACCEPTED

    async def _payload(self, notices: Sequence[Notice]) -> Payload:
        """Of one notice, or of many in a summary."""
        composer = Composer(board=self.board.name, worker=self.events.worker)
        at = await self.board.table.now()
        if len(notices) > 1:
            return composer.summary(notices, at=at)
        return composer.payload(notices[0], at=at)

    def _emit(self, batch: Sequence[BegunNotice]) -> None:
        for one in batch:
            message = f"{one.notice.event.value}, by {label_of(self.way)}"
            self.events.emit_of(one.notice, NoticeSent, message=message)

    async def _settle(self, batch: Sequence[BegunNotice], *, accepted: bool) -> None:
        """Write what became of notices in this way. For the board one way that has accepted a
        notice is enough, and it is unsent when the last one has not.
        """
        for one in batch:
            one.ways -= 1
            if not one.etag or (one.ways and not accepted):
                continue
            etag, one.etag = one.etag, ""
            try:
                await settle(self.board, one.notice, etag, accepted=accepted)
            except Exception as problem:  # noqa: BLE001 - then it is sent once more
                self.trouble.report("notices", type(problem).__name__)
