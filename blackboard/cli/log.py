"""`blackboard log`: the newest runs of items.

They are found without reading all of the history: see `newest_runs`.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from blackboard.cli import terminal
from blackboard.cli.answers import run_view
from blackboard.cli.options import Chosen, common
from blackboard.cli.selection import ids_argument, is_glob, select
from blackboard.cli.session import Session, emit, run
from blackboard.display.columns import RUN_COLUMNS, run_cells, wide
from blackboard.display.layout import shown, table, texts_of
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
class Question:
    """Which runs."""

    limit: int
    outcomes: Collection[Outcome] = ()
    """Any of them; none: all."""
    types: Collection[str] = ()
    since: datetime | None = None

    def wants(self, run: Run) -> bool:
        return (not self.outcomes or run.outcome in self.outcomes) and (
            self.since is None or run.stop >= self.since
        )


async def newest_runs(board: BoardTable, items: Sequence[Item], question: Question) -> list[Run]:
    """The newest runs of `items`, by when they stopped.

    Items that were heard of last are read first, and reading stops when no other item can have a
    newer run than those found. A run that came back after its item had moved on is found with the
    others of its item.
    """
    found: list[Run] = []
    for item in sorted(items, key=last_heard, reverse=True):
        heard = last_heard(item)
        full = len(found) == question.limit and heard < found[-1].stop
        if heard == NEVER or full or (question.since and heard < question.since):
            break
        if question.types and item.type not in question.types:
            continue
        found += [run async for run in _matching(board, item, question)]
        found = sorted(found, key=_age_order)[: question.limit]
    return found


async def items_with_history(
    board: BoardTable, ids: Sequence[str], *, exact: bool = False
) -> list[Item]:
    """The items that `ids` mean, all when there are none. History outlives its item: the id of a
    removed one counts, too.
    """
    if not ids:
        return [item async for item in _all_items(board)]
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
    """When an item's newest run stopped, or was taken over, at the latest. An id that was added
    again does not say when its earlier life ended.
    """
    if item.born and item.stop is None:
        return ANY_TIME
    started = item.start if item.running or item.state is State.REMOVED else None
    return max(item.stop or NEVER, started or NEVER)


def _age_order(run: Run) -> tuple[float, str, int]:
    """Newest first; what stopped together, by id and fence."""
    return -run.stop.timestamp(), run.id, -run.fence


async def _matching(board: BoardTable, item: Item, question: Question) -> AsyncIterator[Run]:
    number = 0
    async for one in board.runs(item.id):
        if number == question.limit:
            return
        if question.wants(one):
            number += 1
            yield one


async def _all_items(board: BoardTable) -> AsyncIterator[Item]:
    """Tombstones, too."""
    for number in range(board.shards):
        partition = board.shard(number)
        async for row in board.table.scan(partition, keys.ITEM, keys.end_of(keys.ITEM)):
            yield record_of(Item, row)


EPILOG = """\b
Examples:
  blackboard log
  blackboard log westlafcals -n 5 --output
  blackboard log --outcome failed --outcome timeout --since 1d
  blackboard log westlafcals --fence 12
  blackboard log --json | jq '.[] | [.id, .lag]'
"""
OUTCOMES = [one.value for one in Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Which items and how much of each run."""

    ids: Sequence[str]
    exact: bool
    fence: int | None
    output: bool
    full: bool
    absolute: bool


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@click.option(
    "-n", "number", metavar="N", type=click.IntRange(1, 100_000), default=20, help="At most [20]."
)
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(OUTCOMES), help="So ended.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Items of this type.")
@click.option("--since", metavar="TIME", help="Stopped within so long, as in 1h.")
@click.option("--fence", type=int, metavar="N", help="The run with this fence, in full.")
@click.option("--output", is_flag=True, help="With what handlers printed.")
@click.option("--full", is_flag=True, help="All of each run: result, traceback, output.")
@click.option("--absolute", is_flag=True, help="Times in UTC instead of '3m ago'.")
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
    asked = LogQuery(
        ids=ids,
        exact=exact,
        fence=fence,
        output=output,
        full=full or fence is not None,
        absolute=absolute,
    )
    back = parse_duration(since, "since") if since else None

    async def read() -> tuple[list[Run], datetime]:
        async with session.board() as board:
            now = await board.table.now()
            question = Question(
                limit=number if fence is None else 100_000,
                outcomes=[Outcome(one) for one in outcomes],
                types=types,
                since=now - back if back else None,
            )
            items = await items_with_history(board, ids, exact=exact)
            return await newest_runs(board, items, question), now

    runs, now = run(read())
    if fence is not None:
        runs = [one for one in runs if one.fence == fence]
    if chosen.json:
        emit([run_view(one, output=output or asked.full) for one in runs])
    else:
        click.echo("\n".join(_told(runs, asked, now=now)) or "no runs")
    return 0


def _told(runs: Sequence[Run], asked: LogQuery, *, now: datetime) -> Iterator[str]:
    if asked.full:
        yield "\n\n".join("\n".join(in_full(one)) for one in runs)
        return
    rows = [run_cells(one, now=now, absolute=asked.absolute) for one in runs]
    if not rows:
        return
    columns = wide(RUN_COLUMNS, absolute=asked.absolute)
    lines = table(columns, rows, width=terminal.width())
    colour = terminal.colour()
    yield texts_of(lines[:1], colour=colour)
    for one, line in zip(runs, lines[1:], strict=True):
        yield texts_of([line], colour=colour)
        if asked.output and one.output:
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
    """Lines below what they belong to; whatever they hold, they do not steer the terminal."""
    for line in text.rstrip("\n").split("\n"):
        yield f"    {shown(line.expandtabs(4))}".rstrip()
