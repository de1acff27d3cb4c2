"""`blackboard worker`: walk the board and run what is due; with `--processes N`, in N processes.

Each process of several is this same command without `--processes`, and a supervisor keeps them. It
passes signals on to all of them. A worker that ends by itself is replaced after a pause, whatever
its exit code: a handler may have ended its worker with that code. With `--metrics`, each of them
serves its own at a port of its own. Workers that are meant to end
(`--once`, `--until-idle`) are waited for. Each worker holds one end of a pipe whose other end the
supervisor holds: if the supervisor is killed, the pipe closes and the workers stop as if asked to.
"""

import asyncio
import faulthandler
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, NoReturn, get_args

import click

from blackboard.assembly import (
    Until,
    WorkerSettings,
    handlers_taken,
    identity,
    new_worker,
    worker_settings,
)
from blackboard.cli.options import Chosen, common, completing, number_option
from blackboard.cli.output import note
from blackboard.cli.session import Session, collect_seldom, run
from blackboard.cli.worker_log import LogForm, subscriber
from blackboard.clock import SystemChance, SystemClock
from blackboard.cost import price_of
from blackboard.errors import BadInput
from blackboard.events import Events, MetricsServed, StoreAway
from blackboard.handlers import code as loaded
from blackboard.handlers.handler import Handler
from blackboard.protocol.reading import BoardTable
from blackboard.rules.breaker import RESTARTS, STORE
from blackboard.runners.inline import run_loop
from blackboard.runners.logs import emitting_info
from blackboard.table import Busy, TableError, Unusable
from blackboard.worker.store_breaker import REPORT_EVERY

if TYPE_CHECKING:
    from blackboard.metrics.server import Endpoint

EPILOG = """\b
Examples:
  blackboard worker --jobs jobs --cycle 30s
  blackboard worker --jobs calendars --types calendars --until-idle
  blackboard worker --jobs mypackage.jobs --processes 4
"""


@click.command(epilog=EPILOG)
@click.option(
    "--jobs",
    multiple=True,
    metavar="JOBS",
    shell_complete=completing("jobs"),
    help="Folder, file, module, shipped name.",
)
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
    metrics: str | None,
    reload: bool,
    init: bool,
    form: LogForm,
    verbose: bool,
) -> int:
    """Walk the board every cycle and run what is due.

    SIGTERM or Ctrl-C: no more claims, what runs may finish within --grace, then it is cancelled
    and due again at once. A second one: now. With --json the log is JSON, and has the requests
    to the store with every walk.
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
    if reload and (processes > 1 or until != "stopped"):
        raise BadInput("reload", "it is for one worker that works until it is stopped", "leave out")
    try:
        session = session.with_jobs(jobs)
    except BadInput as problem:
        if not reload or not loaded.code().files:
            raise
        note(f"{problem}; it starts again when that changes")
        run(_change())
        return _start_again()
    endpoint = _endpoint(metrics, processes)
    if processes > 1:
        run(_check(session, settings, init=init, ports=_each(endpoint, processes)))
        return supervise(processes, restart=until == "stopped", endpoint=endpoint)
    level = logging.DEBUG if verbose or chosen.json else logging.INFO
    form = "json" if chosen.json else form
    collect_seldom()
    try:
        with emitting_info("apscheduler", "azure"):  # which the worker itself uses
            changed = run_loop(
                _work(
                    session,
                    settings,
                    until=until,
                    init=init,
                    reload=reload,
                    events=_events(level, form),
                    endpoint=endpoint,
                )
            )
    except SystemExit as problem:
        # Of a signal handler, say. With exit code 0 or 2 its supervisor would not start it again.
        note(f"the worker was ended by SystemExit({problem.code}), which no worker raises itself")
        return 1
    return _start_again() if changed else 0


STOPPING = (signal.SIGTERM, signal.SIGINT)
"""What asks a worker to stop."""


def _ignore_signals() -> None:
    """The work is done: a signal to stop that comes now does not change the exit code."""
    loop = asyncio.get_running_loop()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    for one in STOPPING:
        loop.remove_signal_handler(one)
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


LOOK_EVERY = 0.5
"""Seconds between two looks at the files of the jobs, with --reload."""


async def _change(then: Callable[[], None] = lambda: None) -> None:
    """Wait until files of the jobs have changed, and are Python."""
    clock, reported = SystemClock(), ""
    while not (files := loaded.changed()) or (mistake := loaded.mistake_in(files)):
        if files and mistake != reported:
            note(f"{mistake}; the worker goes on with the code that it has read")
            reported = mistake
        await clock.sleep(LOOK_EVERY)
    note(f"{files[0]} has changed: the worker starts again")
    then()


def _start_again() -> NoReturn:
    """Replaces this process by a new one with the same command line."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own


def _events(level: int, form: LogForm) -> Events:
    events = Events(identity(SystemChance()))
    events.subscribe(subscriber(SystemClock(), level=level, form=form), "the log")
    return events


def _handlers(session: Session, settings: WorkerSettings) -> Mapping[str, Handler]:
    handlers = handlers_taken(session.handlers, settings.types)
    if not handlers:
        raise BadInput("jobs", "no handlers", "name some with --jobs or `[board] jobs`")
    return handlers


def _endpoint(metrics: str | None, processes: int) -> "Endpoint | None":
    """Where the first of the processes serves its metrics. Raises BadInput."""
    if metrics is None:
        return None
    from blackboard.metrics.server import Endpoint  # noqa: PLC0415 - only when asked for

    return Endpoint.parse(metrics, processes=processes)


def _each(endpoint: "Endpoint | None", processes: int) -> "Sequence[Endpoint]":
    return [endpoint.of(number) for number in range(processes)] if endpoint else []


async def _serve_metrics(
    stack: AsyncExitStack, endpoint: "Endpoint", *, events: Events, store: str
) -> None:
    """Measure the worker that emits these events, and serve that until the stack is closed."""
    from blackboard.metrics.server import pages_of, serving  # noqa: PLC0415 - only when asked for
    from blackboard.metrics.worker import WorkerMetrics  # noqa: PLC0415

    metrics = WorkerMetrics(price=price_of(store))
    events.subscribe(metrics, "the metrics")
    found = await stack.enter_async_context(serving(pages_of(metrics), endpoint))
    events.emit(MetricsServed, url=f"http://{found}/metrics")


async def _check(
    session: Session,
    settings: WorkerSettings,
    *,
    init: bool,
    ports: "Sequence[Endpoint]",
) -> None:
    """Refuses once, before workers are started, what none of them could use. A store that is away
    is not refused: the workers wait for it.
    """
    _handlers(session, settings)
    if session.settings.worker.otel:
        from blackboard.runners.tracing import check  # noqa: PLC0415 - only when asked for

        check()
    for endpoint in ports:
        from blackboard.metrics.server import serving  # noqa: PLC0415 - only when asked for

        async with serving({}, endpoint):
            pass
    try:
        async with session.board(create=init):
            pass
    except Unusable:
        raise
    except TableError as trouble:
        note(str(trouble))


async def _work(
    session: Session,
    settings: WorkerSettings,
    *,
    until: Until,
    init: bool,
    reload: bool,
    events: Events,
    endpoint: "Endpoint | None",
) -> bool:
    """Whether it has ended because files of its jobs changed."""
    handlers = _handlers(session, settings)
    async with AsyncExitStack() as stack:
        if endpoint is not None:
            await _serve_metrics(stack, endpoint, events=events, store=session.store)
        if until == "stopped":
            board = await _opened(session, stack, init=init, events=events)
        else:
            board = await stack.enter_async_context(session.board(create=init))
        faulthandler.enable()
        worker = new_worker(
            board,
            handlers=handlers,
            settings=settings,
            declared=session.settings,
            events=events,
            store=session.store,
            guards_loop=True,
        )
        loop = asyncio.get_running_loop()
        for one in STOPPING:
            loop.add_signal_handler(one, worker.stop)
        when_abandoned(worker.stop)
        changed = False
        if not reload:
            await worker.work(until)
        else:
            change = loop.create_task(_change(worker.stop))
            try:
                await worker.work(until)
                changed = change.done()
            finally:
                change.cancel()
    if not changed:  # else signals would be ignored in the process that follows, too
        _ignore_signals()
    return changed


async def _opened(
    session: Session,
    stack: AsyncExitStack,
    *,
    init: bool,
    events: Events,
) -> BoardTable:
    """The board, with `init` made if it is not there, and closed with `stack`, for a worker that
    works for ever: it waits for a store that is away, so that its supervisor need not start it
    again and again. What no waiting mends (a table that is not there, a missing role) is raised.
    """
    clock, chance = SystemClock(), SystemChance()
    failures, reported = 0, -math.inf
    while True:
        try:
            return await stack.enter_async_context(session.board(create=init))
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


# ---- several processes

STEADY = 60.0
"""Seconds after which the end of a worker counts as its first failure."""
SUPERVISED = "BLACKBOARD_SUPERVISED"
"""In a worker's environment: its stdin is the pipe."""
STOPPED = {-signal.SIGTERM, -signal.SIGINT, 130}
"""How a worker ends that was asked to stop before it could listen."""
KILLED = 1
"""The exit code that stands for a worker that was ended by a signal."""


def without(option: str, arguments: Sequence[str]) -> list[str]:
    """A command line without an option that has a value."""
    kept: list[str] = []
    rest = iter(arguments)
    for one in rest:
        if one == option:
            next(rest, None)
        elif not one.startswith(f"{option}="):
            kept.append(one)
    return kept


def supervise(count: int, *, restart: bool, endpoint: "Endpoint | None" = None) -> int:
    """Run so many workers until all have ended; the highest of their exit codes. The first one
    serves its metrics at `endpoint`.
    """
    arguments = without("--metrics", without("--processes", sys.argv[1:]))
    supervisor = _Supervisor(arguments, restart=restart, endpoint=endpoint)

    async def supervised() -> int:
        code = await supervisor.run(count)
        _ignore_signals()
        return code

    return asyncio.run(supervised())


def when_abandoned(stop: Callable[[], None], *, pipe: int = 0) -> None:
    """In a worker: call `stop` when its supervisor is gone, if it has one. What the worker starts
    has none.
    """
    if os.environ.pop(SUPERVISED, "") != "1":
        return
    loop = asyncio.get_running_loop()

    def heard() -> None:
        if not os.read(pipe, 1):
            loop.remove_reader(pipe)
            stop()

    loop.add_reader(pipe, heard)


class _Supervisor:
    def __init__(
        self, arguments: list[str], *, restart: bool, endpoint: "Endpoint | None" = None
    ) -> None:
        self._arguments = arguments
        self._restart = restart
        self._endpoint = endpoint
        self._running: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()

    async def run(self, count: int) -> int:
        loop = asyncio.get_running_loop()
        for one in STOPPING:
            loop.add_signal_handler(one, self._pass_on, one)
        return max(await asyncio.gather(*map(self._keep, range(count))))

    def _pass_on(self, number: int) -> None:
        self._stopping.set()
        for process in self._running:
            _send(process, number)

    async def _keep(self, number: int) -> int:
        """One worker after another, until they are meant to end."""
        loop, chance, failures = asyncio.get_running_loop(), SystemChance(), 0
        while True:
            since = loop.time()
            try:
                code = await self._run_one(number)
                ended = f"a worker ended with {code}"
            except OSError as problem:  # no memory, no process: there may be some again
                code, ended = KILLED, f"a worker could not be started: {problem}"
            if self._stopping.is_set() and code in STOPPED:
                return 0
            if self._stopping.is_set() or not self._restart:
                return max(code, KILLED) if code else 0
            failures = 1 if loop.time() - since > STEADY else failures + 1
            pause = RESTARTS.pause(failures, fraction=chance.fraction())
            sys.stderr.write(f"blackboard: {ended}; another in {pause:.1f} s\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return 0

    async def _run_one(self, number: int) -> int:
        """One worker, from its start to its end; its exit code. Raises OSError."""
        metrics = ["--metrics", str(self._endpoint.of(number))] if self._endpoint else []
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "blackboard",
            *self._arguments,
            *metrics,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, SUPERVISED: "1"},
            start_new_session=True,  # Ctrl-C reaches it through us, and once
        )
        self._running.add(process)
        if self._stopping.is_set():
            _send(process, signal.SIGTERM)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)


def _send(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)
