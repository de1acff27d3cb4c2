"""`blackboard init`: makes a board."""

import click

from blackboard.cli.options import Chosen, WholeNumber, cli_command
from blackboard.cli.output import emit
from blackboard.cli.session import Session, completed
from blackboard.display.escaping import shown
from blackboard.location import is_there
from blackboard.phrases import plural
from blackboard.protocol.board_row import check_new


@cli_command("""\
Examples:
  blackboard init
  blackboard --store /var/lib/towns.db --board towns init --shards 4
""")
@click.option(
    "--shards",
    metavar="N",
    type=WholeNumber(),
    help="Partitions, fixed for ever; more for very many runs [1].",
)
def init_command(*, chosen: Chosen, shards: int | None) -> int:
    """Make a board, in a new or an existing store. A board that exists is left as it is."""
    completed(_init(Session.start(chosen), shards))
    return 0


async def _init(session: Session, shards: int | None) -> None:
    session.check_store()
    if shards is not None:
        check_new(shards)
    async with session.table(create=True) as table:
        if shards is not None or not await is_there(table, session.name):
            board = await session.made(table, shards=1 if shards is None else shards)
        else:
            board = await session.opened(table)
    made = board.was_made_here
    record = {"store": session.store, "board": board.name, "shards": board.shards, "made": made}
    if session.chosen.json:
        emit(record)
        return
    name, place = f"the board {board.name!r}", f"in {shown(session.store)}"
    begin = f"made {name} {place}" if made else f"{name} is {place} already"
    click.echo(f"{begin}, with {plural(board.shards, 'shard')}")
