"""The commands between a board and a file: apply and export.

`apply` computes a plan, what to add, change and remove, from what the file declares and what is on
the board; it prints the plan and carries it out. `export` writes what `apply` reads back.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from blackboard.cli.options import Chosen, common
from blackboard.cli.output import emit
from blackboard.cli.session import Session, ids_argument, run, select, spec_of
from blackboard.cli.spec_options import warn_unknown
from blackboard.display.layout import shown
from blackboard.display.toml_text import lines_of
from blackboard.errors import BadInput
from blackboard.handlers import check_type
from blackboard.inputs import (
    check_first,
    check_id,
    check_params_size,
    check_size,
    first_of,
)
from blackboard.model import Item, replace
from blackboard.phrases import plural
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.protocol.rows import text_of
from blackboard.settings import FILE_NAME, ItemTable, Settings, line_of, read_text
from blackboard.spec import RunSettings, Spec, decode_spec, encode_spec

LONGEST_SHOWN = 60
"""Characters of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field that changes; None is an absent value, and is shown as unset."""

    field: str
    old: Any
    new: Any

    @property
    def words(self) -> str:
        """As in "every: 8h -> 4h"."""
        return f"{shown(self.field)}: {_value_words(self.old)} -> {_value_words(self.new)}"


def differences(old: Spec, new: Spec) -> list[Difference]:
    """In the order of the fields. None for specs that are the same in a row."""
    left, right = _plain(old), _plain(new)
    fields = [*Spec.__struct_fields__]
    return [one for name in fields for one in _between(name, left.get(name), right.get(name))]


def _plain(spec: Spec) -> dict[str, Any]:
    """As it is read back from a row."""
    plain: dict[str, Any] = msgspec.to_builtins(decode_spec(encode_spec(spec)))
    return plain


def _between(field: str, old: Any, new: Any) -> Iterator[Difference]:
    if text_of(old) == text_of(new):
        return
    if field == "params" or (isinstance(old, Mapping) and isinstance(new, Mapping)):
        left, right = old or {}, new or {}
        for key in [*left, *(key for key in right if key not in left)]:
            yield from _between(f"{field}.{key}", left.get(key), right.get(key))
    else:
        yield Difference(field=field, old=old, new=new)


def _value_words(value: Any) -> str:
    if value is None:
        return "unset"
    text = shown(value) if isinstance(value, str) else text_of(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """An item of the board that differs from its declaration, or from the defaults of its type."""

    id: str
    differences: Sequence[Difference]
    declared: Spec | None = None
    """The spec in the file; None when the item is not there."""

    def spec_for(self, spec: Spec, _item: Item) -> Spec:
        return self.declared or spec


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """The steps, in the order of the file and then of the board."""

    add: Sequence[ItemTable]
    change: Sequence[ItemChange]
    remove: Sequence[Item]
    unchanged: int

    @property
    def steps(self) -> int:
        return len(self.add) + len(self.change) + len(self.remove)

    def lines(self) -> Iterator[str]:
        """For people: one step a line, and their numbers."""
        for item in self.add:
            yield f"+ {shown(item.id)} ({shown(item.type)})"
        for one in self.change:
            words = "; ".join(difference.words for difference in one.differences)
            yield f"~ {shown(one.id)}: {words}"
        for gone in self.remove:
            yield f"- {shown(gone.id)} ({shown(gone.type)})"
        if not self.steps:
            yield f"nothing to do: {plural(self.unchanged, 'item')} as declared"
        else:
            yield (
                f"{len(self.add)} to add, {len(self.change)} to change, "
                f"{len(self.remove)} to remove, {self.unchanged} unchanged"
            )

    def record(self) -> dict[str, Any]:
        """For programs."""
        return {
            "add": [{"id": item.id, "type": item.type} for item in self.add],
            "change": [
                {
                    "id": one.id,
                    "differences": [asdict(difference) for difference in one.differences],
                }
                for one in self.change
            ],
            "remove": [{"id": item.id, "type": item.type} for item in self.remove],
            "unchanged": self.unchanged,
        }


def make_plan(
    declared: Sequence[ItemTable],
    there: Mapping[str, Item],
    *,
    prune: bool,
    resolve: Resolve | None = None,
) -> ApplyPlan:
    """`there` are the board's items by id. Items that are not declared are removed if `prune` says
    so. `resolve` adds the defaults of types.
    """
    specs = {one.id: one.spec() for one in declared}
    gone = [item for item in there.values() if prune and item.id not in specs]
    kept = [item for item in there.values() if not (prune and item.id not in specs)]
    changed = [_change(item, specs.get(item.id), resolve) for item in kept]
    return ApplyPlan(
        add=[one for one in declared if one.id not in there],
        change=[one for one in changed if one.differences],
        remove=gone,
        unchanged=sum(one.declared is not None and not one.differences for one in changed),
    )


def _change(item: Item, declared: Spec | None, resolve: Resolve | None) -> ItemChange:
    """How an item differs from its declaration: in its own spec, else in its resolved schedule."""
    found = differences(spec_of(item), declared) if declared is not None else []
    if not found and resolve is not None and item.schedule:
        settings = resolve(item.type, encode_spec(declared or spec_of(item)))
        if settings.schedule is not None and settings.text != item.schedule:
            found = [Difference(field="schedule", old=item.schedule, new=settings.text)]
    return ItemChange(id=item.id, declared=declared, differences=found)


APPLY_EPILOG = """\b
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


@click.command(epilog=APPLY_EPILOG)
@click.argument("file", required=False, type=click.Path())
@click.option("--prune", is_flag=True, help="Remove the items that are not declared.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@common()
def apply_command(*, chosen: Chosen, file: str | None, prune: bool, dry_run: bool) -> int:
    """Make the board what FILE [blackboard.toml] declares, and say what is done. The second time
    there is nothing to do. A paused item stays paused. One bad item refuses the whole file.

    A FILE of items alone, as `export` writes it, leaves the settings to blackboard.toml.
    """
    path = file or chosen.config or FILE_NAME
    session = _session(chosen, path).with_defaults()
    _check(session, Path(path))
    return run(_apply(session, Path(path), prune=prune, dry_run=dry_run))


def _session(chosen: Chosen, path: str) -> Session:
    """With the items of the file at `path`, and its settings if it has any."""
    session = Session.start(replace(chosen, config=path))
    items = session.settings.items
    if session.settings != Settings(items=items):
        return session
    usual = Session.start(chosen)
    return replace(usual, settings=msgspec.structs.replace(usual.settings, items=items))


def _check(session: Session, path: Path) -> None:
    """Checks the items of the file as far as that needs no board. Raises BadInput with the line."""
    for number, item in enumerate(session.settings.items):
        with _line(path, number):
            check_id(item.id)
            check_type(item.type)
            check_params_size(item.params)
            check_first(item.first, session.resolve(item.type, encode_spec(item.spec())))
    warn_unknown(session, [item.type for item in session.settings.items])


def _check_against(
    there: Mapping[str, Item], items: Sequence[ItemTable], path: Path, *, limit: int
) -> None:
    """Checks the items of the file against those of the board. Raises BadInput with the line."""
    for number, item in enumerate(items):
        with _line(path, number):
            check_size(item.spec(), limit=limit)
            other = there.get(item.id)
            if other is not None and other.type != item.type:
                problem = f"{other.id!r} is on the board with the type {other.type!r}"
                raise BadInput("type", problem, f"`blackboard rm {shown(other.id)}` first")


@contextmanager
def _line(path: Path, number: int) -> Iterator[None]:
    """Adds the file, and the line of an item, to a BadInput."""
    try:
        yield
    except BadInput as error:
        line = line_of(read_text(path), ["items", number, *error.field.split(".")])
        problem = f"{path}:{line}: {error.problem}"
        raise BadInput(error.field, problem, error.remedy) from None


async def _apply(session: Session, path: Path, *, prune: bool, dry_run: bool) -> int:
    items = session.settings.items
    if dry_run and not await session.has_board():
        _print_plan(make_plan(items, {}, prune=prune), session, dry_run=dry_run)
        return 0
    async with session.board(create=not dry_run) as board:
        there = {item.id: item async for item in board.items()}
        _check_against(there, items, path, limit=board.table.max_value)
        plan = make_plan(items, there, prune=prune, resolve=session.resolve)
        _print_plan(plan, session, dry_run=dry_run)
        if not dry_run:
            await _carry_out(board, plan)
    return 0


def _print_plan(plan: ApplyPlan, session: Session, *, dry_run: bool) -> None:
    if session.chosen.json:
        emit(plan.record() | {"dry_run": dry_run})
        return
    click.echo("\n".join(plan.lines()))
    if dry_run and plan.steps:
        click.echo("dry run: nothing was changed")


async def _carry_out(board: BoardTable, plan: ApplyPlan) -> None:
    now = await board.table.now()

    def settings_of(one: ItemTable) -> RunSettings:
        return board.resolve(one.type, encode_spec(one.spec()))

    firsts = [first_of(one.first, settings_of(one), now) for one in plan.add]
    for item, first in zip(plan.add, firsts, strict=True):
        await edits.add(board, item_id=item.id, item_type=item.type, spec=item.spec(), first=first)
    for one in plan.change:
        await edits.edit(board, one.id, one.spec_for)
    for gone in plan.remove:
        await edits.remove(board, gone.id)


EXPORT_EPILOG = """\b
Examples:
  blackboard export > items.toml
  blackboard --board copy apply items.toml
  blackboard export "town*" --json
"""


@click.command(epilog=EXPORT_EPILOG)
@ids_argument(required=False)
@common()
def export_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool) -> int:
    """Write items as TOML that `apply` reads back: their declarations, without their state."""
    items = run(_read_items(Session.start(chosen), ids, exact=exact))
    if chosen.json:
        emit([declared(item) for item in items])
    else:
        click.echo("\n".join(item_text(declared(item)) for item in items), nl=False)
    return 0


async def _read_items(session: Session, ids: Sequence[str], *, exact: bool) -> list[Item]:
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
