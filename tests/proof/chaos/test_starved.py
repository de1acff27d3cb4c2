"""Workers that get next to no processor: beside them thirty-two processes compute all the time, and
their own handlers hold the interpreter's lock. No lock is lost, and none is renewed late.

By default for 15 s, on SQLite. The long form of the proof makes it three minutes,
and on Azurite too. That one is not starved itself: a service does not share the processors of its
clients. The figures are left where `test_storm.py` leaves its own, in `starved-<store>.json`.
"""

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.due import renew_every
from blackboard.table import Row
from blackboard.tables.sqlite_file import Stamp
from tests.proof.chaos.figures import tell
from tests.proof.chaos.programs import hogs
from tests.proof.form import LONG
from tests.support.patience import patience
from tests.support.processes import Site

SECONDS = 180.0 if LONG else 15.0
HOGS = 32
LEASE = 10.0
LATEST = patience(1.0)
"""Seconds after its time that the store may see a renewal."""
STUBBORN = ("spin", "sleep", "regex")
"""Ways not to let go of the interpreter's lock, each in a child process of its own."""
LOOK_EVERY = 0.25
FIRST = -15
"""The nice value of who goes before all others."""

Seen = dict[str, set[float]]
"""By key of a lock, the moments of its renewals, in seconds of the store's."""

if not LONG:
    pytestmark = pytest.mark.not_on_azurite("there it takes minutes to tell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run. Seconds."""

    store: str
    seconds: float
    hogs: int
    renewals: int
    renew_every: float
    longest_between: float
    lost_locks: int


@contextmanager
def going_first(pid: int) -> Iterator[None]:
    """A process, and the group that some kernels make of its session."""
    before, group = os.getpriority(os.PRIO_PROCESS, pid), Path(f"/proc/{pid}/autogroup")

    def favour(nice: int) -> None:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        if group.exists():
            group.write_text(str(nice))

    favour(FIRST)
    try:
        yield
    finally:
        favour(before)


async def renewals(board: BoardTable, *, until: float) -> Seen:
    """What the stamps of the locks say, looked at again and again."""
    seen: Seen = defaultdict(set)
    while time.monotonic() < until:
        async for row in board.table.scan(board.shard(0), keys.LOCK, keys.NEXT):
            seen[row.key].add(stamp_of(row))
        await asyncio.sleep(LOOK_EVERY)
    return seen


def stamp_of(row: Row) -> float:
    if isinstance(row.stamp, Stamp):
        return row.stamp.touched
    assert isinstance(row.stamp, datetime)
    return row.stamp.timestamp()


def service_of(store: str, request: pytest.FixtureRequest) -> AbstractContextManager[None]:
    """What keeps a store that is a process of its own from starving."""
    if store != "azurite":
        return nullcontext()
    if os.geteuid() != 0:
        pytest.skip("only root may favour the emulator")
    return going_first(request.getfixturevalue("azurite").pid)


@pytest.mark.alone
@pytest.mark.timeout(SECONDS + 250)
def test_starved_workers_keep_their_locks(
    site: Site, lasting_store: str, request: pytest.FixtureRequest
) -> None:
    """Nobody takes over what another has, though all have room for it; the store sees each lock
    renewed in time.
    """
    items = [f"{how}-{number}" for how in STUBBORN for number in range(2)]
    for item in items:
        how = item.partition("-")[0]
        site.add(item, type_="holds-up", stale_after=f"{LEASE:g}s", timeout="1h", how=how)
    workers = [site.works(site.worker("--grace", "0s")) for _ in range(2)]
    for item in items:
        site.begun(item)
    with service_of(lasting_store, request), hogs(HOGS, seconds=SECONDS + 200):
        until = time.monotonic() + SECONDS
        seen = site.run(lambda board: renewals(board, until=until))
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.ended() for worker in workers] == [0, 0]
    between = [
        after - before for stamps in seen.values() for before, after in pairwise(sorted(stamps))
    ]
    figures = Figures(
        store=lasting_store,
        seconds=SECONDS,
        hogs=HOGS,
        renewals=len(between),
        renew_every=round(renew_every(LEASE), 3),
        longest_between=round(max(between), 3),
        lost_locks=sum(event["event"] == "lost" for one in workers for event in one.events),
    )
    tell(f"starved-{lasting_store}", figures)
    assert figures.lost_locks == 0
    assert [site.outcomes(item) for item in items] == [[(1, "cancelled")]] * len(items)
    assert len(between) >= len(items) * (SECONDS // (figures.renew_every + LATEST))
    assert figures.longest_between <= figures.renew_every + LATEST
