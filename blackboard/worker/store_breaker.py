"""The circuit breaker in front of the store: all requests of a worker pass it.

A worker asks a partition that is away about once a second at the most, whatever it holds, and
leaves the other partitions as they are; a whole account that is away is asked about once a second.
`rules/breaker.py` decides. A request that is held up raises Busy at once, with the seconds until it
may be tried, or Unusable, if that was the store's last error. Nothing was sent then, and so nothing
applied. A loop that retries waits with `ready`.

A store that goes away is reported in one line; so it is each minute that it stays away, and when it
is back. One that is away again within a minute of that comes and goes: it is back only when no
request has failed for a minute. The line names partitions where others answer. A partition that
failed and is not asked again is away for little more than a minute, if others answer.

The same requests read the store's clock; `SteadyClock` follows it.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.clock import Chance, Clock
from blackboard.events import ClockJumped, StoreAway, StoreBack, StoreChanged
from blackboard.model import EPOCH, whole_milliseconds
from blackboard.phrases import span
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import (
    CLOSED,
    DOUBTS,
    SPACING,
    Circuit,
    LastReply,
    Need,
    account_is_away,
    answered,
    doubted,
    failed,
    has_expired,
    is_well,
    tried,
)
from blackboard.rules.next_run import TOLERANCE
from blackboard.subscribers import Events
from blackboard.table import (
    Busy,
    Conflict,
    Etag,
    Op,
    Row,
    Table,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.tables.base import ForwardingTable
from blackboard.tables.waiting import WaitingTable

CONFIRMED_AFTER = 10.0
"""The least seconds from the first reading of the clock that is off to one that confirms it."""
PROVEN_AFTER = 3600.0
"""Seconds in which the store's clock has to go on without a jump before rows are deleted for their
age."""
_SECOND = timedelta(seconds=1)
_JUMP = TOLERANCE / _SECOND
ROUNDING = 1e-3
"""Seconds by which a sleep may be too short."""
REPORT_EVERY = 60.0
"""Seconds between two lines about a store that is away, at the least."""


NO_REPLY = LastReply(is_good=True, when=-math.inf)


@dataclass(frozen=True, slots=True)
class Request:
    """A request under way."""

    partition: str
    need: Need
    is_try: bool
    """Whether it was let through to try a partition in trouble."""


@dataclass(slots=True)
class _Partition:
    """One partition, by its replies."""

    circuit: Circuit = CLOSED
    reply: LastReply = NO_REPLY
    trouble: TableError | None = None
    """Its last error, while it is away."""
    away_since: float = -math.inf
    """When it failed first, while it is away."""
    failed_at: float = -math.inf
    """When it last failed."""

    def is_back(self) -> None:
        """Notes that it is away no longer: it has answered, or its failure has expired."""
        if not is_well(self.circuit):
            self.circuit = CLOSED
        if not self.reply.is_good:
            self.reply = NO_REPLY
        self.trouble = None


class StoreBreaker:
    """The breaker of one worker."""

    def __init__(self, clock: Clock, chance: Chance, events: Events, *, board: str = "") -> None:
        """`board` is the name of the board in events."""
        self._clock = clock
        self._chance = chance
        self._board = board
        self._events = events
        self.steady = SteadyClock(clock, events)
        self._reports = _Reports(events)
        self._partitions: dict[str, _Partition] = {}
        """All that this worker has asked."""
        self._away: dict[str, _Partition] = {}
        """Those that are in trouble."""
        self._silent_since: float | None = None
        """The first failure since a partition has answered last; None: the last reply was good."""
        self._takes_no_batch = False
        """Whether a batch found that the store needs repair. A full disk still answers pages."""
        self._last_try = -math.inf
        self._waiting: dict[asyncio.Task[None], None] = {}
        """The sleeps of `ready`, in the order they were begun."""

    def board(self, board: BoardTable, need: Need) -> BoardTable:
        """The same board, asked with the priority of this need."""
        asked = board.table.table if isinstance(board.table, WaitingTable) else board.table
        table = GuardedTable(asked, self, need)
        return board.asked_through(table, breaker=table)

    def opens_in(self, need: Need, partition: str) -> float:
        """Seconds until a request would be let through; 0: at once."""
        if not self._away:
            return 0.0
        now = self._clock.monotonic()
        retry_at = self._partition(partition).circuit.retry_at(need)
        opens = max(
            -math.inf if retry_at is None else retry_at,
            self._last_try + SPACING if self._all_away(now) else -math.inf,
        )
        return opens - now if now < opens - ROUNDING else 0.0

    async def ready(self, need: Need, partition: str) -> None:
        """Waits, after a request that failed, until the next one would be let through: a second at
        the least where the breaker holds nothing up.
        """
        left = self.opens_in(need, partition) or SPACING
        while left:
            await self._sleep(left)
            left = self.opens_in(need, partition)

    async def _sleep(self, seconds: float) -> None:
        """Sleeps until a partition in trouble answers, so many seconds at the most."""
        sleeping = asyncio.get_running_loop().create_task(self._clock.sleep(seconds))
        self._waiting[sleeping] = None
        try:
            await asyncio.wait([sleeping])
        finally:
            sleeping.cancel()
            self._waiting.pop(sleeping, None)

    def begin(self, need: Need, partition: str) -> Request:
        """Lets a request through. Raises Busy or Unusable when it is too soon."""
        if not self._away:
            return Request(partition, need, is_try=False)
        part, now = self._partition(partition), self._clock.monotonic()
        left = self.opens_in(need, partition)
        if left:
            if isinstance(part.trouble, Unusable):
                raise Unusable(str(part.trouble))
            raise Busy(left)
        is_try = part.circuit.retry_at(need) is not None
        if is_try or self._all_away(now):
            self._last_try = now
        if is_try:
            part.circuit = tried(part.circuit, now=now)
        return Request(partition, need, is_try=is_try)

    def answered(self, request: Request, *, batch: bool, written: bool = False) -> None:
        """Notes that the partition answered a batch, which was `written` or not, or a page."""
        part, now = self._partition(request.partition), self._clock.monotonic()
        is_repaired = written and self._takes_no_batch
        self._takes_no_batch &= not written
        if not _counts(part, request):
            return
        if part.circuit is not CLOSED:
            part.circuit = answered(part.circuit, request.need, batch=batch)
        part.reply = LastReply(is_good=True, when=now)
        self._silent_since = None
        if part.trouble is not None or is_repaired:
            for sleeping in tuple(self._waiting):
                sleeping.cancel()
        if not self._away:
            self._reports.all_answer(now)
        elif not self._takes_no_batch:
            self._let_back(now)

    def _let_back(self, now: float) -> None:
        """Notes partitions as away no longer that have answered, or whose failure has expired."""
        for name, one in tuple(self._away.items()):
            has_answered = is_well(one.circuit)
            if has_answered or has_expired(one.circuit, failed_at=one.failed_at, now=now):
                one.is_back()
                del self._away[name]
                if not has_answered:
                    self._reports.not_asked_again(name)
        if not self._away:
            self._reports.all_answer(now)
            self._events.emit(StoreChanged, board=self._board, away=False)

    def ended(self, request: Request, trouble: TableError, *, batch: bool) -> None:
        """Notes that the partition answered a batch or a page with an error, or not at all."""
        if batch and isinstance(trouble, Unusable):
            self._takes_no_batch = True
        match trouble:
            case Busy(retry_after=asked):
                self._failed(request, trouble, asked=asked)
            case Unavailable():
                self._failed(request, trouble)
            case Unknown():
                part = self._partition(request.partition)
                part.circuit = doubted(part.circuit)
                if request.is_try or part.circuit.doubts >= DOUBTS:
                    self._failed(request, trouble)
            case Conflict():
                self.answered(request, batch=True)
            case _:
                pass  # a request that was refused may not have been sent at all

    def _failed(self, request: Request, trouble: TableError, *, asked: float = 0.0) -> None:
        part, now = self._partition(request.partition), self._clock.monotonic()
        if not self._away:
            self._events.emit(StoreChanged, board=self._board, away=True)
        if request.partition not in self._away:
            self._away[request.partition] = part
            part.away_since = now
        if self._silent_since is None:
            self._silent_since = now
        part.trouble, part.reply = trouble, LastReply(is_good=False, when=now)
        part.failed_at = now
        self._reports.failed(request.partition, now)
        if self._all_away(now):
            self._reports.away(now, (), since=self._silent_since, trouble=trouble)
        else:  # the one that has been away for the longest time first: they were added in order
            since = next(iter(self._away.values())).away_since
            self._reports.away(now, tuple(self._away), since=since, trouble=trouble)
        if _counts(part, request):
            self._last_try = now
            part.circuit = failed(
                part.circuit,
                request.need,
                now=now,
                asked=asked,
                fraction=self._chance.fraction(),
            )

    def _partition(self, name: str) -> _Partition:
        return self._partitions.setdefault(name, _Partition())

    def _all_away(self, now: float) -> bool:
        replies = (part.reply for part in self._partitions.values())
        since = next((part.away_since for part in self._away.values()), now)
        return account_is_away(replies, since=since, now=now)


def _counts(part: _Partition, request: Request) -> bool:
    """Whether a reply counts: not that of a request which was sent before the trouble began."""
    return request.is_try or part.circuit.retry_at(request.need) is None


@dataclass(slots=True)
class _Outage:
    """The time from a first failure until all partitions answer."""

    since: float
    failed_at: float
    names: dict[str, None] = field(default_factory=dict)
    """The partitions that have failed, in order."""
    unasked: set[str] = field(default_factory=set)
    """Those of them that were not asked again."""
    whole_since: float | None = None
    """Since when the whole store has been away by the last line; None: parts of it."""
    comes_and_goes: bool = False
    answering_since: float | None = None
    """Since when all partitions answer; None: not all do."""
    reported_back: float = math.inf
    """When a line said that all of them answer; infinite: it was not said yet."""

    def end(self) -> str:
        """The words that report the end of the outage."""
        assert self.answering_since is not None
        names = [name for name in self.names if name not in self.unasked]
        what, lasted = _some(names), self.answering_since - self.since
        if not names:
            return f"{_some([*self.names])} was not asked for again: all others answer"
        if self.whole_since is not None:
            since = self.since if self.comes_and_goes else self.whole_since
            words = f"the store is back after {span(self.answering_since - since)}"
        elif len(names) > 1:
            words = f"{what}: all answer again, {span(lasted)} after the first of them failed"
        else:
            words = f"{what} is back after {span(lasted)}"
        return f"{words} (it came and went)" if self.comes_and_goes else words


class _Reports:
    """Reports a store that is away: at once, in a line a minute, and when it is back."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._reported = -math.inf
        """When a line said last that it is away."""
        self._outage: _Outage | None = None
        """The last one, which may be over."""

    def failed(self, name: str, now: float) -> None:
        """Notes that a partition has failed."""
        outage = self._outage
        if outage is None or now - outage.reported_back >= REPORT_EVERY:
            outage = self._outage = _Outage(since=now, failed_at=now)
            self._reported = -math.inf
        elif outage.reported_back < math.inf:
            outage.comes_and_goes, outage.reported_back = True, math.inf
            self._reported = -math.inf  # that it is back was the last line
        outage.failed_at, outage.answering_since = now, None
        outage.names[name] = None
        outage.unasked.discard(name)

    def away(self, now: float, names: Sequence[str], *, since: float, trouble: TableError) -> None:
        """Reports what is away, once a minute. `names` are those of the partitions that are away,
        the first of them `since`; none: the whole store is.
        """
        outage = self._outage
        if outage is None or now - self._reported < REPORT_EVERY:
            return
        self._reported, outage.whole_since = now, None if names else since
        what = f"{_some(names)}: " if names else ""
        again = " again" if outage.comes_and_goes else ""
        longest = "up to " if len(names) > 1 else ""
        lasts = f" for {longest}{span(now - since)}" if now > since else ""
        away = f"away{again}{lasts}: " if again or lasts else ""
        self._events.emit(StoreAway, message=f"{what}{away}{trouble}")

    def not_asked_again(self, name: str) -> None:
        """Notes that the failure of a partition has expired."""
        if self._outage is not None:
            self._outage.unasked.add(name)

    def all_answer(self, now: float) -> None:
        """Notes that no partition is away, and reports it."""
        outage = self._outage
        if outage is None or outage.reported_back < math.inf:
            return
        if outage.answering_since is None:
            outage.answering_since = now
        if not outage.comes_and_goes or now - outage.failed_at >= REPORT_EVERY:
            outage.reported_back = now
            self._events.emit(StoreBack, message=outage.end())


def _some(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"partition {names[0]}{more}"


class GuardedTable(ForwardingTable):
    """A store behind a breaker, asked with the priority of one need."""

    def __init__(self, table: Table, breaker: StoreBreaker, need: Need) -> None:
        super().__init__(table)
        self._breaker = breaker
        self._need = need

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        request = self._breaker.begin(self._need, partition)
        try:
            etags = await self.table.commit(partition, ops)
        except TableError as trouble:
            self._breaker.ended(request, trouble, batch=True)
            raise
        self._breaker.answered(request, batch=True, written=True)
        return etags

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        request = self._breaker.begin(self._need, partition)
        try:
            async for row in self.table.scan(partition, first, last, limit):
                self._breaker.answered(request, batch=False)
                yield row
        except TableError as trouble:
            self._breaker.ended(request, trouble, batch=False)
            raise
        self._breaker.answered(request, batch=False)

    integrity = None
    """A worker does not have its store check itself: nothing else is done meanwhile."""

    async def ready(self, partition: str) -> None:
        """Waits, after a request that failed, until the next one would be let through."""
        await self._breaker.ready(self._need, partition)

    def clock_proven_in(self) -> float:
        """Seconds until the store's clock has gone on for long enough to delete rows by it."""
        return self._breaker.steady.proven_in()

    async def now(self) -> datetime:
        return self._breaker.steady.follow(await self.table.now())


# ---- the store's clock


class SteadyClock:
    """Follows the store's clock. A jump counts when it is confirmed.

    A worker reads the store's time again and again, and compares it with its own monotonic clock. A
    time that is off by more than a minute means that the clock was set, that the machine was
    suspended, or that the clock is wrong for a moment. Items that are claimed or planned by a wrong
    time are set back by as much (`rules/wrong_clock.py`). So the worker goes on by the time that it
    had, and claims nothing, until it asks the store again some seconds later, and that is off by
    the same. (Between two replies the time of a store on another host is extrapolated, and confirms
    nothing.)

    All stores are treated alike; on SQLite the clock is that of the host, and needs it most. The
    cost is one more request after a machine was suspended.

    Not promised: a clock that stays wrong is followed, and so is one that was wrong from the start.
    But what is claimed by a wrong clock is mended later, and what is deleted is gone: so rows are
    deleted for their age only after an hour in which the clock has not jumped (`proven_in`).
    """

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._ahead: float | None = None
        """Seconds of the store's clock since 1970 less monotonic seconds, as it is followed."""
        self._elsewhere: float | None = None
        """The same after a jump that is not confirmed; None: there is none."""
        self._since = 0.0
        """When that jump was first read, in monotonic seconds."""
        self._looked = 0.0
        """When the store last answered a request that was made to confirm a jump."""
        self._followed_since = clock.monotonic()
        """Since when the clock has not jumped, in monotonic seconds."""

    def proven_in(self) -> float:
        """Seconds until rows may be deleted for their age; 0: they may be."""
        followed = self._clock.monotonic() - self._followed_since
        return max(PROVEN_AFTER - followed, 0.0)

    @property
    def doubtful(self) -> bool:
        """Whether the clock has jumped, and that is not confirmed."""
        return self._elsewhere is not None

    async def doubts(self, board: BoardTable) -> bool:
        """Whether the store's clock has jumped; then it is read again, and may confirm that."""
        await board.table.now()
        if self.doubtful:
            await board.check_shards()
            self.looked()
            await board.table.now()
        return self.doubtful

    def looked(self) -> None:
        """Notes that the store has just answered: the next reading may confirm a jump."""
        self._looked = self._clock.monotonic()

    def follow(self, shown: datetime) -> datetime:
        """What counts as now when the clock shows `shown`."""
        now = self._clock.monotonic()
        ahead = (shown - EPOCH) / _SECOND - now
        if self._ahead is None or abs(ahead - self._ahead) <= _JUMP:
            self._settle(ahead, "shows again what it should")
        elif self._elsewhere is None or abs(ahead - self._elsewhere) > _JUMP:
            self._doubt(ahead, now)
        elif self._looked - self._since >= CONFIRMED_AFTER:
            self._followed_since = self._since
            self._settle(ahead, "still shows the same, which counts from now on")
        else:
            self._elsewhere = ahead
        if self._elsewhere is None:
            return shown
        assert self._ahead is not None
        return whole_milliseconds(EPOCH + (now + self._ahead) * _SECOND)

    def _settle(self, ahead: float, how: str) -> None:
        if self._elsewhere is not None:
            self._events.emit(ClockJumped, message=f"the store's clock {how}")
        self._ahead, self._elsewhere = ahead, None

    def _doubt(self, ahead: float, now: float) -> None:
        assert self._ahead is not None
        self._elsewhere, self._since = ahead, now
        by = ahead - self._ahead
        self._events.emit(
            ClockJumped,
            message=f"the store's clock jumped {'ahead' if by > 0 else 'back'} by {span(abs(by))}: "
            f"nothing is claimed until it shows the same in {CONFIRMED_AFTER:g} s",
            level=logging.WARNING,
        )
