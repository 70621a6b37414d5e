"""Pods that share a GPU by MPS, on a real kubelet and containerd; daemons are processes of the stand-in."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.mps.processes import find_daemon
from tests.fakes.mps import FakeMps
from tests.integration.claims import API, CLAIMS, CLASSES, RIGHTS, VERSION, make_claim
from tests.integration.claims import render as render_claiming
from tests.integration.claims import settings as settings_of_claims
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_fractions import CORE, MEMORY, wait_count

GPU = "nvidia.com/gpu"
CLIENT = "/client/mps-client"
WORK = ("sh", "-c", f"trap 'kill $!; exit 0' TERM; {CLIENT} & wait $!")
PATIENCE_SECONDS = 60.0


class Node:
    """The stand-in, its daemons, and the settings that have them started."""

    def __init__(self, place: Path) -> None:
        self.fake = FakeMps(place / "driver")
        self.root, self.client = place / "mps", place / "client"
        self.client.mkdir()
        self.fake.install_client(self.client / "mps-client")

    def settings(self, replicas: int = 2) -> dict[str, dict[str, Any]]:
        """Of the agent."""
        return {
            "device_plugin": {"device_list_strategy": ["envvar"], "mps_root": str(self.root)},
            "kubelet": {"pod_resources_poll_seconds": 0.5},
            "journal": {"free_after_seconds": 2},
            "mps": {"program": str(self.fake.program), "look_seconds": 1},
            "sharing": {"mps": {"resources": [{"name": GPU, "replicas": replicas}]}},
        }

    def render(self, name: str) -> dict[str, Any]:
        """A pod that works through the daemon of its share."""
        pod: dict[str, Any] = render_pod(name, WORK, limits={GPU: 1})
        self.mount(pod)
        return pod

    def mount(self, pod: dict[str, Any]) -> None:
        """Give its container the client."""
        mount = {"name": "client", "mountPath": "/client", "readOnly": True}
        pod["spec"]["containers"][0]["volumeMounts"] = [mount]
        pod["spec"]["volumes"] = [{"name": "client", "hostPath": {"path": str(self.client)}}]

    def close(self) -> None:
        """End what is left of daemons."""
        for pipes in self.root.glob("**/pipe"):
            while (pid := find_daemon(pipes)) is not None:
                os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
        if (memory := self.root / "shm").is_mount():
            subprocess.run(["umount", "--lazy", memory], check=True)


@pytest.fixture
def mps() -> Iterator[Node]:
    place = Path(tempfile.mkdtemp(prefix="na-mps-"))
    place.chmod(0o755)
    node = Node(place)
    yield node
    node.close()
    shutil.rmtree(place)


def _daemons(agent: AgentUnderTest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.get_json("/api/v1/mps")["daemons"]
    return found


def _wait(agent: AgentUnderTest, what: str, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The daemons once it is so."""

    def probe() -> str | None:
        found = _daemons(agent)
        return None if holds(found) else str(found)

    wait_until(what, probe, timeout_seconds=PATIENCE_SECONDS)
    return _daemons(agent)


def _wait_ready(agent: AgentUnderTest, count: int = 1) -> list[dict[str, Any]]:
    return _wait(
        agent,
        f"{count} daemons to be ready",
        lambda found: len(found) == count and all(one["phase"] == "ready" for one in found),
    )


def _names(daemon: dict[str, Any]) -> set[str]:
    return {client["pod"] for server in daemon.get("servers", []) for client in server.get("clients", [])}


def _wait_shares(node: Cluster, count: int) -> None:
    def probe() -> str | None:
        found = node.api.read_node()["status"].get("allocatable", {}).get(GPU)
        return None if found == str(count) else f"{found}"

    node.wait(f"{count} shares", "kubelet", probe)


def test_pods_share_a_gpu_through_one_daemon(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Environment and mounts are there, both are its clients with half of it each, and the agent names them."""
    agent = make_agent(settings=mps.settings())
    (daemon,) = _wait_ready(agent)
    _wait_shares(node, 2)
    names = [pods.run(mps.render(name)) for name in ("one", "two")]
    for name in names:
        assert pods.exec(name, "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY").strip() == f"/mps/{GPU}/pipe"
        assert f"threads 50.0 memory 0={daemon['limits']['memory_mib'][daemon['name']]}M" in pods.logs(name)
    pods.exec(names[0], "touch", "/dev/shm/segment")
    assert "segment" in pods.exec(names[1], "ls", "/dev/shm")
    assert not Path("/dev/shm/segment").exists()
    _wait(agent, "both pods to be named", lambda found: _names(found[0]) == {f"default/{name}" for name in names})
    assert "default/one" in agent.run("mps")
    labels = node.api.read_node()["metadata"]["labels"]
    assert (labels["nvidia.com/gpu.sharing-strategy"], labels["nvidia.com/mps.capable"]) == ("mps", "true")


def test_pods_go_on_while_the_agent_is_killed(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """The daemon is the same afterwards, and it still has its client; a kubelet that starts anew changes nothing."""
    agent = make_agent(settings=mps.settings())
    (first,) = _wait_ready(agent)
    name = pods.run(mps.render("train"))
    agent.stop(signal.SIGKILL)
    agent.start()
    agent.wait_ready()
    (again,) = _wait(agent, "its client", lambda found: bool(found) and bool(_names(found[0])))
    assert (again["pid"], _names(again)) == (first["pid"], {f"default/{name}"})
    node.restart_kubelet()
    _wait_shares(node, 2)
    assert _daemons(agent)[0]["pid"] == first["pid"]
    assert pods.read(name)["status"]["phase"] == "Running"
    pods.run(mps.render("next"))


def test_pods_that_lose_their_daemon_are_named(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Their work ends; shares are withdrawn until another daemon runs, and new pods work through that."""
    agent = make_agent(settings=mps.settings())
    (first,) = _wait_ready(agent)
    name = pods.run(mps.render("train"))
    _wait(agent, "its client", lambda found: _names(found[0]) == {f"default/{name}"})
    os.kill(first["pid"], signal.SIGKILL)
    (again,) = _wait(agent, "another daemon", lambda found: found[0]["phase"] == "ready" and found[0]["starts"] == 2)
    assert again["pid"] != first["pid"]
    assert "cut off" in pods.logs(name)
    conditions = {one["code"]: one["detail"] for one in agent.get_json("/api/v1/conditions")}
    assert f"default/{name}" in conditions["mps-clients-lost"]
    pods.delete(name)
    _wait_shares(node, 2)
    assert "threads 50.0" in _wait_log(pods, pods.run(mps.render("next")))


def test_sharing_otherwise_waits_for_pods(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Other replicas count at once for new pods; turns instead of MPS come when the last client is gone."""
    agent = make_agent(settings=mps.settings())
    (daemon,) = _wait_ready(agent)
    name = pods.run(mps.render("train"))
    agent.settings = mps.settings(replicas=4)
    agent.write_settings()
    agent.run("reload")
    _wait(agent, "a quarter", lambda found: found[0]["limits"].get("thread_percentage") == 25)
    _wait_shares(node, 4)
    assert "threads 25.0" in _wait_log(pods, pods.run(mps.render("quarter")))
    pods.delete("quarter")
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 2}]}}
    agent.settings = {**mps.settings(), "sharing": sharing}
    agent.write_settings()
    agent.run("reload")
    (ending,) = _wait(agent, "its end to be asked for", lambda found: found[0]["phase"] == "stopping")
    assert f"default/{name} (main)" in ending["reason"]
    assert find_daemon(mps.root / daemon["name"] / "pipe") == daemon["pid"]
    pods.delete(name)
    _wait(agent, "no daemon", lambda found: not found)
    assert not mps.root.exists()
    _wait_shares(node, 2)
    plain = pods.run(render_pod("plain", limits={GPU: 1}))
    assert pods.exec(plain, "sh", "-c", "echo [$CUDA_MPS_PIPE_DIRECTORY]").strip() == "[]"


@pytest.fixture
def claiming(node: Cluster, make_agent: MakeAgent, mps: Node) -> Iterator[AgentUnderTest]:
    """A node of which all GPUs are given by claims, which may ask for MPS."""
    node.run("kubectl", "apply", "-f", str(RIGHTS), "-f", str(CLASSES))
    of_mps = mps.settings()
    agent = make_agent(
        gpus="simulated:dgx-h100",
        settings={
            **settings_of_claims(node.layout),
            "device_plugin": of_mps["device_plugin"],
            "mps": {**of_mps["mps"], "claims": True},
        },
    )

    def offered() -> str | None:
        slices = node.api.get(f"{API}/resourceslices")["items"]
        count = sum(len(one["spec"].get("devices") or ()) for one in slices)
        return None if count == 8 and agent.get_json("/api/v1/claims")["standing"]["registered"] else f"{count}"

    wait_until("8 devices in slices, and the driver registered", offered, timeout_seconds=30)
    yield agent
    Pods(node).delete_all()
    for one in node.api.get(CLAIMS)["items"]:
        node.api.delete(f"{CLAIMS}/{one['metadata']['name']}")
    node.run("kubectl", "delete", "--ignore-not-found", "-f", str(RIGHTS), "-f", str(CLASSES))


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
    (daemon,) = _wait(claiming, "both to be named", lambda found: len(_names(found[0])) == 2)
    claiming.stop(signal.SIGKILL)
    claiming.start()
    claiming.wait_ready()
    (again,) = _wait_ready(claiming)
    assert again["pid"] == daemon["pid"]
    pods.delete("one", "two")
    _wait(claiming, "no daemon", lambda found: not found)
    assert not mps.root.exists()


def test_parts_of_a_gpu_are_held_by_mps(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Each process within its own pod's part; the daemon survives the agent, and ends with the last of them."""
    agent = make_agent(
        settings={
            **mps.settings(),
            "sharing": {},
            "fractions": {"enabled": True, "enforcement": "mps"},
            "doors": {"rules": [{"gpus": ["all"], "door": "fractions"}]},
        }
    )
    wait_count(node, CORE, 100)
    for name, cores, blocks in (("small", 20, 4), ("large", 50, 8)):
        pod = render_pod(name, WORK, limits={CORE: cores, MEMORY: blocks})
        mps.mount(pod)
        pods.run(pod)
        assert f"threads {cores}.0 memory 0={blocks * 256}M" in _wait_log(pods, name)
    both = {"default/small", "default/large"}
    (daemon,) = _wait(agent, "both to be named", lambda found: _names(found[0]) == both)
    agent.stop(signal.SIGKILL)
    agent.start()
    agent.wait_ready()
    (again,) = _wait(agent, "its clients", lambda found: bool(found) and len(_names(found[0])) == 2)
    assert again["pid"] == daemon["pid"]
    pods.delete("small", "large")
    _wait(agent, "no daemon", lambda found: not found)
    assert not mps.root.exists()


def _wait_log(pods: Pods, name: str) -> str:
    wait_until(
        f"pod {name} to say something",
        lambda: None if pods.logs(name) else "nothing",
        timeout_seconds=PATIENCE_SECONDS,
    )
    return pods.logs(name)
