"""`blackboard why`: the decision for an item now, and its reasons."""

from collections.abc import Sequence

import click

from blackboard.board import explained
from blackboard.cli import terminal
from blackboard.cli.answers import JSON, item_view
from blackboard.cli.options import Chosen, common
from blackboard.cli.selection import ids_argument, select
from blackboard.cli.session import Session, emit, run
from blackboard.display.layout import shown
from blackboard.model import Item
from blackboard.protocol.reading import BoardTable
from blackboard.worker.membership import Sighting, workers

WHY_EPILOG = """\b
Examples:
  blackboard why westlafcals
  blackboard why 'us-*' --json
"""


@click.command(epilog=WHY_EPILOG)
@ids_argument()
@common()
def why_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool) -> int:
    """Explain why items run now or do not: what is due when and why, who holds a lock and until
    when it is good, who paused it, how it went last, what happens next.
    """
    session = Session.start(chosen).with_defaults()
    views = run(_explain(session, ids, exact=exact))
    if chosen.json:
        emit(views)
    else:
        click.echo("\n\n".join(terminal.wrapped(shown(view["why"])) for view in views))
    return 0


async def _explain(session: Session, ids: Sequence[str], *, exact: bool) -> list[JSON]:
    async with session.board() as board:
        present = await workers(board)
        return [await _view(board, item, present) for item in await select(board, ids, exact=exact)]


async def _view(board: BoardTable, item: Item, present: Sequence[Sighting]) -> JSON:
    one, explanation = await explained(board, item, present)
    return {**item_view(one), "decision": explanation.move.value, "why": explanation.text}
