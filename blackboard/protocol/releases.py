"""Releases items: writes the end of their runs, after which they wait again.

Many releases share a batch. When a batch is refused, the release that caused it is settled by
itself (`settling.py`), and the others are sent again without it, a few times. When a batch has no
answer, or the store was busy or away several times, each of its releases is settled by itself; none
waits for another. While the store is busy or away, the locks are renewed, and the batch is built
anew with them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from blackboard.model import Ended, Outcome
from blackboard.phrases import cut_middle
from blackboard.protocol.finished_runs import (
    ROWS_OF_A_RELEASE,
    FinishedRun,
    Released,
    ReleaseOutcome,
    ended_run,
    fit,
    prepare,
)
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.settling import FAILURES, settle, until_answered
from blackboard.table import Busy, Conflict, Delete, Op, Refused, Unavailable, Unknown

ROUNDS = 3
"""Batches in which a release may be refused, before it is settled by itself."""


class Leases:
    """Stops and resumes the renewal of locks whose runs are released. This one is for locks that
    are not renewed; a worker has its own.
    """

    async def quiet(self, finished: Sequence[FinishedRun]) -> list[FinishedRun]:
        """Returns the runs with their locks as they are now. From then on these are renewed only at
        need: a renewal changes the etag that the release states.
        """
        return list(finished)

    def renewed(self, finished: Sequence[FinishedRun]) -> None:
        """From then on the locks are renewed as usual."""


Landed = Callable[[Sequence[tuple[FinishedRun, Released]]], Awaitable[None]]


async def _nothing_more(_landed: Sequence[tuple[FinishedRun, Released]]) -> None:
    """The usual `landed`: the caller waits for all releases, and needs no call for each."""


async def release(
    board: BoardTable,
    finished: Sequence[FinishedRun],
    *,
    leases: Leases | None = None,
    landed: Landed = _nothing_more,
) -> list[Released]:
    """Releases runs, as many in one batch as fit it. Returns when all are in the history; waits for
    the store without a limit. `landed` is called with runs as soon as they are there.
    """
    leases = leases or Leases()
    fitted = [fit(one, board.table.max_value) for one in finished]
    # Of two runs of one item the earlier has lost its lock; and a batch has each row once.
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
    """The results of releases that were sent in batches, by nonce."""

    written: dict[str, Released] = {}
    ready: dict[str, datetime | None] = {}
    """When the items are ready next, by the last batch that may have landed."""
    left: list[FinishedRun] = []
    """The runs that are to be settled."""


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
            return [one for each in batch for one in await each_for_itself(write, [each])]
        claim = batch[0].claim
        error = f"its outcome could not be written: {type(problem).__name__}: {problem}"
        ended = Ended(outcome=Outcome.FAILED, error=cut_middle(error))
        return [Released(how=ReleaseOutcome.DROPPED, run=ended_run(claim, ended, now=claim.start))]
