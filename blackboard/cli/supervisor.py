"""Keeps the processes of `blackboard worker --processes N`, and passes signals on to them.

Each of them is the same command without `--processes`. A worker that ends by itself is replaced
after a pause, whatever its exit code: a handler may have ended its worker with that code. Workers
that are meant to end (`--once`, `--until-idle`) are waited for. With `--metrics`, each of them
serves its own at a port of its own. Each worker holds one end of a pipe whose other end the
supervisor holds: if the supervisor is killed, the pipe closes and the workers stop as if asked to.
"""

import asyncio
import fcntl
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from pathlib import Path

from blackboard.cli.worker_log import unblocked_stderr
from blackboard.clock import SystemChance
from blackboard.endpoint import Endpoint
from blackboard.rules.breaker import RESTARTS
from blackboard.runners.commands import send_signal
from blackboard.runners.interpreter import program, python

STOPPING = (
    *(signal.SIGTERM, signal.SIGINT),
    *(number for number in [signal.SIGHUP] if signal.getsignal(number) is not signal.SIG_IGN),
)
"""Signals that ask a worker to stop; SIGHUP is one unless it is ignored, as under `nohup`."""


def ignore_signals() -> None:
    """Ignores signals to stop after the work is done: they must not change the exit code."""
    loop = asyncio.get_running_loop()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    for number in STOPPING:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class StopSignals:
    """The signals that ask a worker to stop: `asked` is called at each. A coroutine can take them
    by `signal.signal`, or by `signal.set_wakeup_fd` what the loop hears of them by: `keep` takes
    them back.
    """

    def __init__(self, asked: Callable[[], None]) -> None:
        self._asked = asked
        self._loop = asyncio.get_running_loop()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        for number in STOPPING:
            self._loop.add_signal_handler(number, asked)
        self._handlers = {number: signal.getsignal(number) for number in STOPPING}
        self._descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(self._descriptor)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def keep(self, _event: object = None) -> None:
        """Takes them back, unless `end` was called. Also a subscriber of events."""
        if not self._handlers or threading.current_thread() is not threading.main_thread():
            return
        taken = [n for n, handler in self._handlers.items() if signal.getsignal(n) is not handler]
        if signal.set_wakeup_fd(self._descriptor) == self._descriptor and not taken:
            return
        for number in taken:  # outside the context of a run, which may not do so
            Context().run(self._loop.add_signal_handler, number, self._asked)
        logging.getLogger("asyncio").error(
            "a handler took the signals by which its worker is asked to stop: it listens to them "
            "again"
        )

    def end(self) -> None:
        """Leaves them as they are from now on."""
        self._handlers = {}


STEADY = 60.0
"""Seconds of work after which the end of a worker counts as its first failure again."""
SUPERVISED = "BLACKBOARD_SUPERVISED"
"""A variable in a worker's environment: its stdin is the pipe of the supervisor."""
STOPPED = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 130}
"""Exit codes of a worker that was asked to stop before it had signal handlers."""
KILLED = 1
"""The exit code that stands for a worker that was ended by a signal."""


def without(option: str, arguments: Sequence[str]) -> list[str]:
    """A command line without an option that has a value."""
    kept: list[str] = []
    rest = iter(arguments)
    for arg in rest:
        if arg == option:
            next(rest, None)
        elif not arg.startswith(f"{option}="):
            kept.append(arg)
    return kept


def supervise(count: int, *, restart: bool, endpoint: Endpoint | None) -> int:
    """Runs so many workers until all have ended; returns the highest of their exit codes. The first
    one serves its metrics at `endpoint`.
    """
    arguments = without("--metrics", without("--processes", sys.argv[1:]))
    supervisor = _Supervisor(arguments, restart=restart, endpoint=endpoint)

    async def supervised() -> int:
        code = await supervisor.run(count)
        ignore_signals()
        return code

    with unblocked_stderr():
        return asyncio.run(supervised())


class SupervisorPipe:
    """In a worker: the pipe whose other end its supervisor holds, if it has one. It is not left as
    stdin, which a handler may read or close. Removes `SUPERVISED` from the environment: processes
    that the worker starts have no supervisor.
    """

    def __init__(self, stdin: int = 0) -> None:
        self._pipe: int | None = None
        if os.environ.pop(SUPERVISED, "") == "1":
            self._pipe = fcntl.fcntl(stdin, fcntl.F_DUPFD_CLOEXEC, 3)
            with Path(os.devnull).open("rb") as nothing:
                os.dup2(nothing.fileno(), stdin)

    def when_closed(self, stop: Callable[[], object]) -> None:
        """Calls `stop`, in place of an earlier one, once the supervisor is gone."""
        if (pipe := self._pipe) is None:
            return
        loop = asyncio.get_running_loop()

        def readable() -> None:
            if not os.read(pipe, 1):
                loop.remove_reader(pipe)
                stop()

        loop.add_reader(pipe, readable)

    def leave(self) -> None:
        """Calls nothing any more, until `when_closed`."""
        if self._pipe is not None:
            asyncio.get_running_loop().remove_reader(self._pipe)


def _command() -> list[str]:
    """The command line, as Python takes it. In an archive of modules none finds it by its name."""
    if Path(__file__).is_file():
        return ["-P", "-m", "blackboard"]
    return ["-c", program("from blackboard.cli import main; main()")]


class _Supervisor:
    def __init__(self, arguments: list[str], *, restart: bool, endpoint: Endpoint | None) -> None:
        self._arguments = arguments
        self._restart = restart
        self._endpoint = endpoint
        self._running: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()

    async def run(self, count: int) -> int:
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._pass_on, number)
        return max(await asyncio.gather(*map(self._keep, range(count))))

    def _pass_on(self, number: int) -> None:
        self._stopping.set()
        for process in self._running:
            send_signal(process, number)

    async def _keep(self, number: int) -> int:
        """Runs one worker after another, until they are meant to end."""
        loop, chance, failures = asyncio.get_running_loop(), SystemChance(), 0
        while True:
            since = loop.time()
            try:
                code = await self._run_one(number)
                ended = f"a worker ended with {code}"
            except OSError as problem:  # no memory, or too many processes: this may pass
                code, ended = KILLED, f"a worker could not be started: {problem}"
            if self._stopping.is_set() and code in STOPPED:
                return 0
            if self._stopping.is_set() or not self._restart:
                return max(code, KILLED) if code else 0
            failures = 1 if loop.time() - since > STEADY else failures + 1
            pause = RESTARTS.pause(failures, fraction=chance.fraction())
            with suppress(OSError):  # nothing reads the log: the workers go on
                sys.stderr.write(f"blackboard: {ended}; another in {pause:.1f} s\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return 0

    async def _run_one(self, number: int) -> int:
        """Runs one worker until it ends; returns its exit code. Raises OSError."""
        metrics = ["--metrics", str(self._endpoint.of(number))] if self._endpoint else []
        process = await asyncio.create_subprocess_exec(
            *python(*_command(), *self._arguments, *metrics),
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, SUPERVISED: "1"},
            start_new_session=True,  # Ctrl-C reaches it through us, and once
        )
        self._running.add(process)
        if self._stopping.is_set():
            send_signal(process, signal.SIGTERM)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)
