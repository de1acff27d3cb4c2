"""Letting items go: the releases of the runs that have ended, many in one batch.

Of a batch that is refused, the release that was in the way is settled by itself, and the others are
sent again without it, a few times. Of a batch without an answer, each is settled. One that the
store has no time for is built anew, with the locks as they are by then: they are renewed meanwhile.

What is done about a release after any doubt: no answer, a refusal, a claim of which not all is
known.

The lock is read. Mine: the item is read and the release built anew from it. Not mine: my row in the
history, with my nonce, means that the release landed; no such row means that the lock was taken
away, and I am late. Then the history is told, and the item if the rules say so.

A run that has ended: what its runner said of it, and the batch that lets its item go.

The batch states the item's etag it was built from, so that an edit, a pause or a `run now` made
meanwhile is obeyed and not overwritten.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Protocol

from blackboard.errors import BadInput, BadRow
from blackboard.model import Claim, Ended, Item, Outcome, Run
from blackboard.phrases import LONGEST_OUTPUT, cut_front, cut_middle, too_long
from blackboard.protocol import keys
from blackboard.protocol.batches import late_ops, release_ops, run_of
from blackboard.protocol.claims import Pause, claim_from, holds, until_answered
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import text_of
from blackboard.rules.outcomes import LateMove, after_run, late_move
from blackboard.rules.transitions import planned
from blackboard.spec import RunSettings
from blackboard.table import (
    Busy,
    Conflict,
    ConflictKind,
    Delete,
    Op,
    Refused,
    Unavailable,
    Unknown,
    units,
)


class Release(StrEnum):
    """How a run got into the history."""

    DONE = "done"
    LATE = "late"
    """Its lock had been taken away: it is told as superseded."""
    DROPPED = "dropped"
    """Its item is gone, was made anew or cannot be read, or the store takes no word of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run to be let go: the claim, and what its runner said."""

    claim: Claim
    ended: Ended
    settings: RunSettings
    requeue: bool = False
    """Cut short by its worker's shutdown: due again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A run that was let go: how, its row in the history, and its item's next ready time."""

    how: Release
    run: Run
    ready: datetime | None = None


def fit(finished: Finished, limit: int) -> Finished:
    """A run whose outcome fits a row, whatever its runner said: a long error and a long output are
    cut, a result that is too long or no JSON is a failure.
    """
    ended = finished.ended
    try:
        size = 0 if ended.result is None else units(text_of(ended.result))
        problem = f"the result is {size:,} characters of JSON and {too_long(limit)}"
    except Exception as odd:  # noqa: BLE001 - whatever it is, it is the fault of this run alone
        size, problem = limit + 1, f"the result is no JSON that can be kept: {type(odd).__name__}"
    if size > limit:
        ended = replace(ended, outcome=Outcome.FAILED, result=None, error=problem)
    error, output = cut_middle(ended.error), cut_front(ended.output, LONGEST_OUTPUT)
    return replace(finished, ended=replace(ended, error=error, output=output))


async def each_for_itself(
    write: Callable[[Sequence[Finished]], Awaitable[list[Released]]], batch: Sequence[Finished]
) -> list[Released]:
    """Let runs go together by `write`. If that raises what nothing foresees, each is let go by
    itself, and one of which it is raised again is dropped: its lock goes stale.
    """
    try:
        return await write(batch)
    except Exception as problem:  # noqa: BLE001 - one run must not end its worker
        if len(batch) > 1:
            return [one for each in batch for one in await each_for_itself(write, [each])]
        claim = batch[0].claim
        error = f"its outcome could not be written: {type(problem).__name__}: {problem}"
        ended = Ended(outcome=Outcome.FAILED, error=cut_middle(error))
        return [Released(how=Release.DROPPED, run=run_told(claim, ended, now=claim.start))]


def prepare(
    board: BoardTable, finished: Finished, claim: Claim, *, now: datetime
) -> tuple[list[Op], Released]:
    """The batch that lets a run go, built from what `claim` says of its item."""
    ended = finished.ended
    settings = finished.settings
    if claim.spec != finished.claim.spec:
        settings = _edited(board, claim, otherwise=settings)
    plan = after_run(
        claim,
        ended.outcome,
        settings=settings,
        now=now,
        fraction=board.chance.fraction(),
        requeue=finished.requeue,
    )
    run = run_told(claim, ended, now=now)
    after = replace(
        planned(_item_of(claim), plan),
        stop=now,
        outcome=ended.outcome,
        runs=claim.runs + 1,
        error=run.error,
        result=run.result,
        result_fence=claim.fence,
    )
    ready = plan.ready if plan.waits else None
    let_go = Released(how=Release.DONE, run=run, ready=ready)
    return release_ops(claim, after, run), let_go


def _edited(board: BoardTable, claim: Claim, *, otherwise: RunSettings) -> RunSettings:
    """The settings of an item that was edited while it ran; those it ran with, if the new ones
    cannot be computed here.
    """
    try:
        return board.resolve(claim.type, claim.spec)
    except (BadInput, ValueError):
        return otherwise


def _item_of(claim: Claim) -> Item:
    """As much of an item as its next token needs."""
    return Item(
        id=claim.id,
        type=claim.type,
        state=claim.state,
        spec=claim.spec,
        fence=claim.fence,
        born=claim.born,
        slot=claim.slot,
        ready=claim.ready,
        planned=claim.planned,
        version=claim.version,
        etag=claim.item_etag,
    )


def run_told(claim: Claim, ended: Ended, *, now: datetime) -> Run:
    """What the history says of it."""
    result = "" if ended.result is None else text_of(ended.result)
    return run_of(
        claim, ended.outcome, now=now, result=result, error=ended.error, output=ended.output
    )


REFUSALS = 3
"""Times that rows are in the way of one release which nobody else can have written while its lock
is its own, before that is left to go stale.
"""
REFUSED = "the store refused the outcome"


async def settle(board: BoardTable, finished: Finished, *, sent: datetime | None) -> Released:
    """Let one run go, or be late. `sent` is the ready time in the release that may have landed."""
    try:
        return await _until_it_lands(board, finished, sent=sent)
    except BadRow:  # its lock goes stale, and is left alone by whoever cannot read the item
        now = await until_answered(board, board.table.now)
        run = run_told(finished.claim, finished.ended, now=now)
        return Released(how=Release.DROPPED, run=run)


async def _until_it_lands(
    board: BoardTable, finished: Finished, *, sent: datetime | None
) -> Released:
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


async def _without_lock(
    board: BoardTable, finished: Finished, *, sent: datetime | None
) -> Released:
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


async def _late(board: BoardTable, finished: Finished, *, now: datetime) -> Released:
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


ROWS_OF_A_RELEASE = 4
"""At the most: the lock goes, the next token comes, the item and the history say so."""
ROUNDS = 3
"""Times that a release is answered in a batch and does not land, before it is settled by itself."""


class Leases(Protocol):
    """The locks of the runs that are let go, as far as they are renewed meanwhile."""

    async def quiet(self, finished: Sequence[Finished]) -> list[Finished]:
        """The runs with their locks as they are now. From here on these are renewed only at need: a
        renewal changes the etag that the release states.
        """
        ...

    def renewed(self, finished: Sequence[Finished]) -> None:
        """From here on they are renewed as ever."""
        ...


class NoLeases:
    """They are not renewed."""

    async def quiet(self, finished: Sequence[Finished]) -> list[Finished]:
        return list(finished)

    def renewed(self, finished: Sequence[Finished]) -> None:
        """As before."""


NO_LEASES = NoLeases()


def releases_at_once(board: BoardTable) -> int:
    """Releases that fit one batch."""
    return board.table.max_rows // ROWS_OF_A_RELEASE


async def release(
    board: BoardTable, finished: Sequence[Finished], *, leases: Leases = NO_LEASES
) -> list[Released]:
    """Let runs go, as many in one batch as fit it. Returns when all are in the history; waits
    for the store as long as it takes.
    """
    fitted = [fit(one, board.table.max_value) for one in finished]
    released: dict[str, Released] = {}
    # Of two runs of one item the earlier has lost its lock, and a batch has each row once.
    newest = {one.claim.id: one.claim.fence for one in sorted(fitted, key=_fence)}
    certain: list[Finished] = []
    doubtful: list[Finished] = []
    for one in fitted:
        is_sure = one.claim.item_etag and one.claim.fence == newest[one.claim.id]
        (certain if is_sure else doubtful).append(one)
    sent: dict[str, datetime | None] = {}
    rounds, pause = 0, Pause(board)
    while certain and rounds < ROUNDS:
        rounds += 1
        certain = await leases.quiet(certain)
        batches = _batches(board, certain, now=await until_answered(board, board.table.now))
        certain = []
        for batch in batches:
            sent |= {one.claim.nonce: let_go.ready for one, _, let_go in batch}
            ops = [op for _, ops, _ in batch for op in ops]
            partition = board.partition(batch[0][0].claim.id)
            try:
                await board.table.commit(partition, ops)
            except (Busy, Unavailable) as trouble:
                rounds = 0
                certain += [one for one, _, _ in batch]
                leases.renewed(certain)
                await pause.after(trouble)
            except Unknown:
                doubtful += [one for one, _, _ in batch]
            except (Conflict, Refused) as refusal:
                in_the_way = _whose(batch, refusal.index)
                doubtful.append(in_the_way)
                certain += [one for one, _, _ in batch if one is not in_the_way]
            else:
                released |= {one.claim.nonce: let_go for one, _, let_go in batch}
    leases.renewed(doubtful + certain)
    for one in doubtful + certain:
        nonce = one.claim.nonce
        released[nonce] = await settle(board, one, sent=sent.get(nonce))
    return [released[one.claim.nonce] for one in finished]


def _fence(finished: Finished) -> int:
    return finished.claim.fence


Prepared = tuple[Finished, list[Op], Released]


def _batches(
    board: BoardTable, finished: Sequence[Finished], *, now: datetime
) -> Iterator[list[Prepared]]:
    """Releases packed into batches of one partition, below the store's limits."""
    by_partition: dict[str, list[Finished]] = {}
    for one in finished:
        by_partition.setdefault(board.partition(one.claim.id), []).append(one)
    for group in by_partition.values():
        batch: list[Prepared] = []
        rows = size = 0
        for one in group:
            ops, let_go = prepare(board, one, one.claim, now=now)
            weight = sum(_weight(op) for op in ops)
            full = rows + len(ops) > board.table.max_rows or size + weight > board.table.max_bytes
            if batch and full:
                yield batch
                batch, rows, size = [], 0, 0
            batch.append((one, ops, let_go))
            rows, size = rows + len(ops), size + weight
        yield batch


def _whose(batch: Sequence[Prepared], index: int) -> Finished:
    """The release that an operation of the batch belongs to."""
    return [one for one, ops, _ in batch for _ in ops][index]


def _weight(op: Op) -> int:
    """Bytes of an operation, estimated high: keys and JSON escapes included."""
    if isinstance(op, Delete):
        return 600
    texts = (value for value in op.data.values() if isinstance(value, str))
    return (
        1000
        + 60 * len(op.data)
        + sum(2 * len(text.encode("utf-8", "surrogatepass")) for text in texts)
    )
