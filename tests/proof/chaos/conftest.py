"""A site for each test with real processes, on each store that several of them can open."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Site
from tests.support.processes import site as made


@pytest.fixture
def site(tmp_path: Path, store_url: str) -> Iterator[Site]:
    with made(tmp_path, store_url) as found:
        yield found
