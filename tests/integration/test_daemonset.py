"""The chart as it is shipped, on a real cluster: its pod runs, offers GPUs, is updated, and takes everything back."""

import json
import subprocess
import sys

import pytest

from tests.fakes.nvml.control import FakeNvml
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import CommandFailed, ProcessDied
from tests.integration.cluster.node import find_strange_files
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.deployment import NAMESPACE, Deployment, deployed, find_state
from tests.integration.host_driver import WORKER_ENVIRONMENT, installed_driver
from tests.integration.pod_figures import read_figures, read_seconds_to_devices, report

CONFIG = {"driver": {"worker_environment": WORKER_ENVIRONMENT}}
GPU = "nvidia.com/gpu"
STARTS = 5
GRACE_SECONDS = 120
"""Long, so that a pod that hears nothing is told from one on a machine that is slow."""
STOP_SECONDS = 100.0
READY_CONDITION = "nvidia.com/GPUReady"


def read_allocations(deployment: Deployment) -> dict[str, list[str]]:
    """Devices by pod, as the agent tells."""
    table = json.loads(deployment.exec("nodeagent", "allocations", "--json"))
    return {each["pod"].rpartition("/")[2]: sorted(each["devices"]) for each in table if each.get("pod")}


def read_conditions(cluster: Cluster) -> dict[str, str]:
    return {each["type"]: each["status"] for each in cluster.api.read_node()["status"]["conditions"]}


def read_node_labels(cluster: Cluster) -> set[str]:
    return {key for key in cluster.api.read_node()["metadata"]["labels"] if key.startswith("nvidia.com/")}


def test_the_pod_of_the_chart_serves_gpus(deployment: Deployment, node: Cluster, pods: Pods) -> None:
    """With the shipped mounts, rights and policy it is ready, and a pod that asks for GPUs gets nodes and libraries."""
    deployment.install(CONFIG)
    deployment.wait_ready()
    wait_until(
        "the node to be labelled and said to be ready",
        lambda: None if read_conditions(node).get(READY_CONDITION) == "True" and read_node_labels(node) else "not yet",
        timeout_seconds=30,
    )
    pods.run(render_pod("worker", limits={GPU: 2}))
    seen = pods.exec("worker", "ls", "/dev", "/usr/lib/x86_64-linux-gnu").split()
    (held,) = read_allocations(deployment).values()
    assert len(held) == 2
    assert len([name for name in seen if name.removeprefix("nvidia").isdigit()]) == 2
    assert {"nvidiactl", "nvidia-uvm", "libcuda.so.1"} <= {*seen}
    # The hook was seen to run on the host from within the pod, and so it is used without anybody's asking.
    assert pods.exec("worker", "grep", "-c", "libcuda.so.1", "/etc/ld.so.cache").strip() == "1"


def test_a_node_without_gpus_has_an_agent_that_waits_for_one(node: Cluster, tag: str, pods: Pods) -> None:
    """No label, no GPU: the roll-out ends, the node is left alone, and with the driver comes the whole agent."""
    with deployed(node, tag) as deployment:
        before = read_conditions(node), read_node_labels(node)
        deployment.install(CONFIG)
        deployment.kubectl("rollout", "status", "daemonset/nodeagent", "--timeout=60s")
        pod = deployment.wait_ready()
        with pytest.raises(CommandFailed, match="this node has no NVIDIA GPU"):
            deployment.exec("nodeagent", "status")
        sys.stderr.write(f"\nan agent that waits: {read_figures(node, pod)}\n")
        assert (read_conditions(node), read_node_labels(node)) == before
        assert list(find_state(node).iterdir()) == []
        with installed_driver(node.layout):
            node.wait_count(GPU, 8)
            pods.run(render_pod("worker", limits={GPU: 1}))
            after = deployment.wait_ready()
            assert after["metadata"]["uid"] == pod["metadata"]["uid"]
            assert after["status"]["containerStatuses"][0]["restartCount"] == 0
            pods.delete("worker")
            deployment.helm("uninstall", "nodeagent", "--wait")


def test_hook_and_markers_reach_the_host_where_they_are_asked_for(
    deployment: Deployment, node: Cluster, pods: Pods
) -> None:
    """The image carries the hook program; the runtime runs it for a pod, and operands beside find their markers."""
    run = node.layout.run
    requests = {"cdi": {"hooks": "ldcache", "hook_dir": "/run/hook"}}
    deployment.install({**requests, "driver": {**CONFIG["driver"], "validation_markers": True}})
    deployment.wait_ready()
    pods.run(render_pod("worker", limits={GPU: 1}))
    assert (run / "hook/nodeagent-cdi-hook").stat().st_mode & 0o777 == 0o755
    assert pods.exec("worker", "grep", "-c", "libcuda.so.1", "/etc/ld.so.cache").strip() == "1"
    assert (run / "nvidia/validations/driver-ready").exists()


def test_the_container_can_write_nothing_that_it_need_not(deployment: Deployment) -> None:
    """Its own root and the host's are read-only: what it may write to are the mounts that the chart names."""
    deployment.install(CONFIG)
    deployment.wait_ready()
    for place in ("/opt/nodeagent", "/etc/nodeagent", "/host/etc", "/usr", "/root"):
        with pytest.raises(CommandFailed, match="Read-only file system"):
            deployment.exec("touch", f"{place}/x")
    for place in ("/var/lib/nodeagent", "/var/lib/kubelet/device-plugins", "/var/run/cdi", "/tmp", "/run/nodeagent"):
        deployment.exec("sh", "-c", f"touch {place}/x && rm {place}/x")


def test_a_restart_of_the_daemonset_keeps_allocations(deployment: Deployment, node: Cluster, pods: Pods) -> None:
    """The pod that holds GPUs runs on, the new agent knows what it holds, and was a standby beside the old one."""
    deployment.install(CONFIG)
    before = deployment.wait_ready()
    pods.run(render_pod("worker", limits={GPU: 3}))
    container, held = pods.container_id("worker"), read_allocations(deployment)
    assert len(held["worker"]) == 3
    most = watch_rollout(deployment)
    deployment.wait_ready(other_than=before["metadata"]["uid"])
    assert most == 2
    assert read_allocations(deployment) == held
    assert pods.container_id("worker") == container
    said = json.loads(deployment.exec("sh", "-c", "nodeagent status --json || true"))
    assert [each["code"] for each in said["conditions"]] == []
    pods.run(render_pod("another", limits={GPU: 5}))
    devices = [device for each in read_allocations(deployment).values() for device in each]
    assert len(devices) == len({*devices}) == 8


def watch_rollout(deployment: Deployment) -> int:
    """Restart the DaemonSet; the largest number of agents that ran at one time, a standby included."""
    deployment.kubectl("rollout", "restart", "daemonset/nodeagent")
    command = ["kubectl", "--namespace", NAMESPACE, "rollout", "status", "daemonset/nodeagent", "--timeout=60s"]
    most = 0
    with subprocess.Popen(command, env=dict(deployment.cluster.environment), stdout=subprocess.DEVNULL) as waiting:
        while waiting.poll() is None:
            states = [each["status"].get("containerStatuses", [{}])[0] for each in deployment.list_pods()]
            most = max(most, sum("running" in state.get("state", {}) for state in states))
    assert waiting.returncode == 0
    return most


def test_a_changed_configuration_reaches_the_node(deployment: Deployment, node: Cluster) -> None:
    """`helm upgrade` with another setting starts the agent anew; sharing shows in what the node offers."""
    deployment.install(CONFIG)
    before = deployment.wait_ready()
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}
    deployment.install({**CONFIG, "sharing": sharing})
    deployment.wait_ready(other_than=before["metadata"]["uid"])

    node.wait_count(GPU, 32)


def test_devices_are_offered_soon_after_the_container_starts(deployment: Deployment, node: Cluster) -> None:
    """From the start of the container to the kubelet's own word, and what the pod takes of memory; told, not judged."""
    deployment.install(CONFIG)
    pod = deployment.wait_ready()
    seconds = [read_seconds_to_devices(node)]
    for _ in range(STARTS - 1):
        deployment.kubectl("delete", "pod", pod["metadata"]["name"])
        pod = deployment.wait_ready(other_than=pod["metadata"]["uid"])
        seconds.append(read_seconds_to_devices(node))
    figures = read_figures(node, pod)
    request = pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
    report(node, seconds, figures, request)
    assert len(seconds) == STARTS
    assert figures.pss_mib < float(request.removesuffix("Mi"))


def test_a_pod_that_is_told_to_stop_as_it_starts_does_so(deployment: Deployment) -> None:
    """Before the agent hears signals, too: it would hold its lock against its successor for the whole grace period."""
    deployment.install(CONFIG)
    pod = deployment.wait_ready()
    grace = f"--grace-period={GRACE_SECONDS}"
    for _ in range(STARTS):
        deployment.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false", grace)
        pod = wait_successor(deployment)
    deployment.kubectl("delete", "pod", pod["metadata"]["name"], grace, f"--timeout={STOP_SECONDS:.0f}s")


def wait_successor(deployment: Deployment) -> Json:
    """The one pod that nobody has deleted: one that has ended is listed beside it until the kubelet forgets it."""
    found: list[Json] = []

    def probe() -> str | None:
        pods = deployment.list_pods()
        found[:] = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return None if found else json.dumps([pod["status"] for pod in pods])

    wait_until("the next pod", probe, timeout_seconds=STOP_SECONDS)
    (pod,) = found
    return pod


def test_a_second_agent_on_the_node_is_refused(deployment: Deployment, node: Cluster, make_agent: MakeAgent) -> None:
    """A service beside the pod does not start, says who is there, and takes no GPU from anybody."""
    deployment.install(CONFIG)
    pod = deployment.wait_ready()
    node.wait_count(GPU, 8)
    with pytest.raises(ProcessDied, match="stop that nodeagent first"):
        make_agent(settings={"node": {"state_dir": str(find_state(node))}})
    after = deployment.wait_ready()
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert node.count(GPU) == 8


@pytest.mark.parametrize("keep_state", [False, True])
def test_leaving_takes_everything_back(
    deployment: Deployment, node: Cluster, driver: FakeNvml, pods: Pods, keep_state: bool
) -> None:
    """The agents take back what they did, then Helm takes the rest; a journal stays that was asked for."""
    layout = node.layout
    state = find_state(node)
    deployment.install({**CONFIG, "labels": {"hold_seconds": 0}})
    deployment.wait_ready()
    pods.run(render_pod("worker", limits={GPU: 1}))
    wait_until("labels", lambda: None if read_node_labels(node) else "none", timeout_seconds=30)
    pods.delete("worker")
    said = "keepState" if keep_state else "true"
    deployment.helm(
        "upgrade", "nodeagent", str(deployment.chart), "--reset-then-reuse-values", "--set", f"uninstall={said}"
    )
    deployment.kubectl("rollout", "status", "daemonset/nodeagent", "--timeout=60s")
    told = deployment.kubectl("logs", "daemonset/nodeagent", "--container", "uninstall")
    deployment.helm("uninstall", "nodeagent", "--wait")
    driver.state_path.unlink()
    strange = find_strange_files((layout.device_plugins, *layout.cdi_dirs))
    assert [path for path in strange if not path.endswith("kubelet_internal_checkpoint")] == [], told
    assert READY_CONDITION not in read_conditions(node)
    assert read_node_labels(node) == set()
    assert ("allocations" in {path.name.partition(".")[0] for path in state.iterdir()}) == keep_state, told
    if not keep_state:
        assert list(state.iterdir()) == []
