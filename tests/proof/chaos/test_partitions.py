"""Workers that share partitions are killed, stopped, asked to stop and started: what the pumps
noted shows that no acknowledged save was lost, and that every partition is served again.
"""

import json
import random
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.proof.form import LONG
from tests.support.processes import Site, Started, eventually, own_environ

PUMPS = Path(__file__).resolve().parents[2] / "pump_jobs"
WORKERS, TROUBLES = (8, 40) if LONG else (3, 5)
PARTITIONS = {"clicks": 16, "plain": 4}


@dataclass
class Served:
    """What the pumps of one partition have noted."""

    acknowledged: int = 0
    fence: int = 0
    """Of the pump that began last."""
    began_at: int = 0
    saves: int = 0
    fences: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def note(self, what: str, position: int, fence: int) -> None:
        if what == "began":
            if fence in self.fences or fence < self.fence:
                self.problems.append(f"a second pump, or an older one, begins with fence {fence}")
            if position < self.acknowledged:
                problem = f"fence {fence} begins at {position}, behind {self.acknowledged}"
                self.problems.append(problem)
            self.fences.add(fence)
            self.fence, self.began_at = fence, position
            return
        self.saves += 1
        self.acknowledged = max(self.acknowledged, position)
        if fence < self.fence and position > self.began_at:
            problem = f"fence {fence} saves {position} when {self.fence} had begun"
            self.problems.append(f"{problem} at {self.began_at}")


def served(site: Site) -> dict[str, Served]:
    found: dict[str, Served] = defaultdict(Served)
    notes = site.folder / "notes"
    for line in notes.read_text().splitlines() if notes.exists() else ():
        what, position, partition, fence, worker = line.split(" ")
        assert worker
        found[partition].note(what, int(position), int(fence))
    return found


def all_go_on(site: Site) -> None:
    """Wait until each partition has been saved again."""
    before = {name: one.saves for name, one in served(site).items()}

    def each() -> bool:
        now = served(site)
        enough = len(now) >= PARTITIONS["clicks"]
        return enough and all(one.saves > before.get(name, 0) for name, one in now.items())

    eventually(each, "every partition is served again")


def worker(site: Site) -> Started:
    jobs = ("--jobs", str(PUMPS), "--store", site.store, "--cycle", "60s")
    return site.works(site.start("worker", *jobs))


def leases(site: Site, group: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "blackboard", "--store", site.store, "leases", group, "--json"],
        cwd=site.folder,
        env=own_environ(),
        stdout=subprocess.PIPE,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(600)
def test_partitions_are_served_whatever_becomes_of_workers(site: Site) -> None:
    site.add("other", type_="counts")  # makes the board
    chance = random.Random(20090615)
    workers = [worker(site) for _ in range(WORKERS)]
    all_go_on(site)
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
                victim.send(signal.SIGSTOP)
        workers.append(worker(site))
        all_go_on(site)
        if victim.process.poll() is None:
            victim.send(signal.SIGCONT)
            workers.append(victim)
    all_go_on(site)
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
