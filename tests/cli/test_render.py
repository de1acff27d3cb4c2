"""What a worker tells on a terminal."""

from datetime import UTC, datetime
from io import StringIO

import pytest

from blackboard.cli.render import event_line, event_text
from blackboard.events import RunLogged, WorkerStopped, WorkerStopping
from blackboard.model import Outcome
from tests.support.events import ended

AT = datetime(2026, 11, 21, 9, 5, 7, tzinfo=UTC)


def test_an_event_is_one_line_that_names_its_run() -> None:
    told = event_text(ended(seconds=3.25), AT).plain
    assert " ".join(told.split()) == "09:05:07Z ended davis feed #7 ok duration=3.2s lag=0.2s"


def test_what_is_uncommon_about_a_run_is_told() -> None:
    told = event_text(ended(Outcome.SUPERSEDED, release="late", attempt=2), AT).plain
    line = "#7 superseded release=late duration=0s lag=0.2s attempt=2"
    assert " ".join(told.split()).endswith(line)


def test_an_event_of_the_worker_names_it() -> None:
    event = WorkerStopping("host:1:a", message="nothing runs")
    told = event_text(event, AT).plain
    assert " ".join(told.split()) == "09:05:07Z worker stopping host:1 nothing runs"


def test_requests_are_one_number_for_people() -> None:
    event = WorkerStopped("host:1:a", runs=2, requests={"commits": 5, "pages": 5, "total": 10})
    told = event_text(event, AT).plain
    assert " ".join(told.split()) == "09:05:07Z worker stopped host:1 runs=2 requests=10"


def test_foreign_text_is_neither_markup_nor_control() -> None:
    event = RunLogged("w", "[bold]a\n", "t", 1, message="[red]x[/red]\x1b[2J\nnext", level=20)
    line = event_line(StringIO())(event, AT)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert "[bold]a" in line
    assert r"[red]x[/red]\x1b[2J next" in line


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_of_a_log_can_be_declined(
    monkeypatch: pytest.MonkeyPatch, no_color: str, *, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    line = event_line(StringIO())(ended(Outcome.FAILED), AT)
    assert ("\x1b[" in line) is coloured
