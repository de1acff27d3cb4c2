"""The command that writes the items of a board as a file: export."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from blackboard.cli.options import Chosen, cli_command, ids_argument
from blackboard.cli.output import emit, emit_toml, few_of, warn
from blackboard.cli.progress import reading
from blackboard.cli.session import Session
from blackboard.display.escaping import shown
from blackboard.display.item_queries import select
from blackboard.display.toml_text import lines_of
from blackboard.errors import BadInput, BadSpec, NoTimeLeft
from blackboard.inputs import check_params_size, first_of
from blackboard.model import Item, State
from blackboard.phrases import iso, plural
from blackboard.protocol.board_table import Resolve
from blackboard.protocol.planning import spec_of
from blackboard.settings import ItemTable, check_item
from blackboard.spec import unknown_fields


@cli_command("""\
Examples:
  blackboard export > items.toml
  blackboard --board copy apply items.toml
  blackboard export "town*" --json
""")
@ids_argument(required=False)
def export_command(*, chosen: Chosen, ids: tuple[str, ...]) -> int:
    """Write items as TOML that `apply` reads back: their declarations, without their state. On
    another board those that are done or paused here run: a warning names them. Items that cannot
    be read, or that `apply` would refuse, are left out with a warning, and exit code 1.
    """
    session = Session.start(chosen).with_labels(ids)

    async def read() -> tuple[list[Item], datetime, bool]:
        async with reading(session.board(), "reading items") as board:
            if ids:
                chosen_items = await select(board, ids, exact=chosen.exact)
            else:
                every = [item async for item in board.items()]
                chosen_items = sorted(every, key=lambda item: item.id)  # whatever the shards are
            return chosen_items, await board.table.now(), not board.unreadable and not board.newer

    chosen_items, now, is_whole = asyncio.run(read())
    items = [item for item in chosen_items if _can_be_declared(item)]
    if chosen.json:
        emit([declared(item) for item in items])
    else:
        emit_toml("\n".join(item_text(declared(item)) for item in items))
    for item in items:
        if unknown := unknown_fields(item.spec):
            names = few_of([*unknown])
            warn(f"{shown(item.id)} is written without what a newer version added: {names}")
    resolve = session.resolve  # one for all, which caches what it has resolved
    _warn_of_settings(items, resolve)
    _warn_of_states([item for item in items if not _is_over(item, resolve, now)])
    return int(not is_whole or len(items) < len(chosen_items))


def _can_be_declared(item: Item) -> bool:
    """Whether `apply` takes what is written of an item; else warns that it is left out."""
    try:
        table = msgspec.convert(declared(item), ItemTable)
        check_item(table)
        check_params_size(table.params)
    except BadSpec as bad:
        warn(f"{shown(item.id)} is left out: its spec cannot be read: {bad.problem}")
    except BadInput as bad:
        warn(f"{shown(item.id)} is left out: {shown(str(bad))}")
    else:
        return True
    return False


def _is_over(item: Item, resolve: Resolve, now: datetime) -> bool:
    """Whether its end has passed: `apply` leaves it out, where the board does not have it."""
    if item.state is not State.DONE:
        return False
    try:
        first_of(None, resolve(item.type, item.spec), now)
    except NoTimeLeft:
        return True
    except (BadInput, ValueError):
        return False  # unknown here
    return False


def _warn_of_settings(items: Sequence[Item], resolve: Resolve) -> None:
    """Warn of the items that `apply` takes only with other settings than are found here, such as
    one whose blackout is a calendar that these do not have.
    """
    for item in items:
        try:
            resolve(item.type, item.spec)
        except BadInput as bad:
            problem = shown(str(bad))
            warn(f"{shown(item.id)} is written, but does not fit the settings here: {problem}")


def _warn_of_states(items: Sequence[Item]) -> None:
    """Warn of the items whose state is lost: a declaration has none."""
    for state in (State.DONE, State.PAUSED):
        if ids := [item.id for item in items if item.state is state]:
            which = f"{plural(len(ids), 'item')} {'are' if len(ids) > 1 else 'is'} {state.value}"
            names = few_of(ids)
            warn(f"{which} and would run on a board that this is applied to: {names}")


def declared(item: Item) -> dict[str, Any]:
    """An item as a file declares it, with the first time that was named for it as long as that is
    to come.
    """
    is_to_come = item.first is not None and item.runs == 0 and item.waits
    first = {"first": iso(item.first)} if is_to_come and item.planned == item.first else {}
    return {"id": item.id, "type": item.type, **first, **msgspec.to_builtins(spec_of(item))}


def item_text(item: dict[str, Any]) -> str:
    """An item as one `[[items]]` of a file; its params as a table of their own."""
    plain = {key: value for key, value in item.items() if key != "params"}
    lines = ["[[items]]", *lines_of(plain)]
    if item.get("params"):
        lines += ["[items.params]", *lines_of(item["params"])]
    return "\n".join(lines) + "\n"
