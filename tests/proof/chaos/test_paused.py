"""A worker is stopped for three leases (SIGSTOP) and goes on (SIGCONT): it logs that it is late."""

import signal
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.support.processes import Site, Started, eventually, halt

LEASE = 3.0


@dataclass(frozen=True, kw_only=True)
class Late:
    """A run that is under way when its worker stands still; another has it when that goes on."""

    type_: str
    seconds: float = 0.0
    """After which it ends by itself; 0: it has to be stopped."""
    result_fence: int = 0
    """Of the result that its item has until the newer run ends."""
    error: str = ""


LATE = {
    "ends": Late(type_="waits", seconds=LEASE, result_fence=1),  # until then the last writer wins
    "fenced": Late(type_="waits-fenced", seconds=LEASE),
    "stays": Late(type_="waits"),
    "child": Late(type_="waits-plain", error="lease ran out"),
}


@pytest.mark.case("LF01", "PP04", "S2", "S3")
@pytest.mark.timeout(200)
def test_a_worker_that_stood_still_comes_too_late_with_all_it_had(site: Site) -> None:
    """No run goes on beside the newer one, or takes its lock; a result counts as long as there is
    no newer one, or not at all. The worker lives on.
    """
    first = at_work(site)
    halt(first.process, site.store)
    stopped = time.monotonic()
    second = site.worker()
    for one in LATE:
        site.begun(one, 2)
    held = locks(site)
    eventually(lambda: not set(held.values()) & set(locks(site).values()), "all are renewed")
    eventually(lambda: time.monotonic() > stopped + 3 * LEASE, "three leases pass")
    first.send(signal.SIGCONT)
    for one, late in LATE.items():
        eventually(partial(first.has_told, "ended", item=one, fence=1), f"{one} ends")
        assert site.outcomes(one) == [(1, "superseded")]
        assert late.error in site.runs(one)[0].error
        assert site.item(one).result_fence == late.result_fence
    assert locks(site).keys() == held.keys()
    site.mark("go-2")
    eventually(lambda: site.is_ok(*LATE), "the newer runs end")
    for one in LATE:
        assert site.outcomes(one) == [(1, "superseded"), (2, "ok")]
        assert site.item(one).result_fence == 2
    assert site.doctor()["clean"]
    lives_on(site, first, second)


@pytest.mark.timeout(200)
def test_what_a_worker_ran_that_stood_still_is_made_again_where_no_other_has_done_so(
    site: Site,
) -> None:
    """A plain function, which the guard stops, has not failed."""
    site.add("child", type_="waits-plain", stale_after="3s", timeout="5m", patient=[1])
    worker = site.worker("-v")
    site.begun("child")
    halt(worker.process, site.store)
    stopped = time.monotonic()
    eventually(lambda: time.monotonic() > stopped + 2 * LEASE, "two leases pass")
    worker.send(signal.SIGCONT)
    eventually(lambda: site.is_ok("child"), "it is run again")
    assert site.outcomes("child") == [(1, "cancelled"), (2, "ok")]
    assert "lease ran out" in site.runs("child")[0].error
    assert site.doctor()["clean"]


def at_work(site: Site) -> Started:
    """A worker that runs all of them. The newer runs wait for a word."""
    for one, late in LATE.items():
        patient = [2] if late.seconds else [1, 2]
        more: dict[str, Any] = {"patient": patient, "seconds": late.seconds}
        site.add(one, type_=late.type_, stale_after="3s", timeout="5m", **more)
    worker = site.worker("-v")
    for one in LATE:
        site.begun(one)
    return worker


def locks(site: Site) -> dict[tuple[str, str], str]:
    """Etags by item and nonce: those of the newer runs."""
    found = {one: site.lock(one) for one in LATE}
    assert [lock.fence for lock in found.values() if lock] == [2] * len(LATE)
    return {(one, lock.nonce): lock.etag for one, lock in found.items() if lock}


def lives_on(site: Site, first: Started, second: Started) -> None:
    """The worker that stood still runs the next item of each type."""
    second.send(signal.SIGTERM)
    assert second.ended() == 0
    assert first.process.poll() is None, first.text
    nexts = {f"next-{late.type_}": late.type_ for late in LATE.values()}
    for one, type_ in nexts.items():
        site.add(one, type_=type_)
    eventually(lambda: site.is_ok(*nexts), "the next items are run")
    assert {site.item(one).owner.split(":")[1] for one in nexts} == {str(first.pid)}
    first.send(signal.SIGTERM)
    assert first.ended() == 0, first.text
