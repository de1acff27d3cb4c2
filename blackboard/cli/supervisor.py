"""Several worker processes of one host: `blackboard worker --processes N`.

Each is this same command without `--processes`. Signals are passed on to all of them. One that
ends by itself is followed by another after a pause, as init would do it and with whatever exit
code: a handler may have ended its worker, and chosen that. Workers that are meant to end (`--once`,
`--until-idle`) are waited for. Each worker holds one end of a pipe whose other end
is ours: should this process be killed, the pipe ends and the workers stop as if they were asked to.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from blackboard.clock import SystemChance
from blackboard.rules.breaker import RESTARTS

STEADY = 60.0
"""Seconds after which a worker counts as well, and its end as the first failure."""
SUPERVISED = "BLACKBOARD_SUPERVISED"
"""In a worker's environment: its stdin is the pipe."""
STOPPED = {-signal.SIGTERM, -signal.SIGINT, 130}
"""How a worker ends that was asked to stop before it could listen."""
KILLED = 1
"""The exit code that stands for a worker that was ended by a signal."""


def without_processes(arguments: Sequence[str]) -> list[str]:
    """The command line of one worker: the same, but for the number of them."""
    kept: list[str] = []
    rest = iter(arguments)
    for one in rest:
        if one == "--processes":
            next(rest, None)
        elif not one.startswith("--processes="):
            kept.append(one)
    return kept


def supervise(count: int, *, restart: bool) -> int:
    """Run so many workers until all have ended; the highest of their exit codes."""
    return asyncio.run(_Supervisor(without_processes(sys.argv[1:]), restart=restart).run(count))


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
    def __init__(self, arguments: list[str], *, restart: bool) -> None:
        self._arguments = arguments
        self._restart = restart
        self._running: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()

    async def run(self, count: int) -> int:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._pass_on, one)
        return max(await asyncio.gather(*(self._keep() for _ in range(count))))

    def _pass_on(self, number: int) -> None:
        self._stopping.set()
        for process in self._running:
            _send(process, number)

    async def _keep(self) -> int:
        """One worker after another, until they are meant to end."""
        loop, chance, failures = asyncio.get_running_loop(), SystemChance(), 0
        while True:
            since = loop.time()
            try:
                code = await self._run_one()
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

    async def _run_one(self) -> int:
        """One worker, from its start to its end; its exit code. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "blackboard",
            *self._arguments,
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
