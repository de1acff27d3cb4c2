"""docs/settings.md, written from the settings' own definitions.

python -m tests.support.settings_page       writes it
"""

import ast
import inspect
import itertools
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from types import UnionType
from typing import get_origin

import msgspec
from msgspec import Struct

from blackboard.notify.settings import NotifyTable, RouteTable
from blackboard.schedule.times import format_duration
from blackboard.settings import (
    KINDS,
    BoardSettings,
    ItemTable,
    RedisTable,
    TypeTable,
    WorkerTable,
)
from blackboard.spec import RunSettings, Spec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
ABOVE = """\
# Settings

`blackboard.toml` holds the settings of a board and its workers. It is read from the current folder,
or from `--config FILE`. A name that it does not know, or a bad value, is refused with its line. An
option of the command line wins over the file. What an item says wins over `[types]`, and that wins
over `@handler`.

Durations are text such as `"90s"`, `"8h"`, `"1d12h"`. This page is written by
`python -m tests.support.settings_page`.
"""
BELOW = """\
## `[jobs.NAME]`

Settings of a job, which its handlers get as `ctx.settings`, dates and times as text: any names, as
its handlers read them. Those of `calendars` are in [calendars](calendars.md), those of `shell` in
[handlers](handlers.md), those of `tail` in [sharing](sharing.md#shipped-follow-log-files).

## `[calendars]`

Windows by name, for `blackout`: `holidays = ["01-01", "12-24..12-26"]`. See
[schedules](schedules.md#times-without-runs).
"""


_HEADS: dict[str, type[msgspec.Struct]] = {
    "[board]": BoardSettings,
    "[worker]": WorkerTable,
    "[types.NAME], [[items]]": Spec,
    "[types.NAME]": TypeTable,
    "[[items]]": ItemTable,
    "[notify]": NotifyTable,
    "[[notify.routes]]": RouteTable,
    "[redis]": RedisTable,
}
"""Which classes define the settings of which tables of the file."""


class Described(Struct, frozen=True):
    """One setting of the file, as the page of the settings shows it."""

    table: str
    """The heads of the tables that may have it, such as `[board]`."""
    name: str
    kind: str
    """The kind of its value in words: `text`, `a whole number`, `a list`."""
    default: str
    """The default as TOML, or in words; "" where there is none."""
    meaning: str


def described() -> Iterator[Described]:
    """Every setting with its default and meaning, from the source of the classes above: the text
    below a field is its meaning, and after "Default:" what happens when none is given.
    """
    for head, table in _HEADS.items():
        fields = {field.name: field for field in msgspec.structs.fields(table)}
        for name, text in _below_fields(table):
            meaning, _, default = text.partition(" Default: ")
            default = default.removesuffix(".") or _default(fields[name])
            yield Described(head, name, _kind(fields[name]), default, meaning)


def _below_fields(table: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """The fields that a class defines itself, each with the text below it."""
    tree = ast.parse(inspect.getsource(table)).body[0]
    for line, below in itertools.pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
        match line, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, " ".join(text.split())


def _kind(field: msgspec.structs.FieldInfo) -> str:
    """The kind of a field's value, in words."""
    inner = field.type.__args__[0] if isinstance(field.type, UnionType) else field.type
    name = (get_origin(inner) or inner).__name__
    return KINDS[{"list": "array", "tuple": "array", "dict": "object"}.get(name, name)]


def _default(field: msgspec.structs.FieldInfo) -> str:
    """The value that a field has when no layer gives it, as TOML."""
    if field.required:
        return "required"
    value = getattr(RunSettings(), field.name, None) if field.default is None else field.default
    match value:
        case msgspec.NODEFAULT | None:
            return ""
        case timedelta():
            return json.dumps(format_duration(value))
        case _:
            return json.dumps(value)


def page() -> str:
    return "\n".join([ABOVE, *_tables(), BELOW])


def _tables() -> Iterator[str]:
    for head, settings in groupby(described(), key=lambda one: one.table):
        yield f"## `{head}`\n"
        yield "| setting | value | default | meaning |\n|---|---|---|---|"
        for one in settings:
            yield f"| `{one.name}` | {one.kind} | {_shown(one.default)} | {one.meaning} |"
        yield ""


def _shown(default: str) -> str:
    """A value as code, words as they are."""
    is_value = default[:1] in {'"', "["} or default.isdigit() or default in {"true", "false"}
    return f"`{default}`" if is_value else default or "-"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE}\n")
