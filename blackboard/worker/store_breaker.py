"""The circuit breaker in front of the store: all requests of a worker pass it.

A worker asks a partition that is away about once a second at the most, whatever it holds, and
leaves the other partitions as they are; a whole account that is away is asked about once a second.
`rules/breaker.py` decides. A request that is held up raises Busy at once, with the seconds until it
may be tried, or Unusable, if that was the store's last error. Nothing was sent then, and so nothing
applied. A loop that retries waits with `ready`.

What is away is reported by `outage_reports.py`. The same requests read the store's clock, which
`steady_clock.py` follows.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from blackboard.clock import Chance, Clock
from blackboard.emitter import EventEmitter
from blackboard.events import StoreChanged
from blackboard.protocol.board_table import BoardTable
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
from blackboard.tables.retrying import RetryingTable
from blackboard.worker.outage_reports import OutageReports
from blackboard.worker.steady_clock import SteadyClock

ROUNDING = 1e-3
"""Seconds by which a sleep may be too short."""


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
    def __init__(
        self, clock: Clock, chance: Chance, events: EventEmitter, *, board: str = ""
    ) -> None:
        """`board` is the name of the board in events."""
        self._clock = clock
        self._chance = chance
        self._board = board
        self._events = events
        self.steady = SteadyClock(clock, events)
        self._reports = OutageReports(events)
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
        asked = board.table.table if isinstance(board.table, RetryingTable) else board.table
        table = GuardedTable(asked, self, need)
        proven_in = self.steady.proven_in
        return board.using(table, breaker=table.ready, clock_proven_in=proven_in)

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
        for name, part in tuple(self._away.items()):
            has_answered = is_well(part.circuit)
            if has_answered or has_expired(part.circuit, failed_at=part.failed_at, now=now):
                part.is_back()
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
                part.circuit, request.need, now=now, asked=asked, fraction=self._chance.fraction()
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
        is_first = True
        try:
            async for row in self.table.scan(partition, first, last, limit):
                if is_first:  # most readers stop before the end, or read on much later
                    is_first = False
                    self._breaker.answered(request, batch=False)
                yield row
        except TableError as trouble:
            self._breaker.ended(request, trouble, batch=False)
            raise
        if is_first:
            self._breaker.answered(request, batch=False)

    integrity = None
    """A worker does not have its store check itself: nothing else is done meanwhile."""

    async def ready(self, partition: str) -> None:
        """Waits, after a request that failed, until the next one would be let through."""
        await self._breaker.ready(self._need, partition)

    async def now(self) -> datetime:
        return self._breaker.steady.follow(await self.table.now())
