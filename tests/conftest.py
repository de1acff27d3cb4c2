"""The stores that tests run on: `pytest --store memory --store sqlite`; all by default. Timeouts
are longer on a busy machine; nothing else depends on its speed.
"""

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import hypothesis
import pytest

from blackboard.table import Table
from blackboard.tables.azure_transport import AzureTransport
from blackboard.tables.azurite import Emulator
from blackboard.testing import azurite, azurite_board, sqlite_board
from tests.support.clocks import ManualClock, SeededChance
from tests.support.patience import patience
from tests.support.reports import pytest_report_to_serializable
from tests.support.stores import LASTING, STORES, OpenTable, Run, address

__all__ = ["azurite", "azurite_board", "pytest_report_to_serializable", "sqlite_board"]

hypothesis.settings.register_profile(
    "busy machine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("busy machine")

FIXTURES = {"store": tuple(STORES), "lasting_store": LASTING}
"""Fixtures that name a store, each with all its stores, the quickest first."""
OF_THEIR_OWN = {"case", "cases_of_one_store", "of_each_store", "of_one_store", "of_sqlite"}
"""Marks of tests that do not follow an `of_one_store` of their module."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        action="append",
        choices=list(STORES),
        help="run the tests of stores and boards on this store alone; may be repeated",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Adapts timeouts to this machine, and lets what tests themselves request of the emulator take
    a minute: they do not try again. Lets SIGINT, SIGQUIT and SIGHUP end a process again: a shell
    ignores the first two for background processes, nohup the other, and processes that tests start
    would inherit that. Removes COLUMNS, by which pytest-xdist passes on the width of its terminal,
    and what belongs to who runs the tests: their zone, the proxies on their way to other hosts, and
    what makes Python write without buffers, as most users do not.
    """
    for name in list(os.environ):
        if name in {"COLUMNS", "TZ", "PYTHONUNBUFFERED"} or name.upper().endswith("_PROXY"):
            del os.environ[name]
    time.tzset()
    if config.getoption("timeout") is None:
        config.option.timeout = patience(float(config.getini("timeout")))
    AzureTransport.commit_timeout = AzureTransport.page_timeout = patience(60.0)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adapts timeouts to this machine. Of tests, or sets of parameters, that are `of_one_store`,
    keeps those on the quickest store; of `cases_of_one_store`, the first on each other store, too.
    """
    more = set[pytest.Item]()
    has_case = set[tuple[object, ...]]()
    for item in items:
        if (mark := item.get_closest_marker("timeout")) and mark.args:
            item.add_marker(pytest.mark.timeout(patience(mark.args[0])), append=False)
        stores = _stores_of(item)
        if all(store == FIXTURES[fixture][0] for fixture, store in stores.items()):
            continue
        if is_of_one_store(item):
            more.add(item)
        if item.get_closest_marker("cases_of_one_store"):
            test = (item.parent, getattr(item, "originalname", ""), *stores.values())
            if test in has_case:
                more.add(item)
            has_case.add(test)
    if more:
        config.hook.pytest_deselected(items=list(more))
        items[:] = [item for item in items if item not in more]


def is_of_one_store(node: pytest.Item) -> bool:
    """A mark of the module holds for those of its tests that have no mark of their own about stores
    and show no case: a case is shown on each store.
    """
    own = {mark.name for mark in node.own_markers}
    if own & OF_THEIR_OWN:
        return "of_one_store" in own
    return node.get_closest_marker("of_one_store") is not None


def _stores_of(item: pytest.Item) -> Mapping[str, str]:
    """The stores of a test, by fixture."""
    call = getattr(item, "callspec", None)
    return {one: call.params[one] for one in FIXTURES if call and one in call.params}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, known in FIXTURES.items():
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, _stores(metafunc, known))


def _stores(metafunc: pytest.Metafunc, known: Sequence[str]) -> list[str]:
    """The known stores on which a test runs."""
    chosen = metafunc.config.getoption("--store") or known
    node = metafunc.definition
    if node.get_closest_marker("of_sqlite"):
        known = ("sqlite",)
    if is_of_one_store(node):
        known = known[:1]
    if node.get_closest_marker("not_on_azurite"):
        known = [store for store in known if store != "azurite"]
    return [store for store in known if store in chosen]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Stops garbage collection while tests are collected: none of them becomes garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def store_url(lasting_store: str, request: pytest.FixtureRequest) -> str:
    """The URL of a store that does not exist yet, for tests that start processes."""
    return address(lasting_store, *_needed(request))


@pytest.fixture
def open_table(store: str, request: pytest.FixtureRequest) -> OpenTable:
    """A function that opens the store with a clock; its caller closes it."""
    return STORES[store](*_needed(request))


def _needed(request: pytest.FixtureRequest) -> tuple[Callable[[], Path], Callable[[], Emulator]]:
    """What makes the folder of a test and starts the emulator, for the stores that need them."""
    return (
        lambda: request.getfixturevalue("tmp_path"),
        lambda: request.getfixturevalue("azurite"),
    )


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
    """An empty table whose time is that of `clock`; used through `run`."""

    async def opened() -> Table:
        return await open_table(clock)

    table = run(opened())
    yield table
    run(table.close())
