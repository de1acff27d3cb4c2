"""`blackboard why`: the decision for an item now, and its reasons."""

import asyncio
from collections.abc import Sequence

import click

from blackboard.cli.options import Chosen, cli_command, ids_argument
from blackboard.cli.output import emit, why_lines, width
from blackboard.cli.session import Session
from blackboard.display.item_queries import select
from blackboard.display.layout import texts_of
from blackboard.protocol.members import workers
from blackboard.why import ExplainedItem, explained_record


@cli_command("""\
Examples:
  blackboard why westlafcals
  blackboard why 'us-*' --json
""")
@ids_argument()
def why_command(*, chosen: Chosen, ids: tuple[str, ...]) -> int:
    """Explain why items run now or do not: what is due when and why, which worker holds a lock and
    until when, who paused it, how the last run ended, what happens next, and what would change it.
    """
    session = Session.start(chosen).with_defaults()
    explanations = asyncio.run(_explain(session, ids))
    if chosen.json:
        emit(explanations)
    else:
        lines = (why_lines(each.headline, each.facts.items(), width()) for each in explanations)
        click.echo("\n\n".join(texts_of(of_item, colour=False) for of_item in lines))
    return 0


async def _explain(session: Session, ids: Sequence[str]) -> list[ExplainedItem]:
    async with session.board() as board:
        present = await workers(board)
        items = await select(board, ids, exact=session.chosen.exact)
        return [await explained_record(board, item, present) for item in items]
