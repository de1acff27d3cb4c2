"""`@handler(resources=...)`: opened once in a worker or a child process, and closed at its end."""

import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from blackboard import BadInput, Context, Item, handler
from blackboard.handlers.registry import load
from blackboard.model import Outcome, replace
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.runners.resources import LoopResources
from blackboard.runners.runner import Runner
from tests.support.processes import is_gone
from tests.support.runs import (
    PATIENCE,
    Told,
    call_of,
    eventually,
    on_the_loop,
    run,
    with_processes,
)


@pytest.fixture(name="notes")
def _notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESOURCES", str(tmp_path / "notes"))
    return tmp_path / "notes"


def lines(notes: Path) -> list[str]:
    return notes.read_text().split()


@pytest.mark.parametrize("type_", ["a-pooled", "a-plainly-pooled"])
def test_coroutines_of_a_worker_share_what_is_opened_once_and_closed_at_its_end(
    notes: Path, type_: str
) -> None:
    async def story(runner: InlineRunner) -> None:
        both = await asyncio.gather(run(runner, type_), run(runner, type_))
        last = await run(runner, type_)
        assert sorted(one.result for one in (*both, last)) == [
            [os.getpid(), number] for number in (1, 2, 3)
        ]
        assert lines(notes) == ["opened"]

    on_the_loop(story)
    assert lines(notes) == ["opened", "closed"]


def test_a_child_process_keeps_what_it_has_opened_from_run_to_run(notes: Path) -> None:
    """A connection that is opened at its first use is no leftover of that run."""

    async def story(runner: ProcessRunner) -> None:
        (pid, _) = (await run(runner, "pooled")).result
        assert (await run(runner, "pooled")).result == [pid, 2]
        # Another handler of the module has none, and finds nothing left behind by the first.
        assert (await run(runner, "beside")).result == [pid, None]
        assert (await run(runner, "beside")).result == [pid, None]
        assert (await run(runner, "pooled")).result == [pid, 3]
        assert lines(notes) == ["opened"]

    with_processes(story)
    assert lines(notes) == ["opened", "closed"]


@pytest.mark.parametrize("how", ["fails", "leaves"])
def test_a_child_that_is_replaced_closes_what_it_has_opened(notes: Path, how: str) -> None:
    async def story(runner: ProcessRunner) -> None:
        first = (await run(runner, "pooled")).result[0]
        params: dict[str, Any] = {how: True}
        await run(runner, "pooled", **params)
        assert lines(notes) == ["opened", "closed"]
        assert is_gone(first)
        assert (await run(runner, "pooled")).result[1] == 1

    with_processes(story)
    assert lines(notes) == ["opened", "closed"] * 2


def test_a_child_that_had_its_runs_closes_what_it_has_opened(notes: Path) -> None:
    async def story(runner: ProcessRunner) -> None:
        uses = [(await run(runner, "pooled")).result[1] for _ in range(4)]
        assert uses == [1, 2, 1, 2]

    with_processes(story, runs=2)
    assert lines(notes) == ["opened", "closed"] * 2


@pytest.mark.parametrize(
    ("on", "type_"),
    [(on_the_loop, "a-pooled"), (on_the_loop, "a-plainly-pooled"), (with_processes, "pooled")],
)
def test_what_cannot_be_opened_fails_the_run_and_is_tried_again(
    notes: Path, monkeypatch: pytest.MonkeyPatch, on: Any, type_: str
) -> None:
    monkeypatch.setenv("RESOURCES_FAIL", "1")

    async def story(runner: Any) -> None:
        ended = await run(runner, type_)
        assert (ended.outcome, ended.error.splitlines()[0]) == (
            Outcome.FAILED,
            "OSError: no route",
        )
        monkeypatch.delenv("RESOURCES_FAIL")
        assert (await run(runner, type_)).result[1] == 1

    on(story)
    assert lines(notes) == ["opened", "opened", "closed"]


@pytest.mark.parametrize(
    ("on", "type_"),
    [(on_the_loop, "a-pooled"), (on_the_loop, "a-plainly-pooled"), (with_processes, "pooled")],
)
@pytest.mark.parametrize(
    ("how", "ended"),
    [
        ("skip", (Outcome.OK, "no database today")),
        ("exit", (Outcome.FAILED, "SystemExit: ")),
    ],
)
def test_what_skips_or_exits_while_it_is_opened_ends_the_run(
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    on: Any,
    type_: str,
    how: str,
    ended: tuple[Outcome, str],
) -> None:
    """An exit is no success there: the handler was not called."""
    monkeypatch.setenv("RESOURCES_FAIL", how)

    async def story(runner: Any) -> None:
        found = await run(runner, type_)
        assert (found.outcome, found.error.splitlines()[0]) == ended

    on(story)
    assert lines(notes) == ["opened"]


UNCLOSED = """\
import contextlib
from blackboard import handler

@contextlib.contextmanager
def broken():
    yield
    raise OSError("no route")

@handler("unclosed", resources=broken)
def unclosed(item, ctx):
    return 1 / item.params["by"]
"""


@pytest.mark.parametrize("by", [1, 0], ids=["of an idle child", "after a failed run"])
def test_what_a_child_raises_as_it_closes_them_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: int
) -> None:
    (tmp_path / "unclosed.py").write_text(UNCLOSED)
    jobs, told = load(["unclosed.py"], tmp_path), Told()

    async def story(runner: ProcessRunner) -> None:
        await runner.start(call_of("unclosed", jobs=jobs, by=by), told, math.inf).wait()

    with_processes(story, stop_timeout=PATIENCE)
    [line] = [message for _, message in told.logs] + caplog.messages
    assert line.startswith("the end of ")
    assert line.endswith("the child process ended: exit code 1; it printed last: OSError: no route")


NUMBERED = """\
import os
from blackboard import handler

@handler("numbered")
def numbered(item, ctx):
    return os.getpid()
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_idle_child_that_the_manager_of_a_service_has_ended_is_no_problem(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: signal.Signals
) -> None:
    (tmp_path / "numbered.py").write_text(NUMBERED)
    jobs, told = load(["numbered.py"], tmp_path), Told()

    async def story(runner: ProcessRunner) -> None:
        ended = await runner.start(call_of("numbered", jobs=jobs), told, math.inf).wait()
        os.kill(ended.result, ending)

    with_processes(story)
    assert [*told.logs, *caplog.messages] == []


def test_an_idle_child_whose_exit_code_is_not_known_is_no_problem(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a program that ignores SIGCHLD."""
    (tmp_path / "numbered.py").write_text(NUMBERED)
    jobs = load(["numbered.py"], tmp_path)

    async def story(runner: ProcessRunner) -> None:
        await runner.start(call_of("numbered", jobs=jobs), Told(), math.inf).wait()

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with_processes(story)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert caplog.messages == []


def test_a_run_that_has_ended_keeps_its_outcome_while_its_child_closes_them(notes: Path) -> None:
    async def story(runner: ProcessRunner) -> None:
        execution = runner.start(call_of("slow-to-close"), Told(), math.inf)
        await eventually(lambda: notes.exists() and "closing" in lines(notes))
        execution.stop(Outcome.TIMEOUT, "it ran longer than 2s")
        with notes.open("a") as file:
            file.write("go\n")
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.result) == (Outcome.OK, "done")

    with_processes(story)


def test_an_opening_that_hangs_is_given_up_with_its_run_whichever_others_wait() -> None:
    async def story() -> None:
        openings, resources = list[str](), LoopResources()

        class Hanging:
            async def __aenter__(self) -> str:
                openings.append("opening")
                if len(openings) == 1:
                    try:
                        await asyncio.Event().wait()
                    finally:
                        openings.append("cancelled")
                return "open"

            async def __aexit__(self, *_: object) -> None: ...

        first, second = (asyncio.create_task(resources.of("t", Hanging)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        assert await asyncio.wait_for(second, PATIENCE) == "open"
        assert sorted(openings) == ["cancelled", "opening", "opening"]
        assert await resources.close(1.0) == []

    asyncio.run(story())


def test_an_opening_goes_on_when_a_run_is_stopped_that_also_waited_for_another_one() -> None:
    """It has less time than a run: else runs that overlap would never see a slow one to its end."""

    async def story() -> None:
        gates, resources = [asyncio.Event(), asyncio.Event()], LoopResources()
        gates_left = iter(gates)

        class Slow:
            async def __aenter__(self) -> int:
                gate = next(gates_left)
                await gate.wait()
                return gates.index(gate)

            async def __aexit__(self, *_: object) -> None: ...

        runs = [asyncio.create_task(resources.of("t", Slow)) for _ in range(3)]
        await asyncio.sleep(0)
        for one in runs[:2]:
            one.cancel()
            await asyncio.wait([one])
        gates[1].set()
        assert await asyncio.wait_for(runs[2], PATIENCE) == 1
        assert await resources.close(1.0) == []

    asyncio.run(story())


def test_what_opens_after_it_was_given_up_is_closed_at_once() -> None:
    async def story() -> None:
        notes, resources = list[str](), LoopResources()

        @asynccontextmanager
        async def stubborn() -> AsyncIterator[None]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                notes.append("opened")
            yield
            notes.append("closed")

        run_ = asyncio.create_task(resources.of("t", stubborn))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        run_.cancel()
        await asyncio.wait([run_])
        assert await resources.close(1.0) == []
        assert notes == ["opened", "closed"]

    asyncio.run(story())


def test_a_run_that_is_stopped_while_they_open_stops_no_other() -> None:
    async def story() -> None:
        gate, resources = asyncio.Event(), LoopResources()

        class Slow:
            async def __aenter__(self) -> str:
                await gate.wait()
                return "open"

            async def __aexit__(self, *_: object) -> None: ...

        first = asyncio.create_task(resources.of("t", Slow))
        second = asyncio.create_task(resources.of("t", Slow))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        gate.set()
        assert await second == "open"
        assert await resources.close(1.0) == []

    asyncio.run(story())


def test_a_run_that_is_stopped_as_they_open_leaves_them_open_for_the_next() -> None:
    async def story() -> None:
        gate, resources, notes = asyncio.Event(), LoopResources(), list[str]()

        class Pool:
            async def __aenter__(self) -> None:
                await gate.wait()
                notes.append("opened")

            async def __aexit__(self, *_: object) -> None:
                notes.append("closed")

        first = asyncio.create_task(resources.of("t", Pool))
        await asyncio.sleep(0)
        resources._opened["t"].value.add_done_callback(lambda _: first.cancel())
        gate.set()
        await asyncio.wait([first])
        assert first.cancelled()
        await resources.of("t", Pool)
        assert await resources.close(1.0) == []
        assert notes == ["opened", "closed"]

    asyncio.run(story())


def test_what_does_not_close_in_time_is_given_up() -> None:
    async def story() -> None:
        class Stuck:
            async def __aenter__(self) -> None: ...

            async def __aexit__(self, *_: object) -> None:
                await asyncio.Event().wait()

        class Broken(Stuck):
            async def __aexit__(self, *_: object) -> None:
                raise OSError("no route")

        resources = LoopResources()
        await resources.of("a", Stuck)
        await resources.of("b", Broken)
        problems = await resources.close(0.01)
        assert [(str(one), one.__notes__) for one in problems] == [
            ("no route", ["while the resources of b were closed"]),
            ("not closed within 0.01 s", ["while the resources of a were closed"]),
        ]

    asyncio.run(story())


def bare() -> Iterator[int]:
    yield 1


async def async_bare() -> AsyncIterator[int]:
    yield 1


def test_resources_that_could_not_be_opened_are_refused_where_they_are_declared() -> None:
    def plain(item: Item, ctx: Context) -> None: ...

    async def coroutine(item: Item, ctx: Context) -> None: ...

    for function, resources, problem in (
        (plain, 7, "resources 7 is not a function"),
        (plain, bare, "a bare generator"),
        (coroutine, async_bare, "a bare generator"),
        (plain, asynccontextmanager(async_bare), "a plain function has no loop"),
    ):
        with pytest.raises(BadInput, match=problem):
            handler("t", resources=resources)(function)  # type: ignore[arg-type]
    handler("t", resources=contextmanager(bare))(plain)
    handler("t", resources=asynccontextmanager(async_bare))(coroutine)


SLOW = """
import time
from contextlib import contextmanager
from blackboard import handler

@contextmanager
def slow():
    time.sleep(0.2)
    yield

@handler("easy")
def easy(item, ctx): ...

@handler("slow", resources=slow)
def plain(item, ctx):
    return ctx.time_left()

@handler("a-slow", resources=slow)
async def coroutine(item, ctx):
    return ctx.time_left()
"""


@pytest.mark.parametrize(
    ("on", "types"),
    [(on_the_loop, ["a-slow"]), (with_processes, ["slow"]), (with_processes, ["easy", "slow"])],
)
def test_the_time_that_resources_take_to_open_is_not_left(
    tmp_path: Path, on: Any, types: list[str]
) -> None:
    """The time limit counts it, in the first run of a child and in one of a child that is there."""
    (tmp_path / "slow.py").write_text(SLOW)
    jobs = load(["slow.py"], tmp_path)

    async def story(runner: Runner) -> None:
        for one in types:
            call = replace(call_of(one, jobs=jobs), allowed=600.0)
            ended = await asyncio.wait_for(runner.start(call, Told(), math.inf).wait(), PATIENCE)
        assert 500 < ended.result <= 599.8

    on(story)
