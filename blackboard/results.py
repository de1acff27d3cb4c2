"""What a run's result may say besides what its handler means by it. Pure.

A result that is an object may hold `warnings`, a list of texts: the run is ok, and something needs
a person. `show` and notices show them. It may hold `report`, the path of a JSON file on the host of
the worker, which `blackboard report` shows. Whatever else these keys hold is not looked at.
"""

from typing import Any

import msgspec

MOST_WARNINGS = 20
LONGEST_WARNING = 500


class _Said(msgspec.Struct):
    warnings: Any = None
    report: Any = None


def warnings_in(result: str) -> list[str]:
    """The warnings of a result, as it stands in a row."""
    if '"warnings"' not in result:
        return []
    found = _said(result).warnings
    texts = found if isinstance(found, list) else []
    lines = [" ".join(one.split()) for one in texts if isinstance(one, str)]
    return [one[:LONGEST_WARNING] for one in lines if one][:MOST_WARNINGS]


def report_in(result: str) -> str:
    """The path of the report that a result names, or ""."""
    found = _said(result).report if '"report"' in result else None
    return found if isinstance(found, str) else ""


def _said(result: str) -> _Said:
    try:
        return msgspec.json.decode(result, type=_Said)
    except (ValueError, RecursionError):
        return _Said()
