"""`blackboard log`: the newest runs of items, found without reading the whole history, or runs as
they end.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import click

from blackboard.cli.options import Chosen, absolute_option, common, number_option, types_option
from blackboard.cli.output import emit, is_terminal, note, run_view, table_lines
from blackboard.cli.session import Session, ids_argument, run, select
from blackboard.clock import SystemClock
from blackboard.display.columns import RUN_COLUMNS, run_cells, run_outcome, run_words, wide
from blackboard.display.layout import shown
from blackboard.errors import BadInput
from blackboard.inputs import check_id
from blackboard.model import Item, LogLine, Mark, Outcome, Run, State, replace
from blackboard.patterns import is_glob
from blackboard.phrases import brief, span, stamp, stamp_to_milliseconds
from blackboard.protocol import keys
from blackboard.protocol.edits import Missing
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import record_of
from blackboard.records import decoded_as
from blackboard.schedule.moments import parse_moment
from blackboard.table import Busy, Unavailable

NEVER = datetime.min.replace(tzinfo=UTC)
ANY_TIME = datetime.max.replace(tzinfo=UTC)
MOST = 100_000
"""Runs that are shown at once."""
BETWEEN_LOOKS = 2.0
"""Seconds between two looks for runs that have ended, if a look does not take longer."""
BEHIND = timedelta(minutes=10)
"""So long before it is written a run may have stopped by its worker's clock, to be followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to show."""

    limit: int
    outcomes: Collection[Outcome] = ()
    """Any of them; none: all."""
    types: Collection[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    """Runs stopped in between, both included."""
    pattern: re.Pattern[str] | None = None
    """Found in the result, the error or the output."""

    @property
    def selects(self) -> bool:
        """Whether it leaves out runs by what they are."""
        return bool(self.outcomes or self.types or self.since or self.until or self.pattern)

    def matches(self, run: Run) -> bool:
        if self.outcomes and run.outcome not in self.outcomes:
            return False
        if (self.since and run.stop < self.since) or (self.until and run.stop > self.until):
            return False
        logged = (line.text for line in run.log)
        texts = (run.result, run.error, run.output, *run.warnings, *logged)
        return self.pattern is None or any(map(self.pattern.search, texts))


async def newest_runs(board: BoardTable, items: Sequence[Item], query: RunQuery) -> list[Run]:
    """The newest runs of `items`, by when they stopped.

    Items are read in the order of their latest runs, and reading stops when no other item can have
    a newer run than those found. A late run, which ended after its item had moved on, is found with
    the others of its item.
    """
    found: list[Run] = []
    for item in sorted(items, key=last_heard, reverse=True):
        heard = last_heard(item)
        full = len(found) == query.limit and heard < found[-1].stop
        if heard == NEVER or full or (query.since and heard < query.since):
            break
        if query.types and item.type not in query.types:
            continue
        found += [run async for run in _matching(board, item, query)]
        found = sorted(found, key=_age_order)[: query.limit]
    return found


async def items_with_history(
    board: BoardTable, ids: Sequence[str], *, exact: bool = False
) -> list[Item]:
    """The items that `ids` mean, all when there are none. History outlives its item, so removed
    items count too.
    """
    if not ids:
        return [
            record_of(Item, row)
            for number in range(board.shards)
            async for row in board.table.scan(
                board.shard(number), keys.ITEM, keys.end_of(keys.ITEM)
            )
        ]
    found: dict[str, Item] = {}
    for pattern in ids:
        one = await board.item(check_id(pattern))
        if one is not None:
            found[one.id] = one
        elif exact or not is_glob(pattern):
            raise Missing(pattern)
        else:
            found |= {item.id: item for item in await select(board, [pattern])}
    return list(found.values())


def last_heard(item: Item) -> datetime:
    """The latest moment at which an item's newest run can have stopped or been taken over. The item
    of an id that was added again does not have the end of its earlier life.
    """
    if item.born and item.stop is None:
        return ANY_TIME
    started = item.start if item.running or item.state is State.REMOVED else None
    return max(item.stop or NEVER, started or NEVER)


def _age_order(run: Run) -> tuple[float, str, int]:
    """Newest first; runs that stopped at the same time by id and fence."""
    return -run.stop.timestamp(), run.id, -run.fence


async def _matching(board: BoardTable, item: Item, query: RunQuery) -> AsyncIterator[Run]:
    number = 0
    async for one in board.runs(item.id):
        if number == query.limit:
            return
        if query.matches(one):
            number += 1
            yield one


EPILOG = """\b
Examples:
  blackboard log
  blackboard log westlafcals -n 5 --output
  blackboard log --outcome failed --outcome timeout --since yesterday
  blackboard log --grep "timed? out" --since 3d --until "1d ago"
  blackboard log --follow
  blackboard log westlafcals --fence 12
  blackboard log --json | jq '.[] | [.id, .lag]'
"""
OUTCOMES = [one.value for one in Outcome]


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@number_option("-n", "number", most=MOST, default=20, line="At most [20].")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(OUTCOMES), help="So ended.")
@types_option
@click.option(
    "--since", metavar="WHEN", help="Stopped since: 1h (ago), yesterday, 2026-11-21T09:00."
)
@click.option("--until", metavar="WHEN", help="Stopped until then.")
@click.option("--grep", metavar="REGEX", help="In the result, error, output or log; any case.")
@click.option("--follow", "-f", is_flag=True, help="Go on with runs as they end, until Ctrl-C.")
@click.option("--fence", type=int, metavar="N", help="The run with this fence, in full.")
@click.option("--output", is_flag=True, help="With what handlers printed.")
@click.option("--full", is_flag=True, help="All of each run: result, traceback, output, log.")
@absolute_option
@common()
def log_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    number: int,
    outcomes: tuple[str, ...],
    types: tuple[str, ...],
    since: str | None,
    until: str | None,
    grep: str | None,
    follow: bool,
    fence: int | None,
    output: bool,
    full: bool,
    absolute: bool,
) -> int:
    """Show the runs of items, newest first: all items', or those of IDs (globs, too).

    A line for each run; with --full, or --fence, everything about it. With --follow the newest come
    last, and with --json each is a line.
    """
    session = Session.start(chosen)
    full = full or fence is not None
    now = SystemClock().now()
    query = RunQuery(
        limit=number if fence is None else MOST,
        outcomes=[Outcome(one) for one in outcomes],
        types=types,
        since=_moment(since, "since", now),
        until=_moment(until, "until", now),
        pattern=_pattern(grep),
    )

    async def read() -> tuple[list[Run], int, datetime]:
        async with session.board() as board:
            items = await items_with_history(board, ids, exact=exact)
            found = await newest_runs(board, items, query)
            return found, sum(one.runs for one in items), await board.table.now()

    if follow:
        if fence is not None or until is not None:
            raise BadInput("follow", "it goes on until Ctrl-C", "leave out --fence and --until")
        show = _json_line if chosen.json else _tail_line
        with suppress(KeyboardInterrupt):
            run(_follow(session, partial(items_with_history, ids=ids, exact=exact), query, show))
        return 0
    runs, total, now = run(read())
    if fence is not None:
        runs = [one for one in runs if one.fence == fence]
    if chosen.json:
        emit([run_view(one, output=output or full) for one in runs])
    elif not runs:
        click.echo("no runs")
    elif full:
        click.echo("\n\n".join("\n".join(in_full(one)) for one in runs))
    else:
        click.echo("\n".join(_in_lines(runs, now=now, absolute=absolute, output=output)))
        if len(runs) == number and is_terminal():
            so_many = "of those that match" if query.selects else f"of {total}"
            click.echo(f"\nthe newest {number} {so_many}; -n shows more")
    return 0


def _moment(text: str | None, field: str, now: datetime) -> datetime | None:
    return parse_moment(text, "UTC", field, now, is_past=True) if text else None


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text, re.IGNORECASE | re.MULTILINE) if text else None
    except re.error as problem:
        remedy = "write a backslash before each of . * + ? ( ) [ ] { } | ^ $ that is meant as it is"
        raise BadInput("grep", f"{text!r} is no regular expression: {problem}", remedy) from None


async def _follow(
    session: Session,
    items_of: Callable[[BoardTable], Awaitable[Sequence[Item]]],
    query: RunQuery,
    show: Callable[[Run], None],
) -> None:
    """Shows the newest runs, and then each as it ends, until it is cancelled."""
    clock = SystemClock()

    def recent() -> RunQuery:
        return replace(query, limit=MOST, since=clock.now() - BEHIND)

    async with session.board() as board:

        async def read(query: RunQuery) -> list[Run]:
            return await newest_runs(board, await items_of(board), query)

        earlier, found = await read(recent()), await read(query)
        for one in reversed(found):
            show(one)
        known = {(one.id, one.fence) for one in (*earlier, *found)}
        is_away = False
        while True:
            began = clock.monotonic()
            try:
                found = await read(recent())
            except (Busy, Unavailable) as trouble:
                if not is_away:
                    note(f"store: {str(trouble) or 'it cannot be reached'}; it is asked again")
                is_away = True
            else:
                is_away = False
                for one in reversed(found):
                    if (one.id, one.fence) not in known:
                        show(one)
                known = {(one.id, one.fence) for one in found}
            await clock.sleep(max(BETWEEN_LOOKS, clock.monotonic() - began))


def _tail_line(one: Run) -> None:
    took = f"{run_outcome(one)[0]} after {brief(one.duration)}"
    said = shown(run_words(one))
    words = f"{stamp(one.stop)}  {shown(one.id)} ({shown(one.type)})  {took}  {said}"
    click.echo(words.rstrip())


def _json_line(one: Run) -> None:
    emit(run_view(one, output=True), in_a_line=True)


def _in_lines(runs: Sequence[Run], *, now: datetime, absolute: bool, output: bool) -> Iterator[str]:
    """A line for each run, with what its handler printed on request."""
    rows = [run_cells(one, now=now, absolute=absolute) for one in runs]
    columns = wide(RUN_COLUMNS, absolute=absolute)
    title, *lines = table_lines(columns, rows)
    yield title
    for one, line in zip(runs, lines, strict=True):
        yield line
        if output and one.output:
            yield from _indented(one.output)


def in_full(one: Run) -> Iterator[str]:
    """Everything about a run."""
    yield f"{shown(one.id)}  {one.outcome.value}  fence {one.fence}, attempt {one.attempt}"
    yield f"  type    {shown(one.type)}"
    yield f"  due     {stamp(one.slot)}"
    yield f"  start   {stamp(one.start)}, {span(one.lag)} after it was ready"
    yield f"  stop    {stamp(one.stop)}, after {span(one.duration)}"
    yield f"  worker  {shown(one.worker)}"
    if mark := decoded_as(Mark, one.note):
        because = f": {mark.reason}" if mark.reason else ""
        yield f"  note    ended by {shown(mark.by)} at {stamp(mark.at)}{shown(because)}"
    texts = {
        "result": one.result,
        "skipped" if one.is_skipped else "error": one.error,
        "warnings": "\n".join(one.warnings),
        "output": one.output,
        "log": "\n".join(map(_log_line, one.log)),
    }
    for title, text in texts.items():
        if text:
            yield f"  {title}"
            yield from _indented(text)


def _log_line(line: LogLine) -> str:
    name = f"{line.logger}: " if line.logger else ""
    return f"{stamp_to_milliseconds(line.at)}  {line.level:<7}  {name}{line.text}"


def _indented(text: str) -> Iterator[str]:
    """Indented lines, without control characters of the terminal."""
    for line in text.rstrip("\n").split("\n"):
        yield f"    {shown(line.expandtabs(4))}".rstrip()
