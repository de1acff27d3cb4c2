"""Several workers on one SQLite file: a herd, the claims they lose to each other, their throughput,
the way back after SIGKILL.

python -m benchmarks.fleet            all of it, in three minutes
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
from statistics import median, quantiles
from typing import Any, NamedTuple

from benchmarks.boards import JOBS, board_on, file_in, new_board, opened
from benchmarks.measure import BLACKBOARD, report
from blackboard.bench import Measurement, worker_on
from blackboard.cli.session import gc_seldom
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import LOCK, NEXT
from blackboard.protocol.members import workers
from blackboard.table import Conflict, Delete, Etag, Op
from blackboard.worker.membership import ANNOUNCE_SOON
from blackboard.worker.worker import Mode

HERD, HERD_OF = 1_000, 8
HERD_SLOTS = 8
MEETING = sum(ANNOUNCE_SOON) + 1.0
"""Seconds in which workers that have announced themselves get to know each other."""
APART = timedelta(milliseconds=20)
"""From one item to the next, where items are due one by one."""
TOGETHER = 20_000
ROUNDS = 3
"""Interleaved, of one, two and four processes; the medians are told."""
HELD = 40
STALE_AFTER = 10.0
PATIENCE = 120.0


def measured(kills: int) -> Iterator[Measurement]:
    alone, herd = (asyncio.run(_herd(count)) for count in (1, HERD_OF))
    for percent in (50, 99):
        yield Measurement(
            name=f"{HERD:,} at once, {HERD_OF} workers, p{percent}",
            value=herd.late[percent - 1],
            unit="s late",
            beside=alone.late[percent - 1],
            reference="1 worker",
        )
    one_by_one = asyncio.run(_herd(HERD_OF, apart=APART))
    for name, found in ((f"{HERD:,} at once", herd), ("one by one", one_by_one)):
        yield Measurement(
            name=f"{name}, {HERD_OF} workers, claims lost",
            value=found.lost,
            unit="batches",
            beside=found.claims,
            reference="batches of claims",
        )
    rounds = [{count: together(count) for count in (1, 2, 4)} for _ in range(ROUNDS)]
    rate, claims, releases = (
        {n: median(one[n][part] for one in rounds) for n in rounds[0]} for part in range(3)
    )
    for count in (2, 4):
        yield Measurement(
            name=f"{count} processes",
            value=rate[count],
            unit="runs/s",
            beside=rate[1],
            reference="1 process",
        )
        for kind, p99 in (("claims", claims), ("releases", releases)):
            yield Measurement(
                name=f"a batch of {kind}, {count} processes, p99",
                value=p99[count],
                unit="ms",
                beside=p99[1],
                reference="1 process",
            )
    back = sorted(taken for _ in range(kills) for taken in asyncio.run(_killed()))
    for percent in (50, 99):
        yield Measurement(
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
    async with _folder() as folder, opened(file_in(folder)) as table:
        board = await new_board(table, 0, item_type="bench-coroutine")
        command = [sys.executable, "-m", "benchmarks.fleet", "--herd", str(folder)]
        with _started(command, count) as processes:
            await _until(board, lambda: _announced(board, count))
            await board.clock.sleep(MEETING)
            due_in = timedelta(seconds=4)
            await new_board(table, HERD, item_type="bench-coroutine", due_in=due_in, apart=apart)
            due = {item.id: item.slot async for item in board.items()}
            await _until(board, lambda: _have_run(board))
            for one in processes:
                one.send_signal(signal.SIGTERM)
            answers = [json.loads(one.communicate()[0]) for one in processes]
        starts = {item.id: item.start async for item in board.items()}
    return Herd(
        late=quantiles(
            [(start - due[name]).total_seconds() for name, start in starts.items() if start], n=100
        ),
        claims=sum(len(one["claims"]) for one in answers),
        lost=sum(one["lost"] for one in answers),
    )


async def _announced(board: BoardTable, count: int) -> bool:
    return len(await workers(board)) == count


async def _have_run(board: BoardTable) -> bool:
    return all([item.runs == 1 async for item in board.items()])


# ---- throughput


class Together(NamedTuple):
    """The throughput of several processes."""

    rate: float
    claims: float
    """Milliseconds of a batch of claims, at 99 percent."""
    releases: float


def together(
    count: int, *, beside: Callable[[Path], AbstractContextManager[None]] = lambda _: nullcontext()
) -> Together:
    """So many processes work off one board; what goes on `beside` them is given its folder."""

    async def fill(folder: Path) -> None:
        async with opened(file_in(folder)) as table:
            await new_board(table, TOGETHER, item_type="bench-coroutine")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(fill(folder))
        command = [sys.executable, "-m", "benchmarks.fleet", "--work", name]
        with beside(folder), _started(command, count) as processes:
            answers = [json.loads(one.communicate()[0]) for one in processes]
    taken = max(one["ended"] for one in answers) - min(one["begun"] for one in answers)
    claims, releases = (
        1000 * quantiles([took for one in answers for took in one[kind]], n=100)[98]
        for kind in ("claims", "releases")
    )
    return Together(TOGETHER / taken, claims, releases)


async def _work(folder: Path, *, slots: int, mode: Mode) -> dict[str, Any]:
    """One worker of several: when it began, and ended its last run, how long each of its batches
    took, and how many claims were lost.
    """
    gc_seldom()  # as in a worker
    claims: list[float] = []
    releases: list[float] = []
    begun = ended = time.monotonic()
    lost = 0
    async with opened(file_in(folder)) as table:
        commit = table.commit

        async def timed(partition: str, ops: Sequence[Op]) -> list[Etag]:
            nonlocal ended, lost
            deleted = ops[0].key if isinstance(ops[0], Delete) else ""
            sent = time.monotonic()
            try:
                return await commit(partition, ops)
            except Conflict:
                lost += deleted.startswith(NEXT)
                raise
            finally:
                answered = time.monotonic()
                if deleted.startswith(NEXT):
                    claims.append(answered - sent)
                elif deleted.startswith(LOCK):
                    releases.append(answered - sent)
                    ended = answered

        table.commit = timed  # type: ignore[method-assign]
        worker = worker_on(await board_on(table), slots=slots, cycle=timedelta(seconds=1))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        begun = time.monotonic()
        await worker.work(mode)
    return {
        "begun": begun,
        "ended": ended,
        "claims": claims,
        "releases": releases,
        "lost": lost,
    }


# ---- after SIGKILL


async def _killed() -> list[float]:
    """Seconds from the death of a worker until each of its runs is begun again by another."""
    async with _folder() as folder, opened(file_in(folder)) as table:
        board = await new_board(table, HELD, item_type="long")
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


def _workers(
    folder: Path, count: int, *, slots: int
) -> AbstractContextManager[Sequence["subprocess.Popen[bytes]"]]:
    """Workers as a user starts them, until the end of the block."""
    options = ["--jobs", "jobs.py", "--cycle", "1s", "--slots", str(slots)]
    command = [*BLACKBOARD, "worker", *options]
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
        report(measured(int(sys.argv[at]) if at else 2))
