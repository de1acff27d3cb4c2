"""`blackboard show`: the board."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import click

from blackboard.cli import terminal
from blackboard.cli.columns import ITEM_COLUMNS, item_cells, summary, warning_lines, wide
from blackboard.cli.gather import Gathered
from blackboard.cli.layout import Line, Style, fitted, table, texts_of
from blackboard.cli.options import Chosen, common
from blackboard.cli.selection import ids_argument
from blackboard.cli.session import Session, emit, run
from blackboard.cli.text import shown
from blackboard.cli.views import item_view
from blackboard.cli.wanted import SORTS, Wanted
from blackboard.clock import SystemClock
from blackboard.errors import BadInput
from blackboard.phrases import iso
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import OVERDUE_AFTER, STATES, ItemStatus
from blackboard.schedule.durations import parse_duration
from blackboard.table import Busy, Unavailable

EPILOG = """\b
Examples:
  blackboard show
  blackboard show 'us-*' --state failed --sort stop --reverse
  blackboard show --watch 5
  blackboard show --plain westlafcals
  blackboard show --json | jq '.[] | select(.overdue) | .id'
"""
EMPTY = "no items yet: `blackboard add ID --type TYPE` adds one"
EDGES = 3
"""Lines of a watched table that are not items: the titles, a blank, the summary."""


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Items of this type.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="In this state.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="id", help="By what [id].")
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--overdue", metavar="TIME", help="Ready for longer than this is overdue [1m].")
@click.option("--absolute", is_flag=True, help="Times in UTC instead of '3m ago'.")
@click.option("--plain", is_flag=True, help="Four lines an item: id, start, stop, running.")
@click.option(
    "--watch", is_flag=False, flag_value="2", metavar="[SECONDS]", help="Keep looking, every [2] s."
)
@common()
def command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    types: tuple[str, ...],
    states: tuple[str, ...],
    sort: str,
    reverse: bool,
    overdue: str | None,
    absolute: bool,
    plain: bool,
    watch: str | None,
) -> int:
    """Show the board: when its items ran, how that went, who runs them, what is next.

    IDs may be globs. Several --type, or several --state, mean any of them.
    """
    wanted = Wanted(
        ids=ids,
        exact=exact,
        types=types,
        states=states,
        sort=sort,
        reverse=reverse,
        overdue=parse_duration(overdue, "overdue") if overdue else OVERDUE_AFTER,
    )
    session = Session.start(chosen)
    if watch is not None:
        return _watch(session, wanted, every=_seconds(watch), absolute=absolute)
    run(_once(session, wanted, plain=plain, absolute=absolute))
    return 0


async def _once(session: Session, wanted: Wanted, *, plain: bool, absolute: bool) -> None:
    async with session.board() as board:
        read, found = await wanted.read(board)
    if session.chosen.json:
        emit([item_view(one) for one in found])
    elif plain:
        click.echo("\n\n".join(map(plain_record, found)))
    elif not read.statuses:
        click.echo(EMPTY)
    else:
        click.echo(picture(read, found, absolute=absolute))


def plain_record(one: ItemStatus) -> str:
    """A record as people looked at it in 2009."""
    start, stop = (iso(moment) if moment else "never" for moment in (one.item.start, one.item.stop))
    return f"id: {shown(one.item.id)}\nstart: {start}\nstop: {stop}\nrunning: {one.item.running}"


def picture(read: Gathered, found: Sequence[ItemStatus], *, absolute: bool) -> str:
    """The table and a line that sums it up."""
    rows = [item_cells(one, now=read.now, absolute=absolute) for one in found]
    columns = wide(ITEM_COLUMNS, absolute=absolute)
    lines = table(columns, rows, width=terminal.width()) if rows else []
    last = summary(found, total=len(read.statuses), now=read.now)
    parts = [texts_of(part, colour=terminal.colour()) for part in (lines, warning_lines(found))]
    return "\n\n".join([*filter(None, parts), last])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Frames of a watched board."""

    board: BoardTable
    wanted: Wanted
    absolute: bool

    async def frame(self, width: int, height: int) -> list[Line]:
        try:
            read, found = await self.wanted.read(self.board)
        except (Busy, Unavailable) as trouble:
            return [[(f"store: {str(trouble) or 'it cannot be reached'}", Style.BAD)]]
        fit = max(height - EDGES, 1)
        shown = found if len(found) <= fit else found[: fit - 1]
        rows = [item_cells(one, now=read.now, absolute=self.absolute) for one in shown]
        lines = table(wide(ITEM_COLUMNS, absolute=self.absolute), rows, width=width)
        if len(shown) < len(found):
            lines.append([(f"... and {len(found) - len(shown):,} more", Style.QUIET)])
        last = summary(found, total=len(read.statuses), now=read.now)
        more = f"   {read.now:%H:%M:%SZ}, Ctrl-C ends"
        foot = last + more if len(last + more) <= width else last
        return [*lines, [], [(fitted(foot, width), Style.TITLE)]]


def _watch(session: Session, wanted: Wanted, *, every: float, absolute: bool) -> int:
    from blackboard.cli.render import watch  # noqa: PLC0415 - rich is slow to import

    async def work() -> None:
        async with session.board() as board:
            pictures = Pictures(board=board, wanted=wanted, absolute=absolute)
            await watch(pictures.frame, sleep=SystemClock().sleep, every=every)

    if session.chosen.json or not terminal.is_terminal():
        raise BadInput("watch", "needs a terminal", "for programs: `blackboard show --json`")
    try:
        run(work())
    except KeyboardInterrupt:
        return 0
    return 0


def _seconds(text: str) -> float:
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        return max(float(text), 0.1)
    try:
        return parse_duration(text, "watch").total_seconds()
    except BadInput:
        remedy = "say the seconds, as in `blackboard show --watch 2 ID`"
        raise BadInput("watch", f"{text!r} is no time", remedy) from None
