"""`blackboard status`: the board in one screen or one line, from its statistics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from blackboard.cli.options import Chosen, common
from blackboard.cli.output import JSON, emit, marked, moment, paused_words, table_text
from blackboard.cli.session import Session, keeping_all, run
from blackboard.display.columns import TYPE_COLUMNS, type_cells, worker_name
from blackboard.display.layout import shown
from blackboard.election import read_elections
from blackboard.model import ItemCounts, Mark, Statistics
from blackboard.phrases import plural, relative, span
from blackboard.protocol.maintenance import paused_by
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import text_of
from blackboard.protocol.statistics import count, read_statistics
from blackboard.rules.statistics import is_current
from blackboard.rules.status import ItemStatus
from blackboard.worker.coordinator import ELECTION
from blackboard.worker.membership import Sighting, workers

EPILOG = """\b
Examples:
  blackboard status
  blackboard status --exact
  blackboard status --line
  blackboard status --json | jq .overdue
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is shown of a board."""

    counted: Statistics
    is_now: bool
    """Whether it was counted by this command."""
    present: Sequence[Sighting]
    coordinator: ItemStatus | None
    """Its election; None where no worker leads it."""
    age: float
    """Seconds since the counting."""
    paused: Mark | None
    """Who paused the board, if it is paused."""
    now: datetime


@click.command(epilog=EPILOG)
@click.option("--exact", is_flag=True, help="Count now, whatever was counted before.")
@click.option("--line", is_flag=True, help="One line, for a shell prompt or a chat.")
@common()
def status_command(*, chosen: Chosen, exact: bool, line: bool) -> int:
    """Show the board in one screen: its items by state and type, what is overdue or failing, the
    workers, and the one that coordinates them. Exit code 0 whatever there is: `check` judges.

    The items are those that the coordinator has counted, a few minutes ago. Without a coordinator
    they are counted now, as with --exact: on a large board that takes a while.
    """
    session = Session.start(chosen)

    async def read() -> Overview:
        async with session.board() as board:
            return await _overview(board, exact=exact)

    with keeping_all():
        found = run(read())
    if chosen.json:
        emit(_view(found, session))
    elif line:
        click.echo(_line(found, session))
    else:
        click.echo("\n".join(_lines(found, session)))
    return 0


async def _overview(board: BoardTable, *, exact: bool) -> Overview:
    counted = None if exact else await read_statistics(board)
    is_now = counted is None or not is_current(counted, now=await board.table.now())
    if counted is None or is_now:
        counted = await count(board)
    elections = await read_elections(board)
    leading = [
        one
        for one in (elections.statuses if elections else ())
        if one.item.id == ELECTION and one.running and not one.stale
    ]
    return Overview(
        counted=counted,
        is_now=is_now,
        present=await workers(board),
        coordinator=leading[0] if leading else None,
        age=max((await board.table.now() - counted.at).total_seconds(), 0.0),
        paused=await paused_by(board),
        now=await board.table.now(),
    )


def _lines(found: Overview, session: Session) -> Iterator[str]:
    counted, alive = found.counted, sum(not one.lost for one in found.present)
    lost = len(found.present) - alive
    if found.paused:
        yield paused_words(found.paused, found.now)
    yield f"board        {shown(session.name)} in {shown(session.store)}"
    yield (
        f"items        {plural(counted.items, 'item')}: {counted.active:,} active, "
        f"{counted.paused:,} paused, {counted.done:,} done"
    )
    yield (
        f"now          {counted.running:,} running, {counted.stale:,} stale, "
        f"{counted.overdue:,} overdue, {counted.failing:,} failing, {counted.warned:,} warned"
    )
    yield f"earliest     {_earliest(counted)}"
    yield f"workers      {alive:,} alive" + (f", {lost:,} lost" if lost else "")
    yield f"coordinator  {_coordinator(found)}"
    who = "" if found.is_now else f"{span(found.age)} ago by {shown(worker_name(counted.by))}, "
    yield f"counted      {who or 'now, '}in {counted.took:g} s"
    if counted.by_type:
        yield ""
        yield table_text(TYPE_COLUMNS, [type_cells(one) for one in counted.by_type])
    others = counted.items - sum(one.items for one in counted.by_type)
    if others:
        yield f"... and {plural(others, 'item')} of other types"


def _line(found: Overview, session: Session) -> str:
    """What there is, and nothing of what there is not."""
    counted = found.counted
    names = ("running", "stale", "overdue", "failing", "warned", "paused")
    counts = [f"{count:,} {name}" for name in names if (count := getattr(counted, name))]
    items = ", ".join([plural(counted.items, "item"), *counts])
    lost = sum(one.lost for one in found.present)
    workers = plural(len(found.present) - lost, "worker") + (f", {lost:,} lost" if lost else "")
    paused = "; the board is paused" if found.paused else ""
    return f"{shown(session.name)}: {items}; {workers}{paused}"


def _earliest(counted: Statistics) -> str:
    """Of the item that has waited longest, or waits for the shortest time."""
    if counted.earliest is None:
        return "no item waits"
    seconds = (counted.at - counted.earliest).total_seconds()
    if seconds >= 0:
        return f"ready for {span(seconds)}"
    return f"ready {relative(counted.earliest, counted.at)}"


def _coordinator(found: Overview) -> str:
    one = found.coordinator
    if one is None or one.item.start is None:
        return "none"
    since = (found.counted.at - one.item.start).total_seconds() + found.age
    return (
        f"{shown(worker_name(one.item.owner))} for {span(max(since, 0.0))}, term {one.item.fence}"
    )


def _view(found: Overview, session: Session) -> JSON:
    """For programs. `earliest` is when the first waiting item is ready, or has been since."""
    counted, leading = found.counted, found.coordinator
    return {
        "board": session.name,
        "store": session.store,
        "board_paused": marked(text_of(found.paused)) if found.paused else None,
        **_counts(counted),
        "earliest": moment(counted.earliest),
        "types": [{"type": one.type, **_counts(one)} for one in counted.by_type],
        "workers": {
            "alive": sum(not one.lost for one in found.present),
            "lost": sum(one.lost for one in found.present),
        },
        "coordinator": leading
        and {
            "worker": leading.item.owner,
            "since": moment(leading.item.start),
            "term": leading.item.fence,
        },
        "counted": {
            "at": moment(counted.at),
            "age": round(found.age, 3),
            "by": counted.by or None,
            "took": counted.took,
        },
    }


def _counts(counted: ItemCounts) -> JSON:
    return {name: getattr(counted, name) for name in ItemCounts.__struct_fields__}
