"""How long people wait for the command line, against a Python that does nothing."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.boards import new_board
from benchmarks.measure import Measured, best_of, seconds, tell
from blackboard.clock import SystemClock
from blackboard.stores import open_table

TIMES = 7
SMALL, LARGE = 16, 10_000


def measured() -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        for items in (SMALL, LARGE):
            asyncio.run(_board(_store(folder, items), items))
        commands = {
            "blackboard --help": ["--help"],
            f"blackboard show, {SMALL} items": ["--store", _store(folder, SMALL), "show"],
            f"blackboard show, {LARGE:,} items": ["--store", _store(folder, LARGE), "show"],
            f"blackboard why, {LARGE:,} items": [
                "--store",
                _store(folder, LARGE),
                "why",
                "town-000000",
            ],
        }
        nothing = _waited([sys.executable, "-c", "pass"], folder)
        for name, arguments in commands.items():
            yield Measured(
                name=name,
                value=_waited([sys.executable, "-m", "blackboard", *arguments], folder),
                unit="ms",
                beside=nothing,
                reference="python -c pass",
            )


def _store(folder: str, items: int) -> str:
    return str(Path(folder) / f"{items}.db")


async def _board(store: str, items: int) -> None:
    table = await open_table(store, SystemClock(), create=True)
    try:
        await new_board(table, items, item_type="bench-coroutine")
    finally:
        await table.close()


def _waited(command: Sequence[str], folder: str) -> float:
    """Milliseconds from start to end, output included."""

    def once() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)  # noqa: S603

    return best_of(TIMES, lambda: seconds(once)) * 1000


if __name__ == "__main__":
    tell(measured())
