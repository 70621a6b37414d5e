"""Faults of made-up GPUs, told as events on real pods through a real kubelet and API server."""

import json

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_gpus import ENVIRONMENT, GPU

SETTINGS = {**ENVIRONMENT, "kubelet": {"pod_resources_poll_seconds": 600}}
"""Nobody asks the kubelet for names by the clock: a fault alone does."""
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
REASONS = {"GPUXidError", "GPUSXidError"}
TOLD_SECONDS, COUNTED_SECONDS = 10.0, 30.0


def find_told(node: Cluster, pod: Json) -> list[Json]:
    """The events on the pod about faults, by uid: the name may have been another's before."""
    found = [each for each in node.api.get(EVENTS)["items"] if each["reason"] in REASONS]
    return [each for each in found if each["regarding"]["uid"] == pod["metadata"]["uid"]]


def wait_told(node: Cluster, pod: Json, count: int = 1, seconds: float = TOLD_SECONDS) -> Json:
    """The one event on the pod, once it has counted so many faults."""

    def find_lack() -> str | None:
        told = find_told(node, pod)
        counts = [(each.get("series") or {}).get("count", 1) for each in told]
        return None if counts == [count] else json.dumps(told)

    wait_until(f"an event on {pod['metadata']['name']}", find_lack, timeout_seconds=seconds)
    return find_told(node, pod)[0]


def find_index(agent: AgentUnderTest, pods: Pods, name: str) -> int:
    """The index of the pod's GPU on the node."""
    uuid = pods.exec(name, "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip()
    gpus = [one["gpu"] for one in agent.get_json("/api/v1/gpus")["gpus"]]
    return next(int(gpu["index"]) for gpu in gpus if gpu["uuid"] == uuid)


def test_the_pod_of_a_gpu_is_told_and_no_other(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """By uid, in the name of the pod's node; the event is there when the pod is gone."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    node.wait_count(GPU, 8)
    hit, other = (pods.read(pods.run(render_pod(name, limits={GPU: 1}))) for name in ("hit", "other"))
    index = find_index(agent, pods, "hit")
    agent.break_it("xid", "79", str(index))
    event = wait_told(node, hit)
    name = hit["spec"]["nodeName"]
    assert (event["reason"], event["reportingInstance"]) == ("GPUXidError", name)
    assert event["note"].startswith(f"[gpu-health] [CRITICAL] Xid 79 (the GPU fell off the bus) on GPU {index} GPU-")
    assert event["note"].endswith(f" node={name}")
    pods.delete("hit")
    assert [each["metadata"]["uid"] for each in find_told(node, hit)] == [event["metadata"]["uid"]]
    assert find_told(node, other) == []


def test_a_fault_that_repeats_is_one_event(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Counted; also by the agent's next life, which tells nothing that was told before."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    node.wait_count(GPU, 8)
    pod = pods.read(pods.run(render_pod("storm", limits={GPU: 1})))
    index = str(find_index(agent, pods, "storm"))
    for _ in range(5):
        agent.break_it("xid", "31", index)
    event = wait_told(node, pod, 5, COUNTED_SECONDS)
    assert event["note"].startswith("[gpu-health] [USER] Xid 31 (MMU page fault)")
    agent.restart()
    node.wait_count(GPU, 8)
    assert wait_told(node, pod, 5)["metadata"] == event["metadata"]
    agent.break_it("xid", "31", index)
    assert wait_told(node, pod, 2, COUNTED_SECONDS)["metadata"]["uid"] == event["metadata"]["uid"]


def test_pods_that_share_a_gpu_are_all_told_and_none_is_blamed(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """Whose program it was, the number does not say; nobody reads of a neighbour."""
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}
    agent = make_agent(gpus="simulated:t4", settings={**SETTINGS, "sharing": sharing})
    node.wait_count(GPU, 4)
    names = [pods.run(render_pod(f"shared-{number}", limits={GPU: 1})) for number in range(3)]
    agent.break_it("xid", "31", "0")
    notes = [wait_told(node, pods.read(name))["note"] for name in names]
    assert all(note.startswith("[gpu-health] [WARN] Xid 31 ") for note in notes)
    assert not any(name in note for name in names for note in notes)
