"""Boards to measure on, and one worker to work them off."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from blackboard.assembly import WorkerSetup, assemble
from blackboard.bench import HANDLERS, RESOLVE, filled_board
from blackboard.board_worker import WorkerSettings, identity
from blackboard.cli.session import collect_seldom
from blackboard.cli.worker_log import subscriber
from blackboard.clock import SystemClock
from blackboard.protocol.reading import BoardTable
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.stores import open_table
from blackboard.subscribers import Events
from blackboard.table import Table
from blackboard.tables import azurite
from blackboard.worker.wake import CycleWake
from blackboard.worker.worker import Mode, Worker


@asynccontextmanager
async def new_table(store: str) -> AsyncIterator[Table]:
    """An empty table of a kind: "memory", "sqlite" or "azurite"; or of an address."""
    with ExitStack() as stack:
        if store == "azurite":
            url = stack.enter_context(azurite.start()).url
        elif store == "sqlite":
            url = f"sqlite:{stack.enter_context(TemporaryDirectory())}/blackboard.db"
        elif store == "memory":
            url = "memory:"
        else:
            url = store
        table = await open_table(url, SystemClock(), create=True)
        try:
            yield table
        finally:
            await table.close()


async def new_board(table: Table, items: int, *, item_type: str) -> BoardTable:
    """A board with so many items, all due, of a type of `blackboard.bench`."""
    return await filled_board(table, "blackboard", items, item_type=item_type, resolve=RESOLVE)


async def work_off(board: BoardTable, *, slots: int) -> None:
    """Runs all that is due, by one worker, with its log written as any worker's is."""
    collect_seldom()
    worker = worker_on(board, slots=slots)
    with Path(os.devnull).open("w", encoding="utf-8") as log:  # noqa: ASYNC230 - takes no time
        worker.events.subscribe(subscriber(board.clock, level=logging.INFO, stream=log))
        await worker.work(Mode.UNTIL_IDLE)


def worker_on(board: BoardTable, *, slots: int, cycle: timedelta = timedelta(seconds=60)) -> Worker:
    """A worker as the command line makes one."""
    process = ProcessRunner(idle=slots)
    settings = WorkerSettings(slots=slots, cycle=cycle)
    return assemble(
        board,
        WorkerSetup(
            settings=settings,
            events=Events(identity(board.chance)),
            inline=InlineRunner(),
            process=process,
            turning=process.turning,
        ),
        handlers=HANDLERS,
        wake=CycleWake(settings.cycle.total_seconds(), board.chance),
    )
