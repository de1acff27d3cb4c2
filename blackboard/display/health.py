"""Alarms about a board, and an overview of it.

Alarms are about items that are late, fail, or whose rename was interrupted, runs without a worker,
and partitions that have no worker or whose pumps fail. The overview has the board's statistics, its
groups, its workers and their coordinator.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from msgspec import Struct

from blackboard.display.sharing import (
    brings_back,
    election_problem,
    failure_words,
    read_leaders,
    unreadable_words,
)
from blackboard.model import VERSION, Item, Mark, Member, Outcome, State, Statistics, TypesTaken
from blackboard.phrases import first_line, last_seen, plural, since, span
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import GroupLeases, read_groups
from blackboard.protocol.keys import LEADERS, leaders_board
from blackboard.protocol.leaders import Elections
from blackboard.protocol.members import lost_since, served_types, with_silence, workers
from blackboard.protocol.planning import planning_of, why_unplanned
from blackboard.protocol.rename_marks import renaming_of
from blackboard.protocol.status import BoardStatus, count, statistics_if_large
from blackboard.rules.groups import PartitionState
from blackboard.rules.status import ItemStatus
from blackboard.rules.wrong_clock import Planning, problem_of_times
from blackboard.why import NEWER

UNREADABLE = "the row of this item cannot be read: no worker runs it (`blackboard doctor`)"
UNPLANNED = "no worker runs it"
OF_A_PAUSE = {"overdue", "unserved", "stale"}
"""Kinds that raise no alarm while the board is paused."""


class Alarm(Struct, frozen=True, kw_only=True):
    id: str
    type: str
    kind: str
    """overdue, unserved, stale, silent, failing, clock, renaming, unowned, damaged, or store"""
    since: datetime | None
    problem: str
    """What is wrong, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What there is on a board besides its items."""

    present: Sequence[Member]
    paused: Mark | None
    groups: Sequence[GroupLeases] = ()
    elections: Elections


class Checked(Struct, frozen=True, kw_only=True):
    """The result of checking the items of a board, of some types or of all."""

    items: int
    alarms: Sequence[Alarm]
    paused: Mark | None
    now: datetime


async def read_alarms(
    board: BoardTable, read: BoardStatus, *, types: Sequence[str] = (), with_groups: bool = True
) -> tuple[Checked, set[str]]:
    """What is wrong with items that were read, of some types or of all, and with the partitions of
    the board; and the types that there are.
    """
    groups = await read_groups(board) if with_groups else ()
    statuses = [status for status in read.statuses if not types or status.item.type in types]
    nothing = Elections(statuses=(), now=read.now)
    around = Around(
        present=await workers(board),
        paused=await paused_by(board),
        groups=[group for group in groups if not types or group.name in types],
        elections=await read_leaders(board) if with_groups and not types else nothing,
    )
    alarms = checked(board, BoardStatus(statuses=statuses, now=read.now), around)
    return alarms, {*(status.item.type for status in statuses), *(group.name for group in groups)}


def checked(board: BoardTable, read: BoardStatus, around: Around) -> Checked:
    """What is wrong with items that were read, and with what is `around` them."""
    served, lost = served_types(around.present), lost_since(around.present)
    alarms = [
        alarm
        for status in read.statuses
        for alarm in alarms_of(
            status, planning_of(board, status.item), served=served, lost=lost, now=read.now
        )
        if around.paused is None or alarm.kind not in OF_A_PAUSE
    ]
    alarms += [
        Alarm(id=item.id, type=item.type, kind="damaged", since=None, problem=f"{UNPLANNED}: {why}")
        for item in (status.item for status in read.statuses)
        if item.state is State.ACTIVE and (why := why_unplanned(board, item))
    ]
    alarms += [alarm for group in around.groups for alarm in alarms_of_group(group)]
    alarms += _damaged_elections(board, around.elections)
    alarms += [
        Alarm(id=key, type="", kind="damaged", since=None, problem=UNREADABLE)
        for key in board.unreadable
    ]
    if trouble := board.trouble:
        alarms.append(Alarm(id=board.name, type="", kind="store", since=None, problem=trouble))
    items = len(read.statuses)
    return Checked(items=items, alarms=alarms, paused=around.paused, now=read.now)


def alarms_of(
    status: ItemStatus,
    planning: Planning | None,
    *,
    served: TypesTaken,
    lost: Mapping[str, float],
    now: datetime,
) -> Iterator[Alarm]:
    """The alarms about an item. `planning` is None where its settings cannot be computed; `served`
    are the types that live workers take, `lost` the others (`lost_since`).
    """
    item = status.item
    alarm = partial(Alarm, id=item.id, type=item.type)
    if (renaming := renaming_of(item)) and renaming.is_interrupted(now=now):
        yield alarm(kind="renaming", since=renaming.mark.at, problem=renaming.words)
    if item.is_paused and not item.running:
        return
    alone = item.type not in served
    if status.overdue or (status.waiting and alone and item.ready <= now):
        words = f"ready for {span((now - item.ready).total_seconds())}"
        if item.version > VERSION:
            words += f": {NEWER}"
        elif alone:
            words += f", and no live worker takes {item.type}"
        kind = "overdue" if status.overdue else "unserved"
        yield alarm(kind=kind, since=item.ready, problem=words)
    silent = with_silence(status, lost).silent
    if status.stale and status.lock is not None:
        words = f"{item.owner} has not renewed its lock {since(status.lock.age)}"
        yield alarm(kind="stale", since=item.start, problem=words)
    elif silent is not None:
        words = f"{item.owner} was last seen {last_seen(silent)}"
        yield alarm(kind="silent", since=item.start, problem=words)
    if status.failing and not item.is_acknowledged:
        yield alarm(kind="failing", since=item.stop, problem=_failures_of(item))
    if planning and (words := problem_of_times(item, planning, now=now)):
        yield alarm(kind="clock", since=None, problem=words)


def _failures_of(item: Item) -> str:
    words = plural(item.failures, "failure") + " in a row"
    if item.outcome is Outcome.CANCELLED:  # its error is not that of the failure
        words += "; the last run was cancelled"
    error = first_line(item.error)
    return f"{words}: {error}" if error else words


def _damaged_elections(board: BoardTable, elections: Elections) -> list[Alarm]:
    """The alarms about rows of elections that cannot be read."""
    name = leaders_board(board.name)
    if elections.trouble:
        return [Alarm(id=name, type="", kind="damaged", since=None, problem=elections.trouble)]
    problems = [
        (status.item.id, why) for status in elections.statuses if (why := election_problem(status))
    ]
    problems += [(key, unreadable_words(name, [key])) for key in elections.unreadable]
    return [
        Alarm(id=f"{LEADERS}/{item_id}", type="", kind="damaged", since=None, problem=why)
        for item_id, why in problems
    ]


def alarms_of_group(group: GroupLeases) -> Iterator[Alarm]:
    """The alarms about a group: damaged rows, and partitions without a worker or whose pumps fail.
    A partition whose pump fails has no worker now and then: it has one alarm.
    """
    problems = [(group.name, why) for why in group.damaged]
    problems += [
        (f"{group.name}/{key}", unreadable_words(group.board, [key])) for key in group.unreadable
    ]
    for name, why in problems:
        yield Alarm(id=name, type=group.name, kind="damaged", since=None, problem=why)
    for partition in group.partitions:
        words = f"a partition of {group.name} without a worker"
        since: datetime | None = None
        match partition.state:
            case PartitionState.SET_BACK:
                kind = "clock"
                words += (
                    ", released in the future: a clock was wrong (its next worker puts that right)"
                )
            case PartitionState.FAILING:
                kind, since = "failing", partition.item.stop
                words = f"the pump {failure_words(partition)}"
            case PartitionState.UNOWNED:
                kind, since = "unowned", group.now - partition.free
                words += f" for {span(partition.free.total_seconds())}"
                if partition.item.state is State.DONE:
                    words += f": it is done, and {brings_back(group, partition.item.id)}"
            case _:
                continue
        name = f"{group.name}/{partition.item.id}"
        yield Alarm(id=name, type=group.name, kind=kind, since=since, problem=words)


# ---- the overview


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview(Around):
    """What is shown of a board."""

    counted: Statistics
    is_now: bool
    """Whether it was counted by this command."""
    age: float
    """Seconds since the counting."""
    now: datetime


class WorkerCount(Struct, frozen=True, kw_only=True):
    alive: int
    lost: int


class CoordinatorRecord(Struct, frozen=True, kw_only=True):
    worker: str
    since: datetime | None
    term: int


def worker_count(present: Sequence[Member]) -> WorkerCount:
    lost = sum(worker.lost for worker in present)
    return WorkerCount(alive=len(present) - lost, lost=lost)


def worker_words(present: Sequence[Member]) -> str:
    """How many workers there are: "2 workers, 1 lost"."""
    count = worker_count(present)
    return plural(count.alive, "worker") + (f", {count.lost:,} lost" if count.lost else "")


def coordinator_record(election: ItemStatus | None) -> CoordinatorRecord | None:
    """Who leads an election, as it stood when it was read; None: no worker does."""
    if election is None:
        return None
    item = election.item
    return CoordinatorRecord(worker=item.owner, since=item.start, term=item.fence)


async def read_overview(
    board: BoardTable,
    *,
    exact: bool,
    counting: Callable[[BoardTable], Awaitable[Statistics]] = count,
) -> Overview:
    """Reads an overview. The items of a small board, and with `exact` those of any, are counted
    now, whatever was counted before; `counting` counts them.
    """
    before = None if exact else await statistics_if_large(board)
    counted = before or await counting(board)
    return Overview(
        counted=counted,
        is_now=before is None,
        elections=await read_leaders(board),
        present=await workers(board),
        groups=await read_groups(board),
        age=max((await board.table.now() - counted.at).total_seconds(), 0.0),
        paused=await paused_by(board),
        now=await board.table.now(),
    )
