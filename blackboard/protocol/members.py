"""The workers of a board: a row for each, in a partition of its own.

These rows are for people and their commands, and for workers to find each other. They permit
nothing: a worker that is not listed may run items, and one that is listed may be dead. A worker
writes its row once a minute, whatever its cycle. After two minutes and ten seconds without a write
it is called lost; after a day, the next worker that starts deletes its row. Candidates of
elections, and the workers of a group, have such rows on their own boards: they write them as often
as they look at these boards, and are lost after their own lease.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta

from blackboard.model import Member, TypesTaken, replace
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import WORKER, end_of, worker_key, workers_partition
from blackboard.protocol.rows import data_of, readable
from blackboard.rules.next_run import is_ahead
from blackboard.rules.status import ItemStatus
from blackboard.table import (
    ANY,
    Conflict,
    Delete,
    Insert,
    Merge,
    Op,
    Replace,
    Row,
    Unknown,
    read,
    try_delete,
)

FORGOTTEN_AFTER = timedelta(days=1)
TRIES = 5


async def announce(board: BoardTable, member: Member) -> Member:
    """Writes a worker's row, or overwrites the one that it wrote before. Returns the row as it is
    now, for the next announcement. `seen` is set here, by the store's clock.

    A lost race or reply does no harm: the next announcement repairs it. A damaged row is replaced.
    After the first announcement the rows of lost workers are deleted: until it is written no time
    passes, so that of a new worker `seen` is when it `started`.
    A row that is gone may mean that the whole table was deleted and made anew. Raises Remade when
    that changed the shards, BoardGone while the board is not there.
    """
    partition, key = workers_partition(board.name), worker_key(member.owner)
    is_new, is_damaged = not member.etag, False
    for _ in range(TRIES):
        member = replace(member, seen=await board.table.now())
        data = data_of(member)
        write: Op = Merge(key, data, member.etag) if member.etag else Insert(key, data)
        if is_damaged:
            write = Replace(key, data, member.etag)
        try:
            etags = await board.table.commit(partition, [write])
        except (Conflict, Unknown):
            row = await read(board.table, partition, key)
            if row is None and member.etag:
                await board.check_shards()
            is_damaged = row is not None and readable(Member, row) is None
            member = replace(member, etag=row.etag if row else "")
        else:
            if is_new:
                await forget_lost(board)
            return replace(member, etag=etags[0])
    return member


async def forget(board: BoardTable, owner: str) -> None:
    """Deletes the row of a worker that ends in good order."""
    await try_delete(board.table, workers_partition(board.name), [Delete(worker_key(owner), ANY)])


async def workers(board: BoardTable) -> list[Member]:
    """All workers that have announced themselves, the longest running first. Rows of a newer
    version, or that cannot be read, are passed over.
    """
    rows = await _rows(board)
    members = [readable(Member, row, age=board.table.age(row)) for row in rows]
    return sorted(filter(None, members), key=lambda member: (member.started, member.owner))


async def busy_workers(board: BoardTable) -> list[Member]:
    """As `workers`, with the number of locks that each holds now: what it has announced may be a
    minute old. It may hold more than it has slots, while releases are written.
    """
    held = Counter([lock.owner async for lock in board.locks()])
    return [replace(member, running=held[member.owner]) for member in await workers(board)]


async def forget_lost(board: BoardTable) -> None:
    """Deletes the rows of workers that announced nothing for a day, by the time in the row: the age
    of a row may not be known when it is read once. A row with a time in the future, from when a
    clock was wrong, is deleted too. A worker that is alive after all writes its row again.
    """
    now, ops = await board.table.now(), list[Delete]()
    for row in await _rows(board):
        member = readable(Member, row)
        if member is None:
            continue
        if member.seen < now - FORGOTTEN_AFTER or is_ahead(member.seen, now=now):
            ops.append(Delete(row.key, row.etag))
    await try_delete(board.table, workers_partition(board.name), ops)


def takers(members: Iterable[Member], item_type: str) -> list[Member]:
    """The workers that are not lost and take a type."""
    return [member for member in members if not member.lost and member.takes(item_type)]


def served_types(members: Iterable[Member]) -> TypesTaken:
    """The types for which there are `takers`; of many items it is computed once."""
    return TypesTaken.of(member for member in members if not member.lost)


def lost_since(members: Iterable[Member]) -> dict[str, float]:
    """Seconds since each lost worker was last seen."""
    return {member.owner: member.age for member in members if member.lost}


def with_silence(status: ItemStatus, lost: Mapping[str, float]) -> ItemStatus:
    """The status of an item, with `silent` set where it runs and its worker is `lost`
    (`lost_since`); not where the worker is alive, or has no row.
    """
    return replace(status, silent=lost.get(status.item.owner)) if status.running else status


async def _rows(board: BoardTable) -> list[Row]:
    partition = workers_partition(board.name)
    return [row async for row in board.table.scan(partition, WORKER, end_of(WORKER))]
