"""Plain handlers that harm their process, never end or are stopped; and idle children."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from blackboard import __version__
from blackboard.handlers.handler import Source
from blackboard.handlers.registry import Handlers, load
from blackboard.model import Ended, Outcome, replace
from blackboard.runners import guard_process, idle_children, process
from blackboard.runners.child_process import ChildProcess
from blackboard.runners.idle_children import IdleChildren
from blackboard.runners.process import ProcessRunner
from tests.support.processes import is_gone
from tests.support.runs import (
    PATIENCE,
    Told,
    call_of,
    eventually,
    run,
    started,
    with_processes,
)

DEATHS = {
    "exit": ("the child process ended: exit code 3 (os._exit in the handler?); it printed", ""),
    "segfault": ("the child process was killed by SIGSEGV", "crashing.py"),
    "killed": ("the child process was killed by SIGKILL (out of memory?)", ""),
    "terminated": ("the child process was killed by SIGTERM", ""),
}


def test_a_child_that_dies_fails_the_run_with_the_reason_and_what_it_had_printed() -> None:
    async def story(runner: ProcessRunner) -> None:
        for how, (error, printed) in DEATHS.items():
            ended = await run(runner, "die", how=how)
            assert ended.outcome is Outcome.FAILED, how
            assert ended.error.startswith(error), how
            assert ended.output.startswith("about to\n"), how
            assert printed in ended.output, how
            assert (await run(runner, "describe")).outcome is Outcome.OK, how

    with_processes(story)


BREAKS = {
    "close": "the child process ended: exit code 1",
    "end": "the child process closed its connection",
    "nonsense": "the child process sent an invalid message",
    "too large": "the child process sent an invalid message: 4,294,967,295 bytes",
}


def test_a_handler_that_breaks_the_connection_fails_its_run_and_no_other() -> None:
    async def story(runner: ProcessRunner) -> None:
        for how, error in BREAKS.items():
            ended = await run(runner, "break-the-connection", how=how)
            assert ended.outcome is Outcome.FAILED, how
            assert ended.error.startswith(error), how
            assert (await run(runner, "describe")).outcome is Outcome.OK, how

    with_processes(story, stop_timeout=0.5)


def test_a_handler_that_never_ends_delays_nobody_and_is_killed_when_stopped() -> None:
    async def story(runner: ProcessRunner) -> None:
        for how in ("sleep", "spin", "regex", "hold-the-lock", "print"):
            execution, told = await started(runner, "never-ends", how=how)
            ((pid, _),) = told.progressed
            assert (await run(runner, "describe")).outcome is Outcome.OK, how
            execution.stop(Outcome.TIMEOUT, "ran for longer than 10m")
            execution.stop(Outcome.CANCELLED, "too late to say")
            ended = await asyncio.wait_for(execution.wait(), PATIENCE)
            assert (ended.outcome, ended.error) == (Outcome.TIMEOUT, "ran for longer than 10m"), how
            assert ("over and over\n" if how == "print" else "about to\n") in ended.output, how
            assert not psutil.pid_exists(pid), how
            assert await execution.wait() == ended, how

    with_processes(story)


def test_stopping_kills_what_the_handler_started_too() -> None:
    async def story(runner: ProcessRunner) -> None:
        execution, told = await started(runner, "with-grandchild")
        ((grandchild, _),) = told.progressed
        execution.stop(Outcome.TIMEOUT, "enough")
        await execution.wait()
        await eventually(lambda: is_gone(grandchild))

    with_processes(story)


def test_a_run_that_is_stopped_before_it_began_never_calls_its_handler() -> None:
    async def story(runner: ProcessRunner) -> None:
        told = Told()
        execution = runner.start(call_of("never-ends", how="sleep"), told, math.inf)
        execution.stop(Outcome.CANCELLED, "not wanted")
        assert await execution.wait() == Ended(outcome=Outcome.CANCELLED, error="not wanted")
        assert told.progressed == []

    with_processes(story)


def test_a_run_whose_task_is_cancelled_before_its_first_step_is_reported_ended() -> None:
    """As with all tasks of a loop that ends."""

    async def story(runner: ProcessRunner) -> None:
        told, ends = Told(), list[Ended]()
        execution = runner.start(call_of("never-ends", how="sleep"), told, math.inf)
        execution.when_ended(ends.append)
        cast("Any", execution).task.cancel()
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended == Ended(outcome=Outcome.CANCELLED, error="the worker was cancelled")
        assert ends == [ended]

    with_processes(story)


def odd_import(folder: Path, code: str) -> Handlers:
    """A type `odd`, the import of whose module in a child process does this."""
    lines = ["from blackboard import handler", "@handler('odd')", "def f(item, ctx): ..."]
    lines += ["import os", f"if os.getpid() != {os.getpid()}:", textwrap.indent(code, "    "), ""]
    (folder / "odd.py").write_text("\n".join(lines))
    return load(["odd.py"], folder)


def test_the_time_limit_of_a_run_begins_when_its_module_is_imported(tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"import time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    call = replace(call_of("odd", jobs=odd_import(tmp_path, wait)), allowed=0.1)

    async def story(runner: ProcessRunner) -> None:
        told = Told()
        execution = runner.start(call, told, math.inf)
        await eventually(lambda: any(one.runs for one in of_runs(runner)))
        early = told.is_called
        go.touch()
        assert (await execution.wait()).outcome is Outcome.OK
        again = Told()
        assert (await runner.start(call, again, math.inf).wait()).outcome is Outcome.OK
        assert (early, told.is_called, again.is_called) == (False, True, True)

    with_processes(story)


def of_runs(runner: ProcessRunner) -> list[ChildProcess]:
    """The children of the runs that go on."""
    return [run._child for run in runner._running if run._child is not None]


def test_a_module_whose_import_never_ends_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "START_WITHIN", 5.0)
    jobs = odd_import(tmp_path, "import time; time.sleep(600)")
    call = replace(call_of("odd", jobs=jobs), allowed=0.1)

    async def story(runner: ProcessRunner) -> None:
        runner.watch.begin()
        assert await runner.can_start(call.handler.source)
        monkeypatch.setattr(process, "START_WITHIN", 0.1)
        told = Told()
        ended = await runner.start(call, told, math.inf).wait()
        assert (ended.outcome, ended.begun) == (Outcome.FAILED, True)
        assert ended.error == "its module was not imported within 0.1 s"
        assert not told.is_called

    with_processes(story)


def test_few_children_are_started_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    start, pids = IdleChildren.start, list[int]()

    def first_does_not_get_ready(children: IdleChildren, source: Source) -> ChildProcess:
        child = start(children, source)
        if not pids:
            os.kill(child.pid, signal.SIGSTOP)
        pids.append(child.pid)
        return child

    monkeypatch.setattr(idle_children, "STARTS", 1)
    monkeypatch.setattr(IdleChildren, "start", first_does_not_get_ready)

    async def story(runner: ProcessRunner) -> None:
        runs = [runner.start(call_of("describe"), Told(), math.inf) for _ in range(3)]
        await eventually(lambda: len(runner.watch._deadlines) == 1)
        (pid,) = runner.watch._deadlines
        trying = asyncio.create_task(runner.can_start(call_of("describe").handler.source))
        runs[1].stop(Outcome.CANCELLED, "not wanted")
        assert (await asyncio.wait_for(runs[1].wait(), PATIENCE)).error == "not wanted"
        assert list(runner.watch._deadlines) == [pid]
        os.kill(pid, signal.SIGCONT)
        assert (await runs[0].wait()).outcome is (await runs[2].wait()).outcome is Outcome.OK
        assert await trying

    with_processes(story)


def test_a_run_that_waits_to_start_a_child_takes_one_that_becomes_free() -> None:
    async def story(runner: ProcessRunner) -> None:
        await run(runner, "describe")
        child = runner.idle.take(call_of("describe").handler.source)
        assert child is not None
        runner.idle._may_start = 0
        waiting = [runner.start(call_of("describe"), Told(), math.inf) for _ in range(2)]
        await eventually(lambda: len(runner.idle._line) == 2)
        runner.idle.put(child)
        for one in waiting:
            assert (await asyncio.wait_for(one.wait(), PATIENCE)).result["pid"] == child.pid

    with_processes(story)


def test_short_runs_share_few_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_children, "STARTS", 2)
    monkeypatch.setattr(idle_children, "SOON", math.inf)
    monkeypatch.setattr(idle_children, "ENOUGH", 1.0)  # so runs of less than 2 s are short

    async def story(runner: ProcessRunner) -> None:
        runs = [runner.start(call_of("describe"), Told(), math.inf) for _ in range(20)]
        pids = {(await one.wait()).result["pid"] for one in runs}
        assert len(pids) <= 2

    with_processes(story)


def test_longer_runs_have_a_child_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_children, "STARTS", 1)
    monkeypatch.setattr(idle_children, "SOON", math.inf)

    async def story(runner: ProcessRunner) -> None:
        await run(runner, "hold-the-lock-for", seconds=0.05)
        runs = [await started(runner, "never-ends", how="sleep") for _ in range(3)]
        for execution, _ in runs:
            execution.stop(Outcome.CANCELLED, "enough")
            await execution.wait()

    with_processes(story)


def test_a_run_that_waits_beside_long_ones_gets_a_child_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idle_children, "STARTS", 1)

    async def story(runner: ProcessRunner) -> None:
        long, _ = await started(runner, "never-ends", how="sleep")
        ended = await asyncio.wait_for(run(runner, "describe"), PATIENCE)
        assert ended.outcome is Outcome.OK
        long.stop(Outcome.CANCELLED, "enough")
        await long.wait()

    with_processes(story)


def test_after_the_end_nothing_that_is_said_to_a_run_matters() -> None:
    async def story(runner: ProcessRunner) -> None:
        execution = runner.start(call_of("describe"), Told(), math.inf)
        ended = await execution.wait()
        execution.stop(Outcome.TIMEOUT, "late")
        execution.lose("late")
        execution.extend(0.0)
        assert await execution.wait() == ended
        again = await run(runner, "describe")
        assert again.result["pid"] == ended.result["pid"]

    with_processes(story)


@pytest.mark.parametrize("early", [True, False])
def test_a_plain_handler_sees_that_its_lock_is_lost(early: bool) -> None:  # noqa: FBT001
    async def story(runner: ProcessRunner) -> None:
        told = Told()
        execution = runner.start(call_of("wait-until-lost"), told, math.inf)
        if not early:
            await eventually(lambda: bool(told.progressed))
        execution.lose("overridden by another")
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.result[2:] == [True, True, "overridden by another"]
        if not early:
            assert ended.result[:2] == [False, False]
        again, _ = await started(runner, "wait-until-lost")
        again.lose("again")
        assert (await again.wait()).result == [False, False, True, True, "again"]

    with_processes(story)


def test_a_module_that_fails_to_import_in_the_child_fails_the_run_with_its_error(
    tmp_path: Path,
) -> None:
    jobs = odd_import(tmp_path, "import no_such_module")

    async def story(runner: ProcessRunner) -> None:
        execution = runner.start(call_of("odd", jobs=jobs), Told(), math.inf)
        ended = await execution.wait()
        assert ended.outcome is Outcome.FAILED
        assert ended.error.startswith("ModuleNotFoundError: No module named 'no_such_module'")
        assert str(tmp_path / "odd.py") in ended.error
        assert "importlib" not in ended.error

    with_processes(story)


def no_thread(*_: object, **__: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("name", "instead", "problem"),
    [
        (
            "blackboard.runners.child_process.python",
            lambda *_: ["/no/such/python"],
            "[Errno 2] No such file",
        ),
        ("blackboard.runners.child_process.subprocess.Popen", no_thread, "can't start new thread"),
        ("multiprocessing.spawn._python_exe", b"/bin/true", "python: '/bin/true', which is to run"),
        (
            "blackboard.runners.child_process.program",
            lambda _: "raise RuntimeError('no memory')",
            "the child process ended: exit code 1; it printed last: RuntimeError: no memory",
        ),
        (
            "blackboard.runners.child_process.__version__",
            "0.0.1",
            f"the child process ended: exit code 1; it printed last: blackboard {__version__} is",
        ),
    ],
)
def test_a_run_whose_process_cannot_be_started_has_not_begun(
    monkeypatch: pytest.MonkeyPatch, name: str, instead: object, problem: str
) -> None:
    async def story(runner: ProcessRunner) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(name, instead)
            runner.watch.begin()
            ended = await run(runner, "describe")
            could_start = await runner.can_start(call_of("describe").handler.source)
        assert (ended.outcome, ended.begun, could_start) == (Outcome.FAILED, False, False)
        assert ended.error.startswith(f"no child process could be started: {problem}")
        assert "in the handler?" not in ended.error
        assert (await run(runner, "describe")).begun

    with_processes(story)


def test_a_run_whose_process_does_not_get_ready_has_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endless = "import time; time.sleep(600)"
    monkeypatch.setattr("blackboard.runners.child_process.program", lambda _: endless)
    monkeypatch.setattr(process, "START_WITHIN", 0.0)

    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "describe")
        assert (ended.outcome, ended.begun) == (Outcome.FAILED, False)
        words = "no child process could be started: it was not ready within 0 s"
        assert ended.error == words

    with_processes(story)


def test_a_process_that_was_started_to_try_it_takes_the_next_run() -> None:
    async def story(runner: ProcessRunner) -> None:
        assert await runner.can_start(call_of("describe").handler.source)
        (child,) = runner.idle._idle
        assert (await run(runner, "describe")).outcome is Outcome.OK
        assert child.runs == 1

    with_processes(story)


def test_a_try_to_start_a_process_that_is_given_up_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endless = "import time; time.sleep(600)"
    monkeypatch.setattr("blackboard.runners.child_process.program", lambda _: endless)

    async def story(runner: ProcessRunner) -> None:
        trying = asyncio.create_task(runner.can_start(call_of("describe").handler.source))
        await eventually(lambda: bool(runner.watch._deadlines))
        (pid,) = runner.watch._deadlines
        trying.cancel()
        await asyncio.wait([trying])
        assert is_gone(pid)

    with_processes(story)


def test_a_handler_that_ended_its_process_has_begun_though_a_signal_could_not_be_sent() -> None:
    async def story(runner: ProcessRunner) -> None:
        runner.watch.begin()
        execution = runner.start(call_of("die", how="exit"), Told(), math.inf)
        child = None
        while child is None or not child.runs:
            await asyncio.sleep(0)
            child = cast(Any, execution)._child
        # The loop is busy meanwhile.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        execution.lose("its lock was overridden")
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.begun) == (Outcome.FAILED, True)
        assert ended.error.startswith("the child process ended: exit code 3 (os._exit in")

    with_processes(story)


def test_params_that_cannot_be_sent_fail_the_run() -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "describe", odd=object())
        assert ended.outcome is Outcome.FAILED
        assert "Encoding objects of type object is unsupported" in ended.error

    with_processes(story)


def test_the_end_of_a_process_is_noticed_where_the_kernel_offers_no_pidfd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(pid: int, flags: int = 0) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", forbidden)

    async def story(runner: ProcessRunner) -> None:
        assert (await run(runner, "die", how="exit")).error.startswith("the child process ended")
        execution, _ = await started(runner, "never-ends", how="spin")
        execution.stop(Outcome.TIMEOUT, "enough")
        assert (await execution.wait()).error == "enough"

    with_processes(story)


def test_the_end_of_a_process_that_other_code_has_reaped_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitpid(process.pid, 0)

        async def story() -> None:
            ended = asyncio.Event()
            guard_process.on_end(process, ended.set)
            await asyncio.wait_for(ended.wait(), PATIENCE)

        asyncio.run(story())


def test_a_guard_whose_pipe_another_process_holds_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a handler has forked, for example."""
    monkeypatch.setattr(guard_process, "END_WITHIN", 0.05)

    async def story() -> None:
        watch = guard_process.Watch()
        watch.begin()
        assert watch._guard is not None
        assert watch._guard.stdin is not None
        pid = watch._guard.pid
        held = os.dup(watch._guard.stdin.fileno())
        await asyncio.wait_for(watch.close(), PATIENCE)
        os.close(held)
        await eventually(lambda: is_gone(pid))

    asyncio.run(story())


def test_an_idle_child_leaves_kindly_after_a_while(tmp_path: Path) -> None:
    left = tmp_path / "left"
    (tmp_path / "kind.py").write_text(
        "import atexit, os, pathlib\nfrom blackboard import handler\n"
        f"atexit.register(pathlib.Path({str(left)!r}).touch)\n"
        "@handler('kind')\ndef kind(item, ctx):\n    return os.getpid()\n"
    )
    jobs = load(["kind.py"], tmp_path)

    async def story(runner: ProcessRunner) -> None:
        ended = await runner.start(call_of("kind", jobs=jobs), Told(), math.inf).wait()
        await eventually(lambda: not psutil.pid_exists(ended.result))
        assert left.exists()

    with_processes(story, idle_after=0.01)


def test_no_more_children_wait_than_there_is_room_for() -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await asyncio.gather(*(run(runner, "describe") for _ in range(3)))
        pids = {one.result["pid"] for one in ended}
        assert len(pids) == 3
        await eventually(lambda: sum(psutil.pid_exists(pid) for pid in pids) == 1)

    with_processes(story, idle=1)


def test_a_child_that_died_while_it_waited_is_not_given_a_run() -> None:
    async def story(runner: ProcessRunner) -> None:
        first = (await run(runner, "describe")).result["pid"]
        os.kill(first, signal.SIGKILL)
        (child,) = runner.idle._idle
        while child.is_alive():  # the loop has not heard of it yet
            time.sleep(0.001)  # noqa: ASYNC251
        ended = await run(runner, "describe")
        assert ended.outcome is Outcome.OK
        assert ended.result["pid"] != first

    with_processes(story)


def test_closing_stops_what_runs_as_cancelled_and_leaves_no_process() -> None:
    async def story() -> None:
        before = psutil.Process().children(recursive=True)
        runner = ProcessRunner(idle=1)
        execution, told = await started(runner, "never-ends", how="spin")
        idle = (await run(runner, "describe")).result["pid"]
        children = set(psutil.Process().children(recursive=True)) - set(before)
        assert {idle, told.progressed[0][0]} <= {one.pid for one in children}
        await runner.close()
        ended = await execution.wait()
        assert (ended.outcome, ended.error) == (Outcome.CANCELLED, "the worker ended")
        assert not any(one.is_running() for one in children)
        await runner.close()

    asyncio.run(story())
