"""`blackboard leases`: who holds which partitions, and for how long one has had no owner."""

import click

from blackboard.cli.listing import Listing, listed
from blackboard.cli.options import Chosen, common
from blackboard.cli.session import Session
from blackboard.cli.watch import watch_option
from blackboard.display.columns import (
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    group_cells,
    leases_summary,
    partition_cells,
)
from blackboard.display.sharing import group_record, read_groups
from blackboard.phrases import plural
from blackboard.protocol.reading import BoardTable

EPILOG = """\b
Examples:
  blackboard leases
  blackboard leases clicks --watch
  blackboard leases --json || send-an-alarm
"""


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
    return listed(Session.start(chosen), lambda board: leases_of(board, group), watch=watch)


async def leases_of(board: BoardTable, group: str | None) -> Listing:
    """All groups, or the partitions of one."""
    found = await read_groups(board, group)
    records = [group_record(one) for one in found]
    is_well = all(one.is_well for one in found)
    if group is None:
        return Listing(
            columns=GROUP_COLUMNS,
            rows=[group_cells(one) for one in found],
            records=records,
            empty="no groups: a worker with a pump makes its group (docs/sharing.md)",
            summary=plural(len(found), "group"),
            is_well=is_well,
        )
    one = found[0]
    return Listing(
        columns=PARTITION_COLUMNS,
        rows=[partition_cells(one, each) for each in one.partitions],
        records=records[0],
        empty="no partitions",
        summary=leases_summary(one),
        says_summary=True,
        is_well=is_well,
    )
