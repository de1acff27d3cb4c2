"""Who holds what on a board: the partitions of its groups, the terms of its elections.

For how long a partition has had no owner, and whether an election has been without a leader for too
long, is judged here.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import Outcome
from blackboard.phrases import first_line
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, read_status
from blackboard.rules.next_run import says_future
from blackboard.rules.status import ItemStatus
from blackboard.rules.transitions import FAILING
from blackboard.schedule.times import parse_duration
from blackboard.spec import decode_spec
from blackboard.table import Row


class GroupLeases(Struct, frozen=True, kw_only=True):
    """A group, as the rows of its board and of its parent say."""

    name: str
    lease: timedelta
    partitions: Sequence[ItemStatus]
    now: datetime
    """By the store's clock."""

    def owner_of(self, one: ItemStatus) -> str:
        """The worker that holds a partition, "" if none does whose lease lasts."""
        return one.item.owner if one.item.running and not one.stale else ""

    def free_for(self, one: ItemStatus) -> timedelta:
        """For how long a partition that is there to be held has had no owner."""
        since: datetime | None = None
        if one.stale and one.lock is not None:
            if math.isfinite(one.lock.age):
                return timedelta(seconds=max(one.lock.age - one.lock.stale_after, 0.0))
            since = one.item.start  # the host has booted since: no later than that it was renewed
        elif one.item.waits:
            since = one.item.ready
        return max(self.now - since, timedelta(0)) if since else timedelta(0)

    def is_set_back(self, one: ItemStatus) -> bool:
        """Whether a partition without an owner was let go in the future: a clock was wrong, and
        nothing says for how long it has been free.
        """
        return one.item.waits and says_future(one.item, now=self.now)

    @property
    def free(self) -> timedelta:
        """The longest of these times."""
        return max(map(self.free_for, self.partitions), default=timedelta(0))

    @property
    def is_well(self) -> bool:
        """Whether no partition is free for longer than its lease; none that is set back either."""
        return self.free <= self.lease and not any(map(self.is_set_back, self.partitions))

    @property
    def counts(self) -> Sequence[int]:
        """How many each worker holds, which holds any."""
        owners = Counter(filter(None, map(self.owner_of, self.partitions)))
        return sorted(owners.values())


async def read_groups(board: BoardTable, group: str | None = None) -> list[GroupLeases]:
    """The groups of a board, in the order of their names, or one. Raises BadInput when it is not
    there.
    """
    if group is not None:
        keys.check_group_name(group)
    found = [await _read(board, row) async for row in _rows(board) if group in {None, _name(row)}]
    if group is not None and not found:
        raise BadInput("group", f"there is no {group!r} on this board", "`blackboard leases`")
    return found


async def _rows(board: BoardTable) -> AsyncIterator[Row]:
    meta = keys.meta_partition(board.name)
    async for row in board.table.scan(meta, keys.GROUP, keys.end_of(keys.GROUP)):
        if row.data.get("kind") == "pump":
            yield row


def _name(row: Row) -> str:
    return row.key.removeprefix(keys.GROUP)


async def _read(board: BoardTable, row: Row) -> GroupLeases:
    status = await read_status(board.group(_name(row)))
    lease = row.data.get("lease")
    return GroupLeases(
        name=_name(row),
        lease=timedelta(seconds=lease if isinstance(lease, int | float) else 30.0),
        partitions=[one for one in status.statuses if one.item.type == _name(row)],
        now=status.now,
    )


def last_move(one: ItemStatus) -> str:
    """Why a partition came to its present owner, as far as the item says; "" for the first one.
    Where one was taken over, its error is of the run before that. The item does not say that one
    was taken over after it had been let go: of that, the words are those of the letting go.
    """
    item = one.item
    if item.attempt > 1 and item.outcome not in {*FAILING, Outcome.CANCELLED}:
        return "taken over"
    return first_line(item.error)


# ---- elections


def has_no_leader(one: ItemStatus, now: datetime) -> bool:
    """Whether an election has had no leader for longer than its lease."""
    if one.stale and one.lock is not None:
        return one.lock.age - one.lock.stale_after > _lease_of(one)
    if one.item.waits and says_future(one.item, now=now):
        return True  # a clock was wrong: nothing says for how long
    return one.item.waits and (now - one.item.ready).total_seconds() > _lease_of(one)


def _lease_of(one: ItemStatus) -> float:
    """Seconds; infinity where the item does not say."""
    text = decode_spec(one.item.spec).stale_after
    return parse_duration(text).total_seconds() if text else math.inf


# ---- for programs


class PartitionRecord(Struct, frozen=True, kw_only=True):
    """A partition of a group."""

    id: str
    owner: str | None
    """The worker that holds it."""
    since: datetime | None
    fence: int
    renewed: float | None
    """Seconds ago; None without a lock."""
    free: float
    """Seconds without an owner."""
    paused: bool
    checkpoint: str | None
    failures: int
    last_move: str | None
    """Why it came to its present owner, as far as its item says."""


class GroupRecord(Struct, frozen=True, kw_only=True):
    """A group of partitions."""

    group: str
    kind: str
    lease: float
    well: bool
    """Whether no partition is free for longer than its lease."""
    held: int
    workers: int
    free: float
    """Seconds for which a partition has had no owner; the longest of them."""
    partitions: tuple[PartitionRecord, ...]


class ElectionRecord(Struct, frozen=True, kw_only=True):
    """An election."""

    election: str
    leader: str | None
    since: datetime | None
    term: int
    """The highest so far."""
    kind: str
    lease: float | None
    renewed: float | None
    """Seconds ago; None without a lock."""
    paused: bool
    late: bool
    """Whether it has had no leader for longer than its lease, and is not paused."""


def group_record(one: GroupLeases) -> GroupRecord:
    """A group as it stood when it was read."""
    return GroupRecord(
        group=one.name,
        kind="pump",
        lease=one.lease.total_seconds(),
        well=one.is_well,
        held=sum(one.counts),
        workers=len(one.counts),
        free=one.free.total_seconds(),
        partitions=tuple(_partition_record(one, part) for part in one.partitions),
    )


def _partition_record(group: GroupLeases, one: ItemStatus) -> PartitionRecord:
    owner = group.owner_of(one) or None
    return PartitionRecord(
        id=one.item.id,
        owner=owner,
        since=one.item.start if owner else None,
        fence=one.item.fence,
        renewed=_renewed(one),
        free=group.free_for(one).total_seconds(),
        paused=one.item.is_paused,
        checkpoint=one.item.checkpoint or None,
        failures=one.item.failures,
        last_move=last_move(one) or None,
    )


def election_record(one: ItemStatus, now: datetime) -> ElectionRecord:
    """An election as it stood when it was read."""
    item, lease = one.item, _lease_of(one)
    leads = one.lock is not None and not one.stale
    return ElectionRecord(
        election=item.id,
        leader=item.owner if leads else None,
        since=item.start if leads else None,
        term=item.fence,
        kind=item.type,
        lease=lease if math.isfinite(lease) else None,
        renewed=_renewed(one),
        paused=item.is_paused,
        late=has_no_leader(one, now),
    )


def _renewed(one: ItemStatus) -> float | None:
    """Seconds since the lock was renewed; None without one, or if the host has booted since."""
    age = math.inf if one.lock is None else one.lock.age
    return round(age, 3) if math.isfinite(age) else None
