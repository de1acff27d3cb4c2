"""Workers that are asked to stop, once or more often, and workers under a supervisor."""

import os
import signal

import psutil
import pytest

from blackboard.model import Outcome
from tests.support.processes import Site, Started, all_gone, eventually, is_gone

pytestmark = pytest.mark.timeout(200)
TYPES = ["waits", "waits-plain"]


def at_work(site: Site, type_: str, *, grace: str, patient: bool = True) -> Started:
    """A worker whose handler runs, until it gets a word if it is patient."""
    site.add("davis", type_=type_, patient=[1] if patient else [])
    worker = site.works(site.worker("--grace", grace))
    site.begun("davis")
    return worker


def is_put_back(site: Site, outcome: str = "cancelled") -> bool:
    """Whether the item waits as it did before its run: its slot, at once."""
    item = site.item("davis")
    (run,) = site.runs("davis")
    assert run.outcome.value == outcome
    return item.slot == run.slot and item.ready <= run.stop and not item.running


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_may_finish(site: Site, type_: str, number: signal.Signals) -> None:
    """Meanwhile nothing more is claimed."""
    worker = at_work(site, type_, grace="1m")
    worker.send(number)
    eventually(lambda: worker.has_told("worker stopping"), "it hears")
    site.add("another", type_="quick")
    site.mark("go-1")
    assert worker.ended() == 0, worker.text
    assert site.outcomes("davis") == [(1, "ok")]
    assert site.item("another").start is None


@pytest.mark.case("RR02")
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("grace", ["0s", "700ms"])
def test_what_takes_longer_than_the_grace_is_put_back(site: Site, type_: str, grace: str) -> None:
    worker = at_work(site, type_, grace=grace)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    assert is_put_back(site)
    site.mark("go-2")
    assert site.worker("--until-idle").ended() == 0
    assert site.outcomes("davis") == [(1, "cancelled"), (2, "ok")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("first", ["worker", "child"])
def test_what_a_manager_ends_together_with_its_worker_is_put_back(
    site: Site, first: str, number: signal.Signals
) -> None:
    """As systemd does by default, and at a shutdown with what runs in a session."""
    worker = at_work(site, "waits-plain", grace="1m")
    below = [one.pid for one in site.below(worker)]
    for pid in [worker.pid, *below] if first == "worker" else [*below, worker.pid]:
        os.kill(pid, number)
    assert worker.ended() == 0, worker.text
    assert is_put_back(site)
    (run,) = site.runs("davis")
    assert run.error == (
        "stopped: the worker is stopping, and the child process was killed by " + number.name
    )


@pytest.mark.case("RR06")
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("times", [2, 5])
def test_asked_twice_it_gives_no_grace(site: Site, type_: str, times: int) -> None:
    worker = at_work(site, type_, grace="10m")
    for _ in range(times):
        worker.send(signal.SIGTERM)
        eventually(
            lambda: worker.has_told("worker stopping") or worker.process.poll() is not None,
            "it hears",
        )
    assert worker.ended() == 0, worker.text
    assert is_put_back(site)


def test_an_idle_worker_ends_at_once_and_is_not_listed(site: Site) -> None:
    worker = site.works(site.worker(cycle="1h"))
    below = site.below(worker)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    assert worker.events[-1]["event"] == "worker stopped"
    eventually(lambda: all_gone(below), "its guard ends")


# ---- under a supervisor


def fleet(site: Site, *args: str, count: int = 3) -> tuple[Started, list[psutil.Process]]:
    """A supervisor and its workers, once all work."""
    started = site.worker("--processes", str(count), *args)
    eventually(lambda: started.text.count("worker started") == count, "all workers start")
    return started, workers_of(site, started)


def workers_of(site: Site, started: Started) -> list[psutil.Process]:
    site.below(started)
    return psutil.Process(started.pid).children()


def test_a_supervisor_passes_signals_on(site: Site) -> None:
    site.add("davis", type_="waits-plain", patient=[1])
    supervisor, workers = fleet(site, "--grace", "1m")
    site.begun("davis")
    supervisor.send(signal.SIGTERM)
    eventually(lambda: supervisor.text.count("worker stopping") == 3, "all workers hear")
    site.mark("go-1")
    assert supervisor.ended() == 0, supervisor.text
    assert all_gone(workers)
    assert site.outcomes("davis") == [(1, "ok")]


@pytest.mark.case("RR06")
def test_a_supervisor_asked_twice_gives_no_grace(site: Site) -> None:
    site.add("davis", type_="waits-plain", patient=[1])
    supervisor, _ = fleet(site, "--grace", "10m")
    site.begun("davis")
    supervisor.send(signal.SIGINT)
    eventually(lambda: supervisor.text.count("worker stopping") == 3, "all workers hear")
    supervisor.send(signal.SIGINT)
    assert supervisor.ended() == 0, supervisor.text
    assert is_put_back(site)


def test_a_worker_that_is_killed_is_replaced(site: Site) -> None:
    supervisor, workers = fleet(site)
    workers[0].send_signal(signal.SIGKILL)
    eventually(lambda: supervisor.text.count("worker started") == 4, "another starts")
    now = workers_of(site, supervisor)
    assert len(now) == 3
    assert set(now) > set(workers[1:])
    assert f"ended with -{signal.SIGKILL.value}" in supervisor.text
    supervisor.send(signal.SIGTERM)
    assert supervisor.ended() == 0, supervisor.text


@pytest.mark.case("KI07")
def test_workers_whose_supervisor_is_killed_stop_by_themselves(site: Site) -> None:
    """As if they were asked to: what runs may finish."""
    site.add("davis", type_="waits-plain", patient=[1])
    supervisor, workers = fleet(site, "--grace", "1m")
    site.begun("davis")
    supervisor.send(signal.SIGKILL)
    supervisor.ended()
    eventually(lambda: supervisor.text.count("worker stopping") == 3, "all workers hear")
    site.mark("go-1")
    eventually(lambda: all_gone(workers), "all workers end")
    assert site.outcomes("davis") == [(1, "ok")]


def test_a_fleet_that_is_to_end_ends(site: Site) -> None:
    ids = [f"item-{n}" for n in range(30)]
    site.add(*ids, type_="quick-plain")
    supervisor = site.worker("--processes", "2", "--until-idle")
    assert supervisor.ended() == 0, supervisor.text
    assert all(site.item(one).outcome is Outcome.OK for one in ids)


def test_a_fleet_of_workers_that_cannot_start_ends_with_their_exit_code(site: Site) -> None:
    supervisor = site.start("worker", "--processes", "2", "--jobs", "./nowhere")
    assert supervisor.ended() == 2
    assert "nowhere" in supervisor.text


def test_a_child_of_a_worker_is_not_supervised(site: Site) -> None:
    """The word that a worker has a supervisor is for that worker alone."""
    site.add("davis", type_="waits-plain", patient=[1])
    supervisor, _ = fleet(site, count=2)
    child = psutil.Process(site.begun("davis"))
    assert "BLACKBOARD_SUPERVISED" not in child.environ()
    supervisor.send(signal.SIGTERM)
    supervisor.send(signal.SIGTERM)
    site.mark("go-1")
    assert supervisor.ended() == 0, supervisor.text
    assert is_gone(child.pid)
