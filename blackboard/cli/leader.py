"""`blackboard leader`: who leads the elections of the board."""

import click

from blackboard.cli.listing import Listing, listed
from blackboard.cli.options import Chosen, absolute_option, common
from blackboard.cli.session import Session
from blackboard.cli.watch import watch_option
from blackboard.display.columns import LEADER_COLUMNS, leader_cells, wide
from blackboard.display.sharing import election_record, has_no_leader
from blackboard.election import read_elections
from blackboard.phrases import plural
from blackboard.protocol.reading import BoardTable

EPILOG = """\b
Examples:
  blackboard leader
  blackboard leader nightly-report
  blackboard leader --watch
  blackboard leader --json | jq '.[] | select(.late) | .election'
"""


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@absolute_option
@watch_option
@common()
def leader_command(*, chosen: Chosen, name: str | None, absolute: bool, watch: str | None) -> int:
    """Show who leads the elections of the board, or the one of NAME: since when, in which term, how
    it was found, and when its lock was last renewed.

    Exit 1 when an election that is not paused has had no leader for longer than its lease.
    """
    return listed(
        Session.start(chosen),
        lambda board: elections_of(board, name, absolute=absolute),
        watch=watch,
    )


async def elections_of(board: BoardTable, name: str | None, *, absolute: bool) -> Listing:
    """All elections of a board, or one."""
    found = await read_elections(board, name)
    statuses = found.statuses if found else ()
    now = found.now if found else await board.table.now()
    late = [one for one in statuses if found and has_no_leader(one, found)]
    return Listing(
        columns=wide(LEADER_COLUMNS, absolute=absolute),
        rows=[leader_cells(one, now=now, absolute=absolute) for one in statuses],
        records=[election_record(one, late=one in late) for one in statuses],
        empty="no elections yet: workers make one, and so does `async with board.election(NAME)`",
        summary=plural(len(statuses), "election"),
        is_well=not late,
    )
