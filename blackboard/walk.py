"""One walk over the board: what is there, and what this worker does about it.

A walk reads each shard's locks and ready tokens in one range, decides row by row
(`rules/claims.py`), takes over what is stale, and claims the most overdue tokens that its free
slots can take. Types it does not know, and types whose slots are full, are passed over: so one
slow or poison item never blocks the others.

What it reads and does not take is remembered (`known.py`): for slots that become free, and tokens
that become ready, no more is read until the next beat than the shards that have some (`go_on`).
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
from blackboard.holdings import Holdings, Room
from blackboard.keys import shard_of
from blackboard.known import Known, turned
from blackboard.model import Claim, Lock, Token
from blackboard.phrases import since
from blackboard.reading import Reading
from blackboard.rules.claims import Move, decide_lock, decide_token
from blackboard.spec import RunSettings
from blackboard.table import TableError
from blackboard.verbs.take import adopt, claim, claims_at_once, override, pass_over

MOST_OVERDUE = 1_000
"""Overdue tokens that a walk speaks of."""
REREADINGS = 8
"""Readings of one shard's tokens in one walk, when others are faster."""

Start = Callable[[Sequence[Claim]], None]
"""Runs what was claimed; it is in the holdings from then on."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What a walk saw and did."""

    now: datetime
    """By the store's clock."""
    claims: int = 0
    """Taken in this walk."""
    locks: int = 0
    """Locks of types that this worker takes, whoever holds them."""
    due: int = 0
    """Stale locks and due tokens that were not taken: no slot was free, or others were faster."""
    crowded: bool = False
    """Whether slots stayed free although more may be there: others were faster, or a claim was not
    answered."""
    soonest: timedelta | None = None
    """Until there is something to do, if that is within the horizon."""
    mine: set[str] = field(default_factory=set)
    """Nonces of this worker's locks that are on the board."""
    skipped: int = 0
    looked: bool = False
    """Whether all shards were read, and not only what was known claimed."""
    overdue: dict[str, Token] = field(default_factory=dict)
    """By id: ready for longer than is usual, of whatever type, and not taken."""
    freed: list[Lock] = field(default_factory=list)
    """Stale locks that were taken away, and nothing is run; or others were faster."""


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
    overdue_after: timedelta | None = None
    """For how long a token is ready until it is overdue; None: nobody asks."""
    _left: set[str] = field(default_factory=set)
    """Items left alone for their settings; each is told once."""
    _broken: set[str] = field(default_factory=set)
    """Etags of tokens that do not fit their items, or could not be passed over: not to be tried
    again before the next look."""
    known: Known = field(init=False)

    def __post_init__(self) -> None:
        self.known = Known(
            cycle=self.horizon.total_seconds(),
            shards=self.board.shards,
            first_shard=int(self.board.chance.fraction() * self.board.shards),
        )

    def expect(self, item_id: str, ready: datetime) -> None:
        """This item has a token that no walk has read, ready then."""
        self._expect(shard_of(item_id, self.board.shards), ready)

    def _expect(self, number: int, ready: datetime, *, is_for_us: bool = True) -> None:
        share = self.board.chance.fraction()
        self.known.expect(number, ready, share=share, is_for_us=is_for_us)

    async def walk(self) -> Seen:
        """Look at every shard, take over what is stale, claim what the free slots allow. What is
        taken is started at once: should the store fail half-way, nothing waits for the rest.
        """
        begun = await self.board.table.now()
        self.known.look(self.board.clock.monotonic())
        self._broken.clear()
        seen = Seen(now=begun)
        try:
            for number in range(self.board.shards):
                await self._look_into(number, seen)
            await self._claim_all(seen)
        except TableError:
            self.known.forget()
            raise
        # What became ready while other shards were read was counted by nobody.
        seen.soonest = self._until_next(begun)
        seen.looked = True
        return seen

    async def go_on(self) -> Seen | None:
        """Claim what is known to be ready, and read the shards that have more, until the free slots
        are filled. None: it is time to look at every shard, or a token is not to be run any more.
        """
        clock = self.board.clock.monotonic()
        if not self.known.until(clock):
            return None
        now = await self.board.table.now()
        seen = Seen(now=now, mine=self._nonces())
        try:
            for since_then, number in self.known.unread(now):
                if self._filled(seen, before=since_then):
                    break
                await self._read_again(number, seen)
            if not all(self._runs(one, seen) for one in self._choose(self.known.ready(seen.now))):
                return None
            await self._claim_all(seen)
        except TableError:
            self.known.forget()
            raise
        seen.due = len(self.known.ready(seen.now)) + len(self.known.unread(seen.now))
        seen.due += not self.known.until(clock)  # a stale lock waits for a slot
        look = timedelta(seconds=self.known.until(clock))
        seen.soonest = min(self._until_next(now) or look, look)
        return seen

    def _filled(self, seen: Seen, *, before: datetime) -> bool:
        """Whether tokens that are known fill the free slots before it is the turn of others."""
        chosen = self._choose(self.known.ready(seen.now))
        return len(chosen) == self.holdings.free and all(one.ready <= before for one in chosen)

    async def _read_again(self, number: int, seen: Seen) -> None:
        """Read a shard for a token that is ready. If it is gone, somebody was faster."""
        expected = self.known.expects(number, seen.now)
        before = seen.due + seen.claims
        await self._look_into(number, seen)
        if expected and seen.due + seen.claims == before:
            self.known.lost(number, self.board.clock.monotonic())

    async def _look_into(self, number: int, seen: Seen) -> None:
        """Read a shard, and take over what is stale in it."""
        before = self._nonces()
        for lock in await self._read(number, seen):
            await self._take_over(lock, seen, ours=before | self._nonces())

    def _until_next(self, now: datetime) -> timedelta | None:
        following = self.known.next(now)
        return None if following is None else following - now

    def _nonces(self) -> set[str]:
        """Of every task and batch of this worker."""
        return self.board.in_flight | self.holdings.nonces

    async def _read(self, number: int, seen: Seen) -> list[Lock]:
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
        seen.locks += sum(lock.type in self.handlers for lock in locks)
        seen.mine |= {lock.nonce for lock in locks if lock.owner == self.owner}
        self._know(number, reading)
        return locks

    async def _keep(self, token: Token, reading: Reading, seen: Seen) -> bool:
        """Whether to read on after this token."""
        if token.ready > seen.now:
            return reading.later(token, is_for_us=self._is_for_us(token))
        settings = await self._wanted(token, seen)
        if settings is None:
            return True
        seen.due += 1
        return reading.ready(token, settings)

    def _know(self, number: int, reading: Reading) -> None:
        """Of what was read of a shard, all; or, where others are at it too, what the free slots
        take, from somewhere among those that are equally overdue.
        """
        tokens, unread = list(reading.tokens.values()), reading.unread
        if not self.known.alone(number):
            kept = self._choose(turned(tokens, self.board.chance.fraction()))
            if len(kept) < len(tokens):
                unread = [(tokens[0].ready, True), *unread]
            tokens = kept
        self.known.put(number, tokens)
        for ready, is_for_us in unread:
            self._expect(number, ready, is_for_us=is_for_us)

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
        if token.type not in self.handlers or token.etag in self._broken:
            return None
        try:
            settings = self.board.resolve(token.type, token.spec)
            move = self._decide(token, settings, seen)
            if move is Move.SKIP:
                seen.skipped += 1
                if await pass_over(self.board, token, settings=settings):
                    self._tell(Kind.SKIPPED, token, f"missed {token.slot:%Y-%m-%d %H:%M:%S}Z")
                else:
                    self._broken.add(token.etag)
        except (BadInput, ValueError) as error:
            self._leave(token, str(error))
            return None
        return settings if move is Move.RUN else None

    def _look_at_the_time(self, token: Token, seen: Seen) -> None:
        if self.overdue_after is None or seen.now - token.ready < self.overdue_after:
            return
        if len(seen.overdue) < MOST_OVERDUE:
            seen.overdue[token.id] = token

    def _runs(self, token: Token, seen: Seen) -> bool:
        """Whether a token that was wanted is so still."""
        settings = self.board.resolve(token.type, token.spec)
        return self._decide(token, settings, seen) is Move.RUN

    def _decide(self, token: Token, settings: RunSettings, seen: Seen) -> Move:
        return decide_token(token, now=seen.now, types=self.handlers, settings=settings)

    def _choose(self, tokens: Iterable[Token]) -> list[Token]:
        """As many of the tokens, in their order, as the free slots take."""
        room = Room(self.holdings)
        chosen: list[Token] = []
        for one in tokens:
            if not room:
                break
            if room.take(one.type, self.board.resolve(one.type, one.spec)):
                chosen.append(one)
        return chosen

    async def _claim_all(self, seen: Seen) -> None:
        """Claim the most overdue tokens that are known, as many as the free slots take."""
        chosen, before = self._choose(self.known.ready(seen.now)), seen.claims
        wanted = Counter(shard_of(one.id, self.board.shards) for one in chosen)
        for number, count in wanted.items():
            await self._claim(number, seen, wanted=count)
        if seen.claims - before < len(chosen) and self._choose(self.known.ready(seen.now)):
            self._doubt(seen)

    def _doubt(self, seen: Seen) -> None:
        """Slots stayed free, for others were faster; so they may be with all that is known to be
        ready. It is read again, a little later, before it is claimed.
        """
        for number in {shard_of(one.id, self.board.shards) for one in self.known.ready(seen.now)}:
            self.known.raced(number, self.board.clock.monotonic())
            self.known.put(number, [])
            self._expect(number, seen.now)

    async def _claim(self, number: int, seen: Seen, *, wanted: int) -> None:
        """Claim so many tokens of a shard; after a lost race, of those that are there then."""
        rereadings = 0
        while wanted > 0 and rereadings < REREADINGS:
            batch = self._choose(self.known.of_shard(number, seen.now))
            batch = batch[: min(wanted, claims_at_once(self.board))]
            if not batch:
                break
            settings = [self.board.resolve(one.type, one.spec) for one in batch]
            answer = await claim(self.board, batch, owner=self.owner, settings=settings)
            self.known.drop(number, {one.id for one in batch})
            if len(answer.claims) < len(batch):
                self._expect(number, batch[0].ready)  # what was not taken may still be there
            self.start(answer.claims)
            for taken in answer.claims:
                seen.overdue.pop(taken.id, None)
            seen.claims += len(answer.claims)
            seen.due -= len(answer.claims)
            wanted -= len(answer.claims)
            clock = self.board.clock.monotonic()
            if answer.claims:
                self.known.won(number, clock)
            if answer.broken is not None:
                self._broken.add(answer.broken.etag)
                seen.due -= 1
            elif answer.reread:
                self.known.raced(number, clock)
            elif len(answer.claims) < len(batch):
                seen.crowded = True  # the store was away, or lost the reply
            if answer.reread:
                rereadings += 1
                await self._read(number, Seen(now=seen.now))
        seen.crowded |= wanted > 0 and rereadings == REREADINGS

    async def _take_over(self, lock: Lock, seen: Seen, *, ours: set[str]) -> None:
        """Override a stale lock while there is a free slot; adopt one of ours that is in no task's
        hands, nor was when it was read.
        """
        move = decide_lock(
            lock,
            owner=self.owner,
            types=self.handlers,
            in_flight=ours,
            given_up=self.holdings.given_up,
            resolution=self.board.table.resolution,
        )
        if move is Move.LEAVE:
            return
        if move is Move.OVERRIDE and not self.holdings.free:
            seen.due += 1
            self.known.forget()
            return
        try:
            taken = await self._taken(move, lock)
        except (BadInput, ValueError) as error:
            self._leave(lock, str(error))
            return
        if taken is not None:
            self.start([taken])
            seen.claims += 1
        elif move is Move.OVERRIDE:
            seen.freed.append(lock)

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
