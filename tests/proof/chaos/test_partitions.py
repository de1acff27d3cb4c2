"""Workers that share partitions are killed, stopped, asked to stop and started: what the pumps
noted shows that no acknowledged save was lost, and that every partition is served again.
"""

import random
import signal
from pathlib import Path

import pytest

from tests.proof.chaos.serving import all_go_on, leases, served
from tests.proof.form import LONG
from tests.support.processes import Site, Started, halt

PUMPS = Path(__file__).resolve().parents[2] / "pump_jobs"
WORKERS, TROUBLES = (8, 40) if LONG else (3, 5)
PARTITIONS = {"clicks": 64 if LONG else 16, "plain": 4}


def worker(site: Site) -> Started:
    jobs = ("--init", "--jobs", str(PUMPS), "--store", site.store, "--cycle", "60s")
    environ = {"CLICKS_PARTITIONS": str(PARTITIONS["clicks"])}
    return site.works(site.start("worker", *jobs, environ=environ))


@pytest.mark.timeout(600)
def test_partitions_are_served_whatever_becomes_of_workers(site: Site) -> None:
    site.add("other", type_="counts")  # makes the board
    chance = random.Random(20090615)
    workers = [worker(site) for _ in range(WORKERS)]
    all_go_on(site, PARTITIONS["clicks"])
    for number in range(TROUBLES):
        victim = workers.pop(chance.randrange(len(workers)))
        match number % 3:
            case 0:
                victim.send(signal.SIGKILL)
                victim.ended()
            case 1:
                victim.send(signal.SIGTERM)
                assert victim.ended() == 0
            case _:
                halt(victim.process, site.store)
        workers.append(worker(site))
        all_go_on(site, PARTITIONS["clicks"])
        if victim.process.poll() is None:
            victim.send(signal.SIGCONT)
            workers.append(victim)
    all_go_on(site, PARTITIONS["clicks"])
    for group, count in PARTITIONS.items():
        code, said = leases(site, group)
        assert (code, said["well"], len(said["partitions"])) == (0, True, count)  # type: ignore[arg-type]
    for one in workers:
        one.send(signal.SIGTERM)
    for one in workers:
        one.ended()
    for name, found in served(site).items():
        assert found.problems == [], name
    assert sum(len(one.fences) for one in served(site).values()) > sum(PARTITIONS.values())
    code, said = leases(site, "clicks")
    assert said["held"] == 0
