"""A worker whose loop stands still is ended; one that was stopped, or that waits, is not."""

import asyncio
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from blackboard.clock import SystemClock
from blackboard.model import Item, Outcome
from blackboard.protocol.board_table import BoardTable
from blackboard.runners import guard
from blackboard.runners.guard import (
    ABORTED,
    ABORTS_WITHIN,
    ASLEEP,
    AWAKE,
    LOOK_AGAIN,
    LOOP,
    check_loop,
    is_stopped,
)
from blackboard.runners.loop import RunOfLoop
from blackboard.runners.loop_watch import LoopWatch
from tests.support import loop_child as turning
from tests.support.patience import patience
from tests.support.processes import all_gone, eventually, is_gone, site, whole_lines

WORKER = 4711


# ---- the rule


@pytest.mark.parametrize(
    ("stopped", "pid", "late", "then"),
    [
        (False, LOOP, 0.0, "killed"),
        (False, LOOP, LOOK_AGAIN + 0.1, {LOOP: AWAKE}),  # the guard stood still as well
        (True, LOOP, 0.0, {ASLEEP: LOOK_AGAIN}),
        (True, ASLEEP, 0.0, {ASLEEP: LOOK_AGAIN}),
        (False, ASLEEP, 0.0, {LOOP: AWAKE}),
    ],
)
def test_only_a_loop_that_had_its_chance_is_ended(
    monkeypatch: pytest.MonkeyPatch, *, stopped: bool, pid: int, late: float, then: object
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(guard, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(guard, "is_stopped", lambda _: stopped)
    monkeypatch.setattr(os, "kill", lambda *call: killed.append(call))
    deadlines: dict[int, float] = {}
    check_loop(pid, deadlines, WORKER, late=late)
    if then == "killed":
        assert killed == [(WORKER, signal.SIGABRT)]
        assert deadlines == {ABORTED: 1000.0 + ABORTS_WITHIN}
    else:
        assert killed == []
        assert {pid: at - 1000.0 for pid, at in deadlines.items()} == then


def test_who_has_said_more_meanwhile_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(guard, "is_stopped", lambda _: False)
    deadlines = {LOOP: 1030.0}
    check_loop(ASLEEP, deadlines, WORKER, late=0.0)
    assert deadlines == {LOOP: 1030.0}


@pytest.mark.parametrize(
    ("stopped", "parent", "late", "then"),
    [
        (False, WORKER, 0.0, "killed"),
        (True, WORKER, 0.0, {ABORTED: ABORTS_WITHIN}),
        (False, WORKER, LOOK_AGAIN + 0.1, {ABORTED: ABORTS_WITHIN}),  # the guard stood still too
        (False, 1, 0.0, {}),  # the worker is gone, and its number may be that of another process
    ],
)
def test_only_a_worker_that_had_time_to_abort_is_killed(
    monkeypatch: pytest.MonkeyPatch, *, stopped: bool, parent: int, late: float, then: object
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(guard, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(guard, "is_stopped", lambda _: stopped)
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(os, "kill", lambda *call: killed.append(call))
    deadlines: dict[int, float] = {}
    check_loop(ABORTED, deadlines, WORKER, late=late)
    assert killed == ([(WORKER, signal.SIGKILL)] if then == "killed" else [])
    assert {pid: at - 1000.0 for pid, at in deadlines.items()} == ({} if killed else then)


def test_a_worker_that_is_aborted_again_is_killed_no_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "monotonic", lambda: 1000.0)
    monkeypatch.setattr(guard, "is_stopped", lambda _: False)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    deadlines = {ABORTED: 1001.0}
    check_loop(LOOP, deadlines, WORKER, late=0.0)
    assert deadlines == {ABORTED: 1001.0}


def test_a_worker_that_has_just_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    deadlines: dict[int, float] = {}
    check_loop(LOOP, deadlines, process.pid, late=0.0)
    check_loop(ABORTED, deadlines, process.pid, late=0.0)
    assert not is_stopped(process.pid)


def test_a_stopped_process_is_known_from_one_that_runs() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "a stop")
        assert is_stopped(process.pid)
    finally:
        process.kill()
        process.wait()


def test_a_worker_that_goes_while_it_is_looked_at_is_not_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:

        def opened(path: str, _mode: str) -> BinaryIO:
            file = Path(path).open("rb")  # noqa: SIM115 - the guard closes it
            process.kill()
            process.wait()  # to read the file is an error now
            return file

        monkeypatch.setattr(guard, "open", opened, raising=False)
        try:
            assert not is_stopped(process.pid)
        finally:
            process.kill()  # where there is no such file to read


def test_a_loop_is_watched_from_its_first_turn_on() -> None:
    """A worker of a group that is made, and does no work, has none."""

    def watches() -> int:
        return sum(one.name == "loop watch" for one in threading.enumerate())

    before, clock = watches(), SystemClock()
    watch = LoopWatch(clock, lambda _: None)
    assert watches() == before
    watch.loop_turns(clock.monotonic() + 60.0)
    assert watches() == before + 1
    watch.loop_turns(math.inf)
    eventually(lambda: watches() == before, "the watch ends")


def test_a_loop_whose_work_is_done_is_watched_until_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that goes on after that is not ended."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *of: killed.append(of))
    monkeypatch.setattr("blackboard.runners.loop_watch.CLOSES_WITHIN", 1.0)
    before = threading.enumerate()
    watch = LoopWatch(SystemClock(), lambda _: None)

    async def work() -> None:
        watch.work_is_done()

    asyncio.run(work())
    [thread] = set(threading.enumerate()) - {*before}
    thread.join(patience(10.0))
    assert (thread.is_alive(), killed) == (False, [])


def test_a_loop_that_stands_still_without_a_handler_is_reported_as_such() -> None:
    reported: list[RunOfLoop | None] = []
    clock = SystemClock()
    watch = LoopWatch(clock, reported.append)
    watch.loop_turns(clock.monotonic())
    eventually(lambda: reported, "it is reported")
    watch.loop_turns(math.inf)
    assert reported == [None]


# ---- real processes


@contextmanager
def full_pipe() -> Iterator[int]:
    """The end of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * select.PIPE_BUF)
    os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


class Turning:
    """A process of `loop_child.py`."""

    def __init__(self, folder: Path, stderr: int | None = None) -> None:
        self.said, self.complained = folder / "out", folder / "err"
        with self.said.open("wb") as out, self.complained.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, turning.__file__],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err if stderr is None else stderr,
                cwd=Path(turning.__file__).parents[2],
            )
        eventually(lambda: b"turning" in self.said.read_bytes(), "it turns")
        self.below = psutil.Process(self.process.pid).children()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def turns_on(self, beats: int = 5) -> bool:
        """Whether it says so that many times more."""
        wanted = self.said.read_bytes().count(b"turning") + beats
        eventually(
            lambda: (
                self.said.read_bytes().count(b"turning") >= wanted
                or self.process.poll() is not None
            ),
            "it turns on or ends",
        )
        return self.process.poll() is None

    @property
    def guard(self) -> int:
        return int(whole_lines(self.said)[-1].split()[-1])


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Turning]:
    yield from _turning(Turning(tmp_path))


@pytest.fixture
def unread_child(tmp_path: Path) -> Iterator[Turning]:
    """Its stderr is a pipe that takes nothing more."""
    with full_pipe() as writer:
        yield from _turning(Turning(tmp_path, writer))


def _turning(made: Turning) -> Iterator[Turning]:
    yield made
    made.process.kill()
    made.process.wait()
    assert made.process.stdin is not None
    made.process.stdin.close()
    eventually(lambda: all_gone(made.below), "its guard ends")


@pytest.mark.parametrize(("word", "where"), [("block", "in block"), ("hold", "in hold_the_lock")])
def test_a_loop_that_stands_still_ends_its_process_and_shows_where(
    child: Turning, word: str, where: str
) -> None:
    child.tell(word)
    assert child.process.wait(patience(60)) == -signal.SIGABRT
    assert where in child.complained.read_text()


@pytest.mark.parametrize("word", ["block", "hold"])
def test_a_process_that_cannot_show_where_it_stands_is_killed(
    unread_child: Turning, word: str
) -> None:
    """Its traceback waits for a stream that is not read."""
    unread_child.tell(word)
    assert unread_child.process.wait(patience(60)) == -signal.SIGKILL


def test_a_process_that_is_stopped_while_it_aborts_is_killed_when_it_goes_on(
    unread_child: Turning,
) -> None:
    unread_child.tell("block")
    process = unread_child.process
    aborting = Path(f"/proc/{process.pid}/wchan")
    if not aborting.exists():
        pytest.skip("this system does not say what a process waits for")
    eventually(lambda: "pipe" in aborting.read_text(), "it writes its traceback")
    process.send_signal(signal.SIGSTOP)
    since = time.monotonic()
    eventually(lambda: time.monotonic() > since + ABORTS_WITHIN + 1.0, "its time is over")
    assert process.poll() is None
    process.send_signal(signal.SIGCONT)
    assert process.wait(patience(60)) == -signal.SIGKILL


def test_a_loop_that_turns_is_left_alone(child: Turning) -> None:
    since = time.monotonic()
    while time.monotonic() < since + 2 * turning.PATIENCE:
        assert child.turns_on()
    child.tell("end")
    assert child.process.wait(patience(60)) == 0


def test_a_process_that_is_stopped_and_continued_lives_on(child: Turning) -> None:
    """However long it was stopped."""
    child.process.send_signal(signal.SIGSTOP)
    since = time.monotonic()
    eventually(lambda: time.monotonic() > since + 3 * turning.PATIENCE, "its patience ends")
    child.process.send_signal(signal.SIGCONT)
    assert child.turns_on(20)


def test_a_process_that_does_not_go_on_when_continued_is_ended(child: Turning) -> None:
    child.tell("block")
    child.process.send_signal(signal.SIGSTOP)
    since = time.monotonic()
    eventually(lambda: time.monotonic() > since + 2 * turning.PATIENCE, "its patience ends")
    assert child.process.poll() is None
    child.process.send_signal(signal.SIGCONT)
    assert child.process.wait(patience(60)) == -signal.SIGABRT


def test_nobody_watches_a_loop_that_needs_no_watching(child: Turning) -> None:
    child.tell("free")
    assert child.turns_on()
    child.tell("wait")
    assert child.turns_on()


def test_a_guard_that_takes_the_place_of_another_watches_the_loop(child: Turning) -> None:
    first = child.guard
    os.kill(first, signal.SIGKILL)
    eventually(lambda: is_gone(first), "the guard ends")
    eventually(
        lambda: whole_lines(child.said)[-1].split()[-1] not in {"None", str(first)},
        "another comes",
    )
    child.below += psutil.Process(child.process.pid).children()
    child.tell("block")
    assert child.process.wait(patience(60)) == -signal.SIGABRT


# ---- a worker that one of its coroutines ends

BLOCKING = """
import asyncio
import time

from blackboard import handler


@handler("greedy", every="1h", stale_after="3s")
async def greedy(item, ctx):
    await asyncio.gather(asyncio.sleep(0), asyncio.create_task(computes()))


async def computes():
    time.sleep(600)


@handler("patient", every="1h", stale_after="3s")
async def patient(item, ctx):
    await asyncio.sleep(600)
"""


def test_the_last_line_of_a_worker_names_the_item_and_its_handler(tmp_path: Path) -> None:
    """Also one that had nothing to do before, so that its loop was not watched as closely."""
    (tmp_path / "greedy.py").write_text(BLOCKING)
    with site(tmp_path, str(tmp_path / "blackboard.db")) as place:
        for has_idled in (True, False):
            worker = place.worker("--jobs", "greedy.py")
            if has_idled:
                place.works(worker)
                place.add("greedy-1", type_="greedy")
                place.add("patient-1", type_="patient")
            assert worker.ended() == -signal.SIGABRT
            last = worker.events[-1]
            assert (last["event"], last["item"], last["type"]) == (
                "loop stands still",
                "greedy-1",
                "greedy",
            )
            assert "in computes" in worker.text
        survivor = place.works(place.worker("--jobs", "greedy.py"))

        async def found(board: BoardTable) -> list[Item | None]:
            return [await board.item(one) for one in ("greedy-1", "patient-1")]

        def waits_while_the_other_runs() -> bool:
            greedy, patient = place.run(found)
            goes_on = patient is not None and f":{survivor.pid}:" in patient.owner
            return goes_on and greedy is not None and greedy.waits

        eventually(waits_while_the_other_runs, "one waits for its next slot, the other goes on")
        assert survivor.process.poll() is None
        greedy, _ = place.run(found)
        assert greedy is not None
        assert greedy.outcome is Outcome.ABANDONED
        assert "kept the loop" in greedy.error
        assert greedy.start is not None
        assert greedy.slot > greedy.start


BLOCKING_PUMP = """
import asyncio
import time

from blackboard import handler, pump


@pump("clicks", partitions=["davis"], lease="15s")
async def clicks(partition, ctx):
    await asyncio.sleep(2)
    time.sleep(600)


@handler("patient", every="1h", stale_after="3s")
async def patient(item, ctx):
    await asyncio.sleep(600)
"""


def test_a_pump_that_keeps_the_loop_from_turning_is_marked_on_the_board_of_its_group(
    tmp_path: Path,
) -> None:
    """Whichever part of the worker sees it first: an item with a shorter lease, here of the same
    id, is not marked for it.
    """
    (tmp_path / "pumps.py").write_text(BLOCKING_PUMP)
    with site(tmp_path, str(tmp_path / "blackboard.db")) as place:
        place.add("davis", type_="patient")
        worker = place.worker("--jobs", "pumps.py")
        assert worker.ended() == -signal.SIGABRT
        assert worker.events[-1]["type"] == "clicks"

        async def marks(board: BoardTable) -> list[bool | None]:
            locks = [await one.lock("davis") for one in (board, board.group("clicks"))]
            return [None if lock is None else lock.stood_still for lock in locks]

        assert place.run(marks) == [False, True]
