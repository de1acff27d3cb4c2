"""Plain functions: through the warm child processes of a worker, against a process for each job."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.boards import new_board, opened, work_off
from benchmarks.measure import report, seconds
from blackboard.bench import Measurement

ITEMS = 20_000
ALONE = 30
SLOTS = 8


def measured() -> Iterator[Measurement]:
    warm = asyncio.run(_worker())
    jobs = {
        "subprocess.run(python -c pass)": [sys.executable, "-c", "pass"],
        "subprocess.run(true)": ["true"],
    }
    for reference, command in jobs.items():
        yield Measurement(
            name=f"a worker with {SLOTS} slots, memory",
            value=warm,
            unit="runs/s",
            beside=ALONE / seconds(lambda: _one_each(command)),  # noqa: B023 - called at once
            reference=reference,
        )


async def _worker() -> float:
    async with opened("memory") as table:
        board = await new_board(table, ITEMS, item_type="bench-function")
        begun = time.perf_counter()
        await work_off(board, slots=SLOTS)
        return ITEMS / (time.perf_counter() - begun)


def _one_each(command: list[str]) -> None:
    for _ in range(ALONE):
        subprocess.run(command, check=True)  # noqa: S603 - our own words


if __name__ == "__main__":
    report(measured())
