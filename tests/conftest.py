"""Which stores the tests run on: `pytest --store memory --store sqlite`; all by default."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from blackboard.table import Table
from tests.clocks import ManualClock, SeededChance
from tests.stores import STORES, OpenTable, Run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        action="append",
        choices=list(STORES),
        help="run the tests of stores and boards on this store alone; may be repeated",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        metafunc.parametrize("store", metafunc.config.getoption("--store") or list(STORES))


@pytest.fixture
def open_table(store: str, tmp_path: Path) -> OpenTable:
    """Opens the store with a clock; who opens it closes it."""
    return STORES[store](tmp_path)


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def chance() -> SeededChance:
    return SeededChance()


@pytest.fixture
def table(open_table: OpenTable, clock: ManualClock, run: Run) -> Iterator[Table]:
    """An empty table that goes by `clock`; used through `run`."""

    async def opened() -> Table:
        return await open_table(clock)

    table = run(opened())
    yield table
    run(table.close())
