"""Partitions of groups and elections of a board, with their holders, in words and as records.
`rules/groups.py` judges their state.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadInput, BadSpec
from blackboard.model import Outcome, State
from blackboard.phrases import command, first_line, plural, some, span
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import GroupLeases, resumed_at
from blackboard.protocol.leaders import Elections, read_elections
from blackboard.rules import due
from blackboard.rules.groups import Partition, has_no_leader, ran_for
from blackboard.rules.status import ItemStatus
from blackboard.rules.transitions import FAILING
from blackboard.spec import decode_spec, resolve

MOST_NAMED = 5
"""The most rows, or partitions, that a line names."""


def group_problem(group: GroupLeases) -> str:
    """What is wrong with the rows of a group, which of its pumps fail, and which partitions are
    done, in a line; "" for nothing.
    """
    lost = unreadable_words(group.board, group.unreadable)
    words = [*group.damaged, *group.newer, lost, _failing_words(group)]
    done = [partition.item.id for partition in group.unowned if partition.item.state is State.DONE]
    if done:
        are = "are" if len(done) > 1 else "is"
        words.append(f"{some(done, MOST_NAMED)} {are} done: {brings_back(group, done[0])}")
    return "; ".join(filter(None, words))


def brings_back(group: GroupLeases, partition: str) -> str:
    """The commands after which workers take a partition that is done."""
    edit, run = (command(verb, partition, board=group.board) for verb in ("edit", "run"))
    return f"no worker takes it until {run} (take back what it says of its times with {edit} first)"


def _failing_words(group: GroupLeases) -> str:
    failing = group.failing
    if not failing:
        return ""
    which = plural(len(failing), "partition")
    named = some([partition.item.id for partition in failing], MOST_NAMED)
    log = f"`blackboard --board {group.board} log`"
    return f"the pumps of {which} fail: {named} ({failure_words(failing[0])}; {log})"


def failure_words(status: ItemStatus) -> str:
    """How the last run of a pump failed, and how often one has."""
    item, took = status.item, span(ran_for(status.item).total_seconds())
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


def last_move(status: ItemStatus) -> str:
    """Why a partition came to its present worker, as far as the item says; "" for the first one.
    After a takeover, the item's error is that of an earlier run. If the partition had been released
    before the takeover, the item shows only the release: the words are those of the release.
    """
    item = status.item
    if item.attempt > 1 and item.outcome not in {*FAILING, Outcome.CANCELLED}:
        return "taken over"
    return first_line(item.error)


# ---- elections


async def read_leaders(board: BoardTable) -> Elections:
    """The elections of a board, or none with the reason why they cannot be read."""
    try:
        return await read_elections(board)
    except BadInput as bad:
        return Elections(statuses=(), now=await board.table.now(), trouble=bad.problem)


def is_late(status: ItemStatus, now: datetime) -> bool:
    """Whether an election that is not paused has had no leader for longer than its lease."""
    lease = _lease_and_problem(status)[0]
    longest = timedelta.max if lease is None else lease
    return has_no_leader(status, lease=longest, now=now, resumed=resumed_at(status.item))


def election_problem(status: ItemStatus) -> str:
    """Why no candidate can lead an election; "" where one can."""
    return _lease_and_problem(status)[1]


def _lease_and_problem(status: ItemStatus) -> tuple[timedelta | None, str]:
    """The lease of the candidates of an election; or None, and why no candidate can lead it."""
    try:
        settings = resolve([decode_spec(status.item.spec)])
        return due.lease(settings, status.item.slot), ""
    except (BadInput, ValueError, OverflowError) as bad:
        problem = bad.problem if isinstance(bad, BadSpec) else str(bad)
        return None, f"{status.item.id}: its settings cannot be read: {problem}"


# ---- for programs


class PartitionRecord(Struct, frozen=True, kw_only=True):
    id: str
    worker: str | None
    """The one that holds it."""
    since: datetime | None
    fence: int
    renewed: float | None
    """Seconds ago; None without a lock."""
    free: float
    """Seconds for which it has had no worker."""
    paused: bool
    checkpoint: str | None
    failures: int
    last_move: str | None
    """Why it came to its present worker, as far as its item says."""


class GroupRecord(Struct, frozen=True, kw_only=True):
    group: str
    lease: float
    well: bool
    """Whether no partition is free for longer than its lease or set back, no pump of it fails, and
    no row of it is damaged."""
    held: int
    workers: int
    """Those that hold any, and live ones that hold none."""
    free: float
    """Seconds for which a partition has had no worker; the longest of them."""
    problem: str | None
    """What is wrong with its rows, and the remedy; which of its pumps fail; what is done."""
    partitions: tuple[PartitionRecord, ...]


class ElectionRecord(Struct, frozen=True, kw_only=True):
    election: str
    leader: str | None = None
    since: datetime | None = None
    term: int = 0
    """The highest term so far."""
    kind: str = ""
    lease: float | None = None
    renewed: float | None = None
    """Seconds ago; None without a lock."""
    paused: bool = False
    late: bool = False
    """Whether it has had no leader for longer than its lease, and is not paused."""
    problem: str | None = None
    """Why its row, or its settings, cannot be read."""


def group_record(group: GroupLeases) -> GroupRecord:
    return GroupRecord(
        group=group.name,
        lease=group.lease.total_seconds(),
        well=group.is_well,
        held=sum(group.counts),
        workers=len(group.counts),
        free=group.free.total_seconds(),
        problem=group_problem(group) or None,
        partitions=tuple(map(_partition_record, group.partitions)),
    )


def _partition_record(status: Partition) -> PartitionRecord:
    worker = status.holder or None
    return PartitionRecord(
        id=status.item.id,
        worker=worker,
        since=status.item.start if worker else None,
        fence=status.item.fence,
        renewed=_renewed(status),
        free=status.free.total_seconds(),
        paused=status.item.is_paused,
        checkpoint=status.item.checkpoint or None,
        failures=status.item.failures,
        last_move=last_move(status) or None,
    )


def election_record(status: ItemStatus, now: datetime) -> ElectionRecord:
    item, (lease, problem) = status.item, _lease_and_problem(status)
    return ElectionRecord(
        election=item.id,
        leader=status.holder or None,
        since=item.start if status.holder else None,
        term=item.fence,
        kind=item.type,
        lease=None if lease is None else lease.total_seconds(),
        renewed=_renewed(status),
        paused=item.is_paused,
        late=is_late(status, now),
        problem=problem or None,
    )


def unreadable_election(key: str) -> ElectionRecord:
    """An election whose row cannot be read: by its key."""
    return ElectionRecord(election=key, problem="its row cannot be read")


def _renewed(status: ItemStatus) -> float | None:
    """Seconds since the lock was renewed; None without one, or if the host has booted since."""
    age = math.inf if status.lock is None else status.lock.age
    return round(age, 3) if math.isfinite(age) else None
