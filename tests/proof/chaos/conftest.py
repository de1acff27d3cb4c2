"""A site for each test with real processes, on each store that several of them can open; and the
machine, which some tests use up.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.proof.chaos.machine import the_machine
from tests.support.processes import Site
from tests.support.processes import site as made

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Before a test has its machine, its timeout does not begin."""
    if HERE not in item.path.parents:
        return (yield)
    with the_machine(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture
def site(tmp_path: Path, store_url: str) -> Iterator[Site]:
    with made(tmp_path, store_url) as found:
        yield found
