"""`blackboard status`: the board in one screen or one line, from its statistics."""

import asyncio
from collections.abc import Iterator, Mapping

import click

from blackboard.cli.options import Chosen, cli_command
from blackboard.cli.output import JSON, colour, emit, paused_words, width
from blackboard.cli.progress import reading
from blackboard.cli.session import Session, gc_disabled
from blackboard.cli.watch import Drawn, WatchedPage, watch_option, watched_page
from blackboard.display import health
from blackboard.display.columns import TYPE_COLUMNS, type_cells, worker_name
from blackboard.display.escaping import shown
from blackboard.display.layout import Line, Style, paragraph, table, texts_of
from blackboard.errors import BadInput
from blackboard.model import ItemCounts, Statistics
from blackboard.phrases import plural, relative, span
from blackboard.protocol.board_table import BoardTable

MARGIN = 13
"""Width of the names of the facts, in columns."""


@cli_command("""\
Examples:
  blackboard status
  blackboard status --exact
  blackboard status --line
  blackboard status --watch 10
  blackboard status --json | jq .overdue
""")
@click.option("--exact", is_flag=True, help="Count now, whatever was counted before.")
@click.option("--line", is_flag=True, help="One line, for a shell prompt or a chat.")
@watch_option
def status_command(*, chosen: Chosen, line: bool) -> int:
    """Show the board in one screen: its items by state and type, what is overdue or failing, the
    partitions of its groups, the workers, and the one that coordinates them. Exit code 0 whatever
    there is: `check` judges.

    Of more than 1,000 items, the counts are those of the coordinator, a few minutes old. Where
    there are none, and with --exact, the items are counted now: on a large board that takes a
    while.
    """
    session = Session.start(chosen)
    if chosen.watch is not None:
        if line:
            raise BadInput("watch", "it shows the whole screen", "leave out --line")

        async def drawn(board: BoardTable) -> Drawn:
            overview = await health.read_overview(board, exact=chosen.exact)
            return lambda columns: WatchedPage(body=[*_lines(overview, session, columns)])

        return watched_page(session, drawn)

    async def read() -> health.Overview:
        async with reading(session.board(), "counting items") as board:
            return await health.read_overview(board, exact=chosen.exact)

    with gc_disabled():
        overview = asyncio.run(read())
    if chosen.json:
        emit(_view(overview, session))
    elif line:
        click.echo(_line(overview, session))
    else:
        click.echo(texts_of(_lines(overview, session, width()), colour=colour()))
    return 0


def _lines(overview: health.Overview, session: Session, columns: int | None) -> Iterator[Line]:
    """The lines of the screen, in at most so many columns."""
    if overview.paused:
        yield from paragraph(paused_words(overview.paused, overview.now), columns, style=Style.LATE)
    for name, text in _facts(overview, session):
        yield from paragraph(text, columns, first=name.ljust(MARGIN))
    counted = overview.counted
    if counted.by_type:
        yield ()
        rows = [type_cells(type_counts) for type_counts in counted.by_type]
        yield from table(TYPE_COLUMNS, rows, width=columns)
    others = counted.items - sum(type_counts.items for type_counts in counted.by_type)
    if others:
        yield [(f"... and {plural(others, 'item')} of other types", Style.PLAIN)]


def _facts(overview: health.Overview, session: Session) -> Iterator[tuple[str, str]]:
    counted, present = overview.counted, health.worker_count(overview.present)
    yield "board", f"{shown(session.name)} in {shown(session.store)}"
    by_state = ", ".join(_numbers(counted, "active", "paused", "done"))
    yield "items", f"{plural(counted.items, 'item')}: {by_state}"
    yield "now", ", ".join(_numbers(counted, "running", "stale", "overdue", "failing", "warned"))
    yield "earliest", _earliest(counted)
    if overview.groups:
        shares = _partitions(overview)
        yield "partitions", ", ".join(f"{count:,} {name}" for name, count in shares.items())
    lost = f", {present.lost:,} lost" if present.lost else ""
    yield "workers", f"{present.alive:,} alive{lost}"
    yield "coordinator", _coordinator(overview)
    by = shown(worker_name(counted.by))
    who = "" if overview.is_now else f"{span(overview.age)} ago by {by}, "
    yield "counted", f"{who or 'now, '}in {counted.took:g} s"


def _numbers(counted: Statistics, *states: str) -> list[str]:
    return [f"{getattr(counted, state):,} {state}" for state in states]


def _line(overview: health.Overview, session: Session) -> str:
    """The board in one line, without counts that are zero."""
    counted = overview.counted
    states = ("running", "stale", "overdue", "failing", "warned", "paused")
    counts = _numbers(counted, *(state for state in states if getattr(counted, state)))
    items, shares = ", ".join([plural(counted.items, "item"), *counts]), _partitions(overview)
    bad = [name for name in ("unowned", "failing") if shares[name]]
    partitions = "".join(f"; {plural(shares[name], 'partition')} {name}" for name in bad)
    paused = "; the board is paused" if overview.paused else ""
    workers = health.worker_words(overview.present)
    return f"{shown(session.name)}: {items}{partitions}; {workers}{paused}"


def _partitions(overview: health.Overview) -> Mapping[str, int]:
    return {
        "held": sum(sum(group.counts) for group in overview.groups),
        "unowned": sum(len(group.unowned) for group in overview.groups),
        "failing": sum(len(group.failing) for group in overview.groups),
    }


def _earliest(counted: Statistics) -> str:
    """When the earliest waiting item is ready, or since when it has been."""
    if counted.earliest is None:
        return "no item waits"
    seconds = (counted.at - counted.earliest).total_seconds()
    since = f"for {span(seconds)}" if seconds >= 0 else relative(counted.earliest, counted.at)
    return f"ready {since}"


def _coordinator(overview: health.Overview) -> str:
    coordinator, trouble = overview.elections.coordinator, overview.elections.trouble
    if trouble:
        return f"not known: {shown(trouble)}"
    if coordinator is None or (start := coordinator.item.start) is None:
        return "none"
    since = (overview.counted.at - start).total_seconds() + overview.age
    item = coordinator.item
    return f"{shown(worker_name(item.owner))} for {span(max(since, 0.0))}, term {item.fence}"


def _view(overview: health.Overview, session: Session) -> JSON:
    """For programs. `earliest` is when the first waiting item is ready, or has been since."""
    counted = overview.counted
    return {
        "board": session.name,
        "store": session.store,
        "board_paused": overview.paused,
        **_counts(counted),
        "earliest": counted.earliest,
        "types": [
            {"type": type_counts.type, **_counts(type_counts)} for type_counts in counted.by_type
        ],
        "partitions": _partitions(overview),
        "workers": health.worker_count(overview.present),
        "coordinator": health.coordinator_record(overview.elections.coordinator),
        "counted": {
            "at": counted.at,
            "age": round(overview.age, 3),
            "by": counted.by or None,
            "took": counted.took,
        },
    }


def _counts(counted: ItemCounts) -> JSON:
    return {name: getattr(counted, name) for name in ItemCounts.__struct_fields__}
