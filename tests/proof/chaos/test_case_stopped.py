"""PP02: a process stands still (SIGSTOP) between reading that a lock is stale and replacing it."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from blackboard.model import Token
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import claim
from tests.support.patience import patience
from tests.support.processes import Site, eventually

CHILD = Path(__file__).with_name("stopping_child.py")


async def claimed_by_the_dead(board: BoardTable) -> None:
    soon = await board.table.now() + timedelta(minutes=1)  # another process added it by its clock
    (token,) = [one async for one in board.walk(0, until=soon) if isinstance(one, Token)]
    assert (await claim(board, [token], owner="dead")).claims


@pytest.mark.case("PP02", "S2", "S4")
@pytest.mark.timeout(200)
def test_pp02_a_lock_that_was_read_as_stale_before_a_pause_is_not_taken_after_it(
    site: Site,
) -> None:
    """Another took it over meanwhile, let it go, and it is held once more."""
    site.add("davis", type_="waits", stale_after="3s", patient=[3])
    site.run(claimed_by_the_dead)
    command = [sys.executable, str(CHILD), site.store, "davis"]
    with subprocess.Popen(command, cwd=site.folder, stdout=subprocess.PIPE, text=True) as child:
        try:
            process = psutil.Process(child.pid)
            eventually(lambda: process.status() == psutil.STATUS_STOPPED, "it stands still")
            site.works(site.worker())
            eventually(lambda: site.is_ok("davis"), "another takes it over and ends it")
            assert site.start("run", "--store", site.store, "davis").ended() == 0
            site.begun("davis", 3)
            before = site.lock("davis")
            assert before is not None
            child.send_signal(signal.SIGCONT)
            assert child.communicate(timeout=patience(60))[0] == "0\n"
        finally:
            child.kill()
    after = site.lock("davis")
    assert after is not None
    assert (after.nonce, after.fence) == (before.nonce, 3)
    site.mark("go-3")
    eventually(lambda: site.is_ok("davis"), "the newest run ends")
    assert site.outcomes("davis") == [(1, "abandoned"), (2, "ok"), (3, "ok")]
