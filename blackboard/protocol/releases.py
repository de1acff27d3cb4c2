"""Releases items: writes the end of their runs, after which they wait again.

The outcome of a run is cut to fit a row, and a batch is built that releases its item. It states the
etag of the item that it was built from, so an edit, a pause or a `run now` that was made meanwhile
is obeyed and not overwritten.

**Batches.** Many releases share a batch. When a batch is refused, the release that caused it is
settled by itself, and the others are sent again without it, a few times. When a batch has no
answer, or the store was busy or away several times, each of its releases is settled by itself; none
waits for another. While the store is busy or away, the locks are renewed, and the batch is built
anew with them.

**Settling.** A release is settled where there is a doubt: no answer, a refusal, or a claim whose
item has to be read. The lock is read. If it has the claim's nonce, the item is read and the release
built anew from it. If it has not, a row in the history that this release wrote means that it
landed; without one the lock was taken away, and the run is late. Then its row in the history is
written, and its result into the item if the rules say so.

A request is repeated until it is answered. A store that fails for some time answers the same
outcome later, so no answer is no reason to record another one. The outcome itself is the reason
where the store takes other batches of the same partition all the time: the lock is renewed again
and again, and each release in between has no answer. Then, and where the store refuses the outcome,
the run is recorded as failed, with a short error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TypeVar

from msgspec import Struct

from blackboard.errors import BadRow
from blackboard.model import Ended, Outcome, Run, replace
from blackboard.phrases import LONGEST_OUTPUT, cut_front, cut_middle
from blackboard.protocol import keys
from blackboard.protocol.batches import late_ops, release_ops
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, holds
from blackboard.protocol.results import not_kept, warnings_in, warnings_of
from blackboard.protocol.rows import text_of
from blackboard.rules.breaker import RELEASES
from blackboard.rules.transitions import (
    FAILING,
    LateMove,
    late_move,
    released,
    run_of,
    stays,
    superseded,
)
from blackboard.table import Busy, Conflict, Delete, Etag, Op, Refused, Unavailable, Unknown, units

ROWS_OF_A_RELEASE = 4
"""Operations of a release, at most: delete the lock, insert the next token, merge the item, insert
the run."""
ROUNDS = 3
"""Batches in which a release may be refused, before it is settled by itself."""
FAILURES = 4
"""Tries without success: of a release, before it lets others go first; of a batch of them, before
each is settled by itself."""
UNANSWERED = 12
"""Tries of one release without an answer, each after another renewal of its lock, before it is
tried with a short error; and tries of a late run, before it is dropped."""
REFUSED = "the store refused the outcome"

Answer = TypeVar("Answer")


class ReleaseOutcome(StrEnum):
    """How a release ended."""

    DONE = "done"
    LATE = "late"
    """Its lock had been taken away: the history says superseded."""
    DROPPED = "dropped"
    """Its item is gone, was made anew or cannot be read, or the store refuses the outcome."""


class FinishedRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run that has ended and is to be released: its claim, and how it ended."""

    claim: Claim
    ended: Ended
    requeue: bool = False
    """Cut short because its worker stops, or its lock was lost: due again at once."""


class Released(Struct, frozen=True, gc=False, kw_only=True):
    """A run that was released: how, its row in the history, and its item's next ready time."""

    how: ReleaseOutcome
    run: Run
    ready: datetime | None = None
    retried: bool = False
    """Whether the same slot is run again; False where a lost reply leaves that open."""


class Renewals:
    """The renewals of locks whose runs are released. This class is for locks that are not renewed;
    that of a worker is a subclass.
    """

    async def pause(self, finished: Sequence[FinishedRun]) -> list[FinishedRun]:
        """Pauses the renewals of these runs' locks, but for locks that would go stale: a renewal
        changes the etag that the release states. Returns the runs with their locks as they are now.
        """
        return list(finished)

    def resume(self, finished: Sequence[FinishedRun]) -> None:
        """Lets the locks of these runs be renewed as usual again."""


Landed = Callable[[Sequence[tuple[FinishedRun, Released]]], Awaitable[None]]


async def _nothing_more(_landed: Sequence[tuple[FinishedRun, Released]]) -> None:
    """The usual `landed`: the caller waits for all releases, and needs no call for each."""


async def release(
    board: BoardTable,
    finished: Sequence[FinishedRun],
    *,
    renewals: Renewals | None = None,
    landed: Landed = _nothing_more,
) -> list[Released]:
    """Releases runs, as many in one batch as fit it. Returns when all are in the history; waits for
    the store without a limit. `landed` is called with runs as soon as they are there.
    """
    renewals = renewals or Renewals()
    fitted = [fit(finished_run, board.table.max_value) for finished_run in finished]
    # Of two runs of one item the earlier has lost its lock; and a batch has each row once.
    newest = dict[str, int]()
    for finished_run in fitted:
        claim = finished_run.claim
        newest[claim.id] = max(claim.fence, newest.get(claim.id, 0))
    certain: list[FinishedRun] = []
    doubtful: list[FinishedRun] = []
    for finished_run in fitted:
        claim = finished_run.claim
        is_certain = claim.item.etag and claim.fence == newest[claim.id]
        (certain if is_certain else doubtful).append(finished_run)
    sent = _Sending(board, certain, renewals=renewals, landed=landed)
    await sent.send_all()
    left = doubtful + sent.left
    renewals.resume(left)
    written = sent.written

    async def settled(finished_run: FinishedRun) -> None:
        nonce = finished_run.claim.nonce
        written[nonce] = await settle(board, finished_run, ready=sent.ready.get(nonce))
        await landed([(finished_run, written[nonce])])

    if len(left) > 1:
        for problem in await asyncio.gather(*map(settled, left), return_exceptions=True):
            if problem is not None:
                raise problem
    elif left:
        await settled(left[0])
    return [written[finished_run.claim.nonce] for finished_run in finished]


Prepared = tuple[FinishedRun, list[Op], Released]


class _Sending:
    """Releases that are sent in batches, a few times, until each has landed or is to be settled."""

    def __init__(
        self,
        board: BoardTable,
        certain: list[FinishedRun],
        *,
        renewals: Renewals,
        landed: Landed,
    ) -> None:
        self.written: dict[str, Released] = {}
        """The releases that have landed, by nonce."""
        self.ready: dict[str, datetime | None] = {}
        """When the items are ready next, by the last batch that may have landed; by nonce."""
        self.left: list[FinishedRun] = []
        """The runs that are to be settled."""
        self._board = board
        self._renewals = renewals
        self._landed = landed
        self._to_send = certain
        self._rounds = 0
        """How often each of them was sent since the store was last busy or away."""
        self._failures = 0
        """How often the store was busy or away."""

    async def send_all(self) -> None:
        """Sends all releases, and those of a refused batch again without the one in the way."""
        while self._may_send():
            self._rounds += 1
            runs, self._to_send = await self._renewals.pause(self._to_send), []
            now = await until_answered(self._board, runs[0].claim.id, self._board.table.now)
            for batch in _batches(self._board, runs, now=now):
                await self._send(batch)
        self.left += self._to_send

    def _may_send(self) -> bool:
        """Whether there are releases to send, in another batch. One that is alone does not hold up
        others while the store is busy or away.
        """
        is_patient = self._failures < FAILURES or len(self._to_send) == 1
        return bool(self._to_send) and self._rounds < ROUNDS and is_patient

    async def _send(self, batch: Sequence[Prepared]) -> None:
        runs = [finished_run for finished_run, _, _ in batch]
        self.ready |= {finished_run.claim.nonce: done.ready for finished_run, _, done in batch}
        partition = self._board.partition(runs[0].claim.id)
        try:
            await self._board.table.commit(partition, [op for _, ops, _ in batch for op in ops])
        except (Busy, Unavailable) as trouble:
            self._rounds = 0
            self._failures += 1
            self._to_send += runs
            self._renewals.resume(self._to_send)
            await self._board.ready(partition, trouble, failures=self._failures)
        except Unknown:
            self.left += runs
        except (Conflict, Refused) as refusal:
            in_the_way = _whose(batch, refusal.index)
            self.left.append(in_the_way)
            self._to_send += [
                finished_run for finished_run in runs if finished_run is not in_the_way
            ]
        else:
            self.written |= {finished_run.claim.nonce: done for finished_run, _, done in batch}
            await self._landed([(finished_run, done) for finished_run, _, done in batch])


def _batches(
    board: BoardTable, finished: Sequence[FinishedRun], *, now: datetime
) -> Iterator[list[Prepared]]:
    """Releases packed into batches of one partition, below the store's limits."""
    by_partition: dict[str, list[FinishedRun]] = {}
    for finished_run in finished:
        by_partition.setdefault(board.partition(finished_run.claim.id), []).append(finished_run)
    for group in by_partition.values():
        batch: list[Prepared] = []
        rows = size = 0
        for finished_run in group:
            ops, done = prepare(board, finished_run, now=now)
            weight = _weight(ops)
            full = rows + len(ops) > board.table.max_rows or size + weight > board.table.max_bytes
            if batch and full:
                yield batch
                batch, rows, size = [], 0, 0
            batch.append((finished_run, ops, done))
            rows, size = rows + len(ops), size + weight
        yield batch


def _whose(batch: Sequence[Prepared], index: int) -> FinishedRun:
    """The run whose release has the operation with this index in the batch."""
    return [finished_run for finished_run, ops, _ in batch for _ in ops][index]


def _weight(ops: Sequence[Op]) -> int:
    """Bytes of operations, estimated high: keys and JSON escapes included."""
    values = [value for op in ops if not isinstance(op, Delete) for value in op.data.values()]
    texts = "".join([value for value in values if type(value) is str])
    size = len(texts) if texts.isascii() else len(texts.encode("utf-8", "surrogatepass"))
    return 1000 * len(ops) + 60 * len(values) + 2 * size


def releases_at_once(board: BoardTable) -> int:
    """How many releases fit one batch."""
    return board.table.max_rows // ROWS_OF_A_RELEASE


async def each_for_itself(
    write: Callable[[Sequence[FinishedRun]], Awaitable[list[Released]]],
    batch: Sequence[FinishedRun],
) -> list[Released]:
    """Releases runs together by `write`. If that raises an unexpected error, each is released by
    itself; one that raises it again is dropped, and its lock goes stale.
    """
    try:
        return await write(batch)
    except Exception as problem:  # noqa: BLE001 - one run must not end its worker
        if len(batch) > 1:
            return [released for each in batch for released in await each_for_itself(write, [each])]
        claim = batch[0].claim
        error = f"its outcome could not be written: {type(problem).__name__}: {problem}"
        ended = Ended(outcome=Outcome.FAILED, error=cut_middle(error))
        return [Released(how=ReleaseOutcome.DROPPED, run=ended_run(claim, ended, now=claim.start))]


# ---- the outcome and the batch of a run


def fit(finished: FinishedRun, limit: int) -> FinishedRun:
    """The run, with an outcome that fits a row: a long error and a long output are cut, a result
    that is too long is replaced by a warning, and one that is not JSON makes the run a failure. The
    warnings of the result are added to those of the run, as many as fit.
    """
    ended = finished.ended
    warnings = ended.warnings
    try:
        text = "" if ended.result is None else text_of(ended.result)
        if (size := units(text)) > limit:
            ended = replace(ended, result=not_kept(text, f"{size:,} characters", limit=limit))
            text = text_of(ended.result)
        found = (*warnings, *warnings_in(text))
        warnings = warnings_of(found) if found else ()
        while warnings and units(text_of(warnings)) > limit:  # "\0" takes six characters in JSON
            warnings = warnings[:-1]
    except Exception as odd:  # noqa: BLE001 - any error here is the fault of this run alone
        problem = f"the result is not JSON that can be kept: {type(odd).__name__}"
        ended = replace(ended, outcome=Outcome.FAILED, result=None, error=problem)
    error, output = cut_middle(ended.error), cut_front(ended.output, LONGEST_OUTPUT)
    ended = replace(ended, warnings=warnings, error=error, output=output)
    return replace(finished, ended=ended)


def prepare(
    board: BoardTable, finished: FinishedRun, *, now: datetime
) -> tuple[list[Op], Released]:
    """The batch that releases an item, built from the item in the claim, and what it makes of the
    run.
    """
    claim, ended = finished.claim, finished.ended
    run = ended_run(claim, ended, now=now)
    after = released(
        claim.item,
        run,
        settings=claim.settings,
        fraction=board.chance.fraction(),
        requeue=finished.requeue,
        retry_after=ended.retry_after,
        final=ended.final,
    )
    ready = after.ready if after.waits else None
    retried = after.waits and run.outcome in FAILING and after.attempt > 1
    done = Released(how=ReleaseOutcome.DONE, run=run, ready=ready, retried=retried)
    return release_ops(claim.item, claim.lock.etag, after, run), done


def ended_run(claim: Claim, ended: Ended, *, now: datetime) -> Run:
    """The row of the history for a run."""
    return run_of(
        claim.item,
        ended.outcome,
        now=now,
        nonce=claim.nonce,
        result="" if ended.result is None else text_of(ended.result),
        error=ended.error,
        warnings=ended.warnings,
        output=ended.output,
        log=ended.log,
    )


# ---- where there is a doubt


async def settle(board: BoardTable, finished: FinishedRun, *, ready: datetime | None) -> Released:
    """Releases one run, or records it as late. `ready` is when its item is ready next, by the
    release that may have landed.
    """
    try:
        return await _until_it_lands(board, finished, ready=ready)
    except BadRow:  # its lock goes stale, and is left alone by workers that cannot read the item
        now = await until_answered(board, finished.claim.id, board.table.now)
        run = ended_run(finished.claim, finished.ended, now=now)
        return Released(how=ReleaseOutcome.DROPPED, run=run)


async def _until_it_lands(
    board: BoardTable, finished: FinishedRun, *, ready: datetime | None
) -> Released:
    """Builds the release from the item as it is now, again and again until it lands."""
    claim, ended = finished.claim, finished.ended
    failures, unanswered = 0, set[Etag]()
    while True:
        lock = await until_answered(board, claim.id, partial(board.lock, claim.id))
        if lock is None or lock.nonce != claim.nonce:
            return await _without_lock(board, finished, ready=ready)
        item = await until_answered(board, claim.id, partial(board.item, claim.id))
        if item is None or not holds(item, lock):
            orphan = partial(board.delete, claim.id, keys.lock_key(claim.id), lock.etag)
            await until_answered(board, claim.id, orphan)
            continue
        now = await until_answered(board, claim.id, board.table.now)
        claim = replace(claim, lock=lock).with_item(item, board.resolve)
        ops, done = prepare(board, replace(finished, claim=claim, ended=ended), now=now)
        try:
            await until_answered(board, claim.id, partial(board.commit, claim.id, ops))
        except Unknown as trouble:
            ready = done.ready
            failures += 1
            unanswered.add(lock.etag)  # each renewal of the lock changes it
            if len(unanswered) >= UNANSWERED:
                ended = _terse(str(trouble))
            await _let_others_first(board, failures=failures)
        except Conflict:
            continue
        except Refused as refused:
            if ended is not finished.ended:  # its lock goes stale
                return Released(how=ReleaseOutcome.DROPPED, run=done.run)
            ended = _terse(refused.reason)
        else:
            return done


def _terse(reason: str) -> Ended:
    """A failure with a short error, where the store does not take the outcome of a run."""
    return Ended(outcome=Outcome.FAILED, error=f"{REFUSED}: {reason}")


async def _without_lock(
    board: BoardTable, finished: FinishedRun, *, ready: datetime | None
) -> Released:
    """The lock is not the claim's: either the release has landed, or the run is late."""
    claim, ended = finished.claim, finished.ended
    row = await until_answered(board, claim.id, lambda: board.run(claim.id, claim.fence))
    if row is not None and _is_mine(row, claim, ended):
        return Released(how=ReleaseOutcome.DONE, run=row, ready=ready)
    return await _late(board, finished, now=await until_answered(board, claim.id, board.table.now))


def _is_mine(row: Run, claim: Claim, ended: Ended) -> bool:
    """Whether this release wrote a row of the history, and not an overrider or an operator."""
    is_as_sent = row.outcome is ended.outcome or row.error.startswith(REFUSED)
    return row.nonce == claim.nonce and is_as_sent and not row.note


async def _late(board: BoardTable, finished: FinishedRun, *, now: datetime) -> Released:
    """Writes a run whose lock was taken away into the history, and its result into the item if the
    rules say so.
    """
    claim, ended, unanswered = finished.claim, finished.ended, 0
    while True:
        run = ended_run(claim, ended, now=now)
        item = await until_answered(board, claim.id, lambda: board.item(claim.id))
        move = late_move(
            item,
            fence=claim.fence,
            outcome=run.outcome,
            fenced=claim.settings.fenced,
            skipped=run.is_skipped,
        )
        if move is LateMove.DROP:
            return Released(how=ReleaseOutcome.DROPPED, run=superseded(run, None))
        row = await until_answered(board, claim.id, lambda: board.run(claim.id, claim.fence))
        if row is not None and stays(row, run):
            return Released(how=ReleaseOutcome.LATE, run=row)
        late = superseded(run, row)
        ops = late_ops(item if move is LateMove.MERGE else None, late, row)
        try:
            await until_answered(
                board, claim.id, partial(board.table.commit, board.partition(claim.id), ops)
            )
        except Conflict:
            continue
        except Unknown:
            unanswered += 1
            if unanswered == UNANSWERED:
                return Released(how=ReleaseOutcome.DROPPED, run=late)
            await _let_others_first(board, failures=unanswered)
        except Refused as refused:
            if ended is not finished.ended:
                return Released(how=ReleaseOutcome.DROPPED, run=late)
            ended = _terse(refused.reason)
        else:
            return Released(how=ReleaseOutcome.LATE, run=late)


async def until_answered(
    board: BoardTable, item_id: str, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Repeats a request about an item while the store is busy or away; returns the answer."""
    failures = 0
    while True:
        try:
            return await ask()
        except (Busy, Unavailable) as trouble:
            failures += 1
            await _let_others_first(board, failures=failures)
            await board.ready(board.partition(item_id), trouble, failures=failures)


async def _let_others_first(board: BoardTable, *, failures: int) -> None:
    """After `FAILURES` tries, waits before the next, so that releases that the store takes go
    first.
    """
    if failures > FAILURES:
        pause = RELEASES.pause(failures - FAILURES, fraction=board.chance.fraction())
        await board.clock.sleep(pause)
