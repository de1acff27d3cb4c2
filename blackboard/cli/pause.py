"""The commands that hold up items, or end their runs: pause, resume, cancel, ack, unlock."""

from collections.abc import Sequence
from typing import Literal

import click

from blackboard.board import NOT_CANCELLED, mark_now, not_locked_any_more
from blackboard.cli.many import Check, change_each, record
from blackboard.cli.options import (
    Chosen,
    Decorator,
    cli_command,
    common,
    ids_argument,
    reason_option,
)
from blackboard.cli.output import Answer, emit, paused_words
from blackboard.cli.session import Session, completed
from blackboard.errors import BadInput
from blackboard.model import Item
from blackboard.phrases import plural, since
from blackboard.protocol import edits
from blackboard.protocol.maintenance import pause_board, paused_by, resume_board
from blackboard.protocol.reading import BoardTable
from blackboard.stores import wake_workers
from blackboard.why import due_words


def _unchanged(item: Item, words: str, *, no: bool = False) -> Answer:
    return Answer(item=item, words=words, changed=False, no=no)


@cli_command("""\
Examples:
  blackboard pause westlafcals --reason "feeds are being moved"
  blackboard pause "town*"
  blackboard pause --board --reason "moving to the new database"
""")
@ids_argument(required=False)
@reason_option
@common(whole=True)
def pause_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Start no more runs of items until they are resumed; with --board, of any item of the board.
    What runs may finish. Workers learn that the board is paused at their next walk. The items' own
    pauses stay as they are, and pumps and elections go on: on their own boards, pause '*'.
    """
    session = Session.start(chosen)
    if chosen.whole:
        return completed(_change_board(session, "pause", reason))
    _check_named(ids)

    async def pause(board: BoardTable, item: Item) -> Answer:
        done = await edits.pause(board, item.id, await mark_now(board, reason))
        if done.changed:
            running = "; the run under way may finish" if done.item.running else ""
            return Answer(item=done.item, words=f"is paused{running}")
        if done.item.is_paused:
            return _unchanged(done.item, "was paused already")
        words = f"is {done.item.state.value}: there is nothing to pause"
        return _unchanged(done.item, words, no=True)

    return completed(change_each(session, ids, pause, verb="pause", exact=exact, reason=reason))


def _check_named(ids: Sequence[str]) -> None:
    if not ids:
        raise BadInput("id", "no item is named", "ids, globs, or --board for the whole board")


async def _change_board(session: Session, verb: Literal["pause", "resume"], reason: str) -> int:
    """Pause or resume the board; exit code 1 where another command has undone that meanwhile."""
    async with session.board() as board:
        if verb == "pause":
            changed = await pause_board(board, await mark_now(board, reason))
        else:
            changed = await resume_board(board)
        mark = await paused_by(board)
        wake_workers(session.store)
        if changed:
            await record(board, f"{verb} board", (), reason=reason)
        paused = paused_words(mark, await board.table.now()) if mark else ""
    if verb == "pause":
        words = paused or "the board is not paused: it was resumed meanwhile"
    elif paused:
        words = f"another command has paused it meanwhile: {paused}"
    else:
        words = "the board is resumed" if changed else "the board was not paused"
    if session.chosen.json:
        emit({"board": session.name, "paused": mark, "changed": changed})
    else:
        click.echo(words)
    return 0 if bool(paused) is (verb == "pause") else 1


@cli_command("""\
Examples:
  blackboard resume westlafcals
  blackboard resume "*" --reason "the feeds are back"
""")
@ids_argument(required=False)
@reason_option
@common(whole=True)
def resume_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Undo a pause of items or, with --board, of the board. A time that passed meanwhile is due at
    once, unless the item wants no missed runs (`--missed none`).
    """
    session = Session.start(chosen)
    if chosen.whole:
        return completed(_change_board(session, "resume", reason))
    _check_named(ids)
    session = session.with_defaults(changes=True)

    async def resume(board: BoardTable, item: Item) -> Answer:
        done = await edits.resume(board, item.id, await mark_now(board, reason))
        if not done.changed:
            return _unchanged(done.item, "was not paused")
        due = due_words(board, done.item, await board.table.now())
        return Answer(item=done.item, words=f"is resumed and {due}")

    return completed(change_each(session, ids, resume, verb="resume", exact=exact, reason=reason))


@cli_command("""\
Examples:
  blackboard ack westlafcals --reason "the feed is gone for good"
""")
@ids_argument()
@reason_option
@common()
def ack_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Acknowledge the failure of items: `check` passes over it until an item runs again. Exit code
    1 if one of the items has not failed, or runs, or has run meanwhile.
    """

    async def acknowledge(board: BoardTable, item: Item) -> Answer:
        mark = await mark_now(board, reason)
        done = await edits.acknowledge(board, item.id, mark, fence=item.fence)
        if not done.changed:
            return _unchanged(done.item, "was acknowledged already")
        failed = plural(done.item.failures, "failure")
        return Answer(item=done.item, words=f"is acknowledged, with its {failed} in a row")

    session = Session.start(chosen)
    return completed(change_each(session, ids, acknowledge, verb="ack", exact=exact, reason=reason))


def _fence_option(what: str) -> Decorator:
    line = f"Only the {what} with this fence, as `why` shows it."
    return click.option("--fence", type=int, metavar="N", help=line)


def _one_for(fence: int | None) -> Check:
    """Refuses a fence for several items."""

    async def check(_: BoardTable, items: Sequence[Item]) -> None:
        if fence is not None and len(items) > 1:
            raise BadInput("fence", "it belongs to one item", "name one id")

    return check


@cli_command("""\
Examples:
  blackboard cancel westlafcals --reason "wrong feeds"
  blackboard cancel "town*" --json
  blackboard cancel westlafcals --fence 41
""")
@ids_argument()
@_fence_option("run")
@reason_option
@common()
def cancel_command(
    *, chosen: Chosen, ids: tuple[str, ...], exact: bool, fence: int | None, reason: str
) -> int:
    """End the running runs of items; each item waits for its next time. The handler is stopped
    when its worker renews the lock: on this host, at once; else within a minute, or a third of
    `stale_after`.

    Only the run that was read, or that --fence names, is ended. Exit code 1 if there is none.
    """

    async def cancel(board: BoardTable, item: Item) -> Answer:
        if not item.running:
            return _unchanged(item, "does not run", no=True)
        if fence not in {None, item.fence}:
            words = f"does not run with fence {fence}, but {item.fence}: left as it is"
            return _unchanged(item, words, no=True)
        mark = await mark_now(board, reason)
        done = await edits.cancel(board, item.id, mark, fence=item.fence)
        if not done.changed:
            return _unchanged(done.item, NOT_CANCELLED, no=True)
        due = due_words(board, done.item, await board.table.now())
        return Answer(item=done.item, words=f"is cancelled (was with {item.owner}) and {due}")

    session = Session.start(chosen).with_defaults(changes=True)
    check = _one_for(fence)
    work = change_each(session, ids, cancel, verb="cancel", exact=exact, reason=reason, check=check)
    return completed(work)


@cli_command("""\
Examples:
  blackboard unlock westlafcals --reason "the host is gone"
  blackboard unlock westlafcals --fence 41
""")
@ids_argument()
@_fence_option("lock")
@reason_option
@common()
def unlock_command(
    *, chosen: Chosen, ids: tuple[str, ...], exact: bool, fence: int | None, reason: str
) -> int:
    """Take the locks of running items from their holders. Each item is due again at once; a late
    result of its holder is recorded as superseded. The locks of a dead worker go stale without
    this command.

    Only the lock that was read, or that --fence names, is taken. Exit code 1 if there is none.
    """

    async def unlock(board: BoardTable, item: Item) -> Answer:
        lock = await board.lock(item.id)
        if lock is None:
            return _unchanged(item, "is not locked", no=True)
        if fence not in {None, lock.fence}:
            words = f"is not locked with fence {fence}, but {lock.fence}: left as it is"
            return _unchanged(item, words, no=True)
        mark = await mark_now(board, reason)
        done = await edits.unlock(board, item.id, mark, fence=lock.fence)
        if not done.changed:
            return _unchanged(done.item, not_locked_any_more(lock.fence), no=True)
        due = due_words(board, done.item, await board.table.now())
        held = f"fence {lock.fence}, held by {lock.owner}, not renewed {since(lock.age)}"
        return Answer(item=done.item, words=f"is unlocked ({held}) and {due}")

    session = Session.start(chosen)
    check = _one_for(fence)
    work = change_each(session, ids, unlock, verb="unlock", exact=exact, reason=reason, check=check)
    return completed(work)
