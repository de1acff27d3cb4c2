"""Coroutine handlers on the worker's loop."""

# ruff: noqa: T201 - printing is what is tested

import asyncio
import logging
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blackboard.model import Ended, Outcome
from blackboard.runners.inline import InlineRunner
from tests.support.patience import patience
from tests.support.runs import (
    PATIENCE,
    Told,
    call_of,
    eventually,
    on_the_loop,
    run,
    started,
)


def test_a_coroutine_handler_is_given_its_item_and_its_context() -> None:
    async def story(runner: InlineRunner) -> None:
        assert await run(runner, "a-describe", feed="ü") == Ended(
            outcome=Outcome.OK,
            result={
                "id": "x",
                "params": {"feed": "ü"},
                "due": "2026-03-01T04:05:06.789000Z",
                "fence": 7,
                "attempt": 2,
                "worker": "host:1:nonce",
                "fenced": True,
                "settings": {"allow": ["file"]},
                "lost": False,
            },
        )

    on_the_loop(story)


def test_a_coroutine_result_that_json_cannot_hold_fails_the_run() -> None:
    async def story(runner: InlineRunner) -> None:
        ended = await run(runner, "a-return-odd")
        assert ended.outcome is Outcome.FAILED
        assert "returned dict, which is not JSON: Encoding objects of type object" in ended.error

    on_the_loop(story)


def test_a_coroutine_and_its_threads_reach_the_report_in_order() -> None:
    async def story(runner: InlineRunner) -> None:
        told = Told()
        await run(runner, "a-speak", told=told)
        assert told.logs == [(logging.INFO, "one of 3"), (logging.WARNING, "from a thread")]
        assert told.progressed == [(1, 3), (3, 3)]

    on_the_loop(story)


def test_what_coroutines_print_is_kept_apart_and_the_worker_prints_as_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Printing(Told):
        def log(self, level: int, message: str) -> None:
            print("the worker says", message)

    async def story(runner: InlineRunner) -> None:
        runs = [runner.start(call_of("a-print", id_=name), Told(), math.inf) for name in ("a", "b")]
        await asyncio.sleep(0)
        print("not a handler")
        for name, execution in zip(("a", "b"), runs, strict=True):
            assert (await execution.wait()).output == (
                f"{name} 0\n{name} 1\n{name} 2\n{name} from a thread\n"
                f"{name} to stderr\n{name} as lines\n"
            )
        assert (await run(runner, "a-speak", told=Printing())).output == ""

    before = sys.stdout, sys.stderr
    on_the_loop(story)
    assert (sys.stdout, sys.stderr) == before
    out = capsys.readouterr().out
    assert out == "not a handler\nthe worker says one of 3\nthe worker says from a thread\n"


def test_a_coroutine_prints_in_a_worker_that_was_started_without_stdout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python has None there, and `print` does nothing then."""
    monkeypatch.setattr(sys, "stdout", None)

    async def story(runner: InlineRunner) -> None:
        printing = runner.start(call_of("a-print"), Told(), math.inf)
        await asyncio.sleep(0)
        print("not a handler", flush=True)
        assert (await printing.wait()).output.startswith("x 0\n")

    on_the_loop(story)
    assert sys.stdout is None


@pytest.mark.parametrize("what", ["exit", "exit 0"])
def test_a_coroutine_that_exits_without_a_code_has_done_its_work(what: str) -> None:
    async def story(runner: InlineRunner) -> None:
        ended = await run(runner, "a-raise", what=f"good {what}")
        assert (ended.outcome, ended.result, ended.error) == (Outcome.OK, None, "")

    on_the_loop(story)


@pytest.mark.parametrize(
    ("what", "first_line"),
    [
        ("value", "ValueError: bad feed"),
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt: "),
        ("cancelled", "CancelledError: "),
    ],
)
def test_whatever_a_coroutine_raises_fails_its_run_and_not_the_worker(
    what: str, first_line: str
) -> None:
    async def story(runner: InlineRunner) -> None:
        ended = await run(runner, "a-raise", what=what)
        assert ended.outcome is Outcome.FAILED
        assert ended.error.splitlines()[0] == first_line
        assert "jobs_for_tests/coroutines.py" in ended.error
        assert "blackboard/runners" not in ended.error

    on_the_loop(story)


@pytest.mark.parametrize("early", [True, False])
def test_a_coroutine_sees_that_its_lock_is_lost(early: bool) -> None:  # noqa: FBT001
    async def story(runner: InlineRunner) -> None:
        told = Told()
        execution = runner.start(call_of("a-wait-until-lost"), told, math.inf)
        if not early:
            await eventually(lambda: bool(told.progressed))
        execution.lose("overridden")
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.result == [early, early, True, True, "overridden"]

    on_the_loop(story)


@pytest.mark.parametrize("type_", ["a-never-ends", "a-cleans-up"])
def test_a_coroutine_is_cancelled_when_stopped_whatever_it_then_returns(type_: str) -> None:
    async def story(runner: InlineRunner) -> None:
        execution, _ = await started(runner, type_)
        execution.extend(0.0)
        execution.stop(Outcome.TIMEOUT, "ran for longer than 10m")
        execution.stop(Outcome.CANCELLED, "too late to say")
        ended = await execution.wait()
        assert (ended.outcome, ended.error) == (Outcome.TIMEOUT, "ran for longer than 10m")
        assert ended.output == {"a-never-ends": "waiting\n", "a-cleans-up": "cleaned up\n"}[type_]
        execution.stop(Outcome.CANCELLED, "after the end")
        assert await execution.wait() == ended

    on_the_loop(story)


def test_a_coroutine_that_swallows_its_cancellation_is_abandoned() -> None:
    async def story(runner: InlineRunner) -> None:
        execution, told = await started(runner, "a-swallows")
        execution.stop(Outcome.TIMEOUT, "enough")
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        ((level, text),) = told.logs
        assert level == logging.ERROR
        assert "swallowed its cancellation" in text
        assert (ended.outcome, ended.error) == (Outcome.TIMEOUT, f"enough; {text}")

    on_the_loop(story, stop_timeout=0.01)


def test_a_coroutine_that_is_stopped_before_it_began_is_never_called() -> None:
    async def story(runner: InlineRunner) -> None:
        told = Told()
        execution = runner.start(call_of("a-never-ends"), told, math.inf)
        execution.stop(Outcome.CANCELLED, "not wanted")
        assert await execution.wait() == Ended(outcome=Outcome.CANCELLED, error="not wanted")
        assert told.progressed == []

    on_the_loop(story)


def test_closing_the_inline_runner_cancels_what_runs() -> None:
    async def story() -> None:
        runner = InlineRunner()
        execution, _ = await started(runner, "a-never-ends")
        await runner.close()
        assert (await execution.wait()).outcome is Outcome.CANCELLED

    asyncio.run(story())


def test_closing_the_inline_runner_stops_all_runs_before_it_waits_for_one() -> None:
    """Their clean-up takes as long as that of the slowest."""

    async def story() -> None:
        runner, were_stopped = InlineRunner(), list[bool]()
        runs = [runner.start(call_of("a-never-ends"), Told(), math.inf) for _ in range(2)]
        for one, other in (runs, runs[::-1]):
            execution: Any = one

            async def waits(other: Any = other) -> None:
                were_stopped.append(other._verdict is not None)

            execution.wait = waits
        await runner.close()
        assert were_stopped == [True, True]

    asyncio.run(story())


def test_what_a_coroutine_changes_of_what_it_is_given_no_other_run_meets() -> None:
    async def story(runner: InlineRunner) -> None:
        call = call_of("a-changes")
        for _ in range(2):
            ended = await runner.start(call, Told(), math.inf).wait()
            assert ended.result == ["{'allow': ['file']}", False]
        print("still here")

    on_the_loop(story)


def test_a_coroutine_that_cancels_its_own_task_has_failed() -> None:
    """As cancelled it would be due again at once, for ever."""

    async def story(runner: InlineRunner) -> None:
        ended = await run(runner, "a-cancels-itself")
        assert ended == Ended(outcome=Outcome.FAILED, error="the handler cancelled its own task")

    on_the_loop(story)


PRINTING = """
import os, sys, threading
from blackboard.runners.output import Tail, capture, route, unroute

def shout():
    while True:
        print("x", 1)

for _ in range(3):
    threading.Thread(target=shout, daemon=True).start()
for _ in range(5_000):
    route()
    capture(Tail())
    unroute()
sys.stderr.write("it lives")
sys.stderr.flush()
os._exit(0)
"""


def test_threads_that_print_while_runs_begin_and_end_do_not_crash_python() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTING],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=patience(60),
    )
    assert (done.returncode, done.stderr) == (0, b"it lives")
