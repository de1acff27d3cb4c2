"""`blackboard show`: the board, once or again and again."""

import dataclasses
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from blackboard.cli.options import (
    Chosen,
    absolute_option,
    common,
    number_option,
    types_option,
)
from blackboard.cli.output import (
    colour,
    echo_paged,
    emit,
    is_terminal,
    item_view,
    paused_words,
    table_text,
)
from blackboard.cli.session import Session, ids_argument, keeping_all, read_selected, run
from blackboard.clock import SystemClock
from blackboard.display.columns import (
    ITEM_COLUMNS,
    board_summary,
    item_cells,
    plain_record,
    summary,
    warning_lines,
    wide,
)
from blackboard.display.layout import Line, Style, fitted, table, texts_of
from blackboard.errors import BadInput
from blackboard.model import Item, Lock, Mark, State, Statistics, Token, replace
from blackboard.protocol.maintenance import paused_by
from blackboard.protocol.reading import BoardTable, read_status
from blackboard.protocol.statistics import read_statistics
from blackboard.rules.due import is_stale
from blackboard.rules.statistics import is_current
from blackboard.rules.status import OVERDUE_AFTER, STATES, ItemStatus
from blackboard.schedule.durations import parse_duration
from blackboard.table import Busy, Unavailable
from blackboard.worker.membership import silence, workers

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

    async def read(self, board: BoardTable, *, limit: int | None = None) -> "Shown":
        """The first `limit` items that match. Of a large board no others are read where keys say
        which they are; then the last line has the numbers of the board's statistics.
        """
        counted = await self._counted(board)
        few = None if counted is None else await self._few(board, counted, limit)
        if counted is not None and few is not None:
            read = await read_status(board, few.items, overdue_after=self.overdue)
            shown, left = self.chosen(read.statuses), few.left
            last = board_summary(counted, now=read.now)
        else:
            read = await read_selected(
                board, self.ids, exact=self.exact, overdue_after=self.overdue
            )
            found = self.chosen(read.statuses)
            shown, left = found[:limit], len(found[limit:]) if limit is not None else 0
            last = summary(found, total=len(read.statuses), now=read.now) if read.statuses else ""
        return Shown(
            items=await _with_silence(board, shown),
            left=left,
            now=read.now,
            last=last,
            paused=await paused_by(board),
        )

    async def _counted(self, board: BoardTable) -> Statistics | None:
        """The statistics of a large board; None: they cannot stand for what is to be read."""
        if self.ids or self.reverse or self.sort != "id" or self.overdue != OVERDUE_AFTER:
            return None
        counted = await read_statistics(board)
        if counted is None or counted.items <= LARGE:
            return None
        return counted if is_current(counted, now=await board.table.now()) else None

    async def _few(
        self, board: BoardTable, counted: Statistics, limit: int | None
    ) -> "_Few | None":
        """What need be read of a large board; None: all of it."""
        if self.states and set(self.states) <= SEEN_BY_WORKERS:
            ids = sorted({one.id async for one in self._held_or_late(board)})
            if len(ids[:limit]) > LARGE:
                return None
            items = [await board.item(one) for one in ids[:limit]]
            return _Few([one for one in items if one is not None], len(ids) - len(items))
        if self.states or self.types or limit is None:
            return None
        first = await _first_items(board, limit)
        return _Few(first, counted.items - len(first))

    async def _held_or_late(self, board: BoardTable) -> AsyncIterator[Lock | Token]:
        """The locks and the tokens of what is in one of the states."""
        until = await board.table.now() - self.overdue
        for number in range(board.shards):
            async for one in board.walk(number, until=until):
                if self.types and one.type not in self.types:
                    continue
                if isinstance(one, Token):
                    wanted = "overdue" in self.states
                elif "running" in self.states:
                    wanted = True
                else:
                    wanted = is_stale(one, resolution=board.table.resolution)
                if wanted:
                    yield one

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


async def _with_silence(board: BoardTable, statuses: Sequence[ItemStatus]) -> list[ItemStatus]:
    """Says of runs whose worker is lost when that was last seen."""
    present = await workers(board) if any(one.running for one in statuses) else ()
    return [
        dataclasses.replace(one, silent=silence(present, one.item.owner)) if one.running else one
        for one in statuses
    ]


@dataclass(frozen=True, slots=True)
class _Few:
    """Items to be read, and how many more match."""

    items: Sequence[Item]
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is to be shown of a board."""

    items: Sequence[ItemStatus]
    left: int
    """Those that match and are not shown."""
    now: datetime
    last: str
    """All that match, or the board, in one line; "" where there is none."""
    paused: Mark | None = None
    """Who paused the board, if it is paused."""

    @property
    def head(self) -> list[Line]:
        """A line about a board that is paused."""
        return [[(paused_words(self.paused, self.now), Style.LATE)]] if self.paused else []

    @property
    def more(self) -> list[Line]:
        """A line about those that are not shown, if there are any."""
        return [[(f"... and {self.left:,} more", Style.QUIET)]] if self.left else []


async def _first_items(board: BoardTable, limit: int) -> list[Item]:
    """The first items of a board."""
    found: list[Item] = []
    for number in range(board.shards):
        of_shard = 0
        async for item in board.items_and_tombstones(number):
            if item.state is not State.REMOVED:
                found.append(item)
                of_shard += 1
            if of_shard == limit:
                break
    return sorted(found, key=lambda item: item.id)[:limit]


EPILOG = """\b
Examples:
  blackboard show
  blackboard show 'us-*' --state failed --sort stop --reverse
  blackboard show --watch 5
  blackboard show --limit 20
  blackboard show --plain westlafcals
  blackboard show --json | jq '.[] | select(.overdue) | .id'
"""
WATCH_HELP = "Show it again every [2] s."
EMPTY = "no items yet: `blackboard add ID --type TYPE` adds one"
LARGE = 1_000
"""Items of a board of which no more are read than are shown, where its statistics are current."""
SEEN_BY_WORKERS = {"running", "stale", "overdue"}
"""States that locks and due tokens tell, which lie before all else of a shard."""
EDGES = 3
"""Lines of a watched table that are not items: the titles, a blank, the summary."""


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@types_option
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="In this state.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="id", help="By what [id].")
@click.option("--reverse", is_flag=True, help="The other way round.")
@number_option("--limit", most=1_000_000, line="So many at the most.")
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
    limit: int | None,
    overdue: str | None,
    absolute: bool,
    plain: bool,
    watch: str | None,
) -> int:
    """Show the board: when its items ran and with what outcome, which workers run them, and when
    they are due next.

    IDs may be globs. Several --type, or several --state, mean any of them. On a terminal, what is
    longer than the screen is shown by a pager: $PAGER, else less.
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
            lambda board: Pictures(board=board, query=query, absolute=absolute, limit=limit).frame,
            every=seconds_of(watch),
        )
    with keeping_all():
        run(_once(session, query, limit=limit, plain=plain, absolute=absolute))
    return 0


async def _once(
    session: Session, query: ItemQuery, *, limit: int | None, plain: bool, absolute: bool
) -> None:
    async with session.board() as board:
        found = await query.read(board, limit=limit)
    if session.chosen.json:
        emit([item_view(one, board.labels(one.item)) for one in found.items])
    elif plain:
        echo_paged("\n\n".join(map(plain_record, found.items)))
    elif not (found.last or found.paused):
        click.echo(EMPTY)
    else:
        echo_paged(picture(found, absolute=absolute))


def picture(found: Shown, *, absolute: bool) -> str:
    """The table, and a summary in one line."""
    rows = [item_cells(one, now=found.now, absolute=absolute) for one in found.items]
    lines = table_text(wide(ITEM_COLUMNS, absolute=absolute), rows) if rows else ""
    more = texts_of(found.more, colour=colour())
    head = texts_of(found.head, colour=colour())
    warnings = texts_of(warning_lines(found.items), colour=colour())
    return "\n\n".join(
        filter(None, (head, "\n".join(filter(None, (lines, more))), warnings, found.last))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The frames of `show --watch`."""

    board: BoardTable
    query: ItemQuery
    absolute: bool
    limit: int | None = None

    async def frame(self, width: int, height: int) -> list[Line]:
        fit = max(height - EDGES, 1)
        found = await self.query.read(self.board, limit=min(fit, self.limit or fit))
        room = max(fit - len(found.head), 1)
        if len(found.items) + bool(found.left) > room:
            cut = len(found.items) - room + 1
            found = replace(found, items=found.items[:-cut], left=found.left + cut)
        rows = [item_cells(one, now=found.now, absolute=self.absolute) for one in found.items]
        lines = table(wide(ITEM_COLUMNS, absolute=self.absolute), rows, width=width)
        lines += found.more
        last = found.last or "0 items"
        more = f"   {found.now:%H:%M:%SZ}, Ctrl-C ends"
        foot = last + more if len(last + more) <= width else last
        return [*found.head, *lines, [], [(fitted(foot, width), Style.TITLE)]]


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
