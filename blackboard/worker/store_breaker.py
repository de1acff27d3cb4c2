"""The store as one worker asks it: patiently, and telling of trouble once.

All requests of a worker go through here, so that it bothers a partition that is away with about one
request a second at the most, whatever it holds, and leaves the other partitions
as they are; a whole account that is away is asked about once a second. `rules/patience.py` decides.
Who is not let through is told Busy at once, with the seconds until it may try; or Unusable, if that
is what the store said. Nothing was sent then, and so nothing applied.

A store that goes away is told in one line; so it is each minute that it stays away, and when it is
back. A store that is away again within a minute is not told again. The line names partitions where
others are well.

Work on the shards of a board side by side: one piece of work a shard, and none that is slow is
waited for.

What takes long goes on by itself, and its shard is left alone meanwhile. So a shard that hangs
costs the others a moment once, and the store one request of this kind. Long is what takes much
longer than the same does elsewhere: where the whole store is slow, no shard is late.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from blackboard.clock import Chance, Clock
from blackboard.events import Events, Kind
from blackboard.phrases import span
from blackboard.protocol.reading import BoardTable
from blackboard.rules.patience import (
    CALM,
    DOUBTS,
    SPACING,
    Need,
    News,
    Patience,
    answered,
    doubted,
    failed,
    is_away,
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
from blackboard.worker.steady_clock import SteadyClock

ROUNDING = 1e-3
"""Seconds: who has slept until a door opens finds it open."""
TELL_EVERY = 60.0
"""Seconds between two lines about a store that is away, at the least."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request under way."""

    partition: str
    need: Need
    is_try: bool
    """Whether it found its door closed."""


@dataclass(slots=True)
class _Part:
    """One partition as far as it is known."""

    patience: Patience = CALM
    news: News = field(default_factory=lambda: News(is_good=True, when=-math.inf))
    trouble: TableError | None = None
    """What it said last, while it is away."""


class Asking:
    """What the requests of one worker know of each other."""

    def __init__(self, clock: Clock, chance: Chance, events: Events) -> None:
        self._clock = clock
        self._chance = chance
        self.steady = SteadyClock(clock, events)
        self._telling = _Telling(events)
        self._parts: dict[str, _Part] = {}
        """By partition, as many as this worker asks."""
        self._away: dict[str, _Part] = {}
        """Those that are in trouble."""
        self._away_since = 0.0
        """Since when there are some."""
        self._last_try = -math.inf

    def board(self, board: BoardTable, need: Need) -> BoardTable:
        """The same board, asked for this need."""
        return board.seen_through(PatientTable(board.table, self, need))

    def begin(self, need: Need, partition: str) -> Request:
        """A request is about to be sent. Raises Busy or Unusable when it is too soon."""
        if not self._away:
            return Request(partition, need, is_try=False)
        part, now = self._part(partition), self._clock.monotonic()
        door, all_away = part.patience.door(need), self._all_away(now)
        opens = max(
            -math.inf if door is None else door,
            self._last_try + SPACING if all_away else -math.inf,
        )
        if now < opens - ROUNDING:
            if isinstance(part.trouble, Unusable):
                raise Unusable(str(part.trouble))
            raise Busy(opens - now)
        if door is not None or all_away:
            self._last_try = now
        if door is not None:
            part.patience = tried(part.patience, now=now)
        return Request(partition, need, is_try=door is not None)

    def answered(self, request: Request, *, batch: bool) -> None:
        """The partition answered a batch or, if it is none, a page."""
        part, now = self._part(request.partition), self._clock.monotonic()
        if not _counts(part, request):
            return
        if part.patience is not CALM:
            part.patience = answered(part.patience, request.need, batch=batch)
        if part.patience.doubts < DOUBTS:
            part.news = News(is_good=True, when=now)
        if part.trouble is not None and part.patience.others is None and part.news.is_good:
            part.trouble = None
            if self._away.pop(request.partition, None) is not None and not self._away:
                self._telling.back(now - self._away_since)

    def ended(self, request: Request, trouble: TableError) -> None:
        """The partition answered with an error, or not at all."""
        match trouble:
            case Busy(retry_after=wanted):
                self._failed(request, trouble, wanted=wanted)
            case Unavailable():
                self._failed(request, trouble)
            case Unknown():
                part = self._part(request.partition)
                part.patience = doubted(part.patience)
                if request.is_try or part.patience.doubts >= DOUBTS:
                    self._failed(request, trouble)
            case Conflict():
                self.answered(request, batch=True)
            case _:
                pass  # what was refused may not have been sent at all

    def _failed(self, request: Request, trouble: TableError, *, wanted: float = 0.0) -> None:
        part, now = self._part(request.partition), self._clock.monotonic()
        if not self._away:
            self._away_since = now
        self._away[request.partition] = part
        part.trouble, part.news = trouble, News(is_good=False, when=now)
        names = () if self._all_away(now) else sorted(self._away)
        self._telling.away(now, names, since=self._away_since, trouble=trouble)
        if _counts(part, request):
            self._last_try = now
            part.patience = failed(
                part.patience,
                request.need,
                now=now,
                wanted=wanted,
                fraction=self._chance.fraction(),
            )

    def _part(self, partition: str) -> _Part:
        return self._parts.setdefault(partition, _Part())

    def _all_away(self, now: float) -> bool:
        news = (part.news for part in self._parts.values())
        return is_away(news, since=self._away_since, now=now)


def _counts(part: _Part, request: Request) -> bool:
    """Whether it says anything new: not so what was sent before its door was closed."""
    return request.is_try or part.patience.door(request.need) is None


class _Telling:
    """Tells of a store that is away, in a line a minute."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._told = -math.inf
        self._what = ""
        """What is away by the last line; "": nothing was said of this absence."""

    def away(self, now: float, names: Sequence[str], *, since: float, trouble: TableError) -> None:
        """`names` are of the partitions that are away; none: the whole store is."""
        if now - self._told < TELL_EVERY:
            return
        self._told, self._what = now, _some(names) or "the store"
        what = f"{_some(names)}: " if names else ""
        away = f"away for {span(now - since)}: " if now > since else ""
        self._events.emit(Kind.STORE, f"{what}{away}{trouble}", level=logging.WARNING)

    def back(self, seconds: float) -> None:
        """All is well again."""
        if self._what:
            self._events.emit(Kind.STORE, f"{self._what} is back after {span(seconds)}")
        self._what = ""


def _some(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"partition {names[0]}{more}"


class PatientTable:
    """A store, asked for one need."""

    def __init__(self, table: Table, asking: Asking, need: Need) -> None:
        self.max_rows = table.max_rows
        self.max_bytes = table.max_bytes
        self.max_value = table.max_value
        self.resolution = table.resolution
        self.requests = table.requests
        self._table = table
        self._asking = asking
        self._need = need

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        request = self._asking.begin(self._need, partition)
        try:
            etags = await self._table.commit(partition, ops)
        except TableError as trouble:
            self._asking.ended(request, trouble)
            raise
        self._asking.answered(request, batch=True)
        return etags

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        request = self._asking.begin(self._need, partition)
        try:
            async for row in self._table.scan(partition, first, last, limit):
                self._asking.answered(request, batch=False)
                yield row
        except TableError as trouble:
            self._asking.ended(request, trouble)
            raise
        self._asking.answered(request, batch=False)

    async def now(self) -> datetime:
        return self._asking.steady.follow(await self._table.now())

    def age(self, row: Row) -> float:
        return self._table.age(row)

    async def close(self) -> None:
        await self._table.close()


SLOW = 0.4
"""Seconds that a shard is waited for beside others, at the least."""
SLOWER = 3.0
"""Times as long as the fastest shard takes that the others are waited for."""
ABREAST = 16
"""Shards that are worked on at a time, besides those that are slow."""

Work = Callable[[int], Coroutine[Any, Any, bool]]
"""Does it for a shard; whether the store has answered."""


class ShardTasks:
    """What is done about each shard at present."""

    def __init__(self, clock: Clock, *, shards: int, ended: Callable[[int], None]) -> None:
        self._clock = clock
        self._shards = shards
        self._ended = ended
        """Is told of a shard whose work has ended late."""
        self._late: dict[int, asyncio.Task[None]] = {}
        self._took: dict[int, float] = {}
        """Seconds that each shard took when it answered last."""
        self._failure: BaseException | None = None

    @property
    def late(self) -> frozenset[int]:
        """Shards that work goes on at that is not waited for."""
        return frozenset(self._late)

    async def each(self, numbers: Iterable[int], work: Work, left: Callable[[int], None]) -> None:
        """Do it for each of the shards, but for those that are late; what is raised is raised here,
        or by the next call. `left` is told of a shard that is late from now on.
        """
        if self._failure is not None:
            raise self._failure
        if self._shards == 1:  # there are no others to protect
            for number in numbers:
                await work(number)
            return
        ready = iter([one for one in numbers if one not in self._late])
        while batch := list(islice(ready, ABREAST)):
            await self._abreast(batch, work, left)

    async def _abreast(self, batch: list[int], work: Work, left: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        tasks = {number: loop.create_task(self._timed(number, work)) for number in batch}
        patience = max(SLOW, SLOWER * min(self._took.values(), default=0.0))
        timer = loop.create_task(self._clock.sleep(patience))
        pending = set(tasks.values())
        try:
            while pending and not timer.done():
                await asyncio.wait({*pending, timer}, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if not task.done()}
        finally:
            timer.cancel()
            for number, task in tasks.items():
                if task in pending:
                    self._late[number] = task
                    task.add_done_callback(partial(self._over, number))
        for number, task in tasks.items():
            if task in pending:
                left(number)
            else:
                task.result()

    async def _timed(self, number: int, work: Work) -> None:
        begun = self._clock.monotonic()
        if await work(number):
            self._took[number] = self._clock.monotonic() - begun

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        self._late.pop(number, None)
        if task.cancelled():
            return
        self._failure = self._failure or task.exception()
        self._ended(number)

    def cancel(self) -> None:
        """Cancel what goes on. The loop awaits it before it ends."""
        for task in tuple(self._late.values()):
            task.cancel()
