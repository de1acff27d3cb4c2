"""The commands that change which items there are and how they run: add, edit, rm."""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime

import click

from blackboard.cli.answers import Answer, due_words, print_answers
from blackboard.cli.apply import differences
from blackboard.cli.selection import ids_argument, select, spec_of
from blackboard.cli.session import Chosen, Session, common, note, run
from blackboard.cli.spec_options import (
    Said,
    edited,
    new_spec,
    parse_keys,
    parse_pairs,
    spec_options,
    warn_unknown,
)
from blackboard.clock import SystemClock
from blackboard.display.layout import shown
from blackboard.errors import BadInput
from blackboard.handlers import check_type
from blackboard.inputs import check_id, check_size, first_of
from blackboard.model import Item, State
from blackboard.phrases import plural
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable
from blackboard.spec import Spec, encode_spec

ADD_EPILOG = """\b
Examples:
  blackboard add davis --type calendars --every 8h --set feeds=@feeds.txt
  blackboard add backup --type shell --cron "0 3 * * *" --tz Europe/Berlin \\
      --first next --set 'command=["backup.sh", "--all"]'
"""


@click.command(epilog=ADD_EPILOG)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--type", "item_type", required=True, metavar="TYPE", help="Which handler runs it.")
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
    """Add items: an id, a type, when and how they run. Due at once, unless --first says
    otherwise. What is not said here is said by [types.TYPE] or by the handler.
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
  blackboard edit "town*" --retries 2 --timeout "" --unset debug
"""


@click.command(epilog=EDIT_EPILOG)
@ids_argument()
@click.option("--unset", metavar="KEY", multiple=True, help="Take a param away.")
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
) -> int:
    """Change how items are run, and say what changed. An option with "" takes back what the item
    says, so that its type's default counts. A new schedule counts from now.
    """
    if not (said or pairs or unset):
        raise BadInput("edit", "nothing to change", "give an option, --set or --unset")
    parse_pairs(pairs)
    parse_keys(unset)
    edited(Spec(), said)

    def new_of(spec: Spec) -> Spec:
        return edited(spec, said, pairs=pairs, unset=unset)

    return run(_Edit(Session.start(chosen).with_defaults(), new_of).run(ids, exact=exact))


class _Edit:
    def __init__(self, session: Session, new_of: Callable[[Spec], Spec]) -> None:
        self._session = session
        self._new_of = new_of

    async def run(self, ids: Sequence[str], *, exact: bool) -> int:
        async with self._session.board() as board:
            items = await select(board, ids, exact=exact)
            for item in items:
                self._check(board, item)
            answers = [await self._edit(board, item) for item in items]
            return await print_answers(board, answers, json=self._session.chosen.json)

    def _check(self, board: BoardTable, item: Item) -> None:
        """All or none: what one item refuses is done to none."""
        spec = self._new_of(spec_of(item))
        check_size(spec, limit=board.table.max_value)
        board.resolve(item.type, encode_spec(spec))

    async def _edit(self, board: BoardTable, item: Item) -> Answer:
        done = await edits.edit(board, item.id, lambda spec, _: self._new_of(spec))
        new = spec_of(done.item)
        said = [one.words for one in differences(spec_of(item), new)]
        if not said:
            return Answer(item=done.item, words="is as it was", changed=False)
        due = due_words(done.item, await board.table.now())
        return Answer(item=done.item, words=f"is changed ({'; '.join(said)}) and {due}")


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
        return await print_answers(board, answers, json=session.chosen.json)


def _confirmed(items: Sequence[Item]) -> bool:
    if not sys.stdin.isatty():
        problem = f"this would remove {plural(len(items), 'item')}"
        raise BadInput("id", problem, "say so with --yes")
    names = ", ".join(shown(item.id) for item in items[:NAMED])
    more = ", ..." if len(items) > NAMED else ""
    return click.confirm(f"Remove {plural(len(items), 'item')} ({names}{more})?", err=True)
