"""`blackboard log`: the runs of items, newest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from blackboard.cli import terminal
from blackboard.cli.columns import RUN_COLUMNS, run_cells, wide
from blackboard.cli.layout import table, texts_of
from blackboard.cli.options import Chosen, common
from blackboard.cli.recent import Question, items_with_history, newest_runs
from blackboard.cli.selection import ids_argument
from blackboard.cli.session import Session, emit, run
from blackboard.cli.text import shown
from blackboard.cli.views import run_view
from blackboard.model import Outcome, Run
from blackboard.phrases import span, stamp
from blackboard.records import mark_of
from blackboard.schedule.durations import parse_duration

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
def command(
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
    if mark := mark_of(one.note):
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
