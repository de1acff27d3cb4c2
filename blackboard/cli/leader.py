"""`blackboard leader`: who leads the elections of the board."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import click

from blackboard.cli.options import Chosen, absolute_option, common
from blackboard.cli.output import JSON, emit, moment, table_text
from blackboard.cli.session import Session, run
from blackboard.cli.show import WATCH_HELP, seconds_of, watched
from blackboard.display.columns import LEADER_COLUMNS, leader_cells, wide
from blackboard.display.layout import Line, Style, table
from blackboard.election import read_elections
from blackboard.phrases import plural
from blackboard.protocol.reading import BoardStatus, BoardTable
from blackboard.rules.status import ItemStatus
from blackboard.schedule.durations import parse_duration
from blackboard.spec import decode_spec

EPILOG = """\b
Examples:
  blackboard leader
  blackboard leader nightly-report
  blackboard leader --watch
  blackboard leader --json | jq '.[] | select(.late) | .election'
"""
EMPTY = "no elections yet: workers make one, and so does `async with board.election(NAME)`"


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@absolute_option
@click.option("--watch", is_flag=False, flag_value="2", metavar="[SECONDS]", help=WATCH_HELP)
@common()
def leader_command(*, chosen: Chosen, name: str | None, absolute: bool, watch: str | None) -> int:
    """Show who leads the elections of the board, or the one of NAME: since when, in which term, how
    it was found, and when its lock was last renewed.

    Exit 1 when an election that is not paused has had no leader for longer than its lease.
    """
    session = Session.start(chosen)
    if watch is not None:
        return watched(
            session,
            lambda board: LeaderPictures(board=board, name=name, absolute=absolute).frame,
            every=seconds_of(watch),
        )

    async def read() -> BoardStatus | None:
        async with session.board() as board:
            return await read_elections(board, name)

    found = run(read())
    statuses = found.statuses if found else ()
    late = [one for one in statuses if found and is_late(one, found)]
    if chosen.json:
        emit([_view(one, late=one in late) for one in statuses])
    elif not found or not statuses:
        click.echo(EMPTY)
    else:
        rows = [leader_cells(one, now=found.now, absolute=absolute) for one in statuses]
        click.echo(table_text(wide(LEADER_COLUMNS, absolute=absolute), rows))
    return 1 if late else 0


def is_late(one: ItemStatus, read: BoardStatus) -> bool:
    """Whether an election has had no leader for longer than its lease."""
    if one.stale and one.lock is not None:
        return one.lock.age - one.lock.stale_after > _lease(one)
    return one.item.waits and (read.now - one.item.ready).total_seconds() > _lease(one)


def _lease(one: ItemStatus) -> float:
    """Seconds; infinity where the item does not say."""
    text = decode_spec(one.item.spec).stale_after
    return parse_duration(text).total_seconds() if text else math.inf


def _view(one: ItemStatus, *, late: bool) -> JSON:
    """An election. `term` is the highest so far; `renewed` is seconds ago, null without a lock."""
    item, lock = one.item, one.lock
    leads = lock is not None and not one.stale
    age = lock.age if lock else math.inf
    return {
        "election": item.id,
        "leader": item.owner if leads else None,
        "since": moment(item.start) if leads else None,
        "term": item.fence,
        "kind": item.type,
        "lease": _lease(one) if math.isfinite(_lease(one)) else None,
        "renewed": round(age, 3) if math.isfinite(age) else None,
        "paused": item.is_paused,
        "late": late,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPictures:
    """The frames of `leader --watch`."""

    board: BoardTable
    name: str | None
    absolute: bool

    async def frame(self, width: int, height: int) -> list[Line]:
        found = await read_elections(self.board, self.name)
        if found is None:
            return [[(EMPTY, Style.PLAIN)]]
        shown: Sequence[ItemStatus] = found.statuses[: max(height - 3, 1)]
        rows = [leader_cells(one, now=found.now, absolute=self.absolute) for one in shown]
        lines = table(wide(LEADER_COLUMNS, absolute=self.absolute), rows, width=width)
        foot = f"{plural(len(found.statuses), 'election')}   {found.now:%H:%M:%SZ}, Ctrl-C ends"
        return [*lines, [], [(foot[:width], Style.TITLE)]]
