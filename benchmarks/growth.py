"""What grows with a board: commands and an idle worker on many items, beside the same on 1,000.

python -m benchmarks.growth             100,000 items
python -m benchmarks.growth 1000000     so many; a million takes some minutes to make
"""

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from benchmarks.boards import JOBS, board_on, file_in, new_board, opened
from benchmarks.measure import BLACKBOARD, best_of, report, waited
from blackboard.bench import Measurement
from blackboard.protocol.status import count, write_statistics
from blackboard.rules.status import OVERDUE_AFTER

FEW, MANY = 1_000, 100_000
TIMES = 3
LATE = 100
"""Items that are overdue."""
APART = timedelta(seconds=1)
LOOK = "a look of an idle worker"
COMMANDS: Sequence[Sequence[str]] = (
    ("why", "town-000500"),
    ("next", "town-000500"),
    ("run", "town-000500"),
    ("show", "--state", "overdue", "--limit", "100"),
    ("show", "--limit", "20"),
    ("status",),
    ("check",),
)
VERBS = {command[0] for command in COMMANDS}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement on a board of some size."""

    value: float
    unit: str


def measured(many: int) -> Iterator[Measurement]:
    """All of it on a large board, beside the same on a small one."""
    few = figures(FEW)
    for name, figure in figures(many).items():
        yield Measurement(
            name=f"{name}, {many:,} items",
            value=figure.value,
            unit=figure.unit,
            beside=few[name].value,
            reference=f"{FEW:,} items",
        )


def figures(items: int) -> dict[str, Figure]:
    """Each command; then a worker that runs what is due, and a look at the board after it."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = board_in(Path(name), items)
        for command in COMMANDS:
            taken = best_of(TIMES, partial(waited, folder, *command))
            found[" ".join(command)] = Figure(taken, "s")
        found["memory of a worker"] = Figure(_memory(folder), "MB")
        look = best_of(TIMES, lambda: asyncio.run(_look(folder)))
        found[LOOK] = Figure(1000 * look, "ms")
    return found


def board_in(folder: Path, items: int) -> Path:
    """A board whose items become ready one by one, the first of them overdue, as its coordinator
    has counted them.
    """
    (folder / "jobs.py").write_text(JOBS, encoding="utf-8")

    async def make() -> None:
        async with opened(file_in(folder)) as table:
            due_in = -OVERDUE_AFTER - LATE * APART
            board = await new_board(
                table, items, item_type="bench-coroutine", due_in=due_in, apart=APART
            )
            await write_statistics(board, await count(board, by="benchmark", term=1))

    asyncio.run(make())
    return folder


async def _look(folder: Path) -> float:
    """Seconds in which a worker sees that nothing is due."""
    async with opened(file_in(folder)) as table:
        board = await board_on(table)
        until = await table.now() - OVERDUE_AFTER
        begun = time.perf_counter()
        found = [one async for one in board.read_shard(0, until=until)]
        taken = time.perf_counter() - begun
        assert not found, "the worker has run what was due"
        return taken


def _memory(folder: Path) -> float:
    """The most that a worker holds, in MB, until it has run what is due."""
    worker = subprocess.Popen(  # noqa: S603 - our own
        [*BLACKBOARD, "worker", "--until-idle", "--jobs", "jobs.py"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    most = 0
    status = Path(f"/proc/{worker.pid}/status")
    while worker.poll() is None:
        if found := re.search(r"VmHWM:\s*(\d+) kB", status.read_text("ascii")):
            most = max(most, int(found[1]))
        time.sleep(0.01)
    assert worker.returncode == 0, "the worker has ended well"
    return most / 1024


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    report(measured(*sizes or [MANY]))
