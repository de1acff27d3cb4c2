"""What an operator does on a board in a file reaches its workers at once, whatever their cycle."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import blackboard
from blackboard.model import Outcome
from tests.support.patience import patience
from tests.support.processes import Site, eventually, own_environ
from tests.support.processes import site as made


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    """A worker that walks once an hour, and has walked once."""
    with made(tmp_path, str(tmp_path / "board.db")) as site:
        site.add("first", type_="quick")
        site.works(site.worker(cycle="1h"))
        eventually(lambda: site.is_ok("first"), "the first walk")
        yield site


def command(site: Site, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "blackboard", *args, "--store", site.store],
        cwd=site.folder,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(60),
    )


def test_what_an_operator_asks_for_is_done_at_once(site: Site) -> None:
    said = command(site, "run", "first", "--wait", "--timeout", f"{patience(60):.0f}s")
    assert said.stdout.startswith("first ok in ")
    base = ("--type", "quick", "--every", "1h", "--set", f"folder={site.folder}")
    command(site, "add", "second", *base)
    eventually(lambda: site.is_ok("second"), "an item that is added runs")
    command(site, "pause", "second")
    command(site, "edit", "second", "--every", "1ms", "--missed", "one")
    command(site, "resume", "second")
    eventually(lambda: len(site.runs("second")) > 1, "an item that is resumed runs")
    command(site, "pause", "second")


def test_a_run_that_is_cancelled_is_stopped_at_once(site: Site) -> None:
    base = ("--type", "quick", "--set", f"folder={site.folder}", "--set", "seconds=3000")
    command(site, "add", "long", *base)
    eventually(lambda: site.item("long").running, "it runs")
    command(site, "cancel", "long")
    eventually(lambda: len(site.runs("long")) == 1, "its run is over")
    [run] = site.runs("long")
    assert run.outcome is Outcome.CANCELLED
    (worker,) = site.started
    eventually(lambda: '"event":"lost"' in worker.text, "the worker is told")


def test_python_programs_wake_the_workers_of_other_processes(site: Site) -> None:
    with blackboard.open_blocking(store=site.store) as board:
        board.run("first")
        eventually(lambda: board.item("first").runs == 2, "it runs once more")


def test_a_worker_leaves_no_socket_behind(site: Site) -> None:
    (worker,) = site.started
    assert len(list(site.folder.glob(f"board.db-wake-{worker.pid}-*"))) == 1
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0
    assert list(site.folder.glob("*-wake-*")) == []
