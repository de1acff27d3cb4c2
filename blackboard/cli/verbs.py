"""The commands that hold up items, or end their runs: pause, resume, cancel, ack, unlock."""

from collections.abc import Sequence
from typing import Literal

import click

from blackboard.board import mark_now, operator
from blackboard.cli import options
from blackboard.cli.many import change_each, record
from blackboard.cli.output import emit, paused_words
from blackboard.cli.session import Session, completed
from blackboard.errors import BadInput
from blackboard.model import LARGEST, Item
from blackboard.protocol.board_pause import pause_board, paused_by, resume_board
from blackboard.protocol.board_table import BoardTable
from blackboard.verbs import VERBS, Answer

PLANNED = {"resume", "cancel"}
"""After these verbs an item is planned anew, by its schedule."""


def _act(verb: str, chosen: options.Chosen, ids: Sequence[str], *, fence: int | None = None) -> int:
    """Do one of `VERBS` to each item, and print the answers; the exit code. Raises BadInput where
    no item is named, or a fence for several.
    """
    session = Session.start(chosen)
    if not ids:
        raise BadInput("id", "no item is named", "ids, globs, or --board for the whole board")
    if verb in PLANNED:
        session = session.with_defaults(changes=True)
    else:
        session = session.with_labels(ids, shown=chosen.json)
    by = operator()  # a directory of users may be slow

    async def check(_: BoardTable, items: Sequence[Item]) -> None:
        if fence is not None and len(items) > 1:
            raise BadInput("fence", "it belongs to one item", "name one id")

    async def change(board: BoardTable, item: Item) -> Answer:
        return await VERBS[verb](board, item, await mark_now(board, chosen.reason, by=by), fence)

    return completed(change_each(session, ids, change, verb=verb, check=check))


@options.cli_command(
    """\
Examples:
  blackboard pause westlafcals --reason "feeds are being moved"
  blackboard pause "town*"
  blackboard pause --board --reason "moving to the new database"
""",
    whole=True,
)
@options.ids_argument(required=False)
@options.reason_option
def pause_command(*, chosen: options.Chosen, ids: tuple[str, ...]) -> int:
    """Start no more runs of items until they are resumed; with --board, of any item of the board.
    What runs may finish. Workers learn that the board is paused at their next walk. The items' own
    pauses stay as they are. Pumps and elections go on: to pause those, pause '*' on their boards.
    """
    if chosen.whole:
        return completed(_change_board(Session.start(chosen), "pause"))
    return _act("pause", chosen, ids)


async def _change_board(session: Session, verb: Literal["pause", "resume"]) -> int:
    """Pause or resume the board; exit code 1 where another command has undone that meanwhile."""
    async with session.board() as board:
        if verb == "pause":
            changed = await pause_board(board, await mark_now(board, session.chosen.reason))
        else:
            changed = await resume_board(board)
        mark = await paused_by(board)
        session.wake_workers()
        if changed:
            await record(session, board, f"{verb} board", ())
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


@options.cli_command(
    """\
Examples:
  blackboard resume westlafcals
  blackboard resume "*" --reason "the feeds are back"
""",
    whole=True,
)
@options.ids_argument(required=False)
@options.reason_option
def resume_command(*, chosen: options.Chosen, ids: tuple[str, ...]) -> int:
    """Undo a pause of items or, with --board, of the board. A time that passed meanwhile is due at
    once, unless the item wants no missed runs (`--missed none`).
    """
    if chosen.whole:
        return completed(_change_board(Session.start(chosen), "resume"))
    return _act("resume", chosen, ids)


@options.cli_command("""\
Examples:
  blackboard ack westlafcals --reason "the feed is gone for good"
""")
@options.ids_argument()
@options.reason_option
def ack_command(*, chosen: options.Chosen, ids: tuple[str, ...]) -> int:
    """Acknowledge the failure of items: `check` passes over it until an item runs again. Exit code
    1 if one of the items has not failed, or runs, or has run meanwhile.
    """
    return _act("ack", chosen, ids)


def _fence_option(noun: str) -> options.Decorator:
    line = f"Only the {noun} with this fence, as `why` shows it."
    return options.number_option("--fence", most=LARGEST, line=line)


@options.cli_command("""\
Examples:
  blackboard cancel westlafcals --reason "wrong feeds"
  blackboard cancel "town*" --json
  blackboard cancel westlafcals --fence 41
""")
@options.ids_argument()
@_fence_option("run")
@options.reason_option
def cancel_command(*, chosen: options.Chosen, ids: tuple[str, ...], fence: int | None) -> int:
    """End the running runs of items; each item waits for its next time. The handler is stopped
    when its worker renews the lock: on this host, at once; else within a minute, or a third of
    `stale_after`.

    Only the run that was read, or that --fence names, is ended. Exit code 1 if there is none.
    """
    return _act("cancel", chosen, ids, fence=fence)


@options.cli_command("""\
Examples:
  blackboard unlock westlafcals --reason "the host is gone"
  blackboard unlock westlafcals --fence 41
""")
@options.ids_argument()
@_fence_option("lock")
@options.reason_option
def unlock_command(*, chosen: options.Chosen, ids: tuple[str, ...], fence: int | None) -> int:
    """Take the locks of running items from their holders. Each item is due again at once; a late
    result of its holder is recorded as superseded. The locks of a dead worker go stale without
    this command.

    Only the lock that was read, or that --fence names, is taken. Exit code 1 if there is none.
    """
    return _act("unlock", chosen, ids, fence=fence)
