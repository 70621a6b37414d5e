"""Containers read about their GPUs and the faults of these, on a real kubelet, by every way of giving GPUs."""

import http.client
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.vgpu.layout import LIMITS_BYTES
from nodeagent.edge.host.vgpu.limits_file import parse_limits
from nodeagent.model.orders import INJECT_FAULT
from tests.integration import claims, test_fractions
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import WAIT, Pods, has_reached, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_gpus import ENVIRONMENT, GPU

ON: dict[str, dict[str, Any]] = {"signals": {"receipts": True}}
TELL = f"cat /run/nodeagent/gpus.json; {WAIT}"
"""What a container reads with its first command."""
LIMITS = f"head -c {LIMITS_BYTES} /run/nodeagent/vgpu/limits | od -An -v -tx1"
TOLD_SECONDS, SWEPT_SECONDS = 10.0, 120.0
RUNS, IN_TIME = 100, 95
GPUS, REPLICAS = 8, 13
DIED = re.compile(r'^I(\d{4} [\d:.]+) .*SyncLoop \(PLEG\).*pod="default/([^"]+)".*"Type":"ContainerDied"')


def read_gpus(pods: Pods, name: str) -> list[Json]:
    """The devices by the container's own log."""
    return list(json.loads(pods.logs(name))["gpus"])


def read_faults(pods: Pods, name: str) -> Json | None:
    found = pods.exec(name, "sh", "-c", "cat /run/nodeagent/faults.json 2>/dev/null || true")
    return json.loads(found) if found else None


def break_gpu(agent: AgentUnderTest, uuid: str) -> None:
    """Have the GPU fall off the bus."""
    gpus = [one["gpu"] for one in agent.get_json("/api/v1/gpus")["gpus"]]
    agent.break_it("xid", "79", str(next(gpu["index"] for gpu in gpus if gpu["uuid"] == uuid)))


def wait_told(pods: Pods, name: str) -> None:
    """Return when the container reads of the fault, of its first device, and of what the agent does about it."""

    def find_lack() -> str | None:
        told = read_faults(pods, name)
        if told is None:
            return "no file"
        faults = [(each["number"], each["blame"], each["devices"]) for each in told["faults"]]
        standing = [(each["restart_here"], each["agent"]) for each in told["devices"]]
        is_told = faults == [(79, "hardware", [0])] and (False, "withholds") in standing
        return None if is_told else json.dumps(told)

    wait_until(f"the receipt of {name}", find_lack, timeout_seconds=TOLD_SECONDS)


def list_folders(node: Cluster) -> list[Path]:
    return sorted((node.layout.agent / "state" / "receipts").iterdir())


@pytest.fixture
def whole(node: Cluster, make_agent: MakeAgent) -> AgentUnderTest:
    """An agent that gives whole GPUs."""
    agent = make_agent(gpus="simulated:dgx-h100", settings={**ENVIRONMENT, **ON})
    node.wait_count(GPU, 8)
    return agent


def test_the_container_with_the_gpu_reads_of_the_fault_and_no_other(
    node: Cluster, pods: Pods, whole: AgentUnderTest
) -> None:
    """Its devices with the first command; the next agent writes nothing anew; the folders go with the pods."""
    for name, count in (("hit", 2), ("other", 1)):
        pods.run(render_pod(name, ("sh", "-c", TELL), limits={GPU: count}))
    devices = read_gpus(pods, "hit")
    assert [each["index"] for each in devices] == [0, 1]
    visible = pods.exec("hit", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip()
    assert {each["uuid"] for each in devices} == set(visible.split(","))
    assert pods.exec("hit", "sh", "-c", "touch /run/nodeagent/x 2>&1 || true").strip().endswith("Read-only file system")
    break_gpu(whole, devices[0]["uuid"])
    wait_told(pods, "hit")
    assert read_faults(pods, "other") is None
    before = {folder: (folder / "gpus.json").stat().st_ino for folder in list_folders(node)}
    whole.restart()
    node.wait_count(GPU, 8)
    assert {folder: (folder / "gpus.json").stat().st_ino for folder in list_folders(node)} == before
    told = read_faults(pods, "hit")
    assert told is not None
    assert [each["number"] for each in told["faults"]] == [79], "made-up GPUs are sound again, and what was is told"
    pods.delete("hit", "other")
    wait_until(
        "the folders to go", lambda: str(left) if (left := list_folders(node)) else None, timeout_seconds=SWEPT_SECONDS
    )


def test_a_fraction_has_its_receipt_beside_its_limits(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """The limits are mounted within the read-only folder."""
    agent = make_agent(gpus=test_fractions.PROFILE, settings={**test_fractions.SETTINGS, **ON})
    node.wait_count(test_fractions.CORE, 400)
    limits = {test_fractions.CORE: 30, test_fractions.MEMORY: 8}
    pods.run(render_pod("part", ("sh", "-c", TELL), limits=limits))
    (device,) = read_gpus(pods, "part")
    held = parse_limits(bytes.fromhex(pods.exec("part", "sh", "-c", LIMITS)))
    assert [each.uuid for each in held.devices] == [device["uuid"]]
    break_gpu(agent, device["uuid"])
    wait_told(pods, "part")


@pytest.fixture
def claimed(node: Cluster, make_agent: MakeAgent) -> Iterator[AgentUnderTest]:
    """An agent that gives GPUs by claims."""
    files = ("-f", str(claims.RIGHTS), "-f", str(claims.CLASSES))
    node.run("kubectl", "apply", *files)
    agent = make_agent(gpus="simulated:dgx-h100", settings={**claims.settings(node.layout), **ON})
    yield agent
    Pods(node).delete_all()
    for path in (claims.CLAIMS, claims.TEMPLATES):
        for one in node.api.get(path)["items"]:
            node.api.delete(f"{path}/{one['metadata']['name']}")
    node.run("kubectl", "delete", "--ignore-not-found", *files)


def test_a_claim_has_a_receipt(node: Cluster, pods: Pods, claimed: AgentUnderTest) -> None:
    """With its device, and after it with the fault."""
    claims.make_template(node)
    pods.run(claims.render("claimant", template="each", tell=TELL))
    (device,) = read_gpus(pods, "claimant")
    assert {device["uuid"]} == {
        each["uuid"] for one in claims.prepared(claimed).values() for each in one["claim"]["devices"]
    }
    break_gpu(claimed, device["uuid"])
    wait_told(pods, "claimant")


def render_mortal(name: str, gate: Path) -> Json:
    """A pod whose container ends in the moment in which its gate is opened."""
    tell = f"cat /run/nodeagent/gpus.json; grep ' /run/nodeagent ' /proc/self/mountinfo; cat /gate/{name}; exit 1"
    pod = render_pod(name, ("sh", "-c", tell), limits={GPU: 1})
    (container,) = pod["spec"]["containers"]
    container["volumeMounts"] = [{"name": "gate", "mountPath": "/gate"}]
    pod["spec"]["volumes"] = [{"name": "gate", "hostPath": {"path": str(gate), "type": "Directory"}}]
    return pod


class Breaker:
    """Gives the order for a fault without a process of its own, which would take longer than the fault."""

    def __init__(self, agent: AgentUnderTest, node: Cluster) -> None:
        self._connection = http.client.HTTPConnection("localhost")
        self._connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.sock.connect(str(node.layout.agent / "run" / "admin.sock"))
        gpus = [one["gpu"] for one in agent.get_json("/api/v1/gpus")["gpus"]]
        self._indexes = {gpu["uuid"]: str(gpu["index"]) for gpu in gpus}

    def close(self) -> None:
        self._connection.close()

    def break_gpu(self, uuid: str) -> None:
        """A double bit error, after which a container may go on for as long as it likes."""
        body = json.dumps({"fault": "xid", "arguments": ["48", self._indexes[uuid]]})
        self._connection.request("POST", INJECT_FAULT.path, body=body)
        answer = self._connection.getresponse()
        assert answer.status == http.client.OK, answer.read()
        answer.read()


def wait_written(path: Path, count: int) -> float:
    """When the receipt was written that counts so many faults."""

    def find_lack() -> str | None:
        try:
            counts = [each["count"] for each in json.loads(path.read_bytes())["faults"]]
        except FileNotFoundError:
            counts = []
        return None if counts == [count] else f"{counts}"

    wait_until(f"{count} faults in {path}", find_lack, timeout_seconds=TOLD_SECONDS)
    return path.stat().st_mtime


def read_deaths(node: Cluster, since: float) -> dict[str, float]:
    """When the kubelet saw the end of each pod's container, by its log."""
    year = datetime.now().astimezone().year
    found: dict[str, float] = {}
    for line in node.layout.log("kubelet").read_text(errors="replace").splitlines():
        if (match := DIED.match(line)) is not None:
            at = datetime.strptime(f"{year} {match[1]}", "%Y %m%d %H:%M:%S.%f").astimezone().timestamp()
            if at >= since:
                found.setdefault(match[2], at)
    return found


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_container_that_dies_of_the_fault_has_it_in_its_receipt_before_the_kubelet_sees_the_death(
    node: Cluster,
    pods: Pods,
    make_agent: MakeAgent,
    tmp_path: Path,
) -> None:
    """A hundred containers on eight shared GPUs, each with a fault of its own, in at least 95 of 100 in time."""
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": REPLICAS}]}}
    agent = make_agent(gpus="simulated:dgx-h100", settings={**ENVIRONMENT, **ON, "sharing": sharing})
    node.wait_count(GPU, GPUS * REPLICAS)
    names = [f"mortal-{number}" for number in range(RUNS)]
    for name in names:
        os.mkfifo(tmp_path / name)
        pods.create(render_mortal(name, tmp_path))
    for name in names:
        pods.wait(name, "Running", timeout_seconds=300)
    began, counts, written = time.time(), dict[str, int](), dict[str, float]()
    state = node.layout.agent / "state" / "receipts"
    with closing(Breaker(agent, node)) as breaker:
        for name in names:
            told, _, mount = pods.logs(name).rpartition("}\n")
            uuid = json.loads(told + "}")["gpus"][0]["uuid"]
            counts[uuid] = counts.get(uuid, 0) + 1
            faults = state / Path(mount.split()[3]).name / "faults.json"
            breaker.break_gpu(uuid)
            with (tmp_path / name).open("w"):
                pass
            written[name] = wait_written(faults, counts[uuid])
    for name in names:
        pods.wait_for(name, "over", lambda pod: has_reached(pod, "Failed"))
    deaths = read_deaths(node, began)
    assert deaths.keys() == written.keys()
    late = sorted(written[name] - deaths[name] for name in names)
    assert sum(each < 0 for each in late) >= IN_TIME, late[-10:]
