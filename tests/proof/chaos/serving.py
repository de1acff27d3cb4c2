"""Reads the notes of pumps in the folder of their workers, and judges them by their leases."""

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.support.processes import Site, eventually, own_environ, whole_lines


class Gap(NamedTuple):
    """A partition without a pump, as its notes show it."""

    worker: str
    """That had it before."""
    since: float
    """The last note of that worker, in monotonic seconds."""
    seconds: float
    fences: int = 1
    """From the pump before it to the next. More than one: a lock in between was freed, or another
    worker that had it made no note.
    """


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
    gaps: list[Gap] = field(default_factory=list)
    worker: str = ""
    """That served it last. What a pump notes that has lost it, such as a save that it was told of
    only after it stood still, is no service.
    """
    moment: float = 0.0

    def note(self, what: str, position: int, fence: int, *, worker: str, moment: float) -> None:
        if what == "began" and self.worker:
            seconds, fences = moment - self.moment, fence - self.fence
            self.gaps.append(Gap(self.worker, self.moment, seconds, fences))
        if fence >= self.fence:
            self.worker, self.moment = worker, moment
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
    for line in whole_lines(site.folder / "notes"):
        what, position, partition, fence, worker, moment = line.split(" ")
        found[partition].note(what, int(position), int(fence), worker=worker, moment=float(moment))
    return found


def longest_silence(site: Site, since: float, until: float) -> float:
    """Seconds that no pump of any partition noted anything: the store answered nobody, or the
    machine stood still.
    """
    moments = sorted(float(line.rpartition(" ")[2]) for line in whole_lines(site.folder / "notes"))
    within = [since, *(moment for moment in moments if since < moment < until), until]
    return max(later - sooner for sooner, later in pairwise(within))


def all_go_on(site: Site, partitions: int, *, times: int = 1) -> None:
    """Wait until each partition has been saved again, so many times."""
    before = {name: one.saves for name, one in served(site).items()}

    def each() -> bool:
        now = served(site)
        enough = len(now) >= partitions
        return enough and all(one.saves >= before.get(name, 0) + times for name, one in now.items())

    eventually(each, "every partition is served again")


def leases(site: Site, group: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "blackboard", "--store", site.store, "leases", group, "--json"],
        cwd=site.folder,
        env=own_environ(),
        stdout=subprocess.PIPE,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)
