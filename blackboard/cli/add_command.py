"""`blackboard add`: add items."""

from collections.abc import Sequence
from datetime import datetime

import click

from blackboard.cli.answers import Answer, due_words, tell
from blackboard.cli.session import Chosen, Session, common, run
from blackboard.cli.spec_options import Said, new_spec, spec_options
from blackboard.cli.types import warn_unknown
from blackboard.clock import SystemClock
from blackboard.errors import BadInput
from blackboard.inputs import check_id, check_size, check_type, first_of
from blackboard.model import Item, State
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable
from blackboard.spec import Spec, encode_spec

EPILOG = """\b
Examples:
  blackboard add davis --type calendars --every 8h --set feeds=@feeds.txt
  blackboard add backup --type shell --cron "0 3 * * *" --tz Europe/Berlin \\
      --first next --set 'command=["backup.sh", "--all"]'
"""


@click.command(epilog=EPILOG)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--type", "item_type", required=True, metavar="TYPE", help="Which handler runs it.")
@click.option("--first", metavar="now|next|WHEN", help="The first run [now].")
@spec_options
@common()
def command(
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
        return await tell(board, answers, json=session.chosen.json)


def _added(item: Item, now: datetime) -> str:
    return f"is added ({item.type}) and {due_words(item, now)}"


async def _check_new(board: BoardTable, ids: Sequence[str]) -> None:
    """All or none: one id that is taken refuses them all."""
    for one in ids:
        item = await board.item(one)
        if item is not None and item.state is not State.REMOVED:
            problem = f"{one!r} is on this board already"
            raise BadInput("id", problem, "`blackboard edit` changes it")
