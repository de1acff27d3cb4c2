"""What is wrong on a board: items that are late or fail, runs without a worker, partitions without
an owner.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from blackboard.leases import GroupLeases, read_groups
from blackboard.model import Mark
from blackboard.phrases import first_line, last_seen, plural, since, span
from blackboard.protocol.edits import planning_of
from blackboard.protocol.maintenance import paused_by
from blackboard.protocol.reading import BoardStatus, BoardTable
from blackboard.rules.next_run import Planning, ahead
from blackboard.rules.status import ItemStatus
from blackboard.worker.membership import Sighting, silence, takers, workers

UNREADABLE = "the row of this item cannot be read: no worker runs it (`blackboard doctor`)"
OF_A_PAUSE = {"overdue", "unserved", "stale"}
"""Problems that are none while the board is paused."""


class Alarm(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with an item."""

    id: str
    type: str
    problem: str
    """overdue, unserved, stale, silent, failing, clock, unowned, or damaged"""
    since: datetime | None
    message: str


class Checked(Struct, frozen=True, kw_only=True):
    """What was found of the items of a board."""

    items: int
    alarms: Sequence[Alarm]
    paused: Mark | None
    now: datetime


async def read_alarms(
    board: BoardTable, status: BoardStatus, *, types: Sequence[str] = (), with_groups: bool = True
) -> Checked:
    """What is wrong with items that were read, of some types or of all, and with the partitions of
    the board.
    """
    found = [one for one in status.statuses if not types or one.item.type in types]
    present, mark = await workers(board), await paused_by(board)
    alarms = [
        alarm
        for one in found
        for alarm in alarms_of(one, planning_of(board, one.item), present=present, now=status.now)
        if mark is None or alarm.problem not in OF_A_PAUSE
    ]
    if with_groups:
        groups = [one for one in await read_groups(board) if not types or one.name in types]
        alarms += [alarm for one in groups for alarm in alarms_of_group(one)]
    alarms += [
        Alarm(id=key, type="", problem="damaged", since=None, message=UNREADABLE)
        for key in board.unreadable
    ]
    return Checked(items=len(found), alarms=alarms, paused=mark, now=status.now)


def alarms_of(
    one: ItemStatus, planning: Planning | None, *, present: Sequence[Sighting], now: datetime
) -> Iterator[Alarm]:
    """What is wrong with an item. `planning` is what reschedules it, where that can be computed."""
    item = one.item
    if item.is_paused and not item.running:
        return
    alone = not takers(present, item.type)
    if one.overdue or (one.waiting and alone and item.ready <= now):
        words = f"ready for {span((now - item.ready).total_seconds())}"
        words += f", and no live worker takes {item.type}" if alone else ""
        problem = "overdue" if one.overdue else "unserved"
        yield Alarm(id=item.id, type=item.type, problem=problem, since=item.ready, message=words)
    quiet = silence(present, item.owner) if item.running else None
    seen = "" if quiet is None else f"{item.owner} was last seen {last_seen(quiet)}"
    if one.stale and one.lock is not None:
        words = f"{item.owner} has not renewed its lock {since(one.lock.age)}"
        yield Alarm(id=item.id, type=item.type, problem="stale", since=item.start, message=words)
    elif seen:
        yield Alarm(id=item.id, type=item.type, problem="silent", since=item.start, message=seen)
    if one.failing and not item.is_acknowledged:
        words = plural(item.failures, "failure") + " in a row"
        error = first_line(item.error)
        words += f": {error}" if error else ""
        yield Alarm(id=item.id, type=item.type, problem="failing", since=item.stop, message=words)
    if planning and (words := ahead(item, planning, now=now)):
        yield Alarm(id=item.id, type=item.type, problem="clock", since=None, message=words)


def alarms_of_group(group: GroupLeases) -> Iterator[Alarm]:
    """The partitions without an owner, each by its name on the board of its group."""
    for one in group.partitions:
        free, name = group.free_for(one), f"{group.name}/{one.item.id}"
        words = f"a partition of {group.name} without an owner"
        if group.is_set_back(one):
            words += ", let go in the future: a clock was wrong (its next worker puts that right)"
            yield Alarm(id=name, type=group.name, problem="clock", since=None, message=words)
        elif free > group.lease:
            words += f" for {span(free.total_seconds())}"
            since = group.now - free
            yield Alarm(id=name, type=group.name, problem="unowned", since=since, message=words)
