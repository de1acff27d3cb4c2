"""Sends notices through one channel, and pings the dead-man address, beside the worker's work.

Each channel has a queue of its own: one that fails, or hangs, does not delay the others. A channel
that does not accept a notice is tried again, with pauses, for two minutes; notices that arrive
meanwhile are sent together with it, as one summary. So are up to 100 of the waiting notices with
the last request that `at_most` allows in a minute, and where a channel is slow. Notices that no
channel has accepted are marked as unsent on the board. A ping that fails is not repeated: the next
walk pings again. Trouble is reported as an event, at most once a minute for each channel.
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
from blackboard.emitter import EventEmitter
from blackboard.events import NoticeFailed, NoticeSent
from blackboard.notify.channels import Address, NoticeChannel
from blackboard.notify.exchange import NotSent
from blackboard.notify.notice_rows import HANDOVER, settle
from blackboard.notify.notices import MOST_NAMED, Composer, Notice, Payload
from blackboard.notify.settings import LONGEST_TIMEOUT
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.breaker import NOTICES
from blackboard.table import Etag
from blackboard.tasks import until_one_ends

TROUBLE_EVERY = 60.0
"""Seconds between two events of the same channel: it is tried more often."""


class Ending(asyncio.Event):
    """Set when the worker ends."""

    async def cuts_short(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Waits until `waiting` is done or the worker ends."""
        await until_one_ends(waiting, self.wait())


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingTrouble:
    """Emits what went wrong, once a minute for each channel."""

    events: EventEmitter
    clock: Clock
    _reported: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def reported(self, channel: NoticeChannel) -> Iterator[None]:
        """Reports what goes wrong with a channel; the worker goes on."""
        try:
            yield
        except NotSent as problem:
            self.report(label_of(channel), str(problem))
        except Exception as problem:  # noqa: BLE001 - whatever it is
            self.report(channel.name, type(problem).__name__)

    def check(self, channel: NoticeChannel) -> None:
        """Reports what a channel lacks when the worker starts, not when a notice is to be sent."""
        with self.reported(channel):
            channel.check()

    def report(self, subject: str, problem: str) -> None:
        now = self.clock.monotonic()
        if now - self._reported.get(subject, -math.inf) >= TROUBLE_EVERY:
            self._reported[subject] = now
            self.events.emit(NoticeFailed, message=f"{subject}: {problem}")


def label_of(channel: NoticeChannel) -> str:
    """A channel in events: its name, and where it leads."""
    return f"{channel.name} {channel.where()}".rstrip()


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
"""Notices in one queue: a large board that fails as a whole must not fill the memory."""
MINUTE = 60.0
LONGEST_LAST_PAUSE = 1.0
"""Seconds between two tries of a worker that ends."""
GIVE_UP_AFTER = 120.0
"""Seconds from the row of a notice to the last pause before a try: that ends before HANDOVER."""

BEHIND = 30.0
"""Seconds after the row of a notice was written from which on all waiting notices are sent as one
summary, because the channel is slow.
"""
LATEST_TRY = HANDOVER - LONGEST_TIMEOUT.total_seconds() - 10.0
"""Seconds from the row of a notice to its first try, at the most."""


class ChannelAnswer(Enum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    """For good."""
    LATER = "later"
    """Another try may be accepted."""


@dataclass(slots=True, eq=False)
class BegunNotice:
    """A notice that this worker is to send, shared by all channels that it goes to."""

    notice: Notice
    etag: Etag
    """Of its row, until the board knows what became of it; empty also if it has none."""
    since: float
    """When its row was written, in monotonic seconds."""
    channels: int
    """The number of channels that may still accept it."""


@dataclass(slots=True, kw_only=True)
class NoticeSender:
    """Sends the notices of its queue through one channel, in their order."""

    channel: NoticeChannel
    board: BoardTable
    events: EventEmitter
    at_most: int
    """Requests a minute."""
    ending: Ending
    trouble: SendingTrouble
    _queue: deque[BegunNotice] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _is_closed: bool = False
    _failures: int = 0
    """The number of tries in a row that failed."""
    _retry_after: float = 0.0
    """Seconds of pause that the channel has asked for, at the last try."""
    _sent: deque[float] = field(default_factory=deque)
    """When notices were sent, in the last minute."""

    async def put(self, begun: BegunNotice) -> None:
        if len(self._queue) >= MOST_WAITING:
            problem = f"more than {MOST_WAITING:,} wait; the rest is sent later"
            self.trouble.report(label_of(self.channel), problem)
            await self._settle([begun], accepted=False)
            return
        self._queue.append(begun)
        self._news.set()

    async def give_up(self) -> None:
        """Marks the waiting notices as unsent."""
        left, self._queue = [*self._queue], deque()
        await self._settle(left, accepted=False)

    def close(self) -> None:
        """Notes that no further notice is put into the queue."""
        self._is_closed = True
        self._news.set()

    async def run(self) -> None:
        """Sends until the queue is closed and empty."""
        self.trouble.check(self.channel)
        while self._queue or not self._is_closed:
            if not self._queue:
                self._news.clear()
                await self._news.wait()
                continue
            if not (room := self._room()):
                left = self._sent[0] + MINUTE - self.board.clock.monotonic()
                await self.ending.cuts_short(self.board.clock.sleep(left))
                if not self.ending.is_set():
                    continue
            await self._drop(older_than=LATEST_TRY)
            if not self._queue:
                continue
            waited = self.board.clock.monotonic() - self._queue[0].since
            are_many = room <= 1 or self._failures > 0 or waited >= BEHIND
            batch = [*islice(self._queue, MOST_NAMED if are_many else 1)]
            answer = await self._try(batch)
            if answer is ChannelAnswer.LATER:
                await self._pause()
                continue
            self._failures = 0
            self._sent.append(self.board.clock.monotonic())
            for _ in batch:
                self._queue.popleft()
            is_accepted = answer is ChannelAnswer.ACCEPTED
            if is_accepted:
                self._emit(batch)
            await self._settle(batch, accepted=is_accepted)

    async def _drop(self, *, older_than: float) -> None:
        """Marks notices as unsent whose rows were written `older_than` seconds ago or earlier."""
        now, late = self.board.clock.monotonic(), list[BegunNotice]()
        while self._queue and now - self._queue[0].since >= older_than:
            late.append(self._queue.popleft())
        await self._settle(late, accepted=False)

    def _room(self) -> int:
        """How many more requests may be sent in this minute."""
        now = self.board.clock.monotonic()
        while self._sent and now - self._sent[0] >= MINUTE:
            self._sent.popleft()
        return max(self.at_most - len(self._sent), 0)

    async def _pause(self) -> None:
        """Waits after a try that failed, and gives up notices that were tried for long enough."""
        self._failures += 1
        await self._drop(older_than=GIVE_UP_AFTER)
        pause = NOTICES.pause(self._failures, fraction=self.board.chance.fraction())
        pause = max(pause, min(self._retry_after, GIVE_UP_AFTER))
        if not self.ending.is_set():
            await self.ending.cuts_short(self.board.clock.sleep(pause))
        else:
            await self.board.clock.sleep(min(pause, LONGEST_LAST_PAUSE))

    async def _try(self, batch: Sequence[BegunNotice]) -> ChannelAnswer:
        self._retry_after = 0.0
        try:
            payload = await self._payload([pending.notice for pending in batch])
        except Exception as problem:  # noqa: BLE001 - such as no time from the store
            self.trouble.report("notices", type(problem).__name__)
            return ChannelAnswer.LATER
        try:
            await self.channel.send(payload)
        except NotSent as problem:
            self.trouble.report(label_of(self.channel), str(problem))
            self._retry_after = problem.retry_after
            return ChannelAnswer.REFUSED if problem.final else ChannelAnswer.LATER
        except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
            self.trouble.report(self.channel.name, type(problem).__name__)
            return ChannelAnswer.LATER
        return ChannelAnswer.ACCEPTED

    async def _payload(self, notices: Sequence[Notice]) -> Payload:
        """The JSON object to send: of one notice, or a summary of many."""
        composer = Composer(board=self.board.name, worker=self.events.worker)
        at = await self.board.table.now()
        if len(notices) > 1:
            return composer.summary(notices, at=at)
        return composer.payload(notices[0], at=at)

    def _emit(self, batch: Sequence[BegunNotice]) -> None:
        for pending in batch:
            message = f"{pending.notice.event.value}, by {label_of(self.channel)}"
            self.events.emit_of(pending.notice, NoticeSent, message=message)

    async def _settle(self, batch: Sequence[BegunNotice], *, accepted: bool) -> None:
        """Records on the board how sending notices through this channel ended. A notice counts as
        sent when one channel has accepted it, and as unsent when the last one has refused it.
        """
        for pending in batch:
            pending.channels -= 1
            if not pending.etag or (pending.channels and not accepted):
                continue
            etag, pending.etag = pending.etag, ""
            try:
                await settle(self.board, pending.notice, etag, accepted=accepted)
            except Exception as problem:  # noqa: BLE001 - then it is sent once more
                self.trouble.report("notices", type(problem).__name__)
