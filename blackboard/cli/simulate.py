"""`blackboard simulate`: simulates a board before it is deployed.

The simulated items have the schedules, specs and types of the board's items. Their runs take as
long as the last ones did. Params are left out, because no simulated handler reads them. The world
begins on a Monday at midnight UTC: an interval goes on from its present state, a cron or a rule has
its slots by the calendar.
"""

import asyncio
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from blackboard import cost
from blackboard.cli.cost import dollars
from blackboard.cli.options import (
    Chosen,
    Number,
    WholeNumber,
    cli_command,
    cycle_option,
    number_option,
    program,
    typed,
)
from blackboard.cli.output import emit, note, writable
from blackboard.cli.progress import is_shown, progress, reading
from blackboard.cli.session import Session
from blackboard.cost import Load, Rhythm
from blackboard.errors import BadInput
from blackboard.model import Item, replace
from blackboard.phrases import plural
from blackboard.protocol.members import workers
from blackboard.schedule.schedule import Every, Schedule, next_due
from blackboard.schedule.times import parse_duration
from blackboard.simulator.handlers import handler_of
from blackboard.simulator.invariants import Violation
from blackboard.simulator.processes import WORLD_START
from blackboard.simulator.scenario import (
    ALL_TYPES,
    FaultPlan,
    Scenario,
    SimulatedItem,
    SimulatedTypes,
    parse_faults,
    synthetic,
    usual_length,
)
from blackboard.spec import decode_spec

if TYPE_CHECKING:
    from blackboard.simulator.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulable:
    """A board that is made up, or the items of a real one that run repeatedly, and whose settings
    can be computed here.
    """

    items: Sequence[SimulatedItem]
    runs: float
    """In an hour."""
    types: SimulatedTypes = ALL_TYPES
    rhythms: Sequence[Rhythm] = ()
    """How often the items of a real board run, for the estimate of `blackboard cost`."""
    shards: int = 1
    workers: int = 0


WORKERS = 8
"""Simulated workers, unless --workers is given or some have announced themselves."""
DAY, LONGEST = 24.0, 24 * 366.0
"""Hours of a world: by default at most, and the most that may be given."""
REQUESTS = 1_500_000
"""The most requests of a world whose hours are not given: some minutes of computing."""
REQUESTS_OF_A_RUN = 4
"""Its claim, its release, and the lost races of other workers."""
FAILING = 0.05
"""The share of runs that fail in a world with faults. In one without faults none fails."""
HOUR = timedelta(hours=1)
STEPS = 200


@cli_command("""\
Examples:
  blackboard simulate --workers 3
  blackboard simulate --items 5000 --every 1h --takes 20s --workers 4 --json
  blackboard simulate --workers 8 --items 200 --hours 100 --seed 1 \\
      --faults kill,pause,skew,lost,late,503,partition
""")
@number_option("--items", most=1_000_000, line="Made-up items [those of the board].")
@click.option("--every", metavar="TIME", help="How often made-up items run [8h].")
@click.option(
    "--takes", metavar="TIME", help="Mean duration where an item never ran [interval / 20]."
)
@number_option("--workers", "count", most=10_000, line=f"[the live ones, or {WORKERS}]")
@number_option("--slots", most=10_000, line="Of a worker [[worker] slots].")
@cycle_option
@number_option("--shards", most=cost.MOST_SHARDS, line="[the board's, or 1]")
@click.option(
    "--hours", metavar="N", type=Number(), help="To simulate [24; fewer of a large board]."
)
@click.option(
    "--seed", metavar="N", type=WholeNumber(), default=1, help="Equal seeds, equal worlds [1]."
)
@click.option(
    "--faults", metavar="A,B", default="none", help="all, none, or kinds, as above [none]."
)
@click.option(
    "--trouble-every", metavar="TIME", default="2m", help="Mean time between two faults [2m]."
)
@click.option("--price", metavar="USD", help=f"For a million transactions [{cost.PRICE}].")
@click.option("--trace", metavar="FILE", help="Write every event there, a line each.")
@click.option("--shrink", is_flag=True, help="Reduce a violation to the fewest faults and items.")
def simulate_command(
    *,
    chosen: Chosen,
    items: int | None,
    every: str | None,
    takes: str | None,
    count: int | None,
    slots: int | None,
    cycle: str | None,
    shards: int | None,
    hours: float | None,
    seed: int,
    faults: str,
    trouble_every: str,
    price: str | None,
    trace: str | None,
    shrink: bool,
) -> int:
    """Simulate this board with any number of workers: how late items would be, how many runs would
    overlap, what it would cost on Azure.

    The real workers run in a simulated world, in this process: days take seconds. Handlers do
    nothing, and take about as long as the last runs did. Nothing is written to the board. With
    --items the board is made up, its items spread over their interval.

    Kinds of faults: kill, pause, skew, jump, lost, late, twice, 503, partition, outage, shard,
    clock, redeploy, versions, edit.
    Every write is checked. Exit code 1, with the last lines before it, when a promise was broken.
    """
    per_million = dollars(price)
    length = None if takes is None else _seconds(takes, "takes")
    if items is None and every is not None:
        raise BadInput("every", "it is for made-up items", "say how many with --items")
    session = Session.start(chosen)
    usual = session.settings.worker
    troubles = parse_faults(faults)
    if hours is not None and not 0 < hours <= LONGEST:
        raise BadInput("hours", f"{hours:g} is out of range", f"up to {LONGEST:g}, as in 0.5")
    between_faults = _seconds(trouble_every, "trouble_every")
    between_walks = parse_duration(cycle or usual.cycle, "cycle")
    if items is None:
        board = asyncio.run(_read(session.with_defaults(), length))
    else:
        interval = parse_duration(every or "8h", "every")
        spread = synthetic(items, every=interval, takes=length, spread=True)
        board = Simulable(items=spread, runs=items * (HOUR / interval))
    scenario = Scenario(
        seed=seed,
        items=tuple(board.items),
        workers=count or board.workers or WORKERS,
        hours=DAY if hours is None else hours,
        shards=shards or board.shards,
        slots=slots or usual.slots,
        cycle=between_walks,
        faults=troubles,
        trouble_every=between_faults,
        failing=FAILING if troubles else 0.0,
        saving=0.0,  # saves cost requests, and most handlers have none
        types=board.types,
    )
    if hours is None:
        scenario = replace(scenario, hours=_no_more_than_a_day(scenario, board.runs))
    world, violation = _played(scenario, trace)
    if violation is not None and shrink:
        world, violation = _shrunk(world, violation)
    from blackboard.cli.simulate_results import Simulated, lines, view  # noqa: PLC0415 - as in `_played`

    shadows = [shadow.item for shadow in world.shadows.of.values() if shadow.item is not None]
    rhythms = board.rhythms or cost.rhythms_of(shadows, world.board.resolve, world.store.now())
    context = click.get_current_context()
    above = [] if context.parent is None else _options(context.parent)
    simulated = Simulated(
        world=world,
        violation=violation,
        size=cost.stored(Load(rhythms=rhythms)),
        price=per_million,
        again=shlex.join([program(), *above, "simulate", *_options(context)]),
    )
    if chosen.json:
        emit(view(simulated))
    else:
        click.echo("\n".join(lines(simulated)))
    return 0 if violation is None else 1


def _seconds(text: str, field: str) -> float:
    return parse_duration(text, field).total_seconds()


def _no_more_than_a_day(scenario: Scenario, runs: float) -> float:
    """Hours to simulate: a day, or fewer where that takes long. `runs` are those of an hour."""
    looks = scenario.workers * scenario.shards * (HOUR / scenario.cycle)
    hours = min(DAY, max(1.0, REQUESTS // (looks + REQUESTS_OF_A_RUN * runs)))
    if hours < DAY:
        note(f"a large board: {hours:g} h are simulated; --hours sets the time")
    return hours


async def _read(session: Session, takes: float | None) -> Simulable:
    """The items of the board. One that has not run yet takes so many seconds; None: as its interval
    says. Raises BadInput when none of them can be simulated.
    """
    items, rhythms, left_out = list[SimulatedItem](), list[Rhythm](), 0
    async with reading(session.board(), "reading items") as board:
        present, now = await workers(board), await board.table.now()
        async for item in board.items():
            try:
                settings = board.resolve(item.type, item.spec)
                rhythm = cost.rhythm_of(item, settings=settings, now=now)
                first = _first(settings.schedule, item, now)
            except (BadInput, ValueError):  # `doctor` reports it
                rhythm = first = None
            if rhythm is None or first is None:
                left_out += 1
                continue
            usual = usual_length(rhythm.interval) if takes is None else takes
            simulated = SimulatedItem(
                id=item.id,
                type=item.type,
                spec=msgspec.structs.replace(decode_spec(item.spec), params={}),
                takes=rhythm.lasts.total_seconds() or usual,
                first=first,
            )
            items.append(simulated)
            rhythms.append(rhythm)
    if not items:
        problem = f"the board {session.name!r} has no items that run repeatedly"
        raise BadInput("items", problem, "make some up: --items 200")
    if left_out:
        why = "paused, run once, or with settings that cannot be computed here"
        note(f"left out: {plural(left_out, 'item')} ({why})")
    names = sorted({item.type for item in items})
    handlers = {name: session.handlers.get(name) or handler_of(name) for name in names}
    return Simulable(
        items=items,
        runs=Load(rhythms=rhythms).runs * (HOUR / cost.MONTH),
        types=SimulatedTypes(handlers=handlers, settings=session.settings),
        rhythms=rhythms,
        shards=board.shards,
        workers=sum(not worker.lost for worker in present),
    )


def _first(schedule: Schedule | None, item: Item, now: datetime) -> datetime | None:
    if isinstance(schedule, Every):
        return WORLD_START + max(item.ready - now, timedelta(0))
    return None if schedule is None else next_due(schedule, WORLD_START)


def _played(
    scenario: Scenario, trace: str | None, plan: FaultPlan | None = None
) -> "tuple[World, Violation | None]":
    """The world at its end, and the violation that ended it, if any."""
    # Not needed by --help, and slow to import.
    from blackboard.simulator.world import World  # noqa: PLC0415

    with ExitStack() as stack:
        sink: Callable[[str], None] | None = None
        if trace is not None:
            stack.enter_context(writable(Path(trace), "trace"))
            stream = stack.enter_context(Path(trace).open("w", encoding="utf-8"))
            sink = partial(print, file=stream)
        world = World(scenario, plan, sink=sink)
        stack.enter_context(_watched(world))
        try:
            world.run()
        except Violation as violation:
            if not world.figures.seconds:
                world.figures.measure(world.workers, world.handler_runs, world.timeline.now)
            return world, violation
    return world, None


def _shrunk(world: "World", violation: Violation) -> "tuple[World, Violation | None]":
    from blackboard.simulator.shrinking import Failure, Shrinker, failed  # noqa: PLC0415

    def report(smaller: Failure) -> None:
        troubles = len(smaller.plan.injections) + len(smaller.plan.fated or ())
        parts = (
            plural(len(smaller.scenario.items), "item"),
            plural(smaller.scenario.workers, "worker"),
            plural(troubles, "trouble"),
        )
        note(f"it takes {', '.join(parts)} at the most")

    smallest = Shrinker(failed(world, violation), report=report).shrink()
    return _played(smallest.scenario, None, smallest.plan)


@contextmanager
def _watched(world: "World") -> Iterator[None]:
    """A progress bar."""
    if not is_shown():
        yield
        return
    with progress("simulating") as done:
        seconds = world.scenario.hours * 3600.0

        def move() -> None:
            done.reached(min(world.timeline.now / seconds, 1.0))
            world.timeline.at(world.timeline.now + seconds / STEPS, move)

        world.timeline.at(0.0, move)
        yield


def _options(ctx: click.Context) -> list[str]:
    """As they are typed, with all digits: if the hours differ at all, so does the world."""
    words = []
    for option, value in typed(ctx):
        text = repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
        words += [option.opts[0]] if value is True else [option.opts[0], text]
    return words
