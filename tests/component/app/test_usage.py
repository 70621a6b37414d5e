"""What containers use of their parts, told by a whole agent: every surface says the same."""

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.empty_pb2 import Empty
from grpclib.client import Channel

from nodeagent.edge.gpu_manager.proto.display_grpc import GPUDisplayStub
from nodeagent.edge.gpu_manager.proto.display_pb2 import UsageResponse
from tests.support.programs.agent_process import AgentProcess, run_command, running_simulation
from tests.support.texts.exposition import read_text

CORES = "nodeagent_fraction_cores_ratio"


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """A simulated node that gives all its GPUs in parts, and tells of use in every way."""
    with tempfile.TemporaryDirectory(prefix="na-") as name:
        directory = Path(name)
        configuration = directory / "config.yaml"
        configuration.write_text(
            "fractions: {enabled: true, enforcement: library, usage_listen: '127.0.0.1:0',"
            f" usage_socket: {directory}/gm.sock}}\n"
            "doors: {rules: [{gpus: all, door: fractions}]}\n"
        )
        with running_simulation(
            directory, "--config", str(configuration), "--pods", "14", "--profile", "dgx-h100"
        ) as agent:
            agent.wait_until("/api/v1/usage", lambda body: list_busy(json.loads(body)) != [], "never told of any use")
            yield agent


def list_busy(usage: Any) -> list[str]:
    """The pods of which compute, memory and a process are told."""
    return [
        f"{one['pod']['namespace']}/{one['pod']['name']}"
        for one in usage["containers"]
        if one["enforcement"] == "library"
        and all(part["cores_used"] and part["memory_used_bytes"] and part["processes"] for part in one["parts"])
    ]


async def ask_usage(path: Path) -> UsageResponse:
    channel = Channel(path=str(path))
    try:
        return await GPUDisplayStub(channel).PrintUsages(Empty())
    finally:
        channel.close()


@pytest.mark.long
def test_every_surface_tells_the_same_parts(node: AgentProcess) -> None:
    """By container and GPU; pods come and go, so that all are asked until they agree."""
    told: dict[str, set[str]] = {}
    for _ in range(30):
        told = {
            "usage": {name_pod(one["pod"]) for one in node.get_json("/api/v1/usage")["containers"]},
            "metrics": {
                f"{labels['namespace']}/{labels['pod']}"
                for labels in (dict(each) for name, each in read_text(node.get("/metrics")[1]) if name == CORES)
            },
            "gpus": {name_pod(one["pod"]) for gpu in node.get_json("/api/v1/gpus")["gpus"] for one in gpu["parts"]},
            "list": set(run_command(node.directory, "fractions", "list", "-o", "name").stdout.split()),
        }
        uids = {one["pod"]["uid"] for one in node.get_json("/api/v1/usage")["containers"]}
        service = set(asyncio.run(ask_usage(node.directory / "gm.sock")).usage)
        if told["usage"] and len(set(map(frozenset, told.values()))) == 1 and uids == service:
            break
    else:
        pytest.fail(f"they never agreed: {told}")


def name_pod(pod: dict[str, str]) -> str:
    return f"{pod['namespace']}/{pod['name']}"


def test_the_service_is_a_part_of_the_agent(node: AgentProcess) -> None:
    """Both parts run, the service perhaps a moment later."""

    def do_both_run(body: str) -> bool:
        phases = {one["name"]: one["phase"] for one in json.loads(body)}
        return {phases["usage"], phases["usage_service"]} == {"running"}

    node.wait_until("/api/v1/components", do_both_run, "one of them does not run")


@pytest.mark.long
def test_use_and_faults_of_parts_are_seen_on_every_surface(node: AgentProcess) -> None:
    """A made-up pod over its limit and without its library, and a program that was given nothing."""

    def ask(*words: str) -> str:
        done = run_command(node.directory, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    busy = node.wait_until("/api/v1/usage", lambda body: list_busy(json.loads(body)) != [], "never told of any use")
    for pod in list_busy(json.loads(busy)):
        # One that has ended meanwhile is refused by name.
        for fault in ("over-limit", "no-library"):
            node.post("/api/v1/faults", {"fault": fault, "arguments": [pod]})
    node.inject("foreign", "7")
    node.wait_until("/metrics", shows_over, "never showed more memory than the part")
    node.wait_for("/api/v1/conditions", "part-over-memory")
    node.wait_for("/api/v1/conditions", "part-library-absent")
    assert re.search(r" main +\d+ +[1-9]\d* of \d+ ", ask("fractions", "list"))
    assert re.search(r"^\d+ +- +\d+ +\d+% +[\d.]+ .iB +[\w-]+/[\w-]+$", ask("top", "--once"), re.MULTILINE)
    assert re.search(r"[1-9]\d* of \d+ cores", node.get("/")[1])
    node.wait_for("/api/v1/gpus", '"pid":9007')
    assert re.search(r"^9007 +- +7 +0%", ask("top", "--once"), re.MULTILINE)
    node.wait_for("/api/v1/conditions", "GPU 7: foreign of the host (pid 9007) uses ")
    assert 'nodeagent_condition_active{code="part-foreign-use"' in node.get("/metrics")[1]
    node.inject("clear")
    node.wait_gone("/api/v1/gpus", '"pid":9007')
    node.wait_gone("/api/v1/conditions", "part-over-memory")
    node.wait_gone("/api/v1/conditions", "part-foreign-use")


@pytest.mark.nightly
def test_pods_wait_where_foreign_programs_leave_no_room(node: AgentProcess) -> None:
    """Those that come from then on, and no longer than the programs are there: some pod ends every few seconds."""
    for index in range(8):
        node.inject("foreign", str(index))
    deadline = time.monotonic() + 150
    while "part-no-room" not in node.get("/api/v1/conditions")[1]:
        assert time.monotonic() < deadline, "no pod has ever waited"
        time.sleep(0.5)
    assert " waits " in run_command(node.directory, "fractions", "list").stdout
    node.inject("clear")
    node.wait_gone("/api/v1/conditions", "part-no-room")


def shows_over(body: str) -> bool:
    """Whether the metrics have more memory used than promised for some container."""
    series = read_text(body)
    promised = {labels: value for (name, labels), value in series.items() if name == "nodeagent_fraction_memory_bytes"}
    used = {labels: value for (name, labels), value in series.items() if name == "nodeagent_fraction_memory_used_bytes"}
    return any(used.get(labels, 0) > value for labels, value in promised.items())
