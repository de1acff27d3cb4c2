"""docs/sharing.md: its pump is written and served, its elections go as they stand there, and the
commands are typed beside them.
"""

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blackboard.handlers.handler import Pump
from blackboard.handlers.registry import load
from blackboard.protocol.groups import LONGEST_ELECTION_LEASE
from blackboard.rules.due import HOLDERS_SHARE
from blackboard.rules.election import ElectionTimes
from blackboard.schedule.times import format_duration
from blackboard.sharing.election import HURRY, JITTER
from blackboard.spec import SHORTEST_LEASE
from blackboard.tables.azure import AzureTable
from tests.support.elections import TIMES, Town
from tests.support.page_commands import blocks, commands, follow
from tests.support.pages import Page
from tests.support.processes import Site, Started, eventually, own_environ

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sharing.md"
TEXT, _, ELECTIONS = PAGE.read_text(encoding="utf-8").partition("## Elections\n")


def typed(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        f"{shlex.quote(sys.executable)} -m {line}",
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
    quick = program.text.replace('lease="30s"', 'lease="3s"')  # rounds of a second
    assert quick != program.text
    (site.folder / "jobs" / "clicks.py").write_text(quick)
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
    assert partition(site, "07")["worker"] is None


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
    assert f"| lease ({pump.lease.seconds} s, 3 s at the least) |" in TEXT
    assert f"| drain ({pump.drain.seconds} s) |" in TEXT


# ---- elections


def test_the_program_of_the_page_leads_and_its_commands_do_what_they_say(tmp_path: Path) -> None:
    assert len(follow(ELECTIONS, tmp_path)) == 3


@pytest.mark.parametrize(("kind", "notices"), [("bully", 1), ("ring", 2)])
def test_an_election_goes_as_it_is_written(kind: str, notices: int) -> None:
    town = Town(kind, 4, dead=[4])
    town.looks(notices)
    town.delivers()
    town.passes(TIMES.answer)
    town.looks(3)
    written = [block.text.splitlines() for block in blocks(ELECTIONS) if "leads" in block.text]
    assert town.transcript in written


@pytest.mark.parametrize(
    "sentence",
    [
        f"from {format_duration(SHORTEST_LEASE).replace('s', ' s')} to 1 h",
        f"{HOLDERS_SHARE:g} x lease after",
        f"(Azure: {AzureTable.resolution:g} s more)",
        f"| half a second | {HURRY:g} s | {HURRY:g} s |",
        "up to a fifth earlier",
    ],
)
def test_a_number_is_the_codes(sentence: str) -> None:
    assert sentence in ELECTIONS
    assert (LONGEST_ELECTION_LEASE.total_seconds(), JITTER) == (3600, 1 / 5)


def test_the_durations_are_the_rules() -> None:
    rows = {
        row[0]: row[2:] for table in Page(ELECTIONS).tables() for row in table.rows if len(row) == 4
    }
    two = [ElectionTimes(lease=15.0), ElectionTimes(lease=3.0)]

    def shown(name: str) -> list[float]:
        (found,) = [cells for said, cells in rows.items() if name in said]
        return [float(re.sub(r" s$", "", cell)) for cell in found]

    assert shown("a check:") == [one.check for one in two]
    assert shown("stops") == pytest.approx([HOLDERS_SHARE * one.lease for one in two])
    assert shown("stale") == [one.lease for one in two]
    assert shown("killed") == [one.lease + one.check for one in two]
    assert shown("shut down") == [one.check for one in two]
    assert shown("waited for") == [one.answer for one in two]
