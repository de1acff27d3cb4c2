"""`blackboard bench`: measures the store that is named, and leaves nothing behind there."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables.aio import TableClient

from blackboard import bench
from blackboard.bench_handlers import coroutine
from blackboard.clock import SystemClock
from blackboard.handlers.context import Context, HandlerItem
from blackboard.handlers.handler import handler
from blackboard.handlers.registry import registry_of
from blackboard.table import Busy, Delete, Etag, Insert, Op, Row, TableError, Unavailable, Unusable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import EMULATOR_KEY
from blackboard.tables.memory import MemoryTable
from tests.cli.command_line import CommandLine, blackboard
from tests.support import benches
from tests.support.processes import eventually, own_environ

__all__ = ["blackboard"]

FEW, MANY = benches.SLOTS
MEASURED = {
    f"coroutines, {FEW} slots": "runs/s",
    f"coroutines, {MANY} slots": "runs/s",
    f"requests of a run, {MANY} slots": "requests",
    "CPU for the rows of a run": "ms",
    f"plain functions, {FEW} slots": "runs/s",
    f"plain functions, {MANY} slots": "runs/s",
    "an idle look, 50 items": "ms",
    "from due to started, p50": "ms",
    "from due to started, p99": "ms",
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    benches.make_small(monkeypatch)


def left_behind(store: str) -> set[str]:
    """The files of the folder; or the partitions of the table, as the SDK reads them."""
    if not store.startswith("azurite:"):
        return {one.name for one in Path().iterdir()}
    address = azure_address(store)
    who = AzureNamedKeyCredential("devstoreaccount1", EMULATOR_KEY)

    async def partitions() -> set[str]:
        async with TableClient(address.endpoint, address.table, credential=who) as client:
            return {one["PartitionKey"] async for one in client.list_entities()}

    return asyncio.run(partitions())


def test_it_measures_the_store_and_leaves_nothing_there(
    blackboard: CommandLine, store_url: str
) -> None:
    blackboard("init")
    before, rows = left_behind(store_url), blackboard.rows()
    found = blackboard("bench", "--seconds", "0.1", "--json").json
    assert {one["name"]: one["unit"] for one in found} == MEASURED
    assert all(one["value"] > 0 and one["beside"] > 0 for one in found)
    assert all(one["ratio"] == one["value"] / one["beside"] for one in found)
    by_name = {one["name"]: one["value"] for one in found}
    assert by_name[f"requests of a run, {MANY} slots"] < 5, "of one, not of all"
    assert left_behind(store_url) == before
    assert blackboard.rows() == rows


once = pytest.mark.not_on_azurite("the store that is measured is not that of the test")


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain functions are measured as coroutines: each slot would start a process."""

    @handler("bench-function", every="8h")
    async def function(_item: HandlerItem, _ctx: Context) -> dict[str, int]:
        return {"ok": 1}

    monkeypatch.setattr(bench, "function", function)
    monkeypatch.setattr(bench, "HANDLERS", registry_of([coroutine, function]))


@pytest.mark.of_sqlite("files that are left behind")
def test_one_that_is_ended_by_a_signal_leaves_nothing_either(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "blackboard", "--store", "board.db"]
    subprocess.run([*command, "init"], cwd=tmp_path, env=own_environ(), check=True)
    before = {one.name for one in tmp_path.iterdir()}
    process = subprocess.Popen(
        [*command, "bench"], cwd=tmp_path, env=own_environ(), stderr=subprocess.PIPE, text=True
    )
    eventually(lambda: list(tmp_path.glob("bench_*.db-wal")), "it measures")
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate()
    assert (process.returncode, told.splitlines()[-1]) == (130, "blackboard: interrupted")
    assert {one.name for one in tmp_path.iterdir()} == before


@once
@pytest.mark.usefixtures("no_children")
def test_people_see_a_table_and_what_is_being_measured(blackboard: CommandLine) -> None:
    told = blackboard("--store", "memory:", "bench", "--seconds", "0.1")
    titles, *lines = told.out.splitlines()
    assert titles.split() == ["measured", "value", "beside", "ratio", "of"]
    assert [line[: line.index("  ")] for line in lines] == list(MEASURED)
    assert told.err.startswith("blackboard: measuring the rows of runs, without a worker ...\n")


@once
def test_a_store_that_is_too_slow_is_said_to_be(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.bench.LONGEST_WAIT", 0.0)
    said = blackboard("--store", "memory:", "bench", "--seconds", "0.1", code=3)
    assert said.err.endswith("this store is too slow to measure\n")
    assert said.out == ""


@once
@pytest.mark.usefixtures("no_children")
def test_a_store_that_is_busy_is_asked_again(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one is that gets so many rows at once."""
    honest, read, tries, readings = MemoryTable.commit, MemoryTable.scan, count(), count()

    async def commit(table: MemoryTable, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if next(tries) in {0, 1, 5, 60}:
            raise Busy(0.01)
        return await honest(table, partition, ops)

    async def scan(table: MemoryTable, *asked: Any) -> AsyncIterator[Row]:
        if next(readings) in {0, 1, 7}:
            raise Busy(0.01)
        async for row in read(table, *asked):
            yield row

    monkeypatch.setattr(MemoryTable, "commit", commit)
    monkeypatch.setattr(MemoryTable, "scan", scan)
    found = blackboard("--store", "memory:", "bench", "--seconds", "0.1", "--json").json
    assert {one["name"] for one in found} == set(MEASURED)
    assert next(tries) > 60


@once
def test_rows_that_cannot_be_deleted_are_told(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = MemoryTable.commit

    async def commit(table: MemoryTable, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if partition.startswith("bench_") and all(isinstance(op, Delete) for op in ops):
            raise Unusable("the credential is refused")
        return await honest(table, partition, ops)

    monkeypatch.setattr(MemoryTable, "commit", commit)
    said = blackboard("--store", "memory:", "bench", "--seconds", "0.1", code=3)
    assert "rows of the scratch board 'bench_" in said.err
    assert said.err.endswith("are left in the table: the credential is refused\n")


@once
def test_a_run_that_fails_is_told_as_such_with_what_was_measured_before(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    @handler("bench-function", every="8h")
    async def function(_item: HandlerItem, _ctx: Context) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(bench, "function", function)
    monkeypatch.setattr(bench, "HANDLERS", registry_of([coroutine, function]))
    said = blackboard("--store", "memory:", "bench", "--seconds", "0.1", code=1)
    assert "a run of the measurement failed: RuntimeError: no room" in said.err
    assert f"coroutines, {MANY} slots" in said.out


@once
@pytest.mark.parametrize(
    "address",
    ["sqlite:", "nosuch:boards", "sqlite:some.db?synchronous=often", "AccountKey=c2VjcmV0;"],
)
def test_a_bad_address_is_refused_before_anything_is_written(
    blackboard: CommandLine, address: str
) -> None:
    before = [left_behind(""), {one.name for one in Path("..").iterdir()}]
    said = blackboard("--store", address, "bench", "--seconds", "0.1", code=2)
    assert said.err.startswith("blackboard: store: ")
    assert [left_behind(""), {one.name for one in Path("..").iterdir()}] == before


@once
@pytest.mark.usefixtures("no_children")
def test_a_path_is_taken_as_it_is(blackboard: CommandLine) -> None:
    """A question mark begins options after `sqlite:` alone."""
    Path("what?").mkdir()
    blackboard("--store", "what?/some.db", "bench", "--seconds", "0.1")
    assert left_behind("") == {"what?"}
    assert not any(Path("what?").iterdir())


class QuickClock(SystemClock):
    """Waits for nothing: its time goes on by what is slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.slept

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        await asyncio.sleep(0)


@once
@pytest.mark.parametrize("trouble", [Busy(1.0), Unavailable("cable cut")])
@pytest.mark.parametrize(("away", "deleted"), [(3.0, True), (60.0, True), (300.0, False)])
def test_rows_are_deleted_when_the_store_is_there_again(
    monkeypatch: pytest.MonkeyPatch, trouble: TableError, away: float, *, deleted: bool
) -> None:
    clock, honest, read = QuickClock(), MemoryTable.commit, MemoryTable.scan
    left: set[str] = set()

    async def commit(table: MemoryTable, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if all(isinstance(op, Delete) for op in ops) and clock.slept < away:
            raise trouble
        done = await honest(table, partition, ops)
        left.clear()
        left.update([row.key async for row in read(table, partition)])
        return done

    async def story() -> None:
        async with bench.scratch_table("memory:", "bench_1", clock) as table:
            await table.commit("bench_1", [Insert("a", {"n": 1})])
            assert left == {"a"}

    monkeypatch.setattr(MemoryTable, "commit", commit)
    if deleted:
        asyncio.run(story())
    else:
        with pytest.raises(Unavailable, match="rows of the scratch board 'bench_1' are left"):
            asyncio.run(story())
        assert 120 < clock.slept < 140
    assert left == (set() if deleted else {"a"})
