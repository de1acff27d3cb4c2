"""SR01, SR03: the store itself is started again, with all its rows or with none."""

import signal
from contextlib import suppress
from pathlib import Path

import pytest

from blackboard.errors import BadInput
from blackboard.tables.azurite import Emulator, start
from tests.support.processes import Site, Started, eventually
from tests.support.processes import site as made

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("azurite")]
TABLE = "board"


def started_again(port: int, folder: Path | None) -> Emulator:
    """On the port it had, as soon as that is free."""

    def tried() -> Emulator | None:
        with suppress(BadInput):
            return start(port=port, folder=folder)
        return None

    found = eventually(tried, "the port is free again")
    assert found is not None
    return found


def at_work(site: Site, count: int) -> list[Started]:
    return [site.works(site.worker()) for _ in range(count)]


def ended(workers: list[Started]) -> None:
    for worker in workers:
        assert worker.process.poll() is None, worker.text
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0, worker.text
        assert "Traceback" not in worker.text


@pytest.mark.case("SR01", "L1", on="azurite")
def test_sr01_workers_go_on_with_a_store_that_was_started_again(tmp_path: Path) -> None:
    """What was running is let go under its own lock; what is due meanwhile is run afterwards."""
    emulator = start(folder=tmp_path / "rows")
    try:
        with made(tmp_path, emulator.store(TABLE)) as site:
            site.add("long", type_="waits", stale_after="5m", patient=[1])
            workers = at_work(site, 2)
            site.begun("long")
            site.add("short", type_="quick", every="2s", stale_after="5m")
            eventually(lambda: site.item("short").runs >= 2, "it is run again and again")
            before = site.runs("short")
            emulator.stop()
            told = "store trouble"
            eventually(lambda: all(one.has_told(told) for one in workers), "all tell of it")
            emulator = started_again(emulator.port, tmp_path / "rows")
            enough = site.item("short").runs + 2
            eventually(lambda: site.item("short").runs >= enough, "it is run again and again")
            site.mark("go-1")
            eventually(lambda: site.is_ok("long"), "what was running ends well")
            assert site.outcomes("long") == [(1, "ok")]
            assert site.runs("short")[: len(before)] == before
            ended(workers)
            assert not any(one.has_told("lost") for one in workers)
            assert site.doctor()["clean"]
    finally:
        emulator.stop()


@pytest.mark.case("SR03", "SO08", on="azurite")
def test_sr03_workers_outlive_the_loss_of_all_rows_and_run_what_is_added_again(
    tmp_path: Path,
) -> None:
    emulator = start()
    try:
        with made(tmp_path, emulator.store(TABLE)) as site:
            site.add("long", type_="waits", stale_after="5m", patient=[1])
            site.add("short", type_="quick", every="2s")
            workers = at_work(site, 2)
            site.begun("long")
            emulator.stop()
            emulator = started_again(emulator.port, None)
            told = "store trouble"
            eventually(lambda: all(one.has_told(told) for one in workers), "all tell of it")
            site.add("short", type_="quick", every="2s")
            site.add("new", type_="quick-plain")
            eventually(lambda: site.is_ok("new"), "what is added again is run")
            eventually(lambda: site.item("short").runs >= 2, "and again")
            site.mark("go-1")
            ended(workers)
            assert site.doctor()["clean"]
    finally:
        emulator.stop()
