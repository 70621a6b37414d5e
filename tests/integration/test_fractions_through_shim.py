"""Parts of GPUs on a real containerd that takes no CDI devices: it creates every container through the runtime shim.

The agent installs the shim, and somebody else has made it containerd's default. Which GPU a container has is decided at
its start, as with CDI; what it is told comes by the shim.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.model.shim_names import REQUESTS
from tests.integration.cluster.agent import AgentUnderTest, Settings
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.runtimes.support import built
from tests.integration.test_fractions import (
    CORE,
    PROFILE,
    SETTINGS,
    check_pod,
    check_sums,
    read_bindings,
    render_part,
)

CLASS = """
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "nvidia"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
  SystemdCgroup = false
  Root = "{root}/runc"
  BinaryName = "{program}"
"""


@pytest.fixture
def agent(node: Cluster, make_agent: MakeAgent) -> Iterator[AgentUnderTest]:
    """One that gives half of the GPUs in parts, beside a containerd without CDI whose default is the shim."""
    layout = node.layout
    config = layout.config("containerd")
    before = config.read_text()
    program = layout.agent / "lib/nodeagent-oci-shim"
    settings: Settings = {
        **SETTINGS,
        "runtime": {
            "shim": True,
            "kind": "containerd",
            "socket": str(layout.containerd_socket),
            "config_file": str(config),
        },
        "shim": {"dir": str(program.parent), "default_runtime": True},
        "signals": {"receipts": True},
    }
    with built():
        agent = make_agent(gpus=PROFILE, settings=settings)
        wait_until("the shim to be in place", lambda: None if program.exists() else "not there", timeout_seconds=60)
        try:
            config.write_text(without_cdi(before, program, layout.containerd))
            node.restart_containerd()
            wait_until("the agent to see both", lambda: find_lack(agent), timeout_seconds=90)
            yield agent
        finally:
            Pods(node).delete_all()
            config.write_text(before)
            node.restart_containerd()


def find_lack(agent: AgentUnderTest) -> str | None:
    """What the agent does not know yet of the runtime; what it answers until then is for the one before."""
    seen = agent.get_json("/api/v1/state")["runtime"]
    return None if seen.get("through_shim") and seen.get("cdi_enabled") is False else str(seen)


def without_cdi(text: str, program: Path, root: Path) -> str:
    """The configuration with CDI off and the shim for every container that asks for nothing else."""
    assert "enable_cdi = true" in text
    assert "default_runtime_name" not in text
    return text.replace("enable_cdi = true", "enable_cdi = false") + CLASS.format(program=program, root=root)


def test_containers_have_their_parts_without_cdi(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """Theirs and nobody else's, also after the agent was killed and a container started again; then all is free."""
    node.wait_count(CORE, 400)
    pods.run(render_part("a", 30, 32))
    pods.run(render_part("b", 50, 64))
    pods.run(render_part("two", 200, 0))
    asked = (("a", 30, 32), ("b", 50, 64), ("two", 200, 0))
    for name, cores, blocks in asked:
        check_pod(agent, pods, name, cores, blocks)
    check_sums(agent)
    assert "k8s.device-plugin.nvidia.com" in pods.exec("a", "ls", f"{REQUESTS}/cdi"), "it was told by the shim"
    bound = read_bindings(agent)
    (device,) = json.loads(pods.exec("a", "cat", "/run/nodeagent/gpus.json"))["gpus"]
    assert [part["gpu"] for part in bound["a"]["parts"]] == [device["uuid"]], "the receipt is beside the limits"
    agent.restart()
    assert read_bindings(agent) == bound
    pods.run(render_part("c", 20, 8))
    check_pod(agent, pods, "c", 20, 8)
    pods.delete("a", "b", "c", "two")
    wait_until(
        "all parts to be free", lambda: str(left) if (left := [*read_bindings(agent)]) else None, timeout_seconds=60
    )
