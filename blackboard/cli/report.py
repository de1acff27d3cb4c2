"""`blackboard report`: the report that the last run of an item wrote, as a table."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from blackboard.cli.options import Chosen, absolute_option, cli_command, ids_argument
from blackboard.cli.output import emit, note, table_text, wrapped
from blackboard.cli.session import Session
from blackboard.display.columns import NOTHING
from blackboard.display.escaping import shown
from blackboard.display.item_queries import select
from blackboard.display.layout import Column, Line, Style
from blackboard.display.report import (
    NoReport,
    ReportColumn,
    read_report,
    report_numbers,
    report_table,
    words_of,
)
from blackboard.model import Item
from blackboard.phrases import relative, stamp

_STYLES = {"bad": Style.BAD, "late": Style.LATE}


@cli_command("""\
Examples:
  blackboard report davis
  blackboard report davis --json | jq '.[0].feeds[] | select(.failures > 2) | .name'
""")
@ids_argument()
@absolute_option
def report_command(*, chosen: Chosen, ids: tuple[str, ...]) -> int:
    """Show the reports of the last runs of items, such as a line for each feed of a city's
    calendars, the worst first. Exit code 1 if one of the items has none.

    A report is a file on the host of the worker that ran the item.
    """
    session = Session.start(chosen).with_labels(ids)
    return asyncio.run(_report(session, ids))


async def _report(session: Session, ids: Sequence[str]) -> int:
    absolute = session.chosen.absolute
    reports, missing = list[tuple[Item, dict[str, Any]]](), list[str]()
    async with session.board() as board:
        for item in await select(board, ids, exact=session.chosen.exact):
            try:
                reports.append((item, await read_report(board, item)))
            except NoReport as problem:
                missing.append(str(problem))
        now = await board.table.now()
    if session.chosen.json:
        emit([report for _item, report in reports])
    elif reports:
        click.echo("\n\n".join(picture(*pair, now=now, absolute=absolute) for pair in reports))
    for words in missing:
        note(words)
    return 1 if missing else 0


def picture(item: Item, report: Mapping[str, Any], *, now: datetime, absolute: bool) -> str:
    """A line about the run, and the table of its report."""
    columns, rows = report_table(report)
    layout = [
        Column(title=column.title, least=len(column.title), usual=24, worth=-n)
        for n, column in enumerate(columns)
    ]

    def words(value: Any, column: ReportColumn) -> str:
        if isinstance(value, datetime):
            return stamp(value) if absolute else relative(value, now)
        return words_of(value, signed=column.signed) or NOTHING

    lines: list[Line] = [
        [
            (words(value, column), _STYLES.get(row.level, Style.PLAIN))
            for value, column in zip(row.values, columns, strict=True)
        ]
        for row in rows
    ]
    text = table_text(layout, lines) if columns else "no rows"
    return f"{_head(item, report)}\n\n{text}"


def _head(item: Item, report: Mapping[str, Any]) -> str:
    """The plain numbers of the run: `davis: feeds 12, ok 3, ...`."""
    plain = [f"{shown(name)} {shown(value)}" for name, value in report_numbers(report).items()]
    words = f"{shown(item.id)}: {', '.join(plain)}" if plain else shown(item.id)
    return wrapped(words, margin="  ")
