"""Runs in a second of one worker whose handler does nothing, on each store.

The reference is the same seven row writes a run, made beforehand and written in full batches with
no scheduler around them: what the store can do. So the ratio is the part of it that is left. A
second reference, for SQLite, is the same rows in bare SQL: what the file can do.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.boards import new_board, new_table, work_off
from benchmarks.measure import Measured, tell
from blackboard.model import Claim, Item, Outcome, Token, replace
from blackboard.protocol.batches import claim_ops, lock_of, release_ops
from blackboard.protocol.reading import BoardTable
from blackboard.rules.transitions import claimed, released, run_of
from blackboard.spec import Spec, resolve
from blackboard.table import ANY, Delete, Op
from blackboard.tables.sqlite_file import encode_row

SLOTS = (8, 100, 300)
ITEMS = 3_000


def measured() -> Iterator[Measured]:
    for store in ("memory", "sqlite", "azurite"):
        floor = asyncio.run(_store_alone(store))
        for slots in SLOTS:
            yield Measured(
                name=f"{store}, {slots} slots",
                value=asyncio.run(_worker(store, slots)),
                unit="runs/s",
                beside=floor,
                reference="the same rows, no scheduler",
            )
        if store == "sqlite":
            yield Measured(
                name="sqlite, the rows alone",
                value=floor,
                unit="runs/s",
                beside=asyncio.run(_bare_sql()),
                reference="the same rows in bare SQL",
            )


async def _worker(store: str, slots: int) -> float:
    async with new_table(store) as table:
        board = await new_board(table, ITEMS, item_type="coroutine")
        begun = time.perf_counter()
        await work_off(board, slots=slots)
        taken = time.perf_counter() - begun
        done = [item.outcome async for item in board.items()]
        assert done == [Outcome.OK] * ITEMS, "every item has had its run"
        return ITEMS / taken


async def _store_alone(store: str) -> float:
    async with new_table(store) as table:
        board = await new_board(table, ITEMS, item_type="coroutine")
        batches = await _batches(board)
        begun = time.perf_counter()
        for batch in batches:
            await table.commit(board.partition(""), batch.claims)
            await table.commit(board.partition(""), batch.releases)
        return ITEMS / (time.perf_counter() - begun)


SETTINGS = resolve([Spec(every="8h")])


@dataclass(frozen=True, slots=True)
class _Batch:
    claims: Sequence[Op]
    releases: Sequence[Op]


async def _batches(board: BoardTable) -> list[_Batch]:
    """What a worker would write, with ANY for the etags that it would learn on the way."""
    now = await board.table.now()
    tokens = [one async for one in board.walk(0, until=now) if isinstance(one, Token)]
    items = {item.id: item async for item in board.items()}
    batches = []
    size = board.table.max_rows // 4  # a release has four rows
    for start in range(0, ITEMS, size):
        claims: list[Op] = []
        releases: list[Op] = []
        for token in tokens[start : start + size]:
            written, let_go = _run_of(token, items[token.id], now)
            claims += written
            releases += let_go
        batches.append(_Batch(claims, releases))
    return batches


def _run_of(token: Token, item: Item, now: datetime) -> tuple[list[Op], list[Op]]:
    held = claimed(item, settings=SETTINGS, owner="host:1:00000000", now=now)
    lock = lock_of(held, nonce="0" * 32, stale_after=28_800.0)
    claim = Claim(item=replace(held, etag=ANY), lock=replace(lock, etag=ANY), sent=0.0)
    run = run_of(held, Outcome.OK, now=now, nonce=lock.nonce, result='{"ok":1}')
    after = released(held, run, settings=SETTINGS, fraction=0.0)
    return claim_ops(token, claim), release_ops(claim, after, run)


async def _bare_sql() -> float:
    """The rows as text made beforehand; nothing is checked, decoded or merged."""
    async with new_table("memory") as table:
        board = await new_board(table, ITEMS, item_type="coroutine")
        batches = await _batches(board)
    batched = [(_texts(one.claims), _texts(one.releases)) for one in batches]
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
    written = [("b", op.key, encode_row(op.data)) for op in ops if not isinstance(op, Delete)]
    return deleted, written


if __name__ == "__main__":
    tell(measured())
