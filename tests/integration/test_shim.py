"""Pods of the runtime class nvidia that ask for GPUs by their environment, through the real kubelet and containerd.

The agent installs the shim and configures containerd by itself; what it wrote is given back byte for byte. From then on
containers do without it: it is killed, and what the shim looks up is damaged, while pods start.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.agent import AgentUnderTest, Settings
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import WAIT, Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.runtimes.support import built
from tests.integration.test_cdi_pods import (
    CONTROL,
    DENIED,
    DRIVER_MAJOR,
    IMAGE,
    PASSES,
    check_probe,
    driver,
    gpu_node,
    image,
    list_nodes,
    open_node,
)

__all__ = ["driver", "gpu_node", "image"]

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
PATIENCE_SECONDS = 60.0


@pytest.fixture
def runtime_class(gpu_node: Cluster) -> Iterator[Cluster]:
    gpu_node.api.post(CLASSES, CLASS)
    yield gpu_node
    gpu_node.api.delete(f"{CLASSES}/nvidia")


@pytest.fixture
def agent(runtime_class: Cluster, make_agent: MakeAgent, driver: Path) -> Iterator[AgentUnderTest]:
    """One that has installed the shim and told containerd of it, which was restarted since."""
    layout = runtime_class.layout
    config = layout.config("containerd")
    before = config.read_bytes()
    settings: Settings = {
        "driver": {"root": str(driver)},
        "runtime": {
            "manage": True,
            "shim": True,
            "kind": "containerd",
            "socket": str(layout.containerd_socket),
            "config_file": str(config),
        },
        "shim": {"dir": str(layout.agent / "lib")},
    }
    with built():
        agent = make_agent(gpus="simulated:dgx-h100", settings=settings)
        _wait_configured(agent, config)
        runtime_class.restart_containerd()
        try:
            yield agent
        finally:
            Pods(runtime_class).delete_all()
            if agent.is_running():
                agent.stop()
            agent.run("runtime", "unconfigure")
            runtime_class.restart_containerd()
    assert config.read_bytes() == before


def _wait_configured(agent: AgentUnderTest, config: Path) -> None:
    def probe() -> str | None:
        drop_in = config.parent / "conf.d/zz-nodeagent.toml"
        text = drop_in.read_text() if drop_in.exists() else ""
        return None if "nodeagent-oci-shim" in text else f"{drop_in}: {text}; {agent.read_log()}"

    wait_until("containerd to be told of the shim", probe, timeout_seconds=PATIENCE_SECONDS)


def _ask(name: str, devices: str | None) -> Json:
    environment = {"NVIDIA_VISIBLE_DEVICES": devices} if devices is not None else {}
    spec = {"runtimeClassName": "nvidia"}
    pod = render_pod(name, ("/bin/sh", "-c", WAIT), environment=environment, spec=spec)
    pod["spec"]["containers"][0]["image"] = IMAGE
    return pod


def _gpus(pods: Pods, name: str) -> set[str]:
    return list_nodes(pods, name) - CONTROL


def _wait_told(pods: Pods, name: str, words: str) -> None:
    """Until people read it in `kubectl describe pod`."""

    def probe() -> str | None:
        events = pods.read_events(name)
        return None if any(words in event for event in events) else "; ".join(events)

    wait_until(f"an event of {name} with {words!r}", probe, timeout_seconds=PATIENCE_SECONDS)


def test_a_pod_that_asks_by_environment_has_its_gpus_and_no_others(agent: AgentUnderTest, pods: Pods) -> None:
    """By index and by UUID; they can be opened, a neighbour's cannot; the driver loads; who asks for none has none."""
    gpus = agent.get_json("/api/v1/gpus")["gpus"]
    minors = {str(each["gpu"]["index"]): each["gpu"]["minor"] for each in gpus}
    uuids = {each["gpu"]["uuid"]: each["gpu"]["minor"] for each in gpus}
    uuid = list(uuids)[5]
    name = pods.run(_ask("two", "0,2"))
    assert _gpus(pods, name) == {f"nvidia{minors['0']}", f"nvidia{minors['2']}"}
    assert open_node(pods, name, f"/dev/nvidia{minors['2']}") == PASSES
    pods.exec(name, "mknod", "/tmp/foreign", "c", str(DRIVER_MAJOR), str(minors["1"]))
    assert open_node(pods, name, "/tmp/foreign") == DENIED
    # What was asked for stays in the environment: who reads it there finds it as written.
    check_probe(pods, name, "probe", visible="0,2")
    name = pods.run(_ask("by-uuid", uuid))
    assert _gpus(pods, name) == {f"nvidia{uuids[uuid]}"}
    name = pods.run(_ask("none", None))
    assert list_nodes(pods, name) == set()


def test_pods_start_without_the_agent(agent: AgentUnderTest, pods: Pods) -> None:
    """Killed, it leaves what the shim looks up; a container that runs is looked into and ended through it."""
    first = pods.run(_ask("before", "0"))
    agent.stop(signal.SIGKILL)
    second = pods.run(_ask("after", "all"))
    assert len(_gpus(pods, second)) == 8
    assert len(_gpus(pods, first)) == 1
    pods.delete(first)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda content: content[:-20], "it is not whole"),
        (lambda content: content.replace(b"table 1 ", b"table 2 ", 1), "it is of version 2"),
    ],
    ids=["cut", "newer"],
)
def test_a_table_that_cannot_be_used_refuses_only_who_asks(
    spoil: Callable[[bytes], bytes], words: str, agent: AgentUnderTest, pods: Pods
) -> None:
    """The reason is where people look; a living agent puts it right."""
    table = agent.cluster.layout.agent / "lib/shim/table"
    agent.stop(signal.SIGKILL)
    table.write_bytes(spoil(table.read_bytes()))
    pods.run(_ask("plain", None))
    asking = pods.create(_ask("asking", "0"))
    _wait_told(pods, asking, words)
    pods.delete(asking)
    agent.start()
    agent.wait_ready()
    assert len(_gpus(pods, pods.run(_ask("again", "0")))) == 1


def test_a_gpu_that_is_gone_is_told_and_the_others_are_given(agent: AgentUnderTest, pods: Pods, driver: Path) -> None:
    """Its device node went with it, and the agent is not there to notice."""
    gpus = agent.get_json("/api/v1/gpus")["gpus"]
    minor = next(each["gpu"]["minor"] for each in gpus if each["gpu"]["index"] == 3)
    node = driver / f"dev/nvidia{minor}"
    aside = driver / "dev/gone"
    agent.stop(signal.SIGKILL)
    node.rename(aside)
    try:
        asking = pods.create(_ask("lost", "3"))
        _wait_told(pods, asking, f"device node {node}: no such file or directory")
        assert len(_gpus(pods, pods.run(_ask("whole", "4")))) == 1
    finally:
        aside.rename(node)
