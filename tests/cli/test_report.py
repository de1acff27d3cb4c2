"""`blackboard report`: what a run wrote about its work, whatever its handler."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from blackboard.model import Outcome
from tests.cli.command_line import CommandLine, blackboard

pytestmark = pytest.mark.of_one_store("reports are shown above the store")

__all__ = ["blackboard"]

REPORT: dict[str, Any] = {
    "id": "davis",
    "summary": {"feeds": 2, "failed": 1, "long": "x" * 99, "nested": {}},
    "feeds": [
        {"name": "worse\x1b[31m", "level": "bad", "events": 1234, "change": -7, "good": None},
        {
            "name": "better",
            "events": 0,
            "change": 3,
            "good": "2020-08-21T12:00:00Z",
            "seconds": {"read": 1.5},
        },
    ],
    "table": {
        "rows": "feeds",
        "columns": [
            {"title": "feed", "key": "name"},
            {"title": "events", "key": "events"},
            {"title": "change", "key": "change", "signed": True},
            {"title": "last good", "key": "good"},
            {"title": "read", "key": "seconds.read"},
            {"title": "never", "key": "nowhere.at.all"},
        ],
    },
}


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "keene", "--type", "calendars", "--every", "8h")
    return blackboard


def reported(towns: CommandLine, content: Any, name: str = "davis.report.json") -> Path:
    """A run of davis has written this report."""
    path = towns.folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    towns.finish(towns.start("davis"), result={"report": str(path)})
    return path


@pytest.mark.of_each_store
def test_a_report_is_a_table_of_its_rows_in_their_order(towns: CommandLine) -> None:
    reported(towns, REPORT)
    head, table = towns("report", "davis", "--absolute").out.split("\n\n")
    assert head == "davis: feeds 2, failed 1"
    assert [line.split() for line in table.splitlines()] == [
        ["feed", "events", "change", "last", "good", "read"],
        ["worse\\x1b[31m", "1,234", "-7", "-", "-"],
        ["better", "0", "+3", "2020-08-21", "12:00:00Z", "1.50"],
    ]


def test_times_are_told_as_elsewhere(towns: CommandLine) -> None:
    reported(towns, REPORT)
    assert "y ago" in towns("report", "davis").out or "d ago" in towns("report", "davis").out


def test_programs_get_the_reports_as_they_are(towns: CommandLine) -> None:
    reported(towns, REPORT)
    assert towns("report", "davis", "--json").json == [REPORT]


def test_the_report_of_an_earlier_run_is_shown_when_the_last_one_failed(towns: CommandLine) -> None:
    reported(towns, REPORT)
    towns.finish(towns.start("davis"), Outcome.FAILED, error="x")
    assert "better" in towns("report", "davis").out


def test_before_a_run_has_named_one_it_is_looked_for_in_the_folder(towns: CommandLine) -> None:
    towns("edit", "keene", "--set", f"out={towns.folder}/out")
    assert "keene has not run yet" in towns("report", "keene", code=1).err
    (towns.folder / "out").mkdir()
    (towns.folder / "out" / "keene.report.json").write_text(json.dumps(REPORT))
    assert "better" in towns("report", "keene").out


def test_an_item_without_a_report_says_so(towns: CommandLine) -> None:
    towns.finish(towns.start("keene"))
    assert "none of its runs has named a report" in towns("report", "keene", code=1).err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "holds no JSON"),
        ("[" * 100_000, "holds no JSON"),
        ("[]", "is not a JSON object"),
    ],
)
def test_a_file_that_is_no_report_is_named(towns: CommandLine, content: str, problem: str) -> None:
    reported(towns, content)
    said = towns("report", "davis", code=1).err
    assert problem in said
    assert "davis.report.json" in said


def test_a_report_that_is_too_large_is_not_called_damaged(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = reported(towns, REPORT).stat().st_size
    monkeypatch.setattr("blackboard.display.report._LARGEST", size)
    assert "better" in towns("report", "davis").out
    monkeypatch.setattr("blackboard.display.report._LARGEST", size - 1)
    said = towns("report", "davis", code=1).err
    assert f"davis.report.json is too large: more than {size - 1} bytes" in said


def test_nothing_but_reports_is_read(towns: CommandLine) -> None:
    reported(towns, REPORT, name="secret.json")
    assert "does not end with .report.json" in towns("report", "davis", code=1).err


@pytest.mark.cases_of_one_store("reports are shown above the store")
@pytest.mark.parametrize(
    "change",
    [
        {"table": None},
        {"table": {"rows": "nothing", "columns": 3}},
        {"feeds": [3, None]},
        {"table": {"rows": "feeds", "columns": [{}, 4]}},
        {"feeds": []},
    ],
)
def test_a_report_without_a_table_has_no_rows(towns: CommandLine, change: dict[str, Any]) -> None:
    reported(towns, {**REPORT, **change})
    assert towns("report", "davis").out == "davis: feeds 2, failed 1\n\nno rows\n"


def test_an_item_that_has_not_run_says_so(towns: CommandLine) -> None:
    assert "keene has not run yet" in towns("report", "keene", code=1).err


def test_reports_are_shown_also_where_other_items_have_none(towns: CommandLine) -> None:
    reported(towns, REPORT)
    said = towns("report", "*", code=1)
    assert said.out.startswith("davis: feeds ")
    assert said.err == "blackboard: keene has not run yet, so there is no report\n"
    assert len(towns("report", "*", "--json", code=1).json) == 1


def test_a_report_that_is_gone_is_named(towns: CommandLine) -> None:
    reported(towns, REPORT).unlink()
    assert "davis.report.json: No such file" in towns("report", "davis", code=1).err


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_a_report_keeps_nobody_waiting(towns: CommandLine) -> None:
    path = reported(towns, REPORT)
    path.unlink()
    os.mkfifo(path)
    assert "it is not a regular file" in towns("report", "davis", code=1).err
