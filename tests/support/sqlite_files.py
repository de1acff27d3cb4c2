"""Filling, locking and damaging a board's file, and reaching it without rights."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from blackboard.table import Insert
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening
from tests.support.clocks import ManualClock
from tests.support.stores import Run

P = "town"
CHILD = Path(__file__).with_name("sqlite_child.py")
"""A program that uses a file beside a test."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "blackboard.db"


@pytest.fixture
def table(path: Path, clock: ManualClock, run: Run) -> Iterator[SqliteTable]:
    """A store that is open, and does not wait for long for another process."""
    table = run(SqliteTable.open(path, clock, Opening(create=True, wait=0.05)))
    yield table
    run(table.close())


def fill(run: Run, path: Path, rows: int = 2_000) -> None:
    """Makes a board with some hundred pages, and closes it."""

    async def filled() -> None:
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
        for start in range(0, rows, 500):
            keys = [f"k{number:05}" for number in range(start, start + 500)]
            await table.commit(P, [Insert(key, {"text": "x" * 200}) for key in keys])
        await table.close()

    run(filled())


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Holds the write lock of a file, as another program."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def setting(table: SqliteTable, name: str) -> Any:
    file = table._file
    (value,) = await table._thread.call(
        lambda: file._connection.execute(f"PRAGMA {name}").fetchone()
    )
    return value


def damage(path: Path, start: int, garbage: bytes) -> None:
    """Overwrites a part of a file."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(garbage)


@contextmanager
def powerless() -> Iterator[None]:
    """As a user who owns nothing here; root would be refused nothing."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
