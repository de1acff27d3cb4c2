"""`blackboard leader`: who leads the elections of the board."""

import click

from blackboard.cli.options import Chosen, absolute_option, common
from blackboard.cli.output import emit, table_text, wrapped
from blackboard.cli.session import Session, run
from blackboard.cli.watch import Drawn, PageView, WatchedPage, seconds_of, watch_option, watched
from blackboard.clock import SystemClock
from blackboard.display.columns import LEADER_COLUMNS, leader_cells, wide
from blackboard.display.layout import Style, table, wrap
from blackboard.display.sharing import election_record, has_no_leader
from blackboard.election import read_elections
from blackboard.phrases import plural
from blackboard.protocol.reading import BoardStatus, BoardTable

EPILOG = """\b
Examples:
  blackboard leader
  blackboard leader nightly-report
  blackboard leader --watch
  blackboard leader --json | jq '.[] | select(.late) | .election'
"""
EMPTY = "no elections yet: workers make one, and so does `async with board.election(NAME)`"


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
    session = Session.start(chosen)
    if watch is not None:

        def view(board: BoardTable) -> PageView:
            async def again() -> Drawn:
                return drawn(await read_elections(board, name), absolute=absolute)

            return PageView(again, SystemClock())

        return watched(session, view, every=seconds_of(watch))

    async def read() -> BoardStatus | None:
        async with session.board() as board:
            return await read_elections(board, name)

    found = run(read())
    statuses = found.statuses if found else ()
    late = [one for one in statuses if found and has_no_leader(one, found)]
    if chosen.json:
        emit([election_record(one, late=one in late) for one in statuses])
    elif not found or not statuses:
        click.echo(wrapped(EMPTY))
    else:
        rows = [leader_cells(one, now=found.now, absolute=absolute) for one in statuses]
        click.echo(table_text(wide(LEADER_COLUMNS, absolute=absolute), rows))
    return 1 if late else 0


def drawn(found: BoardStatus | None, *, absolute: bool) -> Drawn:
    """What was read, laid out for a width."""

    def draw(width: int) -> WatchedPage:
        if not found or not found.statuses:
            return WatchedPage(body=[[(text, Style.PLAIN)] for text in wrap(EMPTY, width)])
        rows = [leader_cells(one, now=found.now, absolute=absolute) for one in found.statuses]
        lines = table(wide(LEADER_COLUMNS, absolute=absolute), rows, width=width)
        return WatchedPage(body=lines, head=1, summary=plural(len(rows), "election"))

    return draw
