"""`blackboard leases`: who holds which partitions, and for how long nobody has held one."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import click

from blackboard.assembly import group_board
from blackboard.cli.options import Chosen, common
from blackboard.cli.output import JSON, emit, moment, table_text
from blackboard.cli.session import Session, run
from blackboard.cli.show import WATCH_HELP, seconds_of, watched
from blackboard.display.columns import NOTHING
from blackboard.display.layout import Column, Line, Style, table
from blackboard.errors import BadInput
from blackboard.phrases import first_line, plural, span
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, read_status
from blackboard.rules.status import ItemStatus
from blackboard.table import Row

EPILOG = """\b
Examples:
  blackboard leases
  blackboard leases clicks --watch
  blackboard leases --json || send-an-alarm
"""
GROUPS = (
    Column(title="group", least=5, usual=24, worth=9),
    Column(title="partitions", least=10, usual=10, worth=6),
    Column(title="held", least=4, usual=5, worth=7),
    Column(title="workers", least=7, usual=7, worth=5),
    Column(title="each", least=4, usual=7, worth=4),
    Column(title="lease", least=5, usual=6, worth=3),
    Column(title="free for", least=8, usual=8, worth=8),
)
PARTITIONS = (
    Column(title="partition", least=5, usual=24, worth=9),
    Column(title="owner", least=12, usual=32, worth=8),
    Column(title="held for", least=8, usual=8, worth=6),
    Column(title="fence", least=5, usual=5, worth=3),
    Column(title="renewed", least=7, usual=8, worth=5),
    Column(title="checkpoint", least=10, usual=20, worth=4),
    Column(title="last move", least=9, usual=36, worth=2, words=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLeases:
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
        """For how long nobody has held a partition that is there to be held."""
        since: datetime | None = None
        if one.stale and one.lock is not None:
            return timedelta(seconds=max(one.lock.age - one.lock.stale_after, 0.0))
        if one.item.waits:
            since = one.item.ready
        return max(self.now - since, timedelta(0)) if since else timedelta(0)

    @property
    def free(self) -> timedelta:
        """The longest of these times."""
        return max(map(self.free_for, self.partitions), default=timedelta(0))

    @property
    def is_well(self) -> bool:
        """Whether no partition is free for longer than its lease."""
        return self.free <= self.lease

    @property
    def counts(self) -> Sequence[int]:
        """How many each worker holds, which holds any."""
        owners = Counter(filter(None, map(self.owner_of, self.partitions)))
        return sorted(owners.values())


@click.command(epilog=EPILOG)
@click.argument("group", required=False)
@click.option("--watch", is_flag=False, flag_value="2", metavar="[SECONDS]", help=WATCH_HELP)
@common()
def leases_command(*, chosen: Chosen, group: str | None, watch: str | None) -> int:
    """Show the groups of partitions that pumps serve, or the partitions of one: who holds them,
    since when, and where their pumps go on.

    Exit 1 when a partition is held by no worker for longer than its lease. A group is a board of
    its own: `blackboard --board BOARD.GROUP` has all commands for its partitions.
    """
    session = Session.start(chosen)
    if watch is None:
        return run(_once(session, group))
    return watched(session, lambda board: Frames(board, group).frame, every=seconds_of(watch))


async def _once(session: Session, group: str | None) -> int:
    async with session.board() as board:
        found = await read_groups(board, group)
    if session.chosen.json:
        views = [_view(one) for one in found]
        emit(views if group is None else views[0])
    elif not found:
        click.echo("no groups: a worker with a pump makes its group (docs/sharing.md)")
    elif group is None:
        click.echo(table_text(GROUPS, [_group_cells(one) for one in found]))
    else:
        cells = [_partition_cells(found[0], one) for one in found[0].partitions]
        click.echo(f"{table_text(PARTITIONS, cells)}\n\n{_summary(found[0])}")
    return 0 if all(one.is_well for one in found) else 1


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of `leases --watch`."""

    board: BoardTable
    group: str | None

    async def frame(self, width: int, height: int) -> list[Line]:
        found = await read_groups(self.board, self.group)
        if self.group is None:
            return table(GROUPS, [_group_cells(one) for one in found], width=width)
        shown = found[0].partitions[: max(height - 3, 1)]
        cells = [_partition_cells(found[0], one) for one in shown]
        lines = table(PARTITIONS, cells, width=width)
        return [*lines, [], [(_summary(found[0])[:width], Style.TITLE)]]


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
    status = await read_status(group_board(board, _name(row)))
    lease = row.data.get("lease")
    return GroupLeases(
        name=_name(row),
        lease=timedelta(seconds=lease if isinstance(lease, int | float) else 30.0),
        partitions=[one for one in status.statuses if one.item.type == _name(row)],
        now=status.now,
    )


def _group_cells(one: GroupLeases) -> Line:
    counts = one.counts
    each = (
        ""
        if not counts
        else f"{counts[0]}"
        if counts[0] == counts[-1]
        else (f"{counts[0]}-{counts[-1]}")
    )
    held = sum(counts)
    return (
        (one.name, Style.PLAIN),
        (f"{len(one.partitions):,}", Style.PLAIN),
        (f"{held:,}", Style.GOOD if held == len(one.partitions) else Style.LATE),
        (str(len(counts)), Style.PLAIN),
        (each or NOTHING, Style.PLAIN),
        (span(one.lease.total_seconds()), Style.QUIET),
        _free_cell(one, one.free),
    )


def _free_cell(group: GroupLeases, free: timedelta) -> tuple[str, Style]:
    if not free:
        return NOTHING, Style.PLAIN
    return span(free.total_seconds()), Style.BAD if free > group.lease else Style.LATE


def _partition_cells(group: GroupLeases, one: ItemStatus) -> Line:
    item, owner, free = one.item, group.owner_of(one), group.free_for(one)
    held = NOTHING
    if owner and item.start is not None:
        held = span((group.now - item.start).total_seconds())
    who = (owner, Style.BUSY)
    if not owner:
        text, style = _free_cell(group, free)
        state = "paused" if item.is_paused else "waits" if not free else f"free for {text}"
        who = (state, style)
    return (
        (item.id, Style.PLAIN),
        who,
        (held, Style.PLAIN),
        (str(item.fence), Style.QUIET),
        (f"{span(one.lock.age)} ago" if one.lock else NOTHING, Style.PLAIN),
        (item.checkpoint or NOTHING, Style.PLAIN),
        (first_line(item.error) or NOTHING, Style.QUIET),
    )


def _summary(group: GroupLeases) -> str:
    held = sum(group.counts)
    workers = plural(len(group.counts), "worker")
    free = f", free for {span(group.free.total_seconds())}" if group.free else ""
    return f"{held:,} of {plural(len(group.partitions), 'partition')} held by {workers}{free}"


def _view(one: GroupLeases) -> JSON:
    return {
        "group": one.name,
        "kind": "pump",
        "lease": one.lease.total_seconds(),
        "well": one.is_well,
        "held": sum(one.counts),
        "workers": len(one.counts),
        "free": one.free.total_seconds(),
        "partitions": [_partition_view(one, part) for part in one.partitions],
    }


def _partition_view(group: GroupLeases, one: ItemStatus) -> JSON:
    return {
        "id": one.item.id,
        "owner": group.owner_of(one) or None,
        "since": moment(one.item.start) if group.owner_of(one) else None,
        "fence": one.item.fence,
        "renewed": round(one.lock.age, 3) if one.lock else None,
        "free": group.free_for(one).total_seconds(),
        "paused": one.item.is_paused,
        "checkpoint": one.item.checkpoint or None,
        "failures": one.item.failures,
        "last_move": first_line(one.item.error) or None,
    }
