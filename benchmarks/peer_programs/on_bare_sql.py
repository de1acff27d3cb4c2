"""Bare SQL: the rows of the runs of a worker, with texts made beforehand, and nothing else."""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.boards import new_board, opened
from blackboard.bench import batches_of
from blackboard.table import Delete, Insert, Op
from blackboard.tables.base import checked
from blackboard.tables.sqlite_file import encode_row, in_file

RUNS = 100
"""Runs whose claims, and then whose releases, share a transaction."""
DELETE = "DELETE FROM rows WHERE part = ? AND key = ?"
INSERT = "INSERT INTO rows VALUES (?, ?, 1, '', 0.0, ?)"
MERGE = "UPDATE rows SET etag = 1, data = json_patch(data, ?) WHERE part = ? AND key = ?"
Statement = tuple[str, tuple[str, ...]]


def statements(partition: str, ops: Sequence[Op]) -> Iterable[Statement]:
    for op, data in zip(ops, checked(partition, ops, time=in_file), strict=True):
        if isinstance(op, Delete):
            yield DELETE, (partition, op.key)
        elif isinstance(op, Insert):
            yield INSERT, (partition, op.key, encode_row(data))
        else:
            yield MERGE, (encode_row(data), partition, op.key)


def written_in(file: Path, batches: Iterable[Iterable[Statement]]) -> float:
    """Seconds for writing them."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        begun = time.perf_counter()
        for batch in batches:
            connection.execute("BEGIN IMMEDIATE")
            for statement in batch:
                connection.execute(*statement)
            connection.execute("COMMIT")
        return time.perf_counter() - begun


async def main(folder: Path, items: int) -> None:
    file = folder / "blackboard.db"
    async with opened(str(file)) as table:
        board = await new_board(table, items, item_type="bench-coroutine")
        batches = [
            list(statements(board.partition(""), ops))
            for pair in await batches_of(board, RUNS)
            for ops in pair
        ]
    sys.stdout.write(f"{written_in(file, batches)}\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
