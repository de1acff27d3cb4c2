"""The worker processes of the demo: two are started, one is killed, none is left behind.

Each is the leader of a session of its own, so Ctrl-C reaches the demo alone, which ends them. If
the demo itself is killed, they end by themselves as soon as nothing is left to do.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from blackboard.demo.folder import DemoFolder
from blackboard.errors import BlackboardError

_GRACE = 3.0
"""Seconds that a worker has to end when it is asked to."""


@dataclass(slots=True)
class DemoWorker:
    """One worker process."""

    name: str
    log: Path
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    def owns(self, owner: str) -> bool:
        """Whether a worker named host:pid:boot nonce is this one."""
        return owner.split(":")[-2:-1] == [str(self.pid)]

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """What `kill -9` does, and a machine that loses its power."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        """Ask it to end, then make it."""
        if self.process.returncode is not None:
            return
        try:
            self.process.terminate()
            async with asyncio.timeout(_GRACE):
                await self.process.wait()
        except (TimeoutError, ProcessLookupError):
            return
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


@dataclass(slots=True)
class DemoWorkers:
    """The workers of a demo."""

    folder: DemoFolder
    workers: list[DemoWorker] = field(default_factory=list)

    async def start(self, name: str) -> DemoWorker:
        """Start `blackboard worker`."""
        log = self.folder.path / f"worker-{name}.log"
        with log.open("wb") as sink:
            process = await _blackboard(
                self.folder, ["worker", "--until-idle"], stdout=sink.fileno(), stderr=sink.fileno()
            )
        self.workers.append(DemoWorker(name, log, process))
        return self.workers[-1]

    def name_of(self, owner: str) -> str:
        """The short name of a worker."""
        return next((f"{one.name} {one.pid}" for one in self.workers if one.owns(owner)), owner)

    def check(self) -> None:
        """Raises BlackboardError when a worker has failed that was not killed."""
        for one in self.workers:
            code = one.process.returncode
            if code not in {None, 0, -signal.SIGKILL}:
                raise BlackboardError(f"worker {one.name} ended with {code}: see {one.log}")


@asynccontextmanager
async def demo_workers(folder: DemoFolder) -> AsyncIterator[DemoWorkers]:
    """The workers of a demo; all have ended when this ends."""
    workers = DemoWorkers(folder)
    try:
        yield workers
    finally:
        await asyncio.gather(*(one.end() for one in workers.workers))


async def apply(folder: DemoFolder) -> None:
    """`blackboard apply` in the demo's folder. Raises BlackboardError when it is refused."""
    pipe = asyncio.subprocess.PIPE
    process = await _blackboard(folder, ["apply"], stdout=pipe, stderr=pipe)
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise BlackboardError(f"the demo's board cannot be made: {said.decode().strip()}")


async def _blackboard(
    folder: DemoFolder, arguments: Sequence[str], *, stdout: int, stderr: int
) -> asyncio.subprocess.Process:
    """The command itself. The store is an option, because the environment might name another."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "blackboard",
        "--config",
        str(folder.settings),
        "--store",
        folder.store,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=folder.path,
        start_new_session=True,
    )
