"""`blackboard log`: the newest runs of items, found without reading the whole history."""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from blackboard.cli.options import Chosen, absolute_option, common, number_option, types_option
from blackboard.cli.output import emit, run_view, table_lines
from blackboard.cli.session import Session, ids_argument, is_glob, run, select
from blackboard.display.columns import RUN_COLUMNS, run_cells, wide
from blackboard.display.layout import shown
from blackboard.inputs import check_id
from blackboard.model import Item, Mark, Outcome, Run, State
from blackboard.phrases import span, stamp
from blackboard.protocol import keys
from blackboard.protocol.edits import Missing
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import record_of
from blackboard.records import decoded_as
from blackboard.schedule.durations import parse_duration

NEVER = datetime.min.replace(tzinfo=UTC)
ANY_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to show."""

    limit: int
    outcomes: Collection[Outcome] = ()
    """Any of them; none: all."""
    types: Collection[str] = ()
    since: datetime | None = None

    def matches(self, run: Run) -> bool:
        return (not self.outcomes or run.outcome in self.outcomes) and (
            self.since is None or run.stop >= self.since
        )


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
  blackboard log --outcome failed --outcome timeout --since 1d
  blackboard log westlafcals --fence 12
  blackboard log --json | jq '.[] | [.id, .lag]'
"""
OUTCOMES = [one.value for one in Outcome]


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@number_option("-n", "number", most=100_000, default=20, line="At most [20].")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(OUTCOMES), help="So ended.")
@types_option
@click.option("--since", metavar="TIME", help="Stopped within so long, as in 1h.")
@click.option("--fence", type=int, metavar="N", help="The run with this fence, in full.")
@click.option("--output", is_flag=True, help="With what handlers printed.")
@click.option("--full", is_flag=True, help="All of each run: result, traceback, output.")
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
    fence: int | None,
    output: bool,
    full: bool,
    absolute: bool,
) -> int:
    """Show the runs of items, newest first: all items', or those of IDs (globs, too).

    A line for each run; with --full, or --fence, everything about it.
    """
    session = Session.start(chosen)
    full = full or fence is not None
    back = parse_duration(since, "since") if since else None

    async def read() -> tuple[list[Run], datetime]:
        async with session.board() as board:
            now = await board.table.now()
            query = RunQuery(
                limit=number if fence is None else 100_000,
                outcomes=[Outcome(one) for one in outcomes],
                types=types,
                since=now - back if back else None,
            )
            items = await items_with_history(board, ids, exact=exact)
            return await newest_runs(board, items, query), now

    runs, now = run(read())
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
    return 0


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
    for title, text in (("result", one.result), ("error", one.error), ("output", one.output)):
        if text:
            yield f"  {title}"
            yield from _indented(text)


def _indented(text: str) -> Iterator[str]:
    """Indented lines, without control characters of the terminal."""
    for line in text.rstrip("\n").split("\n"):
        yield f"    {shown(line.expandtabs(4))}".rstrip()
