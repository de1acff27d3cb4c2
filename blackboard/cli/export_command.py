"""`blackboard export`: write the board's items as TOML."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from blackboard.cli.selection import ids_argument, select, spec_of
from blackboard.cli.session import Chosen, Session, common, emit, run
from blackboard.cli.toml_text import lines_of
from blackboard.model import Item

EPILOG = """\b
Examples:
  blackboard export > items.toml
  blackboard --board copy apply items.toml
  blackboard export "town*" --json
"""


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@common()
def command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool) -> int:
    """Write items as TOML that `apply` reads back: what they are, not how they stand."""
    items = run(_read(Session.start(chosen), ids, exact=exact))
    if chosen.json:
        emit([declared(item) for item in items])
    else:
        click.echo("\n".join(item_text(declared(item)) for item in items), nl=False)
    return 0


async def _read(session: Session, ids: Sequence[str], *, exact: bool) -> list[Item]:
    async with session.board() as board:
        if ids:
            return await select(board, ids, exact=exact)
        return [item async for item in board.items()]


def declared(item: Item) -> dict[str, Any]:
    """An item as a file declares it."""
    return {"id": item.id, "type": item.type, **msgspec.to_builtins(spec_of(item))}


def item_text(item: dict[str, Any]) -> str:
    """An item as one `[[items]]` of a file; its params as a table of their own."""
    plain = {key: value for key, value in item.items() if key != "params"}
    lines = ["[[items]]", *lines_of(plain)]
    if item.get("params"):
        lines += ["[items.params]", *lines_of(item["params"])]
    return "\n".join(lines) + "\n"
