"""`blackboard next`: when items, or a schedule, are due next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import click

from blackboard.cli.selection import ids_argument, select, spec_of
from blackboard.cli.session import Chosen, Session, common, emit, run
from blackboard.clock import SystemClock
from blackboard.display.layout import shown
from blackboard.errors import BadInput
from blackboard.inputs import moment_of
from blackboard.model import Item, State
from blackboard.phrases import iso
from blackboard.protocol.reading import BoardTable
from blackboard.schedule.rrule import zone_in
from blackboard.schedule.schedule import Every, Schedule, make_schedule, next_due, parse_schedule
from blackboard.schedule.words import describe
from blackboard.schedule.zones import find_zone
from blackboard.spec import encode_spec


def times_of(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """All slots strictly later than `after`."""
    slot = next_due(schedule, after)
    while slot is not None:
        yield slot
        slot = next_due(schedule, slot)


def upcoming(
    item: Item, schedule: Schedule | None, *, now: datetime, after: datetime | None = None
) -> Iterator[datetime]:
    """The pending run, and what the schedule says from there on; later than `after`, if given. A
    paused item is told as if it were resumed; one that is done has none.
    """
    if item.state is State.DONE:
        return
    if not item.running and (after is None or item.ready > after):
        yield item.ready
    if schedule is None:
        return
    started = item.start if item.running and item.start else max(item.ready, now)
    if isinstance(schedule, Every):
        if after is not None and after > started:
            started += (after - started) // schedule.interval * schedule.interval
        yield from times_of(schedule, started)
        return
    passed = max(item.slot, started)
    if item.slot != item.planned and item.planned > passed:
        passed = item.planned
        if after is None or item.planned > after:
            yield item.planned
    yield from times_of(schedule, passed if after is None else max(passed, after))


NEXT_EPILOG = """\b
Examples:
  blackboard next westlafcals
  blackboard next --cron "30 2 * * *" --tz Europe/Berlin --after 2027-03-27 -n 3
  blackboard next --every 8h --json
"""
KINDS = ("every", "cron", "rrule", "at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When something is due."""

    title: str
    zone: str
    moments: Sequence[datetime]

    def lines(self) -> list[str]:
        """For people: wall time in the zone, and UTC."""
        zone = find_zone(self.zone)
        told = [f"  {_local(one.astimezone(zone)):<32}{_utc(one)}" for one in self.moments]
        return [self.title, *(told or ["  never again"])]


@click.command(epilog=NEXT_EPILOG)
@ids_argument(required=False)
@click.option("--every", metavar="TIME", help="A schedule instead of items: 8h.")
@click.option("--cron", metavar="EXPR", help='"0 3 * * *".')
@click.option("--rrule", metavar="RULE", help="FREQ=WEEKLY;BYDAY=MO.")
@click.option("--at", metavar="WHEN", help="2026-11-21T09:00.")
@click.option("--timezone", "--tz", "zone", metavar="ZONE", help="Of the schedule [UTC].")
@click.option("--after", metavar="WHEN", help="Times later than this [now].")
@click.option(
    "-n", "count", metavar="N", type=click.IntRange(1, 10_000), default=5, help="How many [5]."
)
@common()
def next_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    every: str | None,
    cron: str | None,
    rrule: str | None,
    at: str | None,
    zone: str | None,
    after: str | None,
    count: int,
) -> int:
    """When items are due next, or when a schedule is. With --json a list of UTC times; for several
    items an object of lists.
    """
    zone = zone or zone_in(rrule or "") or "UTC"
    schedule = make_schedule(every=every, cron=cron, rrule=rrule, at=at, zone=zone)
    if bool(ids) == (schedule is not None):
        raise BadInput("next", "ids or a schedule are needed, not both", "see --help")
    later = None if after is None else moment_of(after, zone, "after")
    if schedule is not None:
        _print_times([_of_schedule(schedule, later, count)], json=chosen.json)
        return 0
    session = Session.start(chosen).with_defaults()
    found = run(_of_items(session, ids, exact=exact, after=later, count=count))
    _print_times(list(found.values()), json=chosen.json, by_id=found if len(found) > 1 else None)
    return 0


def _of_schedule(schedule: Schedule, after: datetime | None, count: int) -> Times:
    moments = islice(times_of(schedule, after or SystemClock().now()), count)
    return Times(title=describe(schedule), zone=schedule.zone, moments=list(moments))


async def _of_items(
    session: Session, ids: Sequence[str], *, exact: bool, after: datetime | None, count: int
) -> dict[str, Times]:
    async with session.board() as board:
        now = await board.table.now()
        items = await select(board, ids, exact=exact)
        return {one.id: _of_item(board, one, now=now, after=after, count=count) for one in items}


def _of_item(
    board: BoardTable, item: Item, *, now: datetime, after: datetime | None, count: int
) -> Times:
    schedule = _schedule_of(board, item)
    words = describe(schedule) if schedule else "no schedule: runs when it is asked to"
    standing = "running, " if item.running else f"{item.state.value}, "
    return Times(
        title=f"{shown(item.id)}: {standing}{words}",
        zone=schedule.zone if schedule else "UTC",
        moments=list(islice(upcoming(item, schedule, now=now, after=after), count)),
    )


def _schedule_of(board: BoardTable, item: Item) -> Schedule | None:
    """As it is resolved here; else as the worker that ran it last knew it."""
    known = board.resolve(item.type, encode_spec(spec_of(item))).schedule
    if known is None and item.schedule:
        return parse_schedule(item.schedule, item.timezone)
    return known


def _print_times(
    found: Sequence[Times], *, json: bool, by_id: dict[str, Times] | None = None
) -> None:
    if not json:
        click.echo("\n".join(line for one in found for line in one.lines()))
    elif by_id is None:
        emit([_utc(one) for one in found[0].moments])
    else:
        emit({key: [_utc(one) for one in times.moments] for key, times in by_id.items()})


def _utc(moment: datetime) -> str:
    """ISO 8601 with Z; milliseconds only where there are some."""
    return iso(moment).replace(".000Z", "Z")


def _local(moment: datetime) -> str:
    return f"{moment:%a %Y-%m-%d %H:%M:%S %Z}"
