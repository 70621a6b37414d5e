"""Parts of a class's devices on a real kubelet and containerd, given by an agent on a node that has no GPU.

The nodes are made for the test with the numbers of /dev/full and its neighbours: which device a container was given is
told by their numbers, read in the container. Everything between is real.
"""

import os
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import WAIT, Pods, render_pod
from tests.integration.conftest import MakeAgent

CARD = "example.com/card"
CORE, MEMORY = f"{CARD}-core", f"{CARD}-memory"
ANNOTATION = "nvidia.com/device-fractions"
QUICK: dict[str, dict[str, Any]] = {
    "kubelet": {"pod_resources_poll_seconds": 0.5},
    "journal": {"free_after_seconds": 2},
    "health": {"clean_polls": 1},
}
NUMBERS = {"card0": (1, 7), "card1": (1, 8)}
"""Of full and random, which containers may be given."""


def make_node(directory: Path, name: str) -> None:
    os.mknod(directory / name, stat.S_IFCHR | 0o666, os.makedev(*NUMBERS[name]))


@pytest.fixture
def dev() -> Iterator[Path]:
    """A directory of two nodes; its path is short, and nothing of it is in containers but what they are given."""
    directory = Path(mkdtemp(prefix="dev"))
    for name in NUMBERS:
        make_node(directory, name)
    yield directory
    shutil.rmtree(directory)


def plan(dev: Path) -> dict[str, dict[str, Any]]:
    """Two devices of four blocks of 256 MiB."""
    divided = {"resource": CARD, "nodes": [f"{dev}/card[0-9]"], "divisible": True, "memory_mib": 1024}
    return {"devices": {"classes": [divided | {"health": {"period_seconds": 1}}]}, **QUICK}


def render(name: str, dev: Path, cores: int, blocks: int) -> Json:
    """A pod that tells which nodes it has, by name and number, and what it was told of its part."""
    tell = f"cd {dev} 2>/dev/null && stat -c '%n=%t:%T' *; env | grep NODEAGENT_PART; echo told; {WAIT}"
    limits = {CORE: cores, MEMORY: blocks} if blocks else {CORE: cores}
    return render_pod(name, ("sh", "-c", tell), limits=limits)


def read_told(node: Cluster, pods: Pods, name: str) -> list[str]:
    """The lines of the container: nodes with their numbers, and the variables."""
    node.wait(f"{name} to tell", "kubelet", lambda: None if "told" in pods.logs(name) else "nothing yet")
    return pods.logs(name).splitlines()


def read_device(node: Cluster, pods: Pods, name: str) -> str:
    """The one device in the container, by the last part of its path; its number is the host's."""
    (found,) = [line for line in read_told(node, pods, name) if ":" in line and "NODEAGENT" not in line]
    device, _, number = found.partition("=")
    assert tuple(int(part, 16) for part in number.split(":")) == NUMBERS[device]
    return device


def read_bindings(agent: AgentUnderTest) -> dict[str, list[Json]]:
    """By pod its parts, as the journal has them."""
    bound = agent.get_json("/api/v1/parts")["bound"]
    return {each["binding"]["pod"]["name"]: each["binding"]["parts"] for each in bound}


def wait_all(node: Cluster) -> None:
    node.wait_count(CORE, 200)
    node.wait_count(MEMORY, 8)


def wait_free(node: Cluster, agent: AgentUnderTest) -> None:
    def list_left() -> str | None:
        return str(left) if (left := read_bindings(agent)) else None

    node.wait("all to be free", "kubelet", list_left, timeout_seconds=90)


@pytest.fixture
def agent(make_agent: MakeAgent, node: Cluster, dev: Path) -> AgentUnderTest:
    """An agent on a node without GPU and driver, which is ready all the same."""
    made = make_agent(gpus="nvml", settings=plan(dev))
    wait_all(node)
    return made


def test_containers_share_a_device_and_are_told_their_parts(
    agent: AgentUnderTest, node: Cluster, pods: Pods, dev: Path
) -> None:
    """The fullest takes the next part, a whole device is another one; all is free when they have ended."""
    pods.run(render("one", dev, 30, 1))
    pods.run(render("two", dev, 60, 2))
    pods.run(render("whole", dev, 100, 0))
    shared, whole = read_device(node, pods, "one"), read_device(node, pods, "whole")
    assert read_device(node, pods, "two") == shared != whole
    assert {"NODEAGENT_PART_CORES=60", "NODEAGENT_PART_MEMORY_MIB=512"} <= set(read_told(node, pods, "two"))
    (shown,) = agent.get_json("/api/v1/devices")
    assert shown["divisible"]
    assert sorted(record["cores_held"] for record in shown["devices"]) == [90, 100]
    assert CARD in node.api.read_node()["metadata"]["annotations"][ANNOTATION]
    pods.delete("one", "two", "whole")
    wait_free(node, agent)


def test_without_room_a_container_waits_and_starts_by_itself(
    agent: AgentUnderTest, node: Cluster, pods: Pods, dev: Path
) -> None:
    """Free cores of two devices do not add up to one."""
    pods.run(render("one", dev, 70, 1))
    pods.run(render("two", dev, 70, 1))
    pods.create(render("late", dev, 50, 1))

    def probe() -> str | None:
        events = " ".join(pods.read_events("late"))
        return None if "no room for 50 cores" in events else events

    node.wait("the kubelet to tell why", "kubelet", probe, timeout_seconds=60)
    pods.delete("one")
    pods.wait("late", "Running", timeout_seconds=120)
    assert read_device(node, pods, "late") in NUMBERS
    pods.delete("two", "late")
    wait_free(node, agent)


def test_nothing_is_lost_when_agent_and_kubelet_start_again(
    agent: AgentUnderTest, node: Cluster, pods: Pods, dev: Path
) -> None:
    """A container that starts again is on its device."""
    pods.run({**render("one", dev, 30, 1), "spec": {**render("one", dev, 30, 1)["spec"], "restartPolicy": "Always"}})
    before, device = read_bindings(agent), read_device(node, pods, "one")
    agent.stop(signal.SIGKILL)
    node.restart_kubelet()
    agent.start()
    agent.wait_ready()
    wait_all(node)
    assert read_bindings(agent) == before
    node.run("crictl", "stop", "--timeout", "1", pods.container_id("one"))
    pods.wait_for("one", "restarted", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] >= 1)
    pods.wait("one", "Running")
    assert read_device(node, pods, "one") == device
    assert read_bindings(agent) == before
    pods.delete("one")
    wait_free(node, agent)


def test_a_device_that_goes_gives_nothing(agent: AgentUnderTest, node: Cluster, pods: Pods, dev: Path) -> None:
    """Its ids are unhealthy until it is back; who has a part of it is named."""
    pods.run(render("holder", dev, 30, 1))
    device = read_device(node, pods, "holder")
    (dev / device).unlink()
    node.wait_count(CORE, 100)

    def read_gone() -> list[str]:
        return [each["detail"] for each in agent.get_json("/api/v1/conditions") if each["code"] == "device-gone"]

    node.wait("the condition", "kubelet", lambda: None if read_gone() else "not yet")
    assert "default/holder (main)" in read_gone()[0]
    make_node(dev, device)
    wait_all(node)
    pods.delete("holder")
    wait_free(node, agent)
