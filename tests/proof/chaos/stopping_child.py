"""A process that overrides a stale lock, and stops itself (SIGSTOP) between its look at the lock
and its batch: `stopping_child.py STORE ITEM`. When it goes on, it prints the result: a fence, or 0.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import override
from blackboard.rules.due import is_stale
from tests.support.faults import FaultyTable
from tests.support.processes import Site


async def overrides(board: BoardTable, item_id: str) -> int:
    table = FaultyTable(board.table)
    board = board.using(table)
    while True:
        lock = await board.lock(item_id)
        assert lock is not None
        if is_stale(lock, resolution=table.resolution):
            break
        await asyncio.sleep(0.1)

    async def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    table.script(stop)
    taken = await override(board, lock, owner="stopped")
    return taken.fence if taken else 0


if __name__ == "__main__":
    _, store, item_id = sys.argv
    got = Site(Path.cwd(), store).run(lambda board: overrides(board, item_id))
    sys.stdout.write(f"{got}\n")
