"""The report that the last run of an item wrote about its work.

The result of a run names the file (`report`, see `protocol/results.py`). It is a JSON object; its
`table` names the list to show (`rows`) and the keys of each object in that list (`columns`:
`title`, `key` with dots into inner objects, `signed` for numbers that are changes). Rows keep the
order of the file. The `level` of a row is "bad", "late" or nothing. Where no result names a file,
it is ID.report.json in the folder of the param `out`, where the job `calendars` writes it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from blackboard.display.columns import worker_name
from blackboard.errors import BlackboardError
from blackboard.model import Item
from blackboard.named_files import NotAFile, regular_file
from blackboard.phrases import command
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.results import report_in
from blackboard.records import decoded
from blackboard.tasks import in_thread

ENDING = ".report.json"
_RUNS = 20
"""The newest runs, in which a result may name a report."""
_LARGEST = 64 * 1024 * 1024
_MOST_COLUMNS = 30


@dataclass(frozen=True, slots=True)
class ReportColumn:
    title: str
    key: str
    signed: bool


class NoReport(BlackboardError):
    """There is no report here; the message says where it is expected."""


@dataclass(frozen=True, slots=True)
class ReportRow:
    level: str
    """What is wrong with it: "bad", "late", or anything else for nothing."""
    values: Sequence[Any]
    """One for each column; text that is a time is converted; None where there is no value."""


async def read_report(board: BoardTable, item: Item) -> dict[str, Any]:
    """The report of an item. Raises NoReport when there is none here. The file is read in a thread:
    it may be large, or on a file system that does not answer.
    """
    return await in_thread(_report_at, await _report_path(board, item), item)


async def _report_path(board: BoardTable, item: Item) -> Path:
    named = report_in(item.result)
    if not named:
        async for run in board.runs(item.id, limit=_RUNS):
            if named := report_in(run.result):
                break
    if named:
        return Path(named)
    spec = decoded(item.spec)
    params = spec.get("params") if isinstance(spec, dict) else None
    folder = params.get("out") if isinstance(params, dict) else None
    if isinstance(folder, str) and folder:
        return Path(folder) / f"{keys.encode_id(item.id)}{ENDING}"
    if item.start is None:
        raise NoReport(f"{item.id} has not run yet, so there is no report")
    log = command("log", item.id)
    raise NoReport(f"{item.id}: none of its runs has named a report ({log})")


def _report_at(path: Path, item: Item) -> dict[str, Any]:
    where = f"{item.id}: {path}"
    if not path.name.endswith(ENDING):
        raise NoReport(f"{where} is not a report: its name does not end with {ENDING}")
    try:
        with regular_file(path) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise NoReport(f"{where} is too large: more than {_LARGEST:,} bytes")
        report = msgspec.json.decode(text)
    except NotAFile:
        raise NoReport(f"{where} is not a report: it is not a regular file") from None
    except OSError as problem:
        if item.start is None:
            raise NoReport(f"{item.id} has not run yet, so there is no report") from None
        remedy = f"look on the host of the worker that ran it last, {worker_name(item.owner)}"
        raise NoReport(f"{where}: {problem.strerror or problem} ({remedy})") from None
    except (ValueError, RecursionError):
        raise NoReport(f"{where} is damaged: it holds no JSON") from None
    if not isinstance(report, dict):
        raise NoReport(f"{where} is not a report: it is not a JSON object")
    return report


def report_table(report: Mapping[str, Any]) -> tuple[list[ReportColumn], list[ReportRow]]:
    """The columns that the report names and that have a value in any row, and its rows."""
    described = report.get("table")
    if not isinstance(described, dict):
        return [], []
    named = [column for column in _objects(described.get("columns")) if "key" in column]
    columns = [
        ReportColumn(
            title=str(column.get("title", column["key"])),
            key=str(column["key"]),
            signed=column.get("signed") is True,
        )
        for column in named[:_MOST_COLUMNS]
    ]
    rows = list(_objects(report.get(str(described.get("rows")))))
    used = [column for column in columns if any(_value_of(row, column) is not None for row in rows)]
    return used, [
        ReportRow(str(row.get("level", "")), [_value_of(row, column) for column in used])
        for row in rows
    ]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (
        entry for entry in (value if isinstance(value, list) else ()) if isinstance(entry, dict)
    )


def _value_of(row: Mapping[str, Any], column: ReportColumn) -> Any:
    value: Any = row
    for part in column.key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        return _moment(value) or " ".join(value.split()) or None
    return None if value in ([], {}) else value


def words_of(value: Any, *, signed: bool) -> str:
    """A value that is not a time, in words."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:+,}" if signed and value else f"{value:,}"
        case float():
            return f"{value:,.2f}" if math.isfinite(value) else ""
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()


def report_numbers(report: Mapping[str, Any]) -> dict[str, str]:
    """The plain numbers and words of a report's summary, by name."""
    summary = report.get("summary")
    numbers = summary.items() if isinstance(summary, dict) else ()
    return {
        str(name): str(value)
        for name, value in numbers
        if isinstance(value, int | str) and len(str(value)) < 40
    }


def _moment(text: str) -> datetime | None:
    """A text as a time; None when it is not a time in UTC."""
    if not text.endswith("Z") or len(text) < len("2026-08-21T09:00Z"):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
