"""Sends notices of a worker's events, and pings the dead-man address, beside the worker's work.

The notifier listens to events and never makes one wait: notices wait in a queue of bounded length
and are sent by a task of its own, one after the other. When more than `at_most` were sent in a
minute, the waiting ones are sent in one summary. A way that does not accept a notice is tried again
with pauses, for two minutes at the most. A ping that fails is not repeated; the next walk pings
again.

A worker that ends waits a few seconds for what is still to be sent. The notifier never raises; its
problems are events, at most one a minute for each way.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from blackboard.clock import Clock
from blackboard.events import BoardEvent, Events, NoticeFailed, NoticeSent, RunEnded, Walked
from blackboard.notify.notices import (
    HANDOVER,
    Composer,
    Notice,
    Payload,
    begin,
    confirmed,
    end,
    of_lock,
    of_overdue,
    of_run,
    of_warnings,
    taken,
)
from blackboard.notify.settings import NEVER, NoticeKind, NotifyTable
from blackboard.notify.ways import Address, NotSent, Route, Way, dead_man_of, routes_of
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import NOTICE_ROWS, NOTICES
from blackboard.schedule.times import parse_duration
from blackboard.table import Busy, Etag, TableError, Unavailable

TROUBLE_EVERY = 60.0
"""Seconds between two events of the same way: it is tried more often."""


class Ending(asyncio.Event):
    """Set when the worker ends."""

    async def cuts_short(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Wait until `waiting` is done or the worker ends."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(waiting), loop.create_task(self.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


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


LAST_WORD = 5.0
"""Seconds that an ending worker waits for what is still to be sent."""
MOST_WAITING = 1000
"""Notices in the queue: a large board that fails as a whole must not fill the memory."""
MOST_AT_ONCE = 200
"""Notices in one summary."""
MINUTE = 60.0
GIVE_UP_AFTER = 120.0
"""Seconds until the last try to send begins: it ends before HANDOVER."""
TRIES = 3
"""Of a notice that fails for a reason other than the store or the way: it may be the notice itself,
which must not be retried for ever.
"""
LOOK_AGAIN = HANDOVER
"""Seconds until the row of an overdue item is read again: before, no other worker takes it over."""


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Listens to a worker's events, and sends notices until it is cancelled."""

    board: BoardTable
    events: Events
    routes: Sequence[Route]
    """The last one is for all items that no other matches."""
    dead_man: Address | None
    late: timedelta
    """For how long a token is ready until it is overdue."""
    again: timedelta | None
    at_most: int
    """Notices a minute."""
    warned_after: int
    """Good runs in a row that have warnings before that is a notice."""
    _waiting: dict[tuple[NoticeKind, str], Notice] = field(default_factory=dict)
    _failed: Counter[tuple[NoticeKind, str]] = field(default_factory=Counter)
    """Failed tries of the notices that wait or are being sent."""
    _looked: dict[str, tuple[datetime, float]] = field(default_factory=dict)
    """Overdue items: the ready time, and when their row was last read, in monotonic seconds."""
    _sent: deque[float] = field(default_factory=deque)
    """When notices were sent, in the last minute."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _ending: Ending = field(default_factory=Ending)
    _trouble: SendingTrouble = field(init=False)
    _pinger: Pinger | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        clock = self.board.clock
        self._trouble = SendingTrouble(events=self.events, clock=clock)
        if self.dead_man is not None:
            self._pinger = Pinger(
                dead_man=self.dead_man, clock=clock, ending=self._ending, trouble=self._trouble
            )

    @property
    def overdue_after(self) -> timedelta | None:
        """How long a token is ready until a walk reports it; None: no walk does."""
        return self.late if self._is_wanted(NoticeKind.OVERDUE) else None

    def _is_wanted(self, event: NoticeKind) -> bool:
        """Whether any route sends it. A recovery also ends what was sent before."""
        is_end = event is NoticeKind.RECOVERED
        return any(one.ways and (is_end or event in one.on) for one in self.routes)

    def _route(self, notice: Notice) -> Route:
        found = (notice.id, notice.type, notice.labels)
        return next(one for one in self.routes if one.matches(*found))

    def heard(self, event: BoardEvent) -> None:
        """The subscriber."""
        match event:
            case RunEnded():
                for notice in (
                    of_run(event, overdue_after=self.overdue_after),
                    of_warnings(event, after=self.warned_after),
                ):
                    if notice is not None:
                        self._queue(notice)
            case Walked(freed=freed, overdue=overdue):
                if self._pinger is not None:
                    self._pinger.walked()
                for lock in freed:
                    self._queue(of_lock(lock))
                for notice in self._not_read_lately(map(of_overdue, overdue)):
                    self._queue(notice)
            case _:
                pass

    def _queue(self, notice: Notice) -> None:
        if not self._is_wanted(notice.event):
            return
        if len(self._waiting) >= MOST_WAITING:
            self._trouble.report("notices", f"more than {MOST_WAITING:,} wait; the rest is dropped")
            return
        self._waiting[notice.event, notice.id] = notice
        self._news.set()

    def _not_read_lately(self, notices: Iterator[Notice]) -> Iterator[Notice]:
        """Those whose row was not read lately: walks repeat tokens, and each read is a request."""
        now = self.board.clock.monotonic()
        if len(self._looked) > 10 * MOST_WAITING:
            self._looked.clear()
        for notice in notices:
            ready, looked = self._looked.get(notice.id, (None, -math.inf))
            if ready != notice.ready or now - looked > LOOK_AGAIN:
                self._looked[notice.id] = notice.ready, now
                yield notice

    async def run(self) -> None:
        """Send and ping until cancelled, and then send what is left."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._keep_sending())]
        if self._pinger is not None:
            tasks.append(loop.create_task(self._pinger.run()))
        try:
            await asyncio.wait(tasks)  # a cancellation ends this waiting alone, not the tasks
        finally:
            self._ending.set()
            try:
                await asyncio.wait(tasks, timeout=LAST_WORD)
            finally:
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_sending(self) -> None:
        for way in (way for route in self.routes for way in route.ways):
            self._trouble.check(way)
        while self._waiting or not self._ending.is_set():
            if not self._waiting:
                self._news.clear()
                await self._ending.cuts_short(self._news.wait())
                continue
            full = self._until_there_is_room()
            if full > 0:
                await self._ending.cuts_short(self.board.clock.sleep(full))
            notices = self._next(MOST_AT_ONCE if full > 0 else 1)
            try:
                await self._send_all(notices)
            except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
                await self._failed_at(notices, problem)

    async def _failed_at(self, notices: Sequence[Notice], problem: Exception) -> None:
        """Queue them again, a few times."""
        self._trouble.report("notices", type(problem).__name__)
        for one in notices:
            key = one.event, one.id
            self._failed[key] += 1
            if self._failed[key] < TRIES and not self._ending.is_set():
                self._waiting.setdefault(key, one)
            else:
                del self._failed[key]
        await self._ending.cuts_short(self.board.clock.sleep(NOTICE_ROWS.pause()))

    def _next(self, number: int) -> list[Notice]:
        keys = list(self._waiting)[:number]
        return [self._waiting.pop(key) for key in keys]

    def _until_there_is_room(self) -> float:
        """Seconds until one more may be sent."""
        now = self.board.clock.monotonic()
        while self._sent and now - self._sent[0] >= MINUTE:
            self._sent.popleft()
        return 0.0 if len(self._sent) < self.at_most else self._sent[0] + MINUTE - now

    async def _send_all(self, notices: Sequence[Notice]) -> None:
        """Send what was not sent yet: one notice, or many in a summary."""
        begun: list[tuple[Notice, Etag]] = []
        for one in notices:
            try:
                found = await self._begun(one)
            except Exception as problem:  # noqa: BLE001 - the others are sent all the same
                await self._failed_at([one], problem)
                continue
            self._failed.pop((one.event, one.id), None)
            begun += [] if found is None else [found]
        for route in self.routes:
            await self._send_along(route, [one for one in begun if self._route(one[0]) is route])

    async def _send_along(self, route: Route, begun: Sequence[tuple[Notice, Etag]]) -> None:
        if not begun:
            return
        teller = Composer(board=self.board.name, worker=self.events.worker)
        told, at = [notice for notice, _ in begun], await self.board.table.now()
        payload = teller.summary(told, at=at) if len(told) > 1 else teller.payload(told[0], at=at)
        self._sent.append(self.board.clock.monotonic())
        by = await self._sent_by(route.ways, payload)
        if not by:
            return
        for notice, etag in begun:
            told_by = f"{notice.event.value}, by {' and '.join(by)}"
            self.events.emit_of(notice, NoticeSent, message=told_by)
            if etag:
                with suppress(TableError):  # then it is sent once more
                    await taken(self.board, notice.id, etag)

    async def _begun(self, notice: Notice) -> tuple[Notice, Etag] | None:
        """The notice, if this worker is to send it, and the etag of its row, if there is one."""
        try:
            found = await confirmed(self.board, notice)
            if found is None:
                return None
            route = self._route(found)
            if found.event is NoticeKind.RECOVERED:
                was_told = await end(self.board, found.id)
                return (found, "") if was_told and found.event in route.on else None
            if found.event not in route.on or not route.ways:
                return None
            etag = await begin(self.board, found, again=self.again)
        except (Busy, Unavailable):  # reported as an event of the store
            if not self._ending.is_set():
                self._waiting.setdefault((notice.event, notice.id), notice)
                await self._ending.cuts_short(self.board.clock.sleep(NOTICE_ROWS.pause()))
            return None
        return None if etag is None else (found, etag)

    async def _sent_by(self, ways: Sequence[Way], payload: Payload) -> list[str]:
        """The ways that accepted it. One is enough for the board to count it as accepted."""
        left, by = list(ways), list[str]()
        began = self.board.clock.monotonic()
        for tries in count(1):
            for way in tuple(left):
                done = await self._send(way, payload)
                if done is not None:
                    left.remove(way)
                    by += [label_of(way)] if done else []
            patient = self.board.clock.monotonic() - began < GIVE_UP_AFTER
            if not left or not patient or self._ending.is_set():
                break
            pause = NOTICES.pause(tries, fraction=self.board.chance.fraction())
            await self._ending.cuts_short(self.board.clock.sleep(pause))
        return by

    async def _send(self, way: Way, payload: Payload) -> bool | None:
        """Whether a way accepted it; None: a retry may succeed."""
        try:
            await way.send(payload)
        except NotSent as problem:
            self._trouble.report(label_of(way), str(problem))
            return False if problem.final else None
        except Exception as problem:  # noqa: BLE001 - the other ways get it all the same
            self._trouble.report(way.name, type(problem).__name__)
            return None
        return True


def notifier_of(
    table: NotifyTable | None, *, board: BoardTable, events: Events, environ: Mapping[str, str]
) -> Notifier | None:
    """The notifier that `[notify]` asks for; None without that table."""
    if table is None:
        return None
    return Notifier(
        board=board,
        events=events,
        routes=routes_of(table, environ),
        dead_man=dead_man_of(table, environ),
        late=parse_duration(table.overdue, "overdue"),
        again=None if table.again == NEVER else parse_duration(table.again, "again"),
        at_most=table.at_most,
        warned_after=table.warned_after,
    )
