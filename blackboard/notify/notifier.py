"""Makes notices of a worker's events, and has them sent beside the worker's work.

The notifier subscribes to events and never blocks their emitter: notices wait in a queue of bounded
length. A task of its own asks the board, one notice after the other, whether it is still true and
this worker is to send it, and puts it into the queues of the channels of its route.

Another task finds the notices that no event causes any more: those that no channel has accepted,
failures of workers that were killed before they could send anything (found by the coordinator,
which reads all items every few minutes), and recoveries by a run that no worker has notified.

A worker that ends waits a few seconds for what is still to be sent. The notifier never raises.
"""

import asyncio
import math
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.emitter import EventEmitter
from blackboard.errors import BadRow
from blackboard.events import BoardCounted, BoardEvent, RunEnded, TimesPutRight, Walked
from blackboard.model import replace
from blackboard.notify import notice_rows, notices
from blackboard.notify.channels import Address, NoticeChannel, Route, dead_man_of, routes_of
from blackboard.notify.sending import BegunNotice, Ending, NoticeSender, Pinger, SendingTrouble
from blackboard.notify.settings import NEVER, NoticeKind, NotifyTable
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.breaker import NOTICE_ROWS
from blackboard.schedule.times import parse_duration
from blackboard.table import Busy, Unavailable
from blackboard.tasks import until_one_ends

WITH_TEXTS = 1_000
"""Notices that wait with what their runs said; more of them wait without, and the board is asked.
"""
MOST_WAITING = 100_000
SHUTDOWN_TIMEOUT = 5.0
"""Seconds that an ending worker waits for what is still to be sent."""
LAST_ROWS = 1.0
"""Seconds in which it writes down what was not sent, for the next worker."""
TRIES = 3
"""Of a notice that fails for a reason other than the store: it may be the notice itself, which must
not be retried for ever.
"""
LOOK_AGAIN = notice_rows.HANDOVER
"""Seconds until the row of an overdue item is read again, and all rows are looked after: before, no
other worker takes a notice over.
"""

_Key = tuple[NoticeKind, str]
"""What a notice is about: of each, one waits at the most, the newest."""


@dataclass(slots=True)
class _WaitingNotice:
    """A notice that the board has not been asked about."""

    notice: notices.Notice
    failed: int = 0
    not_before: float = -math.inf
    """When it is tried again, in monotonic seconds."""


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Listens to a worker's events, and sends notices until it is cancelled."""

    board: BoardTable
    events: EventEmitter
    routes: Sequence[Route]
    """The last one is for all items that no other matches."""
    dead_man: Address | None
    late: timedelta
    """For how long a token is ready until it is overdue."""
    again: timedelta | None
    at_most: int
    """Requests a minute, through each channel."""
    warned_after: int
    """Good runs in a row that have warnings before that is a notice."""
    looks: bool = True
    """Whether it looks after the rows of notices."""
    _waiting: dict[_Key, _WaitingNotice] = field(default_factory=dict)
    _looked: dict[str, tuple[datetime, float]] = field(default_factory=dict)
    """Overdue items: the ready time, and when their row was last read, in monotonic seconds."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _failing: Sequence[str] = ()
    """Items that failed, as the coordinator has counted them last."""
    _counted: asyncio.Event = field(default_factory=asyncio.Event)
    _ending: Ending = field(default_factory=Ending)
    _trouble: SendingTrouble = field(init=False)
    _routes: list[tuple[Route, tuple[NoticeSender, ...]]] = field(init=False)
    _pinger: Pinger | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        clock = self.board.clock
        self._trouble = SendingTrouble(events=self.events, clock=clock)
        self._routes = [(route, tuple(map(self._sender, route.channels))) for route in self.routes]
        if self.dead_man is not None:
            self._pinger = Pinger(
                dead_man=self.dead_man, clock=clock, ending=self._ending, trouble=self._trouble
            )

    def _sender(self, channel: NoticeChannel) -> NoticeSender:
        return NoticeSender(
            channel=channel,
            board=self.board,
            events=self.events,
            at_most=self.at_most,
            ending=self._ending,
            trouble=self._trouble,
        )

    @property
    def overdue_after(self) -> timedelta | None:
        """How long a token is ready until a walk reports it; None: no walk does."""
        return self.late if self._is_wanted(NoticeKind.OVERDUE) else None

    def _is_wanted(self, event: NoticeKind) -> bool:
        """Whether any route sends it. A recovery also ends what was sent before."""
        is_end = event is NoticeKind.RECOVERED
        return any(route.channels and (is_end or event in route.on) for route in self.routes)

    def on_event(self, event: BoardEvent) -> None:
        """Subscribed to the events of the worker."""
        match event:
            case RunEnded():
                for notice in (
                    notices.of_run(event, overdue_after=self.overdue_after),
                    notices.of_warnings(event, after=self.warned_after),
                ):
                    if notice is not None:
                        self._queue(notice)
            case Walked(freed=freed, overdue=overdue):
                if self._pinger is not None:
                    self._pinger.walked()
                for lock in freed:
                    self._queue(notices.of_lock(lock))
                for notice in self._not_read_lately(map(notices.of_overdue, overdue)):
                    self._queue(notice)
            case TimesPutRight():
                self._queue(notices.of_times_put_right(event))
            case BoardCounted(failing=failing):
                self._failing = failing
                self._counted.set()
            case _:
                pass

    def _queue(self, notice: notices.Notice) -> None:
        if not self._is_wanted(notice.event):
            return
        key = notice.event, notice.id
        self._waiting.pop(key, None)  # an item that failed, was well and failed: in this order
        if len(self._waiting) >= MOST_WAITING:
            self._trouble.report("notices", f"more than {MOST_WAITING:,} wait; the rest is dropped")
            return
        # What a clock did is short, and the board does not say it any more.
        if len(self._waiting) >= WITH_TEXTS and notice.event is not NoticeKind.CLOCK:
            notice = replace(notice, error="", output="")
        self._waiting[key] = _WaitingNotice(notice)
        self._news.set()

    def _not_read_lately(self, waiting: Iterator[notices.Notice]) -> Iterator[notices.Notice]:
        """Those whose row was not read lately: walks repeat tokens, and each read is a request."""
        now = self.board.clock.monotonic()
        if len(self._looked) > MOST_WAITING:
            self._looked.clear()
        for notice in waiting:
            ready, looked = self._looked.get(notice.id, (None, -math.inf))
            if ready != notice.ready or now - looked > LOOK_AGAIN:
                self._looked[notice.id] = notice.ready, now
                yield notice

    async def run(self) -> None:
        """Sends and pings until it is cancelled, and then sends what is left."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._keep_beginning())]
        if self.looks:
            tasks.append(loop.create_task(self._keep_looking()))
        tasks += [loop.create_task(sender.run()) for sender in self._senders()]
        if self._pinger is not None:
            tasks.append(loop.create_task(self._pinger.run()))
        try:
            await asyncio.wait(tasks)  # a cancellation ends this waiting alone, not the tasks
        finally:
            self._ending.set()
            try:
                await asyncio.wait(tasks, timeout=SHUTDOWN_TIMEOUT)
            finally:
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_ROWS):
                    for sender in self._senders():
                        await sender.give_up()

    async def _keep_beginning(self) -> None:
        while self._waiting or not self._ending.is_set():
            key = self._next()
            if key is None:
                await self._until_there_is_more()
                continue
            waiting = self._waiting.pop(key)
            try:
                await self._begin(waiting.notice)
            except (Busy, Unavailable):  # reported as an event of the store
                self._put_back(key, waiting)
            except BadRow:
                pass  # of its item: `doctor` reports it
            except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
                self._report(waiting.notice.id, problem)
                waiting.failed += 1
                if waiting.failed < TRIES:
                    self._put_back(key, waiting)
        for sender in self._senders():
            sender.close()

    def _senders(self) -> Iterator[NoticeSender]:
        for _, senders in self._routes:
            yield from senders

    def _next(self) -> _Key | None:
        """The first that may be tried now: any, once more, where the worker ends."""
        now = math.inf if self._ending.is_set() else self.board.clock.monotonic()
        return next((key for key, state in self._waiting.items() if state.not_before <= now), None)

    async def _until_there_is_more(self) -> None:
        """Waits for another notice, or until one is to be tried again."""
        self._news.clear()
        waiting: list[Awaitable[object]] = [self._news.wait()]
        if self._waiting:
            soonest = min(state.not_before for state in self._waiting.values())
            pause = max(soonest - self.board.clock.monotonic(), 0.0)
            waiting.append(self.board.clock.sleep(pause))
        await self._ending.cuts_short(until_one_ends(*waiting))

    def _put_back(self, key: _Key, waiting: _WaitingNotice) -> None:
        """Tries it again after a pause, unless the worker ends, or a newer one waits."""
        if key not in self._waiting and not self._ending.is_set():
            waiting.not_before = self.board.clock.monotonic() + NOTICE_ROWS.pause()
            self._waiting[key] = waiting

    async def _begin(self, notice: notices.Notice) -> None:
        """Hands a notice to its route's channels, if it is true and this worker is to send it."""
        news = await notices.confirmed(self.board, notice)
        if news is None:
            return
        etag = None
        item = news.id, news.type, news.labels
        route, senders = next(line for line in self._routes if line[0].matches(*item))
        is_wanted = news.event in route.on
        since = self.board.clock.monotonic()
        if news.event is NoticeKind.RECOVERED:
            was_sent = await notice_rows.end(self.board, news)
            etag = "" if was_sent and is_wanted else None
        elif is_wanted and senders:
            etag = await notice_rows.begin(self.board, news, again=self.again)
        if etag is not None:
            begun = BegunNotice(news, etag, since, channels=len(senders))
            for sender in senders:
                await sender.put(begun)

    # ---- looking after what no event reports

    async def _keep_looking(self) -> None:
        """Looks at the rows every few minutes, in one worker of all; in the coordinator's also each
        time that it has counted the items.
        """
        while not self._ending.is_set():
            failing, self._failing = self._failing, ()
            self._counted.clear()
            try:
                if failing or await notice_rows.may_look(self.board):
                    await self._look(failing)
            except (Busy, Unavailable):
                pass  # reported as an event of the store; the next look comes soon enough
            except Exception as problem:  # noqa: BLE001 - whatever it is, the worker goes on
                self._trouble.report("notices", type(problem).__name__)
            pause = LOOK_AGAIN * (1 + self.board.chance.fraction() / 10)
            sleeping = until_one_ends(self.board.clock.sleep(pause), self._counted.wait())
            await self._ending.cuts_short(sleeping)

    async def _look(self, failing: Sequence[str]) -> None:
        """Queues the notices that are missing: of the items that have a row, and of those that were
        counted as failing.
        """
        noted = set[str]()
        async for row in notice_rows.notice_rows(self.board):
            if self._ending.is_set():
                return
            if row.kind == NoticeKind.FAILED:
                noted.add(row.id)
            if row.kind not in notice_rows.ENDED_BY_RECOVERY or row.age <= notice_rows.HANDOVER:
                continue  # a worker is sending it, or was a moment ago
            await self._look_at(row.id, row)
        for item_id in failing:
            if self._ending.is_set():
                return
            if item_id not in noted:
                await self._look_at(item_id, None)

    async def _look_at(self, item_id: str, row: notice_rows.NoticeRow | None) -> None:
        """Queues what is to be sent of an item as it is now. Rows that cannot be used are reported.
        `row` is that of its notice, if it has one.
        """
        try:
            notice = await self._missing(item_id, row)
        except (Busy, Unavailable):
            raise
        except BadRow:
            pass  # of its item: `doctor` reports it
        except Exception as problem:  # noqa: BLE001 - one odd row must not end the look
            self._report(item_id, problem)
        else:
            if notice is not None:
                self._queue(notice)

    def _report(self, item_id: str, problem: Exception) -> None:
        self._trouble.report("notices", f"{item_id}: {type(problem).__name__}: {problem}")

    async def _missing(
        self, item_id: str, row: notice_rows.NoticeRow | None
    ) -> notices.Notice | None:
        """What is to be sent of an item as it is now, with what its last run has said."""
        item = await self.board.existing(item_id)
        notice = None if item is None else notices.of_item(item)
        if item is None or notice is None:
            return None
        if row is None or (notice.event == row.kind and row.may_be_taken):
            failures = item.failures
        elif notice.event is NoticeKind.RECOVERED and notice.fence > row.fence:
            failures = row.failures
        else:
            return None
        newest = [run async for run in self.board.runs(item_id, limit=1)]
        notice = notices.of_item(item, *newest)
        return notice and replace(notice, failures=failures)


def notifier_of(
    table: NotifyTable, *, board: BoardTable, events: EventEmitter, environ: Mapping[str, str]
) -> Notifier:
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
