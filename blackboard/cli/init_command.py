"""`blackboard init`: make a board."""

import click

from blackboard.cli.session import Chosen, Session, common, emit, is_there, run
from blackboard.cli.text import shown

EPILOG = """\b
Examples:
  blackboard init
  blackboard --store /var/lib/towns.db --board towns init --shards 4
"""


@click.command(epilog=EPILOG)
@click.option(
    "--shards",
    metavar="N",
    type=int,
    help="Partitions, fixed for ever; more for very many runs [1].",
)
@common()
def command(*, chosen: Chosen, shards: int | None) -> int:
    """Make a board, in a new store or in one that is there. Again is fine."""
    run(_init(Session.start(chosen), shards))
    return 0


async def _init(session: Session, shards: int | None) -> None:
    async with session.table(create=True) as table:
        made = not await is_there(table, session.name)
        if made or shards is not None:
            board = await session.made(table, shards=1 if shards is None else shards)
        else:
            board = await session.opened(table)
    record = {"store": session.store, "board": board.name, "shards": board.shards, "made": made}
    if session.chosen.json:
        emit(record)
        return
    where = f"the board {board.name!r} in {shown(session.store)}, shards: {board.shards}"
    click.echo(f"made {where}" if made else f"there is {where}")
