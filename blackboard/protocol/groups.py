"""The groups of a board: the state of their partitions, what is wrong with their rows, and which
settings their items may not have. The own row of a board of elections is checked as that of a
group's board.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import VERSION, Item, Mark, decoded_as
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import workers
from blackboard.protocol.rows import version_of
from blackboard.protocol.status import read_status
from blackboard.rules.groups import Partition, PartitionState, judged
from blackboard.schedule.times import LONGEST, format_duration, parse_duration
from blackboard.spec import INTERVAL, OF_ITS_TIMES, SHORTEST_LEASE, RunSettings, Spec
from blackboard.table import Row

ELECTION_EVERY = "1s"
"""The schedule of an election: without a leader it is due at once."""
LONGEST_ELECTION_LEASE = timedelta(hours=1)
ROUNDS = 2
"""The rounds for which a worker of a group counts as live that has not announced itself, as it does
in each: a killed one does no more when others take over what it held.
"""
USUAL_LEASE = 30.0
"""Seconds: the lease that is assumed where a group's row has none that is valid."""


class GroupLeases(Struct, frozen=True, kw_only=True):
    """A group, as read from the rows of its board and of the board that it belongs to."""

    name: str
    """Where the key of its row names no group: the key."""
    lease: timedelta
    partitions: Sequence[Partition]
    now: datetime
    """When it was read, by the store's clock."""
    board: str = ""
    """The name of its board."""
    workers: Sequence[str] = ()
    """Those that have announced themselves in the last rounds, and are not about to end."""
    damaged: Sequence[str] = ()
    """What is wrong with its rows, and the remedies."""
    newer: Sequence[str] = ()
    """The same, for rows that a newer version wrote."""
    unreadable: Sequence[str] = ()
    """The keys of the rows of partitions that cannot be read."""

    def those(self, state: PartitionState) -> Sequence[Partition]:
        return [partition for partition in self.partitions if partition.state is state]

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
        """The longest time for which a partition has had no worker."""
        return max((partition.free for partition in self.partitions), default=timedelta(0))

    @property
    def is_well(self) -> bool:
        """Whether no partition is free for longer than its lease or set back, no pump of it fails,
        and no row of it is damaged.
        """
        is_whole = not self.damaged and not self.unreadable
        return is_whole and not (self.unowned or self.failing or self.set_back)

    @property
    def counts(self) -> Sequence[int]:
        """How many partitions each worker holds, ascending; 0 for a live one that holds none."""
        held = Counter(dict.fromkeys(self.workers, 0))
        held.update(partition.holder for partition in self.partitions if partition.holder)
        return sorted(held.values())


async def read_groups(board: BoardTable, group: str | None = None) -> list[GroupLeases]:
    """The groups of a board, in the order of their names, or only `group`. Raises BadInput when
    that does not exist.
    """
    if group is not None:
        keys.check_group_name(group)
    groups = [await _read(board, row) async for row in _rows(board) if group in {None, _name(row)}]
    if group is not None and not groups:
        raise BadInput("group", f"there is no {group!r} on this board", "`blackboard leases`")
    return groups


async def group_names(board: BoardTable) -> list[str]:
    """The names of the groups of a board, in their order."""
    return [_name(row) async for row in _rows(board) if is_group(row)]


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
    own_row = await group.own_row()
    troubles = [(row, group_trouble(row, meta))]
    troubles += [] if own_row is None else [(own_row, board_trouble(own_row, own))]
    read = await read_status(group)
    newer = [why for bad, why in troubles if why and version_of(bad.data) > VERSION]
    newer += [
        f"a newer version wrote the row {key} in {group.name} (upgrade blackboard)"
        for key in group.newer
    ]
    return GroupLeases(
        name=name,
        lease=lease,
        partitions=[
            judged(partition, lease=lease, now=read.now, resumed=resumed_at(partition.item))
            for partition in read.statuses
            if partition.item.type == name
        ],
        now=read.now,
        board=group.name,
        workers=[
            member.owner
            for member in await workers(group)
            if member.slots and member.age <= ROUNDS * member.cycle
        ],
        damaged=[why for bad, why in troubles if why and version_of(bad.data) <= VERSION],
        newer=newer,
        unreadable=group.unreadable,
    )


def resumed_at(item: Item) -> datetime | None:
    """When a person last resumed it; None: never, or that cannot be read."""
    mark = decoded_as(Mark, item.resumed)
    return mark.at if mark is not None else None


# ---- the items of a group


def check_not_made(board: str) -> None:
    """Raises BadInput on the board of a group or of elections: no command adds or renames an item
    there. Workers and candidates make the items that programs name, and would serve any other as
    well.
    """
    group = keys.group_of(board)
    if group == keys.LEADERS:
        problem = f"{board} has the elections that candidates enter, and no others"
        raise BadInput("id", problem, "a candidate that enters an election makes it")
    if group:
        problem = f"{board} has the partitions that the pump {group} names, and no others"
        raise BadInput("id", problem, "change the `partitions` of the pump")


def check_no_pump(board: str, item_type: str, settings: RunSettings) -> None:
    """Raises BadInput for an item of a pump's type that is not a partition: no worker runs it."""
    if settings.endless and not keys.group_of(board):
        problem = f"{item_type!r} is a pump, whose workers make the partitions that it names"
        where = keys.group_board(board, item_type)
        raise BadInput("type", problem, f"`blackboard --board {where} show`")


def check_held(
    board: str, spec: Spec, *, item_type: str | None, before: Spec | None = None
) -> None:
    """Raises BadInput, on the board of a group or of elections, for a setting with which an item
    could become done, and for a type that no worker of the group serves. A setting may stay as it
    is in the spec `before`, or become the usual one. `item_type` is None where it does not change.
    """
    group = keys.group_of(board)
    if not group:
        return
    usual = Spec(every=ELECTION_EVERY) if group == keys.LEADERS else Spec()
    which = f"the {'elections' if group == keys.LEADERS else 'partitions'} of {board} are"
    wrong = [
        name
        for name in OF_ITS_TIMES
        if getattr(spec, name) not in (getattr(usual, name), getattr(before or Spec(), name))
    ]
    if wrong:
        name = min(wrong, key=lambda field: not getattr(spec, field))  # one that was set, if any
        none = "time limit" if name == "timeout" else "schedule"
        raise BadInput(name, f"{which} held, and have no {none}", f"leave out {name}")
    if group == keys.LEADERS:
        lease = spec.stale_after
        if lease not in {(before or usual).stale_after, INTERVAL}:
            check_election_lease(parse_duration(lease or "", "stale_after"), "stale_after")
    elif item_type not in {None, group}:
        raise BadInput("type", f"{which} of the type {group}", "leave it")


def check_no_params(board: str) -> None:
    """Raises BadInput on the board of a group or of elections: a run with params of its own begins
    without the checkpoint that was saved, and a partition goes on where the last one saved.
    """
    if keys.group_of(board):
        problem = f"what is held in {board} has no runs with params of their own"
        raise BadInput("params", problem, "leave them out; `edit` changes the params of the item")


def check_election_lease(lease: timedelta, field: str) -> None:
    """Raises BadInput for a lease that no candidate can have."""
    if lease < SHORTEST_LEASE:
        problem = f"{format_duration(lease)} is too short: a leader renews every third of it"
        raise BadInput(field, problem, f"{format_duration(SHORTEST_LEASE)} at the least")
    if lease > LONGEST_ELECTION_LEASE:
        problem = f"{format_duration(lease)} is too long: a dead leader is replaced after it"
        raise BadInput(field, problem, f"{format_duration(LONGEST_ELECTION_LEASE)} at the most")


# ---- what is wrong with a row


def is_group(row: Row) -> bool:
    """Whether the key of a group's row has a name that a group can have."""
    try:
        keys.check_group_name(row.key.removeprefix(keys.GROUP))
    except BadInput:
        return False
    return True


def lease_of(group: Row) -> float | None:
    """The lease in a group's row, in seconds; None: it has none that is valid."""
    lease = group.data.get("lease")
    if isinstance(lease, bool) or not isinstance(lease, int | float):
        return None
    return float(lease) if 0 < lease <= LONGEST.total_seconds() else None


def wrong_columns(group: Row) -> list[str]:
    """The columns of a group's row, of this version, that have no valid value."""
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
    columns = ", ".join(wrong_columns(row))
    remedy = "(a worker of the group that starts writes it anew)"
    return f"{where} has no good {columns} {remedy}" if columns else ""


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
    if type(shards) is not int or shards != 1:
        return f"{where} has no good shards (delete it: it is made anew)"
    return "" if version else f"{where} has no good version (delete it: it is made anew)"
