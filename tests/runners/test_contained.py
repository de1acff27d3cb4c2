"""Nothing that a coroutine handler starts, leaves behind or raises ends the worker's loop."""

import asyncio
import gc
import json
import logging
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pytest

from blackboard.cli import called, worker
from blackboard.model import Ended, Outcome, replace
from blackboard.runners.inline import InlineRunner
from blackboard.runners.loop import run_loop
from blackboard.runners.secrets import Mask
from tests.jobs_for_tests.leaving_the_loop import ELSEWHERE, HOWS, KINDS
from tests.support.patience import patience
from tests.support.runs import PATIENCE, Told, call_of, coroutines, run

AS_LOADED = "jobs_for_tests.leaving_the_loop"
"""The module of the handlers, as a worker loads it: another one than that which is imported here.
"""
ENDING = ("exit 0", "exit 2", "exit", "interrupt")
"""What asyncio lets out of the loop."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """As in a worker, which listens to SIGINT on its loop. Threads may raise, too."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _collects_its_own() -> Iterator[None]:
    """What is collected is what the test has left, not what all tests before it have imported; and
    asyncio reports it within the test.
    """
    gc.freeze()
    yield
    if jobs := sys.modules.get(AS_LOADED):
        jobs.KEPT.clear()
    gc.collect()
    gc.unfreeze()


def on_a_contained_loop(story: Callable[[InlineRunner], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        async with coroutines() as runner:
            await story(runner)
            ended = await run(runner, "a-describe")  # the loop turns as before
            assert ended.outcome is Outcome.OK

    run_loop(told())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", HOWS)
def test_whatever_a_handler_starts_and_that_raises_is_its_own_runs_failure(
    how: str, kind: str
) -> None:
    expected = Outcome.OK if how in ELSEWHERE else Outcome.FAILED

    async def story(runner: InlineRunner) -> None:
        beside = runner.start(call_of("a-describe"), Told(), math.inf)
        ended = await run(runner, "a-starts", how=how, kind=kind)
        assert ended.outcome is expected
        if ended.outcome is Outcome.FAILED:
            assert ended.error.splitlines()[0].startswith(type(KINDS[kind]()).__name__)
            assert "leaving_the_loop.py" in ended.error
        assert (await beside.wait()).outcome is Outcome.OK

    on_a_contained_loop(story)


@pytest.mark.parametrize("kind", ENDING)
@pytest.mark.parametrize("how", ["soon", "when cancelled", "generator", "stop"])
def test_what_a_handler_left_behind_ends_nothing(
    how: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(runner: InlineRunner) -> None:
        ended = await run(runner, "a-leaves-behind", how=how, kind=kind)
        assert ended == Ended(outcome=Outcome.OK, result="left behind")
        await asyncio.sleep(0.05)

    on_a_contained_loop(story)
    if how in {"soon", "when cancelled"}:
        told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        name = type(KINDS[kind]()).__name__
        what = "what the a-leaves-behind handler of x left behind"
        assert f"{what} raised {name} after its run had ended" in told


def test_a_handler_that_cancels_all_tasks_cancels_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(runner: InlineRunner) -> None:
        beside = runner.start(call_of("a-describe"), Told(), math.inf)
        ended = await run(runner, "a-cancels-all-tasks")
        assert ended.outcome is Outcome.FAILED
        assert ended.error.startswith("CancelledError")
        assert (await beside.wait()).outcome is Outcome.OK

    on_a_contained_loop(story)
    told = [one.getMessage() for one in caplog.records]
    assert told == ["the a-cancels-all-tasks handler of x cancels tasks of its worker: they go on"]


def test_a_handler_that_closes_what_all_coroutines_share_closes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The board of a worker is open in such a generator, and names are looked up by the threads."""

    async def of_the_worker() -> AsyncGenerator[str]:
        yield "open"
        yield "still open"

    async def story(runner: InlineRunner) -> None:
        generator = of_the_worker()
        assert await anext(generator) == "open"
        ended = await run(runner, "a-closes-what-all-share")
        assert (ended.outcome, ended.result) == (Outcome.OK, 7)
        assert await anext(generator) == "still open"
        assert await asyncio.to_thread(int, "8") == 8
        await generator.aclose()

    on_a_contained_loop(story)
    of_whom = "the a-closes-what-all-share handler of x"
    assert [one.getMessage() for one in caplog.records] == [
        f"{of_whom} replaces the threads of `asyncio.to_thread`: they stay",
        f"{of_whom} closes the generators of its worker: they stay open",
        f"{of_whom} ends the threads of `asyncio.to_thread`: they go on",
    ]


def test_a_loop_that_a_handler_makes_itself_ends_its_threads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(runner: InlineRunner) -> None:
        ended = await run(runner, "a-runs-another-loop")
        assert (ended.outcome, ended.result) == (Outcome.OK, False)

    on_a_contained_loop(story)
    assert not caplog.records


def test_a_handler_that_listens_to_signals_keeps_none_from_its_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(runner: InlineRunner) -> None:
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        ended = await run(runner, "a-listens-to-signals")
        assert (ended.outcome, ended.result) == (Outcome.OK, True)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(patience(20)):
            await asked.wait()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    on_a_contained_loop(story)
    signal.signal(signal.SIGTERM, before)
    assert [one.getMessage().partition(" of x ")[2] for one in caplog.records] == [
        "listens to a signal by which its worker is asked to stop: that goes on",
        "ignores a signal by which its worker is asked to stop: that goes on",
    ]


@pytest.mark.parametrize("later", [0.0, 0.04])
@pytest.mark.parametrize(
    "how", ["task", "task of a task", "own task", "callback", "future", "argument"]
)
def test_what_is_logged_of_a_handlers_tasks_and_callbacks_is_masked(
    how: str, later: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(runner: InlineRunner) -> None:
        call = call_of("a-says-a-secret", how=how, later=later, secret="canary-one")
        masked = replace(call, mask=Mask({"TOKEN": "canary-one"}))
        await runner.start(masked, Told(), math.inf).wait()
        await asyncio.sleep(0.06)
        gc.collect()

    on_a_contained_loop(story)
    assert "${TOKEN}" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize("later", [0.0, 0.03])
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        *product(["task", "callback", "exception handler", "blame"], ["unnamed", "shy", "exit 0"]),
        ("gather", "unnamed"),
    ],
)
def test_blaming_a_handler_ends_nothing_whatever_it_raises(
    how: str, kind: str, later: float
) -> None:
    async def story(runner: InlineRunner) -> None:
        ended = await run(runner, "a-is-hostile", how=how, kind=kind, later=later)
        if how == "gather" or (not later and how in {"task", "callback"}):
            assert ended.outcome is Outcome.FAILED
        await asyncio.sleep(0.06)
        gc.collect()

    on_a_contained_loop(story)


def test_a_program_still_ends_itself() -> None:
    async def ending() -> None:
        raise SystemExit(7)

    with pytest.raises(SystemExit) as ended:
        run_loop(ending())
    assert ended.value.code == 7


def test_what_the_loop_runs_is_answered_and_its_error_raised() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    async def fail() -> int:
        raise LookupError

    assert run_loop(answer()) == 7
    with pytest.raises(LookupError):
        run_loop(fail())


DEAF = """
import asyncio
from blackboard.runners import loop

async def deaf():
    while True:
        try:
            await asyncio.sleep(0.01)
        except:
            pass

async def main():
    task = asyncio.create_task(deaf())
    await asyncio.sleep(0.02)

loop._CLEANUP = 0.1
loop.run_loop(main())
"""


def test_a_coroutine_that_swallows_whatever_is_to_end_it_does_not_keep_its_program() -> None:
    done = subprocess.run([sys.executable, "-c", DEAF], timeout=PATIENCE, check=False)
    assert done.returncode == 0


def test_ctrl_c_ends_a_program_that_does_not_listen_to_it() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def interrupted() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        await asyncio.sleep(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        run_loop(interrupted())


# ---- the worker, from outside


PROGRAM = (sys.executable, "-P", "-m", "blackboard", "--store", "town.db")


class Place:
    """A folder with a board; commands that work no items are called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def says(self, *args: str) -> str:
        code = called(["--store", "town.db", *args])
        out, err = self._capsys.readouterr()
        assert code == 0, err
        return out

    def declare(self, items: dict[str, tuple[str, str]]) -> None:
        """A board with these items: by their ids the types, and params in TOML."""
        jobs = str(Path(__file__).resolve().parents[1] / "jobs_for_tests")
        lines = [f"[board]\njobs = [{jobs!r}]\n"]
        for name, (type_, params) in items.items():
            lines.append(f"[[items]]\nid = {name!r}\ntype = {type_!r}\nparams = {params}\n")
        Path("blackboard.toml").write_text("\n".join(lines))
        self.says("init")
        self.says("apply")

    def outcomes(self) -> dict[str, str]:
        logged = json.loads(self.says("log", "--json", "-n", "1000"))
        return {one["id"]: one["outcome"] for one in logged}


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(capsys)


def test_a_worker_outlives_its_handlers_and_ends_when_it_is_done(place: Place) -> None:
    left = ("soon", "when cancelled", "generator", "stop", "thread", "executor", "to thread")
    kinds = ("exit 0", "exit 2", "interrupt")
    items = {
        f"{how}, {kind}": ("a-starts", f"{{ how = {how!r}, kind = {kind!r} }}")
        for how in HOWS
        for kind in kinds
    }
    items |= {
        f"left {how}": ("a-leaves-behind", f"{{ how = {how!r}, kind = {kind!r} }}")
        for how, kind in zip(left, cycle(kinds), strict=False)
    }
    place.declare(items)
    done = subprocess.run(
        [*PROGRAM, "worker", "--until-idle", "--slots", "4"],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert done.returncode == 0, done.stderr
    assert place.outcomes() == {
        name: "ok" if name.startswith(("left", *ELSEWHERE)) and "thread's" not in name else "failed"
        for name in items
    }


def test_a_process_that_a_coroutine_forks_does_not_work_as_the_worker(place: Place) -> None:
    hows = ("returns", "awaits", "in a task", "in a callback", "works on")
    place.declare({how: ("a-forks", f"{{ how = {how!r} }}") for how in hows})
    done = subprocess.run(
        [*PROGRAM, "worker", "--until-idle", "--log", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    told = Counter(
        (event["event"], event.get("item")) for event in map(json.loads, done.stderr.splitlines())
    )
    assert {told["ended", how] for how in hows} == {1}, done.stderr
    assert told["worker stopped", None] == 1
    assert set(place.outcomes().values()) == {"ok"}
    cleaned_up = Counter(Path("cleaned-up").read_text().splitlines())
    assert list(cleaned_up.values()) == [len(hows)]  # only in the worker


@pytest.mark.parametrize("code", [0, 2, None, "a text"])
def test_no_system_exit_decides_the_exit_code_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: object
) -> None:
    """One that a signal handler raised, for example, in the middle of the worker's own work."""

    async def ended(*_: object, **__: object) -> None:
        raise SystemExit(code)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker._Work, "_work", ended)
    jobs = str(Path(__file__).resolve().parents[1] / "jobs_for_tests")
    assert called(["--store", "town.db", "worker", "--jobs", jobs]) == 1


def test_a_worker_that_a_handler_ends_is_followed_by_another(place: Place) -> None:
    ends = {("os._exit", 0): "0", ("os._exit", 2): "2", ("kill", 0): "-9"}
    place.declare(
        {
            f"{how} {code}": ("a-ends-its-worker", f"{{ how = {how!r}, code = {code} }}")
            for how, code in ends
        }
    )
    command = ["worker", "--processes", str(len(ends)), "--slots", "1", "--cycle", "1s"]
    with subprocess.Popen(
        [*PROGRAM, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as fleet:
        assert fleet.stderr is not None
        lines = iter(fleet.stderr.readline, "")
        ended = list(islice((one for one in lines if "another in" in one), len(ends)))
        started = next(one for one in lines if "worker started" in one)
        found = [line.split("a worker ended with ")[1].split(";")[0] for line in ended]
        assert sorted(found) == sorted(ends.values()), (found, started)
        fleet.terminate()
        fleet.stderr.read()
        assert fleet.wait(PATIENCE) == 0
