"""What containers use of their parts, told by a whole agent: every surface says the same."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.empty_pb2 import Empty
from grpclib.client import Channel

from nodeagent.edge.gpu_manager.proto.display_grpc import GPUDisplayStub
from nodeagent.edge.gpu_manager.proto.display_pb2 import UsageResponse
from tests.support.agent_process import AgentProcess, run_command, running_simulation
from tests.support.exposition import read_text


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """A simulated node that gives all its GPUs in parts, and tells of use in every way."""
    with tempfile.TemporaryDirectory(prefix="na-") as name:
        directory = Path(name)
        configuration = directory / "config.yaml"
        configuration.write_text(
            f"fractions: {{enabled: true, usage_listen: '127.0.0.1:0', usage_socket: {directory}/gm.sock}}\n"
            "doors: {rules: [{gpus: all, door: fractions}]}\n"
        )
        with running_simulation(directory, "--config", str(configuration), "--pods", "3", "--profile", "t4") as agent:
            agent.wait_for("/api/v1/usage", '"cores_used":0')
            yield agent


async def ask_usage(path: Path) -> UsageResponse:
    channel = Channel(path=str(path))
    try:
        return await GPUDisplayStub(channel).PrintUsages(Empty())
    finally:
        channel.close()


def test_every_surface_tells_the_same_parts(node: AgentProcess) -> None:
    """By container and GPU; pods come and go, so that each is asked until it agrees with the one before."""
    for _ in range(20):
        before = node.get_json("/api/v1/usage")["containers"]
        metrics = read_text(node.get("/metrics")[1])
        gpus = node.get_json("/api/v1/gpus")["gpus"]
        listed = run_command(node.directory, "fractions", "list", "-o", "name").stdout.split()
        usage = asyncio.run(ask_usage(node.directory / "gm.sock"))
        if node.get_json("/api/v1/usage")["containers"] == before and before:
            break
    else:
        pytest.fail("pods never stood still")
    pods = {(one["pod"]["namespace"], one["pod"]["name"]) for one in before}
    told = [dict(labels) for name, labels in metrics if name == "nodeagent_fraction_cores_ratio"]
    assert {(one["namespace"], one["pod"]) for one in told} == pods
    assert {(one["pod"]["namespace"], one["pod"]["name"]) for gpu in gpus for one in gpu["parts"]} == pods
    assert set(listed) == {f"{namespace}/{name}" for namespace, name in pods}
    assert set(usage.usage) == {one["pod"]["uid"] or "/".join(one["pod"].values()) for one in before}


def test_the_service_is_a_part_of_the_agent(node: AgentProcess) -> None:
    """Both parts run; who measures knows no process of this host."""
    phases = {one["name"]: one["phase"] for one in node.get_json("/api/v1/components")}
    assert (phases["usage"], phases["usage_service"]) == ("running", "running")
    assert all(not part["processes"] for one in node.get_json("/api/v1/usage")["containers"] for part in one["parts"])
