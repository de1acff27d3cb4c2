"""Several workers on one SQLite file: a herd, their throughput, the way back after SIGKILL.

python -m benchmarks.fleet            all of it, in two minutes
python -m benchmarks.fleet --kills 5  so many kills, each of a worker with 40 runs [2]
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.boards import worker_on
from benchmarks.measure import Measured, tell
from blackboard.bench import RESOLVE, filled_board
from blackboard.clock import SystemChance, SystemClock
from blackboard.protocol.reading import BoardTable
from blackboard.stores import open_table
from blackboard.table import Etag, Op, Table
from blackboard.worker.membership import workers
from blackboard.worker.worker import Mode

BOARD = "blackboard"
HERD, HERD_OF = 1_000, 8
TOGETHER = 20_000
HELD = 40
STALE_AFTER = 10.0
PATIENCE = 120.0
JOBS = """
import asyncio
from blackboard import handler

@handler("bench-coroutine", every="8h")
async def coroutine(item, ctx):
    return {"ok": 1}

@handler("long", every="8h", stale_after="10s", timeout="1h")
async def long(item, ctx):
    await asyncio.sleep(3600 if ctx.fence == 1 else 0)
"""


def measured(kills: int) -> Iterator[Measured]:
    alone, herd = (asyncio.run(_herd(count)) for count in (1, HERD_OF))
    for percent in (50, 99):
        yield Measured(
            name=f"{HERD:,} at once, {HERD_OF} workers, p{percent}",
            value=herd[percent - 1],
            unit="s late",
            beside=alone[percent - 1],
            reference="1 worker",
        )
    one = together(1)
    for count in (2, 4):
        several = together(count)
        yield Measured(
            name=f"{count} processes",
            value=several.rate,
            unit="runs/s",
            beside=one.rate,
            reference="1 process",
        )
        yield Measured(
            name=f"a batch of {count} processes, p99",
            value=several.p99,
            unit="ms",
            beside=one.p99,
            reference="1 process",
        )
    back = sorted(taken for _ in range(kills) for taken in asyncio.run(_killed()))
    for percent in (50, 99):
        yield Measured(
            name=f"back after SIGKILL, {len(back)} runs, p{percent}",
            value=quantiles(back, n=100)[percent - 1],
            unit="s",
            beside=STALE_AFTER,
            reference="stale_after",
        )


# ---- a herd


async def _herd(count: int) -> list[float]:
    """Seconds from due to started, at each percent."""
    async with _folder() as folder, _opened(folder, create=True) as table:
        board = await _filled(table, 0, "bench-coroutine")
        with _workers(folder, count):
            await _until(board, lambda: _announced(board, count))
            await _filled(table, HERD, "bench-coroutine", due_in=timedelta(seconds=4))
            due = {item.id: item.slot async for item in board.items()}
            await _until(board, lambda: _have_run(board))
        starts = {item.id: item.start async for item in board.items()}
    late = [(start - due[name]).total_seconds() for name, start in starts.items() if start]
    return quantiles(late, n=100)


async def _announced(board: BoardTable, count: int) -> bool:
    return len(await workers(board)) == count


async def _have_run(board: BoardTable) -> bool:
    return all([item.runs == 1 async for item in board.items()])


# ---- throughput


@dataclass(frozen=True, slots=True)
class Together:
    """What several processes reached."""

    rate: float
    p99: float
    """Milliseconds of a batch, at 99 percent."""


def together(
    count: int, *, beside: Callable[[Path], AbstractContextManager[None]] = lambda _: nullcontext()
) -> Together:
    """So many processes work off one board; what goes on `beside` them is given its folder."""

    async def fill(folder: Path) -> None:
        async with _opened(folder, create=True) as table:
            await _filled(table, TOGETHER, "bench-coroutine")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(fill(folder))
        command = [sys.executable, "-m", "benchmarks.fleet", "--work", name]
        with beside(folder):
            started = [
                subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 - our own
                for _ in range(count)
            ]
            told = [json.loads(one.communicate()[0]) for one in started]
    taken = max(one["ended"] for one in told) - min(one["begun"] for one in told)
    batches = [took for one in told for took in one["batches"]]
    return Together(TOGETHER / taken, 1000 * quantiles(batches, n=100)[98])


async def _work(folder: Path) -> dict[str, Any]:
    """One worker of several, and how long each of its batches took."""
    batches: list[float] = []
    async with _opened(folder) as table:
        commit = table.commit

        async def timed(partition: str, ops: Sequence[Op]) -> list[Etag]:
            begun = time.monotonic()
            try:
                return await commit(partition, ops)
            finally:
                batches.append(time.monotonic() - begun)

        table.commit = timed  # type: ignore[method-assign]
        worker = worker_on(await _board(table), slots=100, cycle=timedelta(seconds=1))
        begun = time.monotonic()
        await worker.work(Mode.UNTIL_IDLE)
        return {"begun": begun, "ended": time.monotonic(), "batches": batches}


# ---- after SIGKILL


async def _killed() -> list[float]:
    """Seconds from the death of a worker until each of its runs is begun again by another."""
    async with _folder() as folder, _opened(folder, create=True) as table:
        board = await _filled(table, HELD, "long")
        with _workers(folder, 1, slots=HELD) as (first,):
            await _until(board, lambda: _have_begun(board, fence=1))
            with _workers(folder, 1, slots=HELD):
                await _until(board, lambda: _announced(board, 2))
                died = await table.now()
                first.send_signal(signal.SIGKILL)
                await _until(board, lambda: _have_begun(board, fence=2))
        return [(item.start - died).total_seconds() async for item in board.items() if item.start]


async def _have_begun(board: BoardTable, *, fence: int) -> bool:
    return all([item.fence == fence and bool(item.start) async for item in board.items()])


# ---- boards and workers


@asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "jobs.py").write_text(JOBS, encoding="utf-8")
        yield folder


@asynccontextmanager
async def _opened(folder: Path, *, create: bool = False) -> AsyncIterator[Table]:
    table = await open_table(str(folder / "blackboard.db"), SystemClock(), create=create)
    try:
        yield table
    finally:
        await table.close()


async def _board(table: Table) -> BoardTable:
    return await BoardTable.open(
        table, name=BOARD, clock=SystemClock(), chance=SystemChance(), resolve=RESOLVE
    )


async def _filled(
    table: Table, items: int, item_type: str, *, due_in: timedelta = timedelta(0)
) -> BoardTable:
    return await filled_board(
        table, BOARD, items, item_type=item_type, resolve=RESOLVE, due_in=due_in
    )


@contextmanager
def _workers(
    folder: Path, count: int, *, slots: int = 8
) -> Iterator[Sequence["subprocess.Popen[bytes]"]]:
    """Workers as a user starts them, until the end of the block."""
    options = ["--jobs", "jobs.py", "--cycle", "1s", "--slots", str(slots)]
    started = [
        subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", "blackboard", "worker", *options],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()


async def _until(board: BoardTable, holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():
            await board.clock.sleep(0.1)


if __name__ == "__main__":
    if "--work" in sys.argv:
        work = asyncio.run(_work(Path(sys.argv[sys.argv.index("--work") + 1])))
        sys.stdout.write(json.dumps(work))
    else:
        at = sys.argv.index("--kills") + 1 if "--kills" in sys.argv else 0
        tell(measured(int(sys.argv[at]) if at else 2))
