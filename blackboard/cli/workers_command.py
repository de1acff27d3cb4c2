"""`blackboard workers`: who has announced itself."""

from collections import Counter

import click

from blackboard.cli import terminal
from blackboard.cli.columns import WORKER_COLUMNS, wide, worker_cells
from blackboard.cli.layout import table, texts_of
from blackboard.cli.options import Chosen, common
from blackboard.cli.session import Session, emit, run
from blackboard.cli.views import worker_view
from blackboard.model import replace
from blackboard.protocol.reading import BoardTable
from blackboard.worker.membership import Sighting, workers

EPILOG = """\b
Examples:
  blackboard workers
  blackboard workers --json | jq '.[] | select(.alive) | .owner'
"""
EMPTY = "no worker has announced itself: `blackboard worker --jobs JOBS` starts one"


@click.command(epilog=EPILOG)
@click.option("--absolute", is_flag=True, help="Times in UTC instead of '3m ago'.")
@common()
def command(*, chosen: Chosen, absolute: bool) -> int:
    """Show the workers that have announced themselves.

    A worker is called lost when it should have been seen again by now; after a day it is
    forgotten. Its items are taken over when their locks go stale, whatever is shown here.
    """
    session = Session.start(chosen)
    return run(_show(session, absolute=absolute))


async def _show(session: Session, *, absolute: bool) -> int:
    async with session.board() as board:
        found = await _at_work(board)
        now = await board.table.now()
    if session.chosen.json:
        emit([worker_view(one) for one in found])
    elif not found:
        click.echo(EMPTY)
    else:
        rows = [worker_cells(one, now=now, absolute=absolute) for one in found]
        columns = wide(WORKER_COLUMNS, absolute=absolute)
        lines = table(columns, rows, width=terminal.width())
        click.echo(texts_of(lines, colour=terminal.colour()))
    return 0


async def _at_work(board: BoardTable) -> list[Sighting]:
    """The workers, with the locks they hold: what they announced of their runs may be a minute
    old.
    """
    held = Counter([lock.owner async for lock in board.locks()])
    return [
        replace(one, member=replace(one.member, running=held[one.member.owner]))
        for one in await workers(board)
    ]
