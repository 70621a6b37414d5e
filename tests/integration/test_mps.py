"""Pods that share a GPU by MPS, on a real kubelet and containerd; daemons are processes of the stand-in."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.edge.mps.processes import find_daemon
from tests.integration.claims import VERSION, make_claim
from tests.integration.claims import render as render_claiming
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.mps import (
    GPU,
    PATIENCE_SECONDS,
    WORK,
    Node,
    claiming,
    list_clients,
    list_daemons,
    make_node,
    wait_daemons,
    wait_ready,
)
from tests.integration.test_fractions import CORE, MEMORY

__all__ = ["claiming"]


@pytest.fixture
def mps() -> Iterator[Node]:
    with make_node() as node:
        yield node


def test_pods_share_a_gpu_through_one_daemon(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Environment and mounts are there, both are its clients with half of it each, and the agent names them."""
    agent = make_agent(settings=mps.settings())
    (daemon,) = wait_ready(agent)
    node.wait_count(GPU, 2)
    names = [pods.run(mps.render(name)) for name in ("one", "two")]
    for name in names:
        assert pods.exec(name, "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY").strip() == f"/mps/{GPU}/pipe"
        assert f"threads 50.0 memory 0={daemon['limits']['memory_mib'][daemon['name']]}M" in pods.logs(name)
    pods.exec(names[0], "touch", "/dev/shm/segment")
    assert "segment" in pods.exec(names[1], "ls", "/dev/shm")
    assert not Path("/dev/shm/segment").exists()
    wait_daemons(
        agent, "both pods to be named", lambda found: list_clients(found[0]) == {f"default/{name}" for name in names}
    )
    assert "default/one" in agent.run("mps")
    labels = node.api.read_node()["metadata"]["labels"]
    assert (labels["nvidia.com/gpu.sharing-strategy"], labels["nvidia.com/mps.capable"]) == ("mps", "true")


def test_pods_go_on_while_the_agent_is_killed(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """The daemon is the same afterwards, and it still has its client; a kubelet that starts anew changes nothing."""
    agent = make_agent(settings=mps.settings())
    (first,) = wait_ready(agent)
    name = pods.run(mps.render("train"))
    agent.restart()
    (again,) = wait_daemons(agent, "its client", lambda found: bool(found) and bool(list_clients(found[0])))
    assert (again["pid"], list_clients(again)) == (first["pid"], {f"default/{name}"})
    node.restart_kubelet()
    node.wait_count(GPU, 2)
    assert list_daemons(agent)[0]["pid"] == first["pid"]
    assert pods.read(name)["status"]["phase"] == "Running"
    pods.run(mps.render("next"))


def test_pods_that_lose_their_daemon_are_named(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Their work ends; shares are withdrawn until another daemon runs, and new pods work through that."""
    agent = make_agent(settings=mps.settings())
    (first,) = wait_ready(agent)
    name = pods.run(mps.render("train"))
    wait_daemons(agent, "its client", lambda found: list_clients(found[0]) == {f"default/{name}"})
    os.kill(first["pid"], signal.SIGKILL)
    (again,) = wait_daemons(
        agent, "another daemon", lambda found: found[0]["phase"] == "ready" and found[0]["starts"] == 2
    )
    assert again["pid"] != first["pid"]
    assert "cut off" in pods.logs(name)
    conditions = {one["code"]: one["detail"] for one in agent.get_json("/api/v1/conditions")}
    assert f"default/{name}" in conditions["mps-clients-lost"]
    pods.delete(name)
    node.wait_count(GPU, 2)
    assert "threads 50.0" in _wait_log(pods, pods.run(mps.render("next")))


def test_sharing_otherwise_waits_for_pods(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Other replicas count at once for new pods; turns instead of MPS come when the last client is gone."""
    agent = make_agent(settings=mps.settings())
    (daemon,) = wait_ready(agent)
    name = pods.run(mps.render("train"))
    agent.settings = mps.settings(replicas=4)
    agent.write_settings()
    agent.run("reload")
    wait_daemons(agent, "a quarter", lambda found: found[0]["limits"].get("thread_percentage") == 25)
    node.wait_count(GPU, 4)
    assert "threads 25.0" in _wait_log(pods, pods.run(mps.render("quarter")))
    pods.delete("quarter")
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 2}]}}
    agent.settings = {**mps.settings(), "sharing": sharing}
    agent.write_settings()
    agent.run("reload")
    (ending,) = wait_daemons(agent, "its end to be asked for", lambda found: found[0]["phase"] == "stopping")
    assert f"default/{name} (main)" in ending["reason"]
    assert find_daemon(mps.root / daemon["name"] / "pipe") == daemon["pid"]
    pods.delete(name)
    wait_daemons(agent, "no daemon", lambda found: not found)
    assert not mps.root.exists()
    node.wait_count(GPU, 2)
    plain = pods.run(render_pod("plain", limits={GPU: 1}))
    assert pods.exec(plain, "sh", "-c", "echo [$CUDA_MPS_PIPE_DIRECTORY]").strip() == "[]"


def test_pods_share_the_gpu_of_a_claim(node: Cluster, pods: Pods, claiming: AgentUnderTest, mps: Node) -> None:
    """With the limits of its configuration; the daemon survives the agent, and ends with the last of them."""
    limits = {"defaultActiveThreadPercentage": 40, "defaultPinnedDeviceMemoryLimit": "2Gi"}
    sharing = {"strategy": "MPS", "mpsConfig": limits}
    claim = make_claim(node, "shared", parameters={"apiVersion": VERSION, "kind": "GpuConfig", "sharing": sharing})
    for name in ("one", "two"):
        pod = render_claiming(name, claim=claim)
        mps.mount(pod)
        pod["spec"]["containers"][0]["command"] = list(WORK)
        pods.run(pod)
        assert "threads 40.0 memory 0=2048M" in _wait_log(pods, name)
    (daemon,) = wait_daemons(claiming, "both to be named", lambda found: len(list_clients(found[0])) == 2)
    claiming.restart()
    (again,) = wait_ready(claiming)
    assert again["pid"] == daemon["pid"]
    pods.delete("one", "two")
    wait_daemons(claiming, "no daemon", lambda found: not found)
    assert not mps.root.exists()


def test_parts_of_a_gpu_are_held_by_mps(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Each process within its own pod's part; the daemon survives the agent, and ends with the last of them."""
    agent = make_agent(settings=mps.settings_of_fractions())
    node.wait_count(CORE, 100)
    for name, cores, blocks in (("small", 20, 4), ("large", 50, 8)):
        pod = render_pod(name, WORK, limits={CORE: cores, MEMORY: blocks})
        mps.mount(pod)
        pods.run(pod)
        assert f"threads {cores}.0 memory 0={blocks * 256}M" in _wait_log(pods, name)
    both = {"default/small", "default/large"}
    (daemon,) = wait_daemons(agent, "both to be named", lambda found: list_clients(found[0]) == both)
    agent.restart()
    (again,) = wait_daemons(agent, "its clients", lambda found: bool(found) and len(list_clients(found[0])) == 2)
    assert again["pid"] == daemon["pid"]
    pods.delete("small", "large")
    wait_daemons(agent, "no daemon", lambda found: not found)
    assert not mps.root.exists()


def _wait_log(pods: Pods, name: str) -> str:
    wait_until(
        f"pod {name} to say something",
        lambda: None if pods.logs(name) else "nothing",
        timeout_seconds=PATIENCE_SECONDS,
    )
    return pods.logs(name)
