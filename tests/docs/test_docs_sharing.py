"""docs/sharing.md: its pump is written and served, and the commands are typed beside it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blackboard.handlers import Pump, load
from tests.support.page_commands import blocks, commands
from tests.support.processes import Site, Started, eventually, own_environ

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sharing.md"
TEXT = PAGE.read_text(encoding="utf-8")


def typed(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        f"{sys.executable} -m {line}",
        shell=True,
        cwd=folder,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path, store=f"sqlite:{tmp_path / 'blackboard.db'}")
    try:
        yield found
    finally:
        found.close()


def test_the_pump_of_the_page_is_served_and_its_commands_do_what_they_say(site: Site) -> None:
    (program,) = [one for one in blocks(TEXT) if one.file == "jobs/clicks.py"]
    (site.folder / "jobs").mkdir()
    (site.folder / "jobs" / "clicks.py").write_text(program.text)
    lines = [
        command.line
        for block in blocks(TEXT)
        if block.language == "console"
        for command in commands(block)
    ]
    assert lines[0] == "blackboard init"
    started: list[Started] = []
    for line in lines:
        if line.startswith("blackboard worker"):
            started.append(site.works(site.start(*line.split()[1:])))
            eventually(lambda: is_served(site), "the group is served")
            continue
        done = typed(site.folder, line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert len(started) == 1
    eventually(lambda: is_served(site), "the partition is served again")
    shown = partition(site, "07")
    assert json.loads(str(shown["checkpoint"])) >= 1842
    started[0].send(signal.SIGTERM)
    assert started[0].ended() == 0
    assert partition(site, "07")["owner"] is None


def partition(site: Site, name: str) -> dict[str, object]:
    found = json.loads(typed(site.folder, "blackboard leases clicks --json").stdout)
    (one,) = [one for one in found["partitions"] if one["id"] == name]
    assert isinstance(one, dict)
    return one


def is_served(site: Site) -> bool:
    done = typed(site.folder, "blackboard leases clicks --json")
    return done.returncode == 0 and json.loads(done.stdout)["held"] == 32


def test_durations_are_as_said(tmp_path: Path) -> None:
    (tmp_path / "clicks.py").write_text(
        "from blackboard import pump\n\n"
        "@pump('clicks', partitions=1)\nasync def consume(partition, ctx): ...\n"
    )
    pump = load(["clicks.py"], tmp_path)["clicks"].pump
    assert isinstance(pump, Pump)
    assert f"| lease ({pump.lease.seconds} s) |" in TEXT
    assert f"| drain ({pump.drain.seconds} s) |" in TEXT
