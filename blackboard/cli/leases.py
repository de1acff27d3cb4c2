"""`blackboard leases`: who holds which partitions, and for how long one has had no owner."""

from dataclasses import dataclass

import click

from blackboard.cli.options import Chosen, common
from blackboard.cli.output import JSON, emit, moment, table_text
from blackboard.cli.session import Session, run
from blackboard.cli.show import WATCH_HELP, seconds_of, watched
from blackboard.display.columns import (
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    group_cells,
    last_move,
    leases_summary,
    partition_cells,
)
from blackboard.display.layout import Line, Style, table
from blackboard.leases import GroupLeases, read_groups
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import ItemStatus

EPILOG = """\b
Examples:
  blackboard leases
  blackboard leases clicks --watch
  blackboard leases --json || send-an-alarm
"""


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
        click.echo(table_text(GROUP_COLUMNS, [group_cells(one) for one in found]))
    else:
        cells = [partition_cells(found[0], one) for one in found[0].partitions]
        click.echo(f"{table_text(PARTITION_COLUMNS, cells)}\n\n{leases_summary(found[0])}")
    return 0 if all(one.is_well for one in found) else 1


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of `leases --watch`."""

    board: BoardTable
    group: str | None

    async def frame(self, width: int, height: int) -> list[Line]:
        found = await read_groups(self.board, self.group)
        if self.group is None:
            return table(GROUP_COLUMNS, [group_cells(one) for one in found], width=width)
        shown = found[0].partitions[: max(height - 3, 1)]
        cells = [partition_cells(found[0], one) for one in shown]
        lines = table(PARTITION_COLUMNS, cells, width=width)
        return [*lines, [], [(leases_summary(found[0])[:width], Style.TITLE)]]


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
        "last_move": last_move(one) or None,
    }
