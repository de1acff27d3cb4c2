"""The commands that change what happens to items from outside: pause, resume, cancel, unlock."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import click

from blackboard.board import mark_now
from blackboard.cli.answers import Answer, due_words, print_answers
from blackboard.cli.selection import ids_argument, select, spec_of
from blackboard.cli.session import Chosen, Session, common, run
from blackboard.errors import BadInput
from blackboard.model import Item, Mark
from blackboard.phrases import since
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable

PAUSE_EPILOG = """\b
Examples:
  blackboard pause westlafcals --reason "feeds are being moved"
  blackboard pause "*"
"""
RESUME_EPILOG = """\b
Examples:
  blackboard resume westlafcals
  blackboard resume "*" --reason "the feeds are back"
"""
CANCEL_EPILOG = """\b
Examples:
  blackboard cancel westlafcals --reason "wrong feeds"
  blackboard cancel "town*" --json
"""
UNLOCK_EPILOG = """\b
Examples:
  blackboard unlock westlafcals --reason "the host is gone"
  blackboard unlock westlafcals --fence 41
"""

Change = Callable[[BoardTable, Item, Mark], Awaitable[Answer]]
"""Changes one item; the mark names who does it, when and why."""


async def _change_each(
    session: Session,
    ids: Sequence[str],
    *,
    exact: bool,
    reason: str,
    change: Change,
    several: BadInput | None = None,
) -> int:
    """Change each item that `ids` mean, and print the answers; the exit code. Raises `several`
    if it is given and they mean more than one.
    """
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        if several is not None and len(items) > 1:
            raise several
        mark = await mark_now(board, reason)
        answers = [await change(board, item, mark) for item in items]
        return await print_answers(board, answers, json=session.chosen.json)


@click.command(epilog=PAUSE_EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: shown by `why`.")
@common()
def pause_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Start no more runs of items until they are resumed. A running run may finish."""
    session = Session.start(chosen)
    return run(_change_each(session, ids, exact=exact, reason=reason, change=_pause))


async def _pause(board: BoardTable, item: Item, mark: Mark) -> Answer:
    done = await edits.pause(board, item.id, mark)
    if done.changed:
        running = "; the run under way may finish" if done.item.running else ""
        return Answer(item=done.item, words=f"is paused{running}")
    if done.item.is_paused:
        return Answer(item=done.item, words="was paused already", changed=False)
    words = f"is {done.item.state.value}: there is nothing to pause"
    return Answer(item=done.item, words=words, changed=False, no=True)


@click.command(epilog=RESUME_EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: kept with the item.")
@common()
def resume_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Undo a pause. What became due in between is due at once."""
    session = Session.start(chosen)
    return run(_change_each(session, ids, exact=exact, reason=reason, change=_resume))


async def _resume(board: BoardTable, item: Item, mark: Mark) -> Answer:
    done = await edits.resume(board, item.id, mark)
    if not done.changed:
        return Answer(item=done.item, words="was not paused", changed=False)
    due = due_words(done.item, await board.table.now())
    return Answer(item=done.item, words=f"is resumed and {due}")


@click.command(epilog=CANCEL_EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: kept with the run.")
@common()
def cancel_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """End the running runs of items; each item waits for its next time. The handler is stopped
    when its worker renews the lock: within a minute, or a third of `stale_after`. Exit code 1 if
    one of the items does not run.
    """
    session = Session.start(chosen).with_defaults()
    return run(_change_each(session, ids, exact=exact, reason=reason, change=_cancel))


async def _cancel(board: BoardTable, item: Item, mark: Mark) -> Answer:
    if not item.running:
        return Answer(item=item, words="does not run", changed=False, no=True)
    spec_of(item)  # a damaged one is refused: it says when the item is due next
    done = await edits.cancel(board, item.id, mark, fence=item.fence)
    if not done.changed:
        words = "had ended, or been taken over, before it could be cancelled"
        return Answer(item=done.item, words=words, changed=False, no=True)
    due = due_words(done.item, await board.table.now())
    return Answer(item=done.item, words=f"is cancelled (was with {item.owner}) and {due}")


@click.command(epilog=UNLOCK_EPILOG)
@ids_argument()
@click.option(
    "--fence", type=int, metavar="N", help="Only the lock with this fence, as `why` shows it."
)
@click.option("--reason", default="", help="Why: kept with the run.")
@common()
def unlock_command(
    *, chosen: Chosen, ids: tuple[str, ...], exact: bool, fence: int | None, reason: str
) -> int:
    """Take the locks of running items from their holders. Each item is due again at once; what
    its holder still reports is recorded as superseded. A dead worker's locks go stale by
    themselves.

    Only the lock that was read, or that --fence names, is taken. Exit code 1 if there is none.
    """
    session, change = Session.start(chosen), partial(_unlock, fence=fence)
    several = None if fence is None else BadInput("fence", "it belongs to one item", "name one id")
    return run(
        _change_each(session, ids, exact=exact, reason=reason, change=change, several=several)
    )


async def _unlock(board: BoardTable, item: Item, mark: Mark, *, fence: int | None) -> Answer:
    lock = await board.lock(item.id)
    if lock is None:
        return Answer(item=item, words="is not locked", changed=False, no=True)
    wanted = lock.fence if fence is None else fence
    done = await edits.unlock(board, item.id, mark, fence=wanted)
    if not done.changed:
        words = f"is not locked with fence {wanted}, but {done.item.fence}: left as it is"
        return Answer(item=done.item, words=words, changed=False, no=True)
    due = due_words(done.item, await board.table.now())
    held = f"fence {lock.fence}, held by {lock.owner}, not renewed {since(lock.age)}"
    return Answer(item=done.item, words=f"is unlocked ({held}) and {due}")
