"""The worker's side of the guard: keeps one running while there are children, and tells it how
long each may run. Why there is a guard at all is said in `guard.py`.
"""

import asyncio
import math
import os
import subprocess
import sys
from typing import Final

from blackboard.runners import guard
from blackboard.runners.exits import when_ended

RESTART: Final = 0.2
"""Seconds until a guard that could not be started, or died, is followed by another."""


class Watch:
    """Never raises: a missing guard is replaced, and meanwhile children still die with their
    worker, only not with a worker that stands still.
    """

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._killed: set[int] = set()
        self._guard: subprocess.Popen[bytes] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self._gone.set()

    @property
    def guard(self) -> int | None:
        """The process id of the guard, while there is one."""
        return self._guard.pid if self._guard is not None else None

    def keep(self, pid: int, deadline: float = math.inf) -> None:
        """The child may run until `deadline`, in monotonic seconds."""
        self._deadlines[pid] = deadline
        if self._guard is None and self._retry is None:
            self._start()
        else:
            self._tell(f"{pid} {deadline!r}\n")

    def forget(self, pid: int) -> bool:
        """The child has ended and is about to be reaped. True when the guard had killed it."""
        self._hear()
        self._deadlines.pop(pid, None)
        self._tell(f"{pid}\n")
        killed = pid in self._killed
        self._killed.discard(pid)
        return killed

    async def close(self) -> None:
        """The guard ends, and with it any child that is left."""
        self._deadlines.clear()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
        await self._gone.wait()

    def _start(self) -> None:
        self._retry = None
        try:
            process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except OSError:
            self._start_later()
            return
        assert process.stdin is not None
        assert process.stdout is not None
        self._guard = process
        self._gone.clear()
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        when_ended(process, self._ended)
        self._tell("".join(f"{pid} {until!r}\n" for pid, until in self._deadlines.items()))

    def _start_later(self) -> None:
        self._retry = asyncio.get_running_loop().call_later(RESTART, self._start)

    def _tell(self, lines: str) -> None:
        if self._guard is None or self._guard.stdin is None or self._guard.stdin.closed:
            return
        data = lines.encode()
        try:
            written = self._guard.stdin.write(data)
        except BrokenPipeError:
            return  # it has died; `_ended` starts another, which is told everything
        if written != len(data):
            self._guard.kill()  # it does not listen

    def _hear(self) -> None:
        if self._guard is not None and self._guard.stdout is not None:
            while told := self._guard.stdout.read(65536):
                self._killed.update(int(pid) for pid in told.split())

    def _ended(self) -> None:
        self._hear()
        process, self._guard = self._guard, None
        assert process is not None
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._gone.set()
        if self._deadlines:
            self._start_later()
