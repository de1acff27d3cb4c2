"""The walk of a worker over the board: it reads the shards, takes over stale locks, claims tokens.

A walk reads each shard's locks and ready tokens in one range, overrides stale locks, and claims
the most overdue tokens that its free slots take. Each token is judged when it is read, and again
when it is claimed later from the backlog (`rules/due.py`). One of a type without a handler here, or
of a type whose slots are full, is not selected, so one slow or poison item never blocks the
others. Tokens that are read and not claimed go into the backlog (`backlog.py`): for slots that
become free, and tokens that become ready, only the shards that have more are read until the next
walk (`go_on`). For each token one worker is the first to take it (`peers.py`).

An item whose slot is missed, or put off, gets its next token without a run. That takes two requests
for each, so it is done after the claims, for some items of a shard at a time: the shard is read
again soon for the rest.

Shards are read, and tokens claimed, side by side (`shard_tasks.py`). A shard that does not answer
is read again when its breaker allows it. A slow one is not waited for: the others are walked as if
they were the whole board. What it claims late is put back if its slot is taken by then.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from blackboard.errors import BadInput, BlackboardError
from blackboard.events import (
    BoardPaused,
    BoardResumed,
    ItemLeftAlone,
    SlotPutOff,
    SlotSkipped,
    StoreAway,
)
from blackboard.handlers.handler import Handler
from blackboard.model import LONG_AGO, LOST_AFTER, Lock, Mark, Token
from blackboard.protocol.claims import Claim, Freed, claims_at_once, pass_over
from blackboard.protocol.keys import shard_of
from blackboard.protocol.maintenance import agree, is_paused
from blackboard.protocol.permits import LimitName
from blackboard.protocol.planning import check_runnable
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import REFUSED, SPACING, Need
from blackboard.rules.due import Move, decide_lock, decide_token
from blackboard.subscribers import Events
from blackboard.table import Busy, TableError, Unavailable
from blackboard.worker.backlog import Backlog, Candidate, Missed, Selection, Unread, choose
from blackboard.worker.claiming import Claimer, NoPermit
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Latest
from blackboard.worker.peers import FIRST, Peers, Turn
from blackboard.worker.permits import Permits
from blackboard.worker.running import Runs
from blackboard.worker.shard_tasks import ShardTasks
from blackboard.worker.slots import FreeSlots, Slots
from blackboard.worker.store_breaker import StoreBreaker
from blackboard.worker.wake import Wake

REREADINGS = 8
"""Readings of one shard's tokens in one walk, when others are faster."""
OF_ITS_TYPE = "{}"
"""The spec of an item that sets nothing itself."""
MOST_OVERDUE = 1_000
"""The most overdue tokens in one result."""
MOST_LEFT = 100_000
"""Items left alone whose ids are kept, so that each is reported once."""
PASSED_OVER, PARTS = 50, 8
"""The most items of a shard whose slots a walk skips or puts off: 50 or, of many, an eighth."""
PASSES = frozenset({Move.SKIP, Move.PUT_OFF})
"""The moves about a ready token that is not run now."""
_Version = tuple[str, str]
"""The item and the etag of a token or a lock. Rows that were written in one batch may have the same
etag."""


@dataclass(slots=True, kw_only=True)
class WalkResult:
    """What a walk read and did, as far as its shards have answered. The walk fills it in. A shard
    that is late changes it after the walk: read what you need before you wait for anything, and
    call `Walk.result` after that.
    """

    now: datetime
    """The store's time, as of the latest reading of a shard."""
    whole: bool
    """Whether all shards were to be read, and not only the backlog claimed."""
    claims: int = 0
    """Items that were claimed, taken over or adopted."""
    locks: set[str] = field(default_factory=set)
    """Nonces of the locks of types that this worker takes, without those that no worker can take
    over.
    """
    due: int = 0
    """Tokens and stale locks that are there to be taken and were not, at the least: no slot was
    free, or other workers were faster.
    """
    more: bool = False
    """Whether a slot that becomes free is a reason to go on."""
    crowded: bool = False
    """Whether slots stayed free although more may be there: other workers were faster, or a claim
    was not answered.
    """
    soonest: timedelta | None = None
    """How long until there is something to do, if that is within a cycle."""
    failed: dict[int, TableError] = field(default_factory=dict)
    """Shards that did not answer."""
    late: set[int] = field(default_factory=set)
    """Shards that took too long to be waited for and have not answered yet."""
    missed: int = 0
    """Slots that were missed and are not to be made up, or that a blackout puts off."""
    skipped: int = 0
    """Those of these slots that this walk passed over or put off."""
    lost: int = 0
    """Batches of claims at which another worker was faster."""
    refused: int = 0
    """Candidates for which no permit was left."""
    overdue_by_id: dict[str, Token] = field(default_factory=dict)
    freed: list[Lock] = field(default_factory=list)
    """Stale locks that this worker has removed without another attempt of their runs."""

    @property
    def overdue(self) -> tuple[Token, ...]:
        """Tokens of any type that were ready for longer than is usual, and were not taken."""
        return tuple(self.overdue_by_id.values())

    @property
    def silent(self) -> set[int]:
        """Shards that failed or are late, so that not all of them was read."""
        return self.late | self.failed.keys()

    @property
    def answered(self) -> bool:
        """Whether every shard answered in time."""
        return not self.silent

    @property
    def complete(self) -> bool:
        """Whether all shards were read."""
        return self.whole and self.answered


@dataclass(slots=True, kw_only=True)
class Walk:
    """Walks the board for one worker."""

    board: BoardTable
    owner: str
    handlers: Mapping[str, Handler]
    """The handlers of the types that this worker takes."""
    runs: Runs
    peers: Peers
    takes_turns: bool = True
    """Whether it leaves other workers their turn. One that walks once takes what it can."""
    permits: Permits
    heartbeat: Heartbeat
    breaker: StoreBreaker
    events: Events
    wake: Wake
    cycle: timedelta
    """The time from one walk to the next, and how far ahead tokens are read."""
    overdue_after: timedelta | None = None
    """For how long a token is ready until it is overdue; None: overdue tokens are not reported."""
    backlog: Backlog = field(init=False)
    _tasks: ShardTasks = field(init=False)
    _claimer: Claimer = field(init=False)
    _result: WalkResult = field(init=False)
    """The result of the latest walk."""
    _claims: int = 0
    """Items that were claimed since the walk over the board was begun."""
    _claims_before: int = 0
    """The same of the walk before."""
    _misfits: set[_Version] = field(default_factory=set)
    """Tokens that do not fit their items, or could not be passed over: not to be tried again before
    the next walk over the board."""
    _released: set[str] = field(default_factory=set)
    """Items whose tokens this worker has written since the walk over the board."""
    _in_vain: set[_Version] = field(default_factory=set)
    """Stale locks that this walk over the board tried to take, and are as they were."""
    _in_vain_before: set[_Version] = field(default_factory=set)
    """The same locks of the walk before."""
    _waiting: dict[str, Lock] = field(default_factory=dict)
    """Stale locks for which there was no free slot, or no permit, by nonce; as their shards were
    last read."""
    _unpermitted: dict[str, frozenset[LimitName]] = field(default_factory=dict)
    """The limits of which there was no permit for a stale lock, by its nonce."""
    _paused: dict[int, Mark] = field(default_factory=dict)
    """Shards in which nothing is claimed: the board is paused."""
    _missed: dict[int, list[Missed]] = field(default_factory=dict)
    """Ready tokens that are not to be run now, by shard; as that was last read."""
    _left: Latest = field(default_factory=lambda: Latest(MOST_LEFT))
    """Items left alone for their settings."""

    def __post_init__(self) -> None:
        shards = self.board.shards
        self.backlog = Backlog(
            cycle=self.cycle.total_seconds(),
            shards=shards,
            first_shard=int(self.board.chance.fraction() * shards),
        )
        self._tasks = ShardTasks(
            self.board.clock,
            shards=shards,
            became_late=self._slots.unreserve,
            answered=self._answered_late,
        )
        self._claimer = Claimer(
            board=self.board,
            owner=self.owner,
            runs=self.runs,
            permits=self.permits,
            events=self.events,
        )

    def expect(self, item_id: str, ready: datetime) -> None:
        """Notes a token that this worker's own release has written. This worker is the first to
        take it: no other has read it.
        """
        self._released.add(item_id)
        number = shard_of(item_id, self.board.shards)
        if not self.backlog.has(number, item_id):
            self.backlog.expect(number, Unread(ready))

    async def walk(self) -> WalkResult:
        """Reads every shard, takes over what is stale, claims what the free slots take. What is
        taken is started at once: should the store fail half-way, nothing waits for the rest. Raises
        what the store raises when no shard answers.
        """
        begun = await self.board.table.now()
        self.backlog.begin(self.board.clock.monotonic())
        self._misfits.clear()
        self._released.clear()
        self.permits.begin()
        self._in_vain, self._in_vain_before = set(), self._in_vain
        self._claims, self._claims_before = 0, self._claims
        result = self._result = WalkResult(now=begun, whole=True)
        await self._each(range(self.board.shards), self._read_and_take_over, result)
        await self._take_over_others(result)
        self._unpermitted = {
            nonce: limits for nonce, limits in self._unpermitted.items() if nonce in self._waiting
        }
        await self._claim_all(result)
        await self._each(tuple(self._missed), self._pass_over_some, result)
        await self._finish_pause(result)
        self._check(result)
        # From the beginning: tokens became ready while other shards were read.
        result.soonest = await self._until_next(begun)
        return await self.result()

    async def go_on(self) -> WalkResult | None:
        """Claims what is ready in the backlog, and reads the shards that have more, until the free
        slots are filled. None: it is time for a walk over the board, a stale lock goes first, or
        the slot of a token is missed by now.
        """
        clock = self.board.clock.monotonic()
        if not self.backlog.lasts(clock) or self._could_take_over():
            return None
        now = await self.board.table.now()
        result = self._result = WalkResult(now=now, whole=False)
        for ready, number in self.backlog.to_read(now):
            if self._fills_slots(result, before=ready):
                break
            await self._each([number], self._read_again, result)
        self._check(result)
        if any(self._decide(one, result) is not Move.RUN for one in self._chosen(result)):
            return None
        await self._claim_all(result)
        await self._each(tuple(self._missed), self._pass_over_some, result)
        self._check(result)
        until_walk = timedelta(seconds=self.backlog.lasts(clock))
        following = await self._until_next(now)
        result.soonest = until_walk if following is None else min(following, until_walk)
        return await self.result()

    async def result(self) -> WalkResult:
        """The result of the latest walk, with what late shards have answered since."""
        now, result = await self.board.table.now(), self._result
        result.due = self.backlog.waiting(now) + len(self._waiting)
        result.more = result.due > 0 or bool(self.backlog.to_read(now))
        return result

    def awaits(self, late: set[int]) -> bool:
        """Whether work on each of these shards still goes on, so that none can be read again."""
        return bool(late) and late <= self._tasks.late

    def cancel(self) -> None:
        """Cancels the work that goes on in shards that are late."""
        self._tasks.cancel()

    # ---- shards side by side, and those that do not answer

    def _shard_of(self, one: Candidate | Lock) -> int:
        return shard_of(one.id, self.board.shards)

    @property
    def _slots(self) -> Slots:
        return self.runs.holdings.slots

    def _free(self, times: int = 1) -> FreeSlots:
        """The free slots, and what this worker has of the limits of the board; so many times."""
        return self._slots.free(
            self.permits.counts(),
            self.permits.exhausted(),
            paused=self.runs.paused_types(),
            times=times,
        )

    async def _each(
        self,
        numbers: Iterable[int],
        work: Callable[[int, WalkResult], Coroutine[Any, Any, None]],
        result: WalkResult,
    ) -> None:
        """Does the work on each of the shards. One that does not answer holds up no other."""

        async def guarded(number: int) -> bool:
            try:
                await work(number, result)
            except TableError as trouble:
                await self._failed(number, trouble, result)
                return False
            finally:
                result.late.discard(number)
            return True

        await self._tasks.each(numbers, guarded)
        result.late |= self._tasks.late

    def _answered_late(self) -> None:
        """Wakes the worker: a shard that was late may have brought work, or settled a claim."""
        self.wake.now()
        self.runs.holdings.changed.set()

    async def _failed(self, number: int, trouble: TableError, result: WalkResult) -> None:
        """Notes that a shard failed: it is read again soon, and nothing of it is taken before."""
        result.failed[number] = trouble
        self._forget_waiting(number)
        self._missed.pop(number, None)
        pause = timedelta(seconds=self._pause_after(trouble, [number]))
        if not isinstance(trouble, Busy | Unavailable):  # those are reported by the breaker
            self.events.emit(StoreAway, message=f"walk: {trouble}")
        self.backlog.put(number, [])
        ready = await self.board.table.now() + pause
        self.backlog.expect(number, Unread(ready, claimable=False))

    def pause_after(self, trouble: TableError) -> float:
        """Seconds until the next walk, after one that raised."""
        return self._pause_after(trouble, range(self.board.shards))

    def _pause_after(self, trouble: TableError, numbers: Iterable[int]) -> float:
        """Seconds until the breaker lets a reading of one of the shards through."""
        if not isinstance(trouble, Busy | Unavailable):
            return REFUSED.pause()
        shards = map(self.board.shard, numbers)
        return min(self.breaker.opens_in(Need.OTHER, one) for one in shards) or SPACING

    def _check(self, result: WalkResult) -> None:
        """Raises what the last shard raised when none has answered."""
        if len(result.failed) == self.board.shards:
            self.backlog.expire()
            raise next(reversed(result.failed.values()))

    # ---- reading a shard

    async def _read_and_take_over(self, number: int, result: WalkResult) -> None:
        """Reads a shard, and takes over its stale locks. A run of this worker without a lock
        there was unlocked, cancelled, removed or overridden: its heartbeat finds out.
        """
        before = self._own_nonces()
        held = [one for one in self.runs.holdings if one.shard == number]
        pace = -(-self._claims_before // self.board.shards) if result.whole else 0
        locks = await self._read(number, result, pace=pace)
        there = {lock.nonce for lock in locks}
        self._forget_waiting(number)
        for one in held:
            if one.claim.nonce not in there and not one.ended:
                self.heartbeat.ask(one)
        for lock in locks:
            await self._take_over(lock, result, ours=before | self._own_nonces())

    async def _read_again(self, number: int, result: WalkResult) -> None:
        """Reads a shard for a token that is ready. If it is gone, another worker was faster."""
        expected = self.backlog.expects(number, result.now)
        before = result.claims + len(self._waiting)
        await self._read_and_take_over(number, result)
        took_none = result.claims + len(self._waiting) <= before
        if expected and took_none and self.backlog.is_empty(number, result.now, self._free()):
            self.backlog.found_none(number, self.board.clock.monotonic())

    async def _read(self, number: int, result: WalkResult, *, pace: int = 0) -> list[Lock]:
        """Reads a shard, and returns its locks. Its candidates are in the backlog from now on:
        those that the free slots take and some more, or those of a cycle at this `pace`.
        """
        locks: list[Lock] = []
        workers = self.peers.most + 1 if self.takes_turns else 1
        selection = Selection(self._free, total=self._slots.total, workers=workers, pace=pace)
        self.backlog.expect_none(number)  # from here on: runs may be released while it is read
        is_first, mark = True, None
        async for found in self.board.read_shard(number, until=result.now + self.cycle):
            if is_first:  # the reply may have moved the store's time on
                is_first, result.now = False, await self.board.table.now()
            if isinstance(found, Lock):
                locks.append(found)
                self._note_peer(found, result.now)
            elif isinstance(found, Mark):
                mark = found
                break
            elif not self._select(found, selection, result):
                break
        if mark is not None and not await self._is_paused(number):
            return await self._read(number, result, pace=pace)
        self._note_pause(number, mark)
        self._keep(number, selection, result)
        result.locks |= {lock.nonce for lock in locks if lock.type in self.handlers}
        return locks

    def _note_peer(self, lock: Lock, now: datetime) -> None:
        if lock.age < min(lock.stale_after, LOST_AFTER):
            claimed = lock.since if lock.since <= now else LONG_AGO  # by a clock that was wrong
            self.peers.note(lock.owner, [lock.type], claimed)

    async def _is_paused(self, number: int) -> bool:
        """Whether a shard with the row of a pause is paused: shard 0 decides. Where the store does
        not say it, it is.
        """
        if number == 0 or 0 in self._paused:
            return True
        try:
            return await is_paused(self.board, number)
        except TableError:
            return True

    async def _finish_pause(self, result: WalkResult) -> None:
        """Pauses the shards that a pause has not reached because its command was killed."""
        if 0 in self._paused and len(self._paused) < self.board.shards and result.answered:
            with suppress(TableError, BlackboardError):  # the next walk tries again
                await agree(self.board)

    def _note_pause(self, number: int, mark: Mark | None) -> None:
        """Notes whether the board is paused, as a shard says; reports when that changes."""
        before = bool(self._paused)
        if mark is None:
            self._paused.pop(number, None)
        else:
            self._paused[number] = mark
        if mark is not None and not before:
            self.events.emit(BoardPaused, by=mark.by, reason=mark.reason)
        elif before and not self._paused:
            self.events.emit(BoardResumed)

    def _keep(self, number: int, selection: Selection, result: WalkResult) -> None:
        """Puts what was selected of a shard into the backlog."""
        kept, again = selection.settle(result.now)
        self.backlog.put(number, kept)
        for unread in again:
            self.backlog.expect(number, unread)
        for ready, claimable in selection.unread:
            self._expect_contended(number, ready, claimable=claimable)
        self._missed.pop(number, None)
        if selection.missed:
            self._missed[number] = selection.missed

    def _expect_contended(self, number: int, ready: datetime, *, claimable: bool = True) -> None:
        """Notes tokens that were not read and that other workers claim as well."""
        turn = Turn(self.board.chance.fraction(), ready)
        self.backlog.expect(number, Unread(ready, turn, claimable))

    # ---- judging a token

    def _select(self, token: Token, selection: Selection, result: WalkResult) -> bool:
        """Whether to read on after this token."""
        if token.ready > result.now:
            return selection.add_later(token.ready, self._later(token))
        if self._is_overdue(token, result) and len(result.overdue_by_id) < MOST_OVERDUE:
            result.overdue_by_id[token.id] = token
        if token.type not in self.handlers or _version(token) in self._misfits:
            return True
        try:
            candidate = self._candidate(token)
            move = self._decide(candidate, result)
            if move in PASSES and candidate.turn.begins > result.now:
                return selection.defer(candidate)
        except (BadInput, ValueError) as error:
            self._leave(token, str(error))
            return True
        if move in PASSES:
            return selection.add_missed(Missed(candidate, move))
        return selection.add(candidate) if move is Move.RUN else True

    def _is_overdue(self, token: Token, result: WalkResult) -> bool:
        after = self.overdue_after
        return after is not None and result.now - token.ready >= after

    def _later(self, token: Token) -> Candidate | None:
        """The candidate of a token that is not ready yet. None: this worker cannot take it."""
        if token.type not in self.handlers:
            return None
        try:
            return self._candidate(token)
        except (BadInput, ValueError):
            return None  # reported once it is ready

    def _candidate(self, token: Token) -> Candidate:
        """The candidate of a token. Raises BadInput or ValueError where its settings cannot be
        computed, or it is not `check_runnable`.
        """
        settings = self.board.resolve(token.type, token.spec)
        limit = check_runnable(self.board, token, settings)
        is_first = not self.takes_turns or token.id in self._released
        turn = FIRST if is_first else self.peers.turn(token, urgent=settings.priority > 0)
        return Candidate(token, settings, limit, turn)

    def _decide(self, candidate: Candidate, result: WalkResult) -> Move:
        token, settings = candidate.token, candidate.settings
        return decide_token(token, now=result.now, types=self.handlers, settings=settings)

    async def _pass_over_some(self, number: int, result: WalkResult) -> None:
        """Skips or puts off the slots of items of a shard. Of many, it begins with those of which
        this worker is the first, and at a random place: so workers do not meet at the same ones,
        and those that are tried in vain do not hold up the others.
        """
        missed = self._missed.pop(number, [])
        if len(missed) > PASSED_OVER:
            begin = int(self.board.chance.fraction() * len(missed))
            missed = missed[begin:] + missed[:begin]
            missed.sort(key=lambda one: one.candidate.turn.share)
        has_passed = False
        for one in missed[: max(PASSED_OVER, len(missed) // PARTS)]:
            has_passed |= await self._pass_over(one, result)
        if has_passed:  # for their next tokens, and the rest
            self._expect_contended(number, result.now, claimable=False)

    async def _pass_over(self, missed: Missed, result: WalkResult) -> bool:
        """Skips or puts off the slot of an item. Returns whether that was done."""
        token, move = missed.candidate.token, missed.move
        result.missed += 1
        try:
            after = await pass_over(self.board, token, move=move)
        except (BadInput, ValueError) as error:
            self._leave(token, str(error))
            return False
        if after is None:
            self._misfits.add(_version(token))
            return False
        result.skipped += 1
        if move is Move.SKIP:
            self.events.emit_of(token, SlotSkipped, due=token.slot)
        else:
            until = after.ready if after.waits and after.slot == token.slot else None
            self.events.emit_of(token, SlotPutOff, due=token.slot, until=until)
        return True

    def _leave(self, row: Token | Lock, reason: str) -> None:
        """Reports, once, why an item is left alone."""
        if row.id not in self._left:
            self._left.add(row.id)
            self.events.emit_of(row, ItemLeftAlone, message=reason)

    # ---- claiming

    def _chosen(self, result: WalkResult) -> list[Candidate]:
        """The most overdue candidates, as many as the free slots take."""
        ready = self.backlog.ready(result.now, but=self._tasks.late)
        return choose(ready, self._free())

    def _fills_slots(self, result: WalkResult, *, before: datetime) -> bool:
        """Whether candidates that were ready before a moment fill the free slots."""
        chosen = self._chosen(result)
        return len(chosen) == self._slots.free().left and all(one.ready <= before for one in chosen)

    async def _claim_all(self, result: WalkResult) -> None:
        """Claims the most overdue candidates, as many as the free slots take."""
        while True:
            chosen, before = self._chosen(result), result.claims
            silent, refused = len(result.silent), result.refused
            counts = self._in_whole_batches(self._shard_of(one) for one in chosen)
            await self._each(counts, partial(self._claim, counts), result)
            if (len(result.silent), result.refused) == (silent, refused):
                break  # else slots are left for others: a shard does not answer, a limit is full
        has_lost = result.claims - before < counts.total()
        if has_lost and self._chosen(result):
            self._read_all_again(result)
        if has_lost or result.refused:
            # Shards, or a part of them, may have been passed over for candidates that were lost.
            result.crowded |= bool(self.backlog.to_read(result.now))

    def _in_whole_batches(self, numbers: Iterable[int]) -> Counter[int]:
        """How many tokens of each shard to claim now. Where slots are about to become free, tokens
        beyond whole batches are left, to be claimed together with those for the new slots.
        """
        counts, most = Counter(numbers), claims_at_once(self.board)
        if self.runs.holdings.frees_slots:
            for number, count in counts.items():
                counts[number] -= count % most if count > most else 0
        return counts

    def _read_all_again(self, result: WalkResult) -> None:
        """Lets the shards of all candidates be read, a little later, before these are claimed:
        slots stayed free, so other workers were faster, and may be with these as well.
        """
        ready = self.backlog.ready(result.now, but=self._tasks.late)
        for number in {self._shard_of(one) for one in ready}:
            self.backlog.lost_race(number, self.board.clock.monotonic())
            self.backlog.put(number, [])
            self._expect_contended(number, result.now)

    async def _claim(self, counts: Mapping[int, int], number: int, result: WalkResult) -> None:
        """Claims so many tokens of a shard; after a lost race it reads them again. Once the shard
        is late, the next walk decides.
        """
        rereadings, left = 0, counts[number]
        while left > 0 and rereadings < REREADINGS and number not in self._tasks.late:
            wanted = choose(self.backlog.ready_in(number, result.now), self._free())
            wanted = wanted[: min(left, claims_at_once(self.board))]
            if not wanted:
                break
            batch, answer, taken = await self._claimer.claim(number, wanted)
            result.refused += len(wanted) - len(batch)
            if not batch:
                continue  # their limits are exhausted now
            self.backlog.drop(number, {one.id for one in batch})
            if len(taken) < len(batch):  # what was not taken may still be there
                self._expect_contended(number, batch[0].ready)
            self._start(taken, result)
            left -= len(taken)
            now = self.board.clock.monotonic()
            if taken:
                self.backlog.won(number, now)
            if answer.broken is not None:  # it is not selected again, so this comes to an end
                self._set_aside(answer.broken, answer.refused)
            elif answer.reread:
                rereadings += 1
                result.lost += 1
                self.backlog.lost_race(number, now)
            elif len(taken) < len(batch):
                result.crowded = True  # the store was away, or lost the reply
            if answer.reread:
                await self._read(number, result)
        result.crowded |= left > 0 and rereadings == REREADINGS

    def _set_aside(self, token: Token, refused: BadInput | None) -> None:
        """Tries a token no more in this walk; reports it if the store has `refused` its claim."""
        self._misfits.add(_version(token))
        if refused is not None:
            self._leave(token, str(refused))

    def _start(self, taken: Sequence[Claim], result: WalkResult) -> None:
        self.runs.start(taken)
        result.claims += len(taken)
        self._claims += len(taken)
        for one in taken:
            result.overdue_by_id.pop(one.id, None)

    # ---- stale locks, and locks of this worker that it does not hold

    def _own_nonces(self) -> set[str]:
        """The nonces of every run and every batch of this worker."""
        return self.board.in_flight | self.runs.holdings.nonces

    def _may_override(self, lock: Lock) -> bool:
        """Whether there is a slot for an override, and may be a permit."""
        of_type = self.board.resolve(lock.type, OF_ITS_TYPE)
        has_slot = self._free().take(lock.type, of_type.slots)
        return has_slot and self.permits.may_have(self._unpermitted.get(lock.nonce, ()))

    def _could_take_over(self) -> bool:
        """Whether a stale lock that waits can be overridden now, as far as shards answer."""
        kinds = {(one.type, self._unpermitted.get(one.nonce)): one for one in self._not_late()}
        return any(map(self._may_override, kinds.values()))

    def _not_late(self) -> list[Lock]:
        """The stale locks that wait, but for those in shards that are late."""
        late = self._tasks.late
        return [one for one in self._waiting.values() if self._shard_of(one) not in late]

    def _forget_waiting(self, number: int) -> None:
        """Forgets the stale locks of a shard, which is read anew."""
        if self._waiting:
            self._waiting = {
                nonce: lock
                for nonce, lock in self._waiting.items()
                if self._shard_of(lock) != number
            }

    async def _take_over(self, lock: Lock, result: WalkResult, *, ours: set[str]) -> None:
        """Overrides a stale lock while there is a free slot; adopts a lock of this worker that it
        does not hold (`ours`), nor did when it was read.
        """
        self._waiting.pop(lock.nonce, None)
        move = decide_lock(
            lock,
            owner=self.owner,
            types=self.handlers,
            in_flight=ours,
            given_up=self.runs.holdings.given_up,
            resolution=self.board.table.resolution,
        )
        if move is Move.ADOPT:
            await self._adopt(lock, result)
        elif move is Move.OVERRIDE and self._shard_of(lock) in self._paused:
            result.locks.discard(lock.nonce)  # no run of it ends while the board is paused
        elif move is Move.OVERRIDE:
            await self._override(lock, result)

    async def _adopt(self, lock: Lock, result: WalkResult) -> None:
        """Adopts a lock of this worker."""
        try:
            claims = await self._claimer.adopt(lock)
        except (BadInput, ValueError) as error:
            self._leave(lock, str(error))
        else:
            if claims is not None:
                self._start_taken(claims, result)

    async def _override(self, lock: Lock, result: WalkResult) -> None:
        """Overrides a stale lock. It waits where there is no slot or no permit."""
        try:
            if not self._may_override(lock):
                self._waiting[lock.nonce] = lock
                return
            is_late = self._shard_of(lock) in self._tasks.late
            taken = await self._claimer.override(lock, reserves=not is_late)
        except (BadInput, ValueError) as error:
            self._leave(lock, str(error))
            result.locks.discard(lock.nonce)  # no run of it will ever end
            return
        match taken:
            case NoPermit(limits):
                self._waiting[lock.nonce] = lock
                self._unpermitted[lock.nonce] = limits
            case list(claims):
                self._start_taken(claims, result)
            case _:
                if taken is Freed.FREED:
                    result.freed.append(lock)
                self._look_after(lock, result)

    def _start_taken(self, claims: Sequence[Claim], result: WalkResult) -> None:
        """Runs the claim of an adopted or overridden lock. Without one the store is slow, and the
        next walk adopts the lock, if it is this worker's.
        """
        self._start(claims, result)
        result.crowded |= not claims

    async def _take_over_others(self, result: WalkResult) -> None:
        """Tries again to override the stale locks that wait, before tokens are claimed: a slot that
        was reserved for an override in another shard may be free after all.
        """
        others = self._not_late()
        if not others or not self._slots.free().left:
            return

        async def in_shard(number: int, result: WalkResult) -> None:
            for lock in others:
                if self._shard_of(lock) == number:
                    await self._take_over(lock, result, ours=self._own_nonces())

        numbers = {self._shard_of(one) for one in others}
        await self._each(numbers, in_shard, result)

    def _look_after(self, lock: Lock, result: WalkResult) -> None:
        """Handles a stale lock that was not taken over: it was freed, other workers were faster, or
        it cannot be. If it is gone, its item may be ready again, so the shard is read again. If it
        is as it was, it is left to the next walk.
        """
        if _version(lock) in self._in_vain | self._in_vain_before:
            result.locks.discard(lock.nonce)
        else:
            result.crowded = True
            number = self._shard_of(lock)
            self._expect_contended(number, result.now, claimable=False)
        self._in_vain.add(_version(lock))

    async def _until_next(self, begun: datetime) -> timedelta | None:
        """How long until the first thing to do after the walk was begun; 0 if it has come."""
        following = self.backlog.next_at(begun)
        if following is None:
            return None
        return max(following - await self.board.table.now(), timedelta(0))


def _version(row: Token | Lock) -> _Version:
    return row.id, row.etag
