"""Tells what a worker's events are news of, beside its work.

It listens to events and never makes one wait: what may be news waits in a line of bounded length
and is told by a task of its own, one notice after the other. When more was told in a minute than
is wanted, what waits then is told in one summary. A way that does not take a notice is tried again
with pauses, for two minutes at the most.

A worker that ends gives it a few seconds for what still waits. It never raises.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.events import Event, Events, Kind
from blackboard.notify.beside import Ending, SendingTrouble, label_of
from blackboard.notify.notices import (
    Notice,
    Payload,
    Teller,
    of_lock,
    of_run,
    of_token,
    of_warnings,
)
from blackboard.notify.pings import Pinger
from blackboard.notify.table import NEVER, NoticeKind, NotifyTable
from blackboard.notify.told import HANDOVER, begin, confirmed, end, taken
from blackboard.notify.ways import Address, NotSent, Way, dead_man_of, ways_of
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.releases import FinishedRun, Released
from blackboard.schedule.durations import parse_duration
from blackboard.table import Busy, Etag, TableError, Unavailable
from blackboard.worker.walk import WalkResult

LAST_WORD = 5.0
"""Seconds that a worker which ends waits for what is still to be told."""
MOST_WAITING = 1000
"""Notices in line: a large board that fails as a whole fills no memory, and a line that is longer
is read by nobody.
"""
MOST_AT_ONCE = 200
"""Notices in one summary."""
MINUTE = 60.0
STORE_PAUSE = 5.0
"""Seconds until the store is asked again that did not answer: notices may wait, and work needs the
store first.
"""
FIRST_PAUSE, LONGEST_PAUSE, GIVE_UP_AFTER = 2.0, 30.0, 120.0
"""Seconds between tries to send; and for how long it is tried: with the last try, for less than
HANDOVER.
"""
TRIES = 3
"""Of a notice at which something fails that is neither the store nor the way: it may be the notice
itself, which must not come back for ever.
"""
LOOK_AGAIN = HANDOVER
"""Seconds until the row of an overdue item is looked at again: before, nobody takes it over."""


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Hears a worker's events, and tells until it is cancelled."""

    board: BoardTable
    events: Events
    ways: Sequence[Way]
    dead_man: Address | None
    on: frozenset[NoticeKind]
    late: timedelta
    """For how long a token is ready until it is overdue."""
    again: timedelta | None
    at_most: int
    """Notices a minute."""
    _waiting: dict[tuple[NoticeKind, str], Notice] = field(default_factory=dict)
    _failed: Counter[tuple[NoticeKind, str]] = field(default_factory=Counter)
    """Tries of the notices that wait, or are being told, that something odd happened to."""
    _looked: dict[str, tuple[datetime, float]] = field(default_factory=dict)
    """Overdue items: the ready time, and when their row was last looked at, in monotonic
    seconds."""
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
        """From when on a walk should speak of a token that it cannot take."""
        return self.late if NoticeKind.OVERDUE in self.on and self.ways else None

    def heard(self, event: Event) -> None:
        """The subscriber."""
        match event.kind, event.record:
            case Kind.ENDED, (FinishedRun() as finished, Released() as released):
                ended = of_run(finished, released, overdue_after=self.overdue_after)
                for notice in (ended, of_warnings(finished, released)):
                    if notice is not None:
                        self._queue(notice)
            case Kind.WALKED, WalkResult() as walked:
                if self._pinger is not None:
                    self._pinger.walked()
                for lock in walked.freed:
                    self._queue(of_lock(lock))
                for notice in self._not_looked_at(map(of_token, walked.overdue)):
                    self._queue(notice)

    def _queue(self, notice: Notice) -> None:
        wanted = notice.event in self.on or notice.event is NoticeKind.RECOVERED
        if not (wanted and self.ways):
            return
        if len(self._waiting) >= MOST_WAITING:
            self._trouble.tell("notices", f"more than {MOST_WAITING:,} wait; the rest is dropped")
            return
        self._waiting[notice.event, notice.id] = notice
        self._news.set()

    def _not_looked_at(self, notices: Iterator[Notice]) -> Iterator[Notice]:
        """A walk sees the same tokens again and again, and each look at a row is a request."""
        now = self.board.clock.monotonic()
        if len(self._looked) > 10 * MOST_WAITING:
            self._looked.clear()
        for notice in notices:
            ready, looked = self._looked.get(notice.id, (None, -math.inf))
            if ready != notice.ready or now - looked > LOOK_AGAIN:
                self._looked[notice.id] = notice.ready, now
                yield notice

    async def run(self) -> None:
        """Tell and ping until cancelled, and then what is left."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._keep_telling())]
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

    async def _keep_telling(self) -> None:
        for way in self.ways:
            self._trouble.look(way)
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
                await self._tell(notices)
            except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
                await self._failed_at(notices, problem)

    async def _failed_at(self, notices: Sequence[Notice], problem: Exception) -> None:
        """They are tried again, a few times."""
        self._trouble.tell("notices", type(problem).__name__)
        for one in notices:
            key = one.event, one.id
            self._failed[key] += 1
            if self._failed[key] < TRIES and not self._ending.is_set():
                self._waiting.setdefault(key, one)
            else:
                del self._failed[key]
        await self._ending.cuts_short(self.board.clock.sleep(STORE_PAUSE))

    def _next(self, number: int) -> list[Notice]:
        keys = list(self._waiting)[:number]
        return [self._waiting.pop(key) for key in keys]

    def _until_there_is_room(self) -> float:
        """Seconds until one more may be sent."""
        now = self.board.clock.monotonic()
        while self._sent and now - self._sent[0] >= MINUTE:
            self._sent.popleft()
        return 0.0 if len(self._sent) < self.at_most else self._sent[0] + MINUTE - now

    async def _tell(self, notices: Sequence[Notice]) -> None:
        """Tell what nobody has told: one, or many in a summary."""
        begun: list[tuple[Notice, Etag]] = []
        for one in notices:
            try:
                found = await self._begun(one)
            except Exception as problem:  # noqa: BLE001 - the others are told all the same
                await self._failed_at([one], problem)
                continue
            self._failed.pop((one.event, one.id), None)
            begun += [] if found is None else [found]
        if not begun:
            return
        teller = Teller(board=self.board.name, worker=self.events.worker)
        told, at = [notice for notice, _ in begun], await self.board.table.now()
        payload = teller.summary(told, at=at) if len(told) > 1 else teller.payload(told[0], at=at)
        self._sent.append(self.board.clock.monotonic())
        by = await self._sent_by(payload)
        if not by:
            return
        for notice, etag in begun:
            told_by = f"{notice.event.value}, by {' and '.join(by)}"
            self.events.emit_of(notice, Kind.NOTIFIED, told_by)
            if etag:
                with suppress(TableError):  # then it is told once more
                    await taken(self.board, notice.id, etag)

    async def _begun(self, notice: Notice) -> tuple[Notice, Etag] | None:
        """The notice, if it is for us to tell it, and the etag of its row, if that is there."""
        try:
            found = await confirmed(self.board, notice)
            if found is None:
                return None
            if found.event is NoticeKind.RECOVERED:
                was_told = await end(self.board, found.id)
                return (found, "") if was_told and found.event in self.on else None
            etag = await begin(self.board, found, again=self.again)
        except (Busy, Unavailable):  # which is told by whoever asks the store
            if not self._ending.is_set():
                self._waiting.setdefault((notice.event, notice.id), notice)
                await self._ending.cuts_short(self.board.clock.sleep(STORE_PAUSE))
            return None
        return None if etag is None else (found, etag)

    async def _sent_by(self, payload: Payload) -> list[str]:
        """Who took it. One that did is enough, as far as the board is concerned."""
        left, by = list(self.ways), list[str]()
        began, pause = self.board.clock.monotonic(), FIRST_PAUSE
        while True:
            for way in tuple(left):
                done = await self._send(way, payload)
                if done is not None:
                    left.remove(way)
                    by += [label_of(way)] if done else []
            patient = self.board.clock.monotonic() - began < GIVE_UP_AFTER
            if not left or not patient or self._ending.is_set():
                return by
            await self._ending.cuts_short(self.board.clock.sleep(pause))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _send(self, way: Way, payload: Payload) -> bool | None:
        """Whether a way took it; None: it may yet."""
        try:
            await way.send(payload)
        except NotSent as problem:
            self._trouble.tell(label_of(way), str(problem))
            return False if problem.final else None
        except Exception as problem:  # noqa: BLE001 - the other ways take it all the same
            self._trouble.tell(way.name, type(problem).__name__)
            return None
        return True


def notifier_of(
    table: NotifyTable | None, *, board: BoardTable, events: Events, environ: Mapping[str, str]
) -> Notifier | None:
    """What `[notify]` asks for; nobody, when it is not there."""
    if table is None:
        return None
    return Notifier(
        board=board,
        events=events,
        ways=ways_of(table, environ),
        dead_man=dead_man_of(table, environ),
        on=frozenset(map(NoticeKind, table.on)),
        late=parse_duration(table.overdue, "overdue"),
        again=None if table.again == NEVER else parse_duration(table.again, "again"),
        at_most=table.at_most,
    )
