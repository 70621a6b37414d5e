"""Pods that a kubelet starts from its own files, long before anybody can schedule: control plane habits, with GPUs.

Their manifests lie on the node, so they are the first to be admitted when it starts, often before any device plugin.
"""

import json
from pathlib import Path

import pytest

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.conftest import MakeAgent
from tests.integration.test_gpus import ENVIRONMENT, GPU, _distribution, _visible, _wait_held


class Manifests:
    """The kubelet's directory of static pods."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, name: str, count: int, version: str = "1") -> str:
        """Write or change a manifest; the name that the API server knows the pod by."""
        pod = render_pod(name, limits={GPU: count}, annotations={"version": version})
        draft = self._directory.with_name("draft.json")
        draft.write_text(json.dumps(pod))
        draft.rename(self._directory / f"{name}.json")
        return f"{name}-{NODE_NAME}"


@pytest.fixture
def manifests(node: Cluster) -> Manifests:
    return Manifests(node.layout.static_pods)


def test_a_static_pod_gets_its_gpus(node: Cluster, pods: Pods, make_agent: MakeAgent, manifests: Manifests) -> None:
    """Where devices are advertised, a static pod is given them like any other, and known by its name on the node."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    name = manifests.put("static", 2)
    pods.wait(name, "Running")
    devices = _visible(pods, name)
    assert len(set(devices)) == 2
    _wait_held(agent, dict.fromkeys(devices, name))


def test_a_static_pod_of_a_new_node_starts_without_and_is_told_after(
    node: Cluster, pods: Pods, make_agent: MakeAgent, manifests: Manifests
) -> None:
    """A kubelet that has never heard of the resource ignores it; changed after the agent's start, the pod gets GPUs."""
    node.stop("kubelet")
    name = manifests.put("early", 2)
    node.start("kubelet")
    node.wait_node()
    pods.wait(name, "Running")
    assert _visible(pods, name) == []
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    assert _visible(pods, name) == []
    manifests.put("early", 2, version="2")
    pods.wait_for(name, "of the second version", lambda pod: pod["metadata"]["annotations"]["version"] == "2")
    pods.wait(name, "Running")
    devices = _visible(pods, name)
    assert len(set(devices)) == 2
    _wait_held(agent, dict.fromkeys(devices, name))


def test_a_static_pod_keeps_its_gpus_through_a_start_without_the_agent(
    node: Cluster, pods: Pods, make_agent: MakeAgent, manifests: Manifests
) -> None:
    """Kubelet and agent start anew, the kubelet first: the pod runs on, and its GPUs go to nobody else."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    static = manifests.put("stays", 3)
    pods.wait(static, "Running")
    container = pods.container_id(static)
    agent.stop()
    node.restart_kubelet()
    agent.start()
    agent.wait_ready()
    node.wait_count(GPU, 8)
    assert pods.container_id(static) == container
    other = pods.run(render_pod("other", limits={GPU: 5}))
    _wait_held(agent, _distribution(pods, [static, other]))


def test_a_static_pod_of_a_rebooted_node_fails_until_it_is_changed(
    node: Cluster, pods: Pods, make_agent: MakeAgent, manifests: Manifests
) -> None:
    """A kubelet that remembers the resource refuses the pod before it is offered, for good; changed, it gets GPUs."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    name = manifests.put("reboots", 2)
    pods.wait(name, "Running")
    agent.stop()
    node.stop("kubelet")
    node.run("crictl", "rmp", "--all", "--force")
    node.start("kubelet")
    node.wait_node()
    refused = pods.wait(name, "Failed")["status"]
    assert refused["reason"] in {"UnexpectedAdmissionError", f"OutOf{GPU}"}, refused
    agent.start()
    agent.wait_ready()
    node.wait_count(GPU, 8)
    manifests.put("reboots", 2, version="2")
    pods.wait_for(name, "of the second version", lambda pod: pod["metadata"]["annotations"]["version"] == "2")
    pods.wait(name, "Running")
    _wait_held(agent, _distribution(pods, [name]))
