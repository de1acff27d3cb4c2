"""A site for each test with real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Site
from tests.processes import site as made


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with made(tmp_path) as found:
        yield found
