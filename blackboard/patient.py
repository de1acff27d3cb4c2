"""The store as one worker asks it: patiently, and telling of trouble once.

All requests of a worker go through here, so that it bothers a store that is away with about one
request a second at the most, whatever it holds and whoever asks; `rules/patience.py` decides. Who
is not let through is told Busy at once, with the seconds until it may try; or Unusable, if that is
what the store said. Nothing was sent then, and so nothing applied.

A store that goes away is told in one line; so it is each minute that it stays away, and when it is
back. A store that is away again within a minute is not told again.
"""

import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from blackboard.board import Board
from blackboard.clock import Chance, Clock
from blackboard.events import Events, Kind
from blackboard.phrases import span
from blackboard.rules.patience import CALM, DOUBTS, Need, answered, doubted, failed, tried
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

ROUNDING = 1e-3
"""Seconds: who has slept until a door opens finds it open."""
TELL_EVERY = 60.0
"""Seconds between two lines about a store that is away, at the least."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request under way."""

    need: Need
    is_try: bool
    """Whether it found its door closed."""


class Asking:
    """What the requests of one worker know of each other."""

    def __init__(self, clock: Clock, chance: Chance, events: Events) -> None:
        self._clock = clock
        self._chance = chance
        self._events = events
        self._patience = CALM
        self._trouble: TableError | None = None
        """What the store said last, while it is away."""
        self._away_since = 0.0
        self._told = -math.inf
        self._is_told = False
        """Whether anything was said of this absence."""

    def board(self, board: Board, need: Need) -> Board:
        """The same board, asked for this need."""
        return board.seen_through(PatientTable(board.table, self, need))

    def begin(self, need: Need) -> Request:
        """A request is about to be sent. Raises Busy or Unusable when it is too soon."""
        now, opens = self._clock.monotonic(), self._patience.door(need)
        if opens is None:
            return Request(need, is_try=False)
        if now < opens - ROUNDING:
            if isinstance(self._trouble, Unusable):
                raise Unusable(str(self._trouble))
            raise Busy(opens - now)
        self._patience = tried(self._patience, now=now)
        return Request(need, is_try=True)

    def answered(self, request: Request, *, batch: bool) -> None:
        """The store answered a batch or, if it is none, a page."""
        if self._patience is CALM or not self._counts(request):
            return
        self._patience = answered(self._patience, request.need, batch=batch)
        back = self._patience.others is None and self._patience.doubts < DOUBTS
        if back and self._trouble is not None:
            self._tell_of_return()

    def ended(self, request: Request, trouble: TableError) -> None:
        """The store answered with an error, or not at all."""
        match trouble:
            case Busy(retry_after=wanted):
                self._failed(request, trouble, wanted=wanted)
            case Unavailable():
                self._failed(request, trouble)
            case Unknown():
                self._patience = doubted(self._patience)
                if request.is_try or self._patience.doubts >= DOUBTS:
                    self._failed(request, trouble)
            case Conflict():
                self.answered(request, batch=True)
            case _:
                pass  # what was refused may not have been sent at all

    def _counts(self, request: Request) -> bool:
        """Whether it says anything new: not so what was sent before its door was closed."""
        return request.is_try or self._patience.door(request.need) is None

    def _failed(self, request: Request, trouble: TableError, *, wanted: float = 0.0) -> None:
        now = self._clock.monotonic()
        if self._trouble is None:
            self._away_since = now
        self._trouble = trouble
        self._tell(now)
        if self._counts(request):
            self._patience = failed(
                self._patience,
                request.need,
                now=now,
                wanted=wanted,
                fraction=self._chance.fraction(),
            )

    def _tell(self, now: float) -> None:
        if now - self._told < TELL_EVERY:
            return
        away = f"away for {span(now - self._away_since)}: " if now > self._away_since else ""
        self._events.emit(Kind.STORE, f"{away}{self._trouble}", level=logging.WARNING)
        self._told, self._is_told = now, True

    def _tell_of_return(self) -> None:
        if self._is_told:
            away = span(self._clock.monotonic() - self._away_since)
            self._events.emit(Kind.STORE, f"the store is back after {away}")
        self._trouble, self._is_told = None, False


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
        request = self._asking.begin(self._need)
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
        request = self._asking.begin(self._need)
        try:
            async for row in self._table.scan(partition, first, last, limit):
                self._asking.answered(request, batch=False)
                yield row
        except TableError as trouble:
            self._asking.ended(request, trouble)
            raise
        self._asking.answered(request, batch=False)

    async def now(self) -> datetime:
        return await self._table.now()

    def age(self, row: Row) -> float:
        return self._table.age(row)

    async def close(self) -> None:
        await self._table.close()
