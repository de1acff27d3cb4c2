"""Instructions of the processor that a run takes, counted by valgrind's callgrind.

Unlike seconds they hardly differ from one counting to the next, so a change of a tenth is a change
of the program. The table is in memory: what is counted is the worker.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.boards import new_board, opened, work_off
from benchmarks.measure import report
from blackboard.bench import Measurement

FEW, MANY = 100, 500
"""Runs of two countings: their difference leaves out what a worker does only once."""
SLOTS = (8, 100)


class NoValgrind(Exception):
    """It is not installed."""


def measured() -> Iterator[Measurement]:
    """Raises NoValgrind."""
    counts = {slots: a_run(slots) for slots in SLOTS}
    for slots, count in counts.items():
        yield Measurement(
            name=f"a run of a coroutine, {slots} slots",
            value=count,
            unit="instructions",
            beside=counts[SLOTS[-1]],
            reference=f"{SLOTS[-1]} slots",
        )


def a_run(slots: int) -> float:
    """The instructions of one run more. Raises NoValgrind."""
    few, many = (_counted(runs, slots) for runs in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _counted(runs: int, slots: int) -> int:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NoValgrind("no valgrind is found (on Debian: apt-get install valgrind)")
    words = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
    done = subprocess.run(  # noqa: S603 - our own words
        [*words, "-m", "benchmarks.instructions", "--work", str(runs), str(slots)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


async def _work(runs: int, slots: int) -> None:
    async with opened("memory:") as table:
        board = await new_board(table, runs, item_type="bench-coroutine")
        await work_off(board, slots=slots)


if __name__ == "__main__":
    if "--work" in sys.argv:
        asyncio.run(_work(*map(int, sys.argv[-2:])))
    else:
        report(measured())
