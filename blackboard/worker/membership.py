"""Which workers there are, as far as they have said so: one row each, in a partition of its own.

A membership row is for people and their commands. No decision about a lock or a token looks at
it: a worker that is not listed may run items, and one that is may be dead. A worker announces
itself once a minute, whatever its cycle: that is all it costs. Who was not seen for two minutes and
ten seconds is called lost; after a day its row is deleted by whoever announces itself first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from blackboard.model import VERSION, Member
from blackboard.protocol.keys import WORKER, end_of, worker_key, workers_partition
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import data_of, record_of, version_of
from blackboard.rules.next_run import is_ahead
from blackboard.table import ANY, Conflict, Delete, Insert, Merge, Op, Row, Unknown, read

ANNOUNCE_EVERY = 60.0
"""Seconds."""
TRY_AGAIN = 5.0
"""Seconds, after an announcement that the store did not answer."""
LOST_AFTER = 2 * ANNOUNCE_EVERY + 10.0
"""Seconds: two announcements are missed, and a slow store takes time."""
FORGOTTEN_AFTER = timedelta(days=1)
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A worker as it announced itself, and how long ago that was by the store's own scale."""

    member: Member
    age: float
    """Seconds; infinity when the host has booted since."""

    @property
    def lost(self) -> bool:
        """Whether it should have been seen again by now."""
        return self.age > LOST_AFTER

    def takes(self, item_type: str) -> bool:
        return item_type in self.member.types.split(",")


async def announce(board: BoardTable, member: Member) -> Member:
    """Write a worker's row: new, or over the one it wrote before. What comes back is announced
    next time, with its changes. `seen` is set here, by the store's clock.

    A lost race or reply is no loss: the next announcement mends it. A row that is gone may say that
    the whole table was deleted and made anew. Raises Remade when that changed the shards.
    """
    partition, key = workers_partition(board.name), worker_key(member.owner)
    if not member.etag:
        await forget_lost(board)
    for _ in range(TRIES):
        member = replace(member, seen=await board.table.now())
        data = data_of(member)
        write: Op = Merge(key, data, member.etag) if member.etag else Insert(key, data)
        try:
            etags = await board.table.commit(partition, [write])
        except (Conflict, Unknown):
            found = await read(board.table, partition, key)
            if found is None and member.etag:
                await board.check_shards()
            member = replace(member, etag=found.etag if found else "")
        else:
            return replace(member, etag=etags[0])
    return member


async def forget(board: BoardTable, owner: str) -> None:
    """Delete the row of a worker that ends in good order."""
    await _delete(board, [Delete(worker_key(owner), ANY)])


async def workers(board: BoardTable) -> list[Sighting]:
    """All that have announced themselves, the longest running first. Rows of a newer version, or
    that cannot be read, are passed over.
    """
    found = [one for row in await _rows(board) if (one := _sighting(board, row))]
    return sorted(found, key=lambda one: (one.member.started, one.member.owner))


async def forget_lost(board: BoardTable) -> None:
    """Delete the rows of workers that were not seen for a day. Where their age cannot be told from
    a first look, their own time counts; so does a time that is still to come, for a clock was
    wrong. A worker that is there after all writes its row again.
    """
    now = await board.table.now()
    for row in await _rows(board):
        one = _sighting(board, row)
        if one is None:
            continue
        seen = one.member.seen
        if seen < now - FORGOTTEN_AFTER or is_ahead(seen, now=now):
            await _delete(board, [Delete(row.key, row.etag)])


def takers(sightings: Sequence[Sighting], item_type: str) -> list[Sighting]:
    """The workers that are there and take a type."""
    return [one for one in sightings if not one.lost and one.takes(item_type)]


async def _rows(board: BoardTable) -> list[Row]:
    partition = workers_partition(board.name)
    return [row async for row in board.table.scan(partition, WORKER, end_of(WORKER))]


def _sighting(board: BoardTable, row: Row) -> Sighting | None:
    if version_of(row.data) > VERSION:
        return None
    try:
        return Sighting(member=record_of(Member, row), age=board.table.age(row))
    except ValueError:
        return None


async def _delete(board: BoardTable, ops: Sequence[Op]) -> None:
    try:
        await board.table.commit(workers_partition(board.name), ops)
    except (Conflict, Unknown):
        return  # it is gone, or whoever looks next sees to it
