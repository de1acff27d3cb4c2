"""`blackboard pause`: start no more runs of items."""

from collections.abc import Sequence

import click

from blackboard.board import mark_now
from blackboard.cli.answers import Answer, tell
from blackboard.cli.selection import ids_argument, select
from blackboard.cli.session import Chosen, Session, common, run
from blackboard.model import Item, Mark
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable

EPILOG = """\b
Examples:
  blackboard pause westlafcals --reason "feeds are being moved"
  blackboard pause "*"
"""


@click.command(epilog=EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: shown by `why`.")
@common()
def command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Start no more runs of items until they are resumed. What runs may finish."""
    return run(_pause(Session.start(chosen), ids, exact=exact, reason=reason))


async def _pause(session: Session, ids: Sequence[str], *, exact: bool, reason: str) -> int:
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        who = await mark_now(board, reason)
        answers = [await _paused(board, item, who) for item in items]
        return await tell(board, answers, json=session.chosen.json)


async def _paused(board: BoardTable, item: Item, who: Mark) -> Answer:
    done = await edits.pause(board, item.id, who)
    if done.changed:
        running = "; the run under way may finish" if done.item.running else ""
        return Answer(item=done.item, words=f"is paused{running}")
    if done.item.is_paused:
        return Answer(item=done.item, words="was paused already", changed=False)
    words = f"is {done.item.state.value}: there is nothing to pause"
    return Answer(item=done.item, words=words, changed=False, no=True)
