"""Workers whose store goes away, and comes back: they live, ask it seldom, and go on.

By default for some seconds. The long form of the proof makes it five minutes.
"""

import signal
import time
from pathlib import Path
from uuid import uuid4

import pytest

from blackboard.tables.azurite import Emulator
from tests.proof.form import LONG
from tests.support.processes import Site, eventually
from tests.support.processes import site as made
from tests.support.proxy import proxied

AWAY = 300.0 if LONG else 12.0
"""Seconds."""
WORKERS, ITEMS = 3, 30
KNOWN_WITHIN = 2.0
"""Seconds in which requests end that were under way, and a worker knows that its store is away."""
AT_ONCE = 8
"""Requests of a worker in these seconds, at the most: claims and releases are concurrent."""
BACK_WITHIN = 30.0


def all_run(site: Site, runs: int) -> bool:
    """Whether each item has had so many more runs."""
    return all(site.item(f"item-{number}").runs >= runs for number in range(ITEMS))


@pytest.mark.case("SO02", "SO06", "L1")
@pytest.mark.timeout(AWAY + 200)
def test_workers_live_through_a_store_that_is_away(azurite: Emulator, tmp_path: Path) -> None:
    """They tell of it once a minute at the most, and knock once a second at the most, each."""
    name = f"test{uuid4().hex}"
    with (
        proxied(azurite.port) as proxy,
        made(tmp_path, f"azurite://127.0.0.1:{proxy.port}/{name}") as site,
    ):
        site.add(*(f"item-{n}" for n in range(ITEMS)), type_="quick", every="3s", stale_after="1h")
        workers = [site.works(site.worker()) for _ in range(WORKERS)]
        eventually(lambda: all_run(site, 1), "every item is run")
        proxy.down()
        until = time.monotonic() + AWAY
        eventually(lambda: time.monotonic() > until, "time passes", seconds=2 * AWAY)
        at_first = sum(knock < until - AWAY + KNOWN_WITHIN for knock in proxy.knocks)
        later = len(proxy.knocks) - at_first
        proxy.up()
        assert WORKERS <= at_first <= WORKERS * AT_ONCE
        assert WORKERS <= later <= WORKERS * (AWAY - KNOWN_WITHIN + 1)
        assert [one.process.poll() for one in workers] == [None] * WORKERS
        runs = max(site.item(f"item-{n}").runs for n in range(ITEMS)) + 1
        eventually(lambda: all_run(site, runs), "every item is run again", seconds=BACK_WITHIN)
        for worker in workers:
            eventually(lambda: worker.has_told("store trouble", level="info"), "it tells")  # noqa: B023
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0, worker.text
            told = [one for one in worker.events if one["event"] == "store trouble"]
            assert 1 <= sum(one["level"] == "warning" for one in told) <= 1 + AWAY / 60
            assert not worker.has_told("lost")
        assert site.doctor()["clean"]


@pytest.mark.case("SO04")
def test_so04_a_worker_that_starts_before_its_store_waits_for_it(
    azurite: Emulator, tmp_path: Path
) -> None:
    name = f"test{uuid4().hex}"
    with (
        proxied(azurite.port) as proxy,
        made(tmp_path, f"azurite://127.0.0.1:{proxy.port}/{name}") as site,
    ):
        proxy.refuse()
        worker = site.worker()
        eventually(lambda: worker.has_told("store trouble"), "it tells that it waits")
        assert worker.process.poll() is None
        proxy.up()
        site.works(worker)
        site.add("davis", type_="quick")
        eventually(lambda: site.is_ok("davis"), "the item is run")
