"""Workers that stand still for three leases (SIGSTOP) and go on (SIGCONT): too late, and told."""

import signal
import time
from typing import Any

import pytest

from tests.processes import Site, eventually

LEASE = 3.0


def overtaken(site: Site, type_: str, *, patient: list[int], seconds: float = 0.0) -> None:
    """A worker that was stopped goes on after another has its item, which that one still runs."""
    more: dict[str, Any] = {"patient": patient, "seconds": seconds}
    site.add("davis", type_=type_, stale_after="3s", timeout="5m", **more)
    first = site.worker("--types", type_, "-v")
    site.begun("davis")
    first.send(signal.SIGSTOP)
    stopped = time.monotonic()
    site.worker("--types", type_)
    site.begun("davis", 2)
    held = site.lock("davis")
    assert held is not None
    eventually(lambda: (lock := site.lock("davis")) and lock.etag != held.etag, "a renewal")
    eventually(lambda: time.monotonic() > stopped + 3 * LEASE, "three leases pass")
    first.send(signal.SIGCONT)
    eventually(lambda: first.has_told("ended", item="davis", fence=1), "the first run ends")
    lock = site.lock("davis")
    assert lock is not None
    assert (lock.nonce, lock.fence) == (held.nonce, 2)
    assert site.outcomes("davis") == [(1, "superseded")]


def ends_well(site: Site) -> None:
    site.mark("go-2")
    eventually(lambda: site.is_ok("davis"), "the second run ends")
    assert site.outcomes("davis") == [(1, "superseded"), (2, "ok")]
    assert site.item("davis").result_fence == 2
    assert site.doctor()["clean"]


def lives_on(site: Site) -> None:
    """The worker that stood still runs the next item."""
    first, second = site.started
    second.send(signal.SIGTERM)
    assert second.ended() == 0
    assert first.process.poll() is None, first.text
    site.add("next", type_=site.item("davis").type)
    eventually(lambda: site.is_ok("next"), "the next item is run")
    assert site.item("next").owner.split(":")[1] == str(first.pid)
    first.send(signal.SIGTERM)
    assert first.ended() == 0, first.text


def test_a_coroutine_that_ends_meanwhile_is_superseded(site: Site) -> None:
    """Last writer wins: its result stands until the newer run has one."""
    overtaken(site, "waits", patient=[2], seconds=LEASE)
    assert site.item("davis").result_fence == 1
    ends_well(site)
    lives_on(site)


def test_the_late_result_of_a_fenced_type_is_dropped(site: Site) -> None:
    overtaken(site, "waits-fenced", patient=[2], seconds=LEASE)
    assert (site.item("davis").result, site.item("davis").result_fence) == ("", 0)
    ends_well(site)


def test_a_coroutine_that_does_not_end_is_stopped(site: Site) -> None:
    overtaken(site, "waits", patient=[1, 2])
    assert site.item("davis").result_fence == 0
    ends_well(site)


def test_a_child_is_ended_while_its_worker_stands_still(site: Site) -> None:
    """It does not run on beside the newer run, and says nothing more."""
    overtaken(site, "waits-plain", patient=[1, 2])
    assert "lease ran out" in site.runs("davis")[0].error
    ends_well(site)
    lives_on(site)


pytestmark = pytest.mark.timeout(200)
