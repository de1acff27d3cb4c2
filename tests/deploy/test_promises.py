"""What holds across all the files of deploy/: their commands can be called, what is stopped has
time to end, and nothing in them is a secret.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from inspect import signature
from pathlib import Path

import pytest
from click.exceptions import UsageError

from blackboard import __version__
from blackboard.cli import group
from blackboard.runners.process import ProcessRunner
from blackboard.schedule.times import parse_duration
from blackboard.settings import Settings
from blackboard.worker.membership import SHUTDOWN_TIMEOUT
from blackboard.worker.release_queue import LAST_RELEASES
from tests.deploy.files import (
    DEPLOY,
    ROOT,
    UNIT,
    bicep,
    calls_in,
    compose,
    health_check,
    image,
    pod,
    texts,
    unit,
)

STOP_TIMEOUT = signature(ProcessRunner).parameters["stop_timeout"].default
AFTER_GRACE = timedelta(seconds=LAST_RELEASES + SHUTDOWN_TIMEOUT + STOP_TIMEOUT)
"""What a worker may need, after its grace, to put back what it cut short, and to end."""


def understood(args: Sequence[str]) -> None:
    """Raises UsageError when `blackboard ARGS` cannot be called."""
    outer = group.make_context("blackboard", list(args))
    rest = [*outer._protected_args, *outer.args]
    name, command, rest = group.resolve_command(outer, rest)
    assert command is not None
    command.make_context(name, rest, parent=outer)


def commands() -> dict[str, Sequence[str]]:
    """Those that a machine runs, without the name of the program; by where they stand."""
    services = {name: one for name, one in compose()["services"].items() if name != "azurite"}
    [worker] = pod()["containers"]
    [started] = unit()["ExecStart"]
    assert image()["ENTRYPOINT"].argv == ["blackboard"]
    return {
        "image": image()["CMD"].argv,
        "health check": health_check()[1:],
        **{f"compose {name}": one["command"] for name, one in services.items()},
        "kubernetes": worker["args"],
        "systemd": started.split()[1:],
        "azure": [one.replace("${grace}", "300") for one in azure_args()],
    }


def azure_args() -> list[str]:
    [worker] = bicep()["resources"]["app"]["config"]["properties"]["template"]["containers"]
    return list(worker["args"])


def test_every_command_that_a_machine_runs_can_be_called() -> None:
    for where, args in commands().items():
        try:
            understood(args)
        except UsageError as problem:
            problem.add_note(f"the command of {where}: {args}")
            raise


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_that_a_person_reads_can_be_called(path: Path) -> None:
    for args in calls_in(path.read_text()):
        understood(args)


def test_the_guide_has_commands_and_one_that_is_none_would_be_found() -> None:
    assert len(list(calls_in((ROOT / "docs" / "deploy.md").read_text()))) > 5
    [args] = calls_in("sh> blackboard worker --graze 5m # or so")
    with pytest.raises(UsageError, match="--graze"):
        understood(args)


def test_whoever_is_stopped_has_time_to_end() -> None:
    services = compose()["services"]
    [worker] = pod()["containers"]
    [started], [patience] = unit()["ExecStart"], unit()["TimeoutStopSec"]
    pairs = {
        "compose": (services["worker"]["command"], services["worker"]["stop_grace_period"]),
        "kubernetes": (worker["args"], f"{pod()['terminationGracePeriodSeconds']}s"),
        "systemd": (started.split(), patience.replace("min", "m")),
    }
    for page in (ROOT / "docs" / "deploy.md", DEPLOY / "Dockerfile"):
        [seconds] = re.findall(r"docker run .*--stop-timeout (\d+)", page.read_text())
        pairs[page.name] = (["--grace", Settings().worker.grace], f"{seconds}s")
    for where, (args, killed_after) in pairs.items():
        grace = parse_duration(args[args.index("--grace") + 1], "grace")
        assert parse_duration(killed_after, "killed") > grace + AFTER_GRACE, where


def test_on_azure_it_has_time_to_end_whatever_grace_is_chosen() -> None:
    template = bicep()
    app = template["resources"]["app"]["config"]["properties"]["template"]
    args = azure_args()
    assert args[args.index("--grace") + 1] == "${grace}s"
    added = app["terminationGracePeriodSeconds"]["operator"]
    assert (added["type"], added["operands"]["operand_1"]) == ("add", "grace")
    more = added["operands"]["operand_2"]
    assert timedelta(seconds=more) > AFTER_GRACE
    [most] = [
        one["argument"]
        for one in template["parameters"]["grace"]["decorators"]
        if one["type"] == "max_value"
    ]
    assert most + more <= 600


def test_all_of_them_name_the_store_by_the_same_variable() -> None:
    for name in ("compose.yaml", "azure/main.bicep", "kubernetes/kustomization.yaml"):
        assert "BLACKBOARD_STORE" in (DEPLOY / name).read_text()
    assert "BLACKBOARD_STORE" in UNIT.read_text()
    source = "\n".join(path.read_text() for path in (ROOT / "blackboard").rglob("*.py"))
    for path in texts():
        for name in re.findall(r"\bBLACKBOARD_[A-Z_]+", path.read_text()):
            assert f'"{name}"' in source, path


def test_every_image_has_a_version_and_ours_is_this_one() -> None:
    for path in texts():
        text = path.read_text()
        assert ":latest" not in text
        for found in re.finditer(r"\bblackboard:(\d[\w.]*\w)|newTag: (.+)", text):
            assert (found[1] or found[2]) == __version__, path
    services = compose()["services"].values()
    [worker] = pod()["containers"]
    for name in (*(one["image"] for one in services), worker["image"]):
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+", name)


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_is_a_secret(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"(AccountKey|SharedAccessSignature|[?&]sig)=|PRIVATE KEY", text)
    assert not re.search(r"[A-Za-z0-9+/]{60,}", text)
    assert not re.search(r"(?i)(password|token|api_?key)\w*[\"']?\s*[:=]\s*[\"']?\w{8,}", text)
