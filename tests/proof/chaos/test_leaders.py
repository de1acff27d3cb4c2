"""Leaders of elections stand still (SIGSTOP) for longer than their lease, or are killed: no term
has two leaders, and none leads any more once a later one does.
"""

import signal
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.processes import Site, eventually, halt, whole_lines

CHILD = str(Path(__file__).with_name("candidate_child.py"))
LEASE = 3.0


class Noted(NamedTuple):
    """A leader has looked whether it leads, between two moments."""

    fence: int
    rank: int
    before: float
    after: float


def noted(site: Site) -> list[Noted]:
    lines = (line.split() for line in whole_lines(site.folder / "notes"))
    return [Noted(int(one[0]), int(one[1]), float(one[2]), float(one[3])) for one in lines]


def next_leader(site: Site, after: int) -> Noted:
    """Waits for a leader of a later term."""

    def found() -> list[Noted]:
        return [one for one in noted(site) if one.fence > after]

    return max(eventually(found, f"a term after {after} begins"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["mutex", "bully"])
def test_a_leader_that_stood_still_leads_no_more_when_it_goes_on(site: Site, kind: str) -> None:
    site.add("other", type_="counts")  # makes the board
    ranks = ("1", "2", "3")
    candidates = [site.start(site.store, kind, rank, program=(CHILD,)) for rank in ranks]
    leads = next_leader(site, 0)
    for leases in (2, 1):
        stopped = candidates[leads.rank - 1]
        halt(stopped.process, site.store)
        until = time.monotonic() + leases * LEASE
        leads = next_leader(site, leads.fence)
        time.sleep(max(until - time.monotonic(), 0.0))
        stopped.send(signal.SIGCONT)
        leads = next_leader(site, leads.fence - 1)
    candidates[leads.rank - 1].send(signal.SIGKILL)
    next_leader(site, leads.fence)

    assert [one.process.poll() for one in candidates].count(None) == 2
    terms = defaultdict[int, list[Noted]](list)
    for one in noted(site):
        terms[one.fence].append(one)
    assert len(terms) > 3
    assert all(len({one.rank for one in term}) == 1 for term in terms.values())
    for earlier, later in pairwise(sorted(terms)):
        ends = max(one.before for one in terms[earlier])
        begins = min(one.after for one in terms[later])
        assert ends <= begins, f"term {earlier} was led beside term {later}"
