"""`blackboard show`: the board, once or again and again."""

import asyncio
from datetime import timedelta

import click

from blackboard.cli import options
from blackboard.cli.output import colour, echo_paged, emit, paused_words, width, wrapped
from blackboard.cli.progress import reading
from blackboard.cli.session import Session, gc_disabled
from blackboard.cli.watch import time_of_frame, watch_option, watched
from blackboard.display import columns
from blackboard.display.item_queries import SORTS, ItemQuery, ItemsFound
from blackboard.display.layout import Line, Style, paragraph, table, texts_of
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
