"""How long people wait for the command line, against a Python that does nothing."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.boards import new_board, opened
from benchmarks.measure import BLACKBOARD, best_of, report, waited
from blackboard.bench import Measurement

TIMES = 7
SMALL, LARGE = 16, 10_000


def measured() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = {items: str(folder / f"{items}.db") for items in (SMALL, LARGE)}
        for items, store in stores.items():
            asyncio.run(_fill(store, items))
        commands = {
            "blackboard --help": ["--help"],
            f"blackboard show, {SMALL} items": ["--store", stores[SMALL], "show"],
            f"blackboard show, {LARGE:,} items": ["--store", stores[LARGE], "show"],
            f"blackboard why, {LARGE:,} items": ["--store", stores[LARGE], "why", "town-000000"],
        }
        nothing = _waited(folder, "-c", "pass", command=[sys.executable])
        for title, arguments in commands.items():
            yield Measurement(
                name=title,
                value=_waited(folder, *arguments),
                unit="ms",
                beside=nothing,
                reference="python -c pass",
            )


async def _fill(store: str, items: int) -> None:
    async with opened(store) as table:
        await new_board(table, items, item_type="bench-coroutine")


def _waited(folder: Path, *arguments: str, command: Sequence[str] = BLACKBOARD) -> float:
    """Milliseconds."""
    return best_of(TIMES, partial(waited, folder, *arguments, command=command)) * 1000


if __name__ == "__main__":
    report(measured())
