"""`blackboard rm`: remove items."""

import sys
from collections.abc import Sequence

import click

from blackboard.cli.answers import Answer, tell
from blackboard.cli.selection import ids_argument, select
from blackboard.cli.session import Chosen, Session, common, note, run
from blackboard.cli.text import shown
from blackboard.errors import BadInput
from blackboard.model import Item
from blackboard.phrases import plural
from blackboard.protocol import edits

EPILOG = """\b
Examples:
  blackboard rm westlafcals
  blackboard rm "test-*" --yes
"""
NAMED = 5
"""Ids that the question names."""


@click.command(epilog=EPILOG)
@ids_argument()
@click.option("--yes", is_flag=True, help="Do not ask when a glob matches several.")
@common()
def command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, yes: bool) -> int:
    """Remove items. What runs loses its lock and is stopped; the history stays until its time
    is up.
    """
    return run(_remove(Session.start(chosen), ids, exact=exact, yes=yes))


async def _remove(session: Session, ids: Sequence[str], *, exact: bool, yes: bool) -> int:
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        by_glob = [item for item in items if item.id not in ids]
        if len(by_glob) > 1 and not yes and not _confirmed(by_glob):
            note("nothing removed")
            return 1
        answers = []
        for item in items:
            removed = await edits.remove(board, item.id)
            words = "is removed" + (", while it was running" if item.running else "")
            answers.append(Answer(item=removed.item, words=words))
        return await tell(board, answers, json=session.chosen.json)


def _confirmed(items: Sequence[Item]) -> bool:
    if not sys.stdin.isatty():
        problem = f"this would remove {plural(len(items), 'item')}"
        raise BadInput("id", problem, "say so with --yes")
    names = ", ".join(shown(item.id) for item in items[:NAMED])
    more = ", ..." if len(items) > NAMED else ""
    return click.confirm(f"Remove {plural(len(items), 'item')} ({names}{more})?", err=True)
