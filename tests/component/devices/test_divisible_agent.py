"""A whole agent gives parts of a class's devices: on a node without GPU, to a kubelet that keeps the protocol."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from nodeagent.edge.kubelet.proto.device_plugin_pb2 import ContainerAllocateResponse
from nodeagent_sim.kubelet.checkpoint import parse_checkpoint
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from tests.component.app.test_devices import CARD, write_settings
from tests.support.programs.agent_process import AgentProcess, running_agent

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")

CORE, MEMORY = f"{CARD}-core", f"{CARD}-memory"


@asynccontextmanager
async def serve(directory: Path) -> AsyncIterator[StandInKubelet]:
    kubelet = StandInKubelet(directory / "kubelet")
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        yield kubelet
        tasks.cancel_scope.cancel()


class Node:
    """The stand-in kubelet in a thread of its own, and what its containers would find."""

    def __init__(self, directory: Path, portal: BlockingPortal, kubelet: StandInKubelet) -> None:
        self._directory, self._portal, self._kubelet = directory, portal, kubelet

    def run_pod(self, name: str, cores: int, blocks: int) -> dict[str, Any]:
        """The pod is admitted and starts; what its container runtime adds to the container."""
        kubelet = self._kubelet
        is_offered = partial(kubelet.wait_until, lambda: kubelet.count_free(CORE) >= cores)
        self._portal.call(is_offered)
        self._portal.call(kubelet.add_pod, "ml", name, {CORE: cores, MEMORY: blocks})
        return self.read_edits(name)

    def read_edits(self, name: str) -> dict[str, Any]:
        (pod,) = [each for each in self._kubelet.pods if each.name == name]
        entries = parse_checkpoint(self._kubelet.checkpoint_file.read_bytes()).entries
        (told,) = [
            device.name
            for entry in entries
            if entry.pod_uid == pod.uid
            for device in ContainerAllocateResponse.FromString(entry.answer).cdi_devices
        ]
        for path in (self._directory / "cdi").glob("*.json"):
            spec = json.loads(path.read_text())
            for device in spec["devices"]:
                if f"{spec['kind']}={device['name']}" == told:
                    return dict(device["containerEdits"])
        raise AssertionError(f"{told} is defined nowhere")

    def restart_container(self, name: str) -> None:
        self._portal.call(self._kubelet.start_containers, "ml", name)


@contextmanager
def running_node(directory: Path) -> Iterator[Node]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(directory)) as kubelet:
        yield Node(directory, portal, kubelet)


def write_divided(directory: Path) -> Path:
    """The settings of whole devices, with the class divided."""
    file = write_settings(directory)
    settings = json.loads(file.read_text())
    settings["devices"]["classes"][0] |= {"divisible": True, "memory_mib": 4096, "renumber": False}
    settings["devices"]["classes"][0] |= {"environment": {"CARDS": "{nodes}"}}
    file.write_text(json.dumps(settings))
    return file


def find_bound(agent: AgentProcess) -> dict[str, dict[str, Any]]:
    return {each["binding"]["pod"]["name"]: each["binding"] for each in agent.get_json("/api/v1/parts")["bound"]}


@pytest.mark.long
def test_a_node_without_gpu_gives_parts_of_its_devices(short_dir: Path) -> None:
    """Ready without a driver; who was given a part keeps it when the agent starts again, and starts on its device."""
    file = write_divided(short_dir)
    with running_node(short_dir) as node:
        with running_agent(short_dir, "--config", str(file)) as agent:
            agent.wait_for("/readyz", "all is well: 2 devices of the configured classes, and no GPU")
            one, two = node.run_pod("one", 30, 4), node.run_pod("two", 60, 4)
            assert one["deviceNodes"] == two["deviceNodes"]
            (device,) = one["deviceNodes"]
            assert f"CARDS={device['path']}" in one["env"]
            assert {"NODEAGENT_PART_CORES=30", "NODEAGENT_PART_MEMORY_MIB=1024"} <= set(one["env"])
            whole = node.run_pod("whole", 100, 1)
            assert whole["deviceNodes"] != one["deviceNodes"]
            # Whose the parts are by name may be found out after the start.
            agent.wait_until(
                "/api/v1/parts",
                lambda text: all(f'"name":"{name}"' in text for name in ("one", "two", "whole")),
                "no name",
            )
            before = find_bound(agent)
            assert {name: each["enforcement"] for name, each in before.items()} == dict.fromkeys(
                ("one", "two", "whole"), "counted"
            )
            (shown,) = agent.get_json("/api/v1/devices")
            assert sorted(record["cores_held"] for record in shown["devices"]) == [90, 100]
            agent.wait_for("/metrics", 'pod="whole",enforcement="counted"')
            assert agent.stop() == 0
        for path in (short_dir / "cdi").glob("nodeagent-part-*"):
            path.unlink()
        with running_agent(short_dir, "--config", str(file)) as agent:
            agent.wait_for("/readyz", "all is well")
            node.restart_container("one")
            assert node.read_edits("one") == one
            assert find_bound(agent)["one"]["parts"] == before["one"]["parts"]
            assert agent.stop() == 0
