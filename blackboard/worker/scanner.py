"""Reads shards for a worker: which of their tokens it wants, and what it keeps in mind of them.

Each token is judged as it is read (`rules/due.py`). Types that the worker does not know, and
types whose slots are full, are passed over: so one slow or poison item never blocks the others.
What is wanted is kept (`backlog.py`), and claimed by the walk (`walk.py`).

What of a shard's tokens is kept in mind while they are read, and how far it is read. Pure.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.errors import BadInput
from blackboard.events import Events, Kind
from blackboard.handlers import Handler
from blackboard.latest import Latest
from blackboard.model import Lock, Token
from blackboard.protocol.claims import pass_over
from blackboard.protocol.reading import BoardTable
from blackboard.rules.due import Move, decide_token
from blackboard.spec import RunSettings
from blackboard.worker.backlog import Known, turned
from blackboard.worker.running import Holdings, Room
from blackboard.worker.seen import Seen

AHEAD = 48
"""Tokens read beyond those that the free slots take, or twice the slots if that is more. With the
locks of a few slots that is still one page of any store."""
AMONG = 4
"""Tokens for each free slot that a worker chooses among, when others are at the same ones."""


class Reading:
    """One reading of a shard, most overdue token first. `alone`: nobody else is at its tokens, so
    what is kept will be there still when slots become free.
    """

    def __init__(self, holdings: Holdings, *, alone: bool) -> None:
        self.tokens: dict[str, Token] = {}
        """Kept, by id: one that moves meanwhile may be read twice."""
        self.unread: list[tuple[datetime, bool]] = []
        """When tokens are ready that are not kept, and whether one is for us: the first of them,
        and the first of those that are not ready yet."""
        self._alone = alone
        self._room = Room(holdings)
        self._ahead = max(AHEAD, 2 * holdings.slots)
        most = holdings.free + self._ahead if alone else AMONG * holdings.free
        self._most = most if self._room else 0

    def ready(self, token: Token, settings: RunSettings) -> bool:
        """A token that is wanted now. Returns whether to read on."""
        if self._room.take(token.type, settings) or len(self.tokens) < self._most:
            self.tokens[token.id] = token
            return True
        self.unread = self.unread or [(token.ready, True)]
        return bool(self._room)

    def later(self, token: Token, *, is_for_us: bool) -> bool:
        """A token that is not ready yet. Returns whether to read on."""
        if self._ahead <= 0 or (is_for_us and not self._alone):
            self.unread.append((token.ready, is_for_us))
            return False
        self._ahead -= 1
        if is_for_us:
            self.tokens[token.id] = token
        return True


MOST_OVERDUE = 1_000
"""Overdue tokens that a walk speaks of."""
MOST_LEFT = 100_000
"""Items left alone of which it is remembered that this was told."""


@dataclass(slots=True, kw_only=True)
class Scanner:
    """Reads for one worker."""

    board: BoardTable
    handlers: Mapping[str, Handler]
    """Of the types this worker takes."""
    holdings: Holdings
    events: Events
    horizon: timedelta
    """How far ahead is read: one cycle."""
    overdue_after: timedelta | None = None
    """For how long a token is ready until it is overdue; None: nobody asks."""
    known: Known = field(init=False)
    broken: set[str] = field(default_factory=set)
    """Etags of tokens that do not fit their items, or could not be passed over: not to be tried
    again before the next look."""
    _left: Latest = field(default_factory=lambda: Latest(MOST_LEFT))
    """Items left alone for their settings; each is told once."""

    def __post_init__(self) -> None:
        self.known = Known(
            cycle=self.horizon.total_seconds(),
            shards=self.board.shards,
            first_shard=int(self.board.chance.fraction() * self.board.shards),
        )

    def expect(self, number: int, ready: datetime, *, is_for_us: bool = True) -> None:
        """A shard has tokens that are not known, from `ready` on."""
        share = self.board.chance.fraction()
        self.known.expect(number, ready, share=share, is_for_us=is_for_us)

    async def read(self, number: int, seen: Seen) -> list[Lock]:
        """A shard's locks. Its tokens are known from now on: those that the free slots take, and
        some more.
        """
        locks: list[Lock] = []
        reading = Reading(self.holdings, alone=self.known.alone(number))
        self.known.expect_no_more(number)  # from here on: somebody may let go while it is read
        skipped, is_first = seen.skipped, True
        async for found in self.board.walk(number, until=seen.now + self.horizon):
            if is_first:  # its page may have told more of the time than was known before
                is_first, seen.now = False, await self.board.table.now()
            if isinstance(found, Lock):
                locks.append(found)
            elif not await self._keep(found, reading, seen):
                break
        if seen.skipped > skipped:
            reading.unread.append((seen.now, False))  # their next tokens
        self._know(number, reading)
        return locks

    async def _keep(self, token: Token, reading: Reading, seen: Seen) -> bool:
        """Whether to read on after this token."""
        if token.ready > seen.now:
            return reading.later(token, is_for_us=self._is_for_us(token))
        settings = await self._wanted(token, seen)
        if settings is None:
            return True
        return reading.ready(token, settings)

    def _know(self, number: int, reading: Reading) -> None:
        """Of what was read of a shard, all; or, where others are at it too, what the free slots
        take, from somewhere among those that are equally overdue.
        """
        tokens, unread = list(reading.tokens.values()), reading.unread
        if not self.known.alone(number):
            kept = self.choose(turned(tokens, self.board.chance.fraction()))
            if len(kept) < len(tokens):
                unread = [(tokens[0].ready, True), *unread]
            tokens = kept
        self.known.put(number, tokens)
        for ready, is_for_us in unread:
            self.expect(number, ready, is_for_us=is_for_us)

    def _is_for_us(self, token: Token) -> bool:
        """Whether a token that is not ready yet will be one to take."""
        if token.type not in self.handlers:
            return False
        try:
            self.board.resolve(token.type, token.spec)
        except (BadInput, ValueError):
            return False
        return True

    async def _wanted(self, token: Token, seen: Seen) -> RunSettings | None:
        """The settings of a token to be run. None: it is left alone, or was moved on."""
        self._look_at_the_time(token, seen)
        if token.type not in self.handlers or token.etag in self.broken:
            return None
        try:
            settings = self.board.resolve(token.type, token.spec)
            move = self._decide(token, settings, seen)
            if move is Move.SKIP:
                seen.missed += 1
                if await pass_over(self.board, token, settings=settings):
                    seen.skipped += 1
                    missed = f"missed {token.slot:%Y-%m-%d %H:%M:%S}Z"
                    self.events.emit_of(token, Kind.SKIPPED, missed)
                else:
                    self.broken.add(token.etag)
        except (BadInput, ValueError) as error:
            self.leave(token, str(error))
            return None
        return settings if move is Move.RUN else None

    def _look_at_the_time(self, token: Token, seen: Seen) -> None:
        if self.overdue_after is None or seen.now - token.ready < self.overdue_after:
            return
        if len(seen.overdue) < MOST_OVERDUE:
            seen.overdue[token.id] = token

    def runs(self, token: Token, seen: Seen) -> bool:
        """Whether a token that was wanted is so still."""
        settings = self.board.resolve(token.type, token.spec)
        return self._decide(token, settings, seen) is Move.RUN

    def _decide(self, token: Token, settings: RunSettings, seen: Seen) -> Move:
        return decide_token(token, now=seen.now, types=self.handlers, settings=settings)

    def choose(self, tokens: Iterable[Token]) -> list[Token]:
        """As many of the tokens, in their order, as the free slots take."""
        room = Room(self.holdings)
        chosen: list[Token] = []
        for one in tokens:
            if not room:
                break
            if room.take(one.type, self.board.resolve(one.type, one.spec)):
                chosen.append(one)
        return chosen

    def leave(self, row: Token | Lock, reason: str) -> None:
        """Tell, once, why an item is left alone."""
        if row.id not in self._left:
            self._left.add(row.id)
            self.events.emit_of(row, Kind.LEFT, reason, level=logging.WARNING)
