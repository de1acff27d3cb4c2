"""A container of the image, without Docker: the wheel is built from what the Dockerfile copies, and
its commands run with the image's own environment and one folder to write to.
"""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, ROOT, dockerfile, environment
from tests.house.test_wheel import SCRIPT, Installed
from tests.support.processes import PATIENCE

SEAL = """
mount --bind "$0" "$0" && mount -o remount,bind,ro / &&
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
"""All read-only but one folder, no capability, and none to be had."""


def sources() -> list[str]:
    """What is copied from the checkout."""
    copies = [shlex.split(one.text) for one in dockerfile() if one.name == "COPY"]
    return [name for copy in copies if not copy[0].startswith("--from") for name in copy[:-1]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what the Dockerfile copies, and from nothing else."""
    folder = tmp_path_factory.mktemp("image")
    for name in sources():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        skipped = shutil.ignore_patterns("__pycache__", "node_modules")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=skipped)
        else:
            shutil.copy(ROOT / name, place)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "built"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("built/*.whl")
    return built


@dataclass(frozen=True)
class Container:
    """What a container of the image would have: its commands, its environment, its folders."""

    programs: Path
    board: Path
    """Mounted at the working folder, read-only."""
    state: Path
    """The one folder that can be written to; the image has /tmp, and Azure for the rest."""

    def argv(self, *command: str) -> list[str]:
        """`command` sealed off, where this system lets us."""
        program = str(self.programs / command[0])
        return [*seal(self.state), program, *command[1:]]

    @property
    def environ(self) -> dict[str, str]:
        own = environment()
        return {
            **own,
            "PATH": own["PATH"].replace("/opt/blackboard/bin", str(self.programs)).split(":")[0],
            "HOME": str(self.state),
            "TMPDIR": str(self.state),
            "BLACKBOARD_STORE": str(self.state / "board.db"),
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command),
            cwd=self.board,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def json(self, *args: str) -> Any:
        done = self.run("blackboard", *args, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


def seal(writable: Path) -> list[str]:
    """A prefix that leaves one folder to write to; none where mounts are not ours to make."""
    tools = [shutil.which(name) for name in ("unshare", "sh", "setpriv")]
    if None in tools:
        return []
    unshare, sh, setpriv = (str(one) for one in tools)
    script = SEAL.replace("setpriv", setpriv).replace("mount ", f"{shutil.which('mount')} ")
    prefix = [unshare, "--mount", sh, "-c", script, str(writable)]
    tried = subprocess.run([*prefix, sh, "-c", ":"], capture_output=True, check=False)
    return prefix if tried.returncode == 0 else []


@pytest.fixture
def container(installed: Installed, tmp_path: Path) -> Container:
    programs = installed.python.parent
    program = programs / "blackboard"
    program.write_text(f"#!{installed.python}\n{SCRIPT}")
    program.chmod(0o755)
    made = Container(programs, tmp_path / "board", tmp_path / "state")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(DEPLOY / "example", made.board, ignore=ignore)
    made.state.mkdir()
    return made
