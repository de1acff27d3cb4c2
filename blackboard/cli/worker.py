"""`blackboard worker`: walk the board and run what is due; `supervisor.py` runs several."""

import asyncio
import faulthandler
import logging
import math
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn, get_args

import click

from blackboard.board_worker import (
    BoardWorker,
    Until,
    WorkerSettings,
    handlers_taken,
    identity,
    worker_settings,
)
from blackboard.cli import supervisor
from blackboard.cli.options import Chosen, cli_command, jobs_option, number_option
from blackboard.cli.output import note
from blackboard.cli.reload import Places, until_changed
from blackboard.cli.session import Session, gc_seldom
from blackboard.cli.worker_log import LogForm, subscriber, unblocked_stderr
from blackboard.clock import SystemChance, SystemClock
from blackboard.emitter import EventEmitter
from blackboard.endpoint import Endpoint
from blackboard.errors import BadInput, BlackboardError
from blackboard.events import MetricsServed, StoreAway, StoreChanged
from blackboard.handlers.code import code
from blackboard.handlers.handler import Handler
from blackboard.named_files import can_be_read_again
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.breaker import STORE
from blackboard.runners.logs import emitting_info
from blackboard.runners.loop import run_loop
from blackboard.table import Busy, TableError, Unusable
from blackboard.worker.outage_reports import REPORT_EVERY


@cli_command("""\
Examples:
  blackboard worker --jobs jobs --cycle 30s
  blackboard worker --jobs calendars --types calendars --until-idle
  blackboard worker --jobs mypackage.jobs --processes 4
""")
@jobs_option("Folder, file, module, shipped name.")
@click.option("--cycle", metavar="TIME", help="Between two walks [60s].")
@number_option("--slots", most=10_000, line="Runs at a time [8].")
@click.option("--types", metavar="A,B", help="Take these types only.")
@click.option("--grace", metavar="TIME", help="For what runs when asked to stop [30s].")
@click.option("--once", is_flag=True, help="One walk, and the runs that it started.")
@click.option("--until-idle", is_flag=True, help="Until nothing is due and nothing runs.")
@number_option("--processes", most=256, default=1, line="Workers to start [1].")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve /metrics, /healthz, /readyz [127.0.0.1]; 0: a free port; with --processes each one "
    "takes the next port.",
)
@click.option("--reload", is_flag=True, help="Start again when files of the jobs change.")
@click.option("--init", is_flag=True, help="Make the board first if it is not there.")
@click.option(
    "--log",
    "form",
    type=click.Choice(get_args(LogForm)),
    default="auto",
    help="auto: text on a terminal, else JSON.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every walk, as --json does.")
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
    metrics: str | None,
    reload: bool,
    init: bool,
    form: LogForm,
    verbose: bool,
) -> int:
    """Walk the board every cycle and run what is due.

    SIGTERM or Ctrl-C: no more claims, what runs may finish within --grace, then it is cancelled
    and due again at once. A second one: now. With --json the log is JSON, and has the requests
    to the store with every walk. With --once or --until-idle a store that does not answer for a
    minute ends it, with exit code 3; else it waits for the store. --until-idle waits for a child
    process for a minute, too, and ends with exit code 1.
    """
    if once and until_idle:
        raise click.UsageError("--once and --until-idle exclude each other.")
    until: Until = "once" if once else "idle" if until_idle else "stopped"
    session = Session.start(chosen)
    names = None if types is None else tuple(filter(None, map(str.strip, types.split(","))))
    settings = worker_settings(session.settings, slots=slots, cycle=cycle, types=names, grace=grace)
    _check_together(chosen, until=until, processes=processes, reload=reload, form=form)
    places = Places.of(session, jobs) if reload else None
    try:
        session = session.with_jobs(jobs)
    except BadInput as problem:
        if places is None or not code().files:
            raise
        note(f"{problem}; it starts again when that changes")
        asyncio.run(until_changed(places))
        return _start_again(session.cwd)
    if supervisor.SUPERVISED not in os.environ:  # else its supervisor has warned
        session.warn_misspelt()
    endpoint = None if metrics is None else Endpoint.parse(metrics, "metrics", processes=processes)
    work = _Work(
        session=session,
        settings=settings,
        until=until,
        init=init,
        places=places,
        endpoint=endpoint,
    )
    if processes > 1:
        asyncio.run(work.check(processes))
        os.chdir(session.cwd)  # jobs may have changed it
        return supervisor.supervise(processes, restart=until == "stopped", endpoint=endpoint)
    level = logging.DEBUG if verbose or chosen.json else logging.INFO
    return work.run(level, "json" if chosen.json else form)


def _check_together(
    chosen: Chosen, *, until: Until, processes: int, reload: bool, form: LogForm
) -> None:
    """Refuses options that exclude each other. Raises BadInput."""
    if reload and (processes > 1 or until != "stopped"):
        remedy = "leave out --processes, --once and --until-idle"
        raise BadInput("reload", "it is for one worker that works until it is stopped", remedy)
    if (processes > 1 or reload) and chosen.config and not can_be_read_again(Path(chosen.config)):
        problem = f"each process reads {chosen.config}, which can be read once"
        raise BadInput("config", problem, "name a file, or leave out --processes and --reload")
    if chosen.json and form == "text":
        raise BadInput("log", "--json asks for JSON", "leave out one of them")


ENDS_WITHIN = 30.0
"""Seconds in which Python ends, and calls what the modules of jobs have given to `atexit`."""


@cache
def _end_for_certain() -> None:
    """Ends this process with exit code 0 where its end takes longer than `ENDS_WITHIN` from when
    its main thread has ended, which in a program that calls commands may be much later. Signals to
    stop are ignored by then. It shows where Python stands.
    """

    def end() -> None:
        threading.main_thread().join()
        threading.Event().wait(ENDS_WITHIN)
        note(f"what jobs have left to `atexit` has not ended in {ENDS_WITHIN:g} s: it is ended")
        faulthandler.dump_traceback()
        os._exit(0)

    threading.Thread(target=end, name="end", daemon=True).start()


def _start_again(folder: Path) -> NoReturn:
    """Replaces this process by a new one with the same command line, in the same folder."""
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What one worker does in a process of its own."""

    session: Session
    settings: WorkerSettings
    until: Until
    init: bool
    """Whether to make the board if it is not there."""
    places: Places | None
    """With --reload."""
    endpoint: Endpoint | None
    """Where its metrics are served."""

    async def check(self, processes: int) -> None:
        """Refuses once, before so many workers are started, what none of them could use. A store
        that is away is not refused: the workers wait for it.
        """
        self._handlers()
        if self.session.settings.worker.otel:
            from blackboard.runners.tracing import check  # noqa: PLC0415 - only when asked for

            check()
        if self.endpoint is not None:
            from blackboard.metrics.server import serving  # noqa: PLC0415 - only when asked for

            for number in range(processes):
                async with serving({}, self.endpoint.of(number)):
                    pass
        try:
            async with self.session.board(create=self.init):
                pass
        except Unusable:
            raise
        except TableError as trouble:
            note(str(trouble))

    def _handlers(self) -> Mapping[str, Handler]:
        handlers = handlers_taken(self.session.handlers, self.settings.types)
        if not handlers:
            raise BadInput("jobs", "no handlers", "name some with --jobs or `[board] jobs`")
        return handlers

    def run(self, level: int, form: LogForm) -> int:
        """Run the worker to its end, with a log; the exit code."""
        gc_seldom()
        try:
            # The loggers of a library that the worker itself uses, too.
            with emitting_info("azure"), unblocked_stderr():
                events = EventEmitter(identity(SystemChance()))
                log = subscriber(SystemClock(), level=level, form=form)
                events.subscribe(log, "the log")
                restarts = run_loop(self._work(events))
        except asyncio.CancelledError:
            note("the worker was cancelled, which no worker does itself")
            return 1
        except SystemExit as problem:
            # Raised by a signal handler, say. A supervisor would not restart it after 0 or 2.
            code = problem.code
            note(f"the worker was ended by SystemExit({code}), which no worker raises itself")
            return 1
        if restarts:
            return _start_again(self.session.cwd)
        _end_for_certain()
        return 0

    async def _work(self, events: EventEmitter) -> bool:
        """Run the worker. Returns whether it has ended because files of its jobs changed."""
        from blackboard.assembly import new_worker  # noqa: PLC0415 - a supervisor needs no parts

        handlers, pipe = self._handlers(), supervisor.SupervisorPipe()
        async with AsyncExitStack() as stack:
            if self.endpoint is not None:
                await _serve_metrics(stack, self.endpoint, events=events, store=self.session.store)
            async with _ended_when_closed(pipe):
                board = await self._opened(stack, events)
            faulthandler.enable()
            worker = new_worker(
                board,
                handlers=handlers,
                settings=self.settings,
                declared=self.session.settings,
                events=events,
                store=self.session.url,
                guards_loop=True,
            )
            pipe.when_closed(worker.stop)
            stopping = _Stopping(worker)
            signals = supervisor.StopSignals(stopping.asked)
            stack.callback(signals.end)
            events.subscribe(signals.keep, "the signals")
            with nullcontext() if self.places is None else stopping.at_changes(self.places):
                await worker.work(self.until)
        if not stopping.restarts:  # else signals would be ignored in the process that follows, too
            supervisor.ignore_signals()
        return stopping.restarts

    async def _opened(self, stack: AsyncExitStack, events: EventEmitter) -> BoardTable:
        """The board, which is closed with `stack`. A worker that works for ever waits for a store
        that is away, so that its supervisor need not start it again and again. An error that
        waiting cannot mend (a missing table or role) is raised.
        """
        clock, chance = SystemClock(), SystemChance()
        failures, reported = 0, -math.inf
        while True:
            try:
                return await stack.enter_async_context(self.session.board(create=self.init))
            except TableError as trouble:
                if isinstance(trouble, Unusable) or self.until != "stopped":
                    raise
                failures += 1
                if failures == 1:
                    events.emit(StoreChanged, board="", away=True)
                if clock.monotonic() - reported >= REPORT_EVERY:
                    reported = clock.monotonic()
                    events.emit(StoreAway, message=f"waiting: {trouble}")
                asked = trouble.retry_after if isinstance(trouble, Busy) else 0.0
                wait = STORE.pause(failures, asked=asked, fraction=chance.fraction())
            await clock.sleep(wait)


async def _serve_metrics(
    stack: AsyncExitStack, endpoint: Endpoint, *, events: EventEmitter, store: str
) -> None:
    """Measure the worker that emits these events, and serve that until the stack is closed."""
    from blackboard.cost import price_of  # noqa: PLC0415 - only when asked for
    from blackboard.metrics.server import pages_of, serving  # noqa: PLC0415
    from blackboard.metrics.worker import WorkerMetrics  # noqa: PLC0415

    metrics = WorkerMetrics(price=price_of(store))
    events.subscribe(metrics, "the metrics")
    address = await stack.enter_async_context(serving(pages_of(metrics), endpoint))
    events.emit(MetricsServed, url=f"http://{address}/metrics")


class _Stopping:
    """Why a worker stops: a signal, or a change of its jobs' files. Whichever comes first begins
    the grace for runs. The other one does not end the grace; a second signal does.
    """

    def __init__(self, worker: BoardWorker) -> None:
        self._worker = worker
        self._is_asked = self._has_changed = False

    @property
    def restarts(self) -> bool:
        """Whether it starts again. One that a signal has asked to stop does not."""
        return self._has_changed and not self._is_asked

    def asked(self) -> None:
        is_stopping, self._is_asked = self.restarts, True
        if not is_stopping:
            self._worker.stop()

    @contextmanager
    def at_changes(self, places: Places) -> Iterator[None]:
        """Stops the worker when files of its jobs change, or the wait for that fails: that error is
        raised at the end.
        """
        change = asyncio.get_running_loop().create_task(until_changed(places))
        change.add_done_callback(self._changed)
        try:
            yield
            if change.done():
                change.result()
        finally:
            change.cancel()

    def _changed(self, change: asyncio.Task[None]) -> None:
        if not change.cancelled() and not self._is_asked:
            self._has_changed = True
            self._worker.stop()


@asynccontextmanager
async def _ended_when_closed(pipe: supervisor.SupervisorPipe) -> AsyncIterator[None]:
    """Ends the wait for the store when the supervisor is gone: raises BlackboardError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as waiting:
            pipe.when_closed(lambda: waiting.reschedule(loop.time()))
            try:
                yield
            finally:
                pipe.leave()
    except TimeoutError:
        if not waiting.expired():
            raise
        problem = "its supervisor has ended, and so does this worker, which waited for its store"
        raise BlackboardError(problem) from None
