"""One walk over the board: what is there, and what this worker does about it.

A walk reads each shard's locks and ready tokens in one range, decides row by row
(`rules/claims.py`), takes over what is stale, and claims the most overdue tokens that its free
slots can take. Types it does not know, and types whose slots are full, are passed over: so one
slow or poison item never blocks the others.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.board import Board
from blackboard.errors import BadInput
from blackboard.events import Events, Kind
from blackboard.handlers import Handler
from blackboard.holdings import Holdings
from blackboard.keys import shard_of
from blackboard.model import Claim, Lock, Token
from blackboard.phrases import since
from blackboard.rules.claims import Move, decide_lock, decide_token
from blackboard.spec import RunSettings
from blackboard.verbs.take import adopt, claim, claims_at_once, override, pass_over

REREADINGS = 8
"""Readings of one shard's tokens in one walk, when others are faster."""


Start = Callable[[Sequence[Claim]], None]
"""Runs what was claimed; it is in the holdings from then on."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a walk saw and did."""

    claims: int = 0
    """Taken in this walk."""
    locks: int = 0
    """Locks of types that this worker takes, whoever holds them."""
    due: int = 0
    """Stale locks and due tokens that were not taken: no slot was free, or others were faster."""
    crowded: bool = False
    """Whether others were faster: there may be more by now."""
    soonest: timedelta | None = None
    """Until the next token is ready, if that is within the horizon."""
    mine: set[str] = field(default_factory=set)
    """Nonces of this worker's locks that are on the board."""
    skipped: int = 0


@dataclass(slots=True, kw_only=True)
class Walker:
    """Walks the board for one worker."""

    board: Board
    owner: str
    handlers: Mapping[str, Handler]
    """Of the types this worker takes."""
    holdings: Holdings
    events: Events
    horizon: timedelta
    """How far ahead a walk looks for the next token: one cycle."""
    start: Start
    _left: set[str] = field(default_factory=set)
    """Items left alone for their settings; each is told once."""

    async def walk(self) -> Seen:
        """Look at every shard, take over what is stale, claim what the free slots allow. What is
        taken is started at once: should the store fail half-way, nothing waits for the rest.
        """
        seen = Seen()
        now = await self.board.table.now()
        tokens: dict[int, list[Token]] = {}
        for number in range(self.board.shards):
            locks, tokens[number] = await self._read(number, seen, now=now)
            for lock in locks:
                await self._take_over(lock, seen)
        overdue = sorted((one for some in tokens.values() for one in some), key=_ready)
        chosen = Counter(shard_of(one.id, self.board.shards) for one in self._choose(overdue))
        for number, count in chosen.items():
            await self._claim(number, tokens[number], seen, wanted=count, now=now)
        return seen

    async def _read(
        self, number: int, seen: Seen, *, now: datetime
    ) -> tuple[list[Lock], list[Token]]:
        """A shard's locks that this worker has to do with, and its tokens worth choosing from."""
        locks: list[Lock] = []
        tokens: list[Token] = []
        room = _Room(self.holdings)
        async for found in self.board.walk(number, until=now + self.horizon):
            if isinstance(found, Lock):
                seen.locks += found.type in self.handlers
                seen.mine |= {found.nonce} if found.owner == self.owner else set()
                locks.append(found)
            elif found.ready > now:
                seen.soonest = min(found.ready - now, seen.soonest or self.horizon)
                break
            elif (settings := await self._wanted(found, seen, now=now)) is not None:
                seen.due += 1
                if room.take(found.type, settings):
                    tokens.append(found)
                elif not room:
                    break
        return locks, tokens

    async def _wanted(self, token: Token, seen: Seen, *, now: datetime) -> RunSettings | None:
        """The settings of a token to be run. None: it is left alone, or was moved on."""
        if token.type not in self.handlers:
            return None
        try:
            settings = self.board.resolve(token.type, token.spec)
            move = decide_token(token, now=now, types=self.handlers, settings=settings)
            if move is Move.SKIP:
                seen.skipped += 1
                if await pass_over(self.board, token, settings=settings):
                    self._tell(Kind.SKIPPED, token, f"missed {token.slot:%Y-%m-%d %H:%M:%S}Z")
        except (BadInput, ValueError) as error:
            self._leave(token, str(error))
            return None
        return settings if move is Move.RUN else None

    def _choose(self, tokens: Iterable[Token]) -> list[Token]:
        """As many of the tokens, in their order, as the free slots take."""
        room = _Room(self.holdings)
        return [
            one for one in tokens if room.take(one.type, self.board.resolve(one.type, one.spec))
        ]

    async def _claim(
        self, number: int, tokens: list[Token], seen: Seen, *, wanted: int, now: datetime
    ) -> None:
        """Claim so many tokens of a shard; after a lost race, of those that are there then."""
        broken: set[str] = set()
        for _ in range(REREADINGS):
            batch = self._choose(tokens)[: min(wanted, claims_at_once(self.board))]
            if not batch:
                break
            settings = [self.board.resolve(one.type, one.spec) for one in batch]
            answer = await claim(self.board, batch, owner=self.owner, settings=settings)
            self.start(answer.claims)
            seen.claims += len(answer.claims)
            seen.due -= len(answer.claims)
            wanted -= len(answer.claims)
            tokens = tokens[len(batch) :]
            if answer.broken is not None:
                broken.add(answer.broken.id)
                seen.due -= 1
                wanted -= 1
            if answer.reread:
                _, tokens = await self._read(number, Seen(), now=now)
                tokens = [one for one in tokens if one.id not in broken]
        seen.crowded |= wanted > 0

    async def _take_over(self, lock: Lock, seen: Seen) -> None:
        """Override a stale lock while there is a free slot; adopt one of ours."""
        move = decide_lock(
            lock,
            owner=self.owner,
            types=self.handlers,
            in_flight=self.board.in_flight | self.holdings.nonces,
            resolution=self.board.table.resolution,
        )
        if move is Move.LEAVE:
            return
        if move is Move.OVERRIDE and not self.holdings.free:
            seen.due += 1
            return
        try:
            taken = await self._taken(move, lock)
        except (BadInput, ValueError) as error:
            self._leave(lock, str(error))
            return
        if taken is not None:
            self.start([taken])
            seen.claims += 1

    async def _taken(self, move: Move, lock: Lock) -> Claim | None:
        if move is Move.ADOPT:
            # Whom settings cannot be computed for is not renewed, so that it grows stale.
            if (item := await self.board.item(lock.id)) is not None:
                self.board.resolve(item.type, item.spec)
            taken = await adopt(self.board, lock)
            kind, message = Kind.ADOPTED, "its claim had landed late"
        else:
            taken = await override(self.board, lock, owner=self.owner)
            kind, message = Kind.OVERRIDDEN, f"{lock.owner} was not heard of {since(lock.age)}"
        if taken is not None:
            self._tell(kind, lock, message)
        return taken

    def _leave(self, row: Token | Lock, reason: str) -> None:
        if row.id not in self._left:
            self._left.add(row.id)
            self._tell(Kind.LEFT, row, reason, level=logging.WARNING)

    def _tell(
        self, kind: Kind, row: Token | Lock, message: str, *, level: int = logging.INFO
    ) -> None:
        self.events.emit(kind, message, level=level, item=row.id, type=row.type, fence=row.fence)


class _Room:
    """The free slots of a worker, counted down as tokens are chosen."""

    def __init__(self, holdings: Holdings) -> None:
        self._free = holdings.free
        self._running = Counter(held.claim.type for held in holdings)

    def __bool__(self) -> bool:
        return self._free > 0

    def take(self, item_type: str, settings: RunSettings) -> bool:
        """Take a slot, if the worker and the type have one."""
        full = settings.slots is not None and self._running[item_type] >= settings.slots
        if full or self._free <= 0:
            return False
        self._free -= 1
        self._running[item_type] += 1
        return True


def _ready(token: Token) -> datetime:
    return token.ready
