"""What a worker tells on a terminal."""

import asyncio
from datetime import UTC, datetime
from io import StringIO

import pytest

from blackboard.cli.render import event_line, event_text, watch
from blackboard.display.layout import Line, Style
from blackboard.events import RunLogged, WorkerStopping
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


def test_foreign_text_is_neither_markup_nor_control() -> None:
    event = RunLogged("w", "[bold]a\n", "t", 1, message="[red]x[/red]\x1b[2J\nnext", level=20)
    line = event_line(StringIO())(event, AT)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert "[bold]a" in line
    assert r"[red]x[/red]\x1b[2J next" in line


def test_a_watched_picture_is_drawn_again_and_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    sizes: list[tuple[int, int]] = []

    async def frame(width: int, height: int) -> list[Line]:
        sizes.append((width, height))
        name = f"davis[bold] {len(sizes)}"
        return [[("id", Style.TITLE), ("next", Style.TITLE)], [], [(name, Style.BUSY)]]

    async def sleep(seconds: float) -> None:
        assert seconds == 0.5
        if len(sizes) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch(frame, sleep=sleep, every=0.5))
    assert len(sizes) == 3
    assert all(width > 0 and height > 0 for width, height in sizes)
    assert "davis[bold] 3" in capsys.readouterr().out
