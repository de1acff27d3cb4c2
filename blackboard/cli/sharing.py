"""The commands that show holders: `leader` those of elections, `leases` those of partitions."""

import click

from blackboard.cli.listing import Listing, listed
from blackboard.cli.options import Chosen, absolute_option, common
from blackboard.cli.session import Session
from blackboard.cli.watch import watch_option
from blackboard.display.columns import (
    GROUP_COLUMNS,
    LEADER_COLUMNS,
    PARTITION_COLUMNS,
    group_cells,
    leader_cells,
    leases_summary,
    partition_cells,
    wide,
)
from blackboard.display.sharing import (
    election_record,
    group_record,
    unreadable_election,
    unreadable_words,
)
from blackboard.phrases import plural
from blackboard.protocol.groups import read_groups
from blackboard.protocol.keys import leaders_board
from blackboard.protocol.leaders import read_elections
from blackboard.protocol.reading import BoardTable

NO_ELECTIONS = "no elections yet: workers make one, and so does `async with board.election(NAME)`"

LEADER_EPILOG = """\b
Examples:
  blackboard leader
  blackboard leader nightly-report
  blackboard leader --watch
  blackboard leader --json | jq '.[] | select(.late) | .election'
"""


@click.command(epilog=LEADER_EPILOG)
@click.argument("name", required=False)
@absolute_option
@watch_option
@common()
def leader_command(*, chosen: Chosen, name: str | None, absolute: bool, watch: str | None) -> int:
    """Show who leads the elections of the board, or the one of NAME: since when, in which term, how
    it was found, and when its lock was last renewed.

    Exit 1 when an election that is not paused has had no leader for longer than its lease, or has a
    row that cannot be read: that is named.
    """
    return listed(
        Session.start(chosen),
        lambda board: elections_of(board, name, absolute=absolute),
        watch=watch,
    )


async def elections_of(board: BoardTable, name: str | None, *, absolute: bool) -> Listing:
    """All elections of a board, or one."""
    found = await read_elections(board, name)
    records = [election_record(one, found.now) for one in found.statuses]
    leaders = leaders_board(board.name)
    doctor = f"`blackboard --board {leaders} doctor`"
    problems = [f"{one.problem} ({doctor})" for one in records if one.problem]
    lost = unreadable_words(leaders, found.unreadable)
    problems += [lost] if lost else []
    return Listing(
        columns=wide(LEADER_COLUMNS, absolute=absolute),
        rows=[leader_cells(one, now=found.now, absolute=absolute) for one in found.statuses],
        records=[*records, *map(unreadable_election, found.unreadable)],
        empty="; ".join(problems) or NO_ELECTIONS,
        summary="; ".join([plural(len(records), "election"), *problems]),
        prints_summary=bool(problems),
        is_well=not problems and not any(one.late for one in records),
    )


LEASES_EPILOG = """\b
Examples:
  blackboard leases
  blackboard leases clicks --watch
  blackboard leases --json || send-an-alarm
"""


@click.command(epilog=LEASES_EPILOG)
@click.argument("group", required=False)
@watch_option
@common()
def leases_command(*, chosen: Chosen, group: str | None, watch: str | None) -> int:
    """Show the groups of partitions that pumps serve, or the partitions of one: who holds them,
    since when, and where their pumps go on.

    Exit 1 when a partition is held by no worker for longer than its lease, its pump fails again and
    again, or a row of a group is damaged: that is named. A group is a board of its own: `blackboard
    --board BOARD.GROUP` has all commands for its partitions.
    """
    return listed(Session.start(chosen), lambda board: leases_of(board, group), watch=watch)


async def leases_of(board: BoardTable, group: str | None) -> Listing:
    """All groups, or the partitions of one."""
    found = await read_groups(board, group)
    records = [group_record(one) for one in found]
    is_well = all(one.well for one in records)
    problems = [problem for one in records if (problem := one.problem)]
    if group is None:
        return Listing(
            columns=GROUP_COLUMNS,
            rows=[group_cells(one) for one in found],
            records=records,
            empty="no groups: a worker with a pump makes its group (docs/sharing.md)",
            summary="; ".join([plural(len(found), "group"), *problems]),
            prints_summary=bool(problems),
            is_well=is_well,
        )
    one = found[0]
    return Listing(
        columns=PARTITION_COLUMNS,
        rows=[partition_cells(one, each) for each in one.partitions],
        records=records[0],
        empty="no partitions",
        summary="; ".join([leases_summary(one), *problems]),
        prints_summary=True,
        is_well=is_well,
    )
