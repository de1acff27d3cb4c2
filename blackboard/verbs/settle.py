"""What is done about a release after any doubt: no answer, a refusal, a claim of which not all is
known.

The lock is read. Mine: the item is read and the release built anew from it. Not mine: my row in the
history, with my nonce, means that the release landed; no such row means that the lock was taken
away, and I am late. Then the history is told, and the item if the rules say so.
"""

from dataclasses import replace
from datetime import datetime
from functools import partial

from blackboard import keys
from blackboard.board import Board
from blackboard.errors import BadRow
from blackboard.model import Claim, Ended, Outcome, Run
from blackboard.rules.outcomes import LateMove, late_move
from blackboard.table import Conflict, ConflictKind, Refused, Unknown
from blackboard.verbs.batches import late_ops
from blackboard.verbs.finished import Finished, Release, Released, prepare, run_told
from blackboard.verbs.take import claim_from, holds
from blackboard.verbs.until_answered import until_answered

REFUSALS = 3
"""Times that rows are in the way of one release which nobody else can have written while its lock
is its own, before that is left to go stale.
"""
REFUSED = "the store refused the outcome"


async def settle(board: Board, finished: Finished, *, sent: datetime | None) -> Released:
    """Let one run go, or be late. `sent` is the ready time in the release that may have landed."""
    try:
        return await _until_it_lands(board, finished, sent=sent)
    except BadRow:  # its lock goes stale, and is left alone by whoever cannot read the item
        now = await until_answered(board, board.table.now)
        run = run_told(finished.claim, finished.ended, now=now)
        return Released(how=Release.DROPPED, run=run)


async def _until_it_lands(board: Board, finished: Finished, *, sent: datetime | None) -> Released:
    """Built from the item as it is now, and again until it lands. It never does where the board
    contradicts itself: when the history has another run of this fence.
    """
    claim, refusals = finished.claim, 0
    while True:
        lock = await until_answered(board, lambda: board.lock(claim.id))
        if lock is None or lock.nonce != claim.nonce:
            return await _without_lock(board, finished, sent=sent)
        item = await until_answered(board, lambda: board.item(claim.id))
        if item is None or not holds(item, lock):
            orphan = partial(board.delete, claim.id, keys.lock_key(claim.id), lock.etag)
            await until_answered(board, orphan)
            continue
        current = claim_from(item, lock=lock, sent=claim.sent)
        now = await until_answered(board, board.table.now)
        ops, let_go = prepare(board, finished, current, now=now)
        try:
            await until_answered(board, partial(board.table.commit, board.partition(claim.id), ops))
        except Unknown:
            sent = let_go.ready
        except Conflict as lost:
            refusals += lost.kind is ConflictKind.EXISTS
            if refusals == REFUSALS:
                return Released(how=Release.DROPPED, run=let_go.run)
        except Refused as refused:
            if _is_terse(finished):
                return Released(how=Release.DROPPED, run=let_go.run)
            finished = _terse(finished, refused)
        else:
            return let_go


def _terse(finished: Finished, refused: Refused) -> Finished:
    """A run whose outcome the store will not take is told as failed, in few words."""
    ended = Ended(outcome=Outcome.FAILED, error=f"{REFUSED}: {refused.reason}")
    return replace(finished, ended=ended)


def _is_terse(finished: Finished) -> bool:
    """Whether there are no fewer words for it: then its lock is left to go stale."""
    return finished.ended.error.startswith(REFUSED)


async def _without_lock(board: Board, finished: Finished, *, sent: datetime | None) -> Released:
    """The lock is not mine: either my release has landed, or I am late."""
    claim, ended = finished.claim, finished.ended
    row = await until_answered(board, lambda: board.run(claim.id, claim.fence))
    if row is not None and _is_mine(row, claim, ended):
        return Released(how=Release.DONE, run=row, ready=sent)
    return await _late(board, finished, now=await until_answered(board, board.table.now))


def _is_mine(row: Run, claim: Claim, ended: Ended) -> bool:
    """Whether a row of the history is what this release wrote, and not what an overrider or a
    person wrote about it.
    """
    return row.nonce == claim.nonce and row.outcome is ended.outcome and not row.note


def _stays(row: Run, ended: Ended) -> bool:
    """Whether the history has been told already; or tells that a person cancelled a run that has
    nothing to say against it.
    """
    cancelled = row.outcome is Outcome.CANCELLED and ended.outcome is not Outcome.OK
    return row.outcome is Outcome.SUPERSEDED or cancelled


async def _late(board: Board, finished: Finished, *, now: datetime) -> Released:
    """Tell the history of a run whose lock was taken away, and its item if the rules say so."""
    claim, fenced = finished.claim, finished.settings.fenced
    while True:
        ended = finished.ended
        told = replace(run_told(claim, ended, now=now), outcome=Outcome.SUPERSEDED)
        item = await until_answered(board, lambda: board.item(claim.id))
        move = late_move(item, fence=claim.fence, outcome=ended.outcome, fenced=fenced)
        if move is LateMove.DROP:
            return Released(how=Release.DROPPED, run=told)
        row = await until_answered(board, lambda: board.run(claim.id, claim.fence))
        if row is not None and _stays(row, ended):
            return Released(how=Release.LATE, run=row)
        if row is not None:
            told = replace(told, note=row.note)
        ops = late_ops(item if move is LateMove.MERGE else None, told, row)
        try:
            await until_answered(board, partial(board.table.commit, board.partition(claim.id), ops))
        except (Conflict, Unknown):
            continue
        except Refused as refused:
            if _is_terse(finished):
                return Released(how=Release.DROPPED, run=told)
            finished = _terse(finished, refused)
        else:
            return Released(how=Release.LATE, run=told)
