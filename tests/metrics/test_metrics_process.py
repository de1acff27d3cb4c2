"""`blackboard worker --metrics`: what real processes serve, and what they refuse."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.expositions import get, samples, urls
from tests.support.processes import Site, Started, eventually, is_gone

CANARY = "canary/of+a=param"
JOBS = """
from blackboard import handler


@handler("plain", every="1h")
def plain(item, ctx):
    raise ValueError(f"no {item.params['token']}")
"""


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "jobs.py").write_text(JOBS)
    made = Site(tmp_path, f"sqlite:{tmp_path / 'town.db'}")
    try:
        yield made
    finally:
        made.close()


def worker(site: Site, *args: str, store: str = "") -> Started:
    jobs = ("--store", store or site.store, "--jobs", "jobs.py", "--json")
    return site.start("worker", *jobs, *args, environ={"CANARY": CANARY})


def test_a_worker_serves_its_metrics_and_whether_it_is_ready(site: Site) -> None:
    site.add("davis", type_="plain", token="${CANARY}")
    started = worker(site, "--metrics", "0")
    [url] = urls(started)
    assert url.startswith("http://127.0.0.1:")
    eventually(lambda: get(f"{url}/readyz") == (200, b"OK\n"), "it is ready")
    assert get(f"{url}/healthz") == (200, b"OK\n")
    eventually(lambda: started.has_told("ended"), "the run ends")
    status, body = get(f"{url}/metrics")
    found = samples(body)
    assert (status, found["runs_total", "failed", "plain"]) == (200, 1)
    assert found["worker_slots",] == 8
    assert b"canary" not in body
    assert b"davis" not in body
    assert "canary" not in started.text
    started.send(signal.SIGTERM)
    assert started.ended() == 0


def test_a_worker_that_waits_for_its_store_lives_and_is_not_ready(site: Site) -> None:
    started = worker(site, "--metrics", "0", store="azurite://127.0.0.1:1/town")
    [url] = urls(started)
    assert get(f"{url}/healthz")[0] == 200
    eventually(
        lambda: get(f"{url}/readyz") == (503, b"the store does not answer\n"), "it is not ready"
    )
    assert samples(get(f"{url}/metrics")[1])["store_away",] == 1


def test_each_of_several_processes_has_a_port_of_its_own(site: Site) -> None:
    site.run(_nothing)
    started = worker(site, "--metrics", "0", "--processes", "2")
    assert len({*urls(started, 2)}) == 2
    assert {get(f"{url}/healthz")[0] for url in urls(started, 2)} == {200}
    started.send(signal.SIGTERM)
    assert started.ended() == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_ends_a_worker_with_2(site: Site, processes: str) -> None:
    """Also where it is that of the second process."""
    site.run(_nothing)
    [url] = urls(worker(site, "--metrics", "0"))
    taken = int(url.rpartition(":")[2])
    port = str(taken - int(processes) + 1)
    refused = worker(site, "--metrics", port, "--processes", processes)
    assert refused.ended() == 2
    assert "cannot be used: Address already in use" in refused.text
    assert not [one for one in site.below(refused) if not is_gone(one.pid)]


def test_nothing_is_served_unless_it_is_asked_for(site: Site) -> None:
    site.run(_nothing)
    started = worker(site, "--until-idle")
    assert started.ended() == 0
    assert not started.has_told("metrics served")


async def _nothing(_board: object) -> None:
    """Makes the board."""
