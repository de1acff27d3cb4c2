"""The commands that show items: `show`, the board, once or again and again; `report`, what the last
run of an item wrote about its work.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from blackboard.cli import options
from blackboard.cli.output import (
    colour,
    echo_paged,
    emit,
    note,
    paused_words,
    table_text,
    width,
    wrapped,
)
from blackboard.cli.progress import reading
from blackboard.cli.session import Session, gc_disabled
from blackboard.cli.watch import time_of_frame, watch_option, watched
from blackboard.display import columns
from blackboard.display.escaping import shown
from blackboard.display.item_queries import SORTS, ItemQuery, ItemsFound, select
from blackboard.display.layout import Column, Line, Style, paragraph, table, texts_of
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
from blackboard.protocol.board_table import BoardTable
from blackboard.records import item_record
from blackboard.rules.status import STATES

EMPTY = "no items yet: `blackboard add ID --type TYPE` adds one"


@options.cli_command("""\
Examples:
  blackboard show
  blackboard show 'us-*' --state failed --sort stop --reverse
  blackboard show --watch 5
  blackboard show --limit 20
  blackboard show --plain westlafcals
  blackboard show --json | jq '.[] | select(.overdue) | .id'
""")
@options.ids_argument(required=False)
@options.types_option
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="In this state.")
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="id", help="The column to sort by [id]."
)
@click.option("--reverse", is_flag=True, help="The other way round.")
@options.number_option("--limit", most=1_000_000, line="Show N items at the most.")
@options.overdue_option("1m")
@options.absolute_option
@click.option("--plain", is_flag=True, help="Four lines an item: id, start, stop, running.")
@watch_option
def show_command(
    *,
    chosen: options.Chosen,
    ids: tuple[str, ...],
    types: tuple[str, ...],
    states: tuple[str, ...],
    sort: str,
    reverse: bool,
    limit: int | None,
    overdue: timedelta,
    plain: bool,
) -> int:
    """Show the board: when its items ran and with what outcome, which workers run them, and when
    they are due next.

    IDs may be globs. Several --type, or several --state, mean any of them. On a terminal, what is
    longer than the screen is shown by a pager: $PAGER, else less.

    With --watch, keys choose an item and act on it: arrows or j k, PgUp, PgDn, Home and End; Enter
    opens it; p pauses or resumes it, r runs it, c cancels its run; / filters, f goes through the
    states, s sorts and S the other way round; space holds the refresh; ? shows the keys; q ends.
    """
    query = ItemQuery(
        ids=ids,
        exact=chosen.exact,
        types=types,
        states=states,
        sort=sort,
        reverse=reverse,
        overdue=overdue,
    )
    session = Session.start(chosen)
    if chosen.watch is not None:
        return _watched(session, query, limit=limit)
    session = session.with_labels(ids, shown=chosen.json)
    with gc_disabled():
        asyncio.run(_once(session, query, limit=limit, plain=plain))
    return 0


def _watched(session: Session, query: ItemQuery, *, limit: int | None) -> int:
    from blackboard.board import Board  # noqa: PLC0415 - not for a table that is shown once
    from blackboard.cli.board_view import BoardView  # noqa: PLC0415

    time_of_frame(session)  # refused before the jobs are loaded
    session = session.with_defaults()

    def view(table: BoardTable) -> BoardView:
        board = Board(table, session, via="cli")
        return BoardView(table, board, query, absolute=session.chosen.absolute, limit=limit)

    return watched(session, view)


async def _once(session: Session, query: ItemQuery, *, limit: int | None, plain: bool) -> None:
    async with reading(session.board(), "reading items") as board:
        listed = await query.read(board, limit=limit)
        unmatched = {*query.types} - {status.item.type for status in listed.items}
        if unmatched:
            session.check_types(unmatched, {item.type async for item in board.items()})
    if session.chosen.json:
        emit([item_record(status, board.labels(status.item)) for status in listed.items])
    elif plain:
        echo_paged("\n\n".join(map(columns.plain_record, listed.items)))
    elif not (listed.total or listed.paused):
        click.echo("0 items" if query.ids else wrapped(options.as_typed(EMPTY)))
    else:
        echo_paged(picture(listed, absolute=session.chosen.absolute))


def picture(listed: ItemsFound, *, absolute: bool) -> str:
    """Who paused the board, the table, the warnings, and a summary in one line."""
    room = width()
    head: list[Line] = []
    if listed.paused:
        words = paused_words(listed.paused, listed.now)
        head = paragraph(words, room, margin="  ", style=Style.LATE)
    times = columns.ShownTimes(listed.now, absolute)
    rows = [columns.item_cells(status, times, held=listed.held) for status in listed.items]
    lines = table(times.columns(columns.ITEM_COLUMNS), rows, width=room) if rows else []
    if listed.left:
        lines = [*lines, [(f"... and {listed.left:,} more", Style.QUIET)]]
    warned = [
        line
        for ((text, style),) in columns.warning_lines(listed.items)
        for line in paragraph(text, room, margin="  ", style=style)
    ]
    parts = [texts_of(part, colour=colour()) for part in (head, lines, warned)]
    return "\n\n".join(filter(None, (*parts, wrapped(columns.found_summary(listed)))))


# ---- report

_STYLES = {"bad": Style.BAD, "late": Style.LATE}


@options.cli_command("""\
Examples:
  blackboard report davis
  blackboard report davis --json | jq '.[0].feeds[] | select(.failures > 2) | .name'
""")
@options.ids_argument()
@options.absolute_option
def report_command(*, chosen: options.Chosen, ids: tuple[str, ...]) -> int:
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
        click.echo("\n\n".join(_report_text(*pair, now=now, absolute=absolute) for pair in reports))
    for words in missing:
        note(words)
    return 1 if missing else 0


def _report_text(item: Item, report: Mapping[str, Any], *, now: datetime, absolute: bool) -> str:
    """A line about the run (`davis: feeds 12, ok 3, ...`), and the table of its report."""
    titles, rows = report_table(report)
    layout = [
        Column(title=column.title, least=len(column.title), usual=24, worth=-n)
        for n, column in enumerate(titles)
    ]

    def words(value: Any, column: ReportColumn) -> str:
        if isinstance(value, datetime):
            return stamp(value) if absolute else relative(value, now)
        return words_of(value, signed=column.signed) or columns.NOTHING

    lines: list[Line] = [
        [
            (words(value, column), _STYLES.get(row.level, Style.PLAIN))
            for value, column in zip(row.values, titles, strict=True)
        ]
        for row in rows
    ]
    text = table_text(layout, lines) if titles else "no rows"
    numbers = ", ".join(f"{name} {value}" for name, value in report_numbers(report).items())
    head = wrapped(shown(f"{item.id}: {numbers}" if numbers else item.id), margin="  ")
    return f"{head}\n\n{text}"
