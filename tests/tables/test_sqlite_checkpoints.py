"""The log of a board's file is copied into it beside the commits, and does not grow for ever."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from blackboard.table import Insert
from blackboard.tables import sqlite_checkpoints
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening
from tests.support.clocks import ManualClock
from tests.support.sqlite_files import P, path, setting
from tests.support.stores import Run, rows_of

__all__ = ["path"]

LITTLE, GROWN, LONG = 8 << 10, 32 << 10, 512 << 10


@pytest.fixture(autouse=True)
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_checkpoints, "LITTLE", LITTLE)
    monkeypatch.setattr(sqlite_checkpoints, "GROWN", GROWN)
    monkeypatch.setattr(sqlite_checkpoints, "LONG", LONG)
    monkeypatch.setattr(sqlite_checkpoints, "TOO_LONG", LONG)


@pytest.fixture
def table(path: Path, run: Run) -> Iterator[SqliteTable]:
    table = run(SqliteTable.open(path, ManualClock(), Opening(create=True)))
    yield table
    run(table.close())


async def write(table: SqliteTable, name: str, *, rows: int = 15) -> None:
    """Writes some 80 KB, in one batch, and waits for a checkpoint that it begins."""
    await table.commit(P, [Insert(f"{name}-{n:03}", {"text": "x" * 1_000}) for n in range(rows)])
    thread = table._file._checkpoints._thread
    if thread is not None:
        thread.join()


def log_of(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def in_file(path: Path, copy: Path) -> int:
    """The rows that a file has without its log."""
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as other:
        (found,) = other.execute("SELECT count(*) FROM rows").fetchone()
    return int(found)


def test_a_log_that_has_grown_is_copied_by_another_connection(
    table: SqliteTable, path: Path, tmp_path: Path, run: Run
) -> None:
    run(write(table, "few", rows=1))
    assert in_file(path, tmp_path / "before.db") == 0
    run(write(table, "many"))
    assert in_file(path, tmp_path / "after.db") == 16
    assert run(setting(table, "wal_autocheckpoint")) == 0


@pytest.mark.parametrize(("left", "is_copied"), [(2 * GROWN, False), (GROWN, True)])
def test_a_log_is_copied_sooner_where_the_disk_has_little_left(
    table: SqliteTable,
    path: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    *,
    left: int,
    is_copied: bool,
) -> None:
    """The file has to grow by what it is copied."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=left))
    run(write(table, "few", rows=1))
    assert LITTLE < log_of(path) < GROWN
    assert bool(in_file(path, tmp_path / "copy.db")) is is_copied


def test_a_log_that_was_copied_to_its_end_is_begun_anew(
    table: SqliteTable, path: Path, run: Run
) -> None:
    for number in range(20):
        run(write(table, f"batch-{number:02}"))
        assert log_of(path) < LONG


def test_a_log_that_others_read_is_begun_anew_once_it_is_long(
    table: SqliteTable, path: Path, run: Run
) -> None:
    """A reader of an old state keeps the log from being copied to its end, as writers do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rows").fetchone()
        for number in range(18):
            run(write(table, f"read-{number:02}"))
        assert log_of(path) > LONG
        reader.execute("COMMIT")
        assert "MB: a process that reads the file" in table.trouble
        assert "keeps it from being begun anew, or did" in table.trouble
        run(write(table, "copied"))
        run(write(table, "begins anew"))
        assert log_of(path) < LONG
        assert table.trouble == ""
    assert len(run(rows_of(table, P))) == 20 * 15


def test_short_commands_beside_a_reader_copy_the_log(path: Path, run: Run) -> None:
    """It keeps the last one of them from copying the log at its close."""

    async def command(name: str) -> None:
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
        await table.commit(P, [Insert(name, {"text": "x" * 30_000})])
        await table.close()

    run(command("first"))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("SELECT count(*) FROM rows").fetchone()
        for number in range(40):
            run(command(f"{number}"))
        assert log_of(path) < LONG


def test_a_checkpoint_that_fails_leaves_commits_alone(
    table: SqliteTable, path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, wait: float) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(sqlite_checkpoints, "connect", refused)
        run(write(table, "first"))
        run(write(table, "second"))
    run(write(table, "third"))
    assert len(run(rows_of(table, P))) == 3 * 15


def test_a_log_whose_index_was_replaced_is_not_copied(
    table: SqliteTable, path: Path, tmp_path: Path, run: Run
) -> None:
    """Other processes may have begun it anew since, so the old index names wrong places."""
    run(write(table, "copied"))
    run(write(table, "few", rows=1))
    index = Path(f"{path}-shm")
    index.rename(tmp_path / "old")
    shutil.copy(tmp_path / "old", index)
    table._file._checkpoints._copy("PASSIVE")
    assert in_file(path, tmp_path / "copy.db") == 15


def test_a_closed_table_has_no_checkpoint_under_way(path: Path, run: Run) -> None:
    async def filled() -> None:
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
        await table.commit(P, [Insert(f"{n:03}", {"text": "x" * 1_000}) for n in range(90)])
        await table.close()

    run(filled())
    assert list(path.parent.iterdir()) == [path]
