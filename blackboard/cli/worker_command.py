"""`blackboard worker`: walk the board and run what is due."""

import asyncio
import faulthandler
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta

import click

from blackboard.assembly import WorkerSettings, assemble, handlers_taken, identity
from blackboard.cli import fleet
from blackboard.cli.logs import subscriber
from blackboard.cli.opening import opened
from blackboard.cli.session import Chosen, Session, common, note, run
from blackboard.clock import SystemChance, SystemClock
from blackboard.errors import BadInput
from blackboard.events import Events, Kind
from blackboard.handlers import Handler
from blackboard.protocol.retention import Retention
from blackboard.runners import contained
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.schedule.durations import parse_duration
from blackboard.table import TableError, Unusable
from blackboard.worker.wake import CycleWake
from blackboard.worker.worker import Mode

EPILOG = """\b
Examples:
  blackboard worker --jobs jobs --cycle 30s
  blackboard worker --jobs calendars --types calendars --until-idle
  blackboard worker --jobs mypackage.jobs --processes 4
"""


@click.command(epilog=EPILOG)
@click.option("--jobs", multiple=True, metavar="JOBS", help="Folder, file, module, shipped name.")
@click.option("--cycle", metavar="TIME", help="Between two walks [60s].")
@click.option("--slots", metavar="N", type=click.IntRange(1, 10_000), help="Runs at a time [8].")
@click.option("--types", metavar="A,B", help="Take these types only.")
@click.option("--grace", metavar="TIME", help="For what runs when asked to stop [30s].")
@click.option("--once", is_flag=True, help="One walk, and the runs that it started.")
@click.option("--until-idle", is_flag=True, help="Until nothing is due and nothing runs.")
@click.option(
    "--processes", metavar="N", type=click.IntRange(1, 256), default=1, help="Workers to start [1]."
)
@click.option("-v", "--verbose", is_flag=True, help="Tell of every walk, as --json does.")
@common()
def command(
    *,
    chosen: Chosen,
    jobs: tuple[str, ...],
    cycle: str | None,
    slots: int | None,
    types: str | None,
    grace: str | None,
    once: bool,
    until_idle: bool,
    processes: int,
    verbose: bool,
) -> int:
    """Walk the board every cycle and run what is due.

    SIGTERM or Ctrl-C: no more claims, what runs may finish within --grace, then it is cancelled
    and due again at once. A second one: now. With --json the log is JSON on a terminal, too, and
    tells with every walk what the store was asked for.
    """
    if once and until_idle:
        raise click.UsageError("--once and --until-idle exclude each other.")
    mode = Mode.ONCE if once else Mode.UNTIL_IDLE if until_idle else Mode.FOREVER
    session = Session.start(chosen)
    table = session.settings.worker
    settings = WorkerSettings(
        cycle=parse_duration(cycle or table.cycle, "cycle"),
        slots=slots or table.slots,
        types=tuple(one for one in types.split(",") if one) if types else tuple(table.types),
        grace=_grace(grace or table.grace),
        retention=Retention(
            runs=session.settings.board.history,
            age=parse_duration(session.settings.board.history_age, "history_age"),
        ),
    )
    session = session.with_jobs(jobs)
    if processes > 1:
        run(_check(session, settings))
        return fleet.supervise(processes, restart=mode is Mode.FOREVER)
    level = logging.DEBUG if verbose or chosen.json else logging.INFO
    code = 0
    try:
        contained.run(_work(session, settings, mode=mode, level=level))
    except (
        SystemExit
    ) as problem:  # of a signal handler, say: 0 and 2 would keep it from coming back
        note(f"the worker was ended by SystemExit({problem.code}), which no worker raises itself")
        code = 1
    finally:
        contained.leave(code)
    return code


def _grace(text: str) -> timedelta:
    """No grace may be said as 0."""
    return timedelta(0) if text in {"0", "0s"} else parse_duration(text, "grace")


def _handlers(session: Session, settings: WorkerSettings) -> Mapping[str, Handler]:
    handlers = handlers_taken(session.handlers, settings.types)
    if not handlers:
        raise BadInput("jobs", "no handlers", "name some with --jobs or `[board] jobs`")
    return handlers


async def _check(session: Session, settings: WorkerSettings) -> None:
    """What no worker could use is told once, not by each of them. A store that is away is theirs
    to wait for.
    """
    _handlers(session, settings)
    try:
        async with session.board(create=True):
            pass
    except Unusable:
        raise
    except TableError as trouble:
        note(str(trouble))


async def _work(session: Session, settings: WorkerSettings, *, mode: Mode, level: int) -> None:
    handlers = _handlers(session, settings)
    clock, chance = SystemClock(), SystemChance()
    owner = identity(chance)
    events = Events(owner)
    events.subscribe(subscriber(clock, level=level, json=session.chosen.json), "the log")
    async with AsyncExitStack() as stack:
        if mode is Mode.FOREVER:
            board = await opened(session, stack, events=events, clock=clock, chance=chance)
        else:
            board = await stack.enter_async_context(session.board(create=True))
        inline, process = InlineRunner(), ProcessRunner()
        faulthandler.enable()
        worker = assemble(
            board,
            owner=owner,
            settings=settings,
            handlers=handlers,
            job_settings=session.settings.jobs,
            events=events,
            wake=CycleWake(settings.cycle.total_seconds()),
            inline=inline,
            process=process,
            turning=process.turning,
            notify=session.settings.notify,
        )
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, worker.stop)
        fleet.when_abandoned(worker.stop)
        events.emit(
            Kind.STARTED,
            f"{settings.slots} slots, every {settings.cycle.total_seconds():g} s, "
            f"types {', '.join(sorted(handlers))}",
        )
        await worker.work(mode)
        events.emit(
            Kind.STOPPED,
            data={"runs": worker.releases.runs, "requests": board.table.requests.by_kind},
        )
    if inline.abandoned:
        os._exit(0)  # asyncio would wait for ever for a handler that swallows its cancellation
