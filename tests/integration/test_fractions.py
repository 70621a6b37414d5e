"""Parts of GPUs on a real kubelet and containerd: each container has the GPU and the limits that the journal says.

The GPUs are made up: a container is told by an environment variable which it was given, and its limits by the file that
the library would read. Everything between is real: the kubelet's ids, its calls, its records, the runtime's injection.
"""

import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodeagent.edge.host.vgpu.layout import LIMITS_BYTES
from nodeagent.edge.host.vgpu.limits_file import parse_limits
from nodeagent.rules.fractions.published import ANNOTATION, read_published
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.pods import PATH, WAIT, Pods, has_reached, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

CORE, MEMORY, GPU = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"
RIGHTS = CHECKOUT / "deploy" / "rbac-pod-labels.yaml"
WRITING = CHECKOUT / "deploy" / "rbac-fractions.yaml"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
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
    """By pod what the agent says it has bound, once it knows all by name: that may be a second after a start.

    Who ended before the name was told has none, and is given back after two looks at everything.
    """
    found: list[Json] = []

    def probe() -> str | None:
        nonlocal found
        found = [each["binding"] for each in agent.get_json("/api/v1/parts")["bound"]]
        nameless = [each["pod"]["uid"] for each in found if not each["pod"]["name"]]
        return f"not {nameless}" if nameless else None

    wait_until("all pods with parts to be known by name", probe, timeout_seconds=90)
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


@pytest.fixture
def agent(node: Cluster, make_agent: MakeAgent) -> AgentUnderTest:
    """A node of which half the GPUs are given in parts."""
    made = make_agent(gpus=PROFILE, settings=SETTINGS)
    for resource, count in ((GPU, 4), (CORE, 400), (MEMORY, 4 * 318)):
        node.wait_count(resource, count)
    return made


@pytest.mark.every_version
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


@pytest.fixture
def rights(node: Cluster) -> Iterator[None]:
    """What the agent may do with pods beside what it may do everywhere."""
    for path in (RIGHTS, WRITING):
        node.run("kubectl", "apply", "-f", str(path))
    yield
    for path in (RIGHTS, WRITING):
        node.run("kubectl", "delete", "-f", str(path))


@pytest.mark.every_version
@pytest.mark.usefixtures("rights")
def test_a_schedulers_choice_is_obeyed_where_it_can_be(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """The node says what it has, the pod says which GPU was chosen for it; one that cannot be is corrected."""
    agent = make_agent(gpus=PROFILE, settings=SETTINGS)
    node.wait_count(CORE, 400)
    node.wait("the annotation", "kubelet", lambda: None if read_annotation(node) else "none yet")
    assert [gpu.index for gpu in read_published(read_annotation(node)).gpus] == list(range(8))
    uuids = {one["gpu"]["index"]: one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    for name, chosen, given in (("third", 2, 2), ("elsewhere", 7, 2)):
        choice = {"tencent.com/predicate-gpu-idx-0": str(chosen)}
        pods.run(render_part(name, 10, 4, annotations=choice))
        assert read_told(pods, name)[0] == {uuids[given]}
    assert "the scheduler's choice cannot be" in agent.run("fractions", "explain", "default/elsewhere")
    pods.wait_for("elsewhere", "corrected", lambda pod: read_choice(pod) == ("2", uuids[2]))
    assert read_choice(pods.read("third")) == ("2", "")


def read_choice(pod: Json) -> tuple[str, str]:
    """Index and UUID of the GPU that the pod says to have."""
    notes = pod["metadata"]["annotations"]
    return notes["tencent.com/predicate-gpu-idx-0"], notes.get("tencent.com/predicate-gpu-uuid-0", "")


@pytest.mark.usefixtures("rights")
def test_what_is_free_in_pieces_serves_no_pair_until_two_gpus_are_free(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """360 cores are free, and no GPU is: the pair waits, and has two GPUs as soon as there are."""
    agent = make_agent(gpus=PROFILE, settings=SETTINGS)
    node.wait_count(CORE, 400)
    for index in range(4):
        choice = {"tencent.com/predicate-gpu-idx-0": str(index)}
        pods.run(render_part(f"piece-{index}", 10, 4, annotations=choice))
    assert len({binding["parts"][0]["gpu"] for binding in read_bindings(agent).values()}) == 4
    pods.create(render_part("pair", 200, 0))
    wait_until(
        "the kubelet to tell why",
        lambda: None if "no room" in (events := " ".join(pods.read_events("pair"))) else events,
        timeout_seconds=60,
    )
    pods.delete("piece-1", "piece-3")
    pods.wait("pair", "Running", timeout_seconds=180)
    check_pod(agent, pods, "pair", 200, 0)
    check_sums(agent)


def test_an_init_container_with_less_memory_starts(agent: AgentUnderTest, pods: Pods) -> None:
    """It has the ids of the one after it, and nothing tells the two apart: both have as much as the larger."""
    init = render_pod("init", ("sh", "-c", "true"), limits={CORE: 20, MEMORY: 4})["spec"]["containers"][0]
    pods.run(render_part("two-steps", 20, 16, spec={"initContainers": [init | {"name": "init"}]}))
    gpus, limits = read_told(pods, "two-steps")
    assert limits == [(*gpus, 16 * BLOCK_BYTES, 20)]
    assert len(read_bindings(agent)) == 1


@pytest.mark.timeout(400)
def test_a_deleted_checkpoint_gives_nothing_twice(agent: AgentUnderTest, pods: Pods, node: Cluster) -> None:
    """The kubelet takes what it has forgotten for free; the journal does not, and names who is concerned."""
    pods.run(render_part("a", 60, 16))
    pods.run(render_part("b", 60, 16))
    before = read_bindings(agent)
    node.forget_devices()
    for resource, count in ((CORE, 400), (MEMORY, 4 * 318)):
        node.wait_count(resource, count)

    def probe() -> str | None:
        found = [each["detail"] for each in agent.get_json("/api/v1/conditions") if each["code"] == "part-orphaned"]
        return None if all(any(name in each for each in found) for name in ("default/a", "default/b")) else str(found)

    wait_until("the forgotten containers to be named", probe, timeout_seconds=120)
    pods.run(render_part("c", 60, 16))
    pods.run(render_part("d", 40, 16))
    assert {name: read_bindings(agent)[name] for name in ("a", "b")} == before
    for name, cores in (("c", 60), ("d", 40)):
        check_pod(agent, pods, name, cores, 16)
    check_sums(agent)
    pods.delete("a", "b")
    wait_until(
        "the forgotten to be given back",
        lambda: str(left) if (left := {"a", "b"} & read_bindings(agent).keys()) else None,
        timeout_seconds=90,
    )


def test_a_deployment_is_rolled(agent: AgentUnderTest, pods: Pods, node: Cluster) -> None:
    """Each pod of the new revision has its own part beside those of the old one, whose parts are free afterwards."""
    template = render_part("rolled", 10, 8)
    template = {
        "metadata": {"labels": {"app": "rolled"}, "annotations": {"revision": "1"}},
        "spec": template["spec"] | {"restartPolicy": "Always"},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "rolled"},
        "spec": {"replicas": 6, "selector": {"matchLabels": {"app": "rolled"}}, "template": template},
    }
    node.api.post(DEPLOYMENTS, deployment)
    try:
        first = wait_revision(node, "1", 6)
        node.api.patch(
            f"{DEPLOYMENTS}/rolled", {"spec": {"template": {"metadata": {"annotations": {"revision": "2"}}}}}
        )
        second = wait_revision(node, "2", 6)
        assert not first & second
        for name in second:
            check_pod(agent, pods, name, 10, 8)
        check_sums(agent)
        wait_until(
            "the parts of the old revision to be free",
            lambda: str(left) if (left := read_bindings(agent).keys() - second) else None,
            timeout_seconds=90,
        )
    finally:
        node.api.delete(f"{DEPLOYMENTS}/rolled", {"propagationPolicy": "Foreground"})


def wait_revision(node: Cluster, revision: str, count: int) -> set[str]:
    """The pods of a revision, once there are so many that run, and no others."""
    found: set[str] = set()

    def probe() -> str | None:
        nonlocal found
        there = node.api.get(PATH)["items"]
        found = {
            pod["metadata"]["name"]
            for pod in there
            if pod["metadata"]["annotations"].get("revision") == revision and has_reached(pod, "Running")
        }
        return None if len(found) == len(there) == count else f"{len(found)} of {len(there)}"

    wait_until(f"{count} pods of revision {revision}", probe, timeout_seconds=120)
    return found


def read_annotation(node: Cluster) -> str:
    """What the node says of its GPUs that are given in parts."""
    return str(node.api.read_node()["metadata"].get("annotations", {}).get(ANNOTATION, ""))


@pytest.mark.every_version
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
    run_at_once(agent, pods, node, [(5, 4)] * 30 + [(3, 8)] * 20 + [(7, 2)] * 12 + [(1, 1)] * 14)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_two_hundred_pods_at_once_each_have_their_own(agent: AgentUnderTest, pods: Pods, node: Cluster) -> None:
    """The same of more pods than most nodes take; the kubelet is killed with the agent."""
    sizes = [(2, 5)] * 60 + [(1, 3)] * 76 + [(3, 4)] * 40 + [(2, 8)] * 20
    run_at_once(agent, pods, node, sizes, between=node.restart_kubelet)


def run_at_once(
    agent: AgentUnderTest,
    pods: Pods,
    node: Cluster,
    sizes: list[tuple[int, int]],
    between: Callable[[], object] = lambda: None,
) -> None:
    """Pods with parts of these cores and blocks and four with whole GPUs, the agent killed half-way."""
    random.Random(7).shuffle(sizes)
    parts = {f"p{number:03}": size for number, size in enumerate(sizes)}
    manifests = {name: render_part(name, cores, blocks) for name, (cores, blocks) in parts.items()}
    manifests |= {name: render_pod(name, limits={GPU: 1}) for name in ("whole-0", "whole-1", "whole-2", "whole-3")}
    early, late = list(manifests)[: len(manifests) // 2], list(manifests)[len(manifests) // 2 :]
    for name in early:
        pods.create(manifests[name])
    agent.stop(signal.SIGKILL)
    between()
    agent.start()
    agent.wait_ready()
    for resource, count in ((GPU, 4), (CORE, 400), (MEMORY, 4 * 318)):
        node.wait_count(resource, count)
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
    assert read_bindings(agent).keys() == {"a"}  # by name from here on: it starts before the kubelet tells that
    said = agent.run("gpu", "set-door", "0", "whole")
    assert "GPU 0: door fractions until default/a (main) is gone, then whole" in said
    node.wait_count(CORE, 300)
    pods.delete("a")
    node.wait_count(GPU, 5)
    agent.run("gpu", "set-door", "0", "configured")
    node.wait_count(GPU, 4)
    node.wait_count(CORE, 400)
