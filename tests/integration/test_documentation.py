"""Every command of the documentation, typed: on a machine under systemd and on the real cluster.

What is not success where it is tried, and what is not tried, is listed in `documented.py` with its reason.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy.helm import helm_path, render_chart
from tests.fakes.nvml.control import FakeNvml
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME
from tests.integration.cluster.pods import FOREVER, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.deployment import NAMESPACE, READY_SECONDS, REPOSITORY, Deployment, deployed, import_image
from tests.integration.documented import STATUS, Where, find_place, is_endless, list_commands
from tests.integration.host_driver import WORKER_ENVIRONMENT, installed_driver
from tests.integration.machine.machine import Machine, fresh_machine
from tests.support.texts.markdown import find_block

pytestmark = pytest.mark.timeout(590)
ENDLESS_SECONDS = 3
TIMED_OUT = 124
READY_CONDITION = "nvidia.com/GPUReady"
OPERATOR = "gpu-operator"
OLD_PLUGIN = "nvidia-device-plugin-daemonset"
VALUES = {"migManager": {"enabled": True}, "devicePlugin": {"config": {"name": "plugin-configs"}}}
FIELDS = "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).\n"
PLUGIN_CONFIG = {"version": "v1", "flags": {"migStrategy": "single"}}
MANAGER = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "gpu-manager-daemonset", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"name": "gpu-manager-ds"}},
        "template": {
            "metadata": {"labels": {"name": "gpu-manager-ds"}},
            "spec": {
                "nodeSelector": {"nvidia-device-enable": "enable"},
                "containers": [{"name": "gpu-manager", "image": "none", "env": [{"name": "LOG_LEVEL", "value": "5"}]}],
            },
        },
    },
}
MANAGER_UNIT = "[Service]\nExecStart=/usr/bin/gpu-manager --share-mode=true\n"
POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {"mig": {"strategy": "single"}, "devicePlugin": {"enabled": True}, "dcgmExporter": {"enabled": True}},
}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine on which the agent was installed as the guide says, and files that the pages speak of."""
    with fresh_machine(tmp_path) as made:
        for command in find_block("docs/installation.md", "One machine").commands:
            made.call(command)
        made.wait_ready()
        made.run("mkdir -p /etc/cdi /etc/bash_completion.d && cp /etc/nodeagent/config.yaml new.yaml")
        made.run("nodeagent cdi generate > /etc/cdi/nvidia.yaml")
        write_imports(made.source)
        (made.source / "cluster-policy.yaml").write_text(yaml.safe_dump(POLICY))
        (made.source / "gpu-manager.yaml").write_text(yaml.safe_dump(MANAGER))
        (made.source / "extra-config.json").write_text(json.dumps({"default": {"devices": ["/dev/zero"]}}))
        made.systemd.write("/etc/systemd/system/gpu-manager.service", MANAGER_UNIT)
        made.systemd.write("/etc/fields.csv", FIELDS)
        yield made


def write_imports(place: Path) -> None:
    (place / "values.yaml").write_text(yaml.safe_dump(VALUES))
    (place / "dcp-metrics-included.csv").write_text(FIELDS)


def before_and_after(command: str) -> tuple[str, str]:
    """What has to be done round a command, so that it means something and leaves the machine to the next one."""
    if command.startswith(("nodeagent run", "nodeagent uninstall", "nodeagent simulate")) and "fault" not in command:
        return "systemctl stop nodeagent", "systemctl start nodeagent"
    if "simulate fault" in command:
        return (
            "systemctl stop nodeagent && systemd-run --quiet --unit=simulation nodeagent simulate && sleep 3",
            "systemctl stop simulation && systemctl start nodeagent",
        )
    if command.startswith("nodeagent cdi generate -o"):
        return "systemctl stop nodeagent", "rm -f /etc/cdi/nvidia.json && systemctl start nodeagent"
    return "", ""


def test_commands_for_a_machine_do_what_the_pages_say(machine: Machine) -> None:
    """In the order of the pages; a command that never ends is still there after some seconds."""
    uuid = json.loads(machine.run("nodeagent gpu list --json"))["gpus"][0]["gpu"]["uuid"]
    program = str(CHECKOUT / ".venv/bin/nodeagent")
    problems = []
    for block, command in list_commands():
        if find_place(command) is not Where.MACHINE:
            continue
        typed = (
            command.replace("GPU-UUID", uuid).replace(".venv/bin/nodeagent", program).replace("--for 30s", "--for 2s")
        )
        before, after = before_and_after(command)
        if before:
            machine.run(before)
        done = machine.call(f"timeout {ENDLESS_SECONDS} {typed}" if is_endless(command) else typed)
        if after:
            machine.run(after)
        wanted = {TIMED_OUT} if is_endless(command) else {STATUS.get(command, (0, ""))[0]}
        sys.stderr.write(f"{time.monotonic():.0f} {done.returncode} {command}\n")
        if done.returncode not in wanted:
            problems.append(f"{block.name}: {command}: {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
        if after or command.startswith("systemctl"):
            machine.wait_ready()
    assert problems == [], "\n".join(problems)


@pytest.fixture
def operated(node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, FakeNvml]]:
    """A cluster with our image, in which a stand-in for the device plugin of the GPU Operator runs."""
    tag = import_image(node, tmp_path_factory.mktemp("image"))
    with installed_driver(node.layout) as fake, deployed(node, tag) as deployment:
        documents = [render_crd(), POLICY, MANAGER, *render_operator()]
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents[:1] + documents[2:]})
        node.run("kubectl", "apply", "-f", "-", stdin=listed)
        node.run("kubectl", "wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com")
        node.run("kubectl", "apply", "-f", "-", stdin=json.dumps(POLICY))
        node.run("kubectl", "label", "node", NODE_NAME, "nvidia.com/gpu.deploy.device-plugin=true")
        yield deployment, fake
        node.run("kubectl", "uncordon", NODE_NAME)
        node.run("kubectl", "label", "node", NODE_NAME, "nodeagent-", *(f"{key}-" for key in DEPLOY_LABELS))
        node.run("kubectl", "delete", "--ignore-not-found", "namespace", OPERATOR)
        node.run("kubectl", "delete", "--namespace", "kube-system", "daemonset/gpu-manager-daemonset")
        node.run(
            "kubectl", "delete", "--ignore-not-found", "crd/clusterpolicies.nvidia.com", "configmap/plugin-configs"
        )


DEPLOY_LABELS = tuple(
    f"nvidia.com/gpu.deploy.{name}" for name in ("device-plugin", "gpu-feature-discovery", "dcgm-exporter")
)


def render_crd() -> dict[str, object]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterpolicies.nvidia.com"},
        "spec": {
            "group": "nvidia.com",
            "scope": "Cluster",
            "names": {"plural": "clusterpolicies", "kind": "ClusterPolicy"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def render_operator() -> list[dict[str, object]]:
    """Its name space, a DaemonSet that goes by its deploy label, and a configuration of the device plugin."""
    labels = {"app": OLD_PLUGIN}
    pod = render_pod("old", FOREVER)["spec"]
    spec = {**pod, "restartPolicy": "Always", "nodeSelector": {"nvidia.com/gpu.deploy.device-plugin": "true"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR}},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": OLD_PLUGIN, "namespace": OPERATOR},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "plugin-configs", "namespace": "default"},
            "data": {"any": json.dumps(PLUGIN_CONFIG)},
        },
    ]


def type_in(deployment: Deployment, place: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Type a command in a checkout, with the cluster's kubectl and the agent's own program at hand."""
    environment = dict(deployment.cluster.environment)
    environment["PATH"] = f"{CHECKOUT / '.venv/bin'}:{place}:{environment['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def render_typed(command: str, place: Path, pod: str) -> str:
    """What the reader puts in place of the capitals, and what makes the local image do for one from a registry."""
    chosen = f"--take-ownership --values {place}/ours.yaml"
    return (
        command.replace("--set image.repository=YOUR/nodeagent", chosen)
        .replace("--filename deploy/nodeagent.yaml", f"--filename {place}/nodeagent.yaml")
        .replace("NODE ", f"{NODE_NAME} ")
        .replace("=NODE", f"={NODE_NAME}")
        .removesuffix("NODE")
        + (NODE_NAME if command.endswith(" NODE") else "")
    ).replace(" POD ", f" {pod} ")


def test_commands_for_a_cluster_do_what_the_pages_say(
    operated: tuple[Deployment, FakeNvml], node: Cluster, tmp_path: Path
) -> None:
    """In the order of the pages; between them the agent is installed, moves in beside the operator, and leaves."""
    deployment, _ = operated
    prepare_checkout(deployment, tmp_path)
    problems = []
    for block, command in list_commands():
        if find_place(command) is not Where.CLUSTER:
            continue
        prepare(deployment, tmp_path, block.page, command)
        pods = deployment.list_pods()
        done = type_in(
            deployment, tmp_path, render_typed(command, tmp_path, pods[0]["metadata"]["name"] if pods else "")
        )
        # Code 1 of an import says that something has no counterpart, and of `status` that something is wrong.
        wanted = {0, 1} if "config import" in command or command.endswith("nodeagent status") else {0}
        if done.returncode not in wanted:
            said = f"{done.stdout[-800:]}{done.stderr[-800:]}\n{deployment.describe()}"
            problems.append(f"{block.name}: {command}: {done.returncode}\n{said}")
        if command.startswith("kubectl uncordon") and block.heading == "Move a node":
            check_moved(deployment)
    assert problems == [], "\n".join(problems)


def check_moved(deployment: Deployment) -> None:
    """Half way: ours runs on the node, the other does not."""
    others = deployment.cluster.api.get(f"/api/v1/namespaces/{OPERATOR}/pods")["items"]
    assert (len(deployment.list_pods()), len(others)) == (1, 0)


def prepare_checkout(deployment: Deployment, place: Path) -> None:
    """A checkout as its reader has it, the image set to the one that is there."""
    (place / "deploy").symlink_to(CHECKOUT / "deploy")
    (place / "helm").symlink_to(helm_path())
    write_imports(place)
    image = {"repository": REPOSITORY, "tag": deployment.tag, "pullPolicy": "Never"}
    config = {"driver": {"worker_environment": WORKER_ENVIRONMENT}}
    (place / "ours.yaml").write_text(yaml.safe_dump({"image": image, "config": config}))
    (place / "nodeagent.yaml").write_text(render_chart("-f", str(place / "ours.yaml")).stdout)


def prepare(deployment: Deployment, place: Path, page: str, command: str) -> None:
    """What a page takes for granted before one of its commands."""
    installed = bool(type_in(deployment, place, f"helm list --short --namespace {NAMESPACE}").stdout.strip())
    if command.startswith(("helm install", "kubectl apply")) and installed:
        deployment.helm("uninstall", "nodeagent", "--wait")
    elif command.startswith("helm upgrade") and not installed:
        deployment.kubectl("delete", "daemonset/nodeagent", "--ignore-not-found", "--wait")
        deployment.install({"driver": {"worker_environment": WORKER_ENVIRONMENT}})
        deployment.wait_ready()
    elif page == "docs/extender.md":
        deployment.install({"driver": {"worker_environment": WORKER_ENVIRONMENT}}, "--set", "extender.enabled=true")
    elif page == "docs/migration/gpu-operator.md" and command.startswith("kubectl cordon") and not installed:
        # A node that had no agent before has no pod of it that is ending, and says nothing of its GPUs.
        wait_until(
            "our pods to be gone",
            lambda: str(len(found)) if (found := deployment.list_pods()) else None,
            timeout_seconds=READY_SECONDS,
        )
        forgotten = {"type": READY_CONDITION, "$patch": "delete"}
        status = {"status": {"conditions": [forgotten]}}
        deployment.cluster.api.patch(f"/api/v1/nodes/{NODE_NAME}/status", status, kind="strategic")
        # As the page says above it: our DaemonSet goes by a label of its own.
        values = str(place / "ours.yaml")
        selector = ("--set-string", "nodeSelector.nodeagent=true")
        deployment.helm("install", "nodeagent", str(deployment.chart), "--take-ownership", "-f", values, *selector)
    elif command.startswith("kubectl --namespace nodeagent exec"):
        deployment.wait_ready()
