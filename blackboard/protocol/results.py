"""The warnings of a run, and the keys of a result that this software reads. Pure.

A run may warn: it is ok, and something needs a person. `show`, `log` and notices show it. A handler
calls `ctx.warn(text)`, or returns an object with `warnings`, a list of texts. That object may hold
`report`, the path of a JSON file on the host of the worker, which `blackboard report` shows.
Other values of these keys are ignored.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from blackboard.model import decoded_as
from blackboard.phrases import too_long

MOST_WARNINGS = 20
LONGEST_WARNING = 500


class _Keys(msgspec.Struct):
    warnings: Any = None
    report: Any = None


def warnings_in(result: str) -> list[str]:
    """The warnings of a result, as it stands in a row."""
    if '"warnings"' not in result:
        return []
    warnings = _keys_of(result).warnings
    texts = warnings if isinstance(warnings, list) else []
    return list(warnings_of(text for text in texts if isinstance(text, str)))


def warnings_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Texts as they are kept: each once, on a line of bounded length, and a bounded number."""
    lines = (" ".join(text.split()) for text in texts)
    return tuple(dict.fromkeys(line[:LONGEST_WARNING] for line in lines if line))[:MOST_WARNINGS]


def report_in(result: str) -> str:
    """The path of the report that a result names, or ""."""
    report = _keys_of(result).report if '"report"' in result else None
    return report if isinstance(report, str) else ""


def not_kept(result: str, size: str, *, limit: int) -> dict[str, Any]:
    """What is kept instead of a result that no row can hold: a warning, after those of the result,
    and the report that it names. `size` is in words.
    """
    warning = f"the result, {size} of JSON, was not kept: {too_long(limit)}"
    kept: dict[str, Any] = {"warnings": [*warnings_in(result)[: MOST_WARNINGS - 1], warning]}
    if report := report_in(result):
        kept["report"] = report
    return kept if len(str(kept)) <= limit // 2 else {"warnings": [warning]}


def _keys_of(result: str) -> _Keys:
    return decoded_as(_Keys, result) or _Keys()
