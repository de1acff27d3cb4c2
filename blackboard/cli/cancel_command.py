"""`blackboard cancel`: end running runs."""

from collections.abc import Sequence

import click

from blackboard.board import mark_now
from blackboard.cli.answers import Answer, due_words, tell
from blackboard.cli.selection import ids_argument, select, spec_of
from blackboard.cli.session import Chosen, Session, common, run
from blackboard.model import Item, Mark
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable

EPILOG = """\b
Examples:
  blackboard cancel westlafcals --reason "wrong feeds"
  blackboard cancel "town*" --json
"""


@click.command(epilog=EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: kept with the run.")
@common()
def command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """End the running runs of items; each waits for its next time. The handler is stopped when
    its worker renews the lock: within a minute, or a third of `stale_after`. Exit code 1 if
    one of the items does not run.
    """
    return run(_cancel(Session.start(chosen).with_defaults(), ids, exact=exact, reason=reason))


async def _cancel(session: Session, ids: Sequence[str], *, exact: bool, reason: str) -> int:
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        who = await mark_now(board, reason)
        answers = [await _cancelled(board, item, who) for item in items]
        return await tell(board, answers, json=session.chosen.json)


async def _cancelled(board: BoardTable, item: Item, who: Mark) -> Answer:
    if not item.running:
        return Answer(item=item, words="does not run", changed=False, no=True)
    spec_of(item)  # it says when the item is due next
    done = await edits.cancel(board, item.id, who, fence=item.fence)
    if not done.changed:
        words = "had ended, or been taken over, before it could be cancelled"
        return Answer(item=done.item, words=words, changed=False, no=True)
    due = due_words(done.item, await board.table.now())
    return Answer(item=done.item, words=f"is cancelled (was with {item.owner}) and {due}")
