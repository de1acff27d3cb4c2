"""What is particular to a board in a file: the file, its ages, other processes, its thread."""

import asyncio
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from blackboard.clock import SystemClock
from blackboard.table import (
    ANY,
    Busy,
    Conflict,
    ConflictKind,
    Delete,
    Insert,
    Merge,
    Op,
    Replace,
    read,
)
from blackboard.tables import sqlite_file
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening
from blackboard.tables.sqlite_writes import Write, statement
from tests.support.clocks import START, ManualClock
from tests.support.patience import patience
from tests.support.sqlite_files import CHILD, P, fill, path, setting, table, write_lock
from tests.support.stores import Run, rows_of

__all__ = ["path", "table"]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "sqlite"]


# --- the file


def test_the_files_are_for_their_owner_alone(path: Path, run: Run) -> None:
    before = os.umask(0)
    try:
        fill(run, path, rows=500)
        table = run(SqliteTable.open(path, ManualClock()))
        run(table.commit(P, [Insert("a", {"n": 1})]))
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
        run(table.close())
    finally:
        os.umask(before)
    name = path.name
    assert modes == {name: "0o600", f"{name}-wal": "0o600", f"{name}-shm": "0o600"}


def test_a_closed_board_is_one_file(path: Path, run: Run) -> None:
    fill(run, path, rows=500)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("full", "level"), [(False, 1), (True, 2)])
def test_it_is_flushed_at_checkpoints_or_at_every_batch(
    path: Path, run: Run, *, full: bool, level: int
) -> None:
    table = run(SqliteTable.open(path, ManualClock(), Opening(create=True, full=full)))
    assert run(setting(table, "synchronous")) == level
    assert run(setting(table, "journal_mode")) == "wal"
    run(table.close())


def test_a_row_can_be_read_by_a_person(table: SqliteTable, path: Path, run: Run) -> None:
    run(table.commit(P, [Insert("a", {"at": START, "n": 1, "text": "Łódź"})]))
    with closing(sqlite3.connect(path)) as other:
        rows = other.execute("SELECT part, key, data FROM rows").fetchall()
    assert rows == [(P, "a", '{"at":["2026-11-21T09:00:00Z"],"n":1,"text":"Łódź"}')]


def test_keys_beyond_ascii_sort_by_code_point(table: SqliteTable, run: Run) -> None:
    keys = ["🏙", "﨑", "é", "z", "東"]
    run(table.commit(P, [Insert(key, {"n": 1}) for key in keys]))
    assert [row.key for row in run(rows_of(table, P))] == ["z", "é", "東", "﨑", "🏙"]


# --- ages


def test_a_row_of_another_boot_is_infinitely_old(
    table: SqliteTable, path: Path, run: Run, clock: ManualClock
) -> None:
    run(table.commit(P, [Insert("a", {"n": 1})]))
    after = run(SqliteTable.open(path, ManualClock(monotonic=5.0), Opening(boot="kernel:another")))
    row = run(read(after, P, "a"))
    assert row is not None
    assert after.age(row) == math.inf
    run(after.commit(P, [Merge("a", {"n": 2}, row.etag)]))
    row = run(read(after, P, "a"))
    assert row is not None
    assert after.age(row) == 0
    run(after.close())


def test_an_age_is_never_negative(table: SqliteTable, path: Path, run: Run) -> None:
    run(table.commit(P, [Insert("a", {"n": 1})]))
    behind = run(SqliteTable.open(path, ManualClock(monotonic=1.0)))
    row = run(read(behind, P, "a"))
    assert row is not None
    assert behind.age(row) == 0
    run(behind.close())


def test_the_stamp_is_that_of_the_try_that_wrote(path: Path, run: Run, clock: ManualClock) -> None:
    """A stamp taken before would be as old as the wait for the lock."""

    async def story() -> float:
        table = await SqliteTable.open(path, clock, Opening(create=True, wait=60))
        tries, loop = asyncio.Queue[str](), asyncio.get_running_loop()

        def seen(statement: str) -> None:
            loop.call_soon_threadsafe(tries.put_nowait, statement)

        file = table._file
        await table._thread.call(lambda: file._connection.set_trace_callback(seen))
        with write_lock(path):
            writing = asyncio.create_task(table.commit(P, [Insert("a", {"n": 1})]))
            await tries.get()
            clock.advance(4)
            while str(clock.monotonic()) not in await tries.get():
                pass  # it had its stamp before
        await writing
        row = await read(table, P, "a")
        assert row is not None
        await table.close()
        return table.age(row)

    assert run(story()) == 0


# --- other processes


def test_a_lock_held_too_long_by_another_is_busy(table: SqliteTable, path: Path, run: Run) -> None:
    with write_lock(path):
        with pytest.raises(Busy) as caught:
            run(table.commit(P, [Insert("a", {"n": 1})]))
        assert run(rows_of(table, P)) == []
    assert caught.value.retry_after > 0
    run(table.commit(P, [Insert("a", {"n": 1})]))


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel lists no locks here")
def test_a_process_that_was_stopped_while_it_wrote_is_named(
    table: SqliteTable, path: Path, run: Run
) -> None:
    with subprocess.Popen(
        [sys.executable, CHILD, "hold", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            with pytest.raises(Busy, match=rf"process {child.pid} \(.+\) writes to it; again"):
                run(table.commit(P, [Insert("a", {"n": 1})]))
            os.kill(child.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(Busy, match=rf"was stopped while.+kill -CONT {child.pid}`"):
                run(table.commit(P, [Insert("a", {"n": 1})]))
        finally:
            child.kill()
    run(table.commit(P, [Insert("a", {"n": 1})]))


@pytest.mark.case("ME05", on="sqlite")
def test_me05_processes_that_make_one_board_count_exactly(path: Path, run: Run) -> None:
    children = [
        subprocess.Popen([sys.executable, CHILD, "count", path, "50"], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    said = [child.communicate(timeout=patience(120))[1].decode() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0, 0], said
    table = run(SqliteTable.open(path, SystemClock()))
    row = run(read(table, P, "counter"))
    assert row is not None
    assert row.data["count"] == 200
    run(table.close())


@pytest.mark.case("KI03", on="sqlite")
def test_ki03_a_process_killed_while_it_writes_leaves_whole_batches(path: Path, run: Run) -> None:
    acknowledged = 0
    for batches in (1, 7, 20):
        command = [sys.executable, str(CHILD), "write", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(batches):
                acknowledged = int(child.stdout.readline())
            child.kill()
            said = child.stdout.read().splitlines(keepends=True)
            acknowledged = max([acknowledged, *(int(line) for line in said if line[-1] == "\n")])
        table = run(SqliteTable.open(path, SystemClock()))
        rows = run(rows_of(table, P))
        assert run(table.integrity()) == []
        run(table.close())
        assert len(rows) == 40
        (number,) = {int(str(row.data["number"])) for row in rows}
        assert number - acknowledged in (0, 1)


# --- the thread


def test_the_thread_ends_with_the_table(path: Path, run: Run) -> None:
    table = run(SqliteTable.open(path, ManualClock(), Opening(create=True)))
    assert threads() == ["sqlite"]
    run(table.close())
    assert threads() == []


def test_a_table_outlives_the_loop_of_a_request_that_nobody_waited_for(path: Path) -> None:
    async def leave() -> SqliteTable:
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True))
        with write_lock(path):
            task = asyncio.create_task(table.commit(P, [Insert("a", {"n": 1})]))
            await asyncio.sleep(0)
            task.cancel()
        return table

    table = asyncio.run(leave())
    found = asyncio.run(rows_of(table, P))
    asyncio.run(table.close())
    assert [row.key for row in found] == ["a"]


def test_a_cancelled_caller_does_not_stop_its_batch(path: Path, run: Run) -> None:
    async def story() -> list[str]:
        table = await SqliteTable.open(path, ManualClock(), Opening(create=True, wait=60))
        with write_lock(path):
            task = asyncio.create_task(table.commit(P, [Insert("a", {"n": 1})]))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(Conflict):
            await table.commit(P, [Insert("a", {"n": 2})])
        rows = await rows_of(table, P)
        await table.close()
        return [row.key for row in rows]

    assert run(story()) == ["a"]


def test_batches_that_wait_share_a_transaction_and_a_refused_one_leaves_the_others_alone(
    table: SqliteTable, run: Run
) -> None:
    statements: list[str] = []

    async def story() -> list[object]:
        await table.commit(P, [Insert("taken", {"n": 0})])
        await watch(table, statements)
        keys = [f"k{number}" for number in range(9)]
        batches: list[list[Op]] = [[Insert(key, {"n": 1}), Insert(f"{key}.", {})] for key in keys]
        batches[4].append(Insert("taken", {"n": 1}))
        batches[6] = [Merge("k1", {"m": 2}, ANY)]
        commits = [table.commit(P, batch) for batch in batches]
        return await asyncio.gather(*commits, return_exceptions=True)

    answers = run(story())
    assert len(transactions(statements)) < 4  # the first does not wait for the others
    conflict = answers.pop(4)
    assert isinstance(conflict, Conflict)
    assert conflict.index == 2
    etags = {etag for answer in answers if isinstance(answer, list) for etag in answer}
    assert len(etags) == len(answers) == 8
    rows = {row.key: dict(row.data) for row in run(rows_of(table, P))}
    assert rows.keys() == {
        "taken",
        *(f"k{n}{dot}" for n in (0, 1, 2, 3, 5, 7, 8) for dot in ("", ".")),
    }
    assert rows["k1"] == {"n": 1, "m": 2}
    assert rows["taken"] == {"n": 0}


def test_a_batch_that_finds_what_it_expects_reads_no_row(table: SqliteTable, run: Run) -> None:
    """Not before a merge either, also of a long row; one that does not is told exactly."""
    statements: list[str] = []
    long = {f"text{number}": "x" * 30_000 for number in range(3)}

    async def story() -> None:
        at_first = [Insert(key, {"n": 1}) for key in ("merged", "replaced", "deleted", "any")]
        etag, *_ = await table.commit(P, [*at_first, Insert("long", long)])
        await watch(table, statements)
        ops: list[Op] = [
            Insert("inserted", {"n": 2}),
            Merge("merged", {"m": 2}, etag),
            Merge("long", {"m": 2}, etag),
            Replace("replaced", {"m": 2}, etag),
            Delete("deleted", etag),
            Merge("any", {"m": 2}, ANY),
        ]
        await table.commit(P, ops)
        assert not reads(statements)
        with pytest.raises(Conflict) as caught:
            await table.commit(P, [Delete("any", ANY), Merge("merged", {"m": 3}, etag)])
        assert (caught.value.index, caught.value.kind) == (1, ConflictKind.CHANGED)
        assert reads(statements)

    run(story())
    rows = {row.key: dict(row.data) for row in run(rows_of(table, P))}
    assert rows.pop("long") == long | {"m": 2}
    merged = {"n": 1, "m": 2}
    assert rows == {"inserted": {"n": 2}, "merged": merged, "any": merged, "replaced": {"m": 2}}


def test_a_batch_that_is_refused_writes_nothing_to_the_file(
    table: SqliteTable, path: Path, run: Run
) -> None:
    """So a row that is there already can be told on a full disk too."""

    async def story() -> None:
        etag, _ = await table.commit(P, [Insert("there", {"n": 1}), Insert("other", {"n": 1})])
        await table.commit(P, [Merge("there", {"n": 2}, etag)])
        log = path.with_name(f"{path.name}-wal")
        before = log.read_bytes()
        for refused in (Insert("there", {}), Merge("there", {}, etag), Delete("missing", etag)):
            with pytest.raises(Conflict):
                await table.commit(P, [Insert("new", {}), refused])
        assert log.read_bytes() == before

    run(story())


def test_no_batch_keeps_others_waiting_between_two_statements(table: SqliteTable, run: Run) -> None:
    """Other threads of the process may run there, for as long as they like."""
    statements: list[str] = []

    async def story() -> None:
        await table.commit(P, [Insert("merged", {"n": 1}), Insert("deleted", {"n": 1})])
        await watch(table, statements)
        inserts = [Insert(f"k{number}", {"n": 1}) for number in range(100)]
        await table.commit(P, [Merge("merged", {"m": 2}, ANY), Delete("deleted", ANY), *inserts])

    run(story())
    assert transactions(statements) == statements
    assert len(run(rows_of(table, P))) == 101


def test_a_transaction_has_no_more_rows_than_a_batch_may_have(
    table: SqliteTable, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def counted(writes: Sequence[Write], revision: int) -> tuple[str, list[Any]]:
        sizes.append(len(writes))
        return statement(writes, revision)

    monkeypatch.setattr(sqlite_file, "statement", counted)

    async def story() -> None:
        batches = [[Insert(f"{n}-{k}", {"n": 1}) for k in range(400)] for n in range(8)]
        await asyncio.gather(*(table.commit(P, batch) for batch in batches))

    run(story())
    assert sum(sizes) == len(run(rows_of(table, P))) == 3_200
    assert max(sizes) == 800


def test_a_batch_of_more_values_than_a_statement_takes_is_written(
    table: SqliteTable, run: Run
) -> None:
    """SQLite before 3.32 takes 999 in a statement."""
    many = [f"k{number}" for number in range(400)]

    async def story() -> None:
        connection = table._file._connection
        limit = partial(connection.setlimit, sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        await table._thread.call(limit)
        etag, *_ = await table.commit(P, [Insert(key, {"n": 1}) for key in many])
        await table.commit(P, [Merge(key, {"m": 2}, etag) for key in many])
        with pytest.raises(Conflict):
            await table.commit(P, [Delete(key, etag) for key in many])

    run(story())
    assert [row.data for row in run(rows_of(table, P))] == [{"n": 1, "m": 2}] * len(many)


def transactions(statements: list[str]) -> list[str]:
    """Those that are one transaction each, or that end one."""
    return [one for one in statements if one.startswith(("INSERT INTO writes", "COMMIT"))]


def reads(statements: list[str]) -> list[str]:
    """Those that read rows for Python."""
    return [one for one in statements if one.strip().startswith("SELECT key")]


async def watch(table: SqliteTable, statements: list[str]) -> None:
    """Writes down what SQLite is told from now on. It repeats a statement for each trigger."""

    def told(statement: str) -> None:
        if statements[-1:] != [statement]:
            statements.append(statement)

    connection = table._file._connection
    await table._thread.call(lambda: connection.set_trace_callback(told))


def test_a_caller_cancelled_while_it_opens_leaves_no_thread(path: Path) -> None:
    async def story() -> None:
        task = asyncio.create_task(SqliteTable.open(path, ManualClock(), Opening(create=True)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert threads() == []
