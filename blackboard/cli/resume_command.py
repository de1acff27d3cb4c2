"""`blackboard resume`: undo a pause."""

from collections.abc import Sequence

import click

from blackboard.board import mark_now
from blackboard.cli.answers import Answer, due_words, tell
from blackboard.cli.selection import ids_argument, select
from blackboard.cli.session import Chosen, Session, common, run
from blackboard.model import Item, Mark
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable

EPILOG = """\b
Examples:
  blackboard resume westlafcals
  blackboard resume "*" --reason "the feeds are back"
"""


@click.command(epilog=EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: kept with the item.")
@common()
def command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Undo a pause. What came due meanwhile is due at once."""
    return run(_resume(Session.start(chosen), ids, exact=exact, reason=reason))


async def _resume(session: Session, ids: Sequence[str], *, exact: bool, reason: str) -> int:
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        who = await mark_now(board, reason)
        answers = [await _resumed(board, item, who) for item in items]
        return await tell(board, answers, json=session.chosen.json)


async def _resumed(board: BoardTable, item: Item, who: Mark) -> Answer:
    done = await edits.resume(board, item.id, who)
    if not done.changed:
        return Answer(item=done.item, words="was not paused", changed=False)
    due = due_words(done.item, await board.table.now())
    return Answer(item=done.item, words=f"is resumed and {due}")
