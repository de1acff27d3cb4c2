"""Letting items go: the releases of the runs that have ended, many in one batch.

Of a batch that is refused, the release that was in the way is settled by itself, and the others are
sent again without it, a few times. Of a batch without an answer, each is settled. One that the
store has no time for is built anew, with the locks as they are by then: they are renewed meanwhile.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from blackboard.board import Board
from blackboard.table import Busy, Conflict, Delete, Op, Refused, Unavailable, Unknown
from blackboard.verbs.finished import Finished, Released, fit, prepare
from blackboard.verbs.settle import settle
from blackboard.verbs.until_answered import Pause, until_answered

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


def releases_at_once(board: Board) -> int:
    """Releases that fit one batch."""
    return board.table.max_rows // ROWS_OF_A_RELEASE


async def release(
    board: Board, finished: Sequence[Finished], *, leases: Leases = NO_LEASES
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
    board: Board, finished: Sequence[Finished], *, now: datetime
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
