"""The end of a worker's process, once its work is done."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import eventually, own_environ

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
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
