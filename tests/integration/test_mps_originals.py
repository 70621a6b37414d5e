"""NVIDIA's own MPS daemon, of two drivers, on a real kubelet and containerd: its life, without a GPU behind it.

Its server does not start here, so nobody works through it; what clients are told is what the stand-in's scenarios try.
"""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.edge.mps.processes import find_daemon
from tests.fakes.mps import NAME
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
    Node,
    claiming,
    list_daemons,
    make_node,
    wait_daemons,
    wait_ready,
)
from tests.integration.test_fractions import CORE, MEMORY
from tests.originals.packages import DRIVERS, REASON, find_program

__all__ = ["claiming"]


@pytest.fixture(params=DRIVERS)
def mps(request: pytest.FixtureRequest) -> Iterator[Node]:
    program = find_program(request.param, NAME)
    if program is None:
        pytest.skip(REASON)
    with make_node(program) as node:
        yield node


def read_conditions(agent: AgentUnderTest) -> dict[str, str]:
    return {one["code"]: one["detail"] for one in agent.get_json("/api/v1/conditions")}


def restart(agent: AgentUnderTest) -> dict[str, Any]:
    """Kill the agent; the daemon that its next life has."""
    agent.restart()
    (daemon,) = wait_ready(agent)
    return daemon


def test_the_life_of_a_daemon(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """Ready with limits of an odd size, found by the next agent, replaced when it dies, ended when nobody has it."""
    agent = make_agent(settings=mps.settings(replicas=7))
    (first,) = wait_ready(agent)
    memory = first["limits"]["memory_mib"][first["name"]]
    assert (memory > 1024, memory % 1024 > 0, first["limits"]["thread_percentage"]) == (True, True, 14)
    node.wait_count(GPU, 7)
    name = pods.run(render_pod("train", limits={GPU: 1}))
    assert pods.exec(name, "sh", "-c", "ls $CUDA_MPS_PIPE_DIRECTORY").split()[:2] == ["control", "control_lock"]
    assert restart(agent)["pid"] == first["pid"]
    os.kill(first["pid"], signal.SIGKILL)
    (again,) = wait_daemons(
        agent, "another daemon", lambda found: found[0]["phase"] == "ready" and found[0]["pid"] != first["pid"]
    )
    assert "default/train" in read_conditions(agent)["mps-clients-lost"]
    agent.settings = {**mps.settings(), "sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 2}]}}}
    agent.write_settings()
    agent.run("reload")
    (ending,) = wait_daemons(agent, "its end to be asked for", lambda found: found[0]["phase"] == "stopping")
    assert "default/train (main)" in ending["reason"]
    assert find_daemon(mps.root / again["name"] / "pipe") == again["pid"]
    pods.delete(name)
    wait_daemons(agent, "no daemon", lambda found: not found)
    assert not mps.root.exists()
    repeated = [line for line in agent.read_log(1000).splitlines() if "mps_said" in line]
    assert any("Starting control daemon" in line for line in repeated)
    assert not [line for line in repeated if "Cmd:" in line or "NEW UI" in line]


def test_a_pipe_directory_with_wrong_rights(node: Cluster, make_agent: MakeAgent, mps: Node) -> None:
    """Told by a condition, with what it says itself; no share is given out, and it starts when the way is free."""
    agent = make_agent(settings=mps.settings())
    (first,) = wait_ready(agent)
    node.wait_count(GPU, 2)
    pipes = mps.root / first["name"] / "pipe"
    (pipes / "control_lock").unlink()
    (pipes / "control_lock").mkdir()
    os.kill(first["pid"], signal.SIGKILL)
    (down,) = wait_daemons(agent, "it to be refused", lambda found: "ended with 1" in found[0].get("reason", ""))
    assert down["phase"] == "broken"
    node.wait_count(GPU, 0)
    # It is shown after five seconds, in which the daemon is tried again and again.
    wait_until(
        "the condition",
        lambda: None if "mps-daemon-down" in read_conditions(agent) else "none",
        timeout_seconds=PATIENCE_SECONDS,
    )
    (pipes / "control_lock").rmdir()
    (again,) = wait_ready(agent)
    assert again["pid"] != first["pid"]
    node.wait_count(GPU, 2)
    assert "mps-daemon-down" not in read_conditions(agent)


def test_a_claim_is_held_by_it(node: Cluster, pods: Pods, claiming: AgentUnderTest, mps: Node) -> None:
    """A pod with a claim starts when its daemon has the limits; the daemon ends with it."""
    limits = {"defaultActiveThreadPercentage": 40, "defaultPinnedDeviceMemoryLimit": "2500Mi"}
    sharing = {"strategy": "MPS", "mpsConfig": limits}
    claim = make_claim(node, "shared", parameters={"apiVersion": VERSION, "kind": "GpuConfig", "sharing": sharing})
    pods.run(render_claiming("one", claim=claim))
    (daemon,) = wait_ready(claiming)
    assert list(daemon["limits"]["memory_mib"].values()) == [2500]
    assert restart(claiming)["pid"] == daemon["pid"]
    pods.delete("one")
    wait_daemons(claiming, "no daemon", lambda found: not found)
    assert not mps.root.exists()


def test_fractions_are_held_by_it(node: Cluster, pods: Pods, make_agent: MakeAgent, mps: Node) -> None:
    """A container with a fraction starts when the daemon of its GPU is ready."""
    agent = make_agent(settings=mps.settings_of_fractions())
    node.wait_count(CORE, 100)
    name = pods.run(render_pod("part", limits={CORE: 20, MEMORY: 9}))
    (daemon,) = wait_ready(agent)
    assert list(daemon["limits"]["memory_mib"].values()) == [9 * 256]
    assert pods.exec(name, "sh", "-c", "echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").strip().endswith("=2304M")
    assert restart(agent)["pid"] == daemon["pid"]
    pods.delete(name)
    wait_daemons(agent, "no daemon", lambda found: not found)
    assert list_daemons(agent) == []
