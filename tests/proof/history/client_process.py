"""Another process at a board: `client_process.py PATH`, which plays its part of several histories.

It says that it is ready, and then waits for one line on stdin for each history, so that all
processes begin together; it answers each with its operations, one JSON line.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from blackboard.model import whole_milliseconds
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening
from tests.proof.history.generate import CLIENTS, Making, clients_of, prepare, work
from tests.proof.history.model import Operation
from tests.proof.history.recorder import Recorder, of_this_host
from tests.support.clocks import START

PROCESSES = 4
HURRY = 100
"""Times as fast as the host's clock: leases of seconds end while a test looks on."""
WAIT = 30.0
"""Seconds that another's write is waited for."""


class HurryingClock:
    """One scale for all processes of a host, and a fast one."""

    def now(self) -> datetime:
        return whole_milliseconds(START + timedelta(seconds=self.monotonic()))

    def monotonic(self) -> float:
        return time.monotonic() * HURRY

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / HURRY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one process plays."""

    making: Making
    number: int

    @property
    def clients(self) -> range:
        each = CLIENTS // PROCESSES
        return range(self.number * each, (self.number + 1) * each)


async def play(table: SqliteTable, part: Part) -> list[Operation]:
    recorder = Recorder(tick=of_this_host(), with_etags=not part.making.faults)
    clients = await clients_of(
        [table], HurryingClock(), part.making, recorder, numbers=part.clients
    )
    await work(clients, part.making.amount // PROCESSES, lambda: None)
    return recorder.operations


async def make_by_processes(path: Path, makings: Sequence[Making]) -> list[list[Operation]]:
    """Histories of clients in processes of their own, at one SQLite file, one after another."""
    table = await opened(path)
    for making in makings:
        await prepare(table, HurryingClock(), making)
    await table.close()
    async with AsyncExitStack() as stack:
        processes = [await _started(path, stack) for _ in range(PROCESSES)]
        for process in processes:
            await _line(process)
        return [await _played(processes, making) for making in makings]


async def opened(path: Path) -> SqliteTable:
    return await SqliteTable.open(path, HurryingClock(), Opening(create=True, wait=WAIT))


async def _started(path: Path, stack: AsyncExitStack) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**26,
    )
    stack.push_async_callback(_ended, process)
    return process


async def _ended(process: asyncio.subprocess.Process) -> None:
    """It ends when its stdin does; whoever did not get that far is killed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), WAIT)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, "a process ended before its part"
    return line


async def _played(
    processes: Sequence[asyncio.subprocess.Process], making: Making
) -> list[Operation]:
    for number, process in enumerate(processes):
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(Part(making=making, number=number)) + b"\n")
        await process.stdin.drain()
    lines = await asyncio.gather(*(_line(process) for process in processes))
    return [one for line in lines for one in msgspec.json.decode(line, type=list[Operation])]


async def main(path: str) -> None:
    table = await opened(Path(path))
    _say(b"ready")
    try:
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            part = msgspec.json.decode(line, type=Part)
            _say(msgspec.json.encode(await play(table, part)))
    finally:
        await table.close()


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
