"""A board in a file when the disk is full, or the file damaged, cut short or removed."""

import asyncio
import os
import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from blackboard.errors import StoreProblem
from blackboard.table import (
    ANY,
    Busy,
    Conflict,
    ConflictKind,
    Delete,
    Insert,
    Merge,
    Replace,
    Replaced,
    Row,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.tables import sqlite_checkpoints
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_file import Batch, encode_row
from blackboard.tables.sqlite_open import Opening, answer, connect
from tests.support.clocks import ManualClock
from tests.support.sqlite_files import P, damage, fill, path, powerless, setting, table
from tests.support.stores import Run, rows_of

__all__ = ["path", "table"]


# --- a full disk


@pytest.mark.case("DF02", on="sqlite")
def test_a_full_disk_refuses_whole_batches_until_there_is_room(
    table: SqliteTable, run: Run
) -> None:
    run(table.commit(P, [Insert("a", {"n": 1})]))
    pages = run(setting(table, "page_count"))
    run(setting(table, f"max_page_count = {pages + 3}"))
    big = [Insert(f"k{number}", {"text": "x" * 30_000}) for number in range(10)]
    with pytest.raises(Unavailable, match="full"):
        run(table.commit(P, [Merge("a", {"n": 2}, ANY), *big]))
    assert [dict(row.data) for row in run(rows_of(table, P))] == [{"n": 1}]
    run(setting(table, "max_page_count = 10000"))
    run(table.commit(P, [Merge("a", {"n": 2}, ANY), *big]))
    assert len(run(rows_of(table, P))) == 11
    assert run(table.integrity()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def write_until_full(table: SqliteTable) -> int:
    """How many batches of three rows were acknowledged."""
    for number in range(1_000):
        batch = [Insert(f"{number:04}.{part}", {"text": "x" * 9_000}) for part in range(3)]
        try:
            await table.commit(P, batch)
        except Unavailable:
            return number
    raise AssertionError("the disk is never full")


@pytest.mark.case("DF02", on="sqlite")
def test_df02_a_disk_that_fills_up_loses_nothing_acknowledged(small_disk: Path, run: Run) -> None:
    async def story() -> None:
        table = await SqliteTable.open(small_disk / "b.db", ManualClock(), Opening(create=True))
        filler = small_disk / "filler"
        filler.write_bytes(b"x" * 400_000)
        written = await write_until_full(table)
        assert written > 0
        assert len(await rows_of(table, P)) == 3 * written
        assert f"the disk of {small_disk} has 0." in table.trouble
        filler.unlink()
        await table.commit(P, [Insert("after", {"n": 1})])
        assert len(await rows_of(table, P)) == 3 * written + 1
        assert await table.integrity() == []
        await table.close()

    run(story())


def test_on_a_full_disk_the_log_is_begun_anew_in_the_room_that_it_has(
    small_disk: Path, run: Run
) -> None:
    """It is too short for a checkpoint by its growth, and others take what becomes free. The rows
    do not grow: the file has no room for that.
    """

    async def numbered() -> None:
        table = await SqliteTable.open(small_disk / "b.db", ManualClock())
        await table.commit(P, [Merge(f"k{key:05}", {"n": 100}, ANY) for key in range(20)])
        await table.close()

    def fill_up() -> None:
        with suppress(OSError), (small_disk / "filler").open("ab", buffering=0) as filler:
            while filler.write(b"x" * 4_096):
                pass

    async def story() -> None:
        table = await SqliteTable.open(small_disk / "b.db", ManualClock())
        for number in range(150):
            if number >= 20:
                fill_up()
            keys = [f"k{key:05}" for key in range(1 + number % 20)]
            await table.commit(P, [Merge(key, {"n": 100 + number}, ANY) for key in keys])
        found = [row.data.get("n") for row in await rows_of(table, P)]
        assert found[:20] == [249] * 10 + [239] * 10
        assert await table.integrity() == []
        await table.close()

    fill(run, small_disk / "b.db", rows=500)
    run(numbered())
    run(story())


def test_on_a_full_disk_room_is_made_once_for_the_commits_that_wait_together(
    table: SqliteTable, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a reader each try lasts a tenth of a second, and renewals wait for it."""
    opened = list[Path]()

    def connected(path: Path, wait: float) -> sqlite3.Connection:
        opened.append(path)
        return connect(path, wait)

    monkeypatch.setattr(sqlite_checkpoints, "connect", connected)
    run(table.commit(P, [Insert("a", {"n": 1})]))
    run(setting(table, f"max_page_count = {run(setting(table, 'page_count'))}"))
    data: dict[str, Any] = {"text": "x" * 9_000}
    batches = [Batch(P, [Insert(f"k{number}", data)], [encode_row(data)]) for number in range(8)]
    answers = run(table._thread.call(lambda: table._file.apply(batches)))
    assert [type(answer) for answer in answers] == [Unusable] * 8
    assert len(opened) == 1


def test_a_batch_that_fails_among_its_writes_leaves_nothing_and_the_others_alone(
    table: SqliteTable, path: Path, run: Run
) -> None:
    run(table.commit(P, [Insert("a", {"n": 1}), Insert("b", {"n": 1})]))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(
            "CREATE TRIGGER poison BEFORE INSERT ON rows WHEN NEW.key = 'z' "
            "BEGIN SELECT RAISE(ABORT, 'poisoned'); END"
        )
    before = run(rows_of(table, P))
    with pytest.raises(Unavailable, match="poisoned"):
        run(table.commit(P, [Delete("a", ANY), Merge("b", {"n": 2}, ANY), Insert("z", {"n": 1})]))
    assert run(rows_of(table, P)) == before

    async def together() -> list[object]:
        keys = ("c", "d", "z", "e")
        commits = [table.commit(P, [Insert(key, {"n": 1})]) for key in keys]
        return await asyncio.gather(*commits, return_exceptions=True)

    answers = run(together())
    assert [isinstance(one, Unavailable) for one in answers] == [False, False, True, False]
    assert [row.key for row in run(rows_of(table, P))] == ["a", "b", "c", "d", "e"]
    run(table.commit(P, [Delete("a", ANY)]))


# --- damage


async def rows_of_file(path: Path) -> list[Row]:
    table = await SqliteTable.open(path, ManualClock())
    try:
        return await rows_of(table, P)
    finally:
        await table.close()


@pytest.mark.case("CR04", on="sqlite")
def test_cr04_a_file_damaged_at_work_is_unavailable(path: Path, run: Run) -> None:
    fill(run, path)
    table = run(SqliteTable.open(path, ManualClock()))
    size = path.stat().st_size
    damage(path, 3 * 4096, bytes(range(256)) * ((size - 3 * 4096) // 256))
    with pytest.raises(Unavailable, match=r"blackboard\.db is damaged.*restore a copy"):
        run(rows_of(table, P))
    with pytest.raises(Unavailable, match="damaged"):
        run(table.commit(P, [Merge(f"k{number:05}", {"n": 1}, ANY) for number in range(900)]))
    assert run(table.integrity()) != []
    run(table.close())


@pytest.mark.case("CR04", on="sqlite")
def test_cr04_a_file_cut_short_at_work_is_unavailable(path: Path, run: Run) -> None:
    fill(run, path)
    table = run(SqliteTable.open(path, ManualClock()))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(Unavailable, match=r"blackboard\.db"):
        run(rows_of(table, P))
    run(table.close())


@pytest.mark.case("CR04", on="sqlite")
def test_cr04_a_row_that_is_no_text_has_no_data_and_the_others_are_read(
    path: Path, run: Run
) -> None:
    fill(run, path, rows=500)
    before = run(rows_of_file(path))
    damage(path, path.read_bytes().index(b"xxxx"), b"\xff")
    after = run(rows_of_file(path))
    assert [row.key for row in after] == [row.key for row in before]
    assert [row.data for row in after].count({}) == 1


@pytest.mark.case("CR04", on="sqlite")
@pytest.mark.parametrize("what", [b"!", b'["text"', b"\xff"])
def test_cr04_a_damaged_row_is_another_than_a_merge_expects(
    path: Path, run: Run, what: bytes
) -> None:
    fill(run, path, rows=500)
    damage(path, path.read_bytes().index(b'{"text"'), what)
    table = run(SqliteTable.open(path, ManualClock()))
    (at,) = [n for n, row in enumerate(run(rows_of(table, P))) if not row.data]
    everything = [Merge(f"k{number:05}", {"n": 1}, ANY) for number in range(500)]
    with pytest.raises(Conflict) as lost:
        run(table.commit(P, everything))
    assert (lost.value.index, lost.value.kind) == (at, ConflictKind.CHANGED)
    run(table.commit(P, [Replace(f"k{at:05}", {"n": 1}, ANY)]))
    run(table.commit(P, everything))
    run(table.close())


@pytest.mark.case("SO08", on="sqlite")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_removed_takes_no_more_writes(
    table: SqliteTable, path: Path, run: Run, *, replaced: bool
) -> None:
    """They would go to a file that nobody can open again."""
    run(table.commit(P, [Insert("a", {"n": 1})]))
    path.unlink()
    if replaced:
        path.write_bytes(b"another")
    with pytest.raises(Unavailable, match="removed or replaced"):
        run(table.commit(P, [Delete("a", ANY)]))
    with pytest.raises(Unavailable, match="removed or replaced"):
        run(rows_of(table, P))
    assert run(table.integrity()) != []


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may become larger."""
    usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (usual, most))


def test_a_limit_of_the_size_of_files_is_named(table: SqliteTable, path: Path, run: Run) -> None:
    run(table.commit(P, [Insert("a", {"n": 1})]))
    many = [Insert(f"k{at}", {"text": "x" * 30_000}) for at in range(30)]
    limit = r"no file of this process may grow beyond 200,000 bytes \(`ulimit -f`\)"
    with largest_file(200_000), pytest.raises(Unusable, match=limit):
        run(table.commit(P, many))
    run(table.commit(P, many))


def test_a_limit_of_the_size_of_files_is_named_when_a_board_is_opened(path: Path, run: Run) -> None:
    with (
        largest_file(5_000),
        pytest.raises(StoreProblem, match=r"beyond 5,000 bytes \(`ulimit -f`\)"),
    ):
        run(SqliteTable.open(path, ManualClock(), Opening(create=True)))


def test_a_file_that_was_emptied_takes_no_more_writes(
    table: SqliteTable, path: Path, run: Run
) -> None:
    """The log beside it has the latest of its pages alone. Who opens the board is not asked to
    remove what is left of it.
    """
    run(table.commit(P, [Insert("a", {"n": 1})]))
    os.truncate(path, 0)
    with pytest.raises(Replaced, match=r"was emptied while it was open.*restore a copy"):
        run(table.commit(P, [Delete("a", ANY)]))
    with pytest.raises(Replaced, match="was emptied"):
        run(rows_of(table, P))
    with pytest.raises(StoreProblem, match=r"is empty, and its log .*-wal is not.*restore a copy"):
        run(SqliteTable.open(path, ManualClock()))


def test_a_file_that_may_not_be_looked_at_for_a_while_was_not_removed(run: Run) -> None:
    """The error names the permissions, and all goes on when they are back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        table = run(SqliteTable.open(folder / "b.db", ManualClock(), Opening(create=True)))
        run(table.commit(P, [Insert("a", {"n": 1})]))
        folder.chmod(0)
        with powerless(), pytest.raises(Unusable) as caught:
            run(table.commit(P, [Merge("a", {"n": 2}, ANY)]))
        assert type(caught.value) is Unusable
        assert "b.db cannot be reached: Permission denied (check" in str(caught.value)
        folder.chmod(0o755)
        run(table.commit(P, [Merge("a", {"n": 3}, ANY)]))
        run(table.close())


ANSWERS: dict[int, tuple[type[TableError], str]] = {
    sqlite3.SQLITE_BUSY: (Busy, "busy"),
    sqlite3.SQLITE_BUSY_SNAPSHOT: (Busy, "busy"),
    sqlite3.SQLITE_LOCKED: (Busy, "busy"),
    sqlite3.SQLITE_PROTOCOL: (Busy, "busy"),
    sqlite3.SQLITE_FULL: (Unusable, "make room"),
    sqlite3.SQLITE_IOERR_WRITE: (Unusable, "it cannot grow: the quota"),
    sqlite3.SQLITE_IOERR_SHMSIZE: (Unusable, "it cannot grow: the quota"),
    sqlite3.SQLITE_IOERR_READ: (Unusable, "the disk does not read or write it"),
    sqlite3.SQLITE_IOERR_SHORT_READ: (Unusable, "(-wal, -shm) was removed while workers use it"),
    sqlite3.SQLITE_IOERR_FSYNC: (Unknown, "b.db"),
    sqlite3.SQLITE_READONLY_DBMOVED: (Unusable, "permissions"),
    sqlite3.SQLITE_CANTOPEN: (Unusable, "permissions"),
    sqlite3.SQLITE_CORRUPT_INDEX: (Unusable, "damaged"),
    sqlite3.SQLITE_NOTADB: (Unusable, "damaged"),
    sqlite3.SQLITE_ERROR: (Unusable, "b.db: told"),
}


@pytest.mark.case("DF02", on="sqlite")
@pytest.mark.parametrize("code", ANSWERS)
def test_an_error_of_sqlite_is_an_answer_of_the_contract(code: int) -> None:
    error = sqlite3.OperationalError("told")
    error.sqlite_errorcode = code
    kind, words = ANSWERS[code]
    found = answer(error, Path("b.db"))
    assert type(found) is kind
    assert words in str(found)
