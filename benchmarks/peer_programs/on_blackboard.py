"""Blackboard on SQLite: `default`, or `durable`, which flushes each commit."""

import asyncio
import sys
import time
from pathlib import Path

from benchmarks.boards import new_board, work_off
from blackboard.clock import SystemClock
from blackboard.stores import open_table


async def main(folder: Path, items: int, setting: str) -> None:
    options = "?synchronous=full" if setting == "durable" else ""
    address = f"sqlite:{folder / 'blackboard.db'}{options}"
    table = await open_table(address, SystemClock(), create=True)
    try:
        board = await new_board(table, items, item_type="bench-coroutine")
        begun = time.perf_counter()
        await work_off(board, slots=100)
        sys.stdout.write(f"{time.perf_counter() - begun}\n")
    finally:
        await table.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
