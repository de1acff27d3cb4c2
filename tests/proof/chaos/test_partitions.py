"""Workers that share partitions are killed, stopped, asked to stop and started: what the pumps
noted shows that no acknowledged save was lost, and that every partition is served again in time.
"""

import random
import signal
from pathlib import Path
from time import monotonic

import pytest

from blackboard.rules.shares import HURRY, UNTAKEN, names_of
from tests.proof.chaos.serving import all_go_on, leases, longest_silence, served
from tests.proof.form import LONG
from tests.support.patience import is_within
from tests.support.processes import Site, Started, halt

PUMPS = Path(__file__).resolve().parents[2] / "pump_jobs"
TAKEN = 3.0 + 2 * 1.0 + 5.0
"""Seconds that a partition is without a pump whose worker is silent: a lease, two rounds, and 5."""
AFTER_DEATHS = 60.0 + TAKEN
"""The same, where its lock was freed: seven workers had died with it."""
HANDED_OVER = UNTAKEN + 1.0 + HURRY
"""The same, where its worker has let it go: whom it is dealt to may have died or just come, and the
others take it after `UNTAKEN`, when they have looked twice.
"""
WORKERS, TROUBLES = (8, 40) if LONG else (3, 5)
PARTITIONS = {"clicks": 64 if LONG else 16, "plain": 4}
NOTED_EVERY = PARTITIONS["clicks"] / 160
"""Seconds from one note of a pump to the next, about."""


def worker(site: Site) -> Started:
    jobs = ("--init", "--jobs", str(PUMPS), "--store", site.store, "--cycle", "60s")
    environ = {"CLICKS_PARTITIONS": str(PARTITIONS["clicks"])}
    return site.works(site.start("worker", *jobs, environ=environ))


def served_in_time(site: Site, since: float, *, silent: Started | None) -> None:
    """No partition of `clicks` was without a pump for too long, since a moment."""
    found = served(site)
    for name in names_of(PARTITIONS["clicks"]):
        for gap in found[name].gaps:
            if gap.since < since - NOTED_EVERY:
                continue
            is_silent = silent is not None and f":{silent.pid}:" in gap.worker
            taken = TAKEN if gap.fences == 1 else AFTER_DEATHS
            bound = taken if is_silent else HANDED_OVER
            silence = longest_silence(site, gap.since, gap.since + gap.seconds)
            assert is_within(gap.seconds - silence, bound), f"{name}: {gap}"


@pytest.mark.timeout(600)
def test_partitions_are_served_whatever_becomes_of_workers(site: Site) -> None:
    site.add("other", type_="counts")  # makes the board
    chance = random.Random(20090615)
    workers = [worker(site) for _ in range(WORKERS)]
    all_go_on(site, PARTITIONS["clicks"])
    for number in range(TROUBLES):
        victim = workers.pop(chance.randrange(len(workers)))
        moment, is_silent = monotonic(), True
        match number % 3:
            case 0:
                victim.send(signal.SIGKILL)
                victim.ended()
            case 1:
                victim.send(signal.SIGTERM)
                assert victim.ended() == 0
                is_silent = False
            case _:
                halt(victim.process, site.store)
        if victim.process.poll() is not None:
            workers.append(worker(site))
        all_go_on(site, PARTITIONS["clicks"])
        served_in_time(site, moment, silent=victim if is_silent else None)
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
