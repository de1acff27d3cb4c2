"""Keeps one guard running while there are child processes, and sends it their deadlines. The head
of `guard.py` says why there is a guard.
"""

import asyncio
import inspect
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Final

from blackboard.runners import guard
from blackboard.runners.interpreter import STARTING, executable

LOOK_EVERY: Final = 0.05
"""Seconds between two looks whether a process has ended, where the kernel does not report it."""
END_WITHIN: Final = 5.0
"""Seconds in which a guard ends whose pipe was closed. A process that a handler forked may have the
pipe open, too."""
RESTART: Final = 0.2
"""Seconds until another guard is started after one that failed to start, or died."""
SEND_WITHIN: Final = 0.5
"""Seconds after which a later deadline is sent to the guard at the latest."""
NEAR: Final = 5.0
"""Seconds. Where the deadline that the guard has is nearer than that, it is sent a later one
at once."""
LITTLE: Final = 0.1
"""Seconds by which the deadline of the loop that the guard has may be too early."""


def on_end(process: Popen[bytes], callback: Callable[[], None]) -> None:
    """Calls `callback` on the running loop once the process has ended. It is not reaped yet:
    `process.wait()` then returns at once. Never raises.
    """
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, a sandbox, no handle left
        _look(process, loop, callback)
        return

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        callback()

    loop.add_reader(handle, ended)


def _look(
    process: Popen[bytes], loop: asyncio.AbstractEventLoop, callback: Callable[[], None]
) -> None:
    """Looks every moment whether the process has ended."""
    try:
        if sys.platform == "linux":
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            has_ended = ended is not None
        else:
            has_ended = process.poll() is not None
    except ChildProcessError:  # other code of this process has reaped it
        has_ended = True
    if has_ended:
        loop.call_soon(callback)
    else:
        loop.call_later(LOOK_EVERY, _look, process, loop, callback)


def _guard() -> list[str]:
    """The guard, as Python takes it: its file, or its text where that is in an archive of modules.
    Raises OSError where it is no longer there.
    """
    if Path(guard.__file__).is_file():
        return [guard.__file__]
    return ["-c", inspect.getsource(guard)]


class Watch:
    """Keeps a guard running. Never raises: a missing guard is replaced, and meanwhile children
    still die with their worker, but not with a worker that stands still.

    The guard is sent later deadlines together, twice a second at the most. Until then it has an
    earlier one of the same child, so a worker that stands still loses its child a little early.
    """

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._sent: dict[int, float] = {}
        """The deadlines that the guard has."""
        self._sending: asyncio.TimerHandle | None = None
        self._killed: set[int] = set()
        self._guard: subprocess.Popen[bytes] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self._gone.set()

    @property
    def guard(self) -> int | None:
        """The process id of the guard, or None."""
        return self._guard.pid if self._guard is not None else None

    def begin(self) -> None:
        """Starts the guard, so that it is ready when the first child starts."""
        if self._guard is None and self._retry is None:
            self._start()

    def keep(self, pid: int, deadline: float = math.inf) -> None:
        """Lets a child run until `deadline`, in monotonic seconds."""
        self._deadlines[pid] = deadline
        if self._guard is None:
            self.begin()
            return
        loop, sent = asyncio.get_running_loop(), self._sent.get(pid)
        if pid == guard.LOOP:
            # A busy worker beats with each batch of claims: it would keep the guard busy, too.
            if sent is None or not sent <= deadline < sent + LITTLE:
                self._send({pid: deadline})
        elif sent is None or deadline < sent or sent < loop.time() + NEAR:
            self._send({pid: deadline})
        elif self._sending is None:
            self._sending = loop.call_later(SEND_WITHIN, self._send_all)

    def forget(self, pid: int) -> bool:
        """Drops a child that has ended but is not reaped. Returns whether the guard killed it."""
        self._read_killed()
        self._deadlines.pop(pid, None)
        self._sent.pop(pid, None)
        self._send_lines(f"{pid}\n")
        killed = pid in self._killed
        self._killed.discard(pid)
        return killed

    async def close(self) -> None:
        """Ends the guard, and with it any child that is left."""
        self._deadlines.clear()
        for timer in (self._retry, self._sending):
            if timer is not None:
                timer.cancel()
        self._retry = self._sending = None
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
        await self._await_end()
        if self._guard is not None:
            self._guard.kill()
            await self._await_end()

    async def _await_end(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WITHIN):
                await self._gone.wait()

    def _start(self) -> None:
        self._retry = None
        try:
            process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                [executable(), "-I", "-S", *_guard()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except STARTING:
            self._start_later()
            return
        assert process.stdin is not None
        assert process.stdout is not None
        self._guard = process
        self._gone.clear()
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        on_end(process, self._ended)
        self._sent.clear()
        self._send(self._deadlines)

    def _send_all(self) -> None:
        self._sending = None
        self._send(self._deadlines)

    def _send(self, deadlines: Mapping[int, float]) -> None:
        self._sent.update(deadlines)
        self._send_lines("".join(f"{pid} {until!r}\n" for pid, until in deadlines.items()))

    def _start_later(self) -> None:
        self._retry = asyncio.get_running_loop().call_later(RESTART, self._start)

    def _send_lines(self, lines: str) -> None:
        if self._guard is None or self._guard.stdin is None or self._guard.stdin.closed:
            return
        data = lines.encode()
        try:
            written = self._guard.stdin.write(data)
        except BrokenPipeError:
            return  # it has died; `_ended` starts another, which gets all deadlines
        if written != len(data):
            self._guard.kill()  # it does not read

    def _read_killed(self) -> None:
        if self._guard is not None and self._guard.stdout is not None:
            while numbers := self._guard.stdout.read(65536):
                self._killed.update(int(pid) for pid in numbers.split())

    def _ended(self) -> None:
        self._read_killed()
        process, self._guard = self._guard, None
        assert process is not None
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._gone.set()
        if self._deadlines:
            self._start_later()
