"""Several workers on one SQLite file: a herd, the claims they lose to each other, their throughput,
the way back after SIGKILL.

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
from blackboard.protocol.keys import NEXT
from blackboard.protocol.members import workers
from blackboard.protocol.reading import BoardTable
from blackboard.stores import open_table
from blackboard.table import Conflict, Etag, Op, Table
from blackboard.worker.membership import ANNOUNCE_AGAIN
from blackboard.worker.worker import Mode

BOARD = "blackboard"
HERD, HERD_OF = 1_000, 8
HERD_SLOTS = 8
MEETING = ANNOUNCE_AGAIN + 1.0
"""Seconds in which workers that have announced themselves get to know each other."""
APART = timedelta(milliseconds=20)
"""From one item to the next, where items are due one by one."""
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
            value=herd.late[percent - 1],
            unit="s late",
            beside=alone.late[percent - 1],
            reference="1 worker",
        )
    one_by_one = asyncio.run(_herd(HERD_OF, apart=APART))
    for name, found in ((f"{HERD:,} at once", herd), ("one by one", one_by_one)):
        yield Measured(
            name=f"{name}, {HERD_OF} workers, claims lost",
            value=found.lost,
            unit="batches",
            beside=found.claims,
            reference="batches of claims",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Herd:
    """How several workers have worked off items that were due at the same time, or one by one."""

    late: Sequence[float]
    """Seconds from due to started, at each percent."""
    claims: int
    """Batches of claims."""
    lost: int
    """Batches of claims that lost a race."""


async def _herd(count: int, *, apart: timedelta = timedelta(0)) -> Herd:
    async with _folder() as folder, _opened(folder, create=True) as table:
        board = await _filled(table, 0, "bench-coroutine")
        command = [sys.executable, "-m", "benchmarks.fleet", "--herd", str(folder)]
        with _started(command, count) as processes:
            await _until(board, lambda: _announced(board, count))
            await board.clock.sleep(MEETING)
            due_in = timedelta(seconds=4)
            await _filled(table, HERD, "bench-coroutine", due_in=due_in, apart=apart)
            due = {item.id: item.slot async for item in board.items()}
            await _until(board, lambda: _have_run(board))
            for one in processes:
                one.send_signal(signal.SIGTERM)
            told = [json.loads(one.communicate()[0]) for one in processes]
        starts = {item.id: item.start async for item in board.items()}
    return Herd(
        late=quantiles(
            [(start - due[name]).total_seconds() for name, start in starts.items() if start], n=100
        ),
        claims=sum(one["claims"] for one in told),
        lost=sum(one["lost"] for one in told),
    )


async def _announced(board: BoardTable, count: int) -> bool:
    return len(await workers(board)) == count


async def _have_run(board: BoardTable) -> bool:
    return all([item.runs == 1 async for item in board.items()])


# ---- throughput


@dataclass(frozen=True, slots=True)
class Together:
    """The throughput of several processes."""

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


async def _work(folder: Path, *, slots: int, mode: Mode) -> dict[str, Any]:
    """One worker of several: how long each of its batches took, and how many claims were lost."""
    batches: list[float] = []
    claims: list[bool] = []
    async with _opened(folder) as table:
        commit = table.commit

        async def timed(partition: str, ops: Sequence[Op]) -> list[Etag]:
            begun, is_lost = time.monotonic(), False
            try:
                return await commit(partition, ops)
            except Conflict:
                is_lost = True
                raise
            finally:
                batches.append(time.monotonic() - begun)
                if ops[0].key.startswith(NEXT):
                    claims.append(is_lost)

        table.commit = timed  # type: ignore[method-assign]
        worker = worker_on(await _board(table), slots=slots, cycle=timedelta(seconds=1))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        begun = time.monotonic()
        await worker.work(mode)
    return {
        "begun": begun,
        "ended": time.monotonic(),
        "batches": batches,
        "claims": len(claims),
        "lost": sum(claims),
    }


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


async def _filled(table: Table, items: int, item_type: str, **due: timedelta) -> BoardTable:
    return await filled_board(table, BOARD, items, item_type=item_type, resolve=RESOLVE, **due)


def _workers(
    folder: Path, count: int, *, slots: int
) -> AbstractContextManager[Sequence["subprocess.Popen[bytes]"]]:
    """Workers as a user starts them, until the end of the block."""
    options = ["--jobs", "jobs.py", "--cycle", "1s", "--slots", str(slots)]
    command = [sys.executable, "-m", "blackboard", "worker", *options]
    return _started(command, count, cwd=folder, stdout=subprocess.DEVNULL)


@contextmanager
def _started(
    command: Sequence[str], count: int, *, cwd: Path | None = None, stdout: int = subprocess.PIPE
) -> Iterator[Sequence["subprocess.Popen[bytes]"]]:
    """So many processes of one command, until the end of the block."""
    started = [
        subprocess.Popen(  # noqa: S603 - our own
            command, cwd=cwd, stdout=stdout, stderr=subprocess.DEVNULL
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
    if sys.argv[1:2] == ["--work"]:
        work = _work(Path(sys.argv[2]), slots=100, mode=Mode.UNTIL_IDLE)
        sys.stdout.write(json.dumps(asyncio.run(work)))
    elif sys.argv[1:2] == ["--herd"]:
        work = _work(Path(sys.argv[2]), slots=HERD_SLOTS, mode=Mode.FOREVER)
        sys.stdout.write(json.dumps(asyncio.run(work)))
    else:
        at = sys.argv.index("--kills") + 1 if "--kills" in sys.argv else 0
        tell(measured(int(sys.argv[at]) if at else 2))
