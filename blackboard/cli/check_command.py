"""`blackboard check`: for a probe from outside."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import click

from blackboard.cli.gather import gather
from blackboard.cli.options import Chosen, common
from blackboard.cli.selection import ids_argument
from blackboard.cli.session import Session, emit, run
from blackboard.cli.text import shown
from blackboard.doctor.repairs import planning_of
from blackboard.phrases import first_line, iso, plural, since, span
from blackboard.rules.next_run import Planning, ahead
from blackboard.rules.status import ItemStatus
from blackboard.schedule.durations import UNITS, parse_duration

EPILOG = """\b
Examples:
  blackboard check
  blackboard check --overdue 10m --type calendars
  blackboard check --json || page-somebody
"""
_NOTHING = re.compile(rf"0+\s*(?:{'|'.join(UNITS)})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One thing that is wrong with an item."""

    id: str
    type: str
    problem: str
    """overdue, stale, failing or clock"""
    since: datetime | None
    words: str


@click.command(epilog=EPILOG)
@ids_argument(required=False)
@click.option("--overdue", default="10m", metavar="TIME", help="Ready for longer than this [10m].")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Items of this type.")
@common()
def command(
    *, chosen: Chosen, ids: tuple[str, ...], exact: bool, overdue: str, types: tuple[str, ...]
) -> int:
    """Exit 0 when all is well, 1 when items are overdue, stale, failing or of another time; each
    is named.

    Overdue: it could have been started so long ago. Stale: whoever runs it has not renewed its
    lock in time. Failing: its last run was no success. Clock: it says that it ran in the future,
    or waits longer than its schedule explains, because a clock was wrong: `doctor --repair` plans
    it anew. Paused items raise no alarm.
    """
    session = Session.start(chosen)
    limit = _grace(overdue)

    async def read() -> tuple[int, list[Alarm]]:
        async with session.board() as board:
            seen = await gather(board, ids, exact=exact, overdue_after=limit)
            found = [one for one in seen.statuses if not types or one.item.type in types]
            return len(found), [
                alarm
                for one in found
                for alarm in alarms_of(one, planning_of(board, one.item), now=seen.now)
            ]

    items, alarms = run(read())
    if chosen.json:
        emit({"well": not alarms, "items": items, "problems": [_view(one) for one in alarms]})
    else:
        click.echo("\n".join(_lines(alarms, items=items)))
    return 1 if alarms else 0


def _grace(overdue: str) -> timedelta:
    """How late is late. Nothing, as nowhere else, is a duration: then all that is late is."""
    if _NOTHING.fullmatch(overdue.strip()):
        return timedelta(0)
    return parse_duration(overdue, "overdue")


def alarms_of(
    one: ItemStatus, planning: Planning | None = None, *, now: datetime
) -> Iterator[Alarm]:
    """What is wrong with an item, if anything is. `planning` is what it is planned by, if known."""
    item = one.item
    if item.is_paused and not item.running:
        return
    if one.overdue:
        words = f"ready for {span((now - item.ready).total_seconds())}"
        yield Alarm(id=item.id, type=item.type, problem="overdue", since=item.ready, words=words)
    if one.stale and one.lock is not None:
        words = f"{item.owner} has not renewed its lock {since(one.lock.age)}"
        yield Alarm(id=item.id, type=item.type, problem="stale", since=item.start, words=words)
    if one.failing:
        words = plural(item.failures, "failure") + " in a row"
        said = first_line(item.error)
        words += f": {said}" if said else ""
        yield Alarm(id=item.id, type=item.type, problem="failing", since=item.stop, words=words)
    if planning and (words := ahead(item, planning, now=now)):
        yield Alarm(id=item.id, type=item.type, problem="clock", since=None, words=words)


def _view(alarm: Alarm) -> dict[str, str | None]:
    return {
        "id": alarm.id,
        "type": alarm.type,
        "problem": alarm.problem,
        "since": iso(alarm.since) if alarm.since else None,
        "message": alarm.words,
    }


def _lines(alarms: Sequence[Alarm], *, items: int) -> Iterator[str]:
    if not alarms:
        yield f"all well: {plural(items, 'item')}"
    for alarm in alarms:
        yield f"{alarm.problem:<9}{shown(alarm.id)}  {shown(alarm.words)}"
