"""The commands about what comes: `next` has the times of items or of a schedule, `why` the decision
for an item now and its reasons.
"""

import asyncio
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import click

from blackboard.cli.options import Chosen, as_typed, cli_command, common, number_option
from blackboard.cli.output import emit, warn, wrapped
from blackboard.cli.progress import reading
from blackboard.cli.session import Session, ids_argument
from blackboard.cli.spec_options import (
    Options,
    new_spec,
    schedule_options,
    warn_idle_steps,
    with_times,
)
from blackboard.clock import SystemClock
from blackboard.display.layout import shown
from blackboard.display.queries import select
from blackboard.errors import BadInput, BlackboardError
from blackboard.model import Item, State
from blackboard.phrases import iso, relative, stamp
from blackboard.protocol.members import workers
from blackboard.protocol.planning import settings_of, spec_of
from blackboard.protocol.reading import BoardTable
from blackboard.records import item_record
from blackboard.rules.upcoming import upcoming
from blackboard.schedule.schedule import Schedule, slots_after
from blackboard.schedule.times import parse_moment
from blackboard.schedule.words import describe
from blackboard.schedule.zones import find_zone
from blackboard.spec import RunSettings, Spec, encode_spec, resolve
from blackboard.why import ExplainedItem, explained, explained_item

AFTER_TIMES = 32
"""Width, in columns, of the times of a run; its item follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTimes:
    """The next times of an item or of a schedule."""

    title: str
    zone: str
    moments: Sequence[datetime]

    def lines(self) -> list[str]:
        """For people: wall time in the zone, and UTC."""
        zone = find_zone(self.zone)
        times = [f"  {_local(one.astimezone(zone)):<32}{_utc(one)}" for one in self.moments]
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
@click.option("--after", metavar="WHEN", help="Times later than this [now].")
@number_option("-n", "count", most=10_000, default=5, line="How many [5].")
@common()
def next_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    options: Options,
    after: str | None,
    count: int,
) -> int:
    """When items are due next, or when a schedule is; without either, the next runs of the board.
    With --json a list of UTC times; for several ids or a glob an object of lists, for the board a
    list of runs.
    """
    now = SystemClock().now()
    settings = _settings_of(options, chosen, now)
    schedule = settings.schedule
    if ids and schedule is not None:
        raise BadInput("next", "ids and a schedule are given", "give the ones or the other")
    if schedule is None and options:
        raise BadInput(next(iter(options)), "it is of a schedule", "give one, or leave it out")
    later = None if after is None else parse_moment(after, settings.timezone, "after", now)
    if schedule is not None:
        most = min(count, schedule.limits.runs or count)
        moments = [*islice(slots_after(schedule, later or now), most)]
        found = NextTimes(title=describe(schedule), zone=schedule.zone, moments=moments)
        _print_times([found], json=chosen.json)
        return 0
    session = Session.start(chosen).with_defaults()
    if not ids:
        now, runs = asyncio.run(_of_board(session, after=later, count=count))
        _print_runs(runs, now=now, json=chosen.json)
        return 0
    by_id = asyncio.run(_of_items(session, ids, exact=exact, after=later, count=count))
    is_one = [*by_id] == [*ids]
    _print_times([*by_id.values()], json=chosen.json, by_id=None if is_one else by_id)
    return 0


def _settings_of(options: Options, chosen: Chosen, now: datetime) -> RunSettings:
    """The schedule that the options give. Calendars are those of the settings file."""
    calendars = Session.start(chosen).settings.calendars if "blackout" in options else None

    def resolved(spec: Spec) -> RunSettings:
        return resolve([spec], calendars=calendars)

    times = with_times(options, Spec(), lambda spec: resolved(spec).timezone, now)
    spec = new_spec(times, pairs=())
    warn_idle_steps([spec])
    return resolved(spec)


async def _of_items(
    session: Session, ids: Sequence[str], *, exact: bool, after: datetime | None, count: int
) -> dict[str, NextTimes]:
    async with session.board() as board:
        now = await board.table.now()
        items = await select(board, ids, exact=exact)
        return {one.id: _of_item(board, one, now=now, after=after, count=count) for one in items}


async def _of_board(
    session: Session, *, after: datetime | None, count: int
) -> tuple[datetime, list[tuple[datetime, Item]]]:
    """The store's time, and the next runs of all active items, the earliest first."""
    async with reading(session.board(), "reading items") as board:
        now = await board.table.now()

        def coming(item: Item) -> Iterator[tuple[datetime, Item]]:
            later = after
            if not item.running and item.ready > max(now, after or now):
                yield item.ready, item  # most items need no schedule for what is shown
                later = item.ready
            try:
                moments = _upcoming(board, item, now=now, after=later)[1]
            except BlackboardError as problem:
                warn(f"{problem}; its next runs are left out")
                return
            yield from ((moment, item) for moment in moments)

        items = [item async for item in board.items() if item.state is State.ACTIVE]
        runs = heapq.merge(*map(coming, items), key=lambda one: (one[0], one[1].id))
        return now, list(islice(runs, count))


def _print_runs(runs: Sequence[tuple[datetime, Item]], *, now: datetime, json: bool) -> None:
    if json:
        emit([{"id": item.id, "type": item.type, "at": _utc(at)} for at, item in runs])
    elif not runs:
        click.echo("nothing is due: no item of the board is active")
    else:
        lines = [
            wrapped(
                f"{shown(item.id)} ({shown(item.type)})",
                first=f"{stamp(at)}  {relative(at, now) if at > now else 'now':<8}  ",
                margin=" " * AFTER_TIMES,
            )
            for at, item in runs
        ]
        click.echo("\n".join(lines))


def _of_item(
    board: BoardTable, item: Item, *, now: datetime, after: datetime | None, count: int
) -> NextTimes:
    schedule, moments = _upcoming(board, item, now=now, after=after)
    words = describe(schedule) if schedule else "no schedule: runs on request"
    state = "running" if item.running else item.state.value
    return NextTimes(
        title=f"{shown(item.id)}: {state}, {words}",
        zone=schedule.zone if schedule else "UTC",
        moments=list(islice(moments, count)),
    )


def _upcoming(
    board: BoardTable, item: Item, *, now: datetime, after: datetime | None
) -> tuple[Schedule | None, Iterator[datetime]]:
    """The schedule of an item, and its next times. Raises BadInput that names the item where they
    cannot be computed here.
    """
    try:
        settings = settings_of(board, item, encode_spec(spec_of(item)))
    except BadInput as bad:
        raise BadInput(bad.field, f"{item.id}: {bad.problem}", bad.remedy) from None
    return settings.schedule, upcoming(item, settings, now=now, after=after)


def _print_times(
    found: Sequence[NextTimes], *, json: bool, by_id: dict[str, NextTimes] | None = None
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


QUOTED = {"labels", "progress", "checkpoint", "last run"}
"""Facts in the words of users and handlers."""


@cli_command("""\
Examples:
  blackboard why westlafcals
  blackboard why 'us-*' --json
""")
@ids_argument()
@common()
def why_command(*, chosen: Chosen, ids: tuple[str, ...], exact: bool) -> int:
    """Explain why items run now or do not: what is due when and why, which worker holds a lock and
    until when, who paused it, how the last run ended, what happens next, and what would change it.
    """
    session = Session.start(chosen).with_defaults()
    found = asyncio.run(_explain(session, ids, exact=exact))
    if chosen.json:
        emit(found)
    else:
        click.echo("\n\n".join(_lines(one.headline, one.facts) for one in found))
    return 0


async def _explain(session: Session, ids: Sequence[str], *, exact: bool) -> list[ExplainedItem]:
    async with session.board() as board:
        present = await workers(board)
        found = []
        for item in await select(board, ids, exact=exact):
            one, why = await explained(board, item, present)
            found.append(explained_item(item_record(one, board.labels(item)), why))
        return found


def _lines(headline: str, facts: Mapping[str, str]) -> str:
    """The headline, and a line for each fact, as wide as the terminal."""
    margin = max(map(len, facts), default=0) + 4
    found = [wrapped(shown(headline))]
    for label, fact in facts.items():
        words = shown(fact if label in QUOTED else as_typed(fact))
        found.append(wrapped(words, first=f"  {label}".ljust(margin), margin=" " * margin))
    return "\n".join(found)
