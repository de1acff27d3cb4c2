"""`blackboard apply`: make the board what a file declares."""

from datetime import datetime
from pathlib import Path

import click
import msgspec

from blackboard.cli.plan import ApplyPlan, clashes, make_plan
from blackboard.cli.session import Chosen, Session, common, emit, run
from blackboard.cli.text import shown
from blackboard.cli.types import warn_unknown
from blackboard.errors import BadInput
from blackboard.inputs import (
    check_first,
    check_id,
    check_params_size,
    check_size,
    check_type,
    first_of,
)
from blackboard.model import Item, replace
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable
from blackboard.settings import FILE_NAME, ItemTable, Settings, line_of, read_text
from blackboard.spec import encode_spec

EPILOG = """\b
Examples:
  blackboard apply --dry-run
  blackboard apply towns.toml --prune

\b
In the file:
  [[items]]
  id = "westlafcals"
  type = "calendars"
  every = "8h"
  params = { feeds = ["https://example.org/a.ics"], out = "out" }
"""


@click.command(epilog=EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option("--prune", is_flag=True, help="Remove the items that are not declared.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@common()
def command(*, chosen: Chosen, file: str | None, prune: bool, dry_run: bool) -> int:
    """Make the board what FILE [blackboard.toml] declares, and say what is done. The second time
    there is nothing to do. A paused item stays paused. One bad item refuses the whole file.

    A FILE of items alone, as `export` writes it, leaves the settings to blackboard.toml.
    """
    path = file or chosen.config or FILE_NAME
    session = _session(chosen, path).with_defaults()
    declared = _Declared(session, Path(path))
    declared.check()
    return run(_apply(session, declared, prune=prune, dry_run=dry_run))


def _session(chosen: Chosen, path: str) -> Session:
    """With the items of the file at `path`, and its settings if it has any."""
    session = Session.start(replace(chosen, config=path))
    items = session.settings.items
    if session.settings != Settings(items=items):
        return session
    usual = Session.start(chosen)
    return replace(usual, settings=msgspec.structs.replace(usual.settings, items=items))


class _Declared:
    """The items of a file."""

    def __init__(self, session: Session, path: Path) -> None:
        self._session = session
        self._path = path
        self.items = session.settings.items

    def check(self) -> None:
        """What can be told without the board. Raises BadInput with the line."""
        for number, item in enumerate(self.items):
            with self._line(number):
                check_id(item.id)
                check_type(item.type)
                check_params_size(item.params)
                check_first(item.first, self._session.resolve(item.type, encode_spec(item.spec())))
        warn_unknown(self._session, [item.type for item in self.items])

    def check_against(self, there: dict[str, Item], *, limit: int) -> None:
        """What only the board can tell."""
        for number, item in enumerate(self.items):
            with self._line(number):
                check_size(item.spec(), limit=limit)
        for number, other in clashes(self.items, there):
            with self._line(number):
                problem = f"{other.id!r} is on the board with the type {other.type!r}"
                raise BadInput("type", problem, f"`blackboard rm {shown(other.id)}` first")

    def _line(self, number: int) -> "_Line":
        return _Line(self._path, number)


class _Line:
    """Adds file and line of an item to what is wrong with it."""

    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._number = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, BadInput):
            place: list[str | int] = ["items", self._number, *error.field.split(".")]
            line = line_of(read_text(self._path), place)
            problem = f"{self._path}:{line}: {error.problem}"
            raise BadInput(error.field, problem, error.remedy) from None


async def _apply(session: Session, declared: _Declared, *, prune: bool, dry_run: bool) -> int:
    if dry_run and not await session.has_board():
        _tell(make_plan(declared.items, {}, prune=prune), session, dry_run=dry_run)
        return 0
    async with session.board(create=not dry_run) as board:
        there = {item.id: item async for item in board.items()}
        declared.check_against(there, limit=board.table.max_value)
        plan = make_plan(declared.items, there, prune=prune, resolve=session.resolve)
        _tell(plan, session, dry_run=dry_run)
        if not dry_run:
            await _carry_out(board, plan)
    return 0


def _tell(plan: ApplyPlan, session: Session, *, dry_run: bool) -> None:
    if session.chosen.json:
        emit(plan.record() | {"dry_run": dry_run})
        return
    click.echo("\n".join(plan.lines()))
    if dry_run and plan.steps:
        click.echo("dry run: nothing was changed")


async def _carry_out(board: BoardTable, plan: ApplyPlan) -> None:
    now = await board.table.now()
    firsts = [_first(board, item, now) for item in plan.add]
    for item, first in zip(plan.add, firsts, strict=True):
        await edits.add(board, item_id=item.id, item_type=item.type, spec=item.spec(), first=first)
    for one in plan.change:
        await edits.edit(board, one.id, one.spec_for)
    for gone in plan.remove:
        await edits.remove(board, gone.id)


def _first(board: BoardTable, item: ItemTable, now: datetime) -> datetime | None:
    return first_of(item.first, board.resolve(item.type, encode_spec(item.spec())), now)
