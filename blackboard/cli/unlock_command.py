"""`blackboard unlock`: take the lock of a running item from its holder."""

from collections.abc import Sequence

import click

from blackboard.board import mark_now
from blackboard.cli.answers import Answer, due_words, tell
from blackboard.cli.selection import ids_argument, select
from blackboard.cli.session import Chosen, Session, common, run
from blackboard.errors import BadInput
from blackboard.model import Item, Lock, Mark
from blackboard.phrases import since
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable

EPILOG = """\b
Examples:
  blackboard unlock westlafcals --reason "the host is gone"
  blackboard unlock westlafcals --fence 41
"""


@click.command(epilog=EPILOG)
@ids_argument()
@click.option(
    "--fence", type=int, metavar="N", help="Only the lock with this fence, as `why` tells it."
)
@click.option("--reason", default="", help="Why: kept with the run.")
@common()
def command(
    *, chosen: Chosen, ids: tuple[str, ...], exact: bool, fence: int | None, reason: str
) -> int:
    """Take the locks of running items from their holders. Each item is due again at once; what
    its holder still says is told as superseded. A dead worker's locks go stale by themselves.

    Only the lock that was read, or that --fence names, is taken. Exit code 1 if there is none.
    """
    return run(_unlock(Session.start(chosen), ids, exact=exact, fence=fence, reason=reason))


async def _unlock(
    session: Session, ids: Sequence[str], *, exact: bool, fence: int | None, reason: str
) -> int:
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        if fence is not None and len(items) > 1:
            raise BadInput("fence", "it belongs to one item", "name one id")
        who = await mark_now(board, reason)
        answers = [await _unlocked(board, item, who, fence=fence) for item in items]
        return await tell(board, answers, json=session.chosen.json)


async def _unlocked(board: BoardTable, item: Item, who: Mark, *, fence: int | None) -> Answer:
    lock = await board.lock(item.id)
    if lock is None:
        return Answer(item=item, words="is not locked", changed=False, no=True)
    wanted = lock.fence if fence is None else fence
    done = await edits.unlock(board, item.id, who, fence=wanted)
    if not done.changed:
        words = f"is not locked with fence {wanted}, but {done.item.fence}: left as it is"
        return Answer(item=done.item, words=words, changed=False, no=True)
    due = due_words(done.item, await board.table.now())
    return Answer(item=done.item, words=f"is unlocked ({_of(lock)}) and {due}")


def _of(lock: Lock) -> str:
    return f"fence {lock.fence}, held by {lock.owner}, not renewed {since(lock.age)}"
