"""What a test says when it fails, as pytest-xdist can send it. Half of a surrogate pair, as tests
of odd texts have it, would end the whole run without a word of the test.
"""

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    report = yield
    return _sendable(report)


def _sendable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {key: _sendable(each) for key, each in value.items()}
        case list() | tuple():
            return type(value)(map(_sendable, value))
    return value
