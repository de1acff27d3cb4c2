"""The systemd unit, by systemd's own judgement."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import UNIT, unit

EXPOSURE = 20
"""In tenths. A service that may do all that root may has 96, what counts as OK is below 50."""

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The unit, with a program that is there."""
    [command] = unit()["ExecStart"]
    program = command.split()[0]
    copy = tmp_path / UNIT.name
    installed = Path(sys.executable).with_name("blackboard")
    copy.write_text(UNIT.read_text().replace(program, str(installed).replace(" ", r"\x20")))
    return copy


def analyze(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ANALYZE), "--no-pager", *args], capture_output=True, text=True, check=False
    )


@needs_systemd
def test_systemd_understands_every_line(here: Path) -> None:
    done = analyze("verify", "--man=no", str(here))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_a_line_it_does_not_understand_would_be_found(here: Path) -> None:
    here.write_text(here.read_text().replace("KillMode=mixed", "KillMode=mixture"))
    done = analyze("verify", "--man=no", str(here))
    assert "Failed to parse kill mode" in done.stdout + done.stderr


@needs_systemd
def test_it_is_exposed_to_little(here: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(here))
    assert done.returncode == 0, done.stdout


def test_handlers_are_not_told_to_stop_when_their_worker_is() -> None:
    found = unit()
    assert found["KillSignal"] == ["SIGTERM"]
    assert found["KillMode"] == ["mixed"]


def test_the_boot_id_can_be_read_which_tells_the_age_of_locks() -> None:
    assert "ProcSubset" not in unit()


def test_the_store_is_where_it_may_write() -> None:
    found = unit()
    [state] = found["StateDirectory"]
    [store] = [one for one in found["Environment"] if one.startswith("BLACKBOARD_STORE=")]
    assert Path(store.partition("=")[2]).parent == Path("/var/lib", state)
    assert found["WorkingDirectory"] == [f"/var/lib/{state}"]


def test_a_worker_is_started_again_whatever_its_exit_code() -> None:
    """A handler may end its worker, and choose the code."""
    found = unit()
    assert found["Restart"] == ["always"]
    assert not {"RestartPreventExitStatus", "SuccessExitStatus"} & found.keys()
    assert found["StartLimitIntervalSec"] == ["0"]
