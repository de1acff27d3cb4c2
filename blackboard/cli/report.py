"""`blackboard report`: the report that the last run of an item wrote, as a table.

The result of a run names the file (`report`, see `results.py`). It is a JSON object; its `table`
names the list to show (`rows`) and the keys of each object in that list (`columns`: `title`, `key`
with dots into inner objects, `signed` for numbers that are changes). Rows keep the order of the
file. The `level` of a row, "bad" or "late", is its colour. Where no result names a file, it is
ID.report.json in the folder of the param `out`, where the job `calendars` writes it.
"""

import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from blackboard.cli.options import Chosen, absolute_option, common
from blackboard.cli.output import emit, table_text
from blackboard.cli.session import Session, ids_argument, run, select
from blackboard.display.columns import NOTHING, when, worker_name
from blackboard.display.layout import Column, Line, Style, shown
from blackboard.errors import BlackboardError
from blackboard.model import Item
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable
from blackboard.records import decoded
from blackboard.results import report_in

EPILOG = """\b
Examples:
  blackboard report davis
  blackboard report davis --json | jq '.[0].feeds[] | select(.failures > 2) | .name'
"""
ENDING = ".report.json"
_RUNS = 20
"""The newest runs, in which a result may name a report."""
_LARGEST = 64 * 1024 * 1024
_MOST_COLUMNS = 30
_STYLES = {"bad": Style.BAD, "late": Style.LATE}


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column, as the report describes it."""

    title: str
    key: str
    signed: bool


class NoReport(BlackboardError):
    """There is no report here; the message says where it is expected."""


@click.command(epilog=EPILOG)
@ids_argument()
@absolute_option
@common()
def report_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool, absolute: bool) -> int:
    """Show the reports of the last runs of items, such as a line for each feed of a city's
    calendars, the worst first.

    A report is a file on the host of the worker that ran the item.
    """
    session = Session.start(chosen)
    found, now = run(_read(session, ids, exact=exact))
    if chosen.json:
        emit([report for _item, report in found])
        return 0
    click.echo("\n\n".join(picture(*one, now=now, absolute=absolute) for one in found))
    return 0


async def _read(
    session: Session, ids: Sequence[str], *, exact: bool
) -> tuple[list[tuple[Item, dict[str, Any]]], datetime]:
    async with session.board() as board:
        found = [
            (item, report_at(await _path(board, item), item))
            for item in await select(board, ids, exact=exact)
        ]
        return found, await board.table.now()


async def _path(board: BoardTable, item: Item) -> Path:
    """The path of an item's report. Raises NoReport when there is none."""
    named = report_in(item.result)
    looked_at = 0
    async for one in board.runs(item.id):
        looked_at += 1
        if named or looked_at > _RUNS:
            break
        named = report_in(one.result)
    if named:
        return Path(named)
    spec = decoded(item.spec)
    params = spec.get("params") if isinstance(spec, dict) else None
    folder = params.get("out") if isinstance(params, dict) else None
    if isinstance(folder, str) and folder:
        return Path(folder) / f"{keys.encode_id(item.id)}{ENDING}"
    if item.start is None:
        raise NoReport(f"{item.id} has not run yet, so there is no report")
    raise NoReport(f"{item.id}: none of its runs has named a report (`blackboard log {item.id}`)")


def report_at(path: Path, item: Item) -> dict[str, Any]:
    """The report in a file. Raises NoReport when the file is missing or holds no report."""
    if not path.name.endswith(ENDING):
        raise NoReport(f"{item.id}: {path} is no report: its name does not end with {ENDING}")
    try:
        # Without waiting, if it is a pipe that no process writes to.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NoReport(f"{item.id}: {path} is no report: it is no regular file")
            report = msgspec.json.decode(file.read(_LARGEST))
    except OSError as problem:
        if item.start is None:
            raise NoReport(f"{item.id} has not run yet, so there is no report") from None
        host = worker_name(item.owner)
        remedy = f"look on the host of the worker that ran it last, {host}"
        raise NoReport(f"{item.id}: {path}: {problem.strerror or problem} ({remedy})") from None
    except (ValueError, RecursionError):
        raise NoReport(f"{item.id}: {path} is damaged: it holds no JSON") from None
    if not isinstance(report, dict):
        raise NoReport(f"{item.id}: {path} is no report: it is no JSON object")
    return report


def picture(item: Item, report: Mapping[str, Any], *, now: datetime, absolute: bool) -> str:
    """A line about the run, and the table of its report."""
    columns, rows = _table_of(report)
    cells = [[_cell(row, column, now=now, absolute=absolute) for column in columns] for row in rows]
    used = [n for n in range(len(columns)) if any(line[n][0] != NOTHING for line in cells)]
    layout = [
        Column(title=columns[n].title, least=len(columns[n].title), usual=24, worth=-n)
        for n in used
    ]
    lines: list[Line] = [[line[n] for n in used] for line in cells]
    head = _head(item, report.get("summary"))
    if not lines or not used:
        return f"{head}\n\nno rows"
    text = table_text(layout, lines)
    return f"{head}\n\n{text}"


def _head(item: Item, summary: Any) -> str:
    """The plain numbers of the run: `davis: feeds 12, ok 3, ...`."""
    numbers = summary.items() if isinstance(summary, dict) else ()
    plain = [
        f"{shown(str(name))} {shown(str(value))}"
        for name, value in numbers
        if isinstance(value, int | str) and len(str(value)) < 40
    ]
    return f"{shown(item.id)}: {', '.join(plain)}" if plain else shown(item.id)


def _table_of(report: Mapping[str, Any]) -> tuple[list[_Shown], list[dict[str, Any]]]:
    """The columns and the rows that the report names."""
    said = report.get("table")
    if not isinstance(said, dict):
        return [], []
    columns = [
        _Shown(str(one.get("title", one["key"])), str(one["key"]), one.get("signed") is True)
        for one in _objects(said.get("columns"))
        if "key" in one
    ]
    return columns[:_MOST_COLUMNS], list(_objects(report.get(str(said.get("rows")))))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (one for one in (value if isinstance(value, list) else ()) if isinstance(one, dict))


def _cell(
    row: Mapping[str, Any], column: _Shown, *, now: datetime, absolute: bool
) -> tuple[str, Style]:
    value: Any = row
    for part in column.key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    text = _words(value, signed=column.signed, now=now, absolute=absolute)
    return text, _STYLES.get(str(row.get("level")), Style.PLAIN)


def _words(value: Any, *, signed: bool, now: datetime, absolute: bool) -> str:
    match value:
        case None | "" | [] | {}:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:+,}" if signed and value else f"{value:,}"
        case float():
            return f"{value:,.2f}" if math.isfinite(value) else NOTHING
        case str():
            moment = _moment(value)
            return (
                " ".join(value.split()) if moment is None else when(moment, now, absolute=absolute)
            )
        case _:
            return msgspec.json.encode(value).decode()


def _moment(text: str) -> datetime | None:
    """A text as a time; None when it is no time in UTC."""
    if not text.endswith("Z") or len(text) < len("2026-08-21T09:00Z"):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
