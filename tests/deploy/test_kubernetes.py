"""The manifests, by the published schemas, one by one and as kustomize puts them together."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from blackboard import settings
from blackboard.endpoint import Endpoint
from blackboard.metrics.server import pages_of
from blackboard.metrics.worker import WorkerMetrics
from blackboard.runners.secrets import WEB_TOKEN
from tests.deploy.files import DEPLOY, manifest, pod

FOLDER = DEPLOY / "kubernetes"
MANIFESTS = [path.name for path in sorted(FOLDER.glob("*.yaml")) if path.stem != "kustomization"]
KUBECTL = shutil.which("kubectl")
VERSION = kubernetes_validate.latest_version()


@pytest.mark.parametrize("name", MANIFESTS)
def test_it_is_what_kubernetes_takes(name: str) -> None:
    kubernetes_validate.validate(manifest(name), VERSION, strict=True)


def test_a_name_that_kubernetes_does_not_know_would_be_found() -> None:
    found = manifest("deployment.yaml")
    found["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found, VERSION, strict=True)


def test_all_of_them_are_put_together() -> None:
    assert sorted(manifest("kustomization.yaml")["resources"]) == MANIFESTS


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_what_kustomize_makes_of_them_is_valid_and_whole() -> None:
    built = subprocess.run(
        [str(KUBECTL), "kustomize", FOLDER], capture_output=True, text=True, check=True
    )
    found = list(yaml.safe_load_all(built.stdout))
    for one in found:
        kubernetes_validate.validate(one, VERSION, strict=True)
    kinds = sorted(one["kind"] for one in found)
    assert kinds == [
        "ConfigMap",
        "ConfigMap",
        "Deployment",
        "Deployment",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    ]
    assert all("namespace" not in one["metadata"] for one in found)
    text = yaml.safe_dump_all(one for one in found if one["kind"] == "Deployment")
    for one in found:
        if one["kind"] in {"ConfigMap", "PersistentVolumeClaim", "ServiceAccount"}:
            assert f": {one['metadata']['name']}\n" in text


def test_a_worker_may_do_nothing_it_need_not() -> None:
    whole, [worker] = pod(), pod()["containers"]
    assert whole["securityContext"]["runAsNonRoot"] is True
    assert whole["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert whole["automountServiceAccountToken"] is False
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {one["mountPath"]: one for one in worker["volumeMounts"]}
    assert set(mounts) == {"/blackboard", "/out", "/tmp"}
    assert mounts["/blackboard"]["readOnly"] is True
    assert {one["name"] for one in mounts.values()} == {one["name"] for one in whole["volumes"]}


def test_the_pages_need_a_token_and_may_do_nothing_they_need_not() -> None:
    whole = manifest("web.yaml")["spec"]["template"]["spec"]
    [web] = whole["containers"]
    [token] = [one for one in web["env"] if one["name"] == WEB_TOKEN]
    assert "secretKeyRef" in token["valueFrom"]
    assert web["args"][0] == "serve"
    assert whole["securityContext"]["runAsNonRoot"] is True
    assert web["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in web["volumeMounts"]}
    assert mounts == {"/blackboard": True, "/out": True, "/tmp": False}
    shown = {one["name"] for one in web["volumeMounts"]}
    assert {one["name"]: one for one in whole["volumes"]} == {
        one["name"]: one for one in pod()["volumes"] if one["name"] in shown
    }
    labels = manifest("web.yaml")["spec"]["selector"]["matchLabels"]
    assert manifest("web-service.yaml")["spec"]["selector"] == labels
    assert labels.items() <= manifest("web.yaml")["spec"]["template"]["metadata"]["labels"].items()


def test_no_worker_is_killed_for_what_the_store_or_an_item_does() -> None:
    [worker] = pod()["containers"]
    assert "livenessProbe" not in worker
    assert "startupProbe" not in worker


def test_a_worker_is_asked_for_what_it_serves() -> None:
    [worker] = pod()["containers"]
    [port] = worker["ports"]
    where = Endpoint.parse(worker["args"][worker["args"].index("--metrics") + 1], "metrics")
    assert where == Endpoint("0.0.0.0", port["containerPort"])
    asked = worker["readinessProbe"]["httpGet"]
    assert asked == {"path": "/readyz", "port": port["name"]}
    notes = manifest("deployment.yaml")["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == str(where.port)
    assert {asked["path"], notes["prometheus.io/path"]} <= pages_of(WorkerMetrics()).keys()


def test_new_workers_are_there_before_old_ones_go() -> None:
    deployment = manifest("deployment.yaml")["spec"]
    assert deployment["replicas"] == 3
    assert deployment["strategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_everything_speaks_of_the_same_pods() -> None:
    deployment = manifest("deployment.yaml")["spec"]
    labels: dict[str, Any] = deployment["selector"]["matchLabels"]
    assert labels
    assert labels.items() <= deployment["template"]["metadata"]["labels"].items()
    assert manifest("poddisruptionbudget.yaml")["spec"]["selector"]["matchLabels"] == labels
    [spread] = pod()["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels


def test_workload_identity_is_asked_for_by_label_and_annotation() -> None:
    labels = manifest("deployment.yaml")["spec"]["template"]["metadata"]["labels"]
    account = manifest("serviceaccount.yaml")["metadata"]
    assert labels["azure.workload.identity/use"] == "true"
    assert "azure.workload.identity/client-id" in account["annotations"]
    assert pod()["serviceAccountName"] == account["name"]


@pytest.mark.parametrize("folder", ["kubernetes", "example"])
def test_the_settings_can_be_read(folder: str) -> None:
    found = settings.load_settings(DEPLOY / folder / "blackboard.toml")
    assert found.board.jobs
    assert found.board.store is None
    assert all(Path(one).name == one for one in found.board.jobs)
