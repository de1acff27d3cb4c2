"""Workers that are killed and stopped while their runs save: each run goes on where the last
acknowledged save was, and no step is left out.
"""

import random
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from tests.proof.form import LONG
from tests.support.processes import Site, whole_lines

WORKERS, ITEMS, STEPS, TROUBLES = (6, 60, 200, 30) if LONG else (3, 6, 40, 4)


@dataclass
class Told:
    """What the runs of one item have noted, in order."""

    acknowledged: int = 0
    """The position of the last save that was answered."""
    starts: int = 0
    did: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def note(self, what: str, position: int, fence: int) -> None:
        if what == "saved":
            self.acknowledged = max(self.acknowledged, position)
        elif what == "did":
            self.did[position] += 1
        else:
            self.starts += 1
            if position < self.acknowledged:
                problem = f"run {fence} starts at {position}, behind {self.acknowledged}"
                self.problems.append(problem)


def noted(site: Site) -> dict[str, Told]:
    told: dict[str, Told] = defaultdict(Told)
    for line in whole_lines(site.folder / "notes"):
        said, item, fence, _worker = line.split(" ", 3)
        what, _, position = said.partition(":")
        told[item].note(what, int(position), int(fence))
    return told


@pytest.mark.timeout(400)
def test_a_run_goes_on_where_the_last_acknowledged_save_was(site: Site) -> None:
    names = [f"{type_}-{n}" for type_ in ("counts", "counts-plain") for n in range(ITEMS)]
    for type_ in ("counts", "counts-plain"):
        ids = [name for name in names if name.rpartition("-")[0] == type_]
        site.add(*ids, type_=type_, stale_after="3s", retries=9, steps=STEPS, seconds=0.1)
    workers = [site.works(site.worker("--grace", "0s")) for _ in range(WORKERS)]
    chance = random.Random(20090615)
    for number in range(TROUBLES):
        time.sleep(1.0)
        victim = workers.pop(chance.randrange(len(workers)))
        victim.send(signal.SIGTERM if number % 2 else signal.SIGKILL)
        victim.ended()
        workers.append(site.works(site.worker("--grace", "0s")))
    assert site.worker("--until-idle").ended(seconds=250) == 0
    told = noted(site)
    assert set(told) == set(names)
    for name, one in told.items():
        assert one.problems == [], name
        assert set(one.did) == set(range(STEPS)), f"{name}: a step was left out"
        assert sum(one.did.values()) - STEPS < one.starts, f"{name}: only the last step is repeated"
        item = site.item(name)
        assert (item.checkpoint, item.outcome) == ("", "ok"), name
    assert sum(one.starts for one in told.values()) > len(names), "some runs were cut short"
    assert site.doctor()["clean"]
