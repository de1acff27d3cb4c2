"""Files that declare items, as `apply` reads them: one or more, or the standard input; and the
checks that name the file and the line.
"""

import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from blackboard.cli.options import Chosen
from blackboard.cli.output import warn
from blackboard.cli.session import Session
from blackboard.cli.spec_options import warn_idle_steps
from blackboard.display.escaping import shown
from blackboard.errors import BadInput
from blackboard.inputs import check_params_size, check_size, check_utf8, checked_first
from blackboard.model import Item, replace
from blackboard.named_files import read_text
from blackboard.phrases import command
from blackboard.protocol.board_table import Resolve
from blackboard.protocol.groups import check_held, check_no_pump
from blackboard.settings import FILE_NAME, ItemTable, Settings, naming_line, parse_settings
from blackboard.spec import RunSettings, Spec, encode_spec

STDIN = Path("<stdin>")


@dataclass(frozen=True, kw_only=True)
class ItemFile:
    path: Path
    text: str
    settings: Settings
    by: str
    """The file, or the source, to which its items belong from now on; "": to none."""

    @property
    def declarations(self) -> "list[Declaration]":
        return [Declaration(file=self, number=at) for at in range(len(self.settings.items))]

    @property
    def declares(self) -> bool:
        """Whether it declares items, or that there are none: `items = []`."""
        return bool(self.settings.items) or "items" in tomllib.loads(self.text)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """An item of a file."""

    file: ItemFile
    number: int
    """Its place among the items of the file."""

    @property
    def item(self) -> ItemTable:
        return self.file.settings.items[self.number]

    @property
    def id(self) -> str:
        return self.item.id

    @cached_property
    def spec(self) -> Spec:
        return self.item.spec()

    def settings(self, resolve: Resolve) -> RunSettings:
        return resolve(self.item.type, encode_spec(self.spec))

    def naming_line(self) -> AbstractContextManager[None]:
        """Adds the file and the line to a BadInput."""
        return naming_line(self.file.path, self.file.text, "items", self.number)


def read_file(name: str, source: str | None, *, field: str) -> ItemFile:
    """Reads a file, or - for the standard input. Its items belong to `source`, or else to the file.
    Raises BadInput for `field`, or for what the file says.
    """
    if name == "-":
        path, text, by = STDIN, read_text(None, field="stdin"), ""
    else:
        path = Path(name)
        # The name as given, links unresolved: a deployment may change the target of a link.
        text = read_text(path, field=field)
        by = os.path.abspath(path) if path.is_file() else ""  # noqa: PTH100
        if source is None:
            check_utf8("source", by, "say what the items belong to, by --source NAME")
    settings = parse_settings(text, path, is_whole=False)
    return ItemFile(path=path, text=text, settings=settings, by=source or by)


def session_for(chosen: Chosen, files: Sequence[ItemFile]) -> Session:
    """A session with the settings of the file that has any, or the usual ones."""
    whole = [file for file in files if not file.settings.is_of_items_alone]
    if len(whole) > 1:
        names = " and ".join(str(file.path) for file in whole)
        raise BadInput("file", f"{names} have settings", "keep them in one; items in any number")
    if not whole:
        return Session.start(chosen)
    _check_other_settings(chosen, whole[0].path)
    if whole[0].path.is_file():
        return Session.start(replace(chosen, config=str(whole[0].path)))
    return Session.start(chosen, whole[0].settings)  # a pipe cannot be read again


def _check_other_settings(chosen: Chosen, file: Path) -> None:
    """Raises BadInput where --config names settings beside those of a file of items, and warns
    where the usual ones are passed over.
    """
    other = Path(chosen.config or FILE_NAME)
    if chosen.config is None and not other.is_file():
        return
    if file != STDIN and other.exists() and other.samefile(file):
        return
    if parse_settings(read_text(other, field="config"), other, is_whole=False).is_of_items_alone:
        return
    if chosen.config is not None:
        problem = f"{other} and {file} have settings"
        raise BadInput("config", problem, "keep them in one; items in any number")
    warn(f"the settings of {file} hold, and {other} is passed over")


def check_declared(session: Session, declared: Sequence[Declaration]) -> None:
    """Checks what is declared as far as that needs no board. Raises BadInput with the line."""
    paths: dict[str, Path] = {}
    resolve = session.resolve  # one for all, which caches what it has resolved
    for declaration in declared:
        item = declaration.item
        with declaration.naming_line():
            if item.id in paths:
                problem = f"{item.id!r} is declared in {paths[item.id]}, too"
                raise BadInput("id", problem, "declare it once")
            paths[item.id] = declaration.file.path
            check_params_size(item.params)
            session.check_params(item.type, item.params)
            check_held(session.name, declaration.spec, item_type=item.type)
            settings = declaration.settings(resolve)
            check_no_pump(session.name, item.type, settings)
            checked_first(item.first, settings)
    session.warn_unknown(declaration.item.type for declaration in declared)
    session.warn_misspelt()
    warn_idle_steps([declaration.spec for declaration in declared])


def check_against(
    items: Mapping[str, Item], declared: Sequence[Declaration], *, limit: int
) -> None:
    """Checks what is declared against the items of the board. Raises BadInput with the line."""
    for declaration in declared:
        with declaration.naming_line():
            check_size(declaration.spec, limit=limit)
            item = items.get(declaration.id)
            if item is not None and item.type != declaration.item.type:
                problem = f"{item.id!r} is on the board with the type {item.type!r}"
                edit = command(f"edit --type {shlex.quote(declaration.item.type)}", item.id)
                raise BadInput("type", problem, f"{shown(edit)} first")
