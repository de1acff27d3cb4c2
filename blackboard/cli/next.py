"""`blackboard next`: the times to come of items, of the board, or of a schedule."""

import asyncio
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import click

from blackboard.cli.many import naming
from blackboard.cli.options import Chosen, cli_command, ids_argument, number_option
from blackboard.cli.output import emit, warn, wrapped
from blackboard.cli.progress import reading
from blackboard.cli.session import Session
from blackboard.cli.spec_options import (
    Options,
    edited,
    schedule_options,
    warn_idle_steps,
    with_times,
)
from blackboard.clock import SystemClock
from blackboard.display.escaping import shown
from blackboard.display.item_queries import select, soonest_items
from blackboard.errors import BadInput, BlackboardError
from blackboard.model import Item, State
from blackboard.phrases import iso, relative, stamp
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import next_key
from blackboard.protocol.planning import settings_of, spec_of
from blackboard.rules.upcoming import upcoming
from blackboard.schedule.schedule import slots_after
from blackboard.schedule.times import parse_moment
from blackboard.schedule.words import describe
from blackboard.schedule.zones import find_zone
from blackboard.spec import RunSettings, Spec, encode_spec, resolve
from blackboard.why import no_schedule

SPARE = 64
"""Items of a large board that are read besides as many as there are runs to show: some of the first
ones may run later than they are ready, or not at all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTimes:
    title: str
    zone: str
    moments: Sequence[datetime]

    def lines(self) -> list[str]:
        """For people: wall time in the zone, and UTC, with milliseconds only where there are
        some.
        """
        zone, times = find_zone(self.zone), []
        for moment in self.moments:
            local = f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}"
            times.append(f"  {local:<32}{iso(moment).replace('.000Z', 'Z')}")
        return [wrapped(self.title), *(times or ["  never again"])]


@cli_command("""\
Examples:
  blackboard next
  blackboard next westlafcals
  blackboard next --cron "30 2 * * *" --tz Europe/Berlin --after 2027-03-27 -n 3
  blackboard next --every 8h --blackout "sat-sun, 22:00-06:00" --until 2026-12-31 --json
""")
@ids_argument(required=False)
@schedule_options
@click.option(
    "--after", metavar="WHEN", help="Times later than this, in the zone of the schedule [now]."
)
@number_option("-n", "count", most=10_000, default=5, line="How many [5].")
def next_command(
    *, chosen: Chosen, ids: tuple[str, ...], options: Options, after: str | None, count: int
) -> int:
    """Show when items are due next, or the next times of a schedule; without either, the next runs
    of the board. With --json a list of UTC times; for several ids or a glob an object of lists, for
    the board a list of runs. A paused item is shown with the times that it would have if it were
    resumed now; the runs of the board are shown without it.
    """
    now = SystemClock().now()
    settings = _settings_of(options, chosen, now)
    schedule = settings.schedule
    if ids and schedule is not None:
        raise BadInput("next", "ids and a schedule are given", "give the ones or the other")
    if schedule is None and options:
        raise BadInput(next(iter(options)), "it needs a schedule", "give one, or leave it out")
    later = _later(after, settings.timezone, now)
    if schedule is not None:
        most = min(count, schedule.limits.runs or count)
        moments = [*islice(slots_after(schedule, later or now), most)]
        times = NextTimes(title=describe(schedule), zone=schedule.zone, moments=moments)
        _print_times({"": times}, only="", json=chosen.json)
        return 0
    session = Session.start(chosen).with_defaults()
    if not ids:
        now, runs = asyncio.run(_of_board(session, after=later, count=count))
        _print_runs(runs, now=now, json=chosen.json)
        return 0
    by_id = asyncio.run(_of_items(session, ids, after=after, count=count))
    only = ids[0] if len(ids) == 1 and ids[0] in by_id else None
    _print_times(by_id, only=only, json=chosen.json)
    return 0


def _later(after: str | None, zone: str, now: datetime) -> datetime | None:
    """`--after` as a time; without an offset it is wall time in `zone`. Raises BadInput."""
    return None if after is None else parse_moment(after, zone, "after", now)


def _settings_of(options: Options, chosen: Chosen, now: datetime) -> RunSettings:
    """The schedule that the options give. Calendars are those of the settings file."""
    calendars = Session.start(chosen).settings.calendars if "blackout" in options else None

    def resolved(spec: Spec) -> RunSettings:
        return resolve([spec], calendars=calendars)

    times = with_times(options, Spec(), lambda spec: resolved(spec).timezone, now)
    spec = edited(Spec(), times)
    warn_idle_steps([spec])
    return resolved(spec)


async def _of_items(
    session: Session, ids: Sequence[str], *, after: str | None, count: int
) -> dict[str, NextTimes]:
    async with session.board() as board:
        now = await board.table.now()
        items = await select(board, ids, exact=session.chosen.exact)
        return {item.id: _of_item(board, item, now=now, after=after, count=count) for item in items}


class _Coming(NamedTuple):
    """A run of an item."""

    at: datetime
    item: Item
    is_run: bool = True
    """False: the item runs then or later. Most items need no schedule for what is shown."""


async def _of_board(
    session: Session, *, after: datetime | None, count: int
) -> tuple[datetime, list[_Coming]]:
    """The store's time, and the next runs of all active items, the earliest first. Of a large board
    few items are read, where these have the earliest runs for certain: no item runs before it is
    ready, and so stands its token.
    """
    problems: dict[str, str] = {}
    async with reading(session.board(), "reading items") as board:
        now = await board.table.now()

        def coming(item: Item) -> Iterator[_Coming]:
            """The runs of an item. Its ready time comes first: beyond that most are not read."""
            waits = not item.running and item.ready > max(now, after or now)
            if waits:
                yield _Coming(item.ready, item, is_run=False)
            has_runs = False
            try:
                settings = _settings_on(board, item)
                for moment in _upcoming(item, settings, now=now, after=after):
                    yield _Coming(moment, item)
                    has_runs = True
            except BlackboardError as problem:
                problems[item.id] = f"{problem}; its next runs are left out"
                if waits and not has_runs:
                    yield _Coming(item.ready, item)

        def first_of(items: Sequence[Item]) -> list[_Coming]:
            active = [coming(item) for item in items if item.state is State.ACTIVE]
            merged = heapq.merge(*active, key=_place)
            return list(islice((each for each in merged if each.is_run), count))

        few, last = await soonest_items(board, count + SPARE) or ((), "")
        runs = first_of(few)
        if len(runs) < count or _place(runs[-1]) > last:
            runs = first_of([item async for item in board.items()])
    for words in problems.values():
        warn(words)
    return now, runs


def _place(coming: _Coming) -> str:
    """The place of a run among others: that of the token that waits for it."""
    return next_key(coming.at, coming.item.id)


def _print_runs(runs: Sequence[_Coming], *, now: datetime, json: bool) -> None:
    if json:
        emit([{"id": item.id, "type": item.type, "at": iso(at)} for at, item, _ in runs])
    elif not runs:
        click.echo("nothing is due: no item of the board is active")
    else:
        lines = [
            wrapped(
                f"{shown(item.id)} ({shown(item.type)})",
                first=f"{stamp(at)}  {relative(at, now) if at > now else 'now':<8}  ",
            )
            for at, item, _ in runs
        ]
        click.echo("\n".join(lines))


def _of_item(
    board: BoardTable, item: Item, *, now: datetime, after: str | None, count: int
) -> NextTimes:
    settings = _settings_on(board, item)
    later = _later(after, settings.timezone, now)
    schedule = settings.schedule
    words = describe(schedule) if schedule else f"schedule {no_schedule(item, settings)}"
    state = "running" if item.running else item.state.value
    if item.is_paused and schedule:
        words += ", if it is resumed now"
    return NextTimes(
        title=f"{shown(item.id)}: {state}, {words}",
        zone=schedule.zone if schedule else "UTC",
        moments=list(islice(_upcoming(item, settings, now=now, after=later), count)),
    )


def _settings_on(board: BoardTable, item: Item) -> RunSettings:
    """The settings of an item. Raises BadInput that names it where they cannot be used here."""
    with naming(item):
        return settings_of(board, item, encode_spec(spec_of(item)))


def _upcoming(
    item: Item, settings: RunSettings, *, now: datetime, after: datetime | None
) -> Iterator[datetime]:
    """The next times of an item. Raises BadInput that names it where they cannot be computed."""
    with naming(item):
        yield from upcoming(item, settings, now=now, after=after)


def _print_times(by_id: Mapping[str, NextTimes], *, only: str | None, json: bool) -> None:
    """`only` is the one that was asked for by itself: JSON has its times, and not its id."""
    if not json:
        click.echo("\n".join(line for times in by_id.values() for line in times.lines()))
        return
    moments = {item_id: [iso(moment) for moment in by_id[item_id].moments] for item_id in by_id}
    emit(moments if only is None else moments[only])
