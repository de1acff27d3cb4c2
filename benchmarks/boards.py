"""Boards to measure on, and one worker to work them off."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from blackboard.bench import RESOLVE, filled_board, worker_on
from blackboard.cli.session import gc_seldom
from blackboard.cli.worker_log import subscriber
from blackboard.clock import SystemChance, SystemClock
from blackboard.protocol.board_table import BoardTable
from blackboard.stores import open_table
from blackboard.table import Table
from blackboard.worker.worker import Mode

BOARD = "blackboard"
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
"""The file jobs.py of a worker that is a process."""


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[Table]:
    """The table at an address, made if it is missing."""
    table = await open_table(store, SystemClock(), create=True)
    try:
        yield table
    finally:
        await table.close()


def file_in(folder: Path) -> str:
    """The board that a command finds in a folder."""
    return str(folder / "blackboard.db")


async def new_board(table: Table, items: int, *, item_type: str, **due: timedelta) -> BoardTable:
    """A board with so many items of a type of `blackboard.bench`, due as `filled_board` says."""
    return await filled_board(table, BOARD, items, item_type=item_type, **due)


async def board_on(table: Table) -> BoardTable:
    """The board that is there."""
    clock, chance = SystemClock(), SystemChance()
    return await BoardTable.open(table, name=BOARD, clock=clock, chance=chance, resolve=RESOLVE)


async def work_off(board: BoardTable, *, slots: int) -> None:
    """Runs all that is due, by one worker, with its log written as any worker's is."""
    gc_seldom()
    worker = worker_on(board, slots=slots)
    with Path(os.devnull).open("w", encoding="utf-8") as log:  # noqa: ASYNC230 - takes no time
        worker.events.subscribe(subscriber(board.clock, level=logging.INFO, stream=log))
        await worker.work(Mode.UNTIL_IDLE)
