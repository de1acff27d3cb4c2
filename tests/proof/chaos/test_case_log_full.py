"""DF04: the disk that holds the log is full. Items run nevertheless, without log lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import FOLDER, PATIENCE, Site, eventually

NO_ROOM = Path("/dev/full")


@pytest.mark.case("DF04")
@pytest.mark.skipif(not NO_ROOM.exists(), reason="this system has no disk that is always full")
def test_df04_a_worker_that_cannot_write_its_log_runs_what_is_due(site: Site) -> None:
    """What ended badly, too; and it stops when it is asked to."""
    ids = [f"item-{n}" for n in range(6)]
    site.add(*ids[:3], type_="quick")
    site.add(*ids[3:], type_="quick-plain")
    site.add("bad", type_="exits")
    jobs = ["--jobs", str(FOLDER), "--cycle", "500ms", "-v"]
    command = [sys.executable, "-m", "blackboard", "worker", "--store", site.store, *jobs]
    with NO_ROOM.open("wb") as full:
        worker = subprocess.Popen(command, cwd=site.folder, stdout=full, stderr=full)
    try:
        eventually(lambda: site.is_ok(*ids), "all items are run")
        eventually(lambda: site.outcomes("bad") == [(1, "failed")], "the bad one has failed")
        assert worker.poll() is None
        site.add("later", type_="quick-plain")
        eventually(lambda: site.is_ok("later"), "what comes later is run")
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait()
    assert site.doctor()["clean"]
