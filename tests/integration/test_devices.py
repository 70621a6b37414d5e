"""Devices of any vendor on a real kubelet and containerd, given by an agent on a node that has no GPU.

The nodes are made for the test with the numbers of /dev/null and its neighbours, in a directory of the test: what a
container is given is told by their numbers, read in the container. Everything between is real.
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
from tests.integration.cluster.pods import WAIT, Pods, has_reached, render_pod
from tests.integration.conftest import MakeAgent

KVM_CONDITION = "devices.nodeagent.io/KvmReady"
KVM, FUSE, CARD = "devices.nodeagent.io/kvm", "devices.nodeagent.io/fuse", "example.com/card"
QUICK: dict[str, dict[str, Any]] = {
    "kubelet": {"pod_resources_poll_seconds": 0.5},
    "journal": {"free_after_seconds": 2},
    "health": {"clean_polls": 1},
}
NUMBERS = {"kvm": (1, 3), "fuse": (1, 5), "card3": (1, 7), "card7": (1, 8), "card8": (1, 9)}
"""Of null, zero, full, random and urandom: all that containers may have anyway, or may be given."""


def make_node(directory: Path, name: str) -> None:
    os.mknod(directory / name, stat.S_IFCHR | 0o666, os.makedev(*NUMBERS[name]))


@pytest.fixture
def dev() -> Iterator[Path]:
    """A directory of nodes; its path is short, and nothing of it is in containers but what they are given."""
    directory = Path(mkdtemp(prefix="dev"))
    for name in NUMBERS:
        make_node(directory, name)
    yield directory
    shutil.rmtree(directory)


def plan(dev: Path, **device_plugin: Any) -> dict[str, dict[str, Any]]:
    """One class of two shares, one of one, one whose nodes are counted from 0."""
    classes = [
        {"use": "kvm", "nodes": [f"{dev}/kvm"], "replicas": 2, "label": "kvm", "condition": "KvmReady"},
        {"use": "fuse", "nodes": [f"{dev}/fuse"], "replicas": 1, "environment": {"FUSE": "{nodes}"}},
        {"resource": CARD, "nodes": [f"{dev}/card[0-9]"], "renumber": True, "health": {"period_seconds": 1}},
    ]
    return {"devices": {"classes": classes}, "device_plugin": device_plugin, **QUICK}


def render(name: str, dev: Path, **limits: int) -> Json:
    """A pod that tells which nodes it has, by name and number."""
    names = {"kvm": KVM, "fuse": FUSE, "card": CARD}
    tell = f"cd {dev} 2>/dev/null && stat -c '%n=%t:%T' *; env | grep FUSE; echo told; {WAIT}"
    return render_pod(name, ("sh", "-c", tell), limits={names[each]: count for each, count in limits.items()})


def read_told(node: Cluster, pods: Pods, name: str) -> dict[str, tuple[int, int]]:
    """The nodes in the container: by name, the number of what is behind."""
    node.wait(f"{name} to tell", "kubelet", lambda: None if "told" in pods.logs(name) else "nothing yet")
    pairs = [line.split("=") for line in pods.logs(name).splitlines() if ":" in line and "FUSE" not in line]
    return {each: tuple(int(part, 16) for part in number.split(":")) for each, number in pairs}  # type: ignore[misc]


def wait_all(node: Cluster) -> None:
    for resource, count in ((KVM, 2), (FUSE, 1), (CARD, 3)):
        node.wait_count(resource, count)


def find_devices(agent: AgentUnderTest, resource: str) -> dict[str, Json]:
    """By the last part of its path, what the agent says of each device."""
    (one,) = [each for each in agent.get_json("/api/v1/devices") if each["resource"] == resource]
    return {record["device"]["name"].rpartition("/")[2]: record for record in one["devices"]}


def list_holders(agent: AgentUnderTest) -> list[tuple[str, str, tuple[str, ...]]]:
    rows = agent.get_json("/api/v1/allocations")
    return sorted((each["pod"]["name"], each["resource"], tuple(each["devices"])) for each in rows if each["pod"])


def wait_free(node: Cluster, agent: AgentUnderTest) -> None:
    node.wait("all to be free", "kubelet", lambda: str(left) if (left := list_holders(agent)) else None)


@pytest.fixture
def agent(make_agent: MakeAgent, node: Cluster, dev: Path) -> AgentUnderTest:
    """An agent on a node without GPU and driver, which is ready all the same."""
    made = make_agent(gpus="nvml", settings=plan(dev))
    wait_all(node)
    return made


def test_a_node_without_gpu_is_ready_for_its_devices(agent: AgentUnderTest, node: Cluster) -> None:
    """No condition, no word of a driver, on the node object neither; and the label of the class."""
    assert agent.get("/readyz")[0] == 200
    assert agent.get_json("/api/v1/conditions") == []
    assert "driver" not in agent.get_json("/api/v1/state")["sentence"]
    found = node.api.read_node()
    assert not [each for each in found["status"]["conditions"] if each["type"].startswith("nvidia.com/")]
    node.wait(
        "the label",
        "kubelet",
        lambda: (
            None if node.api.read_node()["metadata"]["labels"].get("devices.nodeagent.io/kvm") == "1" else "not yet"
        ),
    )
    node.wait(
        "the condition",
        "kubelet",
        lambda: None if read_class_condition(node) == ("True", "DevicesReady") else "not yet",
    )


def read_class_condition(node: Cluster) -> tuple[str, str]:
    found = node.api.read_node()["status"]["conditions"]
    return next(((one["status"], one["reason"]) for one in found if one["type"] == KVM_CONDITION), ("", ""))


@pytest.mark.parametrize("strategy", ["cdi-cri", "envvar"])
def test_containers_have_exactly_their_nodes(
    make_agent: MakeAgent, node: Cluster, pods: Pods, dev: Path, strategy: str
) -> None:
    """Renumbered and not, by name and by node; a device of two shares in two containers, and in no third."""
    agent = make_agent(gpus="nvml", settings=plan(dev, device_list_strategy=[strategy]))
    wait_all(node)
    pods.run(render("one", dev, kvm=1, fuse=1))
    pods.run(render("two", dev, kvm=1, card=2))
    pods.run(render("last", dev, card=1))
    assert read_told(node, pods, "one") == {"kvm": NUMBERS["kvm"], "fuse": NUMBERS["fuse"]}
    assert f"FUSE={dev}/fuse" in pods.logs("one")
    two, last = read_told(node, pods, "two"), read_told(node, pods, "last")
    assert two.keys() == {"kvm", "card0", "card1"}
    assert last.keys() == {"card0"}
    cards = [two["card0"], two["card1"], last["card0"]]
    assert sorted(cards) == [NUMBERS["card3"], NUMBERS["card7"], NUMBERS["card8"]]
    assert two["card0"] < two["card1"]
    third = pods.create(render("third", dev, kvm=1))
    pods.wait_for(third, "told that there is none", lambda pod: "Insufficient" in str(pod["status"]))
    pods.delete("one")
    pods.wait(third, "Running")
    assert read_told(node, pods, third) == {"kvm": NUMBERS["kvm"]}
    pods.delete("two", "last", third)
    wait_free(node, agent)


def test_a_device_that_goes_while_held_is_named_and_comes_back(
    agent: AgentUnderTest, node: Cluster, pods: Pods, dev: Path
) -> None:
    """With its holder; nobody new is given it meanwhile, and it is one device afterwards as before."""
    pods.run(render("holder", dev, card=3))
    (dev / "card7").unlink()
    node.wait_count(CARD, 2)

    def read_gone() -> list[str]:
        return [each["detail"] for each in agent.get_json("/api/v1/conditions") if each["code"] == "device-gone"]

    node.wait("the condition", "kubelet", lambda: None if read_gone() else "not yet")
    assert "default/holder (main) has it" in read_gone()[0]
    assert find_devices(agent, CARD)["card7"]["device"]["standing"] == "gone"
    make_node(dev, "card7")
    node.wait_count(CARD, 3)
    node.wait(
        "no condition", "kubelet", lambda: str(found) if (found := agent.get_json("/api/v1/conditions")) else None
    )
    assert find_devices(agent, CARD)["card7"]["holders"] == ["default/holder"]
    pods.delete("holder")
    wait_free(node, agent)
    pods.run(render("next", dev, card=3))
    assert len(read_told(node, pods, "next")) == 3


def test_nothing_is_lost_or_doubled_when_agent_and_kubelet_start_again(
    agent: AgentUnderTest, node: Cluster, pods: Pods, dev: Path
) -> None:
    """Killed and started, each and both; a new device in between is there afterwards."""
    pods.run(render("a", dev, kvm=1, card=1))
    pods.run(render("b", dev, kvm=1, fuse=1))
    before = list_holders(agent)
    assert len(before) == 4
    told = {name: read_told(node, pods, name) for name in ("a", "b")}
    agent.restart()
    wait_all(node)
    assert list_holders(agent) == before
    node.restart_kubelet()
    wait_all(node)
    assert list_holders(agent) == before
    agent.stop(signal.SIGKILL)
    node.restart_kubelet()
    agent.start()
    agent.wait_ready()
    wait_all(node)
    assert list_holders(agent) == before
    pods.run(render("c", dev, card=2))
    cards = [number for name in ("a", "c") for each, number in read_told(node, pods, name).items() if "card" in each]
    assert sorted(cards) == [NUMBERS["card3"], NUMBERS["card7"], NUMBERS["card8"]]
    assert {name: read_told(node, pods, name) for name in ("a", "b")} == told
    assert all(has_reached(pods.read(name), "Running") for name in ("a", "b", "c"))
    pods.delete("a", "b", "c")
    wait_free(node, agent)


def test_devices_stand_beside_gpus(make_agent: MakeAgent, node: Cluster, pods: Pods, dev: Path) -> None:
    """One agent, one journal, both kinds in one container."""
    agent = make_agent(gpus="simulated:t4", settings=plan(dev))
    wait_all(node)
    pod = render("both", dev, kvm=1)
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1
    pods.run(pod)
    assert read_told(node, pods, "both") == {"kvm": NUMBERS["kvm"]}
    assert [resource for _, resource, _ in list_holders(agent)] == [KVM, "nvidia.com/gpu"]
