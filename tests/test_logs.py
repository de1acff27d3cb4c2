"""What a worker tells: lines of JSON for programs, lines of text on a terminal."""

import io
import json
import logging

import pytest

from blackboard.cli.logs import json_line, subscriber
from blackboard.events import Event, Kind
from tests.clocks import START, ManualClock

ENDED = Event(
    kind=Kind.ENDED,
    message="failed: ValueError: bad\nfeed 🐝",
    level=logging.WARNING,
    worker="host:1:ab",
    item="davis",
    type="feed",
    fence=7,
    data={"outcome": "failed", "lag": 0.25},
)


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
        "message": "failed: ValueError: bad\nfeed 🐝",
        "outcome": "failed",
        "lag": 0.25,
    }


def test_an_event_of_the_worker_names_no_run() -> None:
    assert json.loads(json_line(Event(kind=Kind.STARTED, worker="w"), START)) == {
        "time": "2026-11-21T09:00:00.000Z",
        "level": "info",
        "event": "worker started",
        "worker": "w",
    }


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
@pytest.mark.parametrize(("level", "lines"), [(logging.DEBUG, 2), (logging.INFO, 1)])
def test_events_below_the_level_are_not_told(
    stream: type[io.StringIO], level: int, lines: int
) -> None:
    out = stream()
    tell = subscriber(ManualClock(), level=level, stream=out)
    tell(Event(kind=Kind.WALKED, level=logging.DEBUG))
    tell(ENDED)
    assert out.getvalue().count("\n") == lines


def test_a_terminal_is_told_in_words() -> None:
    out = Terminal()
    subscriber(ManualClock(), level=logging.INFO, stream=out)(ENDED)
    for word in ("09:00:00Z", "ended", "davis", "feed", "ValueError: bad"):
        assert word in out.getvalue()


def test_a_terminal_is_told_in_json_when_that_is_asked_for() -> None:
    out = Terminal()
    subscriber(ManualClock(), level=logging.INFO, stream=out, json=True)(ENDED)
    assert out.getvalue() == json_line(ENDED, START)
