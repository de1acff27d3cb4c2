"""Boards to measure on, and one worker to work them off."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from blackboard.assembly import WorkerSettings, assemble, identity
from blackboard.board import Board
from blackboard.cli.logs import subscriber
from blackboard.clock import SystemChance, SystemClock
from blackboard.events import Events
from blackboard.model import Item, State
from blackboard.registry import load
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec, encode_spec
from blackboard.stores import open_table
from blackboard.table import Op, Table
from blackboard.verbs.batches import add_ops
from blackboard.wake import CycleWake
from blackboard.worker import Mode

HANDLERS = load(["jobs.py"], Path(__file__).parent)
FEEDS = [f"https://example.org/feed-{number}.ics" for number in range(3)]
SPEC = encode_spec(Spec(every="8h", params={"feeds": FEEDS, "out": "out"}))


@asynccontextmanager
async def new_table(store: str) -> AsyncIterator[Table]:
    """An empty table of a kind: "memory" or "sqlite"."""
    with TemporaryDirectory() as folder:
        url = "memory:" if store == "memory" else f"sqlite:{folder}/blackboard.db"
        table = await open_table(url, SystemClock(), create=True)
        try:
            yield table
        finally:
            await table.close()


async def new_board(table: Table, items: int, *, item_type: str) -> Board:
    """A board with so many items, all due."""
    board = await Board.create(
        table,
        name="blackboard",
        shards=1,
        clock=SystemClock(),
        chance=SystemChance(),
        resolve=resolver(Settings(), HANDLERS),
    )
    now = await table.now()
    ops: list[Op] = []
    for number in range(items):
        ready = now - timedelta(milliseconds=items - number)
        item = Item(
            id=f"town-{number:06d}",
            type=item_type,
            state=State.ACTIVE,
            spec=SPEC,
            slot=ready,
            ready=ready,
            planned=ready,
            schedule="every 8h",
        )
        ops += add_ops(item, over=None)
    for start in range(0, len(ops), table.max_rows):
        await table.commit(board.partition(""), ops[start : start + table.max_rows])
    return board


async def work_off(board: Board, *, slots: int) -> None:
    """All that is due, by one worker, with its log written as any worker's is."""
    process = ProcessRunner(idle=slots)
    settings = WorkerSettings(slots=slots)
    events = Events("benchmark")
    with Path(os.devnull).open("w", encoding="utf-8") as log:  # noqa: ASYNC230 - takes no time
        events.subscribe(subscriber(board.clock, level=logging.INFO, stream=log))
        worker = assemble(
            board,
            owner=identity(board.chance),
            settings=settings,
            handlers=HANDLERS,
            job_settings={},
            events=events,
            wake=CycleWake(settings.cycle.total_seconds()),
            inline=InlineRunner(),
            process=process,
            turning=process.turning,
        )
        await worker.work(Mode.UNTIL_IDLE)
