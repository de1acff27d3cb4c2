"""Settles a release about which there is a doubt: no answer, a refusal, or a claim whose item has
to be read.

The lock is read. If it has the claim's nonce, the item is read and the release built anew from it.
If it has not, a row in the history that this release wrote means that it landed; without one the
lock was taken away, and the run is late. Then its row in the history is written, and its result
into the item if the rules say so.

A request is repeated until it is answered. A store that fails for some time answers the same
outcome later, so no answer is no reason to record another one. The outcome itself is the reason
where the store takes other batches of the same partition all the time: the lock is renewed again
and again, and each release in between has no answer. Then, and where the store refuses the outcome,
the run is recorded as failed, with a short error.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

from blackboard.errors import BadRow
from blackboard.model import Claim, Ended, Outcome, Run, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import late_ops
from blackboard.protocol.claims import claim_from, holds
from blackboard.protocol.finished_runs import (
    FinishedRun,
    Released,
    ReleaseOutcome,
    ended_run,
    prepare,
)
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import RELEASES
from blackboard.rules.transitions import LateMove, late_move, stays, superseded
from blackboard.table import Busy, Conflict, Etag, Refused, Unavailable, Unknown

FAILURES = 4
"""Tries without success: of a release, before it lets others go first; of a batch of them, before
each is settled by itself."""
UNANSWERED = 12
"""Tries of one release without an answer, each after another renewal of its lock, before it is
tried with a short error; and tries of a late run, before it is dropped."""
REFUSED = "the store refused the outcome"

Answer = TypeVar("Answer")


async def settle(board: BoardTable, finished: FinishedRun, *, sent: datetime | None) -> Released:
    """Releases one run, or records it as late. `sent` is the next ready time of the item in the
    release that may have landed.
    """
    try:
        return await _until_it_lands(board, finished, sent=sent)
    except BadRow:  # its lock goes stale, and is left alone by workers that cannot read the item
        now = await until_answered(board, finished.claim.id, board.table.now)
        run = ended_run(finished.claim, finished.ended, now=now)
        return Released(how=ReleaseOutcome.DROPPED, run=run)


async def _until_it_lands(
    board: BoardTable, finished: FinishedRun, *, sent: datetime | None
) -> Released:
    """Builds the release from the item as it is now, again and again until it lands."""
    claim, written = finished.claim, finished
    failures, unanswered = 0, set[Etag]()
    while True:
        lock = await until_answered(board, claim.id, lambda: board.lock(claim.id))
        if lock is None or lock.nonce != claim.nonce:
            return await _without_lock(board, finished, sent=sent)
        item = await until_answered(board, claim.id, lambda: board.item(claim.id))
        if item is None or not holds(item, lock):
            orphan = partial(board.delete, claim.id, keys.lock_key(claim.id), lock.etag)
            await until_answered(board, claim.id, orphan)
            continue
        current = claim_from(item, lock=lock, sent=claim.sent)
        now = await until_answered(board, claim.id, board.table.now)
        ops, done = prepare(board, written, current, now=now)
        try:
            await until_answered(board, claim.id, partial(board.commit, claim.id, ops))
        except Unknown as trouble:
            sent = done.ready
            failures += 1
            unanswered.add(lock.etag)  # each renewal of the lock changes it
            if len(unanswered) >= UNANSWERED:
                written = _terse(finished, str(trouble))
            await _let_others_first(board, failures=failures)
        except Conflict:
            continue
        except Refused as refused:
            if written is not finished:  # its lock goes stale
                return Released(how=ReleaseOutcome.DROPPED, run=done.run)
            written = _terse(finished, refused.reason)
        else:
            return done


def _terse(finished: FinishedRun, reason: str) -> FinishedRun:
    """The run, recorded as failed with a short error, where the store does not take its outcome."""
    return replace(finished, ended=Ended(outcome=Outcome.FAILED, error=f"{REFUSED}: {reason}"))


async def _without_lock(
    board: BoardTable, finished: FinishedRun, *, sent: datetime | None
) -> Released:
    """The lock is not the claim's: either the release has landed, or the run is late."""
    claim, ended = finished.claim, finished.ended
    row = await until_answered(board, claim.id, lambda: board.run(claim.id, claim.fence))
    if row is not None and _is_mine(row, claim, ended):
        return Released(how=ReleaseOutcome.DONE, run=row, ready=sent)
    return await _late(board, finished, now=await until_answered(board, claim.id, board.table.now))


def _is_mine(row: Run, claim: Claim, ended: Ended) -> bool:
    """Whether this release wrote a row of the history, and not an overrider or an operator."""
    is_as_sent = row.outcome is ended.outcome or row.error.startswith(REFUSED)
    return row.nonce == claim.nonce and is_as_sent and not row.note


async def _late(board: BoardTable, finished: FinishedRun, *, now: datetime) -> Released:
    """Writes a run whose lock was taken away into the history, and its result into the item if the
    rules say so.
    """
    claim, fenced, unanswered = finished.claim, finished.settings.fenced, 0
    written = finished
    while True:
        run = ended_run(claim, written.ended, now=now)
        item = await until_answered(board, claim.id, lambda: board.item(claim.id))
        move = late_move(
            item,
            fence=claim.fence,
            outcome=run.outcome,
            fenced=fenced,
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
            if written is not finished:
                return Released(how=ReleaseOutcome.DROPPED, run=late)
            written = _terse(finished, refused.reason)
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
