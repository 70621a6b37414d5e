"""A node on which one agent takes over from another: its kubelet, its pods, and agents as processes of their own."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from google.protobuf.message import Message

from nodeagent_sim.kubelet.device_manager import Device
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from nodeagent_sim.kubelet.plugin_client import PluginClient
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed
from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, starting
from tests.support.wire.kubelets import NAMESPACE

RESOURCE = "nvidia.com/gpu"
GPUS = 8
STANDBY = ("--standby", "--wait", "1h")


@contextmanager
def running(directory: Path, name: str, *words: str, front: Sequence[str] = ()) -> Iterator[AgentProcess]:
    """An agent of the node in this directory, with the address and the run directory of a pod of its own.

    `front` is a command in front of the agent's, which becomes the agent.
    """
    settings = {
        "gpus.source": "simulated:dgx-h100",
        "node.state_dir": directory / "state",
        "node.run_dir": directory / name,
        "kubelet.root_dir": directory / "kubelet",
        "kubelet.device_plugins_dir": directory / "kubelet/device-plugins",
        "kubelet.pod_resources_socket": directory / "kubelet/pod-resources/kubelet.sock",
        "cdi.dir": directory / "cdi",
        "cdi.hook_dir": directory / "hook",
        "driver.validation_dir": directory / "validations",
        "driver.manage_device_nodes": "false",
        "kubernetes.enabled": "false",
        "runtime.manage": "false",
        "log.format": "json",
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with starting(directory, "run", *sets, *words, front=front) as agent:
        yield agent


def hear(agent: AgentProcess, event: str) -> str:
    """Read the log to an event, and with it where the agent listens; the line."""
    assert agent.process.stderr is not None
    for line in agent.process.stderr:
        agent.output.append(line)
        said = json.loads(line) if line.startswith("{") else {}
        agent.url = said.get("url") or (f"http://{said['listen']}" if "listen" in said else agent.url)
        if said.get("event") == event:
            return line
    raise AssertionError(f"it ended: {''.join(agent.output)}")


def take_over(agent: AgentProcess) -> None:
    """Read the log to the end of the start of an agent that was a standby."""
    hear(agent, "standby_took_over")
    hear(agent, "agent_started")
    agent.wait_for("/readyz", "gate allocations_recovered passed")


class Client(PluginClient):
    """The kubelet's connection to a plugin, which keeps the plugin's last list and counts its answers."""

    last: tuple[Device, ...] = ()
    answers = 0

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        async for self.last in super().lists():
            yield self.last

    async def allocate(self, devices: Sequence[str]) -> Message:
        answer = await super().allocate(devices)
        self.answers += 1
        return answer


class Node:
    """A kubelet, the connections that it has made, and its pods."""

    def __init__(self, directory: Path, minor: int) -> None:
        self.clients: list[Client] = []
        self.kubelet = StandInKubelet(directory / "kubelet", minor=minor, dial=self._dial)
        self.refused = 0

    def _dial(self, resource: str, socket: Path) -> Client:
        self.clients.append(Client(resource, socket))
        return self.clients[-1]

    async def wait_offered(self) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            await self.kubelet.wait_until(lambda: self.kubelet.offers().get(RESOURCE) == (GPUS, GPUS))

    async def run_pod(self, name: str) -> None:
        """As a controller does: a pod that the node refuses is replaced, once the node has GPUs again.

        As a kubelet does: a container whose start was lost with the agent's connection is started again.
        """
        start: Callable[[], Awaitable[Any]] = partial(self.kubelet.add_pod, NAMESPACE, name, {RESOURCE: 1})
        while True:
            try:
                await start()
            except AdmissionRefused:
                self.refused += 1
                self.kubelet.delete_pod(NAMESPACE, name)
            except ContainerStartFailed:
                start = partial(self.kubelet.start_containers, NAMESPACE, name)
            else:
                return
            await self.wait_offered()


@asynccontextmanager
async def running_node(directory: Path, minor: int = 37) -> AsyncIterator[Node]:
    node = Node(directory, minor)
    async with anyio.create_task_group() as tasks:
        await tasks.start(node.kubelet.run)
        yield node
        tasks.cancel_scope.cancel()
