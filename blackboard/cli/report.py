"""`blackboard report`: the report that the last run of an item wrote, as a table."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from blackboard.cli.options import Chosen, absolute_option, common
from blackboard.cli.output import emit, table_text, wrapped
from blackboard.cli.session import Session, ids_argument, run
from blackboard.display.columns import NOTHING, when
from blackboard.display.layout import Column, Line, Style, shown
from blackboard.display.queries import select
from blackboard.display.report import (
    ReportColumn,
    report_at,
    report_numbers,
    report_path,
    report_table,
    value_of,
    words_of,
)
from blackboard.model import Item

_STYLES = {"bad": Style.BAD, "late": Style.LATE}
EPILOG = """\b
Examples:
  blackboard report davis
  blackboard report davis --json | jq '.[0].feeds[] | select(.failures > 2) | .name'
"""


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
            (item, report_at(await report_path(board, item), item))
            for item in await select(board, ids, exact=exact)
        ]
        return found, await board.table.now()


def picture(item: Item, report: Mapping[str, Any], *, now: datetime, absolute: bool) -> str:
    """A line about the run, and the table of its report."""
    columns, rows = report_table(report)
    cells = [[_cell(row, column, now=now, absolute=absolute) for column in columns] for row in rows]
    used = [n for n in range(len(columns)) if any(line[n][0] != NOTHING for line in cells)]
    layout = [
        Column(title=columns[n].title, least=len(columns[n].title), usual=24, worth=-n)
        for n in used
    ]
    lines: list[Line] = [[line[n] for n in used] for line in cells]
    head = _head(item, report)
    if not lines or not used:
        return f"{head}\n\nno rows"
    text = table_text(layout, lines)
    return f"{head}\n\n{text}"


def _head(item: Item, report: Mapping[str, Any]) -> str:
    """The plain numbers of the run: `davis: feeds 12, ok 3, ...`."""
    plain = [f"{shown(name)} {shown(value)}" for name, value in report_numbers(report).items()]
    words = f"{shown(item.id)}: {', '.join(plain)}" if plain else shown(item.id)
    return wrapped(words, margin="  ")


def _cell(
    row: Mapping[str, Any], column: ReportColumn, *, now: datetime, absolute: bool
) -> tuple[str, Style]:
    value = value_of(row, column)
    if isinstance(value, datetime):
        text = when(value, now, absolute=absolute)
    else:
        text = words_of(value, signed=column.signed)
    return text or NOTHING, _STYLES.get(str(row.get("level")), Style.PLAIN)
