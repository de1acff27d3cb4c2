"""Workers race for partitions over a real Redis, whatever becomes of them, of it and of the
machine.
"""

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.proof.chaos.programs import hogs
from tests.proof.chaos.serving import all_go_on, leases, served
from tests.proof.form import LONG
from tests.support.processes import Site, Started, eventually
from tests.support.redis_server import RedisServer, running_redis

pytestmark = pytest.mark.of_sqlite("the races are over Redis, whatever the store")

JOBS = Path(__file__).resolve().parents[2] / "grab_jobs"
PARTITIONS, HOGS = 6, 24
HALT = 0.6
"""Seconds: longer than a race takes, and shorter than a lease."""
QUIET = 60
"""Saves of each partition, some seconds, in which nothing is to move."""
SETTINGS = """
[redis]
normal = "3s"
maximum = "9s"
shutdown = "2s"
minimum = "1s"
per_held = "100ms"
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with running_redis(folder) as server:
        yield server


def worker(site: Site, redis: RedisServer) -> Started:
    environ = {"BLACKBOARD_REDIS_URL": redis.url}
    return site.works(
        site.start("worker", "--init", "--jobs", str(JOBS), "--store", site.store, environ=environ)
    )


def shares(site: Site) -> list[int]:
    """How many partitions each worker holds."""
    _, said = leases(site, "raced")
    workers = [one["worker"] for one in said["partitions"]]  # type: ignore[attr-defined]
    return sorted(Counter(filter(None, workers)).values())


def fences(site: Site) -> dict[str, int]:
    return {name: one.fence for name, one in served(site).items()}


@pytest.mark.timeout(600)
def test_partitions_are_raced_for_whatever_becomes_of_workers_and_of_redis(
    site: Site, redis: RedisServer
) -> None:
    site.add("other", type_="counts")  # makes the board
    (site.folder / "blackboard.toml").write_text(SETTINGS)
    workers = [worker(site, redis) for _ in range(2)]
    all_go_on(site, PARTITIONS)
    workers.append(worker(site, redis))
    eventually(lambda: shares(site) == [2, 2, 2], "a new worker gets its share")
    before = fences(site)
    all_go_on(site, PARTITIONS, times=QUIET)
    assert fences(site) == before, "what lies evenly stays where it is"

    victim = workers.pop(0)
    victim.send(signal.SIGKILL)
    victim.ended()
    all_go_on(site, PARTITIONS)

    redis.stop()
    eventually(lambda: all("Redis is away" in one.text for one in workers), "they say so")
    victim = workers.pop(0)
    victim.send(signal.SIGKILL)
    victim.ended()
    workers.append(worker(site, redis))
    all_go_on(site, PARTITIONS)
    eventually(lambda: shares(site) == [3, 3], "without Redis the group goes by shares")

    redis.start()
    eventually(lambda: all("the bus is back" in one.text for one in workers), "they say so")
    workers.append(worker(site, redis))
    eventually(lambda: shares(site) == [2, 2, 2], "races go on")
    workers[0].send(signal.SIGTERM)
    assert workers.pop(0).ended() == 0
    all_go_on(site, PARTITIONS)
    for one in workers:
        one.send(signal.SIGTERM)
    assert [one.ended() for one in workers] == [0, 0]
    for name, found in served(site).items():
        assert found.problems == [], name
    assert not [one for one in site.started if "ResourceWarning" in one.text]


@contextmanager
def halts(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Each process stands still for a moment, one after the other, as one without a processor."""
    over = Event()

    def halt() -> None:
        for one in cycle(processes):
            over.wait(2 * HALT)
            one.send_signal(signal.SIGSTOP)
            over.wait(HALT)
            one.send_signal(signal.SIGCONT)
            if over.is_set():
                return

    thread = Thread(target=halt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("load", ["halts", "hogs"] if LONG else ["halts"])
def test_under_load_partitions_stay_where_they_are(
    site: Site, redis: RedisServer, load: str
) -> None:
    """Under real load, in the long form, nothing else on the machine gets on."""
    site.add("other", type_="counts")
    (site.folder / "blackboard.toml").write_text(SETTINGS)
    workers = [worker(site, redis) for _ in range(2)]
    eventually(lambda: shares(site) == [3, 3], "partitions are shared")
    processes = [one.process for one in workers]
    with hogs(HOGS, seconds=600) if load == "hogs" else halts(processes):
        before = fences(site)
        all_go_on(site, PARTITIONS, times=QUIET // 4)
        assert fences(site) == before
    for one in workers:
        one.send(signal.SIGTERM)
    assert [one.ended() for one in workers] == [0, 0]
