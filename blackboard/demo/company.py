"""The demo's processes: two workers started, one killed, none left behind.

Each leads a session of its own, so Ctrl-C reaches the demo alone, which ends them. Should the demo
itself be killed, they end by themselves as soon as nothing is left to do.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from blackboard.demo.place import Place
from blackboard.errors import BlackboardError

_GRACE = 3.0
"""Seconds that a worker has to end when it is asked to."""


@dataclass(slots=True)
class Player:
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
        """As `kill -9` does, and as a machine that loses its power."""
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
class Company:
    """The workers of a demo."""

    place: Place
    players: list[Player] = field(default_factory=list)

    async def start(self, name: str) -> Player:
        """A worker, as anybody would start one."""
        log = self.place.folder / f"worker-{name}.log"
        with log.open("wb") as sink:
            process = await _blackboard(
                self.place, ["worker", "--until-idle"], stdout=sink.fileno(), stderr=sink.fileno()
            )
        self.players.append(Player(name, log, process))
        return self.players[-1]

    def name_of(self, owner: str) -> str:
        """What the demo calls a worker."""
        return next((f"{one.name} {one.pid}" for one in self.players if one.owns(owner)), owner)

    def check(self) -> None:
        """Raises BlackboardError when a worker has failed that nobody has killed."""
        for one in self.players:
            code = one.process.returncode
            if code not in {None, 0, -signal.SIGKILL}:
                raise BlackboardError(f"worker {one.name} ended with {code}: see {one.log}")


@asynccontextmanager
async def company(place: Place) -> AsyncIterator[Company]:
    """None of the workers outlives this, whatever happens."""
    workers = Company(place)
    try:
        yield workers
    finally:
        await asyncio.gather(*(one.end() for one in workers.players))


async def apply(place: Place) -> None:
    """`blackboard apply` in the demo's folder. Raises BlackboardError when it is refused."""
    pipe = asyncio.subprocess.PIPE
    process = await _blackboard(place, ["apply"], stdout=pipe, stderr=pipe)
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise BlackboardError(f"the demo's board cannot be made: {said.decode().strip()}")


async def _blackboard(
    place: Place, arguments: Sequence[str], *, stdout: int, stderr: int
) -> asyncio.subprocess.Process:
    """The command itself. Its store is said outright: the environment might name another."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "blackboard",
        "--config",
        str(place.settings),
        "--store",
        place.store,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=place.folder,
        start_new_session=True,
    )
