"""One walk over the board: what is there, and what this worker does about it.

A walk reads each shard's locks and ready tokens in one range (`scanner.py`), takes over what is
stale, and claims the most overdue tokens that its free slots can take.

Shards are read, and claims made, side by side (`store_breaker.py`). One that does not answer is
read again when its breaker allows it, and one that is slow is not waited for: the others are walked
as if they were all there is. What is claimed late finds its slot taken, maybe, and is put back.

What it reads and does not take is remembered (`backlog.py`): for slots that become free, and tokens
that become ready, no more is read until the next beat than the shards that have some (`go_on`).
"""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from blackboard.errors import BadInput
from blackboard.events import Events, Kind
from blackboard.handlers import Handler
from blackboard.model import Claim, Lock, Token
from blackboard.phrases import since
from blackboard.protocol.claims import adopt, claim, claims_at_once, override, trusted
from blackboard.protocol.keys import shard_of
from blackboard.protocol.reading import BoardTable
from blackboard.rules.due import Move, decide_lock
from blackboard.rules.patience import LONGEST, SPACING
from blackboard.table import Busy, TableError, Unavailable
from blackboard.worker.backlog import Known
from blackboard.worker.running import Holding, Holdings, Room
from blackboard.worker.scanner import Scanner
from blackboard.worker.seen import Seen
from blackboard.worker.store_breaker import ShardTasks

REFUSED_PAUSE = 5.0
"""Seconds until a shard is read again that the store would not have read or claimed from."""
REREADINGS = 8
"""Readings of one shard's tokens in one walk, when others are faster."""
OF_ITS_TYPE = "{}"
"""The spec of an item that says nothing itself."""

Start = Callable[[Sequence[Claim]], None]
"""Runs what was claimed; it is in the holdings from then on."""


@dataclass(slots=True, kw_only=True)
class Walker:
    """Walks the board for one worker."""

    board: BoardTable
    owner: str
    handlers: Mapping[str, Handler]
    """Of the types this worker takes."""
    holdings: Holdings
    events: Events
    scanner: Scanner
    start: Start
    doubt: Callable[[Holding], None]
    """Finds out about a run whose lock is not on the board."""
    wake: Callable[[], None]
    """Is called when a shard that was slow has answered."""
    known: Known = field(init=False)
    """By the scanner."""
    _tasks: ShardTasks = field(init=False)
    _in_vain: set[str] = field(default_factory=set)
    """Etags of stale locks that were tried since the last look, and are as they were."""
    _in_vain_before: set[str] = field(default_factory=set)
    """Of those that had been tried by the last look."""

    def __post_init__(self) -> None:
        self.known = self.scanner.known
        self._tasks = ShardTasks(
            self.board.clock, shards=self.board.shards, ended=lambda _: self.wake()
        )

    def expect(self, item_id: str, ready: datetime) -> None:
        """This item was let go, and is ready then: nobody else knows of it."""
        number = shard_of(item_id, self.board.shards)
        if not self.known.has(number, item_id):
            self.known.expect(number, ready)

    async def walk(self) -> Seen:
        """Look at every shard, take over what is stale, claim what the free slots allow. What is
        taken is started at once: should the store fail half-way, nothing waits for the rest.
        Raises what the store raises when no shard answers.
        """
        begun = await self.board.table.now()
        self.known.look(self.board.clock.monotonic())
        self.scanner.broken.clear()
        self._in_vain, self._in_vain_before = set(), self._in_vain
        seen = Seen(now=begun, whole=True)
        await self._each(range(self.board.shards), self._look_into, seen)
        await self._take_over_others(seen)
        await self._claim_all(seen)
        self._check(seen)
        # From its beginning: nobody has claimed what became ready while other shards were read.
        seen.soonest = await self._until_next(begun)
        seen.looked = not seen.unread
        return await self.reckon(seen)

    async def go_on(self) -> Seen | None:
        """Claim what is known to be ready, and read the shards that have more, until the free slots
        are filled. None: it is time to look at every shard, or a token is not to be run any more.
        """
        clock = self.board.clock.monotonic()
        if not self.known.until(clock):
            return None
        now = await self.board.table.now()
        seen = Seen(now=now)
        for ready, number in self.known.unread(now):
            if self._filled(seen, before=ready):
                break
            await self._each([number], self._read_again, seen)
        self._check(seen)
        if not all(self.scanner.runs(one, seen) for one in self._chosen(seen)):
            return None
        await self._claim_all(seen)
        self._check(seen)
        look = timedelta(seconds=self.known.until(clock))
        following = await self._until_next(now)
        seen.soonest = look if following is None else min(following, look)
        return await self.reckon(seen)

    async def reckon(self, seen: Seen) -> Seen:
        """With what is left, now that the walk is over, or a shard that was late has answered."""
        now = await self.board.table.now()
        seen.due = self.known.waits(now) + seen.stale
        seen.more = seen.due > 0 or bool(self.known.unread(now))
        return seen

    def awaits(self, seen: Seen) -> bool:
        """Whether each shard that was late in this walk is at work still, so none is to be read."""
        return bool(seen.late) and seen.late <= self._tasks.late

    def cancel(self) -> None:
        """Cancel what goes on in shards that are slow."""
        self._tasks.cancel()

    # ---- shards that do not answer, or not yet

    async def _each(
        self,
        numbers: Iterable[int],
        work: Callable[[int, Seen], Coroutine[Any, Any, None]],
        seen: Seen,
    ) -> None:
        """Do it for each of the shards. One that does not answer keeps no other from its turn."""

        async def guarded(number: int) -> bool:
            try:
                await work(number, seen)
            except TableError as trouble:
                await self._failed(number, trouble, seen)
                return False
            finally:
                seen.late.discard(number)
            return True

        await self._tasks.each(numbers, guarded, left=self.holdings.unreserve)
        seen.late |= self._tasks.late

    async def _failed(self, number: int, trouble: TableError, seen: Seen) -> None:
        """It is read again soon, and nothing of it is claimed before."""
        seen.failed[number] = trouble
        pause = timedelta(seconds=pause_after(trouble))
        if not isinstance(trouble, Busy | Unavailable):  # who asks patiently has told of those
            self.events.emit(Kind.STORE, f"walk: {trouble}", level=logging.WARNING)
        self.known.put(number, [])
        self.known.expect(number, await self.board.table.now() + pause, is_for_us=False)

    def _check(self, seen: Seen) -> None:
        """Raises what the last shard said when none has answered."""
        if len(seen.failed) == self.board.shards:
            self.known.forget()
            raise next(reversed(seen.failed.values()))

    # ---- one shard, and what is known of all

    def _chosen(self, seen: Seen) -> list[Token]:
        """Of the tokens that are known to be ready, as many as the free slots take."""
        return self.scanner.choose(self.known.ready(seen.now, but=self._tasks.late))

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
        """Read a shard, and take over what is stale in it. A run of this worker whose lock is not
        there was unlocked, cancelled, removed or overridden.
        """
        before, held = self._nonces(), [one for one in self.holdings if one.shard == number]
        locks = await self.scanner.read(number, seen)
        self._count(locks, seen)
        there = {lock.nonce for lock in locks}
        for one in held:
            if one.claim.nonce not in there and not one.ended:
                self.doubt(one)
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
        while True:
            chosen, before, unread = self._chosen(seen), seen.claims, len(seen.unread)
            wanted = Counter(shard_of(one.id, self.board.shards) for one in chosen)
            await self._each(wanted, partial(self._claim, wanted), seen)
            if len(seen.unread) == unread:
                break  # else the slots of a shard that does not answer are left for the others
        if seen.claims - before < len(chosen):
            if self._chosen(seen):
                self._doubt(seen)
            seen.crowded |= bool(self.known.unread(seen.now))  # passed over for what was lost

    def _doubt(self, seen: Seen) -> None:
        """Slots stayed free, for others were faster; so they may be with all that is known to be
        ready. It is read again, a little later, before it is claimed.
        """
        ready = self.known.ready(seen.now, but=self._tasks.late)
        for number in {shard_of(one.id, self.board.shards) for one in ready}:
            self.known.raced(number, self.board.clock.monotonic())
            self.known.put(number, [])
            self.scanner.expect(number, seen.now)

    async def _claim(self, wanted_of: Mapping[int, int], number: int, seen: Seen) -> None:
        """Claim so many tokens of a shard; after a lost race, of those that are there then. Once it
        is late, the next walk decides.
        """
        rereadings, wanted = 0, wanted_of[number]
        while wanted > 0 and rereadings < REREADINGS and number not in self._tasks.late:
            batch = self.scanner.choose(self.known.of_shard(number, seen.now))
            batch = batch[: min(wanted, claims_at_once(self.board))]
            if not batch:
                break
            settings = [self.board.resolve(one.type, one.spec) for one in batch]
            self.holdings.reserve(number, [one.type for one in batch])
            try:
                answer = await claim(self.board, batch, owner=self.owner, settings=settings)
                self.known.drop(number, {one.id for one in batch})
                claims = await trusted(self.board, answer.claims)
            finally:
                self.holdings.unreserve(number)
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
                seen.full.append(lock)
                self.known.forget()
                return
            claims = await self._taken(move, lock)
        except (BadInput, ValueError) as error:
            self.scanner.leave(lock, str(error))
            if move is Move.OVERRIDE:
                seen.locks.discard(lock.nonce)  # there is nobody whose end could be waited for
            return
        if claims is not None:
            self.start(claims)
            seen.claims += len(claims)
            seen.crowded |= not claims  # the store is slow: what is ours is adopted next time
        elif move is Move.OVERRIDE:
            seen.freed.append(lock)
            self._look_after(lock, seen)

    async def _take_over_others(self, seen: Seen) -> None:
        """Stale locks go before tokens: a slot that was kept for an override in another shard may
        be free after all.
        """
        if not seen.full or not self.holdings.free:
            return
        others, seen.full, seen.stale = seen.full, [], seen.stale - len(seen.full)

        async def in_shard(number: int, seen: Seen) -> None:
            for lock in others:
                if shard_of(lock.id, self.board.shards) == number:
                    await self._take_over(lock, seen, ours=self._nonces())

        await self._each({shard_of(one.id, self.board.shards) for one in others}, in_shard, seen)

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

    def _may_run(self) -> bool:
        """Whether the worker goes on: one that is asked to stop has no slots."""
        return self.holdings.slots > 0

    def _has_room(self, item_type: str) -> bool:
        return Room(self.holdings).take(item_type, self.board.resolve(item_type, OF_ITS_TYPE))

    async def _taken(self, move: Move, lock: Lock) -> Sequence[Claim] | None:
        """What may be run of it: one claim, or none that is known to be ours in time. None: it was
        not taken.
        """
        number = shard_of(lock.id, self.board.shards)
        if move is Move.ADOPT:
            kind, message = Kind.ADOPTED, "its claim had landed late"
        else:
            kind, message = Kind.OVERRIDDEN, f"{lock.owner} was not heard of {since(lock.age)}"
            if number not in self._tasks.late:
                self.holdings.reserve(number, [lock.type])
        try:
            if move is Move.ADOPT:
                taken = await adopt(self.board, lock)
            else:
                taken = await override(self.board, lock, owner=self.owner, is_wanted=self._may_run)
            if taken is None:
                return None
            self.events.emit_of(lock, kind, message)
            return await trusted(self.board, [taken])
        finally:
            self.holdings.unreserve(number)


def pause_after(trouble: TableError) -> float:
    """Seconds until what failed so is walked again."""
    match trouble:
        case Busy():
            return min(trouble.retry_after, LONGEST)
        case Unavailable():
            return SPACING
    return REFUSED_PAUSE
