"""Blackboard on SQLite: `default`, or `durable`, which flushes each commit."""

import asyncio
import sys
import time
from pathlib import Path

from benchmarks.boards import new_board, opened, work_off


async def main(folder: Path, items: int, setting: str) -> None:
    options = "?synchronous=full" if setting == "durable" else ""
    address = f"sqlite:{folder / 'blackboard.db'}{options}"
    async with opened(address) as table:
        board = await new_board(table, items, item_type="bench-coroutine")
        begun = time.perf_counter()
        await work_off(board, slots=100)
        sys.stdout.write(f"{time.perf_counter() - begun}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
