"""The order of the proof: the longest tests begin first, so that no processor waits for them at the
end.
"""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def longest(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return -mark.args[0] if mark is not None and HERE in item.path.parents else 0.0

    items.sort(key=longest)
