"""Runs in a second of one worker whose handler does nothing, on each store.

The reference is the same seven row writes a run, made beforehand and written in full batches with
no scheduler around them: what the store can do. So the ratio is the part of this that a worker
reaches. A second reference, for SQLite, is the same rows in bare SQL: what the file can do.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.boards import new_board, opened, work_off
from benchmarks.measure import report
from blackboard.bench import Measurement, Scratch, batches_of
from blackboard.clock import SystemClock
from blackboard.model import Outcome
from blackboard.table import Delete, Op
from blackboard.tables.base import checked
from blackboard.tables.sqlite_file import encode_row, in_file

SLOTS = (8, 100, 300)
ITEMS = 3_000


def measured() -> Iterator[Measurement]:
    for store in ("memory", "sqlite", "azurite"):
        floor = asyncio.run(_store_alone(store))
        for slots in SLOTS:
            yield Measurement(
                name=f"{store}, {slots} slots",
                value=asyncio.run(_worker(store, slots)),
                unit="runs/s",
                beside=floor,
                reference="the same rows, no scheduler",
            )
        if store == "sqlite":
            yield Measurement(
                name="sqlite, the rows alone",
                value=floor,
                unit="runs/s",
                beside=asyncio.run(_bare_sql()),
                reference="the same rows in bare SQL",
            )


async def _worker(store: str, slots: int) -> float:
    async with opened(store) as table:
        board = await new_board(table, ITEMS, item_type="bench-coroutine")
        begun = time.perf_counter()
        await work_off(board, slots=slots)
        taken = time.perf_counter() - begun
        done = [item.outcome async for item in board.items()]
        assert done == [Outcome.OK] * ITEMS, "every item has had its run"
        return ITEMS / taken


async def _store_alone(store: str) -> float:
    async with opened(store) as table:
        return (await Scratch(table, "blackboard", SystemClock()).rows_alone()).rate


async def _bare_sql() -> float:
    """The rows as text made beforehand; nothing is checked, decoded or merged."""
    async with opened("memory") as table:
        board = await new_board(table, ITEMS, item_type="bench-coroutine")
        batches = await batches_of(board, board.table.max_rows // 4)
    batched = [(_texts(claims), _texts(releases)) for claims, releases in batches]
    with TemporaryDirectory() as folder:
        file = sqlite3.connect(Path(folder) / "rows.db", isolation_level=None)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(
            "CREATE TABLE rows (part TEXT, key TEXT, etag INTEGER, boot TEXT, touched REAL,"
            " data TEXT, PRIMARY KEY (part, key)) WITHOUT ROWID"
        )
        begun = time.perf_counter()
        for pair in batched:
            for deleted, written in pair:
                file.execute("BEGIN IMMEDIATE")
                file.executemany("DELETE FROM rows WHERE part = ? AND key = ?", deleted)
                file.executemany("REPLACE INTO rows VALUES (?, ?, 1, '', 0.0, ?)", written)
                file.execute("COMMIT")
        taken = time.perf_counter() - begun
        file.close()
    return ITEMS / taken


def _texts(ops: Sequence[Op]) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    deleted = [("b", op.key) for op in ops if isinstance(op, Delete)]
    datas = zip(ops, checked("b", ops, time=in_file), strict=True)
    written = [("b", op.key, encode_row(data)) for op, data in datas if not isinstance(op, Delete)]
    return deleted, written


if __name__ == "__main__":
    report(measured())
