"""Several worker processes of one host: `blackboard worker --processes N`.

Each is this same command without `--processes`. Signals are passed on to all of them. One that
ends by itself is followed by another after a pause, as init would do it; workers that are meant to
end (`--once`, `--until-idle`) are waited for. Each worker holds one end of a pipe whose other end
is ours: should this process be killed, the pipe ends and the workers stop as if they were asked to.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""Seconds after which a worker counts as well, and the next pause as the first."""
SUPERVISED = "BLACKBOARD_SUPERVISED"
"""In a worker's environment: its stdin is the pipe."""
BAD_INPUT = 2
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
    return asyncio.run(_Fleet(without_processes(sys.argv[1:]), restart=restart).run(count))


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


class _Fleet:
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
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            since = loop.time()
            # A session of its own: Ctrl-C reaches it through us, and once.
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "blackboard",
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, SUPERVISED: "1"},
                start_new_session=True,
            )
            self._running.add(process)
            if self._stopping.is_set():
                _send(process, signal.SIGTERM)
            code = await process.wait()
            self._running.discard(process)
            if self._stopping.is_set() and code in STOPPED:
                return 0
            if self._stopping.is_set() or not self._restart or code == BAD_INPUT:
                return max(code, KILLED) if code else 0
            if loop.time() - since > STEADY:
                pause = FIRST_PAUSE
            sys.stderr.write(f"blackboard: a worker ended with {code}; another in {pause:g} s\n")
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            return 0


def _send(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)
