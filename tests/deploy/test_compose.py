"""The compose file: an emulator, a board with items to see, and three workers."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.deploy.files import DEPLOY, ROOT, compose

OURS = ("board", "items", "worker")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"]
    return found


def test_it_is_a_compose_file_by_the_specifications_own_schema() -> None:
    check = Path(sys.executable).with_name("check-jsonschema")
    schema = ["--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [check, *schema, DEPLOY / "compose.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_three_workers_are_started_once_there_are_items(services: dict[str, Any]) -> None:
    assert services["worker"]["deploy"]["replicas"] == 3
    chain = ["worker", "items", "board", "azurite"]
    for one, before in pairwise(chain):
        [(name, when)] = services[one]["depends_on"].items()
        assert name == before
        healthy = before == "azurite"
        wanted = "service_healthy" if healthy else "service_completed_successfully"
        assert when == {"condition": wanted}
    assert services["board"]["command"] == ["init"]
    assert services["items"]["command"] == ["apply"]


def test_the_store_is_the_emulator_of_the_same_file(services: dict[str, Any]) -> None:
    options = dict(one.removeprefix("--").partition("=")[::2] for one in emulator(services))
    for name in OURS:
        store = urlsplit(services[name]["environment"]["BLACKBOARD_STORE"])
        assert store.scheme == "azurite"
        assert store.hostname in services
        assert str(store.port) == options["tablePort"]
    assert options["tableHost"] == "0.0.0.0"
    assert "disableProductStyleUrl" in options
    [kept] = services["azurite"]["volumes"]
    assert kept == f"azurite:{options['location']}"


def emulator(services: dict[str, Any]) -> list[str]:
    program, *options = services["azurite"]["command"]
    assert program == "azurite-table"
    return list(options)


def test_the_emulator_is_the_release_that_the_tests_run_on(services: dict[str, Any]) -> None:
    pinned = json.loads(
        (ROOT / "blackboard" / "tables" / "azurite" / "npm" / "package.json").read_text()
    )
    tag = services["azurite"]["image"].rpartition(":")[2]
    assert tag == pinned["dependencies"]["azurite"]


@pytest.mark.parametrize("name", OURS)
def test_ours_may_do_nothing_they_need_not(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]
    assert all(one.endswith(":ro") for one in service["volumes"])
    assert service["init"] is True
    assert not {"ports", "privileged", "user"} & set(service)


def test_what_is_mounted_and_built_is_there(services: dict[str, Any]) -> None:
    [mounted] = services["worker"]["volumes"]
    assert (DEPLOY / mounted.partition(":")[0] / "blackboard.toml").is_file()
    build = services["worker"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
