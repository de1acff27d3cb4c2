"""The commands that change items: add, edit, rm, pause, resume, cancel, unlock."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import click

from blackboard.board import mark_now
from blackboard.cli.apply import differences
from blackboard.cli.options import Chosen, common
from blackboard.cli.output import Answer, due_words, print_answers
from blackboard.cli.session import Session, ids_argument, run, select, spec_of
from blackboard.cli.spec_options import (
    Said,
    edited,
    new_spec,
    parse_keys,
    parse_pairs,
    parse_value,
    spec_options,
    warn_unknown,
)
from blackboard.clock import SystemClock
from blackboard.display.layout import shown
from blackboard.errors import BadInput, BlackboardError
from blackboard.handlers import check_type
from blackboard.inputs import check_id, check_size, checkpoint_text, first_of
from blackboard.model import Item, State
from blackboard.phrases import plural, since
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable
from blackboard.spec import Spec, encode_spec

Change = Callable[[BoardTable, Item], Awaitable[Answer]]
"""Changes one item, and says what became of it."""


async def _change_each(
    session: Session,
    ids: Sequence[str],
    change: Change,
    *,
    exact: bool,
    check: Callable[[BoardTable, Sequence[Item]], None] = lambda *_: None,
) -> int:
    """Change each item that `ids` mean, and print the answers; the exit code. What `check` raises
    is raised before any of them is changed.
    """
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        check(board, items)
        answers = [await change(board, item) for item in items]
        return await print_answers(board, answers, json=session.chosen.json)


# ---- which items there are, and how they run


ADD_EPILOG = """\b
Examples:
  blackboard add davis --type calendars --every 8h --set feeds=@feeds.txt
  blackboard add backup --type shell --cron "0 3 * * *" --tz Europe/Berlin \\
      --first next --set 'command=["backup.sh", "--all"]'
"""


@click.command(epilog=ADD_EPILOG)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--type",
    "item_type",
    required=True,
    metavar="TYPE",
    help="The type of the handler that runs it.",
)
@click.option("--first", metavar="now|next|WHEN", help="The first run [now].")
@spec_options
@common()
def add_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    item_type: str,
    first: str | None,
    said: Said,
    pairs: tuple[str, ...],
) -> int:
    """Add items: an id, a type, when and how they run. They are due at once, unless --first says
    otherwise. Options that are not given come from [types.TYPE] or from the handler.
    """
    wanted = [check_id(one) for one in dict.fromkeys(ids)]
    check_type(item_type)
    spec = new_spec(said, pairs=pairs)
    session = Session.start(chosen).with_defaults()
    first_of(first, session.resolve(item_type, encode_spec(spec)), SystemClock().now())
    return run(_add(session, wanted, item_type=item_type, spec=spec, first=first))


async def _add(
    session: Session, ids: Sequence[str], *, item_type: str, spec: Spec, first: str | None
) -> int:
    async with session.board(create=True) as board:
        check_size(spec, limit=board.table.max_value)
        await _check_new(board, ids)
        warn_unknown(session, [item_type])
        settings = board.resolve(item_type, encode_spec(spec))
        when = first_of(first, settings, await board.table.now())
        added = [
            await edits.add(board, item_id=one, item_type=item_type, spec=spec, first=when)
            for one in ids
        ]
        now = await board.table.now()
        answers = [Answer(item=one.item, words=_added(one.item, now)) for one in added]
        return await print_answers(board, answers, json=session.chosen.json)


def _added(item: Item, now: datetime) -> str:
    return f"is added ({item.type}) and {due_words(item, now)}"


async def _check_new(board: BoardTable, ids: Sequence[str]) -> None:
    """All or none: one id that is taken refuses them all."""
    for one in ids:
        item = await board.item(one)
        if item is not None and item.state is not State.REMOVED:
            problem = f"{one!r} is on this board already"
            raise BadInput("id", problem, "`blackboard edit` changes it")


EDIT_EPILOG = """\b
Examples:
  blackboard edit westlafcals --every 4h --set days=60
  blackboard edit crawl --checkpoint '{"page": 57}'
  blackboard edit "town*" --retries 2 --timeout "" --unset debug
"""


@click.command(epilog=EDIT_EPILOG)
@ids_argument()
@click.option("--unset", metavar="KEY", multiple=True, help="Take a param away.")
@click.option("--checkpoint", metavar="VALUE", help='Where its next run goes on; "": at the start.')
@spec_options
@common()
def edit_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    said: Said,
    pairs: tuple[str, ...],
    unset: tuple[str, ...],
    checkpoint: str | None,
) -> int:
    """Change how items are run, and print what changed. An option with "" removes the item's own
    value, so that the default of its type counts. A new schedule counts from now.
    """
    if not (said or pairs or unset or checkpoint is not None):
        raise BadInput("edit", "nothing to change", "give an option, --set or --unset")
    value = parse_value(checkpoint, "checkpoint") if checkpoint else None
    parse_pairs(pairs)
    parse_keys(unset)
    edited(Spec(), said)

    def new_of(spec: Spec) -> Spec:
        return edited(spec, said, pairs=pairs, unset=unset)

    def check(board: BoardTable, items: Sequence[Item]) -> None:
        """All or none: an edit that one item refuses changes none."""
        checkpoint_text(value, limit=board.table.max_value)
        for item in items:
            spec = new_of(spec_of(item))
            check_size(spec, limit=board.table.max_value)
            board.resolve(item.type, encode_spec(spec))

    async def edit(board: BoardTable, item: Item) -> Answer:
        text = checkpoint_text(value, limit=board.table.max_value)
        done = await edits.edit(
            board,
            item.id,
            lambda spec, _: new_of(spec),
            checkpoint=None if checkpoint is None else text,
        )
        changes = [one.words for one in differences(spec_of(item), spec_of(done.item))]
        if done.item.checkpoint != item.checkpoint:
            changes.append(f"checkpoint {item.checkpoint or '-'} -> {text or '-'}")
        if not changes:
            return Answer(item=done.item, words="is as it was", changed=False)
        due = due_words(done.item, await board.table.now())
        return Answer(item=done.item, words=f"is changed ({'; '.join(changes)}) and {due}")

    session = Session.start(chosen).with_defaults()
    return run(_change_each(session, ids, edit, exact=exact, check=check))


RM_EPILOG = """\b
Examples:
  blackboard rm westlafcals
  blackboard rm "test-*" --yes
"""
NAMED = 5
"""Ids that the question names."""


@click.command(epilog=RM_EPILOG)
@ids_argument()
@click.option("--yes", is_flag=True, help="Do not ask when a glob matches several.")
@common()
def rm_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, yes: bool) -> int:
    """Remove items. Running ones lose their locks and are stopped; the history is kept as long as
    [board] history_age says.
    """

    def check(_: BoardTable, items: Sequence[Item]) -> None:
        by_glob = [item for item in items if item.id not in ids]
        if len(by_glob) > 1 and not yes and not _confirmed(by_glob):
            raise BlackboardError("nothing removed")

    async def remove(board: BoardTable, item: Item) -> Answer:
        removed = await edits.remove(board, item.id)
        words = "is removed" + (", while it was running" if item.running else "")
        return Answer(item=removed.item, words=words)

    return run(_change_each(Session.start(chosen), ids, remove, exact=exact, check=check))


def _confirmed(items: Sequence[Item]) -> bool:
    if not sys.stdin.isatty():
        problem = f"this would remove {plural(len(items), 'item')}"
        raise BadInput("id", problem, "say so with --yes")
    names = ", ".join(shown(item.id) for item in items[:NAMED])
    more = ", ..." if len(items) > NAMED else ""
    return click.confirm(f"Remove {plural(len(items), 'item')} ({names}{more})?", err=True)


# ---- pauses, and runs that are ended from outside


def _unchanged(item: Item, words: str, *, no: bool = False) -> Answer:
    return Answer(item=item, words=words, changed=False, no=no)


PAUSE_EPILOG = """\b
Examples:
  blackboard pause westlafcals --reason "feeds are being moved"
  blackboard pause "*"
"""


@click.command(epilog=PAUSE_EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: shown by `why`.")
@common()
def pause_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Start no more runs of items until they are resumed. A running run may finish."""

    async def pause(board: BoardTable, item: Item) -> Answer:
        done = await edits.pause(board, item.id, await mark_now(board, reason))
        if done.changed:
            running = "; the run under way may finish" if done.item.running else ""
            return Answer(item=done.item, words=f"is paused{running}")
        if done.item.is_paused:
            return _unchanged(done.item, "was paused already")
        words = f"is {done.item.state.value}: there is nothing to pause"
        return _unchanged(done.item, words, no=True)

    return run(_change_each(Session.start(chosen), ids, pause, exact=exact))


RESUME_EPILOG = """\b
Examples:
  blackboard resume westlafcals
  blackboard resume "*" --reason "the feeds are back"
"""


@click.command(epilog=RESUME_EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: kept with the item.")
@common()
def resume_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """Undo a pause. A time that passed meanwhile is due at once."""

    async def resume(board: BoardTable, item: Item) -> Answer:
        done = await edits.resume(board, item.id, await mark_now(board, reason))
        if not done.changed:
            return _unchanged(done.item, "was not paused")
        due = due_words(done.item, await board.table.now())
        return Answer(item=done.item, words=f"is resumed and {due}")

    return run(_change_each(Session.start(chosen), ids, resume, exact=exact))


CANCEL_EPILOG = """\b
Examples:
  blackboard cancel westlafcals --reason "wrong feeds"
  blackboard cancel "town*" --json
"""


@click.command(epilog=CANCEL_EPILOG)
@ids_argument()
@click.option("--reason", default="", help="Why: kept with the run.")
@common()
def cancel_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, reason: str) -> int:
    """End the running runs of items; each item waits for its next time. The handler is stopped
    when its worker renews the lock: within a minute, or a third of `stale_after`. Exit code 1 if
    one of the items does not run.
    """

    async def cancel(board: BoardTable, item: Item) -> Answer:
        if not item.running:
            return _unchanged(item, "does not run", no=True)
        spec_of(item)  # a damaged one is refused: the next slot is computed from it
        mark = await mark_now(board, reason)
        done = await edits.cancel(board, item.id, mark, fence=item.fence)
        if not done.changed:
            words = "had ended, or been taken over, before it could be cancelled"
            return _unchanged(done.item, words, no=True)
        due = due_words(done.item, await board.table.now())
        return Answer(item=done.item, words=f"is cancelled (was with {item.owner}) and {due}")

    session = Session.start(chosen).with_defaults()
    return run(_change_each(session, ids, cancel, exact=exact))


UNLOCK_EPILOG = """\b
Examples:
  blackboard unlock westlafcals --reason "the host is gone"
  blackboard unlock westlafcals --fence 41
"""


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
    """Take the locks of running items from their holders. Each item is due again at once; a late
    result of its holder is recorded as superseded. The locks of a dead worker go stale without
    this command.

    Only the lock that was read, or that --fence names, is taken. Exit code 1 if there is none.
    """

    def check(_: BoardTable, items: Sequence[Item]) -> None:
        if fence is not None and len(items) > 1:
            raise BadInput("fence", "it belongs to one item", "name one id")

    async def unlock(board: BoardTable, item: Item) -> Answer:
        lock = await board.lock(item.id)
        if lock is None:
            return _unchanged(item, "is not locked", no=True)
        expected = lock.fence if fence is None else fence
        mark = await mark_now(board, reason)
        done = await edits.unlock(board, item.id, mark, fence=expected)
        if not done.changed:
            words = f"is not locked with fence {expected}, but {done.item.fence}: left as it is"
            return _unchanged(done.item, words, no=True)
        due = due_words(done.item, await board.table.now())
        held = f"fence {lock.fence}, held by {lock.owner}, not renewed {since(lock.age)}"
        return Answer(item=done.item, words=f"is unlocked ({held}) and {due}")

    return run(_change_each(Session.start(chosen), ids, unlock, exact=exact, check=check))
