"""`blackboard worker` with a pump whose partitions are raced for: what it refuses to start with."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import own_environ

JOB = """
from blackboard import pump

@pump("clicks", partitions=3, drain="10s", balance="grab")
async def consume(partition, ctx): ...
"""
URL = 'url = "redis://127.0.0.1:6379/0"'


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("", 'redis.url: there is none, and a pump with balance="grab" needs it'),
        (f'{URL}\nminimum = "1m"', "60 s is not shorter than normal, 60 s"),
        (f'{URL}\nshutdown = "10s"', "drain: 10 s is not shorter than shutdown, 10 s"),
    ],
)
def test_a_worker_that_cannot_race_does_not_start(
    tmp_path: Path, settings: str, problem: str
) -> None:
    (tmp_path / "clicks.py").write_text(JOB)
    (tmp_path / "blackboard.toml").write_text(f"[redis]\n{settings}\n")
    done = subprocess.run(
        [sys.executable, "-m", "blackboard", "worker", "--init", "--jobs", "clicks.py"],
        cwd=tmp_path,
        env=own_environ(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
