"""The walk of a worker over the board: it reads the shards, overrides stale locks, claims tokens.

A walk reads each shard's locks and ready tokens in one range, overrides stale locks
(`stale_locks.py`), and claims the most overdue tokens, as many as it has free slots. A token is
judged when it is read, and again when it is claimed later (`judge.py`). Tokens of a type without a
handler here, or whose slots are full, are not selected, so that one slow or failing item never
blocks the others.

Tokens that were read and not claimed go into the backlog (`backlog.py`). Until the next walk they
are claimed when a slot becomes free or their time comes, and only shards that have more tokens are
read (`go_on`). For each token one worker is the first to claim it (`peers.py`).

An item whose slot is missed, or put off, gets its next token without a run, after the claims
(`missed_slots.py`).

Shards are read, and their tokens claimed, concurrently (`shard_tasks.py`). A shard that does not
answer is read again when the circuit breaker allows it. A slow shard is not waited for: the others
are walked as if they were the whole board. A run that such a shard claims late is put back if its
slot is taken by then.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from blackboard.emitter import EventEmitter
from blackboard.events import StoreAway
from blackboard.model import LONG_AGO, LOST_AFTER, Lock, Mark, Token
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claims_at_once
from blackboard.protocol.keys import next_key, shard_of
from blackboard.rules.breaker import REFUSED, SPACING, Need
from blackboard.rules.due import Move
from blackboard.table import Busy, TableError, Unavailable
from blackboard.worker.backlog import Backlog, Candidate, Unread, choose
from blackboard.worker.claimer import Claimer
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.judge import Judge
from blackboard.worker.missed_slots import MissedSlots
from blackboard.worker.paused_shards import PausedShards
from blackboard.worker.peers import Peers, Turn
from blackboard.worker.permits import Permits
from blackboard.worker.running import Runs
from blackboard.worker.selection import Selection
from blackboard.worker.shard_tasks import ShardTasks
from blackboard.worker.slots import Slots
from blackboard.worker.stale_locks import LockFate, StaleLocks
from blackboard.worker.store_breaker import StoreBreaker
from blackboard.worker.wake import Wake

REREADINGS = 8
"""Readings of one shard's tokens in one walk, when others are faster."""
MOST_OVERDUE = 1_000
"""The most overdue tokens in one result."""


@dataclass(slots=True, kw_only=True)
class WalkResult:
    """What a walk has read and done, as far as its shards have answered. Shards that are late add
    to it after the walk: after each `await`, ask `Walk.result` for it again.
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
    """The least number of ready tokens and stale locks that were not taken: no slot was free, or
    other workers were faster.
    """
    more: bool = False
    """Whether there is work for the next slot that becomes free."""
    crowded: bool = False
    """Whether slots stayed free although more may be there: other workers were faster or come
    first, or a claim was not answered.
    """
    soonest: timedelta | None = None
    """How long until there is something to do, if that is within a cycle."""
    failed: dict[int, TableError] = field(default_factory=dict)
    """Shards that did not answer."""
    late: set[int] = field(default_factory=set)
    """Shards that were too slow to be waited for and have not answered yet."""
    missed: int = 0
    """Scheduled slots that were missed and are not to be made up, or that a blackout puts off."""
    skipped: int = 0
    """The number of these slots that this walk has skipped or put off."""
    refused: int = 0
    """Tokens for which no permit was left."""
    overdue_by_id: dict[str, Token] = field(default_factory=dict)

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
class Unreported:
    """What walks have done since the last report: those that failed, and shards that were late, in
    which work goes on after the walk, are reported with the next.
    """

    claims: int = 0
    """Items that were claimed, taken over or adopted."""
    lost: int = 0
    """Batches of claims at which another worker was faster."""
    freed: list[Lock] = field(default_factory=list)
    """Stale locks that this worker has removed without another attempt of their runs."""


@dataclass(slots=True, kw_only=True)
class Walk:
    board: BoardTable
    runs: Runs
    peers: Peers
    takes_turns: bool = True
    """Whether it leaves other workers their turn. One that walks once takes what it can."""
    permits: Permits
    claimer: Claimer
    judge: Judge
    stale_locks: StaleLocks
    missed: MissedSlots
    paused: PausedShards
    heartbeat: Heartbeat
    breaker: StoreBreaker
    events: EventEmitter
    wake: Wake
    cycle: timedelta
    """The time from one walk to the next, and how far ahead tokens are read."""
    overdue_after: timedelta | None = None
    """For how long a token is ready until it is overdue; None: overdue tokens are not reported."""
    backlog: Backlog = field(init=False)
    _tasks: ShardTasks = field(init=False)
    _result: WalkResult = field(init=False)
    _locks_read: Counter[int] = field(default_factory=Counter)
    """How many locks each shard had when it was last read."""
    _unreported: Unreported = field(default_factory=Unreported)
    _workers: int = 1
    """How many workers there were, as far as this one knew, when the latest walk began."""
    _claims: int = 0
    """Items claimed since the last walk over the board began."""
    _claims_before: int = 0
    """Items claimed from the beginning of the walk before until then."""

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

    def expect(self, item_id: str, ready: datetime) -> None:
        """Notes a token that this worker's own release has written. This worker is the first to
        take it: no other has read it.
        """
        self.judge.wrote(item_id)
        number = shard_of(item_id, self.board.shards)
        if not self.backlog.has(number, item_id):
            self.backlog.expect(number, Unread(ready))

    async def walk(self) -> WalkResult:
        """Reads every shard, overrides stale locks, and claims tokens for the free slots. Each run
        is started at once, so that none waits for the rest of the walk. Raises TableError when no
        shard answers.
        """
        begun = await self.board.table.now()
        self.backlog.begin(self.board.clock.monotonic())
        self.judge.begin(takes_turns=self.takes_turns)
        self.permits.begin()
        self.stale_locks.begin()
        self._workers = self._count_workers()
        self._claims, self._claims_before = 0, self._claims
        result = self._result = WalkResult(now=begun, whole=True)
        await self._in_shards(range(self.board.shards), self._read_and_take_over, result)
        await self._take_over_others(result)
        await self._claim_all(result)
        await self._in_shards(self.missed.shards, self._pass_over_some, result)
        if result.answered:
            await self.paused.finish()
        self._raise_if_all_failed(result)
        # From the beginning: tokens became ready while other shards were read.
        result.soonest = await self._until_next(begun)
        return await self.result()

    async def go_on(self) -> WalkResult | None:
        """Claims ready tokens of the backlog, and reads the shards that have more, until the free
        slots are filled. None: a walk over the board is needed instead, because a cycle is over, a
        stale lock can be overridden, the slot of a token is missed by now, or workers have joined,
        as many as there were or more: they come first to most of what was read.
        """
        clock = self.board.clock.monotonic()
        have_joined = self._count_workers() >= 2 * self._workers
        is_over = have_joined or not self.backlog.lasts(clock)
        if is_over or self.stale_locks.may_take(but=self._tasks.late):
            return None
        now = await self.board.table.now()
        result = self._result = WalkResult(now=now, whole=False)
        await self._read_more(result)
        self._raise_if_all_failed(result)
        moves = (self.judge.decide(candidate, result.now) for candidate in self._chosen(result))
        if any(move is not Move.RUN for move in moves):
            return None
        await self._claim_all(result)
        await self._in_shards(self.missed.shards, self._pass_over_some, result)
        self._raise_if_all_failed(result)
        until_walk = timedelta(seconds=self.backlog.lasts(clock))
        following = await self._until_next(now)
        result.soonest = until_walk if following is None else min(following, until_walk)
        return await self.result()

    async def result(self) -> WalkResult:
        """The result of the latest walk, with the late answers that have come since."""
        now, result = await self.board.table.now(), self._result
        result.due = self.backlog.waiting(now) + len(self.stale_locks)
        result.more = result.due > 0 or bool(self.backlog.to_read(now))
        return result

    def take_unreported(self) -> Unreported:
        """What was done since the last call, whichever walk it belongs to."""
        taken, self._unreported = self._unreported, Unreported()
        return taken

    def awaits(self, late: set[int]) -> bool:
        """Whether each of these shards is still being worked on, so that none can be read again."""
        return bool(late) and late <= self._tasks.late

    def cancel(self) -> None:
        """Cancels the work that goes on in shards that are late."""
        self._tasks.cancel()

    # ---- shards side by side, and those that do not answer

    def _shard_of(self, row: Candidate | Lock) -> int:
        return shard_of(row.id, self.board.shards)

    @property
    def _slots(self) -> Slots:
        return self.runs.holdings.slots

    async def _in_shards(
        self,
        numbers: Iterable[int],
        work: Callable[[int, WalkResult], Coroutine[Any, Any, None]],
        result: WalkResult,
    ) -> None:
        """Calls `work` for each of the shards. One that does not answer delays no other."""

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
        """Notes that a shard failed. Nothing of it is taken until it is read again, soon."""
        result.failed[number] = trouble
        self.stale_locks.forget(number)
        self.missed.put(number, [])
        pause = timedelta(seconds=self.pause_after(trouble, number))
        if not isinstance(trouble, Busy | Unavailable):  # those are reported by the breaker
            self.events.emit(StoreAway, message=f"walk: {trouble}")
        self.backlog.put(number, [])
        ready = await self.board.table.now() + pause
        self.backlog.expect(number, Unread(ready, claimable=False))

    def pause_after(self, trouble: TableError, number: int | None = None) -> float:
        """Seconds until the shard with this number, or one of all shards, may be read again."""
        if not isinstance(trouble, Busy | Unavailable):
            return REFUSED.pause()
        shards = map(self.board.shard, range(self.board.shards) if number is None else [number])
        return min(self.breaker.opens_in(Need.OTHER, shard) for shard in shards) or SPACING

    def _raise_if_all_failed(self, result: WalkResult) -> None:
        """Raises the error of the last shard if none has answered."""
        if len(result.failed) == self.board.shards:
            self.backlog.expire()
            raise next(reversed(result.failed.values()))

    # ---- reading a shard

    async def _read_and_take_over(self, number: int, result: WalkResult) -> None:
        """Reads a shard, overrides its stale locks, and adopts locks of this worker. Where a run of
        this worker has no lock in the shard, it was unlocked, cancelled, removed or overridden: its
        next renewal finds out.
        """
        before = self._own_nonces()
        holdings = [held for held in self.runs.holdings if held.shard == number]
        pace = -(-self._claims_before // self.board.shards) if result.whole else 0
        locks = await self._read(number, result, pace=pace)
        nonces = {lock.nonce for lock in locks}
        self.stale_locks.forget(number)
        for held in holdings:
            if held.claim.nonce not in nonces and not held.ended:
                self.heartbeat.ask(held)
        for lock in locks:
            await self._take_over(lock, result, ours=before | self._own_nonces())

    async def _read_more(self, result: WalkResult) -> None:
        """Reads the shards that have more, most overdue first, until the free slots are filled. A
        shard is read on, and then from its beginning too if that is due.
        """
        read_whole = set[int]()
        for _ in range(2):
            for ready, number in self.backlog.to_read(result.now):
                if self._fills_slots(result, before=ready):
                    break
                if number in read_whole:
                    continue
                if not self.backlog.key_to_read_on(number):
                    read_whole.add(number)
                await self._in_shards([number], self._read_again, result)

    async def _read_again(self, number: int, result: WalkResult) -> None:
        """Reads a shard again, or on, because a token that was not read before is ready by now. If
        it is gone, another worker was faster.
        """
        expected = self.backlog.expects(number, result.now)
        before = result.claims + len(self.stale_locks)
        if key := self.backlog.key_to_read_on(number):
            await self._read_on(number, key, result)
        else:
            await self._read_and_take_over(number, result)
        took_none = result.claims + len(self.stale_locks) <= before
        if (
            expected
            and took_none
            and self.backlog.is_empty(number, result.now, self.claimer.free_slots())
        ):
            self.backlog.found_none(number, self.board.clock.monotonic())

    async def _read(self, number: int, result: WalkResult, *, pace: int = 0) -> list[Lock]:
        """Reads a shard, puts its tokens into the backlog, and returns its locks. It reads tokens
        for the free slots and some more, or `pace` of them: as many as are claimed in a cycle.
        """
        locks: list[Lock] = []
        selection = self._selection(pace=pace)
        self.backlog.expect_none(number)  # from here on: runs may be released while it is read
        is_first, mark = True, None
        until, expected = result.now + self.cycle, self._locks_read[number] + selection.expected
        async for row in self.board.read_shard(number, until=until, expected=expected):
            if is_first:  # the reply may have moved the store's time on
                is_first, result.now = False, await self.board.table.now()
            if isinstance(row, Lock):
                locks.append(row)
                self._note_peer(row, result.now)
            elif isinstance(row, Mark):
                mark = row
                break
            elif not self._select(row, selection, result):
                break
        if mark is not None and not await self.paused.is_paused(number):
            return await self._read(number, result, pace=pace)
        self._locks_read[number] = len(locks)
        self.paused.note(number, mark)
        self._put_into_backlog(number, selection, result)
        result.locks |= {lock.nonce for lock in locks if lock.type in self.judge.handlers}
        return locks

    async def _read_on(self, number: int, key: str, result: WalkResult) -> None:
        """Reads the tokens of a shard from a key on, as those before were read, and puts them into
        the backlog with the candidates that it has.
        """
        self.backlog.forget_rest(number)
        selection, walked = self._selection(), self.backlog.walked
        selection.keep(self.backlog.candidates(number), result.now)
        rows = self.board.read_shard(
            number, first=key, until=result.now + self.cycle, expected=selection.expected
        )
        async for row in rows:
            if isinstance(row, Token) and not self._select(row, selection, result):
                break
        if self.backlog.walked != walked:  # the walk has passed over this shard, which was late
            selection.reads_on = False
            self.backlog.expect(number, Unread(result.now))
        self._put_into_backlog(number, selection, result)

    def _selection(self, *, pace: int = 0) -> Selection:
        workers = self._count_workers()
        return Selection(
            self.claimer.free_slots, total=self._slots.total, workers=workers, pace=pace
        )

    def _count_workers(self) -> int:
        """How many workers take turns, with this one, by the rows and locks that it has read."""
        return self.peers.most + 1 if self.takes_turns else 1

    def _note_peer(self, lock: Lock, now: datetime) -> None:
        if lock.age < min(lock.stale_after, LOST_AFTER):
            claimed = lock.since if lock.since <= now else LONG_AGO  # by a clock that was wrong
            self.peers.note(lock.owner, [lock.type], claimed)

    def _put_into_backlog(self, number: int, selection: Selection, result: WalkResult) -> None:
        """Puts what was selected of a shard into the backlog."""
        kept, again = selection.settle(result.now)
        self.backlog.put(number, kept)
        for unread in again:
            self.backlog.expect(number, unread)
        if selection.rest is not None:
            ready = selection.rest.ready
            key = next_key(ready, selection.rest.id) if selection.reads_on else ""
            self._expect_contended(number, ready, key=key)
        if selection.later is not None:
            ready, claimable = selection.later
            self._expect_contended(number, ready, claimable=claimable)
        self.missed.put(number, selection.missed)

    def _expect_contended(
        self, number: int, ready: datetime, *, claimable: bool = True, key: str = ""
    ) -> None:
        """Notes tokens that were not read and that other workers claim as well."""
        turn = Turn(self.board.chance.fraction(), ready)
        self.backlog.expect(number, Unread(ready, turn, claimable, key))

    # ---- selecting a token

    def _select(self, token: Token, selection: Selection, result: WalkResult) -> bool:
        """Selects a token, if this worker can claim it. Returns whether to read further tokens."""
        if token.ready > result.now:
            return selection.add_later(token.ready, self.judge.later(token))
        if self._is_overdue(token, result) and len(result.overdue_by_id) < MOST_OVERDUE:
            result.overdue_by_id[token.id] = token
        judged = self.judge.ready(token, result.now)
        if judged is None:
            return True
        if judged.move is Move.RUN:
            return selection.add(judged.candidate)
        if judged.candidate.turn.begins > result.now:
            return selection.defer(judged.candidate)
        return selection.add_missed(judged)

    def _is_overdue(self, token: Token, result: WalkResult) -> bool:
        after = self.overdue_after
        return after is not None and result.now - token.ready >= after

    async def _pass_over_some(self, number: int, result: WalkResult) -> None:
        """Skips or puts off some of the missed slots of a shard."""
        has_passed, count = False, self.missed.count(number)
        slots = self.missed.take_some(number)
        for slot in slots:
            result.missed += 1
            if await self.missed.pass_over(slot):
                result.skipped += 1
                has_passed = True
        if has_passed:  # for their next tokens, and the rest
            self._expect_contended(number, result.now, claimable=False)
            if len(slots) < count:
                self.backlog.read_from_beginning(number)

    # ---- claiming

    def _chosen(self, result: WalkResult) -> list[Candidate]:
        """The most overdue candidates, as many as the free slots take."""
        ready = self.backlog.ready(result.now, but=self._tasks.late)
        return choose(ready, self.claimer.free_slots())

    def _fills_slots(self, result: WalkResult, *, before: datetime) -> bool:
        """Whether candidates that were ready before a moment fill the free slots."""
        chosen = self._chosen(result)
        return len(chosen) == self._slots.free().left and all(
            candidate.ready <= before for candidate in chosen
        )

    async def _claim_all(self, result: WalkResult) -> None:
        """Claims the most overdue candidates, as many as the free slots take."""
        while True:
            chosen, before = self._chosen(result), result.claims
            silent, refused = len(result.silent), result.refused
            counts = self._in_whole_batches(self._shard_of(candidate) for candidate in chosen)
            await self._in_shards(counts, partial(self._claim, counts), result)
            if (len(result.silent), result.refused) == (silent, refused):
                break  # else slots are left for others: a shard does not answer, a limit is full
        has_lost = result.claims - before < counts.total()
        if has_lost and self._chosen(result):
            self._read_all_again(result)
        if has_lost or result.refused:
            # Shards, or a part of them, may have been passed over for candidates that were lost.
            result.crowded |= bool(self.backlog.to_read(result.now))
        result.crowded |= self._is_to_read_on(result)

    def _is_to_read_on(self, result: WalkResult) -> bool:
        """Whether a shard is to be read on for slots that stayed free: what was read is left to
        other workers.
        """
        numbers = {number for _, number in self.backlog.to_read(result.now)} - self._tasks.late
        return any(map(self.backlog.key_to_read_on, numbers)) and not self._fills_slots(
            result, before=result.now
        )

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
        """Drops all candidates, and has their shards read again a little later: slots stayed free,
        so other workers were faster, and may have claimed these candidates as well.
        """
        ready = self.backlog.ready(result.now, but=self._tasks.late)
        for number in {self._shard_of(candidate) for candidate in ready}:
            self.backlog.lost_race(number, self.board.clock.monotonic())
            self.backlog.put(number, [])
            self.backlog.read_from_beginning(number)
            self._expect_contended(number, result.now)

    async def _claim(self, counts: Mapping[int, int], number: int, result: WalkResult) -> None:
        """Claims `counts[number]` tokens of a shard, and reads it again after each lost race. Stops
        when the shard is late: then the next walk claims them.
        """
        rereadings, left = 0, counts[number]
        while left > 0 and rereadings < REREADINGS and number not in self._tasks.late:
            chosen = choose(self.backlog.ready_in(number, result.now), self.claimer.free_slots())
            chosen = chosen[: min(left, claims_at_once(self.board))]
            if not chosen:
                break
            batch, answer, taken = await self.claimer.claim(number, chosen)
            result.refused += len(chosen) - len(batch)
            if not batch:
                continue  # their limits are exhausted now
            self.backlog.drop(number, {candidate.id for candidate in batch})
            if len(taken) < len(batch):  # what was not taken may still be there
                self._expect_contended(number, batch[0].ready)
            self._start(taken, result)
            left -= len(taken)
            now = self.board.clock.monotonic()
            if taken:
                self.backlog.won(number, now)
            if answer.broken is not None:  # it is not selected again, so this comes to an end
                self.judge.set_aside(answer.broken, refused=answer.refused)
            elif answer.reread:
                rereadings += 1
                self._unreported.lost += 1
                self.backlog.lost_race(number, now)
            elif len(taken) < len(batch):
                result.crowded = True  # the store was away, or lost the reply
            if answer.reread:
                await self._read(number, result)
        result.crowded |= left > 0 and rereadings == REREADINGS

    def _start(self, taken: Sequence[Claim], result: WalkResult) -> None:
        self.runs.start(taken)
        result.claims += len(taken)
        self._claims += len(taken)
        self._unreported.claims += len(taken)
        for claim in taken:
            result.overdue_by_id.pop(claim.id, None)

    # ---- stale locks, and locks of this worker that it does not hold

    def _own_nonces(self) -> set[str]:
        """The nonces of every run and every batch of this worker."""
        return self.board.in_flight | self.runs.holdings.nonces

    async def _take_over(self, lock: Lock, result: WalkResult, *, ours: set[str]) -> None:
        """Overrides a stale lock, or adopts a lock of this worker that none of its runs has. `ours`
        has the nonces of its runs, when the lock was read and since.
        """
        number = self._shard_of(lock)
        is_paused, is_late = number in self.paused, number in self._tasks.late
        attempt = await self.stale_locks.take(lock, ours=ours, is_paused=is_paused, is_late=is_late)
        match attempt.fate:
            case LockFate.TAKEN:
                self._start(attempt.claims, result)
                result.crowded |= not attempt.claims
            case LockFate.STUCK:
                result.locks.discard(lock.nonce)
            case LockFate.FREED | LockFate.LOST:
                if attempt.fate is LockFate.FREED:
                    self._unreported.freed.append(lock)
                result.crowded = True
                self._expect_contended(number, result.now, claimable=False)

    async def _take_over_others(self, result: WalkResult) -> None:
        """Tries once more to override the waiting stale locks, before tokens are claimed: a slot
        that was reserved for an override in another shard may be free after all.
        """
        others = self.stale_locks.waiting(but=self._tasks.late)
        if not others or not self._slots.free().left:
            return

        async def in_shard(number: int, result: WalkResult) -> None:
            for lock in others:
                if self._shard_of(lock) == number:
                    await self._take_over(lock, result, ours=self._own_nonces())

        numbers = {self._shard_of(lock) for lock in others}
        await self._in_shards(numbers, in_shard, result)

    async def _until_next(self, begun: datetime) -> timedelta | None:
        """How long until the next token is ready, or a shard is to be read, after the walk began; 0
        if that time has come.
        """
        following = self.backlog.next_at(begun)
        if following is None:
            return None
        return max(following - await self.board.table.now(), timedelta(0))
