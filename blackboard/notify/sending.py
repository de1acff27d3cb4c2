"""Sends notices in one way, and pings the dead-man address, beside the worker's work.

Each way has a line of its own: one that fails, or hangs, holds up no other. A way that does not
accept a notice is tried again with pauses, for two minutes; what comes meanwhile is sent with it in
one summary, as is all that is more than `at_most` in a minute. A ping that fails is not
repeated; the next walk pings again. What goes wrong is an event, at most one a minute for each way.
"""

import asyncio
import math
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

from blackboard.clock import Clock
from blackboard.events import NoticeFailed, NoticeSent
from blackboard.notify.notices import Composer, Notice, Payload, mark_accepted
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

    def check(self, way: Way) -> None:
        """Report what a way lacks when the worker starts, not when something is to be sent."""
        try:
            way.check()
        except NotSent as problem:
            self.report(label_of(way), str(problem))
        except Exception as problem:  # noqa: BLE001 - sending will fail by it, too
            self.report(way.name, type(problem).__name__)

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
            try:
                await self.dead_man.ping()
            except NotSent as problem:
                self.trouble.report(label_of(self.dead_man), str(problem))
            except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
                self.trouble.report(self.dead_man.name, type(problem).__name__)
            await self.ending.cuts_short(self.clock.sleep(PING_EVERY))


MOST_WAITING = 1000
"""Notices in a line: a large board that fails as a whole must not fill the memory."""
MOST_AT_ONCE = 200
"""Notices in one summary."""
MINUTE = 60.0
GIVE_UP_AFTER = 120.0
"""Seconds from the row of a notice to the last pause before a try: that ends before HANDOVER."""


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
    """Of its row, until the board knows that a way has accepted it; empty also if it has none."""
    since: float
    """When its row was written, in monotonic seconds."""


@dataclass(slots=True, kw_only=True)
class NoticeSender:
    """Sends the notices of its line in one way, in their order."""

    way: Way
    board: BoardTable
    events: Events
    at_most: int
    """Notices a minute."""
    ending: Ending
    trouble: SendingTrouble
    _line: deque[BegunNotice] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _is_closed: bool = False
    _failures: int = 0
    """Tries in a row that the way did not answer."""
    _sent: deque[float] = field(default_factory=deque)
    """When notices were sent, in the last minute."""

    def put(self, begun: BegunNotice) -> None:
        if len(self._line) >= MOST_WAITING:
            what = label_of(self.way)
            self.trouble.report(what, f"more than {MOST_WAITING:,} wait; the rest is dropped")
            return
        self._line.append(begun)
        self._news.set()

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
            full = self._until_there_is_room()
            if full > 0:
                await self.ending.cuts_short(self.board.clock.sleep(full))
            are_many = full > 0 or self._failures > 0 or self.ending.is_set()
            batch = [*islice(self._line, MOST_AT_ONCE if are_many else 1)]
            answer = await self._try(batch)
            if answer is WayAnswer.LATER and not self.ending.is_set():
                await self._pause()
                continue
            self._failures = 0
            self._sent.append(self.board.clock.monotonic())
            for _ in batch:
                self._line.popleft()
            if answer is WayAnswer.ACCEPTED:
                await self._note(batch)

    def _until_there_is_room(self) -> float:
        """Seconds until one more may be sent."""
        now = self.board.clock.monotonic()
        while self._sent and now - self._sent[0] >= MINUTE:
            self._sent.popleft()
        return 0.0 if len(self._sent) < self.at_most else self._sent[0] + MINUTE - now

    async def _pause(self) -> None:
        """Wait after a try that failed. What was tried for long enough is given up."""
        self._failures += 1
        now = self.board.clock.monotonic()
        while self._line and now - self._line[0].since >= GIVE_UP_AFTER:
            self._line.popleft()
        pause = NOTICES.pause(self._failures, fraction=self.board.chance.fraction())
        await self.ending.cuts_short(self.board.clock.sleep(pause))

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
            return WayAnswer.REFUSED if problem.final else WayAnswer.LATER
        except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
            self.trouble.report(self.way.name, type(problem).__name__)
            return WayAnswer.LATER
        return WayAnswer.ACCEPTED

    async def _payload(self, notices: Sequence[Notice]) -> Payload:
        """Of one notice, or of many in a summary."""
        composer = Composer(board=self.board.name, worker=self.events.worker)
        at = await self.board.table.now()
        if len(notices) > 1:
            return composer.summary(notices, at=at)
        return composer.payload(notices[0], at=at)

    async def _note(self, batch: Sequence[BegunNotice]) -> None:
        """One way is enough for the board to count a notice as accepted."""
        for one in batch:
            notice = one.notice
            message = f"{notice.event.value}, by {label_of(self.way)}"
            self.events.emit_of(notice, NoticeSent, message=message)
            if not one.etag:
                continue
            try:
                await mark_accepted(self.board, notice.id, one.etag)
                one.etag = ""
            except Exception as problem:  # noqa: BLE001 - then it is sent once more
                self.trouble.report("notices", type(problem).__name__)
