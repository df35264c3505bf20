"""The manifests are valid, keep the restricted profile, and fit the configuration they mount."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from scheduler_worker import conf
from scheduler_worker.rpc import transport
from tests.support.servers import program

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "etc/kubernetes"
CONFIG = FOLDER / "base/scheduler_worker.conf"
SECRETS = FOLDER / "base/secrets.conf.example"
DOCUMENTS: list[dict[str, Any]] = [
    each
    for path in sorted(FOLDER.glob("*/*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
    if each["kind"] != "Kustomization"
]
BUILT_IN = [each for each in DOCUMENTS if not each["apiVersion"].startswith("keda.sh/")]
RUNNING = [each for each in DOCUMENTS if each["kind"] in {"Deployment", "Job"}]


def name(document: dict[str, Any]) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def one(kind: str, called: str) -> dict[str, Any]:
    (found,) = [each for each in DOCUMENTS if name(each) == f"{kind} {called}"]
    return found


def pod(document: dict[str, Any]) -> dict[str, Any]:
    return document["spec"]["template"]["spec"]


def container(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod(document)["containers"]
    return found


@pytest.fixture(scope="module")
def configured() -> conf.Configuration:
    loaded = conf.load(["--config-file", str(CONFIG), "--config-file", str(SECRETS)])
    transport.register_opts(loaded)
    return loaded


@pytest.mark.parametrize("document", BUILT_IN, ids=name)
def test_kubernetes_knows_every_field(document):
    for version in ("1.27", kubernetes_validate.latest_version()):  # the oldest, and the newest
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("document", RUNNING, ids=name)
def test_a_pod_keeps_the_restricted_profile(document):
    """As the Pod Security Standards define it, and a read-only root file system."""
    context = pod(document)["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(document)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod(document).keys()
    assert pod(document)["automountServiceAccountToken"] is False
    kinds = {kind for each in pod(document)["volumes"] for kind in each if kind != "name"}
    assert kinds <= {"configMap", "secret", "emptyDir"}
    user = re.search(
        r"^USER (\d+):", (ROOT / "etc/container/Containerfile").read_text(), re.MULTILINE
    )
    assert context["runAsUser"] == int(user.group(1))


@pytest.mark.parametrize("document", RUNNING, ids=name)
def test_what_is_mounted_is_there(document):
    mounted = {each["name"] for each in container(document)["volumeMounts"]}
    assert mounted == {each["name"] for each in pod(document)["volumes"]}
    folders = [each["mountPath"] for each in container(document)["volumeMounts"]]
    options = " ".join(container(document)["args"])
    for path in re.findall(r"--config-\w+=(\S+)", options):
        assert any(path.startswith(folder) for folder in folders), path


def test_every_option_is_known_and_valid(configured):
    assert conf.unread(configured) == []
    assert conf.unused(configured) == []
    settings = conf.settings(configured)
    assert settings.state.url.startswith("rediss://")
    assert settings.policy_store.connection.startswith("postgresql://")


def test_the_ports_are_those_of_the_configuration(configured):
    worker, api = container(one("Deployment", "scheduler-worker")), container(
        one("Deployment", "scheduler-worker-api")
    )  # fmt: skip
    ports = [{each["name"]: each["containerPort"] for each in c["ports"]} for c in (worker, api)]
    settings = conf.settings(configured)
    assert ports == [
        {"monitoring": settings.monitoring.port},
        {"https": settings.api.port, "monitoring": settings.monitoring.api_port},
    ]
    for used, known in zip((worker, api), ports, strict=True):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert used[probe]["httpGet"]["port"] in known
        assert used["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert used["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert one("Service", "scheduler-worker-api")["spec"]["ports"][0]["targetPort"] in ports[1]
    assert settings.monitoring.address == settings.api.address == "::"
    let_in = {
        port["port"]
        for each in DOCUMENTS if each["kind"] == "NetworkPolicy"
        for rule in each["spec"].get("ingress", ()) for port in rule["ports"]
    }  # fmt: skip
    assert let_in == {settings.monitoring.port, settings.api.port}


def test_files_that_the_configuration_names_are_mounted(configured):
    api = conf.settings(configured).api
    mounts = container(one("Deployment", "scheduler-worker-api"))["volumeMounts"]
    files = (api.users_file, api.certificate_file, api.key_file)
    assert {Path(str(each)).parent for each in files} <= {
        Path(each["mountPath"]) for each in mounts
    }


def test_a_pod_has_longer_to_stop_than_its_program(configured):
    lasts_s = conf.settings(configured).graceful_shutdown_timeout_s
    deployments = [each for each in RUNNING if each["kind"] == "Deployment"]
    assert all(pod(each)["terminationGracePeriodSeconds"] > lasts_s for each in deployments)


def test_what_selects_pods_finds_them():
    labels = [each["spec"]["template"]["metadata"]["labels"].items() for each in RUNNING]
    for document in DOCUMENTS:
        spec = document.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector.get("matchLabels", selector).items()
        if wanted:
            assert any(wanted <= each for each in labels), name(document)


def test_the_scaler_reads_the_queue_of_the_workers(configured):
    scaled = one("ScaledObject", "scheduler-worker")["spec"]
    assert one("Deployment", scaled["scaleTargetRef"]["name"])
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["queueName"] == configured.rpc.topic
    assert one("TriggerAuthentication", trigger["authenticationRef"]["name"])
    assert scaled["minReplicaCount"] < scaled["maxReplicaCount"]


@pytest.mark.parametrize("folder", ["base", "external-units", "keda"])
def test_kubectl_can_put_them_together(folder):
    command = [program("kubectl", Path(sys.executable).parent), "kustomize", FOLDER / folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = {name(each): each for each in yaml.safe_load_all(done.stdout)}
    assert {name(each) for each in RUNNING if each["kind"] != "Job"} <= made.keys()
    assert ("replicas" in made["Deployment scheduler-worker"]["spec"]) is (folder != "keda")
