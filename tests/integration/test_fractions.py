"""Parts of GPUs on a real kubelet and containerd: each container has the GPU and the limits that the journal says.

The GPUs are made up: a container is told by an environment variable which it was given, and its limits by the file that
the library would read. Everything between is real: the kubelet's ids, its calls, its records, the runtime's injection.
"""

import random
import signal
from typing import Any

import pytest

from nodeagent.edge.host.vgpu.layout import LIMITS_BYTES
from nodeagent.edge.host.vgpu.limits_file import parse_limits
from nodeagent.rules.fractions.published import ANNOTATION, read_published
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.pods import WAIT, Pods, has_reached, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

CORE, MEMORY, GPU = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"
RIGHTS = CHECKOUT / "deploy" / "rbac-pod-labels.yaml"
BLOCK_BYTES = 256 << 20
PROFILE = "simulated:dgx-h100"
SETTINGS: dict[str, dict[str, Any]] = {
    "fractions": {"enabled": True, "limit_compute": True},
    "doors": {"rules": [{"gpus": ["0", "1", "2", "3"], "door": "fractions"}]},
    "kubelet": {"pod_resources_poll_seconds": 0.5},
    "journal": {"free_after_seconds": 2},
}
TELL = f"env; head -c {LIMITS_BYTES} /run/nodeagent/vgpu/limits | od -An -v -tx1; {WAIT}"
"""What a container says of itself: which GPUs it was given, and its limits byte by byte."""


def render_part(name: str, cores: int, blocks: int, **more: Any) -> Json:
    """A pod with a part of a GPU, or with whole ones."""
    limits = {CORE: cores, **({MEMORY: blocks} if blocks else {})}
    return render_pod(name, ("sh", "-c", TELL), limits=limits, **more)


def read_told(pods: Pods, name: str) -> tuple[set[str], list[tuple[str, int | None, int | None]]]:
    """The GPUs that a container was given, and its limits: GPU, bytes of memory, percent of compute."""
    lines = pods.logs(name).splitlines()
    gpus = {line.partition("=")[2] for line in lines if line.startswith("NODEAGENT_SIMULATED_")}
    content = bytes.fromhex("".join(line for line in lines if line.startswith(" ")))
    limits = parse_limits(content)
    return gpus, [(device.uuid, device.memory_bytes, device.core_percent) for device in limits.devices]


def read_bindings(agent: AgentUnderTest) -> dict[str, Json]:
    """By pod what the agent says it has bound."""
    found = [each["binding"] for each in agent.get_json("/api/v1/parts")["bound"]]
    return {each["pod"]["name"]: each for each in found}


def check_pod(agent: AgentUnderTest, pods: Pods, name: str, cores: int, blocks: int) -> None:
    """The container has the GPU and the limits that the journal says, and those that it asked for."""
    gpus, limits = read_told(pods, name)
    binding = read_bindings(agent)[name]
    assert {part["gpu"] for part in binding["parts"]} == gpus
    assert binding["container"] == "main"
    if cores < 100:
        assert limits == [(*gpus, blocks * BLOCK_BYTES, cores)]
    else:
        assert sorted(limits) == sorted((gpu, None, None) for gpu in gpus)
        assert len(gpus) == cores // 100


def check_sums(agent: AgentUnderTest) -> None:
    """No GPU is given more than it has."""
    cores: dict[str, int] = {}
    memory: dict[str, int] = {}
    for binding in read_bindings(agent).values():
        for part in binding["parts"]:
            cores[part["gpu"]] = cores.get(part["gpu"], 0) + part["cores"]
            memory[part["gpu"]] = memory.get(part["gpu"], 0) + part["memory_bytes"]
    whole = {one["gpu"]["uuid"]: one["gpu"]["memory_total_bytes"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    assert all(count <= 100 for count in cores.values())
    assert all(size <= whole[gpu] for gpu, size in memory.items())


def is_settled(pod: Json) -> bool:
    """Whether the pod runs, or never will."""
    return has_reached(pod, "Running") or pod["status"].get("phase") == "Failed"


def wait_count(node: Cluster, resource: str, count: int) -> None:
    """Return when the node has so many of a resource to give."""

    def probe() -> str | None:
        found = node.api.read_node()["status"].get("allocatable", {}).get(resource, "0")
        return None if int(found) == count else f"{found}"

    node.wait(f"{count} of {resource}", "kubelet", probe)


@pytest.fixture
def agent(node: Cluster, make_agent: MakeAgent) -> AgentUnderTest:
    """A node of which half the GPUs are given in parts."""
    made = make_agent(gpus=PROFILE, settings=SETTINGS)
    for resource, count in ((GPU, 4), (CORE, 400), (MEMORY, 4 * 318)):
        wait_count(node, resource, count)
    return made


def test_a_container_has_its_part_and_gives_it_back(agent: AgentUnderTest, pods: Pods) -> None:
    """The part it asked for, on the fullest GPU that has room; a whole one beside it; all free again at the end."""
    pods.run(render_part("a", 30, 32))
    pods.run(render_part("b", 50, 64))
    pods.run(render_part("c", 30, 32))
    pods.run(render_part("two", 200, 0))
    for name, cores, blocks in (("a", 30, 32), ("b", 50, 64), ("c", 30, 32), ("two", 200, 0)):
        check_pod(agent, pods, name, cores, blocks)
    bound = read_bindings(agent)
    first = bound["a"]["parts"][0]["gpu"]
    assert bound["b"]["parts"][0]["gpu"] == first, "30 and 50 fit on one GPU"
    assert bound["c"]["parts"][0]["gpu"] != first, "30 more do not"
    check_sums(agent)
    pods.delete("a", "b", "c", "two")
    wait_until(
        "all parts to be free", lambda: str(left) if (left := [*read_bindings(agent)]) else None, timeout_seconds=60
    )


def test_a_schedulers_choice_is_obeyed_where_it_can_be(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """The node says what it has, the pod says which GPU was chosen for it; one that cannot be is passed over."""
    node.run("kubectl", "apply", "-f", str(RIGHTS))
    try:
        agent = make_agent(gpus=PROFILE, settings=SETTINGS)
        wait_count(node, CORE, 400)
        node.wait("the annotation", "kubelet", lambda: None if read_annotation(node) else "none yet")
        assert [gpu.index for gpu in read_published(read_annotation(node)).gpus] == list(range(8))
        uuids = {one["gpu"]["index"]: one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
        for name, chosen, given in (("third", 2, 2), ("elsewhere", 7, 2)):
            choice = {"tencent.com/predicate-gpu-idx-0": str(chosen)}
            pods.run(render_part(name, 10, 4, annotations=choice))
            assert read_told(pods, name)[0] == {uuids[given]}
        assert "the scheduler's choice cannot be" in agent.run("fractions", "explain", "default/elsewhere")
    finally:
        node.run("kubectl", "delete", "-f", str(RIGHTS))


def read_annotation(node: Cluster) -> str:
    """What the node says of its GPUs that are given in parts."""
    return str(node.api.read_node()["metadata"].get("annotations", {}).get(ANNOTATION, ""))


def test_a_container_that_starts_again_has_what_it_had(agent: AgentUnderTest, pods: Pods, node: Cluster) -> None:
    """Also when agent and kubelet were killed in between: the binding stands in the journal."""
    pods.run(render_part("a", 40, 16, spec={"restartPolicy": "Always"}))
    before = read_bindings(agent)["a"]
    agent.stop(signal.SIGKILL)
    node.restart_kubelet()
    agent.start()
    agent.wait_ready()
    node.run("crictl", "stop", "--timeout", "1", pods.container_id("a"))
    pods.wait_for("a", "restarted", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] >= 1)
    pods.wait("a", "Running")
    check_pod(agent, pods, "a", 40, 16)
    assert read_bindings(agent)["a"] == before


def test_without_room_a_container_waits_and_starts_by_itself(agent: AgentUnderTest, pods: Pods) -> None:
    """Free cores of four GPUs do not add up to one: the reason is in the pod's events, and room ends the wait."""
    for number in range(4):
        pods.run(render_part(f"most-{number}", 70, 8))
    pods.create(render_part("late", 60, 8))

    def probe() -> str | None:
        events = " ".join(pods.read_events("late"))
        return None if "no room for 60 cores" in events else events

    wait_until("the kubelet to tell why", probe, timeout_seconds=60)
    assert "part-no-room" in {condition["code"] for condition in agent.get_json("/api/v1/conditions")}
    pods.delete("most-2")
    pods.wait("late", "Running", timeout_seconds=120)
    check_pod(agent, pods, "late", 60, 8)
    check_sums(agent)


@pytest.mark.timeout(400)
def test_eighty_pods_at_once_each_have_their_own(agent: AgentUnderTest, pods: Pods, node: Cluster) -> None:
    """In shuffled order, many of them alike, whole GPUs among them, the agent killed in the middle: nothing swapped."""
    sizes = [(5, 4)] * 30 + [(3, 8)] * 20 + [(7, 2)] * 12 + [(1, 1)] * 14
    random.Random(7).shuffle(sizes)
    parts = {f"p{number:02}": size for number, size in enumerate(sizes)}
    manifests = {name: render_part(name, cores, blocks) for name, (cores, blocks) in parts.items()}
    manifests |= {name: render_pod(name, limits={GPU: 1}) for name in ("whole-0", "whole-1", "whole-2", "whole-3")}
    early, late = list(manifests)[: len(manifests) // 2], list(manifests)[len(manifests) // 2 :]
    for name in early:
        pods.create(manifests[name])
    agent.stop(signal.SIGKILL)
    agent.start()
    agent.wait_ready()
    for resource, count in ((GPU, 4), (CORE, 400), (MEMORY, 4 * 318)):
        wait_count(node, resource, count)
    for name in late:
        pods.create(manifests[name])
    rejected = {name for name, manifest in manifests.items() if not settle(pods, name, manifest)}
    assert rejected <= set(early), "only who was admitted while nobody answered"
    for name, (cores, blocks) in parts.items():
        check_pod(agent, pods, name, cores, blocks)
    check_sums(agent)


def settle(pods: Pods, name: str, manifest: Json) -> bool:
    """Wait until the pod runs; one that the kubelet rejects for want of an answer is made again, as by its owner.

    That is so with every device plugin: who is admitted while it is away is rejected for good.
    """
    settled = pods.wait_for(name, "settled", is_settled)
    if settled["status"]["phase"] != "Failed":
        return True
    message = settled["status"]["message"]
    assert "rpc error" in message or "no healthy devices present" in message, settled["status"]
    pods.delete(name)
    pods.run(manifest)
    return False


def test_a_gpu_goes_from_whole_to_parts_and_back_while_pods_run(
    agent: AgentUnderTest, pods: Pods, node: Cluster
) -> None:
    """The one who has it is waited for; nobody new gets it by the old door."""
    pods.run(render_part("a", 30, 8))
    said = agent.run("gpu", "set-door", "0", "whole")
    assert "GPU 0: door fractions until default/a (main) is gone, then whole" in said
    wait_count(node, CORE, 300)
    pods.delete("a")
    wait_count(node, GPU, 5)
    agent.run("gpu", "set-door", "0", "configured")
    wait_count(node, GPU, 4)
    wait_count(node, CORE, 400)
