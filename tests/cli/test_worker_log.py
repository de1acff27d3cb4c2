"""What a worker tells: lines of JSON for programs, lines of text on a terminal."""

import io
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from errno import ENOSPC
from pathlib import Path

import pytest

from blackboard.cli.worker_log import LogForm, json_line, subscriber, unblocked_stderr
from blackboard.emitter import EventEmitter
from blackboard.events import Walked, WorkerStarted, WorkerStopping
from blackboard.model import Outcome
from tests.support.clocks import START, ManualClock
from tests.support.events import ended
from tests.support.processes import eventually

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


def test_an_event_steers_no_terminal_that_shows_the_log() -> None:
    error = "\x1b[31m\x9b31m\x7f\u202e\U000e0001é"
    line = json_line(ended(Outcome.FAILED, error=error), START)
    assert [char for char in line if not char.isprintable()] == ["\n"]
    assert json.loads(line)["message"] == f"failed: {error}"
    assert "é" in line


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

    out, events = Full(), EventEmitter("w")
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
    events = EventEmitter("w")
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


# ---- a stream that is not read


class Stuck:
    """A stderr that is a pipe or a socket, and what has arrived there."""

    def __init__(self, kind: str) -> None:
        if kind == "pipe":
            self.reader, self.writer = os.pipe()
        else:
            reader, writer = socket.socketpair()
            self.reader, self.writer = reader.detach(), writer.detach()
        os.set_blocking(self.reader, False)
        self.stream = os.fdopen(self.writer, "w", encoding="utf-8")
        self._read = b""

    def fill(self) -> None:
        """So that it takes nothing more."""
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"\n" * 4096)
        os.set_blocking(self.writer, True)

    def read(self) -> list[str]:
        """All lines that have arrived so far, but for those that filled it."""
        while True:
            try:
                data = os.read(self.reader, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self._read += data
        return [line for line in self._read.decode().splitlines() if line]


@pytest.fixture(params=["pipe", "socket"])
def stuck(request: pytest.FixtureRequest) -> Iterator[Stuck]:
    made = Stuck(request.param)
    yield made
    os.close(made.reader)  # so that a thread that still writes ends
    made.stream.close()


def test_a_log_that_is_not_read_waits_for_no_reader_and_keeps_its_order(stuck: Stuck) -> None:
    """Also lines that are longer than a pipe takes in one piece."""
    events = EventEmitter("w")
    with redirect_stderr(stuck.stream), unblocked_stderr():
        events.subscribe(subscriber(ManualClock(), level=logging.INFO), "the log")
        for n in range(2_000):
            events.emit(WorkerStopping, message=f"{n} " + "x" * (10_000 if n % 100 == 7 else 500))
        eventually(lambda: len(stuck.read()) == 2_000, "all of it arrives")
        events.emit(WorkerStopping, message="2000 ")
    assert [int(json.loads(line)["message"].split()[0]) for line in stuck.read()] == [*range(2_001)]
    assert events.failures == 0


def test_what_is_too_much_is_lost_and_counted(
    stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.cli.worker_log.MOST_WAITING", 100_000)
    stuck.fill()
    events = EventEmitter("w")
    with redirect_stderr(stuck.stream), unblocked_stderr():
        events.subscribe(subscriber(ManualClock(), level=logging.INFO), "the log")
        for _ in range(500):
            events.emit(WorkerStopping, message="x" * 500)
        lost = events.failures
        assert lost > 0
        eventually(lambda: len(stuck.read()) == 500 - lost, "the rest arrives")
        events.emit(WorkerStopping, message="again")
        eventually(lambda: len(stuck.read()) == 502 - lost, "so does what follows")
    *_, again, missed = [json.loads(line)["message"] for line in stuck.read()]
    assert again == "again"
    assert missed.startswith(f"{lost} events were missed here: the stream takes no more lines")


def test_an_end_waits_for_a_reader_only_so_long(
    stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.cli.worker_log.END_WITHIN", 0.05)
    with redirect_stderr(stuck.stream):
        with unblocked_stderr():
            sys.stderr.write("x" * 2_000_000 + "\n")
        assert sys.stderr is not stuck.stream
        sys.stderr.write("waits for no reader\n")
    eventually(lambda: len(stuck.read()) == 2, "it arrives if it is read after all")


def test_stderr_is_as_it_was_once_all_is_written(stuck: Stuck) -> None:
    with redirect_stderr(stuck.stream):
        with unblocked_stderr():
            assert sys.stderr.fileno() == stuck.writer
            sys.stderr.write("a line\n")
        assert sys.stderr is stuck.stream
    assert stuck.read() == ["a line"]


def test_a_fork_writes_for_itself(stuck: Stuck) -> None:
    with redirect_stderr(stuck.stream), unblocked_stderr():
        process = os.fork()
        if not process:
            sys.stderr.write("from the fork\n")
            os._exit(0)
        os.waitpid(process, 0)
        assert stuck.read() == ["from the fork"]


def test_a_stream_without_readers_is_an_error_of_the_log(stuck: Stuck) -> None:
    with redirect_stderr(stuck.stream), unblocked_stderr():
        log = subscriber(ManualClock(), level=logging.INFO)
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), stuck.reader)

        def fails() -> bool:
            try:
                log(ENDED)
            except BrokenPipeError:
                return True
            return False

        eventually(fails, "it is said that lines are lost")


def test_a_file_is_written_to_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with unblocked_stderr():
            assert sys.stderr is file
