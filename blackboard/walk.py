"""One walk over the board: what is there, and what this worker does about it.

A walk reads each shard's locks and ready tokens in one range (`scanner.py`), takes over what is
stale, and claims the most overdue tokens that its free slots can take.

What it reads and does not take is remembered (`known.py`): for slots that become free, and tokens
that become ready, no more is read until the next beat than the shards that have some (`go_on`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.board import Board
from blackboard.errors import BadInput
from blackboard.events import Events, Kind
from blackboard.handlers import Handler
from blackboard.holdings import Holdings, Room
from blackboard.keys import shard_of
from blackboard.known import Known
from blackboard.model import Claim, Lock, Token
from blackboard.phrases import since
from blackboard.rules.claims import Move, decide_lock
from blackboard.scanner import Scanner
from blackboard.seen import Seen
from blackboard.table import TableError
from blackboard.verbs.take import adopt, claim, claims_at_once, override, trusted

REREADINGS = 8
"""Readings of one shard's tokens in one walk, when others are faster."""
OF_ITS_TYPE = "{}"
"""The spec of an item that says nothing itself."""

Start = Callable[[Sequence[Claim]], None]
"""Runs what was claimed; it is in the holdings from then on."""


@dataclass(slots=True, kw_only=True)
class Walker:
    """Walks the board for one worker."""

    board: Board
    owner: str
    handlers: Mapping[str, Handler]
    """Of the types this worker takes."""
    holdings: Holdings
    events: Events
    scanner: Scanner
    start: Start
    known: Known = field(init=False)
    """By the scanner."""
    _in_vain: set[str] = field(default_factory=set)
    """Etags of stale locks that were tried since the last look, and are as they were."""
    _in_vain_before: set[str] = field(default_factory=set)
    """Of those that had been tried by the last look."""

    def __post_init__(self) -> None:
        self.known = self.scanner.known

    def expect(self, item_id: str, ready: datetime) -> None:
        """This item was let go, and is ready then: nobody else knows of it."""
        number = shard_of(item_id, self.board.shards)
        if not self.known.has(number, item_id):
            self.known.expect(number, ready)

    async def walk(self) -> Seen:
        """Look at every shard, take over what is stale, claim what the free slots allow. What is
        taken is started at once: should the store fail half-way, nothing waits for the rest.
        """
        begun = await self.board.table.now()
        self.known.look(self.board.clock.monotonic())
        self.scanner.broken.clear()
        self._in_vain, self._in_vain_before = set(), self._in_vain
        seen = Seen(now=begun)
        try:
            for number in range(self.board.shards):
                await self._look_into(number, seen)
            await self._claim_all(seen)
        except TableError:
            self.known.forget()
            raise
        # From its beginning: nobody has claimed what became ready while other shards were read.
        seen.soonest = await self._until_next(begun)
        seen.looked = True
        return await self._reckoned(seen)

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
            for ready, number in self.known.unread(now):
                if self._filled(seen, before=ready):
                    break
                await self._read_again(number, seen)
            if not all(self.scanner.runs(one, seen) for one in self._chosen(seen)):
                return None
            await self._claim_all(seen)
        except TableError:
            self.known.forget()
            raise
        look = timedelta(seconds=self.known.until(clock))
        following = await self._until_next(now)
        seen.soonest = look if following is None else min(following, look)
        return await self._reckoned(seen)

    async def _reckoned(self, seen: Seen) -> Seen:
        """With what is left, now that the walk is over."""
        now = await self.board.table.now()
        seen.due = self.known.waits(now) + seen.stale
        seen.more = seen.due > 0 or bool(self.known.unread(now))
        return seen

    def _chosen(self, seen: Seen) -> list[Token]:
        """Of the tokens that are known to be ready, as many as the free slots take."""
        return self.scanner.choose(self.known.ready(seen.now))

    def _filled(self, seen: Seen, *, before: datetime) -> bool:
        """Whether tokens that are known fill the free slots before it is the turn of others."""
        chosen = self._chosen(seen)
        return len(chosen) == self.holdings.free and all(one.ready <= before for one in chosen)

    async def _read_again(self, number: int, seen: Seen) -> None:
        """Read a shard for a token that is ready. If it is gone, somebody was faster."""
        expected, before = self.known.expects(number, seen.now), seen.claims + seen.stale
        await self._look_into(number, seen)
        nothing = seen.claims + seen.stale == before and self.known.is_empty(number, seen.now)
        if expected and nothing:
            self.known.lost(number, self.board.clock.monotonic())

    async def _look_into(self, number: int, seen: Seen) -> None:
        """Read a shard, and take over what is stale in it."""
        before = self._nonces()
        locks = await self.scanner.read(number, seen)
        self._count(locks, seen)
        seen.mine |= {lock.nonce for lock in locks if lock.owner == self.owner}
        for lock in locks:
            await self._take_over(lock, seen, ours=before | self._nonces())

    def _count(self, locks: Sequence[Lock], seen: Seen) -> None:
        seen.locks |= {lock.nonce for lock in locks if lock.type in self.handlers}

    async def _until_next(self, begun: datetime) -> timedelta | None:
        """Until the first thing to do after the walk was begun, which may have come meanwhile."""
        following = self.known.next(begun)
        if following is None:
            return None
        return max(following - await self.board.table.now(), timedelta(0))

    def _nonces(self) -> set[str]:
        """Of every task and batch of this worker."""
        return self.board.in_flight | self.holdings.nonces

    async def _claim_all(self, seen: Seen) -> None:
        """Claim the most overdue tokens that are known, as many as the free slots take."""
        chosen, before = self._chosen(seen), seen.claims
        wanted = Counter(shard_of(one.id, self.board.shards) for one in chosen)
        for number, count in wanted.items():
            await self._claim(number, seen, wanted=count)
        if seen.claims - before < len(chosen):
            if self._chosen(seen):
                self._doubt(seen)
            seen.crowded |= bool(self.known.unread(seen.now))  # passed over for what was lost

    def _doubt(self, seen: Seen) -> None:
        """Slots stayed free, for others were faster; so they may be with all that is known to be
        ready. It is read again, a little later, before it is claimed.
        """
        for number in {shard_of(one.id, self.board.shards) for one in self.known.ready(seen.now)}:
            self.known.raced(number, self.board.clock.monotonic())
            self.known.put(number, [])
            self.scanner.expect(number, seen.now)

    async def _claim(self, number: int, seen: Seen, *, wanted: int) -> None:
        """Claim so many tokens of a shard; after a lost race, of those that are there then."""
        rereadings = 0
        while wanted > 0 and rereadings < REREADINGS:
            batch = self.scanner.choose(self.known.of_shard(number, seen.now))
            batch = batch[: min(wanted, claims_at_once(self.board))]
            if not batch:
                break
            settings = [self.board.resolve(one.type, one.spec) for one in batch]
            answer = await claim(self.board, batch, owner=self.owner, settings=settings)
            self.known.drop(number, {one.id for one in batch})
            claims = await trusted(self.board, answer.claims)
            if len(claims) < len(batch):
                self.scanner.expect(number, batch[0].ready)  # what was not taken may still be there
            self.start(claims)
            for taken in claims:
                seen.overdue.pop(taken.id, None)
            seen.claims += len(claims)
            wanted -= len(claims)
            clock = self.board.clock.monotonic()
            if claims:
                self.known.won(number, clock)
            if answer.broken is not None:
                self.scanner.broken.add(answer.broken.etag)
            elif answer.reread:
                self.known.raced(number, clock)
            elif len(claims) < len(batch):
                seen.crowded = True  # the store was away, or lost the reply
            if answer.reread:
                rereadings += 1
                self._count(await self.scanner.read(number, Seen(now=seen.now)), seen)
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
        try:
            if move is Move.OVERRIDE and not self._has_room(lock.type):
                seen.stale += 1
                self.known.forget()
                return
            taken = await self._taken(move, lock)
        except (BadInput, ValueError) as error:
            self.scanner.leave(lock, str(error))
            if move is Move.OVERRIDE:
                seen.locks.discard(lock.nonce)  # there is nobody whose end could be waited for
            return
        if taken is not None:
            claims = await trusted(self.board, [taken])
            self.start(claims)
            seen.claims += len(claims)
            seen.crowded |= not claims  # the store is slow: what is ours is adopted next time
        elif move is Move.OVERRIDE:
            seen.freed.append(lock)
            self._look_after(lock, seen)

    def _look_after(self, lock: Lock, seen: Seen) -> None:
        """A stale lock was not taken over: it was freed, others were faster, or it cannot be. If it
        is gone, its item may be ready again. If it is there as it was, it is left to the next look.
        """
        if lock.etag in self._in_vain | self._in_vain_before:
            seen.locks.discard(lock.nonce)
        else:
            seen.crowded = True
            self.scanner.expect(shard_of(lock.id, self.board.shards), seen.now, is_for_us=False)
        self._in_vain.add(lock.etag)

    def _has_room(self, item_type: str) -> bool:
        return Room(self.holdings).take(item_type, self.board.resolve(item_type, OF_ITS_TYPE))

    async def _taken(self, move: Move, lock: Lock) -> Claim | None:
        if move is Move.ADOPT:
            taken = await adopt(self.board, lock)
            kind, message = Kind.ADOPTED, "its claim had landed late"
        else:
            taken = await override(self.board, lock, owner=self.owner)
            kind, message = Kind.OVERRIDDEN, f"{lock.owner} was not heard of {since(lock.age)}"
        if taken is not None:
            self.events.emit_of(lock, kind, message)
        return taken
