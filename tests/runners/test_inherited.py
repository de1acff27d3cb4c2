"""What processes inherit from the program that started them: signals, options of Python, and the
environment without secrets of the scheduler.
"""

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import SourceFileLoader
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType

import pytest

from blackboard import BadInput, open_blocking
from blackboard.handlers.registry import check_importable, load
from blackboard.runners.commands import child_environment
from blackboard.runners.process import ProcessRunner
from tests.support.patience import patience
from tests.support.processes import own_environ
from tests.support.runs import JOBS as HANDLERS
from tests.support.runs import PATIENCE, Told, call_of, run, with_processes

JOBS = """
import signal, subprocess, sys
from blackboard import handler

def found():
    return {
        "exit": subprocess.run(["false"]).returncode,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "ignores SIGTERM": signal.getsignal(signal.SIGTERM) is signal.SIG_IGN,
        "optimizes": sys.flags.optimize,
        "utf8": sys.flags.utf8_mode,
        "warnings": [one for one in sys.warnoptions if "odd" in one],
    }

@handler("plain")
def plain(item, ctx):
    return found()

@handler("coroutine")
async def coroutine(item, ctx):
    return found()
"""

DAEMON = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGALRM])
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Starts a program with signals as some daemons leave them."""


WITHOUT_STREAMS = """
import asyncio, os
import blackboard

@blackboard.handler("plain")
def plain(item, ctx):
    print("printed")

async def main():
    async with blackboard.open("app.db", handlers=[plain], create=True) as board:
        os.closerange(0, 3)
        await board.add_many({"a": {}}, "plain")
        await board.worker().work("idle")

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_program_that_has_closed_its_standard_streams_has_child_processes(tmp_path: Path) -> None:
    """As a daemon does: the next descriptors are 0 to 2."""
    (tmp_path / "app.py").write_text(WITHOUT_STREAMS)
    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env=own_environ(), check=False)
    with open_blocking(tmp_path / "app.db") as board:
        (ended,) = board.runs("a")
    assert (ended.outcome, ended.output) == ("ok", "printed\n"), ended.error


def test_handlers_of_a_worker_have_its_options_of_python_and_no_signals_of_its_daemon(
    tmp_path: Path,
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    with open_blocking(tmp_path / "board.db", create=True) as board:
        for one in ("plain", "coroutine"):
            board.add(one, one, every="1h")
    options = ["-O", "-X", "utf8=1", "-W", "ignore:odd"]
    worker = ["-m", "blackboard", "--store", "board.db", "worker", "--until-idle"]
    subprocess.run(
        [sys.executable, "-c", DAEMON, *options, *worker, "--jobs", "jobs.py"],
        cwd=tmp_path,
        env=own_environ(),
        check=True,
        timeout=patience(60),
    )
    with open_blocking(tmp_path / "board.db") as board:
        for one in ("plain", "coroutine"):
            found = next(iter(board.runs(one))).result
            assert (found["exit"], found["blocked"], found["ignores SIGTERM"]) == (1, [], False)
            assert (found["optimizes"], found["utf8"]) == (1, 1)
            assert found["warnings"] == ["ignore:odd"]


@pytest.fixture
def _as_a_program_left_them() -> Iterator[None]:
    before = {one: signal.getsignal(one) for one in (signal.SIGCHLD, signal.SIGTERM)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    for one in before:
        signal.signal(one, signal.SIG_IGN)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.usefixtures("_as_a_program_left_them")
def test_a_child_process_has_no_signals_of_its_program(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    call = call_of("plain", jobs=load(["jobs.py"], tmp_path))

    async def story(runner: ProcessRunner) -> None:
        execution = runner.start(call, Told(), math.inf)
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        found = ended.result
        assert (found["exit"], found["blocked"], found["ignores SIGTERM"]) == (1, [], False)
        died = await run(runner, "die", how="exit")
        assert died.error.startswith("the child process ended (os._exit in the handler?)")

    with_processes(story)


ENVIRONMENT = """
import os, subprocess
from blackboard import handler

@handler("plain")
def plain(item, ctx):
    return subprocess.check_output(["env"], text=True).splitlines()
"""


@pytest.mark.parametrize(
    "name", ["BLACKBOARD_CONNECTION_STRING", "BLACKBOARD_REDIS_URL", "BLACKBOARD_WEB_TOKEN"]
)
def test_a_child_process_has_the_environment_of_its_program_without_secrets_of_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Neither has a command that a notice calls, or that a job of the package starts."""
    monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("OTHER", "seen")
    (tmp_path / "jobs.py").write_text(ENVIRONMENT)
    call = call_of("plain", jobs=load(["jobs.py"], tmp_path))

    async def story(runner: ProcessRunner) -> None:
        ended = await asyncio.wait_for(runner.start(call, Told(), math.inf).wait(), PATIENCE)
        assert "OTHER=seen" in ended.result
        assert not [line for line in ended.result if "canary" in line]

    with_processes(story)
    assert name not in child_environment(os.environ)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frozen", True),
        *(("executable", one) for one in ("", "/usr/bin/uwsgi_python3", "/python/happy")),
    ],
)
def test_a_program_that_is_no_python_is_never_started_in_place_of_one(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """It would start itself again and again."""
    monkeypatch.setattr(sys, name, value, raising=False)
    monkeypatch.setattr(spawn, "_python_exe", sys.executable.encode())
    check_importable(HANDLERS["a-describe"])
    with pytest.raises(BadInput, match=r"is not Python \(.* by multiprocessing.set_executable"):
        check_importable(HANDLERS["describe"])
    for one in ("/usr/bin/python3", "/nix/bin/.python3.12-wrapped", "/opt/Python", "/opt/graalpy"):
        spawn.set_executable(one)
        check_importable(HANDLERS["describe"])


def test_a_program_that_is_importing_multiprocessing_has_child_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In another thread than that of its board, at the moment at which a child is started."""
    begun, goes_on = threading.Event(), threading.Event()
    executed = SourceFileLoader.exec_module

    def execute(loader: SourceFileLoader, module: ModuleType) -> None:
        begun.set()
        goes_on.wait(PATIENCE)
        executed(loader, module)

    monkeypatch.setattr("multiprocessing.spawn", spawn)  # which is there again after the test
    monkeypatch.delitem(sys.modules, spawn.__name__)
    monkeypatch.setattr(SourceFileLoader, "exec_module", execute)
    importing = threading.Thread(target=import_module, args=(spawn.__name__,))
    importing.start()
    assert begun.wait(PATIENCE)
    threading.Timer(0.05, goes_on.set).start()
    try:
        check_importable(HANDLERS["describe"])
    finally:
        goes_on.set()
        importing.join()
