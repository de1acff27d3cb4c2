"""`blackboard leases`: who holds which partitions, and for how long one has had no owner."""

from collections.abc import Sequence

import click

from blackboard.cli.options import Chosen, common
from blackboard.cli.output import emit, table_text, wrapped
from blackboard.cli.session import Session, run
from blackboard.cli.watch import Drawn, PageView, WatchedPage, seconds_of, watch_option, watched
from blackboard.clock import SystemClock
from blackboard.display.columns import (
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    group_cells,
    leases_summary,
    partition_cells,
)
from blackboard.display.layout import Style, table, wrap
from blackboard.display.sharing import GroupLeases, group_record, read_groups
from blackboard.phrases import plural
from blackboard.protocol.reading import BoardTable

EPILOG = """\b
Examples:
  blackboard leases
  blackboard leases clicks --watch
  blackboard leases --json || send-an-alarm
"""
EMPTY = "no groups: a worker with a pump makes its group (docs/sharing.md)"


@click.command(epilog=EPILOG)
@click.argument("group", required=False)
@watch_option
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

    def view(board: BoardTable) -> PageView:
        async def read() -> Drawn:
            return drawn(group, await read_groups(board, group))

        return PageView(read, SystemClock())

    return watched(session, view, every=seconds_of(watch))


async def _once(session: Session, group: str | None) -> int:
    async with session.board() as board:
        found = await read_groups(board, group)
    if session.chosen.json:
        views = [group_record(one) for one in found]
        emit(views if group is None else views[0])
    elif not found:
        click.echo(wrapped(EMPTY))
    elif group is None:
        click.echo(table_text(GROUP_COLUMNS, [group_cells(one) for one in found]))
    else:
        cells = [partition_cells(found[0], one) for one in found[0].partitions]
        click.echo(f"{table_text(PARTITION_COLUMNS, cells)}\n\n{leases_summary(found[0])}")
    return 0 if all(one.is_well for one in found) else 1


def drawn(group: str | None, found: Sequence[GroupLeases]) -> Drawn:
    """What was read, laid out for a width."""

    def draw(width: int) -> WatchedPage:
        if group is not None:
            cells = [partition_cells(found[0], one) for one in found[0].partitions]
            lines = table(PARTITION_COLUMNS, cells, width=width)
            return WatchedPage(body=lines, head=1, summary=leases_summary(found[0]))
        if not found:
            return WatchedPage(body=[[(text, Style.PLAIN)] for text in wrap(EMPTY, width)])
        lines = table(GROUP_COLUMNS, [group_cells(one) for one in found], width=width)
        return WatchedPage(body=lines, head=1, summary=plural(len(found), "group"))

    return draw
