"""`blackboard show`: the board, once or again and again."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from blackboard.cli.options import Chosen, absolute_option, common, types_option
from blackboard.cli.output import colour, emit, is_terminal, item_view, table_text
from blackboard.cli.session import Session, ids_argument, read_selected, run
from blackboard.clock import SystemClock
from blackboard.display.columns import (
    ITEM_COLUMNS,
    item_cells,
    plain_record,
    summary,
    warning_lines,
    wide,
)
from blackboard.display.layout import Line, Style, fitted, table, texts_of
from blackboard.errors import BadInput
from blackboard.protocol.reading import BoardStatus, BoardTable
from blackboard.rules.status import OVERDUE_AFTER, STATES, ItemStatus
from blackboard.schedule.durations import parse_duration
from blackboard.table import Busy, Unavailable

if TYPE_CHECKING:
    from blackboard.cli.render import Frame

SORTS: dict[str, Callable[[ItemStatus], Any]] = {
    "id": lambda one: one.item.id,
    "type": lambda one: one.item.type,
    "schedule": lambda one: one.item.schedule,
    "state": lambda one: one.item.state,
    "start": lambda one: one.item.start,
    "stop": lambda one: one.item.stop,
    "outcome": lambda one: one.item.outcome,
    "next": lambda one: one.item.ready if one.waiting else None,
    "owner": lambda one: one.item.owner or None,
    "failures": lambda one: one.item.failures,
    "runs": lambda one: one.item.runs,
}
"""Keys to sort by. An item whose key is None comes last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Which items to show, and in which order."""

    ids: Sequence[str] = ()
    exact: bool = False
    types: Sequence[str] = ()
    states: Sequence[str] = ()
    """Any of them."""
    sort: str = "id"
    reverse: bool = False
    overdue: timedelta = OVERDUE_AFTER

    async def read(self, board: BoardTable) -> tuple[BoardStatus, list[ItemStatus]]:
        """All items that were read, and those that match."""
        read = await read_selected(board, self.ids, exact=self.exact, overdue_after=self.overdue)
        return read, self.chosen(read.statuses)

    def chosen(self, statuses: Sequence[ItemStatus]) -> list[ItemStatus]:
        """The matching ones, sorted; equal ones by id."""
        found = [
            one
            for one in statuses
            if (not self.types or one.item.type in self.types)
            and (not self.states or any(one.has(state) for state in self.states))
        ]
        key = SORTS[self.sort]
        have = [one for one in found if key(one) is not None]
        have.sort(key=key, reverse=self.reverse)
        return have + [one for one in found if key(one) is None]


EPILOG = """\b
Examples:
  blackboard show
  blackboard show 'us-*' --state failed --sort stop --reverse
  blackboard show --watch 5
  blackboard show --plain westlafcals
  blackboard show --json | jq '.[] | select(.overdue) | .id'
"""
WATCH_HELP = "Show it again every [2] s."
EMPTY = "no items yet: `blackboard add ID --type TYPE` adds one"
EDGES = 3
"""Lines of a watched table that are not items: the titles, a blank, the summary."""


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@types_option
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="In this state.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="id", help="By what [id].")
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--overdue", metavar="TIME", help="Ready for longer than this is overdue [1m].")
@absolute_option
@click.option("--plain", is_flag=True, help="Four lines an item: id, start, stop, running.")
@click.option("--watch", is_flag=False, flag_value="2", metavar="[SECONDS]", help=WATCH_HELP)
@common()
def show_command(
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
    """Show the board: when its items ran and with what outcome, which workers run them, and when
    they are due next.

    IDs may be globs. Several --type, or several --state, mean any of them.
    """
    query = ItemQuery(
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
        return watched(
            session,
            lambda board: Pictures(board=board, query=query, absolute=absolute).frame,
            every=seconds_of(watch),
        )
    run(_once(session, query, plain=plain, absolute=absolute))
    return 0


async def _once(session: Session, query: ItemQuery, *, plain: bool, absolute: bool) -> None:
    async with session.board() as board:
        read, found = await query.read(board)
    if session.chosen.json:
        emit([item_view(one) for one in found])
    elif plain:
        click.echo("\n\n".join(map(plain_record, found)))
    elif not read.statuses:
        click.echo(EMPTY)
    else:
        click.echo(picture(read, found, absolute=absolute))


def picture(read: BoardStatus, found: Sequence[ItemStatus], *, absolute: bool) -> str:
    """The table, and a summary in one line."""
    rows = [item_cells(one, now=read.now, absolute=absolute) for one in found]
    lines = table_text(wide(ITEM_COLUMNS, absolute=absolute), rows) if rows else ""
    warnings = texts_of(warning_lines(found), colour=colour())
    last = summary(found, total=len(read.statuses), now=read.now)
    return "\n\n".join(filter(None, (lines, warnings, last)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The frames of `show --watch`."""

    board: BoardTable
    query: ItemQuery
    absolute: bool

    async def frame(self, width: int, height: int) -> list[Line]:
        read, found = await self.query.read(self.board)
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


def watched(session: Session, frames: "Callable[[BoardTable], Frame]", *, every: float) -> int:
    """Show frames of a board on the terminal, one every so many seconds, until Ctrl-C."""
    from blackboard.cli.render import watch  # noqa: PLC0415 - rich is slow to import

    async def work() -> None:
        async with session.board() as board:
            frame = or_trouble(frames(board))
            await watch(frame, sleep=SystemClock().sleep, every=every)

    if session.chosen.json or not is_terminal():
        raise BadInput("watch", "needs a terminal", "for programs: the command with `--json`")
    try:
        run(work())
    except KeyboardInterrupt:
        return 0
    return 0


def or_trouble(frame: "Frame") -> "Frame":
    """The frames, or a line that says why there is none."""

    async def shown(width: int, height: int) -> Sequence[Line]:
        try:
            return await frame(width, height)
        except (Busy, Unavailable) as trouble:
            return [[(f"store: {str(trouble) or 'it cannot be reached'}", Style.BAD)]]

    return shown


def seconds_of(text: str) -> float:
    """The time between two frames. Raises BadInput."""
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        return max(float(text), 0.1)
    try:
        return parse_duration(text, "watch").total_seconds()
    except BadInput:
        remedy = "say the seconds, as in `blackboard show --watch 2 ID`"
        raise BadInput("watch", f"{text!r} is no time", remedy) from None
