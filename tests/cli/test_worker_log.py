"""What a worker tells: lines of JSON for programs, lines of text on a terminal."""

import io
import json
import logging
from errno import ENOSPC

import pytest

from blackboard.cli.worker_log import LogForm, json_line, subscriber
from blackboard.events import Walked, WorkerStarted, WorkerStopping
from blackboard.model import Outcome
from blackboard.subscribers import Events
from tests.support.clocks import START, ManualClock
from tests.support.events import ended

ENDED = ended(Outcome.FAILED, error="ValueError: bad feed 🐝\nTraceback ...")
WALKED = Walked("w", claims=0, due=0, locks=0, missed=0, complete=True, requests={})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_event_of_a_run_names_the_run() -> None:
    line = json_line(ENDED, START)
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "time": "2026-11-21T09:00:00.000Z",
        "level": "warning",
        "event": "ended",
        "worker": "host:1:ab",
        "item": "davis",
        "type": "feed",
        "fence": 7,
        "message": "failed: ValueError: bad feed 🐝",
        "outcome": "failed",
        "release": "done",
        "duration": 0.0,
        "lag": 0.25,
        "attempt": 1,
    }


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_line_is_json_whatever_the_stream_takes(encoding: str) -> None:
    bytes_ = io.BytesIO()
    stream = io.TextIOWrapper(bytes_, encoding=encoding, errors="backslashreplace")
    subscriber(ManualClock(), level=logging.DEBUG, stream=stream)(ENDED)
    assert json.loads(bytes_.getvalue())["message"] == "failed: ValueError: bad feed 🐝"


def test_an_event_of_the_worker_names_no_run() -> None:
    assert json.loads(
        json_line(WorkerStarted("w", slots=8, cycle=60.0, types=("a", "b")), START)
    ) == {
        "time": "2026-11-21T09:00:00.000Z",
        "level": "info",
        "event": "worker started",
        "worker": "w",
        "message": "8 slots, every 60 s, types a, b",
    }


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
@pytest.mark.parametrize(("level", "lines"), [(logging.DEBUG, 2), (logging.INFO, 1)])
def test_events_below_the_level_are_not_told(
    stream: type[io.StringIO], level: int, lines: int
) -> None:
    out = stream()
    tell = subscriber(ManualClock(), level=level, stream=out)
    tell(WALKED)
    tell(ENDED)
    assert out.getvalue().count("\n") == lines


def test_a_terminal_is_told_in_words() -> None:
    out = Terminal()
    subscriber(ManualClock(), level=logging.INFO, stream=out)(ENDED)
    assert out.getvalue().count("\n") == 1
    for word in ("09:00:00Z", "ended", "davis", "feed", "ValueError: bad"):
        assert word in out.getvalue()


def test_a_terminal_is_told_in_json_when_that_is_asked_for() -> None:
    out = Terminal()
    subscriber(ManualClock(), level=logging.INFO, stream=out, form="json")(ENDED)
    assert out.getvalue() == json_line(ENDED, START)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_whose_disk_was_full_goes_on_and_says_how_much_it_missed(*, terminal: bool) -> None:
    """It keeps nothing of that meanwhile: a terminal may be gone for ever."""

    class Full(io.StringIO):
        full = False

        def isatty(self) -> bool:
            return terminal

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    out, events = Full(), Events("w")
    events.subscribe(subscriber(ManualClock(), level=logging.INFO, stream=out), "the log")
    for full in (False, True, True, False, False):
        out.full = full
        events.emit(WorkerStopping, message="full" if full else "room")
    text = out.getvalue()
    assert (text.count("room"), text.count("full")) == (3, 0)
    assert text.count("2 events were missed here: No space left on device") == 1


def test_text_may_be_had_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    subscriber(ManualClock(), level=logging.INFO, stream=out, form="text")(ENDED)
    assert out.getvalue().startswith("09:00:00Z ended ")
    assert "\x1b" not in out.getvalue()


class Disk(io.StringIO):
    """Has room for so many characters: what is beyond is not written."""

    room = 1_000_000

    def write(self, text: str) -> int:
        written = super().write(text[: self.room])
        self.room -= written
        if written < len(text):
            raise OSError(ENOSPC, "No space left on device")
        return written


@pytest.mark.parametrize("form", ["text", "json"])
def test_after_a_full_disk_the_log_goes_on_with_whole_lines(form: LogForm) -> None:
    disk = Disk()
    events = Events("w")
    events.subscribe(subscriber(ManualClock(), level=logging.INFO, stream=disk, form=form), "log")
    events.emit(WorkerStopping, message="the first")
    disk.room = 12
    for n in range(5):
        events.emit(WorkerStopping, message=f"lost {n}")
    disk.room = 1_000_000
    events.emit(WorkerStopping, message="the last")
    first, torn, last, missed = disk.getvalue().splitlines()
    assert "the first" in first
    assert len(torn) == 12
    assert "the last" in last
    assert "5 events were missed here: No space left" in missed
    if form == "json":
        assert json.loads(last)["message"] == "the last"
