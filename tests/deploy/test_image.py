"""The image, as far as it can be had without Docker: what it is built from is built, and its own
commands run as it would run them, with an environment of its own and nothing else to write to.
"""

import fnmatch
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.container import Container, container, seal, sources, wheel
from tests.deploy.files import DEPLOY, ROOT, dockerfile, environment, health_check, image
from tests.house.test_wheel import installed
from tests.support.processes import PATIENCE, eventually

__all__ = ["container", "installed", "wheel"]


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--no-color", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_both_stages_start_from_one_base_pinned_to_the_patch_release() -> None:
    bases = {one.text.split()[0] for one in dockerfile() if one.name == "FROM"}
    [base] = bases
    name, _, tag = base.partition(":")
    version = tag.partition("-")[0]
    assert name == "python"
    assert "slim" in tag
    assert len(version.split(".")) == 3


def test_every_package_is_checked_against_its_hash_and_then_nothing_else_is_fetched() -> None:
    steps = [step for one in dockerfile() if one.name == "RUN" for step in one.text.split("&&")]
    first, *others = [step for step in steps if step.split()[0] == "pip"]
    assert "download" in first
    for option in ("require-hashes", "requirement requirements.lock"):
        assert f"--{option} " in first
    assert len(others) == 2
    assert all("--no-index" in step for step in others)


def test_what_is_copied_is_there_and_all_that_docker_is_shown() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    shown = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert lines[1] == "*"
    assert shown == set(sources())
    assert [name for name in shown if not (ROOT / name).exists()] == []
    hidden = [line for line in lines if line.startswith("**/")]
    for name in (
        "blackboard/__pycache__",
        "jobs/a.db",
        "blackboard/tables/azurite/npm/node_modules",
    ):
        assert any(fnmatch.fnmatch(name, rule) for rule in hidden)


def test_the_image_belongs_to_nobody_and_is_stopped_as_a_worker_expects() -> None:
    user, _, group = image()["USER"].text.partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert image()["STOPSIGNAL"].text == "SIGTERM"
    assert environment()["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment()["HOME"] == "/tmp"


def test_its_commands_run_with_an_empty_environment_on_a_read_only_system(
    container: Container,
) -> None:
    entry = image()["ENTRYPOINT"].argv
    for args in (["init"], ["apply"], [*image()["CMD"].argv, "--until-idle"]):
        done = container.run(*entry, *args)
        assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {run["id"]: run["outcome"] for run in container.json("log")}
    assert outcomes == {"davis": "ok", "montclair": "ok", "toronto": "ok"}
    with working(container):
        done = container.run(*health_check())
    assert (done.returncode, done.stdout) == (0, "all well: 3 items\n")
    written = {path.name.partition("-")[0] for path in container.state.iterdir()}
    assert written == {"board.db", ".cache"}, "nothing but the board, and what can be made again"
    assert not [path for path in container.board.rglob("*") if path.name == "__pycache__"]


def test_nothing_but_one_folder_could_be_written_to(container: Container) -> None:
    if not seal(container.state):
        pytest.skip("this system lets us make no mounts")
    code = "import os, sys; os.mkdir(sys.argv[1])"
    for folder in (container.board, container.programs):
        tried = container.run("python3", "-c", code, str(folder / "new"))
        assert "Read-only file system" in tried.stderr
    assert container.run("python3", "-c", code, str(container.state / "new")).returncode == 0


def test_the_health_check_says_no_when_an_item_fails(container: Container) -> None:
    container.run("blackboard", "init")
    (container.board / "jobs" / "failing.py").write_text(
        "from blackboard import handler\n"
        '@handler("failing", every="1h")\n'
        "def fail(item, ctx): raise ValueError('spoiled')\n"
    )
    container.run("blackboard", "add", "milk", "--type", "failing")
    container.run("blackboard", "worker", "--until-idle")
    done = container.run(*health_check())
    assert done.returncode == 1
    assert "spoiled" in done.stdout


def test_the_default_command_works_until_it_gets_the_stop_signal(container: Container) -> None:
    container.run("blackboard", "init")
    with working(container) as worker:
        worker.send_signal(signal.Signals[image()["STOPSIGNAL"].text])
        assert worker.wait(PATIENCE) == 0
    assert container.json("workers") == []


@contextmanager
def working(container: Container) -> Iterator[subprocess.Popen[bytes]]:
    """The default command, which has announced itself: an item whose slot comes is served."""
    command = [*image()["ENTRYPOINT"].argv, *image()["CMD"].argv]
    worker = subprocess.Popen(container.argv(*command), cwd=container.board, env=container.environ)
    try:
        eventually(lambda: container.json("workers"), "the worker announces itself")
        yield worker
    finally:
        worker.kill()
        worker.wait()
