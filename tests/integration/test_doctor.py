"""The doctor beside a real kubelet, API server and container runtime: a clean bill, and each thing that is broken."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster.agent import COMMAND, AgentUnderTest, Settings
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.namespace import join_namespace
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

NOT_OURS = frozenset({"clock", "endings", "user"})
"""Clock and cgroups are the machine's, and no test sets them; who runs the tests is their own business."""


def settings_of(cluster: Cluster) -> Settings:
    """The runtime that serves this kubelet is not where runtimes usually are."""
    return {"runtime": {"socket": str(cluster.layout.containerd_socket)}}


def examine(agent: AgentUnderTest, *words: str) -> dict[str, list[Mapping[str, Any]]]:
    """What the doctor says of this agent's node, by check."""
    done = subprocess.run(
        join_namespace(
            agent.cluster.layout, (COMMAND[0], "doctor", "--json", "--config", str(agent.config_file), *words)
        ),
        env={
            **{key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ},
            "XDG_RUNTIME_DIR": str(agent.cluster.layout.agent),  # a simulation of the person's is none of this node
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    checks: dict[str, list[Mapping[str, Any]]] = {}
    for check in json.loads(done.stdout)["checks"]:
        checks.setdefault(check["name"], []).append(check)
    return checks


def grades(checks: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, set[str]]:
    return {name: {one["grade"] for one in found} for name, found in checks.items() if name not in NOT_OURS}


def test_a_healthy_node_gets_a_clean_bill(node: Cluster, make_agent: MakeAgent) -> None:
    """Kubelet, registration, allocatable, API server and its permissions, CDI and runtime are all in order."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=settings_of(node))

    def look() -> str | None:
        checks = examine(agent)
        bad = {name: found for name, found in grades(checks).items() if found != {"ok"}}
        if not bad and "the node's allocatable says 8" not in checks["allocatable"][0]["found"]:
            return f"the node object is behind: {checks['allocatable']}"
        return str(bad) if bad else None

    # The API server shows what is allocatable some seconds after the kubelet has heard of it.
    wait_until("the doctor to find nothing", look, timeout_seconds=60)
    checks = examine(agent)
    assert {"kubelet socket", "pod resources", "registration", "api server", "cdi", "runtime"} <= checks.keys()


def test_the_versions_of_server_and_kubelet_are_named(node: Cluster, make_agent: MakeAgent) -> None:
    """As both report them; of what the settings ask for nothing is missing in these versions."""
    agent = make_agent(gpus="simulated:t4", settings={**settings_of(node), "claims": {"enabled": True}})
    server = node.api.get("/version")["gitVersion"]
    kubelet = node.api.read_node()["status"]["nodeInfo"]["kubeletVersion"]
    (found,) = examine(agent)["kubernetes"]
    assert (found["grade"], found["found"].partition(":")[0]) == ("ok", f"API server {server}, kubelet {kubelet}")


def stop_agent(agent: AgentUnderTest) -> None:
    agent.stop()


def lose_gpu(agent: AgentUnderTest) -> None:
    environment = {**os.environ, "NODEAGENT_NODE__RUN_DIR": str(agent.cluster.layout.agent / "run")}
    fault = (COMMAND[0], "simulate", "fault", "lost", "1")
    subprocess.run(fault, env=environment, check=True, capture_output=True, timeout=30)

    def look() -> str | None:
        return None if "gpu-lost" in agent.get("/api/v1/conditions")[1] else "no condition yet"

    wait_until("the loss to be known", look, timeout_seconds=20)


def break_specification(agent: AgentUnderTest) -> None:
    (agent.cluster.layout.cdi_dirs[1] / "broken.json").write_text("{")


def take_rights(agent: AgentUnderTest) -> None:
    file = agent.cluster.layout.kubeconfig("agent")
    lines = [f"    token: {'x' * 20}" if "token:" in line else line for line in file.read_text().splitlines()]
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("break_it", "check", "grade", "words"),
    [
        (stop_agent, "agent", "warn", "no agent answers"),
        (stop_agent, "registration", "warn", "no agent"),
        (lose_gpu, "agent", "fail", "gpu-lost"),
        (break_specification, "cdi", "fail", "broken.json"),
        (take_rights, "api server", "fail", "401"),
    ],
)
def test_what_is_broken_is_found(
    node: Cluster,
    make_agent: MakeAgent,
    break_it: Callable[[AgentUnderTest], None],
    check: str,
    grade: str,
    words: str,
) -> None:
    """Each thing broken on a node in order is named in its own check, with something to do."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=settings_of(node))
    break_it(agent)
    found = examine(agent)
    (node.layout.cdi_dirs[1] / "broken.json").unlink(missing_ok=True)
    fitting = [one for one in found[check] if one["grade"] == grade and words in one["found"]]
    assert fitting, found
    assert fitting[0]["remedy"]


def test_a_runtime_and_a_kubelet_that_are_not_there_are_found(node: Cluster, make_agent: MakeAgent) -> None:
    """Sockets nobody serves, and a directory that cannot be written, are told with their paths."""
    agent = make_agent(gpus="simulated:t4", settings=settings_of(node))
    nowhere = Path("/nowhere")
    found = examine(
        agent,
        *("--set", f"kubelet.device_plugins_dir={nowhere}"),
        *("--set", f"kubelet.pod_resources_socket={nowhere / 'kubelet.sock'}"),
        *("--set", f"runtime.socket={nowhere / 'containerd.sock'}"),
        *("--set", "node.state_dir=/proc/nodeagent"),
    )
    assert grades(found)["kubelet socket"] == {"fail"}
    assert grades(found)["pod resources"] == {"fail"}
    assert "fail" in grades(found)["disk"] or "warn" in grades(found)["disk"]
    assert str(nowhere) in found["kubelet socket"][0]["found"]


def test_another_plugin_on_the_socket_is_a_conflict(node: Cluster, make_agent: MakeAgent) -> None:
    """Where a process that is not the agent serves NVIDIA devices to the kubelet, the doctor names it."""
    agent = make_agent(gpus="simulated:t4", settings=settings_of(node))
    stop_agent(agent)
    path = node.layout.device_plugins / "nvidia-gpu.sock"
    path.unlink(missing_ok=True)
    code = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({str(path)!r}); s.listen(); input()"
    with subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE) as plugin:
        wait_until("the other plugin to listen", lambda: None if path.is_socket() else "no socket", timeout_seconds=20)
        found = examine(agent)
        assert plugin.stdin is not None
        plugin.stdin.close()
    path.unlink()
    assert grades(found)["conflicts"] == {"fail"}
    assert str(plugin.pid) in found["conflicts"][0]["found"]
