"""The end of a worker's process, once its work is done."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blackboard import open_blocking
from tests.support.patience import patience
from tests.support.processes import eventually, own_environ, site

JOBS = """
import atexit, os, time
from pathlib import Path
from blackboard import handler

def stay():
    Path(f"stays-{os.getpid()}").touch()
    while not Path("go").exists():
        time.sleep(0.01)

atexit.register(stay)

@handler("counts", every="1h")
async def counts(item, ctx):
    return 1
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_stop_that_comes_late_does_not_change_the_exit_code(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    command = [sys.executable, "-m", "blackboard", "--store", "board.db"]
    options = ["--init", "--jobs", "jobs.py", "--until-idle"]
    process = subprocess.Popen([*command, "worker", *options], cwd=tmp_path, env=own_environ())
    try:
        stays = tmp_path / f"stays-{process.pid}"
        eventually(lambda: stays.exists() or process.poll() is not None, "it is about to end")
        process.send_signal(number)
    finally:
        (tmp_path / "go").touch()
        process.wait()
    assert process.returncode == 0


FIRST = ("unshare", "--user", "--map-root-user", "--pid", "--fork")


def test_a_worker_that_is_process_1_ends_when_it_is_asked_to_while_its_store_is_away(
    tmp_path: Path,
) -> None:
    if subprocess.run([*FIRST, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces of processes here")
    command = (sys.executable, "-m", "blackboard", "--store", "azurite://127.0.0.1:1/none")
    (tmp_path / "jobs.py").write_text(JOBS)
    said = tmp_path / "said"
    with said.open("w") as log:
        outer = subprocess.Popen(
            [*FIRST, *command, "worker", "--init", "--jobs", "jobs.py"],
            cwd=tmp_path,
            env=own_environ(),
            stderr=log,
        )
    (tmp_path / "go").touch()
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    worker = 0
    try:
        eventually(lambda: "waiting: " in said.read_text(), "it waits for its store")
        worker = int(children.read_text())
        os.kill(worker, signal.SIGTERM)
        assert outer.wait(patience(10)) == 128 + signal.SIGTERM
    finally:
        if outer.poll() is None:
            os.kill(worker or outer.pid, signal.SIGKILL)
            outer.wait()


SLOW = """
import asyncio
from pathlib import Path
from blackboard import handler

@handler("slow", every="1h")
async def slow(item, ctx):
    Path("runs").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
"""


def test_a_worker_whose_terminal_is_closed_lets_its_runs_finish(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(SLOW)
    with open_blocking(tmp_path / "board.db", create=True) as board:
        board.add("a", "slow", every="1h")
    command = [sys.executable, "-m", "blackboard", "--store", "board.db", "worker"]
    process = subprocess.Popen([*command, "--jobs", "jobs.py"], cwd=tmp_path, env=own_environ())
    try:
        eventually((tmp_path / "runs").exists, "it runs")
        process.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
    finally:
        process.wait()
    assert process.returncode == 0
    with open_blocking(tmp_path / "board.db") as board:
        assert (board.item("a").outcome, board.item("a").running) == ("ok", False)


RELOADED = """
import asyncio, signal
from pathlib import Path
from blackboard import handler

@handler("slow", every="1h")
async def slow(item, ctx):
    for one in item.params["events"]:
        if one == "saved":
            Path("jobs.py").open("a").write("# saved")
        else:
            signal.raise_signal(signal.SIGTERM)
        for _ in range(100):
            await asyncio.sleep(0)
"""
LOOKING = "from blackboard.cli import main, worker; worker.LOOK_EVERY = 0; main()"


@pytest.mark.parametrize("events", [["asked", "saved"], ["saved", "asked"]])
def test_a_worker_that_is_asked_to_stop_ends_in_its_grace_whatever_is_saved(
    tmp_path: Path, events: list[str]
) -> None:
    (tmp_path / "jobs.py").write_text(RELOADED)
    with open_blocking(tmp_path / "board.db", create=True) as board:
        board.add("a", "slow", every="1h", params={"events": events})
        options = ("--store", "board.db", "worker", "--jobs", "jobs.py", "--reload")
        with site(tmp_path, "board.db") as place:
            assert place.start(*options, program=("-c", LOOKING)).ended() == 0
        assert [run.outcome for run in board.runs("a")] == ["ok"]


UNLISTED = f"""
import blackboard.cli.reload

def changed():
    raise PermissionError("no listing of the jobs")

blackboard.cli.reload.changed = changed
{LOOKING}
"""


def test_a_worker_that_cannot_see_whether_its_jobs_have_changed_ends(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    options = ("--store", "board.db", "worker", "--jobs", "jobs.py", "--reload", "--init")
    (tmp_path / "go").touch()
    with site(tmp_path, "board.db") as place:
        assert place.start(*options, program=("-c", UNLISTED)).ended() == 1
        assert "no listing of the jobs" in (tmp_path / "stderr-0").read_text()


OFTEN = """
from blackboard import handler

@handler("often", every="100ms", stale_after="3s")
async def often(item, ctx):
    with open("runs", "a") as file:
        file.write(f"{ctx.fence}\\n")
"""


def test_a_worker_whose_log_is_not_read_runs_on_and_ends_when_it_is_asked_to(
    tmp_path: Path,
) -> None:
    """Its log is a pipe that takes a few lines only."""
    (tmp_path / "jobs.py").write_text(OFTEN)
    with open_blocking(tmp_path / "board.db", create=True) as board:
        board.add("a", "often", every="100ms")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    os.read(reader, 4096)
    command = [sys.executable, "-m", "blackboard", "--store", "board.db", "worker"]
    options = ["--jobs", "jobs.py", "--cycle", "100ms"]
    process = subprocess.Popen(
        [*command, *options], cwd=tmp_path, env=own_environ(), stderr=writer, stdout=writer
    )
    os.close(writer)
    runs = tmp_path / "runs"
    try:
        eventually(lambda: runs.exists() and runs.read_text().count("\n") > 60, "it runs on")
        process.terminate()
        assert process.wait(patience(30)) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    with open_blocking(tmp_path / "board.db") as board:
        assert not board.item("a").running


LEAVING = """
import asyncio, contextlib, time
from blackboard import handler

left = []

@contextlib.contextmanager
def closing():
    yield
    time.sleep(600)

async def sleeping():
    try:
        await asyncio.sleep(600)
    finally:
        time.sleep(600)

async def yielding():
    try:
        yield
    finally:
        time.sleep(600)

@handler("resources", every="1h", resources=closing)
async def resources(item, ctx):
    return 1

@handler("task", every="1h")
async def task(item, ctx):
    left.append(asyncio.create_task(sleeping()))
    await asyncio.sleep(0)

@handler("generator", every="1h")
async def generator(item, ctx):
    left.append(yielding())
    await anext(left[0])
"""
IMPATIENT = """
from blackboard.cli import main
from blackboard.runners import loop_watch

loop_watch.CLOSES_WITHIN = 2.0
main()
"""


@pytest.mark.parametrize(
    ("kind", "named"),
    [("resources", "`resources` do"), ("task", "task"), ("generator", "no handler")],
)
def test_a_worker_whose_loop_is_blocked_by_what_handlers_left_ends_all_the_same(
    tmp_path: Path, kind: str, named: str
) -> None:
    """And shows where it stood. Its runs have ended well."""
    (tmp_path / "jobs.py").write_text(LEAVING)
    with open_blocking(tmp_path / "board.db", create=True) as board:
        board.add("a", kind, every="1h")
        options = ["--store", "board.db", "worker", "--jobs", "jobs.py", "--until-idle"]
        done = subprocess.run(
            [sys.executable, "-c", IMPATIENT, *options],
            cwd=tmp_path,
            env=own_environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(60.0),
        )
        assert done.returncode == -signal.SIGABRT, done.stderr
        assert "stands still" in done.stderr
        assert named in done.stderr
        assert "jobs.py" in done.stderr.partition("Fatal Python error: Aborted")[2]
        assert [run.outcome for run in board.runs("a")] == ["ok"]
        assert board.workers() == []


AT_EXIT = """
import atexit, time
from blackboard import handler

def never_ending():
    time.sleep(600)

atexit.register(never_ending)

@handler("coroutine", every="1h")
async def coroutine(item, ctx):
    return 1

@handler("plain", every="1h")
def plain(item, ctx):
    return 1
"""
SHORT = """
from blackboard.cli import main, worker

worker.ENDS_WITHIN = 1.0
main()
"""


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
def test_a_worker_whose_jobs_never_end_at_exit_ends_all_the_same(tmp_path: Path, kind: str) -> None:
    (tmp_path / "jobs.py").write_text(AT_EXIT)
    with open_blocking(tmp_path / "board.db", create=True) as board:
        board.add("a", kind, every="1h")
        done = subprocess.run(
            [
                *(sys.executable, "-c", SHORT),
                *("--store", "board.db", "worker", "--jobs", "jobs.py", "--until-idle"),
            ],
            cwd=tmp_path,
            env=own_environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(60.0),
        )
        assert done.returncode == 0, done.stderr
        line, _, traceback = done.stderr.partition("blackboard: what jobs have left to `atexit`")
        assert "worker stopped" in line
        assert "in never_ending" in traceback
        assert [run.outcome for run in board.runs("a")] == ["ok"]
        assert board.workers() == []


GOES_ON = """
import time
from blackboard.cli import main, worker

worker.ENDS_WITHIN = 0.1
try:
    main()
except SystemExit as ended:
    time.sleep(1.0)
    print("goes on after", ended.code)
"""


def test_a_program_that_calls_the_command_goes_on_after_it(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from blackboard import handler\n@handler\ndef job(item, ctx): ...\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", GOES_ON, "worker", "--init", "--jobs", "jobs.py", "--once"],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60.0),
    )
    assert (done.returncode, done.stdout) == (0, "goes on after 0\n"), done.stderr


TAKING = """
import signal
from blackboard import handler

@handler("takes", every="1h")
async def takes(item, ctx):
    {}
"""


@pytest.mark.parametrize(
    "taking",
    [
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "signal.signal(signal.SIGTERM, lambda *_: None)",
        "signal.set_wakeup_fd(-1)",
    ],
)
def test_a_worker_whose_signals_a_handler_has_taken_is_asked_to_stop_by_them(
    tmp_path: Path, taking: str
) -> None:
    (tmp_path / "jobs.py").write_text(TAKING.format(taking))
    with open_blocking(tmp_path / "board.db", create=True) as board:
        board.add("a", "takes", every="1h")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "blackboard", "--store", "board.db"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "worker", "--jobs", "jobs.py"],
            cwd=tmp_path,
            env=own_environ(),
            stderr=stderr,
        )
    try:
        eventually(lambda: "listens to them again" in log.read_text(), "they are taken back")
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience(30.0)) == 0
    finally:
        process.kill()
        process.wait()
