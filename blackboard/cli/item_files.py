"""Files that declare items, as `apply` reads them: one or more, or the standard input; and the
checks that name the file and the line.
"""

import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from blackboard.cli.options import Chosen
from blackboard.cli.output import warn
from blackboard.cli.plan import Declaration
from blackboard.cli.session import Session
from blackboard.cli.spec_options import warn_idle_steps
from blackboard.display.layout import shown
from blackboard.display.toml_text import line_of
from blackboard.errors import BadInput, NoTimeLeft
from blackboard.inputs import check_params_size, check_size, check_utf8, checked_first
from blackboard.model import Item, replace
from blackboard.phrases import command
from blackboard.protocol.groups import check_held, check_no_pump
from blackboard.settings import FILE_NAME, Settings, parse_settings, read_text

STDIN = Path("<stdin>")


@dataclass(frozen=True, kw_only=True)
class ItemFile:
    file: Path
    text: str
    settings: Settings
    by: str

    @cached_property
    def declared(self) -> list[Declaration]:
        return [Declaration(item=item, by=self.by) for item in self.settings.items]

    @property
    def declares(self) -> bool:
        """Whether it declares items, or that there are none: `items = []`."""
        return bool(self.settings.items) or "items" in tomllib.loads(self.text)

    @contextmanager
    def at(self, number: int) -> Iterator[None]:
        """Adds the file, and the line of an item, to a BadInput."""
        try:
            yield
        except BadInput as error:
            line = line_of(self.text, ["items", number, *error.field.split(".")])
            problem = f"{self.file}:{line}: {error.problem}"
            kind = NoTimeLeft if isinstance(error, NoTimeLeft) else BadInput
            raise kind(error.field, problem, error.remedy) from None


def read_items(name: str, source: str | None, *, field: str) -> ItemFile:
    """Reads a file, or - for the standard input. Its items belong to `source`, or else to the file.
    Raises BadInput for `field`, or for what the file says.
    """
    if name == "-":
        file, text, by = STDIN, read_text(None, field="stdin"), ""
    else:
        file = Path(name)
        # The name as given, links unresolved: a deployment may change the target of a link.
        text = read_text(file, field=field)
        by = os.path.abspath(file) if file.is_file() else ""  # noqa: PTH100
        if source is None:
            check_utf8("source", by, "say what the items belong to, by --source NAME")
    found = parse_settings(text, file, is_whole=False)
    return ItemFile(file=file, text=text, settings=found, by=source or by)


def session_for(chosen: Chosen, sources: Sequence[ItemFile]) -> Session:
    """A session with the settings of the source that has any, or the usual ones."""
    whole = [source for source in sources if not source.settings.is_of_items_alone]
    if len(whole) > 1:
        names = " and ".join(str(source.file) for source in whole)
        raise BadInput("file", f"{names} have settings", "keep them in one; items in any number")
    if not whole:
        return Session.start(chosen)
    _check_other_settings(chosen, whole[0].file)
    if whole[0].file == STDIN:
        return replace(Session.start(chosen), settings=whole[0].settings)
    return Session.start(replace(chosen, config=str(whole[0].file)))


def _check_other_settings(chosen: Chosen, file: Path) -> None:
    """Raises BadInput where --config names settings beside those of a file of items, and warns
    where the usual ones are passed over.
    """
    other = Path(chosen.config or FILE_NAME)
    if chosen.config is None and not other.is_file():
        return
    if file != STDIN and other.exists() and other.samefile(file):
        return
    if parse_settings(read_text(other), other, is_whole=False).is_of_items_alone:
        return
    if chosen.config is not None:
        problem = f"{other} and {file} have settings"
        raise BadInput("config", problem, "keep them in one; items in any number")
    warn(f"the settings of {file} hold, and {other} is passed over")


def check_files(session: Session, sources: Sequence[ItemFile]) -> None:
    """Checks the items of the files as far as that needs no board. Raises BadInput with the
    line.
    """
    places: dict[str, Path] = {}
    resolve = session.resolve
    for source, number, declaration in each_item(sources):
        item = declaration.item
        with source.at(number):
            if item.id in places:
                problem = f"{item.id!r} is declared in {places[item.id]}, too"
                raise BadInput("id", problem, "declare it once")
            places[item.id] = source.file
            check_params_size(item.params)
            session.check_params(item.type, item.params)
            check_held(session.name, declaration.spec, item_type=item.type)
            settings = declaration.settings(resolve)
            check_no_pump(session.name, item.type, settings)
            checked_first(item.first, settings)
    declared = [declaration for _, _, declaration in each_item(sources)]
    session.warn_unknown(declaration.item.type for declaration in declared)
    session.warn_misspelt()
    warn_idle_steps([declaration.spec for declaration in declared])


def each_item(sources: Sequence[ItemFile]) -> Iterator[tuple[ItemFile, int, Declaration]]:
    for source in sources:
        for number, declaration in enumerate(source.declared):
            yield source, number, declaration


def check_against(there: Mapping[str, Item], sources: Sequence[ItemFile], *, limit: int) -> None:
    """Checks the items of the files against those of the board. Raises BadInput with the line."""
    for source, number, declaration in each_item(sources):
        with source.at(number):
            check_size(declaration.spec, limit=limit)
            other = there.get(declaration.id)
            if other is not None and other.type != declaration.item.type:
                problem = f"{other.id!r} is on the board with the type {other.type!r}"
                edit = command(f"edit --type {shlex.quote(declaration.item.type)}", other.id)
                raise BadInput("type", problem, f"{shown(edit)} first")
