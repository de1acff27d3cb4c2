"""Runs in a second of one worker whose handler does nothing, on each store.

The reference is the same seven row writes a run, made beforehand and written in full batches with
no scheduler around them: what the store can do. So the ratio is the part of it that is left. A
second reference, for SQLite, is the same rows in bare SQL: what the file can do.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.boards import new_board, new_table, work_off
from benchmarks.measure import Measured, tell
from blackboard.model import Item, Outcome, Run, Token
from blackboard.protocol.batches import claim_ops, held, release_ops
from blackboard.protocol.reading import BoardTable
from blackboard.table import ANY, Delete, Op
from blackboard.tables import rowtext

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
    claim = replace(
        held(item),
        fence=1,
        owner="host:1:00000000",
        nonce="0" * 32,
        start=now,
        stale_after=28_800.0,
        lock_etag=ANY,
        item_etag=ANY,
    )
    later = now + timedelta(hours=8)
    after = replace(
        item,
        fence=1,
        runs=1,
        stop=now,
        outcome=Outcome.OK,
        result='{"ok":1}',
        result_fence=1,
        slot=later,
        ready=later,
        planned=later,
    )
    run = Run(
        id=item.id,
        type=item.type,
        fence=1,
        attempt=1,
        slot=item.slot,
        start=now,
        stop=now,
        lag=0.0,
        outcome=Outcome.OK,
        worker=claim.owner,
        nonce=claim.nonce,
        result='{"ok":1}',
    )
    claims = claim_ops(token, claim, schedule="every 8h", timezone="UTC")
    return claims, release_ops(claim, after, run)


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
    written = [("b", op.key, rowtext.encode(op.data)) for op in ops if not isinstance(op, Delete)]
    return deleted, written


if __name__ == "__main__":
    tell(measured())
