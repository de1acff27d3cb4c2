"""Who holds what on a board: the partitions of its groups, the terms of its elections.

For how long a partition has had no owner, whether its pump fails, and whether an election has been
without a leader for too long, is judged here.

A pump has no good end, so its item counts all failures that there ever were. It fails when no
worker holds its partition, and the last run ended with a failure before it was a lease old: one
that has worked for long and failed is run again at once, and no failing one. Not promised: that a
pump which fails is found while it runs again.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadInput, BadSpec
from blackboard.model import VERSION, Item, Mark, Outcome
from blackboard.phrases import first_line, plural, some, span
from blackboard.protocol import keys
from blackboard.protocol.leaders import Elections, read_elections
from blackboard.protocol.reading import BoardTable, read_status
from blackboard.protocol.rows import board_trouble, group_trouble, lease_of, version_of
from blackboard.records import decoded_as
from blackboard.rules import due
from blackboard.rules.next_run import says_future
from blackboard.rules.status import ItemStatus
from blackboard.rules.transitions import FAILING
from blackboard.spec import decode_spec, resolve
from blackboard.table import Row, read

USUAL_LEASE = 30.0
"""Seconds: the lease of a pump that says none, where a group's row cannot be read."""
MOST_NAMED = 5
"""Rows, or partitions, that are named in a line."""


class GroupLeases(Struct, frozen=True, kw_only=True):
    """A group, as the rows of its board and of its parent say."""

    name: str
    """Of a row whose key names no group: the key."""
    lease: timedelta
    partitions: Sequence[ItemStatus]
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

    @property
    def problem(self) -> str:
        """What is wrong with its rows, and which of its pumps fail, in a line; "" for nothing."""
        lost = unreadable_words(self.board, self.unreadable)
        words = [*self.damaged, *self.newer, lost, self._failing_words]
        return "; ".join(one for one in words if one)

    def free_for(self, one: ItemStatus) -> timedelta:
        """For how long a partition that is there to be held has had no owner."""
        since: datetime | None = None
        if one.stale and one.lock is not None:
            if math.isfinite(one.lock.age):
                return timedelta(seconds=max(one.lock.age - one.lock.stale_after, 0.0))
            since = one.item.start  # the host has booted since: no later than that it was renewed
        elif one.item.waits:
            since = _let_go(one.item)
        return max(self.now - since, timedelta(0)) if since else timedelta(0)

    def is_set_back(self, one: ItemStatus) -> bool:
        """Whether a partition without an owner was let go in the future: a clock was wrong, and
        nothing says for how long it has been free.
        """
        return one.item.waits and says_future(one.item, now=self.now)

    def is_failing(self, one: ItemStatus) -> bool:
        """Whether the pump of a partition without an owner failed soon after its start, and not for
        the first time; unless a person has acknowledged that.
        """
        item = one.item
        is_known = item.failures <= 1 or item.is_acknowledged
        if is_known or not item.waits or item.outcome not in FAILING:
            return False
        return ran_for(one) < self.lease

    @property
    def failing(self) -> Sequence[ItemStatus]:
        """The partitions whose pumps fail."""
        return [one for one in self.partitions if self.is_failing(one)]

    @property
    def unowned(self) -> Sequence[ItemStatus]:
        """The other partitions that have had no owner for longer than a lease."""
        late = [one for one in self.partitions if self.free_for(one) > self.lease]
        return [one for one in late if not self.is_failing(one)]

    @property
    def _failing_words(self) -> str:
        found = self.failing
        if not found:
            return ""
        which = plural(len(found), "partition")
        named = some([one.item.id for one in found], MOST_NAMED)
        log = f"`blackboard --board {self.board} log`"
        return f"the pumps of {which} fail: {named} ({failure_words(found[0])}; {log})"

    @property
    def free(self) -> timedelta:
        """The longest of these times."""
        return max(map(self.free_for, self.partitions), default=timedelta(0))

    @property
    def is_in_future(self) -> bool:
        """Whether one of its partitions is set back."""
        return any(map(self.is_set_back, self.partitions))

    @property
    def is_well(self) -> bool:
        """Whether no partition is free for longer than its lease or set back, no pump of it fails,
        and no row of it is damaged.
        """
        is_whole = not self.damaged and not self.unreadable
        is_served = not self.unowned and not self.failing
        return is_whole and is_served and not self.is_in_future

    @property
    def counts(self) -> Sequence[int]:
        """How many each worker holds, which holds any."""
        owners = [one.holder for one in self.partitions if one.holder]
        return sorted(Counter(owners).values())


def _let_go(item: Item) -> datetime:
    """Since when a waiting item has been there to be held: since its last run, however long it
    waits for the next, or since it was resumed; since it came due where it never ran, or where a
    person knows of its failure.
    """
    if item.stop is None or item.is_acknowledged:
        return item.ready
    resumed = decoded_as(Mark, item.resumed)
    return item.stop if resumed is None else max(item.stop, resumed.at)


def ran_for(one: ItemStatus) -> timedelta:
    """How long the last run of a partition without an owner was."""
    start, stop = one.item.start, one.item.stop
    return max(stop - start, timedelta(0)) if start and stop else timedelta(0)


def failure_words(one: ItemStatus) -> str:
    """How the last run of a pump failed, and how often one has."""
    item, took = one.item, span(ran_for(one).total_seconds())
    error = first_line(item.error)
    words = f"failed after {took}" + (f": {error}" if error else "")
    return f"{words}; {plural(item.failures, 'failure')} so far"


def unreadable_words(board: str, rows: Sequence[str]) -> str:
    """The rows of items of a board that cannot be read; "" where there is none."""
    if not rows:
        return ""
    named = some(rows, MOST_NAMED)
    which = f"the rows {named}" if len(rows) > 1 else f"the row {named}"
    return f"{which} in {board} cannot be read (`blackboard --board {board} doctor`)"


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
    try:
        group = board.group(keys.check_group_name(name))
    except BadInput:
        problem = f"the key of the row {row.key} in {meta} names no group (delete it)"
        now = await board.table.now()
        return GroupLeases(name=row.key, lease=lease, partitions=(), now=now, damaged=(problem,))
    own = keys.meta_partition(group.name)
    its = await read(board.table, own, keys.BOARD_KEY)
    found = [(row, group_trouble(row, meta))]
    found += [] if its is None else [(its, board_trouble(its, own))]
    status = await read_status(group)
    return GroupLeases(
        name=name,
        lease=lease,
        partitions=[one for one in status.statuses if one.item.type == name],
        now=status.now,
        board=group.name,
        damaged=[why for one, why in found if why and version_of(one.data) <= VERSION],
        newer=[why for one, why in found if why and version_of(one.data) > VERSION],
        unreadable=group.unreadable,
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


async def read_leaders(board: BoardTable) -> tuple[Elections, str]:
    """The elections of a board, and why they cannot be read; "" where they can."""
    try:
        return await read_elections(board), ""
    except BadInput as bad:
        return Elections(statuses=(), now=await board.table.now()), bad.problem


def has_no_leader(one: ItemStatus, now: datetime) -> bool:
    """Whether an election that is not paused has had no leader for longer than its lease."""
    if one.item.is_paused:
        return False
    if one.stale and one.lock is not None:
        return one.lock.age - one.lock.stale_after > _lease_of(one)
    if one.item.waits and says_future(one.item, now=now):
        return True  # a clock was wrong: nothing says for how long
    return one.item.waits and (now - _let_go(one.item)).total_seconds() > _lease_of(one)


def _lease_of(one: ItemStatus) -> float:
    """Seconds, as its candidates have it; infinity where its settings cannot be read."""
    found = _lease_or_problem(one)
    return math.inf if isinstance(found, str) else found


def election_problem(one: ItemStatus) -> str:
    """Why no candidate can lead an election; "" where one can."""
    found = _lease_or_problem(one)
    return f"{one.item.id}: {found}" if isinstance(found, str) else ""


def _lease_or_problem(one: ItemStatus) -> float | str:
    try:
        settings = resolve([decode_spec(one.item.spec)])
        return due.lease(settings, one.item.slot).total_seconds()
    except (BadInput, ValueError, OverflowError) as bad:
        problem = bad.problem if isinstance(bad, BadSpec) else str(bad)
        return f"its settings cannot be read: {problem}"


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
    """Whether no partition is free for longer than its lease or set back, no pump of it fails, and
    no row of it is damaged."""
    held: int
    workers: int
    free: float
    """Seconds for which a partition has had no owner; the longest of them."""
    problem: str | None
    """What is wrong with its rows, and the remedy; and which of its pumps fail."""
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
    problem: str | None
    """Why its row, or its settings, cannot be read."""


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
        problem=one.problem or None,
        partitions=tuple(_partition_record(one, part) for part in one.partitions),
    )


def _partition_record(group: GroupLeases, one: ItemStatus) -> PartitionRecord:
    owner = one.holder or None
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
    item, seconds = one.item, _lease_of(one)
    return ElectionRecord(
        election=item.id,
        leader=one.holder or None,
        since=item.start if one.holder else None,
        term=item.fence,
        kind=item.type,
        lease=seconds if math.isfinite(seconds) else None,
        renewed=_renewed(one),
        paused=item.is_paused,
        late=has_no_leader(one, now),
        problem=election_problem(one) or None,
    )


def unreadable_election(key: str) -> ElectionRecord:
    """An election whose row cannot be read: by its key."""
    return ElectionRecord(
        election=key,
        leader=None,
        since=None,
        term=0,
        kind="",
        lease=None,
        renewed=None,
        paused=False,
        late=False,
        problem="its row cannot be read",
    )


def _renewed(one: ItemStatus) -> float | None:
    """Seconds since the lock was renewed; None without one, or if the host has booted since."""
    age = math.inf if one.lock is None else one.lock.age
    return round(age, 3) if math.isfinite(age) else None
