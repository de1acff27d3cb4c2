"""The commands that list, once or again and again: `workers`, `leases` and `leader`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click
from msgspec import Struct

from blackboard.cli.options import Chosen, absolute_option, as_typed, cli_command, completing
from blackboard.cli.output import emit, table_text, wrapped
from blackboard.cli.session import Session
from blackboard.cli.watch import Drawn, WatchedPage, watch_option, watched_page
from blackboard.display import columns, sharing
from blackboard.display.health import worker_words
from blackboard.display.layout import Column, Line, paragraph, table
from blackboard.phrases import plural
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import read_groups
from blackboard.protocol.keys import leaders_board
from blackboard.protocol.leaders import read_elections
from blackboard.protocol.members import busy_workers
from blackboard.records import worker_record


class Listing(Struct, frozen=True, kw_only=True):
    columns: Sequence[Column]
    rows: Sequence[Line]
    records: object
    """The same for programs."""
    empty: str
    """The text where the table has no rows."""
    summary: str
    """A summary in words, shown below the table with `--watch`."""
    prints_summary: bool = False
    """Whether the summary is printed without `--watch`, too."""
    is_well: bool = True
    """Whether the exit code is 0; else it is 1."""

    @property
    def text(self) -> str:
        if not self.rows:
            return wrapped(as_typed(self.empty))
        text = table_text(self.columns, self.rows)
        return f"{text}\n\n{as_typed(self.summary)}" if self.prints_summary else text

    def page(self, width: int) -> WatchedPage:
        if not self.rows:
            return WatchedPage(body=paragraph(as_typed(self.empty), width))
        lines = table(self.columns, self.rows, width=width)
        return WatchedPage(body=lines, head=1, summary=as_typed(self.summary))


def _listed(chosen: Chosen, read: Callable[[BoardTable], Awaitable[Listing]]) -> int:
    """Print what is read, or watch it; the exit code."""
    session = Session.start(chosen)
    if chosen.watch is not None:

        async def drawn(board: BoardTable) -> Drawn:
            return (await read(board)).page

        return watched_page(session, drawn)

    async def once() -> Listing:
        async with session.board() as board:
            return await read(board)

    listing = asyncio.run(once())
    if chosen.json:
        emit(listing.records)
    else:
        click.echo(listing.text)
    return 0 if listing.is_well else 1


@cli_command("""\
Examples:
  blackboard workers
  blackboard workers --watch
  blackboard workers --json | jq '.[] | select(.alive) | .name'
""")
@absolute_option
@watch_option
def workers_command(*, chosen: Chosen) -> int:
    """Show the workers that have announced themselves.

    A worker is lost when its next announcement is overdue; after a day it is not shown any more.
    Its items are taken over when their locks go stale, whatever is shown here.
    """
    return _listed(chosen, lambda board: workers_of(board, absolute=chosen.absolute))


async def workers_of(board: BoardTable, *, absolute: bool) -> Listing:
    announced = await busy_workers(board)
    times = columns.ShownTimes(await board.table.now(), absolute)
    return Listing(
        columns=times.columns(columns.WORKER_COLUMNS),
        rows=[columns.worker_cells(worker, times) for worker in announced],
        records=[worker_record(worker) for worker in announced],
        empty="no worker has announced itself: `blackboard worker --jobs JOBS` starts one",
        summary=worker_words(announced),
    )


NO_ELECTIONS = "no elections yet: workers make one, and so does `async with board.election(NAME)`"


@cli_command("""\
Examples:
  blackboard leader
  blackboard leader nightly-report
  blackboard leader --watch
  blackboard leader --json | jq '.[] | select(.late) | .election'
""")
@click.argument("name", required=False, shell_complete=completing("elections"))
@absolute_option
@watch_option
def leader_command(*, chosen: Chosen, name: str | None) -> int:
    """Show who leads the elections of the board, or the one of NAME: since when, in which term, how
    it was found, and when its lock was last renewed.

    Exit 1 when an election that is not paused has had no leader for longer than its lease, or has a
    row that cannot be read: that is named.
    """
    return _listed(chosen, lambda board: elections_of(board, name, absolute=chosen.absolute))


async def elections_of(board: BoardTable, name: str | None, *, absolute: bool) -> Listing:
    elections = await read_elections(board, name)
    times = columns.ShownTimes(elections.now, absolute)
    records = [sharing.election_record(status, elections.now) for status in elections.statuses]
    leaders = leaders_board(board.name)
    doctor = f"`blackboard --board {leaders} doctor`"
    problems = [f"{record.problem} ({doctor})" for record in records if record.problem]
    lost = sharing.unreadable_words(leaders, elections.unreadable)
    problems += [lost] if lost else []
    return Listing(
        columns=times.columns(columns.LEADER_COLUMNS),
        rows=[columns.leader_cells(status, times) for status in elections.statuses],
        records=[*records, *map(sharing.unreadable_election, elections.unreadable)],
        empty="; ".join(problems) or NO_ELECTIONS,
        summary="; ".join([plural(len(records), "election"), *problems]),
        prints_summary=bool(problems),
        is_well=not problems and not any(record.late for record in records),
    )


@cli_command("""\
Examples:
  blackboard leases
  blackboard leases clicks --watch
  blackboard leases --json || send-an-alarm
""")
@click.argument("group", required=False, shell_complete=completing("groups"))
@watch_option
def leases_command(*, chosen: Chosen, group: str | None) -> int:
    """Show the groups of partitions that pumps serve, or the partitions of one: who holds them,
    since when, and where their pumps go on.

    Exit 1 when a partition has been held by no worker for longer than its lease, its pump fails
    again and again, or a row of a group is damaged: that is named. A group is a board of its own:
    `blackboard --board BOARD.GROUP` has all commands for its partitions.
    """
    return _listed(chosen, lambda board: leases_of(board, group))


async def leases_of(board: BoardTable, group: str | None) -> Listing:
    groups = await read_groups(board, group)
    records = [sharing.group_record(listed) for listed in groups]
    is_well = all(record.well for record in records)
    problems = [problem for record in records if (problem := record.problem)]
    if group is None:
        return Listing(
            columns=columns.GROUP_COLUMNS,
            rows=[columns.group_cells(listed) for listed in groups],
            records=records,
            empty="no groups: a worker with a pump makes its group (docs/sharing.md)",
            summary="; ".join([plural(len(groups), "group"), *problems]),
            prints_summary=bool(problems),
            is_well=is_well,
        )
    chosen_group = groups[0]
    return Listing(
        columns=columns.PARTITION_COLUMNS,
        rows=[columns.partition_cells(chosen_group, each) for each in chosen_group.partitions],
        records=records[0],
        empty="no partitions",
        summary="; ".join([columns.leases_summary(chosen_group), *problems]),
        prints_summary=True,
        is_well=is_well,
    )
