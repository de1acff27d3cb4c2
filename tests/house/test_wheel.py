"""The wheel: what is in it, and that it runs from an empty folder without the checkout.

It is unpacked, as any installer does, into an environment of its own that borrows the
dependencies of this one; so nothing is fetched. tests/board/test_demo.py plays the demo from there.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
from importlib.metadata import entry_points
[command] = entry_points(group="console_scripts", name="blackboard")
sys.exit(command.load()())
"""
"""What an installer writes as the program `blackboard`."""

BOARD = """
[board]
jobs = ["shell"]
[jobs.shell]
allow = true
[[items]]
id = "hello"
type = "shell"
every = "1h"
params = { command = ["echo", "from the wheel"] }
"""


@dataclass(frozen=True)
class Installed:
    python: Path
    packages: Path

    def call(self, *args: str, cwd: Path) -> str:
        done = subprocess.run(
            [self.python, "-c", SCRIPT, *args],
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(cwd)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Installed:
    home = wheel.parent / "environment"
    venv.create(home, symlinks=True)
    [packages] = home.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
    compile_dir(packages, quiet=1)  # as installers do: what runs there may not write it down
    # A folder that is named in a .pth file is not searched for further .pth files; so the
    # checkout, which is installed there in this way, is not found.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(home / "bin" / "python", packages)


def test_the_wheel_holds_the_package_and_its_jobs_and_nothing_beside(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"blackboard", "blackboard_scheduler-0.1.0.dist-info"}
    assert set(names) >= {
        "blackboard/py.typed",
        "blackboard/_jobs/shell.py",
        "blackboard/_jobs/calendars/__init__.py",
        "blackboard/tables/azurite/npm/.npmrc",
        "blackboard/tables/azurite/npm/package.json",
        "blackboard/tables/azurite/npm/package-lock.json",
        "blackboard/tables/azurite/npm/start.cjs",
        "blackboard/tables/azurite/npm/stub/index.js",
        "blackboard/tables/azurite/npm/stub/package.json",
        "blackboard_scheduler-0.1.0.dist-info/licenses/LICENSE",
    }
    unwanted = ("__pycache__", "node_modules", ".db")
    assert not [name for name in names if any(part in name for part in unwanted)]


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    for folder, place in (("blackboard", "blackboard"), ("jobs", "blackboard/_jobs")):
        for path in (ROOT / folder).rglob("*.py"):
            assert f"{place}/{path.relative_to(ROOT / folder).as_posix()}" in names


def test_it_runs_from_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    assert installed.call("--version", cwd=tmp_path) == "blackboard, version 0.1.0\n"
    where = [str(installed.python), "-c", "import blackboard; print(blackboard.__file__)"]
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        where, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).is_relative_to(installed.packages)


def test_a_shipped_job_runs_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "blackboard.toml").write_text(BOARD)
    installed.call("init", cwd=tmp_path)
    installed.call("apply", "blackboard.toml", cwd=tmp_path)
    installed.call("worker", "--until-idle", cwd=tmp_path)
    [run] = json.loads(installed.call("log", "hello", "--json", cwd=tmp_path))
    assert (run["outcome"], run["result"]) == ("ok", {"exit": 0})


def test_the_emulator_of_the_wheel_is_the_one_the_tests_use(
    installed: Installed, tmp_path: Path
) -> None:
    """So it is installed already; node_modules that lie in the checkout make no difference."""
    code = "from blackboard.tables.azurite import install; print(install())"
    environ, places = {**os.environ, "PYTHONPATH": ""}, set()
    for python, folder in ((installed.python, tmp_path), (sys.executable, ROOT)):
        command = [str(python), "-c", code]
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=True
        )
        assert (Path(done.stdout.strip()) / "node_modules" / "azurite").is_dir()
        places.add(done.stdout)
    assert len(places) == 1
