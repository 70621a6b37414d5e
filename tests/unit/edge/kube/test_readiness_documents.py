"""DaemonSets, agents' pods and nodes, as the API server writes them."""

import json
from typing import Any

import pytest

from nodeagent.edge.kube.readiness.documents import (
    find_image_tag,
    parse_agent_pod,
    parse_daemon_set,
    parse_fleet_node,
    render_condition_patch,
)
from nodeagent.model.cluster import NodeCondition
from nodeagent.model.readiness import AgentDaemonSet, AgentPod, ClusterCondition, FleetNode

Json = dict[str, Any]


def encode(document: Json) -> bytes:
    return json.dumps(document).encode()


def render_pod(status: Json, **spec: Any) -> Json:
    owners = [{"kind": "Other", "uid": "o"}, {"kind": "DaemonSet", "uid": "d", "name": "nodeagent"}]
    metadata = {"name": "p", "namespace": "gpu", "uid": "u", "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"containers": [{"image": "repo/nodeagent:1.2"}]} | spec, "status": status}


def test_a_daemon_set() -> None:
    condition = {"type": "nodeagent.io/Ready", "status": "False", "reason": "R", "message": "m"}
    counts = {"observedGeneration": 3, "desiredNumberScheduled": 5, "updatedNumberScheduled": 4, "numberReady": 1}
    document = {
        "metadata": {"name": "a", "namespace": "gpu", "uid": "u", "resourceVersion": "77", "generation": 4},
        "status": counts | {"conditions": [{"type": "another", "status": "True"}, condition]},
    }
    assert parse_daemon_set(encode(document)) == AgentDaemonSet(
        uid="u",
        namespace="gpu",
        name="a",
        version=77,
        generation=4,
        observed_generation=3,
        desired=5,
        updated=4,
        condition=ClusterCondition(status="False", reason="R", message="m"),
    )
    del document["status"]
    assert parse_daemon_set(encode(document)).condition is None


def test_a_running_pod() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"state": {"running": {}}}]}
    assert parse_agent_pod(encode(render_pod(status, nodeName="n"))) == AgentPod(
        uid="u", namespace="gpu", name="p", owner="d", node="n", image_tag="1.2", is_ready=True
    )


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {
                "initContainerStatuses": [{"state": {"running": {}}}],
                "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}],
            },
            "ImagePullBackOff: no image",
        ),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}, "CrashLoopBackOff"),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no memory"}
                ]
            },
            "Unschedulable: no memory",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]}, ""),
        ({}, ""),
    ],
)
def test_why_a_pod_is_not_ready(status: Json, trouble: str) -> None:
    """In the words of kubelet or scheduler; a container that is being created needs no explanation."""
    pod = parse_agent_pod(encode(render_pod(status)))
    assert (pod.is_ready, pod.trouble) == (False, trouble)


def test_a_pod_waits_for_the_node_it_was_made_for() -> None:
    """The DaemonSet controller names the node in the pod's affinity; another maker's pod has no node yet."""
    fields = [{"key": "metadata.other", "values": ["x"]}, {"key": "metadata.name", "operator": "In", "values": ["n"]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": []}, {"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert parse_agent_pod(encode(render_pod({}, affinity=affinity))).node == "n"
    others: tuple[Json, ...] = ({}, {"nodeAffinity": {}}, {"podAffinity": {}})
    for other in others:
        assert parse_agent_pod(encode(render_pod({}, affinity=other))).node == ""


def test_an_ending_pod_without_owner_or_container() -> None:
    metadata = {"name": "p", "namespace": "gpu", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    pod = parse_agent_pod(encode({"metadata": metadata}))
    assert (pod.is_ending, pod.owner, pod.image_tag) == (True, "", "latest")


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("nodeagent:1.2", "1.2"),
        ("registry.example:5000/gpu/nodeagent:1.2", "1.2"),
        ("registry.example:5000/gpu/nodeagent", "latest"),
        ("nodeagent:1.2@sha256:0123456789abcdef", "1.2"),
        ("nodeagent@sha256:0123456789abcdef", "sha256:0123456789ab"),
    ],
)
def test_the_tag_of_an_image(image: str, tag: str) -> None:
    """A port is no tag."""
    assert find_image_tag(image) == tag


@pytest.mark.parametrize(
    ("labels", "has_gpus"),
    [
        ({"nvidia.com/gpu.present": "true"}, True),
        ({"feature.node.kubernetes.io/pci-10de.present": "true"}, True),
        ({"nvidia.com/gpu.present": "false"}, False),
        (None, False),
    ],
)
def test_labels_say_whether_a_node_has_gpus(labels: dict[str, str] | None, has_gpus: bool) -> None:
    node = parse_fleet_node(encode({"metadata": {"name": "n", "uid": "u", "labels": labels}}))
    assert (node.has_gpus, node.is_kubelet_ready, node.condition) == (has_gpus, False, None)


def test_the_conditions_of_a_node() -> None:
    """An unknown word for a status is unknown."""
    ready = {"type": "Ready", "status": "True"}
    gpus = {"type": "nvidia.com/GPUReady", "status": "Perhaps", "reason": "R", "message": "m"}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100"}
    node = parse_fleet_node(
        encode({"metadata": {"name": "n", "uid": "u", "labels": labels}, "status": {"conditions": [ready, gpus]}})
    )
    condition = NodeCondition(status="Unknown", reason="R", message="m")
    assert node == FleetNode(name="n", model="NVIDIA-H100", is_kubelet_ready=True, condition=condition)


@pytest.mark.parametrize("parse", [parse_daemon_set, parse_agent_pod, parse_fleet_node])
def test_another_document_is_refused(parse: Any) -> None:
    with pytest.raises(ValueError, match="it is not a"):
        parse(b'{"metadata": {"name": 7}}')


@pytest.mark.parametrize("changed", [True, False])
def test_the_transition_time_moves_only_with_the_status(changed: bool) -> None:
    condition = ClusterCondition(status="False", reason="R", message="m")
    (written,) = render_condition_patch(condition, 0.0, changed=changed)["status"]["conditions"]
    assert written.pop("lastTransitionTime", None) == ("1970-01-01T00:00:00Z" if changed else None)
    assert written == {"type": "nodeagent.io/Ready", "status": "False", "reason": "R", "message": "m"}
