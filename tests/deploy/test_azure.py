"""The template for Azure: that it can be read, and that it says what deploy/azure/README.md says.

There is no compiler of Bicep here. A parser of the language reads it, and what is relied on is
looked up in the tree.
"""

import re
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, bicep, image

TABLE_DATA_CONTRIBUTOR = "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3"


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    return bicep()


@pytest.fixture(scope="module")
def resources(template: dict[str, Any]) -> dict[str, Any]:
    """Symbolic names, and what is under each."""
    found = {name: one["config"] for name, one in template["resources"].items()}
    return {name: one.get("config", one) for name, one in found.items()}


@pytest.fixture(scope="module")
def app(resources: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = resources["app"]["properties"]
    return found


@pytest.fixture(scope="module")
def worker(app: dict[str, Any]) -> dict[str, Any]:
    [found] = app["template"]["containers"]
    assert isinstance(found, dict)
    return found


def path_of(tree: Any) -> str:
    """`a.b.c` of nested property accesses."""
    if isinstance(tree, str):
        return tree
    operands = tree["operator"]["operands"]
    return f"{path_of(operands['operand_1'])}.{path_of(operands['operand_2'])}"


def test_the_boards_account_takes_no_key(resources: dict[str, Any]) -> None:
    said = resources["account"]["properties"]
    assert said["allowSharedKeyAccess"] is False
    assert said["allowBlobPublicAccess"] is False
    assert said["minimumTlsVersion"] == "TLS1_2"
    assert said["supportsHttpsTrafficOnly"] is True


def test_the_identity_has_one_role_and_on_the_table_alone(
    template: dict[str, Any], resources: dict[str, Any]
) -> None:
    role = resources["mayUseTable"]
    assert role["scope"] == "table"
    assert path_of(role["properties"]["principalId"]) == "identity.properties.principalId"
    name = role["properties"]["roleDefinitionId"]
    defined = template["variables"][name]["value"]["function"]["parameters"]
    assert defined["resource_name_1"] == TABLE_DATA_CONTRIBUTOR
    assert resources["table"]["parent"] == "tables"
    assert resources["tables"]["parent"] == "account"
    scopes = [one["scope"] for one in resources.values() if "scope" in one]
    assert sorted(scopes) == ["pull", "table"]


def test_workers_are_as_many_as_the_parameter_says(
    template: dict[str, Any], app: dict[str, Any]
) -> None:
    assert app["template"]["scale"] == {"minReplicas": "workers", "maxReplicas": "workers"}
    assert template["parameters"]["workers"]["default"] == 3


def test_workers_know_the_table_and_who_they_are(
    resources: dict[str, Any], worker: dict[str, Any]
) -> None:
    environ = {one["name"]: one["value"] for one in worker["env"]}
    assert environ["BLACKBOARD_STORE"] == "${account.properties.primaryEndpoints.table}${tableName}"
    assert path_of(environ["AZURE_CLIENT_ID"]) == "identity.properties.clientId"
    assert resources["table"]["name"] == "tableName"
    assert list(resources["app"]["identity"]["userAssignedIdentities"]) == ["'${identity.id}'"]


def test_what_handlers_write_goes_to_a_share_of_an_account_of_its_own(
    resources: dict[str, Any], app: dict[str, Any], worker: dict[str, Any]
) -> None:
    mounts = {one["mountPath"]: one["volumeName"] for one in worker["volumeMounts"]}
    volumes = {one["name"]: one for one in app["template"]["volumes"]}
    assert set(mounts) == {"/blackboard", "/out"}
    out = volumes[mounts["/out"]]
    assert out["storageType"] == "AzureFile"
    user = image()["USER"].text.partition(":")[0]
    assert f"uid={user}," in out["mountOptions"]
    share = resources["out"]["properties"]["azureFile"]
    assert path_of(share["accountName"]) == "files.name"
    assert resources["shares"]["parent"] == "files"


def test_the_settings_are_those_of_the_workers_on_kubernetes(
    template: dict[str, Any], app: dict[str, Any], worker: dict[str, Any]
) -> None:
    loaded = template["variables"]["settings"]["value"]["function"]
    assert loaded["type"] == "load_text_content"
    file = DEPLOY / "azure" / loaded["parameters"]["file_path"]
    assert file.samefile(DEPLOY / "kubernetes" / "blackboard.toml")
    [secret] = app["configuration"]["secrets"]
    [volume] = [one for one in app["template"]["volumes"] if one["storageType"] == "Secret"]
    assert volume["secrets"] == [{"secretRef": secret["name"], "path": "blackboard.toml"}]
    assert secret["value"] == "settings"


def test_no_output_shows_a_key(template: dict[str, Any]) -> None:
    assert set(template["outputs"]) == {"store", "outAccount"}
    assert "listKeys" not in str(template["outputs"])


def test_every_symbol_that_is_named_is_there_and_every_one_there_is_named(
    template: dict[str, Any],
) -> None:
    text = (DEPLOY / "azure" / "main.bicep").read_text()
    code = re.sub(r"//.*|@description\('.*'\)", "", text)
    for name in (*template["parameters"], *template["variables"], *template["resources"]):
        uses = len(re.findall(rf"\b{name}\b", code))
        assert uses > 1 or name == "app", name
    for one in template["resources"].values():
        config = one["config"].get("config", one["config"])
        for name in ("parent", "scope"):
            assert config.get(name, "app") in template["resources"]
        assert set(config.get("dependsOn", [])) <= set(template["resources"])


def test_the_readme_passes_parameters_that_there_are(template: dict[str, Any]) -> None:
    text = (DEPLOY / "azure" / "README.md").read_text()
    given = re.search(r"--parameters (.+)", text)
    assert given is not None
    names = {one.partition("=")[0] for one in given[1].split()}
    assert names == {"image", "registry", "workers"}
    assert names <= set(template["parameters"])
