"""`blackboard log`: the newest runs of items, found without reading the whole history; runs as they
end (`--follow`); or what people did (`--actions`).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import click

from blackboard.cli import options
from blackboard.cli.output import colour, emit, hung, is_terminal, table_lines, width
from blackboard.cli.progress import reading
from blackboard.cli.session import Session
from blackboard.cli.store_away import AskedAgain
from blackboard.clock import Clock, SystemClock
from blackboard.display.columns import (
    ACTION_COLUMNS,
    RUN_COLUMNS,
    ShownTimes,
    action_cells,
    run_cells,
    run_outcome,
    run_words,
)
from blackboard.display.escaping import shown, shown_lines
from blackboard.display.layout import Line, Style, table, text_of, titled
from blackboard.display.run_queries import RunQuery, items_with_history, newest_runs
from blackboard.errors import BadInput, NoneInState
from blackboard.model import LARGEST, Item, Mark, Outcome, Run, decoded_as, replace
from blackboard.phrases import brief, span, stamp, stamp_to_milliseconds
from blackboard.protocol.actions import actions as read_actions
from blackboard.protocol.board_table import BoardTable
from blackboard.records import action_record, run_record, run_summary
from blackboard.schedule.times import parse_moment

USUAL = 20
MOST = 100_000
"""The most runs that are shown at once."""
BETWEEN_LOOKS = 2.0
"""Seconds between two looks for runs that have ended, if a look does not take longer."""
ALL_AGAIN = 60.0
"""Seconds between two looks at the runs of all items, also of those that have not changed."""
BEHIND = timedelta(minutes=10)
"""How long before the last look a run may have stopped, by its worker's clock, to be shown."""


@options.cli_command("""\
Examples:
  blackboard log
  blackboard log westlafcals -n 5 --output
  blackboard log --outcome failed --outcome timeout --since yesterday
  blackboard log --grep "timed? out" --since 3d --until "1d ago"
  blackboard log --follow
  blackboard log westlafcals --fence 12
  blackboard log --actions -n 50
  blackboard log --json | jq '.[] | [.id, .lag]'
""")
@options.ids_argument(required=False)
@options.number_option("-n", "number", most=MOST, line=f"At most [{USUAL}].")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=click.Choice([outcome.value for outcome in Outcome]),
    help="Only runs with this outcome.",
)
@options.types_option
@click.option(
    "--since", metavar="WHEN", help="Stopped since: 1h (ago), yesterday, 2026-11-21T09:00 (UTC)."
)
@click.option("--until", metavar="WHEN", help="Stopped until then.")
@click.option("--grep", metavar="REGEX", help="In result, error, warnings, output, log; any case.")
@click.option("--follow", "-f", is_flag=True, help="Go on with runs as they end, until Ctrl-C.")
@options.number_option("--fence", most=LARGEST, line="The run with this fence, in full.")
@click.option("--output", is_flag=True, help="With what handlers printed.")
@click.option("--full", is_flag=True, help="All of each run: result, traceback, output, log.")
@click.option("--actions", is_flag=True, help="What people did, in place of runs.")
@options.absolute_option
def log_command(
    *,
    chosen: options.Chosen,
    ids: tuple[str, ...],
    number: int | None,
    outcomes: tuple[str, ...],
    types: tuple[str, ...],
    since: str | None,
    until: str | None,
    grep: str | None,
    follow: bool,
    fence: int | None,
    output: bool,
    full: bool,
    actions: bool,
) -> int:
    """Show the runs of all items, or of IDs (globs, too), newest first.

    A line for each run; with --full, or --fence, everything about it. With --follow the newest come
    last, and with --json each is a line. With --actions: who did what to which items, and why.
    """
    session = Session.start(chosen).with_labels(ids)
    number = number or (USUAL if fence is None else MOST)
    if actions:
        problem = "all actions of the board are shown"
        options.refuse_beside("actions", problem, allowed=("number", "absolute"))
        asyncio.run(_print_actions(session, number=number))
        return 0
    asked = _RunsAsked(
        session=session,
        ids=ids,
        number=number,
        fence=fence,
        conditions=RunQuery(
            outcomes=[*map(Outcome, outcomes)], types=types, pattern=_pattern(grep)
        ),
        since=since,
        until=until,
    )
    if follow:
        chosen_by = ("ids", "exact", "number", "outcomes", "types", "since", "grep")
        options.refuse_beside(
            "follow", "it shows a line for each run, until Ctrl-C", allowed=chosen_by
        )
        show = _json_line if chosen.json else FollowedRuns().show if is_terminal() else _tail_line
        with suppress(KeyboardInterrupt):
            asyncio.run(_follow(asked, show))
    else:
        asyncio.run(_print_runs(asked, output=output, full=full or fence is not None))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunsAsked:
    session: Session
    ids: Sequence[str]
    """Ids and globs of items; none: all items."""
    number: int
    """The most runs that are shown at once."""
    fence: int | None
    """None: runs of any fence."""
    conditions: RunQuery
    """All conditions but for times."""
    since: str | None
    until: str | None

    def query(self, now: datetime) -> RunQuery:
        """The conditions with times; `now` is the store's. Raises BadInput."""
        begin, end = _moment(self.since, "since", now), _moment(self.until, "until", now)
        if begin and end and end < begin:
            raise BadInput("until", "it is before --since", "a later time")
        return replace(self.conditions, since=begin, until=end)

    async def items(self, board: BoardTable) -> Sequence[Item]:
        """Raises BadInput where an id or a glob means no item."""
        return await items_with_history(board, self.ids, exact=self.session.chosen.exact)

    async def check_types(self, board: BoardTable, items: Sequence[Item]) -> None:
        """Raises BadInput for a type that neither an item of the board nor a handler has."""
        unmatched = {*self.conditions.types} - {item.type for item in items}
        if unmatched:
            every = await items_with_history(board, ()) if self.ids else items
            self.session.check_types(unmatched, {item.type for item in every})


async def _print_runs(asked: _RunsAsked, *, output: bool, full: bool) -> None:
    async with reading(asked.session.board(), "reading items") as board:
        query = asked.query(await board.table.now())
        items = await asked.items(board)
        runs_of = None if asked.fence is None else partial(_of_fence, board, asked.fence)
        listed, _ = await newest_runs(board, items, query, limit=asked.number, runs_of=runs_of)
        await asked.check_types(board, items)
        runs, now = [run for _, run in listed], await board.table.now()
    if asked.session.chosen.json:
        emit([run_record(run) if output or full else run_summary(run) for run in runs])
    elif not runs:
        click.echo("no runs")
    elif full:
        click.echo("\n\n".join("\n".join(map(hung, in_full(run))) for run in runs))
    else:
        times = ShownTimes(now, asked.session.chosen.absolute)
        click.echo("\n".join(_in_lines(runs, times, output=output)))
        if len(runs) == asked.number and is_terminal():
            total = sum(item.runs for item in items)
            so_many = "of those that match" if query.selects else f"of {total}"
            click.echo(f"\nthe newest {asked.number} {so_many}; -n shows more")


async def _print_actions(session: Session, *, number: int) -> None:
    async with session.board() as board:
        actions = await read_actions(board, limit=number)
        times = ShownTimes(await board.table.now(), session.chosen.absolute)
    if session.chosen.json:
        emit([action_record(action) for action in actions])
    elif not actions:
        click.echo("no actions")
    else:
        rows = [action_cells(action, times) for action in actions]
        click.echo("\n".join(table_lines(times.columns(ACTION_COLUMNS), rows)))
        if len(actions) == number and is_terminal():
            click.echo(f"\nthe newest {number}; -n shows more")


async def _of_fence(board: BoardTable, fence: int, item: Item) -> AsyncIterator[Run]:
    run = await board.run(item.id, fence)
    if run is not None:
        yield run


def _moment(text: str | None, field: str, now: datetime) -> datetime | None:
    return None if text is None else parse_moment(text, "UTC", field, now, is_past=True)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text, re.IGNORECASE | re.MULTILINE)
    except re.error as problem:
        remedy = "write a backslash before each of . * + ? ( ) [ ] { } | ^ $ that is meant as it is"
        raise BadInput("grep", f"{text!r} is not a regular expression: {problem}", remedy) from None


async def _follow(asked: _RunsAsked, show: Callable[[Run], None]) -> None:
    """Shows the newest runs, and then each run as it ends, until it is cancelled. Where the store
    has a revision, nothing is read while nothing is written. All times are the store's: the clock
    of this host may be wrong. A store that is away is asked again. Raises BadInput as
    `_RunsAsked.check_types`, and Unusable.
    """
    clock = SystemClock()
    async with asked.session.board() as board:
        query = asked.query(await board.table.now())
        recent = _RecentRuns(board, query, clock)
        read_at, items = await board.revision(), list[Item]()
        with suppress(NoneInState):  # one may come into the state later
            items = [*await asked.items(board)]
        await asked.check_types(board, items)
        await recent.among(items)
        listed, _ = await newest_runs(board, items, query, limit=asked.number)
        for _, run in reversed(listed):
            show(run)
        recent.unknown([run for _, run in listed])
        store = AskedAgain(clock)
        while True:
            began = clock.monotonic()
            with store.asking():
                revision = await board.revision()
                if revision is None or revision != read_at:
                    items = []
                    with suppress(BadInput):  # the last of them, and its tombstone, are gone
                        items = [*await asked.items(board)]
                    for run in await recent.among(items):
                        show(run)
                    read_at = revision
            await clock.sleep(max(BETWEEN_LOOKS, clock.monotonic() - began))


class _RecentRuns:
    """The runs that have stopped of late. After the first look only those of items that have
    changed are read; once in a while all, for a late run may change nothing but the history.
    """

    def __init__(self, board: BoardTable, query: RunQuery, clock: Clock) -> None:
        self._board = board
        self._query = query
        self._clock = clock
        self._etags: dict[str, str] = {}
        self._all_at = clock.monotonic()
        self._looked_at: datetime | None = None
        """The store's time at the last look. The next may come late: while the machine was
        suspended, or the store was away, there was none."""
        self._known: dict[tuple[str, int], datetime] = {}
        """When each run stopped, by its id and fence."""

    async def among(self, items: Sequence[Item]) -> list[Run]:
        """The runs of these items that were not read before, the oldest first."""
        if self._clock.monotonic() >= self._all_at:
            self._etags, self._all_at = {}, self._clock.monotonic() + ALL_AGAIN
        changed = [item for item in items if self._etags.get(item.id) != item.etag]
        now = await self._board.table.now()
        since = min(now, self._looked_at or now) - BEHIND
        query = replace(self._query, since=max(since, self._query.since or since))
        listed, _ = await newest_runs(self._board, changed, query, limit=MOST)
        self._etags, self._looked_at = {item.id: item.etag for item in items}, now
        self._known = {key: stop for key, stop in self._known.items() if stop >= since}
        return self.unknown([run for _, run in listed])

    def unknown(self, runs: Sequence[Run]) -> list[Run]:
        """Those of these runs, the newest first, that were not read before, or have come back since
        then; the oldest first.
        """
        new = [run for run in reversed(runs) if self._known.get((run.id, run.fence)) != run.stop]
        self._known |= {(run.id, run.fence): run.stop for run in runs}
        return new


def _json_line(run: Run) -> None:
    emit(run_record(run), in_a_line=True)


def _tail_line(run: Run) -> None:
    took = f"{run_outcome(run)[0]} after {brief(run.duration)}"
    words = f"{stamp(run.stop)}  {run.id} ({run.type})  {took}  {run_words(run)}"
    click.echo(shown(words.rstrip()))


class FollowedRuns:
    """Runs on a terminal as they end."""

    def __init__(self) -> None:
        self._columns = 0

    def show(self, run: Run) -> None:
        columns = width() or LEAST
        titles, ended = (text_of(line, colour=colour()) for line in tail_lines(run, columns))
        if columns != self._columns:
            self._columns = columns
            click.echo(titles)
        click.echo(ended)


FOLLOWED = {"stop", "id", "type", "outcome", "took", "result or error"}
"""The columns of runs that are shown as they end."""
ROOMY = 100
"""The width of a line, in columns, from which times have their date."""
LEAST = 80
"""The width of a terminal that does not report one, in columns."""


def tail_lines(run: Run, columns: int) -> Sequence[Line]:
    """The titles, and a run that has ended, on lines of so many columns. Those of the table have
    their usual widths, as later texts are not known yet; the last one has the rest.
    """
    cells = run_cells(run, ShownTimes(run.stop, absolute=True))
    (times, *others), [[_, *texts]] = titled(RUN_COLUMNS, [cells], FOLLOWED)
    stop = stamp(run.stop) if columns >= ROOMY else f"{run.stop:%H:%M:%SZ}"
    widths = [len(stop), *(column.usual for column in others[:-1]), columns]
    kept, line = [replace(times, least=len(stop)), *others], [(stop, Style.PLAIN), *texts]
    return table(kept, [line], width=columns, natural=widths)


def _in_lines(runs: Sequence[Run], times: ShownTimes, *, output: bool) -> Iterator[str]:
    """A line for each run, with what its handler printed on request."""
    rows = [run_cells(run, times) for run in runs]
    title, *lines = table_lines(times.columns(RUN_COLUMNS), rows)
    yield title
    for run, line in zip(runs, lines, strict=True):
        yield line
        if output and run.output:
            yield from map(hung, _indented(run.output))


def in_full(run: Run) -> Iterator[str]:
    yield f"{shown(run.id)}  {run_outcome(run)[0]}  fence {run.fence}, attempt {run.attempt}"
    yield f"  type    {shown(run.type)}"
    yield f"  due     {stamp(run.slot)}"
    yield f"  start   {stamp(run.start)}, {span(run.lag)} after it was ready"
    yield f"  stop    {stamp(run.stop)}, after {span(run.duration)}"
    yield f"  worker  {shown(run.worker)}"
    if mark := decoded_as(Mark, run.note):
        because = f": {mark.reason}" if mark.reason else ""
        yield f"  note    ended by {shown(mark.by)} at {stamp(mark.at)}{shown(because)}"
    texts = {
        "result": run.result,
        "skipped" if run.is_skipped else "error": run.error,
        "warnings": "\n".join(run.warnings),
        "output": run.output,
        "log": "\n".join(
            f"{stamp_to_milliseconds(line.at)}  {line.level:<7}  "
            f"{line.logger}{': ' if line.logger else ''}{line.text}"
            for line in run.log
        ),
    }
    for title, text in texts.items():
        if text:
            yield f"  {title}"
            yield from _indented(text)


def _indented(text: str) -> Iterator[str]:
    """Indented lines, without control characters of the terminal."""
    for line in shown_lines(text):
        yield f"    {line}".rstrip()
