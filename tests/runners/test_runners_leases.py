"""Children end with their lease and with their worker, by real signals."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from blackboard.model import Outcome, replace
from blackboard.runners.child_process import LEASE_RAN_OUT
from blackboard.runners.guard_process import NEAR, Watch
from blackboard.runners.process import ProcessRunner
from blackboard.runners.runner import Runner
from tests.support.processes import is_gone
from tests.support.runs import (
    PATIENCE,
    Told,
    call_of,
    eventually,
    on_the_loop,
    run,
    started,
    with_processes,
)


def test_a_child_leads_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it() -> None:
    async def story(runner: ProcessRunner) -> None:
        pid = (await run(runner, "describe")).result["pid"]
        assert os.getsid(pid) == pid

    with_processes(story)


@pytest.mark.parametrize(
    ("on", "type_"), [(on_the_loop, "a-time-left"), (with_processes, "time-left")]
)
def test_a_handler_gets_the_time_that_is_left_until_its_time_limit(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        began = time.monotonic()
        call = replace(call_of(type_), allowed=600.0)
        ended = await runner.start(call, Told(), math.inf).wait()
        assert 600 - (time.monotonic() - began) <= ended.result <= 600
        assert (await run(runner, type_)).result is None

    on(story)


@pytest.mark.parametrize("how", ["sleep", "hold-the-lock"])
def test_a_child_is_killed_when_its_lease_runs_out(how: str) -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "never-ends", how=how)
        execution.extend(time.monotonic())
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.outcome is Outcome.CANCELLED
        assert ended.error == LEASE_RAN_OUT
        assert ended.output == "about to\n"

    with_processes(story)


def test_a_child_whose_lock_was_taken_away_says_so() -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "never-ends", how="hold-the-lock")
        execution.lose("its lock was unlocked")
        execution.extend(time.monotonic())
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.error) == (Outcome.CANCELLED, "stopped: its lock was unlocked")

    with_processes(story)


@pytest.mark.case("PP06")
def test_renewals_keep_a_child_alive_that_cannot_hear_of_them() -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "hold-the-lock-for", seconds=3)
        execution.extend(time.monotonic() + 2)
        execution.extend(time.monotonic() + 600)
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.result) == (Outcome.OK, "survived")

    with_processes(story)


def test_the_deadline_of_a_run_does_not_outlive_it() -> None:
    async def story(runner: ProcessRunner) -> None:
        soon = time.monotonic() + 2
        execution = runner.start(call_of("describe"), Told(), soon)
        first = await execution.wait()
        await eventually(lambda: time.monotonic() > soon + 0.2)
        assert (await run(runner, "describe")).result["pid"] == first.result["pid"]

    with_processes(story)


def test_the_guard_is_told_of_later_deadlines_together_and_of_earlier_ones_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "never-ends", how="hold-the-lock")
        lines = list[str]()
        send = runner.watch._send_lines

        def noted(text: str) -> None:
            lines.extend(text.splitlines())
            send(text)

        monkeypatch.setattr(runner.watch, "_send_lines", noted)
        soon = time.monotonic() + NEAR + 60
        execution.extend(soon)
        assert len(lines) == 1, "an earlier deadline"
        for seconds in range(1, 101):
            execution.extend(soon + seconds)
        assert len(lines) == 1, "later ones"
        await eventually(lambda: len(lines) > 1)
        assert lines[1].endswith(f" {soon + 100!r}")
        execution.extend(time.monotonic() + NEAR - 1)
        execution.extend(time.monotonic() + 600)
        assert len(lines) == 4, "one that is near is replaced at once"
        execution.extend(time.monotonic())
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.error.startswith("stopped: its lease ran out")

    with_processes(story)


def test_the_guard_is_told_at_once_of_a_child_that_may_run_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        watch, lines = Watch(), list[str]()
        watch.begin()
        assert watch.guard is not None
        monkeypatch.setattr(watch, "_send_lines", lines.append)
        watch.keep(2_000_000_001)
        watch.keep(2_000_000_002)
        assert lines == ["2000000001 inf\n", "2000000002 inf\n"]
        await watch.close()

    asyncio.run(story())


def test_the_guard_kills_no_child_that_has_ended() -> None:
    """Its number may be another process's by then."""

    async def story(runner: ProcessRunner) -> None:
        execution, told = await started(runner, "never-ends", how="sleep")
        ((gone, _),) = told.progressed
        soon = time.monotonic() + 1
        execution.extend(soon)
        execution.stop(Outcome.TIMEOUT, "enough")
        await asyncio.wait_for(execution.wait(), PATIENCE)
        await eventually(lambda: time.monotonic() > soon)
        # The guard goes by the deadlines: once it has killed for this one, it has passed the other.
        execution, told = await started(runner, "never-ends", how="sleep")
        ((other, _),) = told.progressed
        killed = spied_on(runner)
        execution.extend(time.monotonic())
        await asyncio.wait_for(execution.wait(), PATIENCE)
        assert other in killed
        assert gone not in killed

    with_processes(story)


def spied_on(runner: ProcessRunner) -> set[int]:
    """All that the guard says that it killed."""
    killed: set[int] = set()
    hear, watch = runner.watch._read_killed, runner.watch

    def hearing() -> None:
        hear()
        killed.update(watch._killed)

    watch._read_killed = hearing  # type: ignore[method-assign]
    return killed


@pytest.mark.case("KI09")
def test_a_guard_that_dies_is_followed_by_another_that_knows_the_deadlines() -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "never-ends", how="hold-the-lock")
        guard = runner.watch.guard
        assert guard is not None
        os.kill(guard, signal.SIGKILL)
        await eventually(lambda: runner.watch.guard not in {None, guard})
        execution.extend(time.monotonic())
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.error.startswith("stopped: its lease ran out")

    with_processes(story)


def test_a_guard_that_does_not_listen_is_replaced() -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "never-ends", how="hold-the-lock")
        guard = runner.watch.guard
        assert guard is not None
        os.kill(guard, signal.SIGSTOP)
        for n in range(20_000):
            runner.loop_turns(time.monotonic() + 600 + n)
        await eventually(lambda: runner.watch.guard not in {None, guard})
        execution.extend(time.monotonic())
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.error.startswith("stopped: its lease ran out")

    with_processes(story)


def test_a_guard_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen
    refused: list[Any] = []

    def refuse_the_first_guard(command: list[str], **rest: Any) -> Any:
        if "-I" in command and not refused:
            refused.append(command)
            raise BlockingIOError
        return popen(command, **rest)

    monkeypatch.setattr(subprocess, "Popen", refuse_the_first_guard)

    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "never-ends", how="spin")
        execution.extend(time.monotonic())
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.error.startswith("stopped: its lease ran out")
        assert refused

    with_processes(story)


def test_the_guard_does_not_end_by_a_polite_signal() -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, _ = await started(runner, "never-ends", how="spin")
        guard = runner.watch.guard
        assert guard is not None
        await eventually(lambda: _ignores(guard, signal.SIGHUP))
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guard, one)
        execution.extend(time.monotonic())
        await asyncio.wait_for(execution.wait(), PATIENCE)
        assert runner.watch.guard == guard

    with_processes(story)


def _ignores(pid: int, number: int) -> bool:
    line = next(
        one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigIgn" in one
    )
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


WORKER = """
import asyncio, json, math, sys, time
sys.path[:] = {path!r}
from tests.support.runs import Told, call_of, eventually
from blackboard.runners.process import ProcessRunner
from blackboard.runners.guard_process import NEAR

async def main():
    runner = ProcessRunner(idle=1)
    told = Told()
    execution = runner.start(call_of({type_!r}, **{params!r}), told, math.inf)
    await eventually(lambda: bool(told.progressed))
    execution.extend(time.monotonic() + {lease})
    children = [child.pid for child in __import__("psutil").Process().children(recursive=True)]
    print(json.dumps([runner.watch.guard, children]), flush=True)
    ended = await execution.wait()
    print(json.dumps(ended.error), flush=True)
    await runner.close()

asyncio.run(main())
"""


def worker_process(type_: str, *, lease: float, **params: Any) -> subprocess.Popen[str]:
    path = [str(Path(__file__).resolve().parents[2]), *sys.path]
    program = WORKER.format(path=path, type_=type_, params=params, lease=lease)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


@pytest.mark.case("KI07")
@pytest.mark.parametrize("how", ["sleep", "spin", "hold-the-lock"])
def test_children_and_guard_die_with_a_worker_that_is_killed(how: str) -> None:
    with worker_process("never-ends", how=how, lease=600) as worker:
        assert worker.stdout is not None
        _, pids = msgspec.json.decode(worker.stdout.readline())
        assert len(pids) == 2
        worker.kill()
        asyncio.run(eventually(lambda: all(is_gone(pid) for pid in pids)))


def test_what_a_handler_started_dies_with_a_worker_that_is_killed() -> None:
    with worker_process("with-grandchild", lease=600) as worker:
        assert worker.stdout is not None
        _, pids = msgspec.json.decode(worker.stdout.readline())
        assert len(pids) == 3
        worker.kill()
        asyncio.run(eventually(lambda: all(is_gone(pid) for pid in pids)))


@pytest.mark.case("PP04")
@pytest.mark.parametrize("how", ["sleep", "hold-the-lock"])
def test_a_child_ends_past_its_lease_while_its_worker_is_stopped(how: str) -> None:
    with worker_process("never-ends", how=how, lease=1) as worker:
        assert worker.stdout is not None
        guard, pids = msgspec.json.decode(worker.stdout.readline())
        worker.send_signal(signal.SIGSTOP)
        (child,) = set(pids) - {guard}
        asyncio.run(eventually(lambda: is_gone(child)))
        assert psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED
        worker.send_signal(signal.SIGCONT)
        error = msgspec.json.decode(worker.stdout.readline())
        assert error == LEASE_RAN_OUT


LOOP_THAT_STANDS = """
import asyncio, ctypes, faulthandler, sys, time
sys.path[:] = {path!r}
from blackboard.runners.process import ProcessRunner
from blackboard.runners.guard_process import NEAR

def stand_still():
    ctypes.PyDLL(None).sleep(600)

async def main():
    faulthandler.enable()
    runner = ProcessRunner(idle=1)
    runner.loop_turns(time.monotonic() + 600)
    runner.loop_turns(time.monotonic() + 0.5)
    print(runner.watch.guard, flush=True)
    {then}

asyncio.run(main())
"""


def program_of_a_loop(then: str) -> list[str]:
    path = [str(Path(__file__).resolve().parents[2]), *sys.path]
    return [sys.executable, "-c", LOOP_THAT_STANDS.format(path=path, then=then)]


@pytest.mark.case("KI09")
def test_a_worker_whose_loop_stands_still_is_ended_and_shows_where_it_stood() -> None:
    command = program_of_a_loop("stand_still()")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == -signal.SIGABRT
    assert "in stand_still" in ended.stderr
    asyncio.run(eventually(lambda: is_gone(int(ended.stdout))))


def test_a_worker_that_was_stopped_and_goes_on_may_say_that_its_loop_turns() -> None:
    beat = "runner.loop_turns(time.monotonic() + 1), await asyncio.sleep(0.01)"
    command = program_of_a_loop(f"[({beat}) for _ in range(100)]; await runner.close()")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.send_signal(signal.SIGSTOP)
        past_its_deadline = time.monotonic() + 1.5
        asyncio.run(eventually(lambda: time.monotonic() > past_its_deadline))
        worker.send_signal(signal.SIGCONT)
        assert worker.wait(PATIENCE) == 0
