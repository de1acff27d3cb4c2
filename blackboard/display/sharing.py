"""The groups of partitions of a board: who holds which, and for how long one has had no owner."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.phrases import first_line
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, read_status
from blackboard.rules.next_run import says_future
from blackboard.rules.status import ItemStatus
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
            return timedelta(seconds=max(one.lock.age - one.lock.stale_after, 0.0))
        if one.item.waits:
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
    """Why a partition came to its present owner, as far as the item says; "" for the first one."""
    item = one.item
    return first_line(item.error) or ("taken over" if item.attempt > 1 else "")
