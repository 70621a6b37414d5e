"""DaemonSets, pods of agents and nodes as the API server writes the documents, reduced to the fields for readiness.

Owns the shape of the documents, as types: fields not named here are skipped without being decoded. Pure: no
communication.
"""

from typing import Any, Final

from msgspec import Raw, Struct, field

from nodeagent.edge.kube.fleet_documents import decode_as
from nodeagent.edge.kube.node_document import render_time
from nodeagent.model.cluster import READY_CONDITION, NodeCondition
from nodeagent.model.labels import FEATURE
from nodeagent.model.nvidia import LABEL_PREFIX
from nodeagent.model.readiness import CLUSTER_CONDITION, AgentDaemonSet, AgentPod, ClusterCondition, FleetNode

GPU_LABELS: Final = (f"{FEATURE}pci-10de.present", f"{LABEL_PREFIX}gpu.present")
"""Labels of nodes with NVIDIA GPUs: node feature discovery's, and the agent's or a person's."""
_MODEL_LABEL: Final = f"{LABEL_PREFIX}gpu.product"
_STARTING: Final = frozenset({"", "PodInitializing", "ContainerCreating"})
"""Reasons of waiting containers that explain nothing."""
_DIGEST_LENGTH: Final = 19


class _Owner(Struct, frozen=True):
    uid: str
    kind: str = ""


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Condition(Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _DaemonSetStatus(Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    conditions: list[_Condition] | None = None


class _DaemonSet(Struct, frozen=True):
    metadata: _Metadata
    status: _DaemonSetStatus = _DaemonSetStatus()


class _Requirement(Struct, frozen=True):
    key: str
    values: list[str] | None = None


class _Term(Struct, frozen=True, rename="camel"):
    match_fields: list[_Requirement] | None = None


class _Required(Struct, frozen=True, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Struct, frozen=True):
    required: _Required | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _Container(Struct, frozen=True):
    image: str = ""


class _PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    affinity: _Affinity | None = None
    containers: list[_Container] | None = None


class _Waiting(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(Struct, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(Struct, frozen=True):
    state: _State = _State()


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: list[_Condition] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class _Pod(Struct, frozen=True):
    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _NodeStatus(Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Node(Struct, frozen=True):
    metadata: _Metadata
    status: _NodeStatus = _NodeStatus()


def parse_daemon_set(content: bytes | Raw) -> AgentDaemonSet:
    """A DaemonSet.

    Raises:
        ValueError: the document is no DaemonSet.
    """
    document = decode_as(content, _DaemonSet, "a DaemonSet")
    metadata, status = document.metadata, document.status
    condition = _find(status.conditions, CLUSTER_CONDITION)
    return AgentDaemonSet(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        version=int(metadata.resource_version),
        generation=metadata.generation,
        observed_generation=status.observed_generation,
        desired=status.desired_number_scheduled,
        updated=status.updated_number_scheduled,
        condition=None
        if condition is None
        else ClusterCondition(
            status=_read_status(condition.status), reason=condition.reason, message=condition.message
        ),
    )


def parse_agent_pod(content: bytes | Raw) -> AgentPod:
    """A pod of an agent.

    Raises:
        ValueError: the document is no pod.
    """
    document = decode_as(content, _Pod, "a pod")
    metadata, spec = document.metadata, document.spec
    owner = next((each.uid for each in metadata.owner_references or () if each.kind == "DaemonSet"), "")
    image = spec.containers[0].image if spec.containers else ""
    ready = _find(document.status.conditions, "Ready")
    return AgentPod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        owner=owner,
        node=spec.node_name or _find_target(spec.affinity),
        image_tag=find_image_tag(image),
        is_ready=ready is not None and ready.status == "True",
        is_ending=metadata.deletion_timestamp is not None,
        trouble=_find_trouble(document.status),
    )


def parse_fleet_node(content: bytes | Raw) -> FleetNode:
    """A node.

    Raises:
        ValueError: the document is no node.
    """
    document = decode_as(content, _Node, "a node")
    labels, conditions = document.metadata.labels or {}, document.status.conditions
    kubelet, gpus = _find(conditions, "Ready"), _find(conditions, READY_CONDITION)
    return FleetNode(
        name=document.metadata.name,
        has_gpus=any(labels.get(label) == "true" for label in GPU_LABELS),
        model=labels.get(_MODEL_LABEL, ""),
        is_kubelet_ready=kubelet is not None and kubelet.status == "True",
        condition=None
        if gpus is None
        else NodeCondition(status=_read_status(gpus.status), reason=gpus.reason, message=gpus.message),
    )


def render_condition_patch(condition: ClusterCondition, now_seconds: float, *, changed: bool) -> dict[str, Any]:
    """The condition alone; the transition time moves only with the status."""
    document = {
        "type": CLUSTER_CONDITION,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    transition = {"lastTransitionTime": render_time(now_seconds)} if changed else {}
    return {"status": {"conditions": [document | transition]}}


def find_image_tag(image: str) -> str:
    """The tag of an image; without a tag, the beginning of its digest."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    if colon:
        return tag
    return digest[:_DIGEST_LENGTH] or "latest"


def _find(conditions: list[_Condition] | None, kind: str) -> _Condition | None:
    return next((each for each in conditions or () if each.type == kind), None)


def _read_status(status: str) -> Any:
    return status if status in {"True", "False"} else "Unknown"


def _find_target(affinity: _Affinity | None) -> str:
    """The node that the DaemonSet controller has made the pod for; empty for a pod of another maker."""
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    fields = (
        each
        for term in (required.node_selector_terms if required is not None else None) or ()
        for each in term.match_fields or ()
    )
    return next((each.values[0] for each in fields if each.key == "metadata.name" and each.values), "")


def _find_trouble(status: _PodStatus) -> str:
    """What the kubelet says of a waiting container, or else the scheduler of a pod without a node."""
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in _STARTING:
            return _join(waiting.reason, waiting.message)
    scheduled = _find(status.conditions, "PodScheduled")
    return _join(scheduled.reason, scheduled.message) if scheduled is not None and scheduled.status == "False" else ""


def _join(*words: str) -> str:
    return ": ".join(word for word in words if word)
