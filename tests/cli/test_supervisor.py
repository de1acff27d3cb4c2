"""The command line that a supervisor gives each of its workers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from blackboard.cli import called, supervisor, worker
from blackboard.cli.supervisor import SUPERVISED, SupervisorPipe, without
from blackboard.errors import BadInput
from blackboard.rules.breaker import Backoff
from tests.cli.command_line import processed
from tests.support.patience import patience
from tests.support.ports import free_port
from tests.support.processes import eventually, own_environ


@pytest.mark.parametrize(
    ("arguments", "one"),
    [
        (["worker", "--processes", "3", "--jobs", "x"], ["worker", "--jobs", "x"]),
        (["--store", "s", "worker", "--processes=3"], ["--store", "s", "worker"]),
        (["worker", "--jobs", "x", "--processes", "3"], ["worker", "--jobs", "x"]),
        (["worker", "--processes", "2", "--processes=3", "-v"], ["worker", "-v"]),
        (["worker"], ["worker"]),
    ],
)
def test_a_worker_is_given_all_but_the_number_of_workers(
    arguments: list[str], one: list[str]
) -> None:
    assert without("--processes", arguments) == one


def test_a_worker_that_is_not_supervised_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stdin may be anything, and end at once."""
    monkeypatch.delenv(SUPERVISED, raising=False)

    async def story() -> None:
        SupervisorPipe().when_closed(lambda: pytest.fail("nobody left it"))
        assert not asyncio.get_running_loop().remove_reader(0)

    asyncio.run(story())


def test_a_worker_hears_when_its_supervisor_is_gone_also_where_a_handler_closes_stdin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, as it was said last; and what it starts itself has no supervisor. Who reads its stdin
    reads nothing.
    """
    monkeypatch.setenv(SUPERVISED, "1")
    reader, writer = os.pipe()
    heard = 0

    async def story() -> None:
        gone = asyncio.Event()

        def stop() -> None:
            nonlocal heard
            heard += 1
            gone.set()

        pipe = SupervisorPipe(reader)
        pipe.when_closed(lambda: pytest.fail("it works by now"))
        pipe.when_closed(stop)
        assert SUPERVISED not in os.environ
        os.write(writer, b".")
        assert os.read(reader, 1) == b""
        os.close(reader)
        os.close(writer)
        await asyncio.wait_for(gone.wait(), patience(10))
        await asyncio.sleep(0)

    asyncio.run(story())
    assert heard == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_worker_that_waits_for_its_store_no_more_does_not_hear_of_its_supervisor(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Its end would be that of a wait that has ended."""
    monkeypatch.setenv(SUPERVISED, "1")
    reader, writer = os.pipe()
    problems: list[dict[str, Any]] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: problems.append(context))
        with suppress(BadInput):
            async with worker._ended_when_closed(SupervisorPipe(reader)):
                if fails:
                    raise BadInput("store", "it is none", "another")
        os.close(writer)
        await asyncio.sleep(0.05)

    asyncio.run(story())
    os.close(reader)
    assert problems == []


def test_a_worker_that_still_waits_for_its_store_ends_with_its_supervisor(tmp_path: Path) -> None:
    """As it would wait for ever."""
    reader, writer = os.pipe()
    environ = own_environ() | {
        SUPERVISED: "1",
        "BLACKBOARD_STORE": f"azurite://127.0.0.1:{free_port()}/blackboard",
    }
    (tmp_path / "jobs.py").write_text(HANDLER)
    command = [sys.executable, "-m", "blackboard", "worker", "--jobs", "jobs.py"]
    log = tmp_path / "log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            command, stdin=reader, stdout=out, stderr=out, env=environ, cwd=tmp_path
        )
    try:
        os.close(reader)
        eventually(lambda: b"waiting" in log.read_bytes(), "it waits for its store")
        os.close(writer)
        eventually(lambda: worker.poll() is not None, "it ends")
        assert worker.returncode == 1
        assert b"its supervisor has ended" in log.read_bytes()
        assert b"Traceback" not in log.read_bytes()
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_that_is_cancelled_otherwise_does_not_name_its_supervisor(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(HANDLER + CANCELLED)
    command = [sys.executable, "-m", "blackboard", "--store", "x.db", "worker", "--init"]
    done = subprocess.run(
        [*command, "--jobs", "jobs.py"],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=False,
    )
    assert done.returncode == 1
    assert "the worker was cancelled" in done.stderr
    assert "supervisor" not in done.stderr


HANDLER = """
from blackboard import handler

@handler("hello", every="1h")
async def hello(item, ctx): ...
"""

CANCELLED = """
import asyncio
from blackboard.board_worker import BoardWorker

async def work(*_):
    raise asyncio.CancelledError

BoardWorker.work = work
"""

WORKER = """
import pathlib, signal, sys, time
count = len(list(pathlib.Path({folder!r}).iterdir()))
pathlib.Path({folder!r}, str(count)).touch()
how = {how!r}[count] if count < {count} else "stays"
if how == "killed":
    signal.raise_signal(signal.SIGKILL)
if how == "stays":
    time.sleep(600)
sys.exit(how)
"""


def test_what_died_is_started_again_whatever_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 and 2 too: a handler may have chosen them. And a start that fails is tried again."""
    ends = [0, 2, 3, "killed", 1, 0]
    program = WORKER.format(folder=str(tmp_path), how=ends, count=len(ends))

    def started() -> int:
        return len(list(tmp_path.iterdir()))

    start, refused = asyncio.create_subprocess_exec, list[object]()

    async def instead(*command: str, **about: Any) -> asyncio.subprocess.Process:
        if started() == 3 and not refused:
            refused.append(command)
            raise BlockingIOError(11, "no more processes")
        return await start(command[0], "-c", program, **about)

    async def story() -> int:
        alone = supervisor._Supervisor([], restart=True, endpoint=None)
        running = asyncio.create_task(alone.run(1))
        async with asyncio.timeout(patience(60)):
            while started() <= len(ends):  # noqa: ASYNC110 - processes
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        return await running

    monkeypatch.setattr(asyncio, "create_subprocess_exec", instead)
    monkeypatch.setattr(supervisor, "RESTARTS", Backoff(shortest=0.001, longest=0.001))
    assert asyncio.run(story()) == 0
    told = capsys.readouterr().err
    assert [line.split("; another in")[0] for line in told.splitlines()] == [
        *(f"blackboard: a worker ended with {code}" for code in (0, 2, 3)),
        "blackboard: a worker could not be started: [Errno 11] no more processes",
        *(f"blackboard: a worker ended with {code}" for code in (-9, 1, 0)),
    ]


def test_how_a_worker_ended_is_known_also_where_it_ends_before_a_signal_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python asks for it in a thread, which may do so later than the signal is passed on."""
    start, waitpid = asyncio.create_subprocess_exec, os.waitpid
    ended = tmp_path / "ended"

    def late(pid: int, options: int) -> tuple[int, int]:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(1.0)
        return waitpid(pid, options)

    async def instead(*command: str, **about: Any) -> asyncio.subprocess.Process:
        program = f"import pathlib; pathlib.Path({str(ended)!r}).touch()"
        return await start(command[0], "-c", program, **about)

    async def story() -> int:
        running = asyncio.create_task(
            supervisor._Supervisor([], restart=True, endpoint=None).run(1)
        )
        async with asyncio.timeout(patience(60)):
            while not ended.exists():  # noqa: ASYNC110 - processes
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)
        return await running

    monkeypatch.setattr(os, "waitpid", late)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", instead)
    assert asyncio.run(story()) == 0


@pytest.mark.parametrize("workers", [[], ["--processes", "2"]])
def test_jobs_that_change_the_folder_when_they_are_imported_move_no_board(
    tmp_path: Path,
    workers: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = """
import os
from blackboard import handler

os.chdir("/")

@handler("moved")
def moved(item, ctx):
    return os.getcwd()
"""
    (tmp_path / "jobs.py").write_text(job)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BLACKBOARD_STORE", raising=False)
    assert called(["init"]) == 0
    assert called(["add", "a", "--type", "moved"]) == 0
    done = processed("worker", "--jobs", "jobs.py", "--until-idle", *workers, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    capsys.readouterr()
    assert called(["log", "--json"]) == 0
    assert [one["result"] for one in json.loads(capsys.readouterr().out)] == ["/"]
