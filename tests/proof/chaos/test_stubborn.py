"""Handlers that hold up their process: no lock is lost by it, and each is really stopped."""

import signal

import psutil
import pytest

from tests.support.processes import Site, all_gone, eventually, is_gone

pytestmark = pytest.mark.timeout(200)


@pytest.mark.case("PP06", "S4")
def test_children_that_hold_everything_up_cost_no_lock(site: Site) -> None:
    """Beside them, other runs of the same worker keep their locks, and no other worker takes one
    over; each ends at its timeout.
    """
    stubborn = ["spin", "sleep", "regex"]
    for how in stubborn:
        site.add(how, type_="holds-up", stale_after="3s", timeout="5s", how=how)
    for id_, type_ in (("coroutine", "waits"), ("child", "waits-plain")):
        site.add(id_, type_=type_, stale_after="3s", timeout="1m", seconds=8)
    site.works(site.worker())
    for id_ in (*stubborn, "coroutine", "child"):
        site.begun(id_)
    second = site.works(site.worker())
    eventually(lambda: site.is_ok("coroutine", "child"), "the others end")
    for how in stubborn:
        (run,) = site.runs(how)
        assert (run.fence, run.outcome.value) == (1, "timeout")
        assert "longer than 5s" in run.error
        assert is_gone(site.begun(how))
    assert site.outcomes("coroutine") == site.outcomes("child") == [(1, "ok")]
    assert not second.has_told("overridden")


@pytest.mark.case("PP06", "KI09")
def test_a_coroutine_that_blocks_the_loop_ends_its_worker(site: Site) -> None:
    """Whether it lets other threads run or none; with a traceback that names it. Its item does not
    go round the workers for ever: after some takeovers, or after two if the second worker could
    write down what stopped it, it waits for its next slot. The others are served.
    """
    site.add("bad", type_="holds-up-the-loop", stale_after="3s", how=["sleep", "regex"])
    site.add("good-0", type_="quick", stale_after="3s", every="1h")
    deaths = 0

    def one_dies() -> bool:
        return any(one.process.poll() is not None for one in living)

    living = [site.worker(), site.worker()]
    while site.item("bad").outcome is None or site.item("bad").running:
        eventually(lambda: one_dies() or not site.item("bad").running, "a worker ends")
        for one in [one for one in living if one.process.poll() is not None]:
            deaths += 1
            assert one.process.returncode == -signal.SIGABRT, one.text
            assert "in hold_up_the_loop" in one.text
            living.remove(one)
            living.append(site.works(site.worker()))
            site.add(f"good-{deaths}", type_="quick", stale_after="3s")
    assert site.outcomes("bad") == [(fence, "abandoned") for fence in range(1, deaths + 1)]
    assert deaths in {2, 4}
    goods = [f"good-{n}" for n in range(deaths + 1)]
    eventually(lambda: site.is_ok(*goods), "the other items are run")
    assert site.doctor()["clean"]


def test_a_child_that_holds_everything_up_dies_with_its_worker(site: Site) -> None:
    site.add("davis", type_="holds-up", stale_after="3s", timeout="1m", how="sleep")
    worker = site.works(site.worker())
    child = psutil.Process(site.begun("davis"))
    below = site.below(worker)
    assert child in below
    worker.send(signal.SIGKILL)
    eventually(lambda: all_gone(below), "the child and the guard end")


@pytest.mark.parametrize(
    ("how", "reason"), [("exit", "exit code 3"), ("segfault", "SIGSEGV")], ids=str
)
def test_a_child_that_dies_is_a_failed_run(site: Site, how: str, reason: str) -> None:
    site.add("davis", type_="dies", how=how)
    assert site.worker("--until-idle").ended() == 0
    (run,) = site.runs("davis")
    assert run.outcome.value == "failed"
    assert reason in run.error


@pytest.mark.parametrize("what", ["cancelled", "cancel", "exit", "interrupt"])
def test_a_coroutine_that_raises_what_ends_tasks_ends_no_worker(site: Site, what: str) -> None:
    site.add("bad", type_="raises", what=what)
    worker = site.works(site.worker())
    eventually(lambda: site.item("bad").outcome is not None, "the bad item ends")
    (run,) = site.runs("bad")
    assert run.outcome.value == "failed"
    site.add("good", type_="quick")
    eventually(lambda: site.is_ok("good"), "the good item is run")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0
