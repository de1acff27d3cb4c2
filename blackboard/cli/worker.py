"""`blackboard worker`: walk the board and run what is due."""

import asyncio
import faulthandler
import logging
import math
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack

import click

from blackboard.assembly import (
    Until,
    WorkerSettings,
    handlers_taken,
    identity,
    new_worker,
    worker_settings,
)
from blackboard.cli.session import Chosen, Session, common, note, run
from blackboard.cli.supervisor import supervise, when_abandoned
from blackboard.cli.worker_log import subscriber
from blackboard.clock import Chance, Clock, SystemChance, SystemClock
from blackboard.errors import BadInput
from blackboard.events import Events, StoreAway
from blackboard.handlers import Handler
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import STORE
from blackboard.runners.inline import run_loop
from blackboard.table import Busy, TableError, Unusable
from blackboard.worker.store_breaker import REPORT_EVERY

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
@click.option("-v", "--verbose", is_flag=True, help="Log every walk, as --json does.")
@common()
def worker_command(
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
    has the requests to the store with every walk.
    """
    if once and until_idle:
        raise click.UsageError("--once and --until-idle exclude each other.")
    until: Until = "once" if once else "idle" if until_idle else "stopped"
    session = Session.start(chosen)
    settings = worker_settings(
        session.settings,
        slots=slots,
        cycle=cycle,
        types=tuple(one for one in types.split(",") if one) if types else (),
        grace=grace,
    )
    session = session.with_jobs(jobs)
    if processes > 1:
        run(_check(session, settings))
        return supervise(processes, restart=until == "stopped")
    level = logging.DEBUG if verbose or chosen.json else logging.INFO
    try:
        run_loop(_work(session, settings, until=until, level=level))
    except SystemExit as problem:
        # Of a signal handler, say. With exit code 0 or 2 its supervisor would not start it again.
        note(f"the worker was ended by SystemExit({problem.code}), which no worker raises itself")
        return 1
    return 0


def _handlers(session: Session, settings: WorkerSettings) -> Mapping[str, Handler]:
    handlers = handlers_taken(session.handlers, settings.types)
    if not handlers:
        raise BadInput("jobs", "no handlers", "name some with --jobs or `[board] jobs`")
    return handlers


async def _check(session: Session, settings: WorkerSettings) -> None:
    """Refuses once, before workers are started, what none of them could use. A store that is away
    is not refused: the workers wait for it.
    """
    _handlers(session, settings)
    try:
        async with session.board(create=True):
            pass
    except Unusable:
        raise
    except TableError as trouble:
        note(str(trouble))


async def _work(session: Session, settings: WorkerSettings, *, until: Until, level: int) -> None:
    handlers = _handlers(session, settings)
    clock, chance = SystemClock(), SystemChance()
    owner = identity(chance)
    events = Events(owner)
    events.subscribe(subscriber(clock, level=level, json=session.chosen.json), "the log")
    async with AsyncExitStack() as stack:
        if until == "stopped":
            board = await _opened(session, stack, events=events, clock=clock, chance=chance)
        else:
            board = await stack.enter_async_context(session.board(create=True))
        faulthandler.enable()
        worker = new_worker(
            board,
            handlers=handlers,
            settings=settings,
            declared=session.settings,
            events=events,
            guards_loop=True,
        )
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, worker.stop)
        when_abandoned(worker.stop)
        await worker.work(until)


async def _opened(
    session: Session, stack: AsyncExitStack, *, events: Events, clock: Clock, chance: Chance
) -> BoardTable:
    """The board, made if it is not there, and closed with `stack`, for a worker that works for
    ever: it waits for a store that is away, so that its supervisor need not start it again and
    again. What no waiting mends (a table that is not there, a role that is missing) is raised.
    """
    failures, reported = 0, -math.inf
    while True:
        try:
            return await stack.enter_async_context(session.board(create=True))
        except Unusable:
            raise
        except TableError as trouble:
            failures += 1
            if clock.monotonic() - reported >= REPORT_EVERY:
                reported = clock.monotonic()
                events.emit(StoreAway, message=f"waiting: {trouble}")
            asked = trouble.retry_after if isinstance(trouble, Busy) else 0.0
            wait = STORE.pause(failures, asked=asked, fraction=chance.fraction())
        await clock.sleep(wait)
