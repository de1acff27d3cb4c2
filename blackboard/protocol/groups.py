"""The groups of a board: how their partitions stand, what is wrong with their rows, and what their
items cannot be given. The own row of a board of elections is as that of a group's board.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import VERSION, Item, Mark
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, read_status
from blackboard.protocol.rows import version_of
from blackboard.rules.groups import Partition, PartitionState, judged
from blackboard.schedule.times import LONGEST
from blackboard.spec import OF_ITS_TIMES, Spec
from blackboard.table import Row, read

ELECTION_EVERY = "1s"
"""The schedule of an election: one that is free is due at once."""
USUAL_LEASE = 30.0
"""Seconds: the lease of a pump that says none, where a group's row cannot be read."""


class GroupLeases(Struct, frozen=True, kw_only=True):
    """A group, as the rows of its board and of its parent say."""

    name: str
    """Of a row whose key names no group: the key."""
    lease: timedelta
    partitions: Sequence[Partition]
    now: datetime
    """By the store's clock."""
    board: str = ""
    """The name of its board."""
    damaged: Sequence[str] = ()
    """What is wrong with its rows, and the remedies."""
    newer: Sequence[str] = ()
    """The same of rows that a newer version wrote."""
    unreadable: Sequence[str] = ()
    """The keys of the rows of partitions that cannot be read."""

    def those(self, state: PartitionState) -> Sequence[Partition]:
        """The partitions in a state."""
        return [one for one in self.partitions if one.state is state]

    @property
    def failing(self) -> Sequence[Partition]:
        return self.those(PartitionState.FAILING)

    @property
    def unowned(self) -> Sequence[Partition]:
        return self.those(PartitionState.UNOWNED)

    @property
    def set_back(self) -> Sequence[Partition]:
        return self.those(PartitionState.SET_BACK)

    @property
    def free(self) -> timedelta:
        """For how long a partition has had no owner, the longest time."""
        return max((one.free for one in self.partitions), default=timedelta(0))

    @property
    def is_well(self) -> bool:
        """Whether no partition is free for longer than its lease or set back, no pump of it fails,
        and no row of it is damaged.
        """
        is_whole = not self.damaged and not self.unreadable
        return is_whole and not (self.unowned or self.failing or self.set_back)

    @property
    def counts(self) -> Sequence[int]:
        """How many each worker holds, which holds any."""
        owners = [one.holder for one in self.partitions if one.holder]
        return sorted(Counter(owners).values())


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


def _rows(board: BoardTable) -> AsyncIterator[Row]:
    meta = keys.meta_partition(board.name)
    return board.table.scan(meta, keys.GROUP, keys.end_of(keys.GROUP))


def _name(row: Row) -> str:
    return row.key.removeprefix(keys.GROUP)


async def _read(board: BoardTable, row: Row) -> GroupLeases:
    """A group, as far as its rows can be read."""
    meta, name = keys.meta_partition(board.name), _name(row)
    lease = timedelta(seconds=lease_of(row) or USUAL_LEASE)
    if not is_group(row):
        problem = f"the key of the row {row.key} in {meta} names no group (delete it)"
        now = await board.table.now()
        return GroupLeases(name=row.key, lease=lease, partitions=(), now=now, damaged=(problem,))
    group = board.group(name)
    own = keys.meta_partition(group.name)
    its = await read(board.table, own, keys.BOARD_KEY)
    found = [(row, group_trouble(row, meta))]
    found += [] if its is None else [(its, board_trouble(its, own))]
    status = await read_status(group)
    newer = [why for one, why in found if why and version_of(one.data) > VERSION]
    newer += [
        f"a newer version wrote the row {key} in {group.name} (upgrade blackboard)"
        for key in group.newer
    ]
    return GroupLeases(
        name=name,
        lease=lease,
        partitions=[
            judged(one, lease=lease, now=status.now, resumed=resumed_at(one.item))
            for one in status.statuses
            if one.item.type == name
        ],
        now=status.now,
        board=group.name,
        damaged=[why for one, why in found if why and version_of(one.data) <= VERSION],
        newer=newer,
        unreadable=group.unreadable,
    )


def resumed_at(item: Item) -> datetime | None:
    """When a person last resumed it; None also where that cannot be read."""
    try:
        return msgspec.json.decode(item.resumed, type=Mark).at if item.resumed else None
    except (ValueError, RecursionError):
        return None


# ---- what is held


def check_held(
    board: str, spec: Spec, *, item_type: str | None, before: Spec | None = None
) -> None:
    """On the board of a group or of elections, refuse what could leave an item done, or of a type
    that no worker of the group serves. What the spec `before` says already may stay, and may be
    taken back. `item_type` is None where that does not change. Raises BadInput.
    """
    group = keys.group_of(board)
    if not group:
        return
    usual = Spec(every=ELECTION_EVERY) if group == keys.LEADERS else Spec()
    which = f"the {'elections' if group == keys.LEADERS else 'partitions'} of {board} are"
    for name in OF_ITS_TIMES:
        allowed = getattr(usual, name), getattr(before or Spec(), name)
        if getattr(spec, name) not in allowed:
            raise BadInput(name, f"{which} held, and have no schedule", f"leave out {name}")
    if group != keys.LEADERS and item_type not in {None, group}:
        raise BadInput("type", f"{which} of the type {group}", "leave it")


# ---- what is wrong with a row


def is_group(row: Row) -> bool:
    """Whether the key of a row of a group has the name of one."""
    try:
        keys.check_group_name(row.key.removeprefix(keys.GROUP))
    except BadInput:
        return False
    return True


def lease_of(group: Row) -> float | None:
    """The lease that a group's row says, in seconds; None: it says no time that can be one."""
    lease = group.data.get("lease")
    if type(lease) not in (int, float):
        return None
    assert isinstance(lease, int | float)
    return float(lease) if 0 < lease <= LONGEST.total_seconds() else None


def wrong_columns(group: Row) -> list[str]:
    """The columns of a group's row, of this version, that say nothing that can be."""
    wrong = {
        "version": version_of(group.data) < 1,
        "kind": group.data.get("kind") != "pump",
        "lease": lease_of(group) is None,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


def group_trouble(row: Row, partition: str) -> str:
    """What is wrong with the row of a group, and the remedy; "" for nothing."""
    where = f"the row {row.key} in {partition}"
    if version_of(row.data) > VERSION:
        return f"a newer version wrote {where} (upgrade blackboard)"
    said = ", ".join(wrong_columns(row))
    remedy = "(a worker of the group that starts writes it anew)"
    return f"{where} has no good {said} {remedy}" if said else ""


def board_trouble(row: Row, partition: str) -> str:
    """What is wrong with the own row of the board of a group or of elections, which has one shard,
    and the remedy; "" for nothing.
    """
    where, version = f"the row {row.key} in {partition}", version_of(row.data)
    if version > VERSION:
        return f"a newer version wrote {where} (upgrade blackboard)"
    shards = row.data.get("shards")
    if type(shards) is int and shards > 1:
        return f"{where} says {shards} shards, not 1 (delete it: it is made anew)"
    is_right = shards == 1 and type(shards) is int
    wrong = "shards" if not is_right else "" if version else "version"
    return f"{where} has no good {wrong} (delete it: it is made anew)" if wrong else ""
