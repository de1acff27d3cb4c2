"""Releasing items: the end of runs is written, and their items wait again.

A release is one batch, built by `prepare` from the claim and from how its run ended. The batch
states the item's etag it was built from, so that an edit, a pause or a `run now` made meanwhile is
obeyed and not overwritten.

Many releases share a batch. Of a batch that is refused, the release that was in the way is settled
by itself, and the others are sent again without it, a few times. Of a batch without an answer, or
that the store does not take time and again, each is settled; none waits for another. A release for
which the store has no time is built anew, with the locks as they are by then: they are renewed
meanwhile.

Settling is what is done about a release after any doubt: no answer, a refusal, a claim whose item
has to be read. The lock is read. It has the claim's nonce: the item is read and the release built
anew from it. It has not: a row in the history with the claim's nonce means that the release landed;
no such row means that the lock was taken away, and the run is late. Then its row in the history is
written, and its result into the item if the rules say so.

Writing does not give up while the store is away: it asks again until it is answered. Where no
answer comes to the release of one run time and again, it is recorded as failed, in few words: it
may be what the run says that keeps the answer away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TypeVar

from msgspec import Struct

from blackboard.errors import BadInput, BadRow
from blackboard.model import Claim, Ended, Outcome, Run, replace
from blackboard.phrases import LONGEST_OUTPUT, cut_front, cut_middle
from blackboard.protocol import keys
from blackboard.protocol.batches import late_ops, release_ops
from blackboard.protocol.claims import claim_from, holds
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import text_of
from blackboard.results import not_kept, warnings_in, warnings_of
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
from blackboard.spec import RunSettings
from blackboard.table import (
    Busy,
    Conflict,
    Delete,
    Op,
    Refused,
    TableError,
    Unavailable,
    Unknown,
    units,
)

ROWS_OF_A_RELEASE = 4
"""At the most: the lock goes, the next token comes, the item and the history say so."""
ROUNDS = 3
"""Times that a release is answered in a batch and does not land, before it is settled by itself."""
FAILURES = 4
"""Tries of a batch for which the store has no time, before each release is settled by itself; and
of one release, before it lets others go first."""
UNANSWERED = 6
"""Tries of one release without a good answer, before it is tried in few words."""
REFUSED = "the store refused the outcome"


class ReleaseOutcome(StrEnum):
    """What became of a release."""

    DONE = "done"
    LATE = "late"
    """Its lock had been taken away: the history says superseded."""
    DROPPED = "dropped"
    """Its item is gone, was made anew or cannot be read, or the store refuses the outcome."""


class FinishedRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run that has ended and is to be released: its claim, and how it ended."""

    claim: Claim
    ended: Ended
    settings: RunSettings
    requeue: bool = False
    """Cut short by its worker's shutdown: due again at once."""


class Released(Struct, frozen=True, gc=False, kw_only=True):
    """A run that was released: how, its row in the history, and its item's next ready time."""

    how: ReleaseOutcome
    run: Run
    ready: datetime | None = None
    retried: bool = False
    """Whether the same slot is run again, as far as that was seen."""


class Leases:
    """The locks of the runs that are released. These are not renewed meanwhile; those of a worker
    are.
    """

    async def quiet(self, finished: Sequence[FinishedRun]) -> list[FinishedRun]:
        """Returns the runs with their locks as they are now. From then on these are renewed only at
        need: a renewal changes the etag that the release states.
        """
        return list(finished)

    def renewed(self, finished: Sequence[FinishedRun]) -> None:
        """From then on they are renewed as usual."""


Answer = TypeVar("Answer")
Landed = Callable[[Sequence[tuple[FinishedRun, Released]]], Awaitable[None]]


async def _nothing_more(_landed: Sequence[tuple[FinishedRun, Released]]) -> None:
    """What is done about releases that have landed where the caller waits for all."""


async def release(
    board: BoardTable,
    finished: Sequence[FinishedRun],
    *,
    leases: Leases | None = None,
    landed: Landed = _nothing_more,
) -> list[Released]:
    """Release runs, as many in one batch as fit it. Returns when all are in the history; waits for
    the store as long as it takes. `landed` is called with those that are, as soon as they are.
    """
    leases = leases or Leases()
    fitted = [fit(one, board.table.max_value) for one in finished]
    # Of two runs of one item the earlier has lost its lock, and a batch has each row once.
    newest = {
        one.claim.id: one.claim.fence for one in sorted(fitted, key=lambda one: one.claim.fence)
    }
    certain: list[FinishedRun] = []
    doubtful: list[FinishedRun] = []
    for one in fitted:
        is_sure = one.claim.item.etag and one.claim.fence == newest[one.claim.id]
        (certain if is_sure else doubtful).append(one)
    sent = await _in_batches(board, certain, leases=leases, landed=landed)
    left = doubtful + sent.left
    leases.renewed(left)
    written = sent.written

    async def settled(one: FinishedRun) -> None:
        nonce = one.claim.nonce
        written[nonce] = await settle(board, one, sent=sent.ready.get(nonce))
        await landed([(one, written[nonce])])

    if len(left) > 1:
        for problem in await asyncio.gather(*map(settled, left), return_exceptions=True):
            if problem is not None:
                raise problem
    elif left:
        await settled(left[0])
    return [written[one.claim.nonce] for one in finished]


class _Sent(Struct):
    """What became of releases that were sent in batches. By nonce."""

    written: dict[str, Released] = {}
    ready: dict[str, datetime | None] = {}
    """When the items are ready next, as the last batch said that may have landed."""
    left: list[FinishedRun] = []
    """What is to be settled."""


async def _in_batches(
    board: BoardTable, certain: list[FinishedRun], *, leases: Leases, landed: Landed
) -> _Sent:
    found, rounds, failures = _Sent(), 0, 0
    while certain and rounds < ROUNDS and (failures < FAILURES or len(certain) == 1):
        rounds += 1
        certain = await leases.quiet(certain)
        batches = _batches(
            board, certain, now=await until_answered(board, certain[0].claim.id, board.table.now)
        )
        certain = []
        for batch in batches:
            found.ready |= {one.claim.nonce: done.ready for one, _, done in batch}
            ops = [op for _, ops, _ in batch for op in ops]
            partition = board.partition(batch[0][0].claim.id)
            try:
                await board.table.commit(partition, ops)
            except (Busy, Unavailable) as trouble:
                rounds = 0
                certain += [one for one, _, _ in batch]
                leases.renewed(certain)
                failures += 1
                await board.ready(partition, trouble, failures=failures)
            except Unknown:
                found.left += [one for one, _, _ in batch]
            except (Conflict, Refused) as refusal:
                in_the_way = _whose(batch, refusal.index)
                found.left.append(in_the_way)
                certain += [one for one, _, _ in batch if one is not in_the_way]
            else:
                found.written |= {one.claim.nonce: done for one, _, done in batch}
                await landed([(one, done) for one, _, done in batch])
    found.left += certain
    return found


Prepared = tuple[FinishedRun, list[Op], Released]


def _batches(
    board: BoardTable, finished: Sequence[FinishedRun], *, now: datetime
) -> Iterator[list[Prepared]]:
    """Releases packed into batches of one partition, below the store's limits."""
    by_partition: dict[str, list[FinishedRun]] = {}
    for one in finished:
        by_partition.setdefault(board.partition(one.claim.id), []).append(one)
    for group in by_partition.values():
        batch: list[Prepared] = []
        rows = size = 0
        for one in group:
            ops, done = prepare(board, one, one.claim, now=now)
            weight = sum(_weight(op) for op in ops)
            full = rows + len(ops) > board.table.max_rows or size + weight > board.table.max_bytes
            if batch and full:
                yield batch
                batch, rows, size = [], 0, 0
            batch.append((one, ops, done))
            rows, size = rows + len(ops), size + weight
        yield batch


def _whose(batch: Sequence[Prepared], index: int) -> FinishedRun:
    """The release that an operation of the batch belongs to."""
    return [one for one, ops, _ in batch for _ in ops][index]


def _weight(op: Op) -> int:
    """Bytes of an operation, estimated high: keys and JSON escapes included."""
    if isinstance(op, Delete):
        return 600
    texts = "".join([value for value in op.data.values() if type(value) is str])
    size = len(texts) if texts.isascii() else len(texts.encode("utf-8", "surrogatepass"))
    return 1000 + 60 * len(op.data) + 2 * size


def releases_at_once(board: BoardTable) -> int:
    """Releases that fit one batch."""
    return board.table.max_rows // ROWS_OF_A_RELEASE


async def each_for_itself(
    write: Callable[[Sequence[FinishedRun]], Awaitable[list[Released]]],
    batch: Sequence[FinishedRun],
) -> list[Released]:
    """Release runs together by `write`. If that raises what nothing foresees, each is released by
    itself, and one for which it is raised again is dropped: its lock goes stale.
    """
    try:
        return await write(batch)
    except Exception as problem:  # noqa: BLE001 - one run must not end its worker
        if len(batch) > 1:
            return [one for each in batch for one in await each_for_itself(write, [each])]
        claim = batch[0].claim
        error = f"its outcome could not be written: {type(problem).__name__}: {problem}"
        ended = Ended(outcome=Outcome.FAILED, error=cut_middle(error))
        return [Released(how=ReleaseOutcome.DROPPED, run=ended_run(claim, ended, now=claim.start))]


def fit(finished: FinishedRun, limit: int) -> FinishedRun:
    """A run whose outcome fits a row, however it ended: a long error and a long output are cut, a
    result that is too long is replaced by a warning, and one that is no JSON is a failure. The
    warnings of the result are added to those of the run.
    """
    ended = finished.ended
    try:
        text = "" if ended.result is None else text_of(ended.result)
        if (size := units(text)) > limit:
            ended = replace(ended, result=not_kept(text, f"{size:,} characters", limit=limit))
            text = text_of(ended.result)
        warnings = warnings_of((*ended.warnings, *warnings_in(text)))
        ended = replace(ended, warnings=warnings)
    except Exception as odd:  # noqa: BLE001 - whatever it is, it is the fault of this run alone
        problem = f"the result is no JSON that can be kept: {type(odd).__name__}"
        ended = replace(ended, outcome=Outcome.FAILED, result=None, error=problem)
    error, output = cut_middle(ended.error), cut_front(ended.output, LONGEST_OUTPUT)
    return replace(finished, ended=replace(ended, error=error, output=output))


def prepare(
    board: BoardTable, finished: FinishedRun, claim: Claim, *, now: datetime
) -> tuple[list[Op], Released]:
    """The batch that releases an item, built from what `claim` says of it."""
    settings = finished.settings
    if claim.spec != finished.claim.spec:
        settings = edited_settings(board, claim, otherwise=settings)
    run = ended_run(claim, finished.ended, now=now)
    after = released(
        claim.item,
        run,
        settings=settings,
        fraction=board.chance.fraction(),
        requeue=finished.requeue,
        retry_after=finished.ended.retry_after,
        final=finished.ended.final,
    )
    ready = after.ready if after.waits else None
    retried = after.waits and run.outcome in FAILING and after.attempt > claim.attempt
    done = Released(how=ReleaseOutcome.DONE, run=run, ready=ready, retried=retried)
    return release_ops(claim, after, run), done


def edited_settings(board: BoardTable, claim: Claim, *, otherwise: RunSettings) -> RunSettings:
    """The settings of an item that was edited while it ran; those it ran with, if the new ones
    cannot be computed by this worker.
    """
    try:
        return board.resolve(claim.type, claim.spec)
    except (BadInput, ValueError):
        return otherwise


def ended_run(claim: Claim, ended: Ended, *, now: datetime) -> Run:
    """What the history says of a run."""
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


async def settle(board: BoardTable, finished: FinishedRun, *, sent: datetime | None) -> Released:
    """Release one run, or record it as late. `sent` is the ready time in the release that may have
    landed.
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
    """Built from the item as it is now, and again until it lands."""
    claim, unanswered = finished.claim, 0
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
        ops, done = prepare(board, finished, current, now=now)
        try:
            await until_answered(board, claim.id, partial(board.commit, claim.id, ops))
        except Unknown as trouble:
            unanswered += 1
            sent = done.ready
            if unanswered >= UNANSWERED:
                # What the run says has got no answer just now. A short text that gets one shows
                # that it is the reason.
                in_few_words = _terse(finished, Refused(0, str(trouble)))
                ops, done = prepare(board, in_few_words, current, now=now)
                with suppress(TableError):  # or the release has landed meanwhile
                    await board.commit(claim.id, ops)
                    return done
                await _until_ready(board, claim.id, trouble, failures=unanswered)
        except Conflict:
            continue
        except Refused as refused:
            if _is_terse(finished):
                return Released(how=ReleaseOutcome.DROPPED, run=done.run)
            finished = _terse(finished, refused)
        else:
            return done


def _terse(finished: FinishedRun, refused: Refused) -> FinishedRun:
    """A run whose outcome the store refuses is recorded as failed, in few words."""
    ended = Ended(outcome=Outcome.FAILED, error=f"{REFUSED}: {refused.reason}")
    return replace(finished, ended=ended)


def _is_terse(finished: FinishedRun) -> bool:
    """Whether its outcome is in few words already: then its lock is left to go stale."""
    return finished.ended.error.startswith(REFUSED)


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
    """Whether a row of the history is what this release wrote, and not what an overrider or an
    operator wrote about it.
    """
    is_as_sent = row.outcome is ended.outcome or row.error.startswith(REFUSED)
    return row.nonce == claim.nonce and is_as_sent and not row.note


async def _late(board: BoardTable, finished: FinishedRun, *, now: datetime) -> Released:
    """Write the history of a run whose lock was taken away, and its item if the rules say so."""
    claim, fenced, unanswered = finished.claim, finished.settings.fenced, 0
    while True:
        run = ended_run(claim, finished.ended, now=now)
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
        except (Unknown, Refused) as trouble:
            unanswered += isinstance(trouble, Unknown)
            if _is_given_up(finished, trouble, unanswered):
                return Released(how=ReleaseOutcome.DROPPED, run=late)
            finished = await _next_words(board, finished, trouble, failures=unanswered)
        else:
            return Released(how=ReleaseOutcome.LATE, run=late)


def _is_given_up(finished: FinishedRun, trouble: TableError, unanswered: int) -> bool:
    """Whether the store takes no late outcome of a run, not even in few words."""
    refuses_all = isinstance(trouble, Refused) and _is_terse(finished)
    return refuses_all or unanswered >= 2 * UNANSWERED


async def _next_words(
    board: BoardTable, finished: FinishedRun, trouble: TableError, *, failures: int
) -> FinishedRun:
    """What is tried next of a late run: few words, where others were refused or got no answer time
    and again.
    """
    if isinstance(trouble, Refused):
        return _terse(finished, trouble)
    if failures > FAILURES:
        await _until_ready(board, finished.claim.id, trouble, failures=failures)
    return _terse(finished, Refused(0, str(trouble))) if failures == UNANSWERED else finished


async def until_answered(
    board: BoardTable, item_id: str, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    """The answer about an item, however long it takes."""
    failures = 0
    while True:
        try:
            return await ask()
        except (Busy, Unavailable) as trouble:
            failures += 1
            await _until_ready(board, item_id, trouble, failures=failures)


async def _until_ready(
    board: BoardTable, item_id: str, trouble: TableError, *, failures: int
) -> None:
    """Wait until the next try. After some, releases that the store takes go first."""
    if failures > FAILURES:
        pause = RELEASES.pause(failures - FAILURES, fraction=board.chance.fraction())
        await board.clock.sleep(pause)
    await board.ready(board.partition(item_id), trouble, failures=failures)
